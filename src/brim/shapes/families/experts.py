"""Decoders whose feed-forward blocks are experts, over ordinary or latent attention: which layers have them, and how they are stored.

Rules: transformers 5.24, models/<family>/configuration_<family>.py and modeling_<family>.py; names as its conversion writes them to disk.
"""

from brim.facts.model import Attention, FeedForward, Layer
from brim.shapes import blocks, kinds
from brim.shapes.families import decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

W123 = ("w1", "w3", "w2")
_SPARSE = frozenset(("dense", "sparse"))


def _attend(
    f: "Fields",
    b: "Blueprint",
    width: int,
    layers: int,
    rule: "decoder.Rule | None" = None,
    *,
    bias: bool = False,
    o_bias: bool = False,
    qk_norm: str = "",
    strict: bool = True,
) -> "decoder.Attend":
    types, window = decoder.layer_kinds(f, layers, rule)

    def attend(p: str, index: int) -> Attention:
        a = blocks.attention(f, width, types[index], window, strict=strict)
        return blocks.gqa(b, p + "self_attn.", width, a, bias=bias, o_bias=o_bias, qk_norm=qk_norm)

    return attend


def mixtral(f: "Fields", b: "Blueprint") -> None:
    """Mixtral: `num_local_experts` everywhere."""
    width, layers = decoder.begin(f, b)
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    inner = f.whole("intermediate_size")

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.experts(b, p + "block_sparse_moe.", width, inner, count, used, names=W123)

    decoder.stack(b, layers, _attend(f, b, width, layers, kinds.all_sliding), feed)
    decoder.end(b)


def phimoe(f: "Fields", b: "Blueprint") -> None:
    """Phi-3.5-MoE: Mixtral with LayerNorm and biases."""
    width, layers = decoder.begin(f, b)
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    inner, bias = f.whole("intermediate_size"), f.flag("attention_bias")

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.experts(b, p + "block_sparse_moe.", width, inner, count, used, names=W123)

    decoder.stack(b, layers, _attend(f, b, width, layers, kinds.all_sliding, bias=bias, o_bias=bias), feed, norm="layer")
    decoder.end(b, norm="layer", head_bias=f.flag("lm_head_bias"))


def minimax_m2(f: "Fields", b: "Blueprint") -> None:
    """MiniMax M2: norms over all heads together, a saved correction of the router."""
    width, layers = decoder.begin(f, b)
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    inner = f.whole("intermediate_size")

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.experts(b, p + "block_sparse_moe.", width, inner, count, used, names=W123, router_bias="e_score_correction_bias")

    decoder.stack(b, layers, _attend(f, b, width, layers, qk_norm="width"), feed)
    decoder.end(b)


def sparse_layers(f: "Fields", layers: int, step: str = "decoder_sparse_step") -> tuple[bool, ...]:
    """Qwen's rule: experts in each `decoder_sparse_step`-th layer that is not among `mlp_only_layers`."""
    period, dense = f.maybe(step, 1, 1 << 16) or 1, f.indices("mlp_only_layers", layers)
    count = f.maybe("num_experts", 0, 1 << 16) or 0
    return tuple(bool(count) and index not in dense and (index + 1) % period == 0 for index in range(layers))


def qwen_feed(f: "Fields", b: "Blueprint", width: int, layers: int, *, shared: bool) -> "decoder.Feed":
    """Qwen's feed-forward: experts in sparse layers, beside them (where `shared`) one gated shared expert; plain blocks in the others."""
    sparse = sparse_layers(f, layers)
    count, used = blocks.experts_of(f, "num_experts", "num_experts_per_tok")
    inner = f.whole("moe_intermediate_size") if any(sparse) else 0
    both = f.whole("shared_expert_intermediate_size", 0) if shared and any(sparse) else 0
    plain = f.whole("intermediate_size") if not all(sparse) else 0

    def feed(p: str, index: int) -> FeedForward:
        if not sparse[index]:
            return blocks.gated_mlp(b, p + "mlp.", width, plain)
        fed = blocks.experts(b, p + "mlp.", width, inner, count, used)
        if not shared:
            return fed
        blocks.gated_mlp(b, p + "mlp.shared_expert.", width, both, role="shared_")
        b.linear(p + "mlp.shared_expert_gate", "router", width, 1)
        return fed.replace(shared_width=both)

    return feed


