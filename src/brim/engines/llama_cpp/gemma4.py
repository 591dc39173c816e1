"""Gemma 4: per-layer embeddings, caches shared by the later layers, keys that may serve as values, and experts beside a dense block.

Source: src/models/gemma4.cpp, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.context import ROWS_FIRST
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense, experts
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.tensor import T


def _per_layer_inputs(b: Builder, cur: T, rows: T, each: int) -> T:
    """What each token brings to each layer, as {width, tokens, layers}."""
    layers, tokens = b.hp.layers, b.tokens
    if b.context.version >= ROWS_FIRST:
        picked = g.reshape(g.scale(rows), each, layers, tokens)
    else:
        picked = g.scale(g.reshape(rows, each, layers, tokens))
        b.expand(picked)
    matrix = b.weight("per_layer_model_proj.weight")
    if matrix is None:
        raise Wanting("the file has no per_layer_model_proj.weight")
    projected = g.reshape(g.scale(g.mul_mat(matrix, cur)), each, layers, tokens)
    projected = b.norm(projected, b.weight("per_layer_proj_norm.weight"), None, -1)
    return g.cont(g.permute(g.scale(g.add(projected, picked)), 0, 2, 1, 3))


def _attention(b: Builder, il: int, cur: T) -> T:
    hp, tokens = b.hp, b.tokens
    head, heads, kv_heads = hp.head_key(il), hp.heads[il], hp.kv_heads[il]
    factors = None if hp.windowed[il] else b.weight("rope_freqs.weight", b.placement.layers[il])
    whole = None
    if b.layer(il, "attn_qkv.weight") is not None:
        whole = b.mm(b.need(il, "attn_qkv.weight"), cur, b.layer(il, "attn_qkv.scale"))
        row = (4 * whole.ne[0],)
        q = g.cont(g.view(whole, (head * heads, tokens), row))
    else:
        q = b.mm(b.need(il, "attn_q.weight"), cur, b.layer(il, "attn_q.scale"))
    q = g.rope(b.normed(g.reshape(q, head, heads, tokens), il, "attn_q_norm"), b.positions, factors)
    if not hp.cached[il]:
        return b.attention(il, q, None, None)
    wide = head * kv_heads
    if whole is not None:
        k = g.cont(g.view(whole, (wide, tokens), row, 4 * head * heads))
        v = g.cont(g.view(whole, (wide, tokens), row, 4 * (head * heads + wide)))
    else:
        k = b.mm(b.need(il, "attn_k.weight"), cur, b.layer(il, "attn_k.scale"))
        v = k if b.layer(il, "attn_v.weight") is None else b.mm(b.need(il, "attn_v.weight"), cur, b.layer(il, "attn_v.scale"))
    k, v = g.reshape(k, head, kv_heads, tokens), g.reshape(v, head, kv_heads, tokens)
    k, v = b.normed(k, il, "attn_k_norm"), g.same("RMS_NORM", v)
    return b.attention(il, q, g.rope(k, b.positions, factors), v)


def _feed_forward(b: Builder, il: int, joined: T) -> T:
    """Dense; or dense and experts side by side, each between norms of its own."""
    if b.layer(il, "ffn_gate_inp.weight") is None:
        return dense(b, b.normed(joined, il, "ffn_norm"), il, "gelu")
    flat = b.normed(dense(b, b.normed(joined, il, "ffn_norm"), il, "gelu"), il, "post_ffw_norm_1")
    chosen = b.normed(joined, il, "pre_ffw_norm_2")
    router = g.mul(g.scale(g.same("RMS_NORM", joined)), b.need(il, "ffn_gate_inp.scale"))
    logits = g.mul_mat(b.need(il, "ffn_gate_inp.weight"), router)
    routed = experts(b, chosen, il, "gelu", logits=logits)
    return g.add(flat, b.normed(routed, il, "post_ffw_norm_2"))


def _layer(b: Builder, il: int, residual: T, inputs: "T | None", ids: T) -> T:
    cur = _attention(b, il, b.normed(residual, il, "attn_norm"))
    if b.cropped(il):
        cur, residual = b.pick(cur, ids), b.pick(residual, ids)
    joined = g.add(b.normed(cur, il, "post_attention_norm"), residual)
    cur = g.add(b.norm(_feed_forward(b, il, joined), b.layer(il, "post_ffw_norm.weight"), None, -1), joined)
    if inputs is not None:
        gate = g.unary(b.mm(b.need(il, "inp_gate.weight"), cur), "gelu")
        row = 4 * inputs.ne[0]
        own = g.view(inputs, (inputs.ne[0], inputs.ne[1]), (row,), il * row * inputs.ne[1])
        own = g.mul(gate, b.pick(own, ids) if b.cropped(il) else own)
        cur = g.add(cur, b.normed(b.mm(b.need(il, "proj.weight"), own), il, "post_norm"))
    scale = b.layer(il, "layer_output_scale.weight")
    return cur if scale is None else g.mul(cur, scale)


def gemma4(b: Builder) -> T:
    """The whole graph."""
    table = b.weight("per_layer_token_embd.weight")
    rows = None if table is None else g.get_rows(table, g.given("I32", b.tokens))
    if rows is not None and b.context.version >= ROWS_FIRST:
        b.expand(rows)
    cur = embed(b, scaled_rows=True)
    b.attend_to()
    ids = b.output_ids()
    inputs = None if rows is None else _per_layer_inputs(b, cur, rows, b.hp.need("embedding_length_per_layer_input"))
    for il in b.walk:
        cur = _layer(b, il, cur, inputs, ids)

    def head(logits: T) -> T:
        return g.scale(g.unary(g.scale(logits), "tanh")) if b.hp.get("final_logit_softcapping") else logits

    if b.cropped(b.last):
        return b.finish(cur, head=head)
    cur = b.norm(cur, b.weight("output_norm.weight"), None, -1)
    cur.output = True  # the hidden state of every row, for a draft head
    return b.finish(b.pick(cur, ids), head=head, normed=False)
