"""Graphs with recurrent layers: mamba, jamba, lfm2, the qwen3next and qwen35 families, falcon-h1, granite hybrid, nemotron-h.

Source: the graph functions of src/models/*.cpp, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import SIGMOID, SOFTMAX, Builder
from brim.engines.llama_cpp.context import SCALED_NORM
from brim.engines.llama_cpp.decoders import rope_factors
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense, experts, shared
from brim.engines.llama_cpp.recurrent import conv_state, delta_rule, mamba, mamba2, rows, short_conv, ssm_conv
from brim.engines.llama_cpp.tensor import T

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def mamba_only(b: Builder) -> T:
    """mamba and mamba2: nothing but state-space blocks."""
    cur = embed(b)
    b.recur()
    ids = b.output_ids()
    block = mamba2 if b.hp.arch == "mamba2" else mamba
    for il in b.walk:
        residual = cur
        cur = block(b, b.normed(cur, il, "attn_norm"), il)
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        cur = g.add(cur, residual)
    return b.finish(cur)


def jamba(b: Builder) -> T:
    """Mamba blocks, every eighth attention without rotation; dense and expert feed-forward by turns."""
    cur = embed(b)
    b.recur()
    b.attend_to()
    ids = b.output_ids()
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        if b.hp.recurrent[il]:
            cur = mamba(b, cur, il)
        else:
            q, k, v = b.qkv(cur, il, b.hp.value, b.hp.heads[0], b.hp.kv_heads[il])
            cur = b.attention(il, q, k, v)
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        joined = g.add(residual, cur)
        cur = b.normed(joined, il, "ffn_norm")
        cur = dense(b, cur, il) if b.layer(il, "ffn_gate_inp.weight") is None else experts(b, cur, il, normalise=False)
        cur = g.add(joined, cur)
    return b.finish(cur)


def lfm2(b: Builder) -> T:
    """Short convolutions with attention in between; experts behind the leading dense layers (lfm2moe)."""
    hp = b.hp
    cur = embed(b)
    b.recur()
    b.attend_to()
    ids = b.output_ids()
    lead = hp.layers if hp.arch == "lfm2" else int(hp.get("leading_dense_block_count", 0))
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        if hp.recurrent[il]:
            cur = short_conv(b, cur, il)
        else:
            q, k, v = b.qkv(cur, il, hp.value, hp.heads[0], hp.kv_heads[il])
            q, k = b.normed(q, il, "attn_q_norm"), b.normed(k, il, "attn_k_norm")
            cur = b.attention(il, g.rope(q, b.positions), g.rope(k, b.positions), v)
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        cur = g.add(residual, cur)
        normed = b.normed(cur, il, "ffn_norm")
        out = dense(b, normed, il) if il < lead else experts(b, normed, il, gating=int(hp.get("expert_gating_func", SIGMOID)))
        cur = g.add(cur, out)
    cur = b.norm(cur, b.weight("output_norm.weight") or b.weight("token_embd_norm.weight"), None, -1)
    cur.output = True
    return b.finish(cur, normed=False)


def gated_attention(b: Builder, il: int, cur: T, mask: "Callable[[T], T] | None" = None) -> T:
    """Attention whose output is gated by a second half of the query projection; `mask` narrows the cache's."""
    hp, tokens = b.hp, b.tokens
    head, heads, kv = hp.value, hp.heads[il], hp.kv_heads[il]
    if b.layer(il, "attn_qkv.weight") is None:
        full, k, v = b.project(cur, il, "attn_q"), b.project(cur, il, "attn_k"), b.project(cur, il, "attn_v")
    else:
        whole = b.project(cur, il, "attn_qkv")
        row, wide = whole.ne[0] * 4, 2 * head * heads
        full = g.cont(g.view(whole, (wide, tokens), (row,)))
        k = g.cont(g.view(whole, (head * kv, tokens), (row,), 4 * wide))
        v = g.cont(g.view(whole, (head * kv, tokens), (row,), 4 * (wide + head * kv)))
    full = g.reshape(full, 2 * head, heads, tokens)
    nb = g.strides(full)
    q = g.view(full, (head, heads, tokens, 1), nb[1:4])
    gate = g.view(full, (head, heads, tokens, 1), nb[1:4], head * 4)
    k, v = g.reshape(k, head, kv, tokens), g.reshape(v, head, kv, tokens)
    q, k = b.normed(q, il, "attn_q_norm"), b.normed(k, il, "attn_k_norm")
    cur = b.attention(il, g.rope(q, b.positions), g.rope(k, b.positions), v, wo="", mask=mask)
    gate = g.unary(g.cont(gate, head * heads, tokens), "sigmoid")
    return b.project(g.mul(cur, gate), il, "attn_output")


def l2(b: Builder, cur: T) -> T:
    """The delta net's length norm: an rms norm and a scale; before `SCALED_NORM` an operation of its own."""
    return g.scale(g.same("RMS_NORM", cur)) if b.context.version >= SCALED_NORM else g.same("L2_NORM", cur)