def qwen2_moe(f: "Fields", b: "Blueprint") -> None:
    """Qwen1.5-MoE and Qwen2-MoE; its rule for sliding layers is its own (every other one up to `max_window_layers`)."""
    width, layers = decoder.begin(f, b)

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        if not f.flag("use_sliding_window"):
            return (kinds.FULL,) * n
        last = f.maybe("max_window_layers", 0, 1 << 20) or 0
        return tuple(kinds.SLIDING if (index + 1) % 2 and index < last else kinds.FULL for index in range(n))

    decoder.stack(b, layers, _attend(f, b, width, layers, rule, bias=f.flag("qkv_bias")), qwen_feed(f, b, width, layers, shared=True))
    decoder.end(b)


def qwen3_moe(f: "Fields", b: "Blueprint") -> None:
    """Qwen3-MoE: no shared expert; every layer slides where `use_sliding_window` is set."""
    width, layers = decoder.begin(f, b)
    bias = f.flag("attention_bias")

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        return kinds.all_sliding(f, n) if f.flag("use_sliding_window") else (kinds.FULL,) * n

    attend = _attend(f, b, width, layers, rule, bias=bias, o_bias=bias, qk_norm="head")
    decoder.stack(b, layers, attend, qwen_feed(f, b, width, layers, shared=False))
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
    attend = _attend(f, b, width, layers, bias=bias, o_bias=bias, qk_norm="width")
    decoder.stack(b, layers, attend, lambda p, _i: blocks.experts(b, p + "mlp.", width, inner, count, used), norms=norms)
    decoder.end(b)


def granitemoe(f: "Fields", b: "Blueprint") -> None:
    """Granite 3 MoE: the experts of a layer in two stacked tensors; with `shared_intermediate_size` a shared block too."""
    width, layers = decoder.begin(f, b)
    bias = f.flag("attention_bias")
    decoder.stack(b, layers, _attend(f, b, width, layers, bias=bias, o_bias=bias), granite_feed(f, b, width))
    decoder.end(b)


def granite_feed(f: "Fields", b: "Blueprint", width: int) -> "decoder.Feed":
    """Granite's feed-forward: stacked experts where there are any, and a shared block where it has a width."""
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    inner = f.whole("intermediate_size") if count else 0
    shared = f.maybe("shared_intermediate_size", 0) or 0

    def feed(p: str, _index: int) -> FeedForward:
        fed = FeedForward(kind="dense", width=shared)
        if count:
            at = p + "block_sparse_moe."
            b.linear(at + "router.layer", "router", width, count)
            blocks.stacked(b, at + "input_linear.weight", "expert_gate_up", (width, 2 * inner), count, used)
            blocks.stacked(b, at + "output_linear.weight", "expert_down", (inner, width), count, used)
            fed = FeedForward(kind="experts", width=inner, experts=count, experts_used=used, shared_width=shared)
        if shared:
            b.linear(p + "shared_mlp.input_linear", "shared_gate_up", width, 2 * shared)
            b.linear(p + "shared_mlp.output_linear", "shared_down", shared, width)
        return fed

    return feed


def gpt_oss(f: "Fields", b: "Blueprint") -> None:
    """gpt-oss: sinks in the attention, every second layer sliding, stacked experts with biases."""
    width, layers = decoder.begin(f, b)
    bias, inner = f.flag("attention_bias"), f.whole("intermediate_size")
    count, used = blocks.experts_of(f, "num_local_experts", "num_experts_per_tok")
    inner_attend = _attend(f, b, width, layers, lambda _f, n: kinds.every(n, 2, kinds.FULL, kinds.SLIDING), bias=bias, o_bias=bias)

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


