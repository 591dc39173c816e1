"""Experts after DeepSeek's pattern — plain layers first, then routed experts beside shared ones — over latent or grouped attention.

Rules: transformers 5.24, models/<family>/configuration_<family>.py and modeling_<family>.py; the layers for multi-token prediction as published files have them.
"""

from brim.facts.model import Attention, FeedForward, Layer
from brim.shapes import blocks, kinds
from brim.shapes.families import decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

_SPARSE = frozenset(("dense", "sparse"))


def mixed_feed(
    f: "Fields",
    b: "Blueprint",
    width: int,
    layers: int,
    sparse: "tuple[bool, ...]",
    named: "dict[str, str] | None" = None,
    *,
    bias: bool = False,
) -> "decoder.Feed":
    """DeepSeek's feed-forward: plain blocks first, then routed experts beside shared ones of the same width each.

    `named`: total, used, shared (fields); at, router, router_bias, shared_at (places), dense_at; stacked (any word: two tensors hold all experts).
    """
    names = named or {}
    total, taken = names.get("total", "n_routed_experts"), names.get("used", "num_experts_per_tok")
    count, used = blocks.experts_of(f, total, taken, optional=not any(sparse))
    inner = f.whole("moe_intermediate_size") if any(sparse) else 0
    shared = (f.maybe(names.get("shared", "n_shared_experts"), 0, 1 << 12) or 0) * inner
    plain = f.whole("intermediate_size") if not all(sparse) else 0
    at, router_bias = names.get("at", "mlp."), names.get("router_bias", "gate.e_score_correction_bias")

    def feed(p: str, index: int) -> FeedForward:
        if not sparse[index]:
            return blocks.gated_mlp(b, p + names.get("dense_at", at), width, plain, bias=bias)
        draw = blocks.stacked_experts if names.get("stacked") else blocks.experts
        fed = draw(b, p + at, width, inner, count, used, router=names.get("router", "gate"), router_bias=router_bias)
        if shared:
            blocks.gated_mlp(b, p + at + names.get("shared_at", "shared_experts."), width, shared, bias=bias, role="shared_")
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
    """DeepSeek v2 and v2-Lite: latent attention, no saved correction of the router; plain and shared blocks have biases where `mlp_bias` is set."""
    _deepseek(f, b, router_bias="", mlp_bias=f.flag("mlp_bias"))


def deepseek_v3(f: "Fields", b: "Blueprint") -> None:
    """DeepSeek v3, R1, Kimi K2, GLM-4.7-Flash: latent attention, a saved correction of the router, layers for multi-token prediction."""
    _deepseek(f, b)


def glm_lite(f: "Fields", b: "Blueprint") -> None:
    """GLM-4.7-Flash: DeepSeek v3 with one plain layer unless the file says otherwise."""
    _deepseek(f, b, default=1)


def axk1(f: "Fields", b: "Blueprint") -> None:
    """A.X K1: DeepSeek v3 with a norm behind the experts; one plain layer unless the file says otherwise."""
    sparse = sparse_from(f, f.layers(), 1)
    _deepseek(f, b, default=1)
    for index, rows in enumerate(sparse):
        if rows:
            b.layer = index
            b.norm(f"model.layers.{index}.post_mlp_layernorm", b.width)
    b.layer = None


def mistral4(f: "Fields", b: "Blueprint") -> None:
    """Mistral 4: latent attention, stacked experts beside a shared one, no saved correction of the router."""
    width, layers = decoder.begin(f, b)
    a, bias, sparse = blocks.latent_dims(f), f.flag("attention_bias"), sparse_from(f, layers)
    count, used = blocks.experts_of(f, "n_routed_experts", "num_experts_per_tok")
    inner, plain = f.whole("moe_intermediate_size"), f.whole("intermediate_size") if not all(sparse) else 0
    shared = (f.maybe("n_shared_experts", 0, 1 << 12) or 0) * inner

    def feed(p: str, index: int) -> FeedForward:
        if not sparse[index]:
            return blocks.gated_mlp(b, p + "mlp.", width, plain)
        fed = blocks.stacked_experts(b, p + "mlp.", width, inner, count, used)
        if shared:
            blocks.gated_mlp(b, p + "mlp.shared_experts.", width, shared, role="shared_")
        return fed.replace(shared_width=shared)

    decoder.stack(b, layers, lambda p, _i: blocks.mla(b, p + "self_attn.", width, a, bias=bias), feed)
    decoder.end(b)


def deepseek_v32(f: "Fields", b: "Blueprint") -> None:
    """DeepSeek v3.2: v3 with an indexer in every layer, whose keys are cached too."""
    _deepseek(f, b, indexer=True)


def glm_dsa(f: "Fields", b: "Blueprint") -> None:
    """GLM-5: DeepSeek v3.2 in which some layers reuse another's index (`indexer_types`, or the schedule behind it)."""
    _deepseek(f, b, indexer=True)