def _mixed_inputs(b: Builder, il: int, cur: T, key: int, keys: int, value: int, values: int) -> tuple[T, T]:
    """Convolution input and gate z, from the fused pair of matrices or the older joint one (`build_qkvz`)."""
    st, ns = b.sequence_tokens, b.sequences
    if b.layer(il, "attn_qkv.weight") is not None:
        mixed = b.mm(b.need(il, "attn_qkv.weight"), cur, b.layer(il, "attn_qkv.scale") if b.hp.arch != "qwen3next" else None)
        return g.reshape(mixed, mixed.ne[0], st, ns), b.mm(
            b.need(il, "attn_gate.weight"), cur, b.layer(il, "attn_gate.scale") if b.hp.arch != "qwen3next" else None
        )
    share = value * values // keys
    joint = g.reshape(b.mm(b.need(il, "ssm_in.weight"), cur), 2 * key + 2 * share, keys, st, ns)
    nb = g.strides(joint)
    parts, offset = [], 0
    for width in (key, key, share, share):
        parts.append(g.view(joint, (width, keys, st, ns), nb[1:4], offset * 4))
        offset += width
    z = g.cont(parts[3])
    flat = [g.cont(part, part.ne[0] * keys, st, ns) for part in parts[:3]]
    return g.concat(g.concat(flat[0], flat[1], 0), flat[2], 0), z


def _beta_and_gate(b: Builder, il: int, cur: T, keys: int, values: int) -> tuple[T, T]:
    """The write strength and the decay of each value head."""
    st, ns = b.sequence_tokens, b.sequences
    if b.layer(il, "ssm_ba.weight") is not None:
        each = values // keys
        joint = g.reshape(b.mm(b.need(il, "ssm_ba.weight"), cur), 2 * each, keys, st, ns)
        nb = g.strides(joint)
        beta = g.unary(g.cont(g.view(joint, (each, keys, st, ns), nb[1:4])), "sigmoid")
        alpha = g.cont(g.view(joint, (each, keys, st, ns), nb[1:4], each * 4), values, st, ns)
        alpha = g.add(alpha, b.need(il, "ssm_dt.bias"))
        gate = g.mul(g.unary(alpha, "softplus"), b.need(il, "ssm_a"))
        return g.reshape(beta, 1, values, st, ns), g.reshape(gate, 1, values, st, ns)
    beta = g.reshape(b.mm(b.need(il, "ssm_beta.weight"), cur, b.layer(il, "ssm_beta.scale")), 1, values, st, ns)
    beta = g.unary(beta, "sigmoid")
    alpha = g.reshape(b.mm(b.need(il, "ssm_alpha.weight"), cur, b.layer(il, "ssm_alpha.scale")), values, st, ns)
    alpha = g.add(alpha, b.need(il, "ssm_dt.bias"))
    gate = g.mul(g.unary(alpha, "softplus"), b.need(il, "ssm_a"))
    return beta, g.reshape(gate, 1, values, st, ns)


