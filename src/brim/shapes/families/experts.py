"""Decoders whose feed-forward blocks are experts, over ordinary or latent attention: which layers have them, and how they are stored.

Rules: transformers 5.24, models/<family>/configuration_<family>.py and modeling_<family>.py; names as its conversion writes them to disk.
"""

from brim.facts.model import Attention, FeedForward
from brim.shapes import blocks, kinds
from brim.shapes.families import decoder
from brim.shapes.fields import MAX_HEADS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

W123 = ("w1", "w3", "w2")


def mixtral(f: "Fields", b: "Blueprint") -> None:
    """Mixtral: `num_local_experts` everywhere."""
    width, layers = decoder.begin(f, b)
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    inner = f.whole("intermediate_size")

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.experts(b, p + "block_sparse_moe.", width, inner, count, used, names=W123)

    decoder.stack(b, layers, decoder.grouped(f, b, width, layers, kinds.all_sliding), feed)
    decoder.end(b)


def phimoe(f: "Fields", b: "Blueprint") -> None:
    """Phi-3.5-MoE: Mixtral with LayerNorm and biases."""
    width, layers = decoder.begin(f, b)
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    inner, bias = f.whole("intermediate_size"), f.flag("attention_bias")

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.experts(b, p + "block_sparse_moe.", width, inner, count, used, names=W123)

    decoder.stack(b, layers, decoder.grouped(f, b, width, layers, kinds.all_sliding, bias=bias, o_bias=bias), feed, norm="layer")
    decoder.end(b, norm="layer", head_bias=f.flag("lm_head_bias"))


def minimax_m2(f: "Fields", b: "Blueprint") -> None:
    """MiniMax M2: norms over all heads together, a saved correction of the router."""
    width, layers = decoder.begin(f, b)
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    inner = f.whole("intermediate_size")

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.experts(b, p + "block_sparse_moe.", width, inner, count, used, names=W123, router_bias="e_score_correction_bias")

    decoder.stack(b, layers, decoder.grouped(f, b, width, layers, qk_norm="width"), feed)
    decoder.end(b)


def qwen2_moe(f: "Fields", b: "Blueprint") -> None:
    """Qwen1.5-MoE and Qwen2-MoE; its rule for sliding layers is its own (every other one up to `max_window_layers`)."""
    width, layers = decoder.begin(f, b)

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        if not f.flag("use_sliding_window"):
            return (kinds.FULL,) * n
        last = f.maybe("max_window_layers", 0, 1 << 20) or 0
        return tuple(kinds.SLIDING if (index + 1) % 2 and index < last else kinds.FULL for index in range(n))

    decoder.stack(b, layers, decoder.grouped(f, b, width, layers, rule, bias=f.flag("qkv_bias")), blocks.qwen_feed(f, b, width, layers, shared=True))
    decoder.end(b)


def qwen3_moe(f: "Fields", b: "Blueprint") -> None:
    """Qwen3-MoE: no shared expert; every layer slides where `use_sliding_window` is set."""
    width, layers = decoder.begin(f, b)
    bias = f.flag("attention_bias")

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        return kinds.all_sliding(f, n) if f.flag("use_sliding_window") else (kinds.FULL,) * n

    attend = decoder.grouped(f, b, width, layers, rule, bias=bias, o_bias=bias, qk_norm="head")
    decoder.stack(b, layers, attend, blocks.qwen_feed(f, b, width, layers, shared=False))
    decoder.end(b)