def mixed_feed(f: "Fields", b: "Blueprint", width: int, layers: int, sparse: "tuple[bool, ...]", **names: str) -> "decoder.Feed":
    """DeepSeek's feed-forward: plain blocks first, then routed experts beside shared ones of the same width each.

    `names`: total, used, shared (fields); at, router, router_bias, shared_at (places), dense_at.
    """
    count, used = blocks.experts_of(f, names.get("total", "n_routed_experts"), names.get("used", "num_experts_per_tok"))
    inner = f.whole("moe_intermediate_size") if any(sparse) else 0
    shared = (f.maybe(names.get("shared", "n_shared_experts"), 0, 1 << 12) or 0) * inner
    plain = f.whole("intermediate_size") if not all(sparse) else 0
    at, router_bias = names.get("at", "mlp."), names.get("router_bias", "gate.e_score_correction_bias")

    def feed(p: str, index: int) -> FeedForward:
        if not sparse[index]:
            return blocks.gated_mlp(b, p + names.get("dense_at", at), width, plain)
        fed = blocks.experts(b, p + at, width, inner, count, used, router=names.get("router", "gate"), router_bias=router_bias)
        if shared:
            blocks.gated_mlp(b, p + at + names.get("shared_at", "shared_experts."), width, shared, role="shared_")
        return fed.replace(shared_width=shared)

    return feed


def sparse_from(f: "Fields", layers: int, default: int | None = None) -> tuple[bool, ...]:
    """`mlp_layer_types` where the file has it, else experts from layer `first_k_dense_replace` on."""
    listed = kinds.given(f, layers, _SPARSE, "mlp_layer_types")
    if listed is not None:
        return tuple(kind == "sparse" for kind in listed)
    first = f.maybe("first_k_dense_replace", 0, 1 << 20)
    first = default if first is None else first
    return tuple(index >= (first or 0) for index in range(layers))


def deepseek_v2(f: "Fields", b: "Blueprint") -> None:
    """DeepSeek v2 and v2-Lite: latent attention, no saved correction of the router."""
    _deepseek(f, b, router_bias="")


def deepseek_v3(f: "Fields", b: "Blueprint") -> None:
    """DeepSeek v3, R1, Kimi K2, GLM-4.7-Flash: latent attention, a saved correction of the router, layers for multi-token prediction."""
    _deepseek(f, b)


def glm_lite(f: "Fields", b: "Blueprint") -> None:
    """GLM-4.7-Flash: DeepSeek v3 with one plain layer unless the file says otherwise."""
    _deepseek(f, b, default=1)


def deepseek_v32(f: "Fields", b: "Blueprint") -> None:
    """DeepSeek v3.2: v3 with an indexer in every layer, whose keys are cached too."""
    _deepseek(f, b, indexer=True)


def glm_dsa(f: "Fields", b: "Blueprint") -> None:
    """GLM-5: DeepSeek v3.2 in which some layers reuse another's index (`indexer_types`, or the schedule behind it)."""
    _deepseek(f, b, indexer=True)


def _deepseek(f: "Fields", b: "Blueprint", *, router_bias: str = "gate.e_score_correction_bias", indexer: bool = False, default: int | None = None) -> None:
    width, layers = decoder.begin(f, b)
    a, bias = blocks.latent_dims(f), f.flag("attention_bias")
    sparse = sparse_from(f, layers, default)
    index_heads = f.whole("index_n_heads", 1, 1 << 16) if indexer else 0
    index_dim = f.whole("index_head_dim") if indexer else 0
    own = _indexed(f, layers) if indexer else (False,) * layers

    def attend(p: str, index: int) -> Attention:
        blocks.mla(b, p + "self_attn.", width, a, bias=bias)
        if not own[min(index, layers - 1)]:
            return a
        at = p + "self_attn.indexer."
        b.linear(at + "wq_b", "index", a.query_rank, index_heads * index_dim)
        b.linear(at + "wk", "index", width, index_dim)
        b.norm(at + "k_norm", index_dim, "layer")
        b.linear(at + "weights_proj", "index", width, index_heads)
        return a.replace(index_heads=index_heads, index_dim=index_dim)

    feed = mixed_feed(f, b, width, layers, (*sparse, True), router_bias=router_bias)
    decoder.stack(b, layers, attend, feed)
    decoder.end(b)
    draft(f, b, layers, attend, feed)


