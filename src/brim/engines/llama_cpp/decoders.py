"""Plain decoders: attention and a feed-forward block in every layer, laid out by the architecture's `Style` and by which tensors the file has.

Source: the graph functions of src/models/*.cpp, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.ends import deep_rows, embed
from brim.engines.llama_cpp.feedforward import dense, experts, shared
from brim.engines.llama_cpp.styles import STYLES, Style
from brim.engines.llama_cpp.tensor import T

__all__ = ["STYLES", "decoder", "rope_factors"]


def rotates(b: Builder, style: Style, il: int) -> bool:
    """Whether a layer rotates its queries and keys."""
    hp, rope = b.hp, style.rope
    if rope == "windowed":
        return hp.windowed[il]
    if rope == "leading":
        return hp.windowed[il] or il < int(hp.get("leading_dense_block_count", 0))
    if rope == "windows":
        return hp.windowed[il] or not hp.window_kind
    if rope == "steps":
        return (il + 1) % hp.still_step != 0
    if rope == "first":
        return not hp.window_kind or il % 4 != 0
    if rope == "key":
        stated = hp.get("attention.rope_pattern")
        return bool(stated[il]) if isinstance(stated, (list, tuple)) else bool(hp.get("rope.scaling.finetuned", True))
    if rope == "seven":
        return hp.layers == 32
    return rope == "all"


def _qk_normed(b: Builder, style: Style, il: int, q: T, k: "T | None") -> "tuple[T, T | None]":
    """The norms of queries and keys that the file has."""
    if b.layer(il, "attn_q_norm.weight") is not None:
        q = b.normed(q, il, "attn_q_norm", style.qk_kind or style.norm)
    if k is not None and b.layer(il, "attn_k_norm.weight") is not None:
        k = b.normed(k, il, "attn_k_norm", style.qk_kind or style.norm)
    return q, k


def positioned(b: Builder, style: Style, il: int, q: T, k: "T | None") -> "tuple[T, T | None]":
    """Query and key norms and the rotation, in the architecture's order."""
    turned = rotates(b, style, il)
    if style.qk_norm == "before":
        q, k = _qk_normed(b, style, il, q, k)
    if turned:
        factors = rope_factors(b, il)
        q = g.rope(q, b.positions, factors)
        k = None if k is None else g.rope(k, b.positions, factors)
    if style.qk_norm == "after":
        q, k = _qk_normed(b, style, il, q, k)
    if style.temperature == "still" and not turned and b.temperature is not None:
        q = g.mul(q, b.temperature)
    if style.temperature == "key" and b.temperature is not None:
        q = g.mul(q, b.temperature)
    if style.qk_norm == "bare" and turned and b.hp.experts != 128 and k is not None:
        q, k = g.same("RMS_NORM", q), g.same("RMS_NORM", k)
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
    head, heads, kv_heads, value = hp.head_key(il), hp.heads[il], hp.kv_heads[il], hp.head_value(il)
    if style.qk_norm == "flat":
        q, k, v = b.flat_qkv(cur, il, head * heads, head * kv_heads, value * kv_heads)
        q, normed = _qk_normed(b, style, il, q, k)
        assert normed is not None
        q, k, v = g.reshape(q, head, heads, b.tokens), g.reshape(normed, head, kv_heads, b.tokens), g.reshape(v, value, kv_heads, b.tokens)
    else:
        q, k, v = b.qkv(cur, il, head, heads, kv_heads, value)
    q, turned = positioned(b, style, il, q, k)
    sinks = b.layer(il, "attn_sinks.weight") if style.sinks else None
    gate, norm = b.layer(il, "attn_gate.weight"), b.layer(il, "attn_sub_norm.weight")
    if gate is None and norm is None:
        out = b.attention(il, q, turned, v, sinks=sinks, soft_cap=style.soft_cap)
        return g.scale(out) if float(hp.get("attention.value_scale", 1.0)) not in (0.0, 1.0) else out
    out = b.attention(il, q, turned, v, wo="", sinks=sinks)
    if norm is not None:
        out = b.normed(out, il, "attn_sub_norm", style.norm)
    if gate is not None:
        factor = g.unary(b.mm(gate, cur, b.layer(il, "attn_gate.scale")), style.gate)
        if gate.ne[1] == heads:  # one factor a head
            out = g.reshape(g.mul(g.reshape(out, value, heads, b.tokens), g.reshape(factor, 1, heads, b.tokens)), value * heads, b.tokens)
        else:
            out = g.mul(out, factor)
    return b.project(out, il, "attn_output")