def delta_net(b: Builder, il: int, cur: T, *, gate_by: str = "silu", conv_rows: "Callable[[Builder, int, T, int, int], T]" = conv_state) -> T:
    """A gated delta net layer; `conv_rows` reads and writes the convolution's rows."""
    hp, st, ns = b.hp, b.sequence_tokens, b.sequences
    inner, key, keys, values = (int(hp.get(name, 0)) for name in ("ssm.inner_size", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank"))
    value = inner // values
    mixed, z = _mixed_inputs(b, il, cur, key, keys, value, values)
    beta, gate = _beta_and_gate(b, il, cur, keys, values)
    kernel = b.need(il, "ssm_conv1d.weight")
    joined = conv_rows(b, il, mixed, kernel.ne[0], inner + 2 * keys * key)
    state = g.reshape(rows(b, b.store("s", il), hp.rows_s), value, value, values, ns)
    conv = g.unary(ssm_conv(joined, kernel), "silu")
    row = 4 * (2 * key * keys + value * values)
    q = l2(b, g.view(conv, (key, keys, st, ns), (4 * key, row, row * st)))
    k = l2(b, g.view(conv, (key, keys, st, ns), (4 * key, row, row * st), 4 * key * keys))
    v = g.view(conv, (value, values, st, ns), (4 * value, row, row * st), 8 * key * keys)
    if keys != values and hp.arch == "qwen3next":
        more = values // keys
        q = g.reshape(g.repeat(g.reshape(q, key, 1, keys, st * ns), key, more, keys, st * ns), key, values, st, ns)
        k = g.reshape(g.repeat(g.reshape(k, key, 1, keys, st * ns), key, more, keys, st * ns), key, values, st, ns)
    out = delta_rule(b, il, q, k, v, gate, beta, state)
    normed = b.normed(out, il, "ssm_norm")
    out = g.mul(normed, g.unary(g.reshape(z, value, values, st, ns), gate_by))
    out = g.reshape(out, value * values, st, ns)
    out = b.mm(b.need(il, "ssm_out.weight"), out, b.layer(il, "ssm_out.scale") if hp.arch != "qwen3next" else None)
    return g.reshape(out, hp.width, st * ns)


def qwen3next(b: Builder) -> T:
    """Gated delta nets with gated attention in between; experts and a gated shared expert, or dense (qwen3next, qwen35, qwen35moe)."""
    cur = embed(b)
    b.recur()
    b.attend_to()
    ids = b.output_ids()
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        b.expand(cur)
        cur = delta_net(b, il, cur) if b.hp.recurrent[il] else gated_attention(b, il, cur)
        if b.cropped(il):
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        joined = g.add(cur, residual)
        cur = b.normed(joined, il, "post_attention_norm")
        if b.layer(il, "ffn_gate_inp.weight") is None:
            cur = dense(b, cur, il)
        else:
            normed, cur = cur, experts(b, cur, il)
            extra = shared(b, normed, il, gate="sigmoid")
            cur = cur if extra is None else g.add(cur, extra)
        cur = g.add(cur, joined)
    if b.cropped(b.last):
        return b.finish(cur)
    cur = b.norm(cur, b.weight("output_norm.weight"), None, -1)
    cur.output = True
    cur = b.pick(cur, ids)
    cur.output = True
    return b.finish(cur, normed=False)


def falcon_h1(b: Builder) -> T:
    """Attention and a mamba 2 block side by side in every layer."""
    hp = b.hp
    cur = embed(b)
    b.recur()
    b.attend_to()
    ids = b.output_ids()
    for il in b.walk:
        residual = cur
        q, k, v = b.qkv(b.normed(cur, il, "attn_norm"), il, hp.value, hp.heads[0], hp.kv_heads[0])
        attended = b.attention(il, g.rope(q, b.positions), g.rope(k, b.positions), v)
        scanned = mamba2(b, b.normed(residual, il, "attn_norm"), il)
        joined = g.add(g.add(attended, scanned), residual)
        if il == b.last:
            joined = b.pick(joined, ids)
        cur = g.add(dense(b, b.normed(joined, il, "ffn_norm"), il), joined)
    return b.finish(cur)


def granite_hybrid(b: Builder) -> T:
    """Mamba 2 blocks with attention in between, and granite's scales."""
    hp = b.hp
    cur = embed(b)
    b.recur()
    b.attend_to()
    ids = b.output_ids()
    roped = bool(hp.get("rope.scaling.finetuned", True))
    scaled = bool(hp.get("residual_scale"))
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        if hp.recurrent[il]:
            cur = mamba2(b, cur, il)
        else:
            q, k, v = b.qkv(cur, il, hp.value, hp.heads[il], hp.kv_heads[il])
            if roped:
                factors = rope_factors(b, il)
                q, k = g.rope(q, b.positions, factors), g.rope(k, b.positions, factors)
            cur = b.attention(il, q, k, v)
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        joined = g.add(g.scale(cur) if scaled else cur, residual)
        normed = b.normed(joined, il, "ffn_norm")
        if b.layer(il, "ffn_gate_inp.weight") is None:
            cur = dense(b, normed, il)
        else:
            cur = experts(b, normed, il, gating=SOFTMAX)
            extra = shared(b, normed, il)
            cur = cur if extra is None else g.add(cur, extra)
        cur = g.add(g.scale(cur) if scaled else cur, joined)
    return b.finish(cur, head=lambda logits: g.scale(logits) if hp.get("logit_scale") else logits)


def nemotron_h(b: Builder) -> T:
    """One block a layer: mamba 2, attention without rotation, or a feed-forward with a squared activation."""
    hp = b.hp
    cur = embed(b)
    b.recur()
    b.attend_to()
    ids = b.output_ids()
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        if hp.recurrent[il]:
            cur = mamba2(b, cur, il)
        elif not hp.ff[il]:
            q, k, v = b.qkv(cur, il, hp.value, hp.heads[il], hp.kv_heads[il])
            cur = b.attention(il, q, k, v)
        elif b.layer(il, "ffn_gate_inp.weight") is None:
            cur = dense(b, cur, il, "relu_sqr")
        else:
            cur = nemotron_experts(b, cur, il)
        if b.cropped(il):
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        cur = g.add(cur, residual)
    if b.cropped(b.last):
        return b.finish(cur)
    cur = b.norm(cur, b.weight("output_norm.weight"), None, -1)
    cur.output = True
    cur = b.pick(cur, ids)
    cur.output = True
    return b.finish(cur, normed=False)


def nemotron_experts(b: Builder, cur: T, il: int) -> T:
    """Experts in a narrower space, and a shared expert."""
    down, up = b.layer(il, "ffn_latent_down.weight"), b.layer(il, "ffn_latent_up.weight")
    narrow = cur if down is None else g.mul_mat(down, cur)
    logits = b.mm(b.need(il, "ffn_gate_inp.weight"), cur)
    out = experts(b, narrow, il, "relu_sqr", gating=SIGMOID, normalise=bool(b.hp.get("expert_weights_norm", False)), logits=logits)
    if up is not None:
        out = g.mul_mat(up, out)
    return g.add(out, dense(b, cur, il, "relu_sqr", suffix="_shexp"))