def _indexed(f: "Fields", layers: int) -> tuple[bool, ...]:
    """Which layers have an indexer of their own: `indexer_types`, `index_topk_pattern` (F and S), or frequency and offset (GLM-5)."""
    listed = f.words("indexer_types", layers)
    if listed is None and f.has("index_topk_pattern"):
        pattern = f.raw("index_topk_pattern")
        letters = {"F": "full", "S": "shared"}
        listed = tuple(letters.get(c, c) for c in pattern) if isinstance(pattern, str) else f.words("index_topk_pattern", layers)
        if listed is None or len(listed) != layers:
            raise f.bad("index_topk_pattern", f"has {len(listed or ())} entries for {layers} layers")
    if listed is not None:
        return tuple(kind == "full" for kind in listed)
    period, offset = f.maybe("index_topk_freq", 1, 1 << 16) or 1, f.maybe("index_skip_topk_offset", 0, 1 << 16)
    return tuple(max(index - (2 if offset is None else offset) + 1, 0) % period == 0 for index in range(layers))


def draft(f: "Fields", b: "Blueprint", layers: int, attend: "decoder.Attend", feed: "decoder.Feed") -> None:
    """The layers for multi-token prediction that published files carry behind the main ones (DeepSeek v3 technical report, section 2.2).

    Their tensors: the layer itself, `enorm`, `hnorm`, `eh_proj`, and copies of embedding and head in `embed_tokens` and `shared_head`.
    """
    count = f.maybe("num_nextn_predict_layers", 0, 64) or 0
    b.draft_layers, b.tower = count, "draft"
    for index in range(layers, layers + count):
        b.layer, p = index, f"model.layers.{index}."
        for name in decoder.NORMS:
            b.norm(p + name, b.width)
        attend(p, layers)
        feed(p, layers)
        b.norm(p + "enorm", b.width)
        b.norm(p + "hnorm", b.width)
        b.linear(p + "eh_proj", "other", 2 * b.width, b.width)
        b.table(p + "embed_tokens", b.vocabulary, b.width)
        b.norm(p + "shared_head.norm", b.width)
        b.linear(p + "shared_head.head", "lm_head", b.width, b.vocabulary)
    b.layer, b.tower = None, "text"


def glm4_moe(f: "Fields", b: "Blueprint") -> None:
    """GLM-4.5 and 4.6: grouped attention, DeepSeek's experts."""
    width, layers = decoder.begin(f, b)
    qk_norm = "head" if f.flag("use_qk_norm") else ""
    attend = _attend(f, b, width, layers, bias=f.flag("attention_bias"), qk_norm=qk_norm, strict=False)
    feed = mixed_feed(f, b, width, layers, (*sparse_from(f, layers), True))
    decoder.stack(b, layers, attend, feed)
    decoder.end(b)
    draft(f, b, layers, lambda p, _i: attend(p, 0), feed)


def dots1(f: "Fields", b: "Blueprint") -> None:
    """dots.llm1: norms on query and key, DeepSeek's experts; the layers from `max_window_layers` on slide."""
    width, layers = decoder.begin(f, b)
    bias = f.flag("attention_bias")

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        first = f.maybe("max_window_layers", 0, 1 << 20) or 0
        return tuple(kinds.SLIDING if kinds.window_of(f) and index >= first else kinds.FULL for index in range(n))

    attend = _attend(f, b, width, layers, rule, bias=bias, o_bias=bias, qk_norm="head")
    decoder.stack(b, layers, attend, mixed_feed(f, b, width, layers, sparse_from(f, layers)))
    decoder.end(b)


def solar_open(f: "Fields", b: "Blueprint") -> None:
    """Solar Open: experts in every layer."""
    width, layers = decoder.begin(f, b)
    bias = f.flag("attention_bias")
    decoder.stack(b, layers, _attend(f, b, width, layers, bias=bias), mixed_feed(f, b, width, layers, (True,) * layers))
    decoder.end(b)


