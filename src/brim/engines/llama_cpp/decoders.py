"""Plain decoders: attention and a feed-forward block in every layer, told apart by a few traits and by which tensors the file has.

Source: the graph functions of src/models/*.cpp, llama.cpp b11434. One row of `STYLES` an architecture; what a file's tensors decide (biases, query and key
norms, fused projections, shared experts) has no trait.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import SIGMOID, SOFTMAX, SOFTMAX_WEIGHT, Builder
from brim.engines.llama_cpp.feedforward import dense, experts, shared
from brim.engines.llama_cpp.tensor import T
from brim.values import Record


class Style(Record):
    """How one architecture's decoder differs from llama's.

    `embed`: `scale` (one more op) or `rows` (scaled by an input). `rope`: `all`, `none`, `windowed` (sliding layers only). `qk_norm`: `before` or `after` the rotation, `flat` over the
    whole width. `q_scale`: queries are scaled by an op of their own. `post`: norms behind attention and feed-forward. `ffn_norm`: the name of the norm before the feed-forward.
    `residual`: order of the additions. `tail`: `masked` keeps all rows to the output norm, `hidden` and `normed` keep the hidden state alive as an output of its own.
    """

    norm: str = "RMS_NORM"
    act: str = "silu"
    embed: str = ""
    rope: str = "all"
    qk_norm: str = "before"
    q_scale: bool = False
    post: bool = False
    ffn_norm: str = "ffn_norm"
    parallel: bool = False
    halves: bool = False
    soft_cap: bool = False
    final_cap: bool = False
    logit_scale: bool = False
    residual_scale: bool = False
    gating: int = SOFTMAX
    normalise: bool | None = True
    shared_gate: bool = False
    tail: str = ""
    sinks: bool = False
    attention_first: bool = True
    checked: bool = False


STYLES: dict[str, Style] = {
    "llama": Style(qk_norm="", checked=True),
    "qwen2": Style(qk_norm="", checked=True),
    "qwen3": Style(checked=True),
    "qwen3moe": Style(checked=True),
    "phi3": Style(qk_norm="", q_scale=True, halves=True, attention_first=False, checked=True),
    "gemma2": Style(act="gelu", embed="scale", q_scale=True, post=True, soft_cap=True, final_cap=True, qk_norm="", checked=True),
    "gemma3": Style(act="gelu", embed="rows", q_scale=True, post=True, final_cap=True, checked=True),
    "gpt-oss": Style(
        act="swiglu_oai", ffn_norm="post_attention_norm", gating=SOFTMAX_WEIGHT, normalise=False, tail="hidden", sinks=True, qk_norm="", checked=True
    ),
    "cohere2": Style(norm="NORM", parallel=True, rope="windowed", logit_scale=True, qk_norm=""),
    "glm4moe": Style(ffn_norm="post_attention_norm", gating=SIGMOID, normalise=None, tail="normed"),
}


def positioned(b: Builder, style: Style, il: int, q: T, k: "T | None") -> "tuple[T, T | None]":
    """Query and key norms and the rotation, in the architecture's order."""
    if style.qk_norm == "before":
        if b.layer(il, "attn_q_norm.weight") is not None:
            q = b.normed(q, il, "attn_q_norm", style.norm)
        if k is not None and b.layer(il, "attn_k_norm.weight") is not None:
            k = b.normed(k, il, "attn_k_norm", style.norm)
    if style.rope == "all" or (style.rope == "windowed" and b.hp.windowed[il]):
        factors = rope_factors(b, il)
        q = g.rope(q, b.positions, factors)
        k = None if k is None else g.rope(k, b.positions, factors)
    if style.qk_norm == "after":
        if b.layer(il, "attn_q_norm.weight") is not None:
            q = b.normed(q, il, "attn_q_norm", style.norm)
        if k is not None and b.layer(il, "attn_k_norm.weight") is not None:
            k = b.normed(k, il, "attn_k_norm", style.norm)
    return (g.scale(q) if style.q_scale else q), k