def _deepseek(
    f: "Fields",
    b: "Blueprint",
    *,
    router_bias: str = "gate.e_score_correction_bias",
    indexer: bool = False,
    default: int | None = None,
    mlp_bias: bool = False,
) -> None:
    width, layers = decoder.begin(f, b)
    a, bias = blocks.latent_dims(f), f.flag("attention_bias")
    sparse = sparse_from(f, layers, default)
    if indexer and not a.query_rank:
        f.whole("q_lora_rank")
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

    feed = mixed_feed(f, b, width, layers, (*sparse, True), {"router_bias": router_bias}, bias=mlp_bias)
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
    count = (f.maybe("num_nextn_predict_layers", 0, 64) or 0) if layers else 0  # a file that does not say how many layers it has is refused for that at the end
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
    attend = decoder.grouped(f, b, width, layers, bias=f.flag("attention_bias"), qk_norm=qk_norm, strict=False)
    feed = mixed_feed(f, b, width, layers, (*sparse_from(f, layers), True))
    decoder.stack(b, layers, attend, feed)
    decoder.end(b)
    draft(f, b, layers, lambda p, _i: attend(p, 0), feed)


def sarvam_moe(f: "Fields", b: "Blueprint") -> None:
    """Sarvam's experts: GLM-4.5's, under Bailing's names, query, key and value in one matrix."""
    width, layers = decoder.begin(f, b, "model.word_embeddings")
    bias, norms = f.flag("attention_bias"), f.flag("use_qk_norm")

    def attend(p: str, _index: int) -> Attention:
        a = blocks.attention(f, width, strict=False)
        for name in ("query_layernorm", "key_layernorm") if norms else ():
            b.norm(f"{p}attention.{name}", a.key_dim)
        return blocks.fused_qkv(b, p + "attention.", width, a, qkv="query_key_value", o="dense", bias=bias)

    decoder.stack(b, layers, attend, mixed_feed(f, b, width, layers, sparse_from(f, layers), {"router_bias": "gate.expert_bias"}))
    decoder.end(b)


def glm4v_moe(f: "Fields", b: "Blueprint") -> None:
    """The text half of GLM-4.5V: GLM-4.5 without norms on query and key; saved by itself (transformers 5 only) its experts are stacked."""
    width, layers = decoder.begin(f, b)
    attend = decoder.grouped(f, b, width, layers, bias=f.flag("attention_bias"), strict=False)
    feed = mixed_feed(f, b, width, layers, sparse_from(f, layers), {"stacked": "" if f.path or "model_type" not in f.values else "yes"})
    decoder.stack(b, layers, attend, feed)
    decoder.end(b)


def dots1(f: "Fields", b: "Blueprint") -> None:
    """dots.llm1: norms on query and key, DeepSeek's experts; the layers from `max_window_layers` on slide."""
    width, layers = decoder.begin(f, b)
    bias = f.flag("attention_bias")

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        first = f.maybe("max_window_layers", 0, 1 << 20) or 0
        return tuple(kinds.SLIDING if kinds.window_of(f) and index >= first else kinds.FULL for index in range(n))

    attend = decoder.grouped(f, b, width, layers, rule, bias=bias, o_bias=bias, qk_norm="head")
    decoder.stack(b, layers, attend, mixed_feed(f, b, width, layers, sparse_from(f, layers)))
    decoder.end(b)


def solar_open(f: "Fields", b: "Blueprint") -> None:
    """Solar Open: experts in every layer."""
    width, layers = decoder.begin(f, b)
    bias = f.flag("attention_bias")
    decoder.stack(b, layers, decoder.grouped(f, b, width, layers, bias=bias), mixed_feed(f, b, width, layers, (True,) * layers))
    decoder.end(b)


def exaone_moe(f: "Fields", b: "Blueprint") -> None:
    """K-EXAONE: EXAONE 4's attention and sliding layers, DeepSeek's experts."""
    width, layers = decoder.begin(f, b)

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        if not kinds.window_of(f):
            return (kinds.FULL,) * n
        return kinds.by_letters(f, n) or kinds.every(n, f.whole("sliding_window_pattern", 0, 1 << 16), kinds.FULL, kinds.SLIDING)

    sparse = sparse_from(f, layers)
    fields = {"total": "num_experts", "shared": "num_shared_experts", "router_bias": "e_score_correction_bias"}
    decoder.stack(b, layers, decoder.grouped(f, b, width, layers, rule, qk_norm="head"), mixed_feed(f, b, width, layers, sparse, fields))
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
    attend = decoder.grouped(f, b, width, layers, bias=bias, o_bias=bias, qk_norm="head")
    decoder.stack(b, layers, attend, mixed_feed(f, b, width, layers, sparse_from(f, layers, 1), places, bias=f.flag("mlp_bias")))
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