def exaone_moe(f: "Fields", b: "Blueprint") -> None:
    """K-EXAONE: EXAONE 4's attention and sliding layers, DeepSeek's experts."""
    width, layers = decoder.begin(f, b)

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        if not kinds.window_of(f):
            return (kinds.FULL,) * n
        return kinds.every(n, f.whole("sliding_window_pattern", 0, 1 << 16), kinds.FULL, kinds.SLIDING)

    sparse = sparse_from(f, layers)
    fields = {"total": "num_experts", "shared": "num_shared_experts", "router_bias": "e_score_correction_bias"}
    decoder.stack(b, layers, _attend(f, b, width, layers, rule, qk_norm="head"), mixed_feed(f, b, width, layers, sparse, **fields))
    decoder.end(b)


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

    decoder.stack(b, layers, _attend(f, b, width, layers, bias=bias, o_bias=bias), feed)
    decoder.end(b)


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


def hy_v3(f: "Fields", b: "Blueprint") -> None:
    """Hunyuan 3: norms on query and key, one plain layer, a saved correction of the router."""
    width, layers = decoder.begin(f, b)
    bias = f.flag("attention_bias")
    places = {
        "total": "num_experts",
        "shared": "num_shared_experts",
        "router": "router.gate",
        "router_bias": "expert_bias",
        "shared_at": "shared_mlp.",
    }
    attend = _attend(f, b, width, layers, bias=bias, o_bias=bias, qk_norm="head")
    decoder.stack(b, layers, attend, mixed_feed(f, b, width, layers, sparse_from(f, layers, 1), **places))
    decoder.end(b)


def afmoe(f: "Fields", b: "Blueprint") -> None:
    """Trinity (AFMoE): a gate on the attention's output, sandwich norms, `num_dense_layers` plain layers first."""
    width, layers = decoder.begin(f, b)
    bias, inner, plain = f.flag("attention_bias"), f.whole("moe_intermediate_size"), f.whole("intermediate_size")
    count, used = blocks.experts_of(f, "num_experts", "num_experts_per_tok")
    dense, shared = f.maybe("num_dense_layers", 0, 1 << 20) or 0, (f.maybe("num_shared_experts", 0, 1 << 12) or 0) * inner

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        return kinds.every(n, f.whole("global_attn_every_n_layers", 1, 1 << 16), kinds.FULL, kinds.SLIDING)

    base = _attend(f, b, width, layers, rule, bias=bias, o_bias=bias, qk_norm="head")

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


def longcat(f: "Fields", b: "Blueprint") -> None:
    """LongCat-Flash: two latent attentions and two plain blocks a layer around one set of experts, some of which do nothing.

    Each half is drawn as a layer of its own (it has a cache of its own).
    """
    b.width, b.vocabulary = f.whole("hidden_size"), f.whole("vocab_size", 1, 1 << 27)
    layers, width = f.layers("num_layers"), b.width
    b.context, b.tied = f.maybe("max_position_embeddings", 1, 1 << 40), f.flag("tie_word_embeddings")
    a, inner, plain = blocks.latent_dims(f), f.whole("expert_ffn_hidden_size"), f.whole("ffn_hidden_size")
    count, used = blocks.experts_of(f, "n_routed_experts", "moe_topk")
    idle, bias = f.maybe("zero_expert_num", 0, 1 << 16) or 0, f.flag("attention_bias")
    b.table("model.embed_tokens", b.vocabulary, width)
    for index in range(layers):
        p = f"model.layers.{index}."
        b.layer = 2 * index
        b.linear(p + "mlp.router.classifier", "router", width, count + idle)
        b.add(p + "mlp.router.e_score_correction_bias", (count + idle,), "router", "buffer")
        for name, role, dims in zip(blocks.MLP, ("expert_gate", "expert_up", "expert_down"), ((width, inner), (width, inner), (inner, width)), strict=True):
            b.linear(p + "mlp.experts.{}." + name, role, *dims, copies=count, used=used)
        for half in range(2):
            b.layer = 2 * index + half
            b.norm(f"{p}input_layernorm.{half}", width)
            b.norm(f"{p}post_attention_layernorm.{half}", width)
            blocks.mla(b, f"{p}self_attn.{half}.", width, a, bias=bias)
            fed = blocks.gated_mlp(b, f"{p}mlps.{half}.", width, plain)
            b.draw(Layer(index=2 * index + half, attention=a, feed_forward=fed))
    b.unusual.append("each published layer holds two attentions and is drawn as two layers; a token may skip experts (zero experts)")
    decoder.end(b)