def qwen3_vl_moe(f: "Fields", b: "Blueprint") -> None:
    """The text half of Qwen3-VL with experts: Qwen3-MoE whose experts are stacked in two tensors."""
    width, layers = decoder.begin(f, b)
    bias, sparse = f.flag("attention_bias"), blocks.sparse_layers(f, layers)
    count, used = blocks.experts_of(f, "num_experts", "num_experts_per_tok")
    inner, plain = f.whole("moe_intermediate_size"), f.whole("intermediate_size") if not all(sparse) else 0

    def feed(p: str, index: int) -> FeedForward:
        if not sparse[index]:
            return blocks.gated_mlp(b, p + "mlp.", width, plain)
        b.linear(p + "mlp.gate", "router", width, count)
        blocks.stacked(b, p + "mlp.experts.gate_up_proj", "expert_gate_up", (2 * inner, width), count, used)
        blocks.stacked(b, p + "mlp.experts.down_proj", "expert_down", (width, inner), count, used)
        return FeedForward(kind="experts", width=inner, experts=count, experts_used=used)

    decoder.stack(b, layers, decoder.grouped(f, b, width, layers, bias=bias, o_bias=bias, qk_norm="head"), feed)
    decoder.end(b)


def mellum(f: "Fields", b: "Blueprint") -> None:
    """Mellum 2: Qwen3-MoE's layers; `mlp_layer_types` says which are sparse."""
    width, layers = decoder.begin(f, b)
    bias, listed = f.flag("attention_bias"), kinds.given(f, layers, frozenset(("dense", "sparse")), "mlp_layer_types")
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    inner, plain = f.whole("moe_intermediate_size"), f.whole("intermediate_size")

    def feed(p: str, index: int) -> FeedForward:
        if listed is not None and listed[index] == "dense":
            return blocks.gated_mlp(b, p + "mlp.", width, plain)
        return blocks.experts(b, p + "mlp.", width, inner, count, used)

    decoder.stack(b, layers, decoder.grouped(f, b, width, layers, bias=bias, o_bias=bias, qk_norm="head"), feed)
    decoder.end(b)


def olmoe(f: "Fields", b: "Blueprint") -> None:
    """OLMoE: experts everywhere, norms over all heads together."""
    _all_experts(f, b, decoder.NORMS)


def flex_olmo(f: "Fields", b: "Blueprint") -> None:
    """FlexOlmo: OLMoE with the norms behind the blocks."""
    _all_experts(f, b, ("post_attention_layernorm", "post_feedforward_layernorm"))


def _all_experts(f: "Fields", b: "Blueprint", norms: tuple[str, ...]) -> None:
    width, layers = decoder.begin(f, b)
    count, used = blocks.experts_of(f, "num_experts", "num_experts_per_tok")
    inner, bias = f.whole("intermediate_size"), f.flag("attention_bias")
    attend = decoder.grouped(f, b, width, layers, bias=bias, o_bias=bias, qk_norm="width")
    decoder.stack(b, layers, attend, lambda p, _i: blocks.experts(b, p + "mlp.", width, inner, count, used), norms=norms)
    decoder.end(b)


def granitemoe(f: "Fields", b: "Blueprint") -> None:
    """Granite 3 MoE: the experts of a layer in two stacked tensors; with `shared_intermediate_size` a shared block too."""
    width, layers = decoder.begin(f, b)
    bias = f.flag("attention_bias")
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    inner, shared = f.whole("intermediate_size"), f.maybe("shared_intermediate_size", 0) or 0

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.granite_feed(b, p, width, inner, shared, count, used)

    decoder.stack(b, layers, decoder.grouped(f, b, width, layers, bias=bias, o_bias=bias), feed)
    decoder.end(b)


def gpt_oss(f: "Fields", b: "Blueprint") -> None:
    """gpt-oss: sinks in the attention, every second layer sliding, stacked experts with biases."""
    width, layers = decoder.begin(f, b)
    bias, inner = f.flag("attention_bias"), f.whole("intermediate_size")
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    inner_attend = decoder.grouped(f, b, width, layers, lambda _f, n: kinds.every(n, 2, kinds.FULL, kinds.SLIDING), bias=bias, o_bias=bias)

    def attend(p: str, index: int) -> Attention:
        a = inner_attend(p, index)
        b.vector(p + "self_attn.sinks", "other", a.heads)
        return a

    def feed(p: str, _index: int) -> FeedForward:
        b.linear(p + "mlp.router", "router", width, count, bias=True)
        for name, role, inputs, outputs in (("gate_up", "expert_gate_up", width, 2 * inner), ("down", "expert_down", inner, width)):
            blocks.stacked(b, f"{p}mlp.experts.{name}_proj", role, (outputs, inputs), count, used)
            blocks.stacked(b, f"{p}mlp.experts.{name}_proj_bias", role, (outputs,), count, used)
        return FeedForward(kind="experts", width=inner, experts=count, experts_used=used)

    decoder.stack(b, layers, attend, feed)
    decoder.end(b)