def rope_factors(b: Builder, il: int) -> "T | None":
    """The frequency factors that a file may bring, where the layer lies (`get_rope_factors`)."""
    home = b.placement.layers[il]
    found = b.weight("rope_freqs.weight", home)
    if found is not None:
        return found
    trained = int(b.hp.get("rope.scaling.original_context_length", b.hp.context_trained))
    wide = b.context.total_cells // (1 if b.context.unified else b.context.sequences) > trained
    return b.weight("rope_factors_long.weight" if wide else "rope_factors_short.weight", home)


def self_attention(b: Builder, style: Style, il: int, cur: T) -> T:
    """Project, rotate, attend, project back."""
    hp = b.hp
    head = hp.head_key(il)
    q, k, v = b.qkv(cur, il, head, hp.heads[il], hp.kv_heads[il], hp.head_value(il))
    q, k2 = positioned(b, style, il, q, k)
    return b.attention(il, q, k2, v, sinks=b.layer(il, "attn_sinks.weight") if style.sinks else None, soft_cap=style.soft_cap)


def feed_forward(b: Builder, style: Style, il: int, cur: T) -> T:
    """Dense, or experts with a shared expert where the file has one."""
    if b.layer(il, "ffn_gate_inp.weight") is None:
        return dense(b, cur, il, "swiglu" if style.halves else style.act, halves=style.halves)
    gating = style.gating if style.normalise is not None else int(b.hp.get("expert_gating_func", style.gating) or style.gating)
    normalise = style.normalise if style.normalise is not None else bool(b.hp.get("expert_weights_norm", False))
    out = experts(b, cur, il, style.act, gating=gating, normalise=normalise)
    extra = shared(b, cur, il, style.act, gated=style.shared_gate)
    return out if extra is None else g.add(out, extra)


def decoder(b: Builder, style: Style) -> T:
    """The whole graph of a plain decoder; the node that ends it."""
    cur = b.embed(scaled_rows=style.embed == "rows")
    if style.embed == "scale":
        cur = g.scale(cur)
    b.attend_to()
    ids = b.output_ids()
    for il in b.walk:
        cur = (_parallel if style.parallel else _layer)(b, style, il, cur, ids)
    return _end(b, style, cur, ids)


def _layer(b: Builder, style: Style, il: int, residual: T, ids: T) -> T:
    cur = self_attention(b, style, il, b.normed(residual, il, "attn_norm", style.norm))
    if il == b.last and style.tail != "hidden":
        cur, residual = b.pick(cur, ids), b.pick(residual, ids)
    if style.post:
        cur = b.normed(cur, il, "post_attention_norm", style.norm)
    if style.residual_scale and b.hp.get("residual_scale"):
        cur = g.scale(cur)
    joined = g.add(cur, residual)
    cur = feed_forward(b, style, il, b.normed(joined, il, style.ffn_norm, style.norm))
    if style.post:
        cur = b.norm(cur, b.layer(il, "post_ffw_norm.weight"), None, -1, style.norm)
    if style.residual_scale and b.hp.get("residual_scale"):
        cur = g.scale(cur)
    return g.add(cur, joined) if style.attention_first else g.add(joined, cur)


def _parallel(b: Builder, style: Style, il: int, residual: T, ids: T) -> T:
    """Attention and feed-forward read the same normed input (cohere)."""
    normed = b.normed(residual, il, "attn_norm", style.norm)
    out = self_attention(b, style, il, normed)
    if il == b.last:
        out, residual, normed = b.pick(out, ids), b.pick(residual, ids), b.pick(normed, ids)
    return g.add(g.add(feed_forward(b, style, il, normed), residual), out)


def _end(b: Builder, style: Style, cur: T, ids: T) -> T:
    def head(logits: T) -> T:
        if style.final_cap and (b.hp.arch == "gemma2" or b.hp.get("final_logit_softcapping")):
            return g.scale(g.unary(g.scale(logits), "tanh"))
        if style.logit_scale and b.hp.get("logit_scale"):
            return g.scale(logits)
        return logits

    if style.tail == "hidden":
        cur.output = True
        cur = b.pick(cur, ids)
    return b.finish(cur, head=head, kind=style.norm)
