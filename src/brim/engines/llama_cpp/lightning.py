"""MiniMax 01: linear attention with a decay for each head ("lightning"), every few layers ordinary attention, experts in all.

Source: src/models/minimax-01.cpp, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.decoders import self_attention
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import experts
from brim.engines.llama_cpp.recurrent import rows
from brim.engines.llama_cpp.styles import Style
from brim.engines.llama_cpp.tensor import T

_PLAIN = Style()


def _linear(b: Builder, il: int, cur: T, slopes: T, decays: "tuple[T, T, T]") -> T:
    """One layer of linear attention; `decays` are those of queries, keys and pairs."""
    hp, st, ns = b.hp, b.sequence_tokens, b.sequences
    head, heads = hp.key, hp.heads[il]
    rows(b, b.store("r", il), hp.rows_r)
    rate = g.scale(slopes)
    cur = g.reshape(cur, cur.ne[0], st, 1, ns)
    joint = g.unary(b.mm(b.need(il, "attn_qkv.weight"), cur), "silu")
    joint = g.reshape(joint, 3 * head, heads, st, ns)
    q, k, v = (g.view(joint, (head, heads, st, ns), g.strides(joint)[1:4], 4 * head * part) for part in range(3))
    held = b.store("s", il)
    old = g.reshape(rows(b, held, hp.rows_s), head, head, heads, ns)
    of_q, of_k, of_pairs = (g.unary(g.scale(decay), "exp") for decay in decays)
    before = g.mul_mat(old, g.permute(g.mul(q, of_q), 0, 2, 1, 3))
    pairs = g.mul(g.mul_mat(g.permute(k, 0, 2, 1, 3), g.permute(q, 0, 2, 1, 3)), of_pairs)
    turned = g.cont(g.permute(v, 1, 2, 0, 3))
    out = g.add(before, g.mul_mat(turned, pairs))
    b.expand(out)
    kept = g.mul(old, g.reshape(g.unary(g.scale(rate), "exp"), 1, 1, heads))
    keys = g.cont(g.permute(g.mul(k, of_k), 1, 2, 0, 3))
    fresh = g.add(kept, g.mul_mat(keys, turned))
    b.expand(g.cpy(fresh, g.view(held, (hp.rows_s * ns,))))
    out = g.cont(g.permute(out, 0, 2, 1, 3))
    out = g.reshape(out, head * heads, st, 1, ns)
    normed = b.normed(out, il, "attn_norm_2")
    gate = g.unary(b.mm(b.need(il, "attn_gate.weight"), cur), "sigmoid")
    cur = b.mm(b.need(il, "attn_output.weight"), g.mul(gate, normed))
    return g.reshape(cur, cur.ne[0], st * ns)


def minimax_01(b: Builder) -> T:
    """The whole graph: the residual of each half is its normed input, scaled."""
    hp, st, ns = b.hp, b.sequence_tokens, b.sequences
    heads = hp.heads[0]
    cur = embed(b)
    b.recur()
    b.attend_to()
    ids = b.output_ids()
    slopes = g.given("F32", heads)
    decays = (g.given("F32", 1, heads, st, ns), g.given("F32", 1, heads, st, ns), g.given("F32", st, st, heads, ns))
    for il in b.walk:
        residual = cur = b.normed(cur, il, "attn_norm")
        cur = _linear(b, il, cur, slopes, decays) if hp.recurrent[il] else self_attention(b, _PLAIN, il, cur)
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        joined = g.add(cur, g.scale(residual))
        normed = b.normed(joined, il, "ffn_norm")
        cur = g.add(experts(b, normed, il), g.scale(normed))
    return b.finish(cur)
