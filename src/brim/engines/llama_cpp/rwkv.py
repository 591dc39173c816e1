"""RWKV 6 and 7 and their Qwen2 conversions: time mixing over a matrix state and channel mixing, with the last token of each kept between micro-batches.

Source: src/models/rwkv6-base.cpp, rwkv6.cpp, rwkv6qwen2.cpp, rwkv7-base.cpp, rwkv7.cpp and arwkv7.cpp, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense
from brim.engines.llama_cpp.recurrent import rows
from brim.engines.llama_cpp.tensor import T


def _earlier(b: Builder, shift: T, normed: T) -> T:
    """Each token's predecessor: the kept one before the first."""
    nb, width = g.strides(normed), b.hp.width
    return g.concat(shift, g.view(normed, (width, b.sequence_tokens - 1, b.sequences), nb[1:3]), 1)


def _low_rank(b: Builder, il: int, name: str, x: T, middle: str = "") -> T:
    inner = g.mul_mat(b.need(il, f"time_mix_{name}1.weight"), x)
    if middle:
        inner = g.unary(inner, middle)
    return g.mul_mat(b.need(il, f"time_mix_{name}2.weight"), inner)


def _lerped(b: Builder, il: int, cur: T, before: T, parts: int) -> "list[T]":
    """The inputs of the projections, each a mix of a token and its predecessor."""
    width, tokens = b.hp.width, b.tokens
    difference = g.repeat(g.sub(before, cur), width, b.sequence_tokens, b.sequences, parts)
    mixed = g.add(g.mul(difference, b.need(il, "time_mix_lerp_fused.weight")), cur)
    row = g.strides(mixed)[1]
    return [g.view(mixed, (width, tokens), (row,), 4 * width * tokens * part) for part in range(parts)]


def _time_mix(b: Builder, il: int, cur: T, before: T, first: "T | None") -> tuple[T, T]:
    """The block's result and the first layer's values, which every later layer adds."""
    width, tokens, head = b.hp.width, b.tokens, int(b.hp.get("wkv.head_size", 0))
    heads = width // head
    gated = b.layer(il, "time_mix_g1.weight") is not None
    xr, xw, xk, xv, xa, *xg = _lerped(b, il, cur, before, 6 if gated else 5)
    r = b.mm(b.need(il, "time_mix_receptance.weight"), xr)
    w = g.add(_low_rank(b, il, "w", xw, "tanh"), b.need(il, "time_mix_w0.weight"))
    w = g.unary(g.scale(g.unary(w, "sigmoid")), "exp")
    k, v = b.mm(b.need(il, "time_mix_key.weight"), xk), b.mm(b.need(il, "time_mix_value.weight"), xv)
    if first is None:
        first = v
    else:
        share = g.unary(g.add(_low_rank(b, il, "v", xv), b.need(il, "time_mix_v0.weight")), "sigmoid")
        v = g.add(v, g.mul(g.sub(first, v), share))
    gate = _low_rank(b, il, "g", xg[0], "sigmoid") if gated else None
    a = g.unary(g.add(_low_rank(b, il, "a", xa), b.need(il, "time_mix_a0.weight")), "sigmoid")
    kk = g.same("L2_NORM", g.reshape(g.mul(k, b.need(il, "time_mix_k_k.weight")), head, heads, tokens))
    ka = g.mul(k, b.need(il, "time_mix_k_a.weight"))
    k = g.add(k, g.sub(g.mul(a, ka), ka))
    r, w, k, v, a = (g.reshape(x, head, heads, tokens) for x in (r, w, k, v, a))
    store = b.store("s", il)
    state = rows(b, store, b.hp.rows_s)
    made = T("RWKV_WKV7", "F32", (width, tokens + head * b.sequences, 1, 1), (r, w, k, v, g.unary(kk, "neg"), g.mul(kk, a), state))
    cur = g.view(made, (width * tokens,))
    fresh = g.view(made, (width * head * b.sequences,), (), 4 * width * tokens)
    b.expand(g.cpy(fresh, g.view(store, (b.hp.rows_s * b.sequences,))))
    scale, bias = b.layer(il, "time_mix_ln.weight"), b.layer(il, "time_mix_ln.bias")
    if scale is not None and bias is not None:
        cur = g.reshape(g.same("NORM", g.reshape(cur, head, heads, tokens)), width, tokens)
        cur = g.add(g.mul(cur, scale), bias)
    else:
        cur = g.reshape(cur, width, tokens)
    bonus = g.sum_rows(g.mul(g.mul(k, r), g.reshape(b.need(il, "time_mix_r_k.weight"), head, heads)))
    cur = g.add(cur, g.reshape(g.mul(v, bonus), width, tokens))
    cur = cur if gate is None else g.mul(cur, gate)
    cur = b.mm(b.need(il, "time_mix_output.weight"), cur)
    return g.reshape(cur, width, b.sequence_tokens, b.sequences), first