def feed_forward(b: Builder, style: Style, il: int, cur: T, logits: "T | None" = None) -> T:
    """Dense, or experts with a shared expert where the file has one; grok adds its dense block to the experts."""
    if b.layer(il, "ffn_gate_inp.weight") is None:
        if b.layer(il, "ffn_sub_norm.weight") is not None:
            return b.project(b.normed(dense(b, cur, il, style.act, down=False), il, "ffn_sub_norm", style.norm), il, "ffn_down")
        return dense(b, cur, il, "swiglu" if style.halves else style.act, halves=style.halves)
    default = style.gating or 1
    gating = default if style.gating and style.normalise is not None else int(b.hp.get("expert_gating_func", default) or default)
    normalise = style.normalise if style.normalise is not None else bool(b.hp.get("expert_weights_norm", False))
    out = experts(b, cur, il, style.act, gating=gating, normalise=normalise, weigh_first=style.weigh_first, logits=logits)
    if b.hp.arch == "grok" and b.layer(il, "ffn_up.weight") is not None:
        return g.scale(g.add(dense(b, cur, il, style.act), out))
    extra = shared(b, cur, il, style.act, gate=style.shared_gate)
    if extra is None:
        return out
    return g.scale(g.add(out, extra)) if style.halved else g.add(out, extra)


def decoder(b: Builder, style: Style) -> T:
    """The whole graph of a plain decoder; the node that ends it."""
    hp = b.hp
    if style.norm == "header":
        style = style.replace(norm="RMS_NORM" if hp.get("attention.layer_norm_rms_epsilon") else "NORM")
    if b.cropped(b.last):
        style = style.replace(tail="")
    cur = embed(b, scaled_rows=style.embed == "rows")
    if style.embed == "norm":
        cur = b.norm(cur, None, None, -1)
    if style.embed == "scale" or (style.embed == "default" and not hp.get("embedding_scale")):
        cur = g.scale(cur)
    cur = _tables(b, cur)
    if style.temperature == "still" or (style.temperature == "key" and hp.get("attention.temperature_scale")):
        b.temperature = g.given("F32", 1, 1, b.tokens)
    b.attend_to()
    ids = b.output_ids()
    mapped = hp.get("deepstack_mapping")
    for il in b.walk:
        if mapped and il and int(mapped[il]) >= 0:
            cur = g.add(cur, deep_rows(b, int(mapped[il])))
        lay_out = _pruned if hp.arch == "deci" else _side_by_side if _parallel(b, style) else _layer
        cur = lay_out(b, style, il, cur, ids)
        if not mapped and il < hp.deepstack:
            cur = g.add(cur, deep_rows(b, il + 1))
    return _end(b, style, cur, ids)


def _parallel(b: Builder, style: Style) -> bool:
    """Whether attention and feed-forward read the same input; gpt-neox files say so themselves."""
    return bool(style.joins) and (b.hp.arch != "gptneox" or bool(b.hp.get("use_parallel_residual", False)))


def _tables(b: Builder, cur: T) -> T:
    """A position table and a norm of the embedding, where the file has them."""
    table = b.weight("position_embd.weight")
    if table is not None:
        cur = g.add(cur, g.get_rows(table, b.positions))
    norm = b.weight("token_embd_norm.weight")
    return cur if norm is None else b.norm(cur, norm, b.weight("token_embd_norm.bias"), 0 if b.hp.arch == "bloom" else -1, "NORM")


def _before(b: Builder, style: Style, il: int, cur: T, name: str) -> T:
    """The norm before attention or feed-forward."""
    if style.pre == "none":
        return cur
    return b.normed(cur, il, name, style.norm)


def _scaled(b: Builder, style: Style, cur: T) -> T:
    """A branch scaled before it joins the residual."""
    return g.scale(cur) if style.residual_scale == "always" or (style.residual_scale and b.hp.get("residual_scale")) else cur