def dbrx(f: "Fields", b: "Blueprint") -> None:
    """DBRX: `attn_config` and `ffn_config` hold what its layers need; all experts of a layer in three tensors (modeling_dbrx.py, `DbrxExpertGLU`)."""
    width, layers = decoder.begin(f, b, "transformer.wte")
    heads = f.whole("num_attention_heads", 1, MAX_HEADS)
    f.divides("n_heads", "d_model", heads, width)
    own, inside = f.section("attn_config", {"kv_n_heads": 1}), f.section("ffn_config", {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1})
    if own is None or inside is None:
        f.wanting += ["attn_config"] * (own is None) + ["ffn_config"] * (inside is None)
        return
    kv_heads, each = own.whole("kv_n_heads", 1, MAX_HEADS), width // heads if heads else 0
    f.divides("attn_config.kv_n_heads", "n_heads", kv_heads, heads)
    a = Attention(kind="full", heads=heads, kv_heads=kv_heads, key_dim=each, value_dim=each)
    inner, (count, used) = inside.whole("ffn_hidden_size"), blocks.experts_of(inside, "moe_num_experts", "moe_top_k")

    def attend(p: str, _index: int) -> Attention:
        return blocks.fused_qkv(b, p + "norm_attn_norm.attn.", width, a, qkv="Wqkv", o="out_proj")

    def feed(p: str, _index: int) -> FeedForward:
        b.linear(p + "ffn.router.layer", "router", width, count)
        for name, role in (("w1", "expert_gate"), ("v1", "expert_up"), ("w2", "expert_down")):
            b.add(f"{p}ffn.experts.mlp.{name}", (width, inner * count), role, "experts")
            b.weights[-1] = b.weights[-1].replace(active=width * inner * used)
        return FeedForward(kind="experts", width=inner, experts=count, experts_used=used)

    norms = ("norm_attn_norm.norm_1", "norm_attn_norm.norm_2")
    decoder.stack(b, layers, attend, feed, at="transformer.blocks.{}.", norms=norms, norm="bare")
    decoder.end(b, final="transformer.norm_f", norm="bare")


def mimo_v2_flash(f: "Fields", b: "Blueprint") -> None:
    """MiMo V2 Flash: five sliding layers with twice the key/value heads and a sink for every full one; values narrower than keys.

    transformers 5.24 (modeling_mimo_v2_flash.py, `MiMoV2FlashAttention`) doubles the heads; a file that says `swa_num_key_value_heads` is taken at its word,
    as is `hybrid_layer_pattern` (1: sliding) and `moe_layer_freq` (0: dense) where there is no `layer_types` or `mlp_layer_types`.
    """
    width, layers = decoder.begin(f, b)
    heads, key_heads = f.whole("num_attention_heads", 1, MAX_HEADS), f.whole("num_key_value_heads", 1, MAX_HEADS)
    key, value, bias = f.whole("head_dim"), f.whole("v_head_dim"), f.flag("attention_bias")
    wide = f.maybe("swa_num_key_value_heads", 1, MAX_HEADS) or 2 * key_heads
    pattern, sparse = f.wholes("hybrid_layer_pattern", layers, 0, 1), f.wholes("moe_layer_freq", layers, 0, 1)
    types = kinds.given(f, layers, decoder.ATTENTION_ONLY)
    if types is None:
        slides = pattern or tuple(int(index > 0 and (index + 1) % 6 != 0) for index in range(layers))
        types = tuple(kinds.SLIDING if one else kinds.FULL for one in slides)
    feeds = f.words("mlp_layer_types", layers)
    alone = tuple(kind == "dense" for kind in feeds) if feeds else tuple(not one for one in sparse) if sparse else (True, *(False,) * (layers - 1))
    count, used = blocks.experts_of(f, "n_routed_experts", "num_experts_per_tok")
    plain, inner, before = f.whole("intermediate_size"), f.whole("moe_intermediate_size"), f.maybe("sliding_window_size", 1, 1 << 30)
    window = kinds.window_of(f) if before is None else before + 1

    def attend(p: str, index: int) -> Attention:
        word, span = kinds.attention_kind(types[index], window)
        many = wide if types[index] == kinds.SLIDING else key_heads
        f.divides("num_key_value_heads", "num_attention_heads", many, heads)
        a = Attention(kind=word, heads=heads, kv_heads=many, key_dim=key, value_dim=value, window=span)
        blocks.gqa(b, p + "self_attn.", width, a, bias=bias)
        if types[index] == kinds.SLIDING:
            b.vector(p + "self_attn.attention_sink_bias", "other", heads)
        return a

    def feed(p: str, index: int) -> FeedForward:
        if alone[index]:
            return blocks.gated_mlp(b, p + "mlp.", width, plain)
        return blocks.experts(b, p + "mlp.", width, inner, count, used, router_bias="gate.e_score_correction_bias")

    decoder.stack(b, layers, attend, feed)
    decoder.end(b)


