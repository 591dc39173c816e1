"""PLaMo 2: mamba blocks whose step, input and output vectors are normed, with attention in between; every layer has norms behind its two halves.

Source: src/models/plamo2.cpp, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense
from brim.engines.llama_cpp.recurrent import conv_input, rows, scan2, ssm_conv
from brim.engines.llama_cpp.tensor import T


def _mamba(b: Builder, cur: T, il: int) -> T:
    """`build_plamo2_mamba_layer`."""
    hp, st, ns = b.hp, b.sequence_tokens, b.sequences
    steps, inner, state, heads = (int(hp.get(key, 0)) for key in ("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank"))
    head, rank = inner // heads, max(64, hp.width // 16)
    conv = g.reshape(rows(b, b.store("r", il), hp.rows_r), steps - 1, inner, ns)
    zx = b.mm(b.need(il, "ssm_in.weight"), g.reshape(cur, cur.ne[0], st, ns), b.layer(il, "ssm_in.scale"))
    zx = g.cont(g.permute(zx, 0, 2, 1, 3), 2 * head, heads, st, ns)
    nb = g.strides(zx)
    x = g.cont(g.view(zx, (head, heads, st, ns), nb[1:4], 4 * head), inner, st, ns)
    z = g.view(zx, (head, heads, st, ns), nb[1:4])
    x = g.unary(ssm_conv(conv_input(b, il, conv, x), b.need(il, "ssm_conv1d.weight")), "silu")
    bcdt = b.mm(b.need(il, "ssm_x.weight"), x, b.layer(il, "ssm_x.scale"))
    nb = g.strides(bcdt)
    parts = [g.view(bcdt, (width, st, ns), nb[1:3], offset) for width, offset in ((state, 0), (state, 4 * state), (rank, 8 * state))]
    bb, cc, dt = (b.normed(part, il, name) for part, name in zip(parts, ("ssm_b_norm", "ssm_c_norm", "ssm_dt_norm"), strict=True))
    dt = g.add(b.mm(b.need(il, "ssm_dt.weight"), dt, b.layer(il, "ssm_dt.scale")), b.need(il, "ssm_dt.bias"))
    a = g.reshape(b.need(il, "ssm_a"), 1, heads)
    x = g.view(x, (head, heads, st, ns), (4 * head, 4 * inner, 4 * inner * st))
    bb, cc = (g.view(part, (state, 1, st, ns), (4 * state, *g.strides(part)[1:3])) for part in (bb, cc))
    scanned = scan2(b, il, x, dt, bb, cc, a)
    size = inner * state * ns
    b.expand(g.cpy(g.view(scanned, (size,), offset=4 * inner * st * ns), g.view(b.store("s", il), (size,))))
    y = g.view(scanned, (head, heads, st, ns), (4 * head, 4 * inner, 4 * inner * st))
    y = g.add(y, g.mul(x, g.reshape(b.need(il, "ssm_d"), 1, heads)))
    y = g.glu(g.cont(z), y)
    y = g.view(y, (inner, st, ns), g.strides(y)[2:4])
    out = b.mm(b.need(il, "ssm_out.weight"), y, b.layer(il, "ssm_out.scale"))
    return g.reshape(out, out.ne[0], st * ns)


def plamo2(b: Builder) -> T:
    """The whole graph."""
    hp = b.hp
    cur = embed(b)
    b.recur()
    b.attend_to()
    ids = b.output_ids()
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        if hp.recurrent[il]:
            cur = _mamba(b, cur, il)
        else:
            q, k, v = b.qkv(cur, il, hp.key, hp.heads[il], hp.kv_heads[il], hp.value)
            q, k = b.normed(q, il, "attn_q_norm"), b.normed(k, il, "attn_k_norm")
            cur = b.attention(il, g.rope(q, b.positions), g.rope(k, b.positions), v)
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        joined = g.add(b.normed(cur, il, "post_attention_norm"), residual)
        cur = dense(b, b.normed(joined, il, "ffn_norm"), il, "swiglu", halves=True)
        cur = g.add(b.normed(cur, il, "post_ffw_norm"), joined)
    return b.finish(cur)
