"""Recurrent blocks of a replayed graph: state rows, mamba 1 and 2, gated delta net, short convolution, RWKV 7; attention lives elsewhere.

Source: llama.cpp b11434, src/llama-graph.cpp `build_rs`, src/models/mamba-base.cpp, delta-net-base.cpp, qwen3next.cpp, lfm2.cpp, rwkv7-base.cpp.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.context import FLAT_BLOCKS, ONE_GATHER, STEPS_COPIED
from brim.engines.llama_cpp.tensor import T

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def rows(b: Builder, store: T, size: int, reader: "Callable[[T, T], T] | None" = None) -> T:
    """The states of this batch's sequences; the others are carried over (`build_rs`). `reader` reads them straight from the store."""
    sequences, kept = b.sequences, b.context.sequences
    states = g.reshape(store, size, store.ne[1])
    zero = g.view(states, (size,))
    b.expand(g.scale_inplace(zero))
    assert b.state_ids is not None
    assert b.state_main is not None
    assert b.state_tail is not None
    if b.context.version < ONE_GATHER:
        out = g.get_rows(states, b.state_main) if reader is None else reader(states, b.state_main)
        b.expand(out)
        extra = g.get_rows(states, g.view(b.state_ids, (kept - sequences,), offset=4 * sequences))
        b.expand(g.cpy(extra, g.view(store, (size, kept - sequences), (g.strides(store)[1],), sequences * g.strides(store)[1])))
        return out
    ids = b.state_ids if reader is None else b.state_tail
    first = kept - ids.ne[0]
    everything = g.get_rows(states, ids)
    row = g.strides(everything)[1]
    out = g.view(everything, (size, sequences), (row,)) if reader is None else reader(states, b.state_main)
    b.expand(out)
    extra = g.view(everything, (size, kept - sequences), (row,), (sequences - first) * row)
    b.expand(g.cpy(extra, g.view(store, (size, kept - sequences), (g.strides(store)[1],), sequences * g.strides(store)[1])))
    return out


def conv_input(b: Builder, il: int, conv: T, x: T) -> T:
    """The last convolution columns of the state before this batch's, and the new ones written back."""
    store = b.store("r", il)
    joined = g.concat(conv, g.transpose(x), 0)
    nb = g.strides(joined)
    steps, channels = conv.ne[0], conv.ne[1]
    if b.hp.arch in ("mamba", "jamba", "plamo2"):
        last = g.view(joined, (steps, channels, b.sequences), nb[1:3], b.sequence_tokens * nb[0])
        b.expand(g.cpy(last, g.view(store, (steps * channels * b.sequences,))))
        return joined
    written = min(b.sequence_tokens, b.context.rollback + 1)
    for slot in range(written):
        last = g.view(joined, (steps, channels, b.sequences), nb[1:3], (b.sequence_tokens - slot) * nb[0])
        b.expand(g.cpy(last, g.view(store, (steps * channels, b.sequences), (g.strides(store)[1],))))
    return joined


def ssm_conv(joined: T, kernel: T) -> T:
    """`ggml_ssm_conv`."""
    return T("SSM_CONV", "F32", (kernel.ne[1], joined.ne[0] - kernel.ne[0] + 1, joined.ne[2], 1), (joined, kernel))