def _pruned(b: Builder, style: Style, il: int, residual: T, ids: T) -> T:
    """A layer whose attention or feed-forward may be gone, or be one matrix (deci)."""
    hp, cur, skip = b.hp, residual, residual
    if hp.heads[il]:
        cur = b.normed(cur, il, "attn_norm", style.norm)
        cur = self_attention(b, style, il, cur) if hp.kv_heads[il] else b.mm(b.need(il, "attn_output.weight"), cur)
    if il == b.last:
        cur, skip = b.pick(cur, ids), b.pick(skip, ids)
    if not hp.ff[il]:
        return cur if il == b.last else residual  # the engine drops this layer's attention, too
    joined = g.add(cur, skip) if hp.heads[il] else cur
    return g.add(feed_forward(b, style, il, b.normed(joined, il, "ffn_norm", style.norm)), joined)


def _layer(b: Builder, style: Style, il: int, residual: T, ids: T) -> T:
    raw = residual
    logits = g.mul_mat(b.need(il, "ffn_gate_inp.weight"), raw) if style.early else None
    normed = _before(b, style, il, residual, "attn_norm")
    cur = self_attention(b, style, il, normed)
    bare = style.pre == "weights" and b.layer(il, style.ffn_norm + ".weight") is None  # stablelm 2: the feed-forward reads attention's input
    if style.post_first:
        cur = b.norm(cur, b.layer(il, style.post_norms[0] + ".weight"), None, -1 if style.loose else il, style.norm)
    if il == b.last and style.tail in ("", "vector"):
        cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        normed = b.pick(normed, ids) if bare else normed
        logits = b.pick(logits, ids) if logits is not None else None
    if style.post and not style.post_first:
        cur = b.normed(cur, il, style.post_norms[0], style.norm)
    cur = _scaled(b, style, cur)
    joined = g.add(residual, cur) if style.residual_first else g.add(cur, residual)
    cur = feed_forward(b, style, il, normed if bare else _before(b, style, il, joined, style.ffn_norm), logits)
    if style.post:
        norm = b.layer(il, style.post_norms[1] + ".weight") or b.layer(il, "post_ffw_norm.weight") or b.layer(il, "post_ffw_norm")
        cur = b.norm(cur, norm, None, il if style.pinned else -1, style.norm)
    cur = _scaled(b, style, cur)
    return g.add(cur, joined) if style.attention_first else g.add(joined, cur)


def _side_by_side(b: Builder, style: Style, il: int, residual: T, ids: T) -> T:
    """Attention and feed-forward read the same input (cohere, phi 2, falcon, gpt-neox)."""
    normed = b.normed(residual, il, "attn_norm", style.norm)
    second = b.layer(il, "attn_norm_2.weight") is not None
    out = self_attention(b, style, il, b.normed(residual, il, "attn_norm_2", style.norm) if second else normed)
    own = b.layer(il, "ffn_norm.weight") is not None
    if il == b.last and not style.tail:
        out, residual = b.pick(out, ids), b.pick(residual, ids)
        normed = normed if own else b.pick(normed, ids)
    if own:
        normed = b.normed(residual, il, "ffn_norm", style.norm)
    parts = {"f": feed_forward(b, style, il, normed), "r": residual, "a": out}
    first, second_, third = (parts[letter] for letter in style.joins)
    return g.add(g.add(first, second_), third)


def _end(b: Builder, style: Style, cur: T, ids: T) -> T:
    def head(logits: T) -> T:
        if style.logit_scale == "always" or (style.logit_scale and b.hp.get("logit_scale")):
            logits = g.scale(logits)
        if style.final_cap and (b.hp.arch == "gemma2" or b.hp.get("final_logit_softcapping")):
            logits = g.scale(g.unary(g.scale(logits), "tanh"))
        return logits

    if style.tail == "normed":
        cur = b.norm(cur, b.weight("output_norm.weight"), b.weight("output_norm.bias"), -1, style.norm)
    if style.tail == "vector":
        return b.finish_hidden(b.norm(cur, b.weight("output_norm.weight"), None, -1, style.norm))
    if style.tail in ("hidden", "normed"):
        cur.output = True
        cur = b.pick(cur, ids)
    return b.finish(cur, head=head, kind=style.norm, normed=style.tail != "normed")
