"""Hybrids: states in most layers, attention in some; the file's own lists say which layer is which.

Rules: transformers 5.24, models/<family>/configuration_<family>.py and modeling_<family>.py.
"""

from brim.facts.model import FeedForward, Layer, State
from brim.shapes import blocks, kinds, states
from brim.shapes.families import decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

_MIXED = frozenset((kinds.FULL, kinds.LINEAR))


def _hybrid(
    f: "Fields",
    b: "Blueprint",
    types: tuple[str, ...],
    attend: "decoder.Attend",
    keep: "Callable[[str, int], State]",
    feed: "decoder.Feed",
    *,
    norms: tuple[str, ...] = decoder.NORMS,
    final: str = "model.norm",
) -> None:
    """Attention in full layers, a state in the others, a feed-forward block in all."""
    for index, kind in enumerate(types):
        b.layer, p = index, f"model.layers.{index}."
        for name in norms:
            b.norm(p + name, b.width)
        a = attend(p, index) if kind == kinds.FULL else None
        kept = keep(p, index) if kind != kinds.FULL else None
        b.draw(Layer(index=index, attention=a, state=kept, feed_forward=feed(p, index)))
    decoder.end(b, final=final)


def jamba(f: "Fields", b: "Blueprint") -> None:
    """Jamba: attention each `attn_layer_period`-th layer from `attn_layer_offset` on, experts by the same kind of rule."""
    width, layers = decoder.begin(f, b)
    inner, plain = f.whole("mamba_expand", 1, 64) * width, f.whole("intermediate_size")
    every, start = f.whole("attn_layer_period", 1, 1 << 16), f.whole("attn_layer_offset", 0, 1 << 16)
    e_every, e_start = f.whole("expert_layer_period", 1, 1 << 16), f.whole("expert_layer_offset", 0, 1 << 16)
    count, used = blocks.experts_of(f, "num_experts", "num_experts_per_tok")
    state, kernel, rank = f.whole("mamba_d_state"), f.whole("mamba_d_conv", 1, 1024), states.rank_of(f, "mamba_dt_rank", width)
    conv_bias, bias = f.flag("mamba_conv_bias"), f.flag("mamba_proj_bias")

    def keep(p: str, _index: int) -> State:
        return states.mamba1(b, p + "mamba.", width, inner, state, kernel, rank, conv_bias=conv_bias, bias=bias, norms=True)

    def feed(p: str, index: int) -> FeedForward:
        at = p + "feed_forward."
        if count > 1 and e_every and index % e_every == e_start:
            return blocks.experts(b, at, width, plain, count, used, router="router")
        return blocks.gated_mlp(b, at, width, plain)

    types = tuple(kinds.FULL if every and index % every == start else kinds.LINEAR for index in range(layers))
    a = blocks.attention(f, width)
    norms, final = ("input_layernorm", "pre_ff_layernorm"), "model.final_layernorm"
    _hybrid(f, b, types, lambda p, _i: blocks.gqa(b, p + "self_attn.", width, a), keep, feed, norms=norms, final=final)


def bamba(f: "Fields", b: "Blueprint") -> None:
    """Bamba: attention in the layers of `attn_layer_indices`, Mamba 2 in the others."""
    width, layers = decoder.begin(f, b)
    plain, bias, chosen = f.whole("intermediate_size"), f.flag("attention_bias"), f.indices("attn_layer_indices", layers)
    types = tuple(kinds.FULL if index in chosen else kinds.LINEAR for index in range(layers))
    a, feed_bias = blocks.attention(f, width), f.flag("mlp_bias")
    _hybrid(
        f,
        b,
        types,
        lambda p, _i: blocks.gqa(b, p + "self_attn.", width, a, bias=bias, o_bias=bias),
        lambda p, _i: states.mamba2_of(f, b, p + "mamba.", width),
        lambda p, _i: blocks.gated_mlp(b, p + "feed_forward.", width, plain, bias=feed_bias),
        norms=("input_layernorm", "pre_ff_layernorm"),
        final="model.final_layernorm",
    )


def falcon_h1(f: "Fields", b: "Blueprint") -> None:
    """Falcon-H1: attention and Mamba 2 side by side in every layer."""
    width, layers = decoder.begin(f, b)
    plain, bias, a = f.whole("intermediate_size"), f.flag("attention_bias"), blocks.attention(f, width)
    inner, feed_bias = f.maybe("mamba_d_ssm", 1) or f.whole("mamba_expand", 1, 64) * width, f.flag("mlp_bias")
    out_bias, norm = f.flag("projectors_bias"), f.flag("mamba_rms_norm")
    for index in range(layers):
        b.layer, p = index, f"model.layers.{index}."
        b.norm(p + "input_layernorm", width)
        b.norm(p + "pre_ff_layernorm", width)
        kept = states.mamba2_of(f, b, p + "mamba.", width, inner=inner, out_bias=out_bias, norm=norm)
        blocks.gqa(b, p + "self_attn.", width, a, bias=bias, o_bias=bias)
        fed = blocks.gated_mlp(b, p + "feed_forward.", width, plain, bias=feed_bias)
        b.draw(Layer(index=index, attention=a, state=kept, feed_forward=fed))
    decoder.end(b, final="model.final_layernorm")