def mamba(b: Builder, cur: T, il: int) -> T:
    """A mamba 1 block."""
    hp, st, ns = b.hp, b.sequence_tokens, b.sequences
    steps, inner, state, rank = (int(hp.get(key, 0)) for key in ("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank"))
    conv = g.reshape(rows(b, b.store("r", il), hp.rows_r), steps - 1, inner, ns)
    cur = g.reshape(cur, cur.ne[0], st, ns)
    xz = b.mm(b.need(il, "ssm_in.weight"), cur, b.layer(il, "ssm_in.scale"))
    nb = g.strides(xz)
    x = g.view(xz, (inner, st, ns), nb[1:3])
    z = g.view(xz, (inner, st, ns), nb[1:3], inner * 4)
    x = ssm_conv(conv_input(b, il, conv, x), b.need(il, "ssm_conv1d.weight"))
    x = g.unary(g.add(x, b.need(il, "ssm_conv1d.bias")), "silu")
    x_db = b.mm(b.need(il, "ssm_x.weight"), x)
    nb = g.strides(x_db)
    dt = g.view(x_db, (rank, st, ns), nb[1:3])
    bb = g.view(x_db, (state, 1, st, ns), (state * 4, nb[1], nb[2]), rank * 4)
    cc = g.view(x_db, (state, 1, st, ns), (state * 4, nb[1], nb[2]), (rank + state) * 4)
    if hp.get("ssm.dt_b_c_rms") or b.layer(il, "ssm_dt_norm.weight") is not None:
        dt, bb, cc = b.normed(dt, il, "ssm_dt_norm"), b.normed(bb, il, "ssm_b_norm"), b.normed(cc, il, "ssm_c_norm")
    elif b.context.version >= STEPS_COPIED:
        dt = g.cont(dt)
    dt = g.add(b.mm(b.need(il, "ssm_dt.weight"), dt), b.need(il, "ssm_dt.bias"))
    flat = x
    x = g.reshape(x, 1, inner, st, ns)
    a = b.need(il, "ssm_a")

    def scan(states: T, ids: T) -> T:
        ssm = g.reshape(states, state, 1, inner, b.context.sequences)
        return T("SSM_SCAN", "F32", (g.elements(x) + state * inner * ids.ne[0], 1, 1, 1), (ssm, x, dt, a, bb, cc, ids))

    store = b.store("s", il)
    y_ssm = rows(b, store, hp.rows_s, scan)
    nb = g.strides(x)
    b.expand(g.cpy(g.view(y_ssm, (state * inner * ns,), offset=nb[3] * x.ne[3]), g.view(store, (state * inner * ns,))))
    y = g.view(y_ssm, (inner, st, ns), nb[2:4])
    y = g.add(y, g.mul(flat, b.need(il, "ssm_d")))
    y = g.glu(g.cont(z), y)
    cur = b.mm(b.need(il, "ssm_out.weight"), y, b.layer(il, "ssm_out.scale"))
    return g.reshape(cur, cur.ne[0], st * ns)


def scan2(b: Builder, il: int, x: T, dt: T, bb: T, cc: T, a: T, again: int = 1) -> T:
    """Mamba 2's scan over a layer's state: the outputs, and behind them the new states, `again` of them a sequence."""
    store, state, (head, heads) = b.store("s", il), bb.ne[0], x.ne[:2]

    def scan(states: T, ids: T) -> T:
        ssm = g.reshape(states, state, head, heads, store.ne[1])
        made = T("SSM_SCAN", "F32", (g.elements(x) + again * state * head * heads * ids.ne[0], 1, 1, 1), (ssm, x, dt, a, bb, cc, ids))
        made.detail = "mamba2"
        return made

    return rows(b, store, b.hp.rows_s, scan)


