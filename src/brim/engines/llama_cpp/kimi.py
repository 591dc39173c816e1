"""Kimi Linear: delta attention with a gate for every channel, latent attention without rotation in between, experts behind leading dense layers.

Source: src/models/kimi-linear.cpp and delta-net-base.cpp, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense, experts, shared
from brim.engines.llama_cpp.hybrids import l2
from brim.engines.llama_cpp.recurrent import rows, ssm_conv
from brim.engines.llama_cpp.tensor import T


def _convolved(b: Builder, il: int, states: T, which: int, x: T, kernel: str) -> T:
    """One of queries, keys and values through its short convolution; its state is a third of the layer's."""
    st, ns, store = b.sequence_tokens, b.sequences, b.store("r", il)
    each = b.hp.rows_r // 3
    inner = x.ne[0]
    steps = each // inner
    row, whole = 4 * steps, 4 * b.hp.rows_r
    kept = g.view(states, (steps, inner, ns), (row, whole), 4 * which * each)
    joined = g.concat(kept, g.transpose(g.reshape(x, inner, st, ns)), 0)
    nb = g.strides(joined)
    last = g.view(joined, (steps, inner, ns), nb[1:3], st * nb[0])
    b.expand(g.cpy(last, g.view(store, (steps, inner, ns), (row, whole), 4 * which * each)))
    made = ssm_conv(joined, g.reshape(b.need(il, kernel), steps + 1, inner))
    made = g.unary(g.reshape(made, inner, b.tokens), "silu")
    heads = b.hp.heads[0]
    return g.reshape(made, inner // heads, heads, st, ns)


def _delta_attention(b: Builder, il: int, cur: T) -> T:
    hp, st, ns, tokens = b.hp, b.sequence_tokens, b.sequences, b.tokens
    heads, head = hp.heads[0], int(hp.get("kda.head_dim", 0))
    inner = heads * head
    states = rows(b, b.store("r", il), hp.rows_r)
    if b.layer(il, "attn_qkv.weight") is not None:
        whole = g.mul_mat(b.need(il, "attn_qkv.weight"), cur)
        inputs = [g.cont(g.view(whole, (inner, tokens), (4 * whole.ne[0],), 4 * inner * part)) for part in range(3)]
        q, k, v = (_convolved(b, il, states, part, inputs[part], f"ssm_conv1d_{letter}.weight") for part, letter in enumerate("qkv"))
    else:
        q, k, v = (
            _convolved(b, il, states, part, g.mul_mat(b.need(il, f"attn_{letter}.weight"), cur), f"ssm_conv1d_{letter}.weight")
            for part, letter in enumerate("qkv")
        )
    decay = g.mul_mat(b.need(il, "ssm_f_b.weight"), g.mul_mat(b.need(il, "ssm_f_a.weight"), cur))
    decay = g.unary(g.add(decay, b.need(il, "ssm_dt.bias")), "softplus")
    decay = g.mul(g.reshape(decay, head, heads, tokens), g.reshape(b.need(il, "ssm_a"), 1, heads, 1))
    decay = g.reshape(decay, head, heads, st, ns)
    beta = g.unary(g.reshape(g.mul_mat(b.need(il, "ssm_beta.weight"), cur), 1, heads, st, ns), "sigmoid")
    flat = g.reshape(g.reshape(cur, cur.ne[0], st, ns), cur.ne[0], tokens)
    store = b.store("s", il)
    state = g.reshape(rows(b, store, hp.rows_s), head, head, heads, ns)
    made = T("GATED_DELTA_NET", "F32", (inner, tokens + head * ns, 1, 1), (l2(q), l2(k), v, decay, beta, state))
    row = 4 * head
    out = g.cont(g.view(made, (head, heads, st, ns), (row, row * heads, row * heads * st)))
    fresh = g.view(made, (head, head, heads, ns), (row, row * head, row * head * heads), 4 * inner * tokens)
    b.expand(g.cpy(fresh, g.view(store, (hp.rows_s * ns,))))
    gate = g.mul_mat(b.need(il, "ssm_g_b.weight"), g.mul_mat(b.need(il, "ssm_g_a.weight"), flat))
    gate = g.unary(g.reshape(gate, head, heads, tokens), "sigmoid")
    normed = b.normed(g.reshape(out, head, heads, tokens), il, "ssm_norm")
    return g.mul_mat(b.need(il, "attn_output.weight"), g.cont(g.mul(normed, gate), inner, tokens))


def _latent_attention(b: Builder, il: int, cur: T) -> T:
    hp, tokens, heads = b.hp, b.tokens, b.hp.heads[0]
    head_k, head_v = hp.mla or (hp.key, hp.value)
    rank, turned = int(hp.get("attention.kv_lora_rank", 0)), hp.rot
    nope = head_k - turned
    q = g.mul_mat(b.need(il, "attn_q.weight"), cur)
    joint = g.mul_mat(b.need(il, "attn_kv_a_mqa.weight"), cur)
    row = 4 * (rank + turned)
    latent = b.normed(g.view(joint, (rank, tokens), (row,)), il, "attn_kv_a_norm")
    k_pe = g.view(joint, (turned, 1, tokens), (row, row), 4 * rank)
    if b.layer(il, "attn_k_b.weight") is not None:
        each = (4 * head_k, 4 * head_k * heads)
        absorbed = g.mul_mat(b.need(il, "attn_k_b.weight"), g.permute(g.view(q, (nope, heads, tokens), each), 0, 2, 1, 3))
        queries = g.concat(g.permute(absorbed, 0, 2, 1, 3), g.view(q, (turned, heads, tokens), each, 4 * nope), 0)
        latent = g.reshape(latent, rank, 1, tokens)
        return b.attention(il, queries, g.concat(latent, k_pe, 0), latent, v_mla=b.need(il, "attn_v_b.weight"), values=rank)
    kv = g.mul_mat(b.need(il, "attn_kv_b.weight"), latent)
    wide = 4 * (nope + head_v)
    values = g.cont(g.view(kv, (head_v, heads, tokens), (wide, wide * heads), 4 * nope))
    keys = g.concat(g.repeat(k_pe, turned, heads, tokens, 1), g.view(kv, (nope, heads, tokens), (wide, wide * heads)), 0)
    return b.attention(il, g.reshape(q, head_k, heads, tokens), keys, values)


def kimi_linear(b: Builder) -> T:
    """The whole graph."""
    hp = b.hp
    cur = embed(b)
    b.recur()
    b.attend_to(keys_only=bool(hp.mla))
    ids = b.output_ids()
    lead = int(hp.get("leading_dense_block_count", 0))
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        cur = _delta_attention(b, il, cur) if hp.recurrent[il] else _latent_attention(b, il, cur)
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        joined = g.add(cur, residual)
        cur = b.normed(joined, il, "ffn_norm")
        if il < lead:
            cur = dense(b, cur, il)
        else:
            routed = experts(b, cur, il, gating=int(hp.get("expert_gating_func", 1)))
            extra = shared(b, cur, il)
            cur = routed if extra is None else g.add(routed, extra)
        cur = g.add(cur, joined)
    return b.finish(cur)