def granite_hybrid(f: "Fields", b: "Blueprint") -> None:
    """Granite 4: `layer_types` (older: `layers_block_type`) says attention or Mamba 2; experts stacked, a shared block beside them."""
    width, layers = decoder.begin(f, b)
    types = kinds.given(f, layers, _MIXED) or (kinds.LINEAR,) * layers
    a, bias, count_used = blocks.attention(f, width), f.flag("attention_bias"), blocks.experts_of(f, "num_local_experts", "num_experts_per_tok", optional=True)
    inner = f.whole("intermediate_size") if count_used[0] else 0
    shared = f.maybe("shared_intermediate_size", 0) or 0
    _hybrid(
        f,
        b,
        types,
        lambda p, _i: blocks.gqa(b, p + "self_attn.", width, a, bias=bias, o_bias=bias),
        lambda p, _i: states.mamba2_of(f, b, p + "mamba.", width),
        lambda p, _i: blocks.granite_feed(b, p, width, inner, shared, *count_used),
    )


def lfm2(f: "Fields", b: "Blueprint") -> None:
    """LFM2: short convolutions with attention in between; the feed-forward width is adjusted as Llama 1 did it."""
    width, layers = decoder.begin(f, b)
    if f.has("tie_embedding"):
        b.tied = f.flag("tie_embedding")
    inner = f.maybe("block_ff_dim", 1) or f.whole("intermediate_size")
    if f.flag("block_auto_adjust_ff_dim"):
        step = f.whole("block_multiple_of", 1, 1 << 20)
        inner = int(2 * inner / 3)
        factor = f.ratio("block_ffn_dim_multiplier")
        inner = -(-int(factor * inner) // (step or 1)) * step if factor is not None else inner
    _lfm(f, b, width, layers, lambda p, _i: blocks.gated_mlp(b, p + "feed_forward.", width, inner, names=("w1", "w3", "w2")))


def lfm2_moe(f: "Fields", b: "Blueprint") -> None:
    """LFM2-MoE: experts from layer `num_dense_layers` on."""
    width, layers = decoder.begin(f, b)
    if f.has("tie_embedding"):
        b.tied = f.flag("tie_embedding")
    first, plain, inner = f.maybe("num_dense_layers", 0, 1 << 20) or 0, f.whole("intermediate_size"), f.whole("moe_intermediate_size")
    count, used = blocks.experts_of(f, "num_experts", "num_experts_per_tok")
    names, router_bias = ("w1", "w3", "w2"), "expert_bias" if f.flag("use_expert_bias") else ""

    def feed(p: str, index: int) -> FeedForward:
        at = p + "feed_forward."
        if index < first:
            return blocks.gated_mlp(b, at, width, plain, names=names)
        return blocks.experts(b, at, width, inner, count, used, names=names, router_bias=router_bias)

    _lfm(f, b, width, layers, feed)


def _lfm(f: "Fields", b: "Blueprint", width: int, layers: int, feed: "decoder.Feed") -> None:
    known = frozenset((kinds.FULL, kinds.CONV))
    types = kinds.given(f, layers, known)
    if types is None:
        chosen = f.indices("full_attn_idxs", layers) if f.has("full_attn_idxs") else frozenset(range(layers))
        types = tuple(kinds.FULL if index in chosen else kinds.CONV for index in range(layers))
    a, kernel, bias = blocks.attention(f, width), f.whole("conv_L_cache", 1, 1024), f.flag("conv_bias")
    names, norm_names = ("q_proj", "k_proj", "v_proj", "out_proj"), ("q_layernorm", "k_layernorm")
    _hybrid(
        f,
        b,
        types,
        lambda p, _i: blocks.gqa(b, p + "self_attn.", width, a, names=names, qk_norm="head", norm_names=norm_names),
        lambda p, _i: states.short_conv(b, p + "conv.", width, kernel, bias=bias),
        feed,
        norms=("operator_norm", "ffn_norm"),
        final="model.embedding_norm",
    )


def minimax(f: "Fields", b: "Blueprint") -> None:
    """MiniMax-Text-01 and M1: lightning attention with full attention in between, Mixtral's experts."""
    width, layers = decoder.begin(f, b)
    types = kinds.given(f, layers, _MIXED) or _minimax_types(f, layers)
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    a, inner, block = blocks.attention(f, width), f.whole("intermediate_size"), f.whole("block_size", 1, 1 << 16)
    if f.has("attn_type_list"):
        block = 0  # the layout as first published: its code makes the decay tables when it loads (MiniMax-M1's index has none)
    _hybrid(
        f,
        b,
        types,
        lambda p, _i: blocks.gqa(b, p + "self_attn.", width, a),
        lambda p, _i: states.lightning(b, p + "self_attn.", width, a.heads, a.key_dim, block),
        lambda p, _i: blocks.experts(b, p + "block_sparse_moe.", width, inner, count, used, names=("w1", "w3", "w2")),
    )


def _minimax_types(f: "Fields", layers: int) -> tuple[str, ...]:
    """The published file's `attn_type_list` (1 is full, 0 lightning), else every other layer."""
    listed = f.wholes("attn_type_list", layers, 0, 1)
    if listed is not None:
        return tuple(kinds.FULL if kind else kinds.LINEAR for kind in listed)
    return tuple(kinds.FULL if (index + 1) % 2 else kinds.LINEAR for index in range(layers))


def kimi_linear(f: "Fields", b: "Blueprint") -> None:
    """Kimi Linear: Kimi Delta Attention with latent attention in between; the published config keeps its lists in `linear_attn_config`."""
    width, layers = decoder.begin(f, b)
    b.tied = False  # transformers 5.24: KimiLinearForCausalLM ties nothing, whatever the config says
    inside = f.section("linear_attn_config")
    heads, dim, kernel = (
        (inside and inside.maybe(name, 1)) or f.whole(other, 1)
        for name, other in (("num_heads", "linear_num_heads"), ("head_dim", "linear_head_dim"), ("short_conv_kernel_size", "linear_conv_kernel_dim"))
    )
    types = kinds.given(f, layers, _MIXED)
    if types is None and inside is not None and inside.has("full_attn_layers"):
        full = inside.indices("full_attn_layers", layers)  # counted from 1 in the published file
        types = tuple(kinds.FULL if index + 1 in full else kinds.LINEAR for index in range(layers))
    if types is None:
        types = tuple(kinds.FULL if index and index % 4 == 0 else kinds.LINEAR for index in range(layers))
    a, plain, inner = blocks.latent_dims(f), f.whole("intermediate_size"), f.whole("moe_intermediate_size")
    count, used = blocks.experts_of(f, "num_experts", "num_experts_per_token")
    shared = (f.maybe("num_shared_experts", 0, 1 << 12) or 0) * inner
    first = f.maybe("first_k_dense_replace", 0, 1 << 20)
    listed = kinds.given(f, layers, frozenset(("dense", "sparse")), "mlp_layer_types")

    def feed(p: str, index: int) -> FeedForward:
        if listed[index] == "dense" if listed else index < (1 if first is None else first):
            return blocks.gated_mlp(b, p + "mlp.", width, plain)
        at = p + "block_sparse_moe."
        fed = blocks.experts(b, at, width, inner, count, used, names=("w1", "w3", "w2"), router_bias="gate.e_score_correction_bias")
        if shared:
            blocks.gated_mlp(b, at + "shared_experts.", width, shared, role="shared_")
        return fed.replace(shared_width=shared)

    def keep(p: str, _index: int) -> State:
        return states.kimi_delta(b, p + "self_attn.", width, heads, dim, kernel)

    _hybrid(f, b, types, lambda p, _i: blocks.mla(b, p + "self_attn.", width, a, bias=f.flag("attention_bias")), keep, feed)


def qwen3_next(f: "Fields", b: "Blueprint") -> None:
    """Qwen3-Next: gated delta nets, each `full_attention_interval`-th layer gated full attention, experts beside a shared one."""
    width, layers = decoder.begin(f, b)
    _qwen_hybrid(f, b, width, layers, blocks.qwen_feed(f, b, width, layers, shared=True), fused=True)


def qwen3_5(f: "Fields", b: "Blueprint") -> None:
    """Qwen3.5 dense (text): as Qwen3-Next with separate projections and plain feed-forward blocks."""
    width, layers = decoder.begin(f, b)
    inner = f.whole("intermediate_size")
    _qwen_hybrid(f, b, width, layers, lambda p, _i: blocks.gated_mlp(b, p + "mlp.", width, inner), fused=False)


def qwen3_5_moe(f: "Fields", b: "Blueprint") -> None:
    """Qwen3.5 with experts (text): experts in every layer."""
    width, layers = decoder.begin(f, b)
    _qwen_hybrid(f, b, width, layers, blocks.qwen_feed(f, b, width, layers, shared=True), fused=False)


def _qwen_hybrid(f: "Fields", b: "Blueprint", width: int, layers: int, feed: "decoder.Feed", *, fused: bool) -> None:
    types = kinds.given(f, layers, _MIXED)
    if types is None:
        period = f.maybe("full_attention_interval", 0, 1 << 16)
        types = kinds.every(layers, 4 if period is None else period, kinds.FULL, kinds.LINEAR)
    bias, a = f.flag("attention_bias"), blocks.attention(f, width)
    _hybrid(
        f,
        b,
        types,
        lambda p, _i: blocks.gqa(b, p + "self_attn.", width, a, bias=bias, o_bias=bias, qk_norm="head", gated=True),
        lambda p, _i: states.delta_net(f, b, p + "linear_attn.", width, fused=fused),
        feed,
    )


def nemotron_h(f: "Fields", b: "Blueprint") -> None:
    """Nemotron-H and Nemotron 3: one block a layer — Mamba 2, attention, feed-forward or experts — as `hybrid_override_pattern` says."""
    b.width, b.vocabulary = f.whole("hidden_size"), f.whole("vocab_size", 1, 1 << 27)
    b.context = f.maybe("max_position_embeddings", 1, 1 << 40)  # and never tied: NemotronHForCausalLM ties nothing
    types, width = _nemotron_types(f), b.width
    b.table("backbone.embeddings", b.vocabulary, width)
    a = blocks.attention(f, width)
    for index, kind in enumerate(types):
        b.layer, p = index, f"backbone.layers.{index}.mixer."
        b.norm(f"backbone.layers.{index}.norm", width)
        if kind == kinds.FULL:
            b.draw(Layer(index=index, attention=blocks.gqa(b, p, width, a)))
        elif kind == kinds.LINEAR:
            b.draw(Layer(index=index, state=_nemotron_state(f, b, p, width)))
        else:
            b.draw(Layer(index=index, feed_forward=_nemotron_feed(f, b, p, width, experts=kind == "moe")))
    decoder.end(b, final="backbone.norm_f")


def _nemotron_types(f: "Fields") -> tuple[str, ...]:
    letters = {"M": kinds.LINEAR, "E": "moe", "*": kinds.FULL, "-": "mlp"}
    pattern, listed = f.raw("hybrid_override_pattern"), f.raw("layers_block_type")
    if pattern is not None:
        if not isinstance(pattern, str) or not 1 <= len(pattern) <= 4096 or set(pattern) - set(letters):
            raise f.bad("hybrid_override_pattern", "must be a word of the letters M, E, * and -")
        types = tuple(letters[letter] for letter in pattern)
    elif isinstance(listed, (list, tuple)):
        types = kinds.given(f, len(listed), name="layers_block_type") or ()
    else:
        types = (kinds.LINEAR, "moe", kinds.FULL, "mlp")
    told = f.maybe("num_hidden_layers", 1, 4096)
    if told is not None and told != len(types):
        raise f.bad("num_hidden_layers", f"is {told}, but the pattern has {len(types)} layers")
    return types


def _nemotron_state(f: "Fields", b: "Blueprint", p: str, width: int) -> State:
    heads = f.whole("mamba_num_heads", 1, 1 << 16)
    bias = f.flag("use_bias")
    groups = f.maybe("mamba_n_groups", 1, 1 << 16) or f.whole("n_groups", 1, 1 << 16)
    return states.mamba2(
        b,
        p,
        width,
        heads * f.whole("mamba_head_dim"),
        heads,
        groups,
        f.whole("ssm_state_size"),
        f.maybe("mamba_d_conv", 1, 1024) or f.whole("conv_kernel", 1, 1024),
        conv_bias=f.flag("use_conv_bias"),
        bias=bias,
        out_bias=bias,
    )


def _nemotron_feed(f: "Fields", b: "Blueprint", p: str, width: int, *, experts: bool) -> FeedForward:
    bias, names = f.flag("mlp_bias"), ("up_proj", "down_proj")
    if not experts:
        return blocks.plain_mlp(b, p, width, f.whole("intermediate_size"), bias=bias, names=names)
    count, used = blocks.experts_of(f, "n_routed_experts", "num_experts_per_tok")
    inner, shared, latent = f.whole("moe_intermediate_size"), f.whole("moe_shared_expert_intermediate_size"), f.maybe("moe_latent_size", 1)
    b.linear(p + "gate", "router", width, count)
    b.add(p + "gate.e_score_correction_bias", (count,), "router", "buffer")
    if latent:
        b.linear(p + "fc1_latent_proj", "other", width, latent, bias=bias)
        b.linear(p + "fc2_latent_proj", "other", latent, width, bias=bias)
    b.linear(p + "experts.{}.up_proj", "expert_up", latent or width, inner, copies=count, used=used)
    b.linear(p + "experts.{}.down_proj", "expert_down", inner, latent or width, copies=count, used=used)
    blocks.plain_mlp(b, p + "shared_experts.", width, shared, bias=bias, names=names, role="shared_")
    return FeedForward(kind="experts", width=inner, gated=False, experts=count, experts_used=used, shared_width=shared)