def mamba2(b: Builder, cur: T, il: int) -> T:
    """A mamba 2 block."""
    hp, st, ns = b.hp, b.sequence_tokens, b.sequences
    steps, inner, state, heads, groups = (
        int(hp.get(key, 0)) for key in ("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count")
    )
    head, wide, again = inner // heads, inner + 2 * groups * state, b.context.rollback + 1
    conv = g.reshape(rows(b, b.store("r", il), hp.rows_r), steps - 1, wide, ns)
    flat = b.context.version >= FLAT_BLOCKS
    joint = b.mm(b.need(il, "ssm_in.weight"), cur if flat else g.reshape(cur, cur.ne[0], st, ns), b.layer(il, "ssm_in.scale"))
    joint = g.reshape(joint, joint.ne[0], st, ns) if flat else joint
    nb = g.strides(joint)
    z = g.view(joint, (head, heads, st, ns), (head * 4, nb[1], nb[2]))
    xbc = g.view(joint, (wide, st, ns), nb[1:3], inner * 4)
    dt = g.view(joint, (heads, st, ns), nb[1:3], (2 * inner + 2 * groups * state) * 4)
    xbc = ssm_conv(conv_input(b, il, conv, xbc), b.need(il, "ssm_conv1d.weight"))
    bias = b.layer(il, "ssm_conv1d.bias")
    xbc = g.unary(xbc if bias is None else g.add(xbc, bias), "silu")
    nb = g.strides(xbc)
    x = g.view(xbc, (head, heads, st, ns), (head * 4, nb[1], nb[2]))
    bb = g.view(xbc, (state, groups, st, ns), (state * 4, nb[1], nb[2]), inner * 4)
    cc = g.view(xbc, (state, groups, st, ns), (state * 4, nb[1], nb[2]), (inner + groups * state) * 4)
    dt = g.add(g.cont(dt), b.need(il, "ssm_dt.bias"))
    store = b.store("s", il)
    y_ssm = scan2(b, il, x, dt, bb, cc, b.need(il, "ssm_a"), again)
    size, written = state * inner, min(st, again)
    b.expand(
        g.cpy(
            g.view(y_ssm, (size, ns, written), (4 * size, 4 * size * ns), g.elements(x) * 4),
            g.view(store, (size, ns, written), (g.strides(store)[1], b.context.sequences * 4 * size)),
        )
    )
    nbx = g.strides(x)
    y = g.view(y_ssm, (head, heads, st, ns), (nbx[1], heads * nbx[1], st * heads * nbx[1]))
    y = g.add(y, g.mul(x, b.need(il, "ssm_d")))
    y = g.glu(g.cont(z), y)
    if b.layer(il, "ssm_norm.weight") is not None:
        y = b.normed(g.reshape(y, inner // groups, groups, st, ns), il, "ssm_norm")
    if flat:
        return b.mm(b.need(il, "ssm_out.weight"), g.reshape(y, inner, st * ns), b.layer(il, "ssm_out.scale"))
    cur = b.mm(b.need(il, "ssm_out.weight"), g.reshape(y, inner, st, ns), b.layer(il, "ssm_out.scale"))
    return g.reshape(cur, cur.ne[0], st * ns)


def conv_state(b: Builder, il: int, mixed: T, steps: int, channels: int) -> T:
    """The delta net's convolution input (`build_conv_state`)."""
    store = b.store("r", il)
    states = g.reshape(rows(b, store, b.hp.rows_r), steps - 1, channels, b.sequences)
    joined = g.concat(states, g.transpose(mixed), 0)
    nb = g.strides(joined)
    again = b.context.rollback + 1
    for _ in range(again):
        last = g.view(joined, (steps - 1, channels, b.sequences), nb[1:3], (joined.ne[0] - states.ne[0]) * nb[0])
        b.expand(g.cpy(last, g.view(store, ((steps - 1) * channels, b.sequences), (g.strides(store)[1],))))
    return joined


def delta_rule(b: Builder, il: int, q: T, k: T, v: T, gate: T, beta: T, state: T) -> T:
    """The fused gated delta net and the state written back (`build_recurrent_attn`)."""
    head, heads, ns, st = state.ne[0], state.ne[2], state.ne[3], q.ne[2]
    again = b.context.rollback + 1
    store = b.store("s", il)
    made = T("GATED_DELTA_NET", "F32", (head * heads, v.ne[2] * ns + again * head * ns, 1, 1), (q, k, v, gate, beta, state))
    out = g.view(made, (head, heads, st, ns), (4 * head, 4 * head * heads, 4 * head * heads * st))
    if again == 1:
        fresh = g.view(made, (head, head, heads, ns), (4 * head, 4 * head * head, 4 * head * head * heads), 4 * head * heads * st * ns)
        b.expand(g.cpy(fresh, g.view(store, (b.hp.rows_s, ns), (g.strides(store)[1],))))
        return out
    size, written = head * head * heads, min(st, again)
    fresh = g.view(made, (size, ns, written), (4 * size, 4 * size * ns), 4 * head * heads * st * ns)
    b.expand(g.cpy(fresh, g.view(store, (size, ns, written), (g.strides(store)[1], b.context.sequences * 4 * size))))
    return out


def short_conv(b: Builder, cur: T, il: int) -> T:
    """A gated short convolution (lfm2)."""
    st, ns, width = b.sequence_tokens, b.sequences, b.hp.width
    steps = int(b.hp.get("shortconv.l_cache", 0)) - 1
    cur = g.reshape(cur, cur.ne[0], st, ns)
    bcx = b.mm(b.need(il, "shortconv.in_proj.weight"), cur)
    nb, chunk = g.strides(bcx), bcx.ne[0] // 3
    gate_b, gate_c, x = (g.view(bcx, (chunk, st, ns), nb[1:3], part * chunk * 4) for part in range(3))
    bx = g.transpose(g.mul(gate_b, x))
    store = b.store("r", il)
    conv = g.reshape(rows(b, store, b.hp.rows_r), steps, width, ns)
    bx = g.concat(conv, bx, 0)
    nb = g.strides(bx)
    for slot in range(min(st, b.context.rollback + 1)):
        last = g.view(bx, (steps, bx.ne[1], bx.ne[2]), nb[1:3], (bx.ne[0] - steps - slot) * 4)
        b.expand(g.cpy(last, g.view(store, (steps * width, ns), (g.strides(store)[1],))))
    y = g.mul(gate_c, ssm_conv(bx, b.need(il, "shortconv.conv.weight")))
    y = b.mm(b.need(il, "shortconv.out_proj.weight"), y)
    return g.reshape(y, y.ne[0], st * ns)