def llama4(f: "Fields", b: "Blueprint") -> None:
    """Llama 4 (text): chunked layers with rotary positions, full ones without; stacked experts beside a shared one."""
    width, layers = decoder.begin(f, b)
    bias, inner, plain = f.flag("attention_bias"), f.whole("intermediate_size"), f.whole("intermediate_size_mlp")
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    chunk = f.maybe("attention_chunk_size", 1, 1 << 30) or 0
    types = kinds.given(f, layers, decoder.ATTENTION_ONLY) or _llama4_types(f, layers, chunk)
    sparse = _llama4_sparse(f, layers)

    def attend(p: str, index: int) -> Attention:
        return blocks.gqa(b, p + "self_attn.", width, blocks.attention(f, width, types[index], chunk), bias=bias, o_bias=bias)

    def feed(p: str, index: int) -> FeedForward:
        at = p + "feed_forward."
        if index not in sparse:
            return blocks.gated_mlp(b, at, width, plain)
        b.linear(at + "router", "router", width, count)
        blocks.stacked(b, at + "experts.gate_up_proj", "expert_gate_up", (2 * inner, width), count, used)
        blocks.stacked(b, at + "experts.down_proj", "expert_down", (width, inner), count, used)
        blocks.gated_mlp(b, at + "shared_expert.", width, inner, role="shared_")
        return FeedForward(kind="experts", width=inner, experts=count, experts_used=used, shared_width=inner)

    decoder.stack(b, layers, attend, feed)
    decoder.end(b)


def _llama4_types(f: "Fields", layers: int, chunk: int) -> tuple[str, ...]:
    rotary = f.wholes("no_rope_layers", layers, 0, 1) if f.raw("no_rope_layers") else None
    period = f.maybe("no_rope_layer_interval", 1, 1 << 16) or 4
    rotary = rotary or tuple(int((index + 1) % period != 0) for index in range(layers))
    return tuple(kinds.CHUNKED if turn and chunk else kinds.FULL for turn in rotary)


def _llama4_sparse(f: "Fields", layers: int) -> "frozenset[int]":
    if f.has("moe_layers"):
        return f.indices("moe_layers", layers)
    step = f.maybe("interleave_moe_layer_step", 0, 1 << 16) or 0
    return frozenset(range(step - 1, layers, step)) if step else frozenset()