def _channel_mix(b: Builder, il: int, cur: T, before: T) -> T:
    mixed = g.add(g.mul(g.sub(before, cur), b.need(il, "channel_mix_lerp_k.weight")), cur)
    k = g.same("SQR", g.unary(b.mm(b.need(il, "channel_mix_key.weight"), mixed), "relu"))
    return b.mm(b.need(il, "channel_mix_value.weight"), k)


def _mixes(b: Builder, il: int, cur: T, before: T) -> "list[T]":
    """RWKV 6: what decay, keys, values, receptance and gate read: each token mixed with its predecessor by a share that depends on the token."""
    width, tokens = b.hp.width, b.tokens
    difference = g.reshape(g.sub(before, cur), width, tokens)
    flat = g.reshape(cur, width, tokens)
    mixed = g.add(g.mul(difference, b.need(il, "time_mix_lerp_x.weight")), flat)
    first, second = b.need(il, "time_mix_w1.weight"), b.need(il, "time_mix_w2.weight")
    inner = g.reshape(g.unary(g.mul_mat(first, mixed), "tanh"), first.ne[1] // 5, 1, 5, tokens)
    inner = g.cont(g.permute(inner, 0, 1, 3, 2))
    shares = g.mul_mat(g.reshape(second, second.ne[0], second.ne[1], 1, 5), inner)
    fused = b.layer(il, "time_mix_lerp_fused.weight")
    if fused is not None:
        difference, flat = g.reshape(difference, width, 1, tokens), g.reshape(flat, width, 1, tokens)
        shares = g.add(g.mul(g.add(shares, fused), difference), flat)
    row = g.strides(shares)[1]
    parts = [g.view(shares, (width, tokens), (row,), 4 * width * tokens * part) for part in range(5)]
    if fused is not None:
        return parts
    names = [f"time_mix_lerp_{letter}.weight" for letter in "wkvrg"]
    return [g.add(g.mul(g.add(part, b.need(il, name)), difference), flat) for part, name in zip(parts, names, strict=True)]


def _time_mix_6(b: Builder, il: int, cur: T, before: T) -> T:
    """RWKV 6, or gated linear attention where the block has no first-token bonus (the Qwen2 conversion)."""
    hp, width, tokens = b.hp, b.hp.width, b.tokens
    head = int(hp.get("wkv.head_size", 0))
    heads, kv_heads = width // head, hp.kv_heads[il]
    bonus = b.layer(il, "time_mix_first.weight")
    xw, xk, xv, xr, xg = _mixes(b, il, cur, before)
    r, k, v = b.project(xr, il, "time_mix_receptance"), b.project(xk, il, "time_mix_key"), b.project(xv, il, "time_mix_value")
    gate = g.unary(b.project(xg, il, "time_mix_gate"), "sigmoid" if bonus is None else "silu")
    if kv_heads not in (0, heads):
        k, v = (g.repeat(g.reshape(x, head, 1, kv_heads, tokens), head, heads // kv_heads, kv_heads, tokens) for x in (k, v))
    k, v, r = (g.reshape(x, head, heads, tokens) for x in (k, v, r))
    w = g.mul_mat(b.need(il, "time_mix_decay_w2.weight"), g.unary(g.mul_mat(b.need(il, "time_mix_decay_w1.weight"), xw), "tanh"))
    w = g.unary(g.unary(g.unary(g.add(w, b.need(il, "time_mix_decay.weight")), "exp"), "neg"), "exp")
    w = g.reshape(w, head, heads, tokens)
    if bonus is None:
        k = g.sub(k, g.mul(k, w))
    store = b.store("s", il)
    state = rows(b, store, hp.rows_s)
    operands = (k, v, r, w, state) if bonus is None else (k, v, r, bonus, w, state)
    made = T("GATED_LINEAR_ATTN" if bonus is None else "RWKV_WKV6", "F32", (width, tokens + head * b.sequences, 1, 1), operands)
    cur = g.view(made, (width * tokens,))
    fresh = g.view(made, (width * head * b.sequences,), (), 4 * width * tokens)
    b.expand(g.cpy(fresh, g.view(store, (hp.rows_s * b.sequences,))))
    if bonus is None:
        cur = g.reshape(cur, width, tokens)
    else:
        cur = g.reshape(g.same("NORM", g.reshape(cur, head, heads, tokens)), width, tokens)
        cur = g.add(g.mul(cur, b.need(il, "time_mix_ln.weight")), b.need(il, "time_mix_ln.bias"))
    cur = b.mm(b.need(il, "time_mix_output.weight"), g.mul(cur, gate))
    return g.reshape(cur, width, b.sequence_tokens, b.sequences)


def _channel_mix_6(b: Builder, il: int, cur: T, before: T) -> T:
    difference = g.sub(before, cur)
    xk, xr = (g.add(g.mul(difference, b.need(il, f"channel_mix_lerp_{letter}.weight")), cur) for letter in "kr")
    r = g.unary(b.mm(b.need(il, "channel_mix_receptance.weight"), xr), "sigmoid")
    k = g.same("SQR", g.unary(b.mm(b.need(il, "channel_mix_key.weight"), xk), "relu"))
    return g.mul(r, b.mm(b.need(il, "channel_mix_value.weight"), k))


def rwkv(b: Builder) -> T:
    """The whole graph of RWKV 6 and 7."""
    width, tokens, st, ns = b.hp.width, b.tokens, b.sequence_tokens, b.sequences
    sixth = b.hp.arch == "rwkv6"
    every = int(b.hp.get("rescale_every_n_layers", 0)) if sixth else 0
    cur = b.norm(embed(b), b.weight("token_embd_norm.weight"), b.weight("token_embd_norm.bias"), 0, "NORM")
    b.recur()
    ids = b.output_ids()
    first = None
    for il in b.walk:
        cur = g.reshape(cur, width, st, ns)
        store = b.store("r", il)
        shift = g.reshape(rows(b, store, b.hp.rows_r), width, b.hp.rows_r // width, ns)
        nb = g.strides(shift)
        normed = b.normed(cur, il, "attn_norm", "NORM")
        before = _earlier(b, g.view(shift, (width, 1, ns), nb[1:3]), normed)
        if sixth:
            mixed = _time_mix_6(b, il, normed, before)
        else:
            mixed, first = _time_mix(b, il, normed, before, first)
        joined = g.add(mixed, cur)
        second = b.normed(joined, il, "attn_norm_2", "NORM")
        before = _earlier(b, g.view(shift, (width, 1, ns), nb[1:3], 4 * width), second)
        last = [g.view(x, (width, 1, ns), g.strides(x)[1:3], 4 * (st - 1) * width) for x in (normed, second)]
        kept = g.concat(last[0], last[1], 1)
        b.expand(g.cpy(g.view(kept, (g.elements(kept),)), g.view(store, (b.hp.rows_r * ns,))))
        joined, second, before = (g.reshape(x, width, tokens) for x in (joined, second, before))
        if il == b.last:
            joined, second, before = b.pick(joined, ids), b.pick(second, ids), b.pick(before, ids)
        cur = g.add(_channel_mix_6(b, il, second, before) if sixth else _channel_mix(b, il, second, before), joined)
        if every and (il + 1) % every == 0:
            cur = g.scale(cur)
    return b.finish(cur, kind="NORM")


def rwkv_qwen2(b: Builder) -> T:
    """Qwen2 with its attention replaced by RWKV's time mixing; the feed-forward is Qwen2's own."""
    width, tokens, st, ns = b.hp.width, b.tokens, b.sequence_tokens, b.sequences
    cur = embed(b)
    b.recur()
    ids = b.output_ids()
    first = None
    for il in b.walk:
        cur = g.reshape(cur, width, st, ns)
        store = b.store("r", il)
        shift = g.reshape(rows(b, store, b.hp.rows_r), width, b.hp.rows_r // width, ns)
        normed = b.normed(cur, il, "attn_norm")
        before = _earlier(b, shift, normed)
        if b.hp.arch == "rwkv6qwen2":
            mixed = _time_mix_6(b, il, normed, before)
        else:
            mixed, first = _time_mix(b, il, normed, before, first)
        last = g.view(normed, (width, 1, ns), g.strides(normed)[1:3], 4 * (st - 1) * width)
        b.expand(g.cpy(g.view(last, (width * ns,)), g.view(store, (b.hp.rows_r * ns,))))
        joined = g.reshape(g.add(mixed, cur), width, tokens)
        if il == b.last:
            joined = b.pick(joined, ids)
        cur = g.add(dense(b, b.normed(joined, il, "ffn_norm"), il), joined)
    return b.finish(cur)