def ernie_moe(f: "Fields", b: "Blueprint") -> None:
    """ERNIE 4.5 MoE: experts between `moe_layer_start_index` and `moe_layer_end_index`, each `moe_layer_interval`-th layer."""
    width, layers = decoder.begin(f, b)
    bias = f.flag("use_bias")
    first, last = f.maybe("moe_layer_start_index", 0, 1 << 20) or 0, f.maybe("moe_layer_end_index", -1, 1 << 20)
    last = layers - 1 if last in (None, -1) else last
    period = f.maybe("moe_layer_interval", 1, 1 << 16) or 1
    sparse = tuple((index + 1) % period == 0 and first <= index <= (last or 0) for index in range(layers))
    inner, plain = f.whole("moe_intermediate_size"), f.whole("intermediate_size")
    count, used = blocks.experts_of(f, "moe_num_experts", "moe_k")
    shared = (f.maybe("moe_num_shared_experts", 0, 1 << 12) or 0) * inner

    def feed(p: str, index: int) -> FeedForward:
        if not sparse[index]:
            return blocks.gated_mlp(b, p + "mlp.", width, plain, bias=bias)
        fed = blocks.experts(b, p + "mlp.", width, inner, count, used)
        b.add(p + "mlp.moe_statics.e_score_correction_bias", (count, 1), "router", "vector")
        if shared:
            blocks.gated_mlp(b, p + "mlp.shared_experts.", width, shared, bias=bias, role="shared_")
        return fed.replace(shared_width=shared)

    decoder.stack(b, layers, decoder.grouped(f, b, width, layers, bias=bias, o_bias=bias), feed)
    decoder.end(b, head_bias=bias)


def hunyuan_moe(f: "Fields", b: "Blueprint") -> None:
    """Hunyuan A13B: one shared block and `num_experts` routed ones of the same width in every layer."""
    width, layers = decoder.begin(f, b)
    bias, inner = f.flag("attention_bias"), f.whole("intermediate_size")
    count = f.whole("num_experts", 1, 1 << 16)
    used = max(f.wholes("moe_topk", layers, 1, 1 << 16) or (1,)) if layers else 1

    def attend(p: str, _index: int) -> Attention:
        a = blocks.attention(f, width)
        names = ("query_layernorm", "key_layernorm")
        return blocks.gqa(b, p + "self_attn.", width, a, bias=bias, o_bias=bias, qk_norm="head", norm_names=names)

    def feed(p: str, _index: int) -> FeedForward:
        fed = blocks.experts(b, p + "mlp.", width, inner, count, min(used, count), router="gate.wg")
        blocks.gated_mlp(b, p + "mlp.shared_mlp.", width, inner, role="shared_")
        return fed.replace(shared_width=inner)

    decoder.stack(b, layers, attend, feed)
    decoder.end(b)


def afmoe(f: "Fields", b: "Blueprint") -> None:
    """Trinity (AFMoE): a gate on the attention's output, sandwich norms, `num_dense_layers` plain layers first."""
    width, layers = decoder.begin(f, b)
    bias, inner, plain = f.flag("attention_bias"), f.whole("moe_intermediate_size"), f.whole("intermediate_size")
    count, used = blocks.experts_of(f, "num_experts", "num_experts_per_tok")
    dense, shared = f.maybe("num_dense_layers", 0, 1 << 20) or 0, (f.maybe("num_shared_experts", 0, 1 << 12) or 0) * inner

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        return kinds.every(n, f.whole("global_attn_every_n_layers", 1, 1 << 16), kinds.FULL, kinds.SLIDING)

    base = decoder.grouped(f, b, width, layers, rule, bias=bias, o_bias=bias, qk_norm="head")

    def attend(p: str, index: int) -> Attention:
        a = base(p, index)
        b.linear(p + "self_attn.gate_proj", "o_gate", width, a.heads * a.key_dim)
        return a

    def feed(p: str, index: int) -> FeedForward:
        if index < dense:
            return blocks.gated_mlp(b, p + "mlp.", width, plain)
        fed = blocks.experts(b, p + "mlp.", width, inner, count, used, router="router.gate")
        b.add(p + "mlp.expert_bias", (count,), "router", "vector")
        if shared:
            blocks.gated_mlp(b, p + "mlp.shared_experts.", width, shared, role="shared_")
        return fed.replace(shared_width=shared)

    decoder.stack(b, layers, attend, feed, norms=(*decoder.NORMS, "pre_mlp_layernorm", "post_mlp_layernorm"))
    decoder.end(b)
