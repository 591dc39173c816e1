"""T5: an encoder without a cache and a decoder that also looks at what the encoder left; attention is biased by distance, so its scores are never fused.

The graph that is reserved is the decoder's, with room for as many encoded tokens as the model was trained for. The encoder's graph is laid out when the first
prompt is encoded, and was smaller wherever that was tried. Source: src/models/t5.cpp, t5encoder.cpp, src/llama-graph.cpp `build_inp_cross_embd`, `build_pos_bias`, `build_attn_inp_cross`, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.tensor import T


def _weight(b: Builder, side: str, il: int, name: str) -> T:
    found = b.weight(f"{side}.blk.{il}.{name}.weight")
    if found is None:
        raise Wanting(f"the file has no {side}.blk.{il}.{name}.weight")
    return found


def _normed(b: Builder, side: str, il: int, name: str, cur: T) -> T:
    return b.norm(cur, _weight(b, side, il, name), None, il)


def _biased(b: Builder, side: str, il: int, buckets: T) -> T:
    """The bias of each pair of positions, by head (`build_pos_bias`): the layer's own table or the first layer's."""
    table = b.weight(f"{side}.blk.{il}.attn_rel_b.weight") or _weight(b, side, 0, "attn_rel_b")
    flat = g.get_rows(table, g.reshape(buckets, buckets.ne[0] * buckets.ne[1]))
    return g.cont(g.permute(g.reshape(flat, flat.ne[0], buckets.ne[0], buckets.ne[1]), 2, 0, 1, 3))


def _headed(b: Builder, side: str, il: int, prefix: str, cur: T, kept: T) -> tuple[T, T, T]:
    """Queries of `cur`, keys and values of `kept`, as {head width, heads, tokens}."""
    hp, made = b.hp, []
    for letter, source, heads in (("q", cur, hp.heads[il]), ("k", kept, hp.kv_heads[il]), ("v", kept, hp.kv_heads[il])):
        name = f"{prefix}_{letter}"
        part = b.mm(_weight(b, side, il, name), source, b.weight(f"{side}.blk.{il}.{name}.scale"))
        bias = b.weight(f"{side}.blk.{il}.{name}.bias")
        made.append(g.reshape(part if bias is None else g.add(part, bias), hp.value, heads, source.ne[1]))
    return made[0], made[1], made[2]


def _feed_forward(b: Builder, side: str, il: int, cur: T) -> T:
    up = b.mm(_weight(b, side, il, "ffn_up"), cur)
    gate = b.weight(f"{side}.blk.{il}.ffn_gate.weight")
    inner = g.unary(up, "relu") if gate is None else g.glu(b.mm(gate, cur), up, "gelu")
    return b.mm(_weight(b, side, il, "ffn_down"), inner)


def _out(b: Builder, side: str, il: int, name: str, cur: T, *, extras: bool = False) -> T:
    """The projection behind attention; `extras`: with the scale and bias that only the decoder's own attention may have."""
    cur = b.mm(_weight(b, side, il, name), cur, b.weight(f"{side}.blk.{il}.{name}.scale") if extras else None)
    bias = b.weight(f"{side}.blk.{il}.{name}.bias") if extras else None
    return cur if bias is None else g.add(cur, bias)


def decoder(b: Builder) -> T:
    """The decoder's graph: attention over its own cells, then over the encoded tokens."""
    hp = b.hp
    if b.context.streams > 1:
        raise Wanting("llama.cpp b11434 stops with an assertion where a T5 has several slots with caches of their own (-kvu or -np 1 avoid it)")
    cur = embed(b)
    encoded = g.given("F32", hp.width, hp.context_trained)
    b.attend_to()
    assert b.base is not None
    buckets = g.given("I32", b.base.cache.cells, b.tokens)
    mask = g.given("F16" if b.context.flash else "F32", hp.context_trained, b.tokens)
    ids = b.output_ids()
    for il in b.walk:
        normed = _normed(b, "dec", il, "attn_norm", cur)
        q, k, v = _headed(b, "dec", il, "attn", normed, normed)
        out = b.attention(il, q, k, v, wo="", bias=_biased(b, "dec", il, buckets))
        crossing = g.add(_out(b, "dec", il, "attn_o", out, extras=True), cur)
        normed = _normed(b, "dec", il, "cross_attn_norm", crossing)
        q, k, v = _headed(b, "dec", il, "cross_attn", normed, encoded)
        for t in (q, k, v):
            b.expand(t)
        out = _out(b, "dec", il, "cross_attn_o", b.attend(q, k, v, mask, il=il))
        if il == b.last:
            out, crossing = b.pick(out, ids), b.pick(crossing, ids)
        joined = g.add(out, crossing)
        cur = g.add(_feed_forward(b, "dec", il, _normed(b, "dec", il, "ffn_norm", joined)), joined)
    return b.finish(b.norm(cur, b.weight("dec.output_norm.weight"), None, -1), normed=False)


def encoder(b: Builder) -> T:
    """The encoder's graph: every token looks at every other of its micro-batch."""
    cur = embed(b)
    buckets = g.given("I32", b.tokens, b.tokens)
    mask = g.given("F16" if b.context.flash else "F32", b.tokens, b.tokens)
    ids = b.output_ids()
    for il in b.walk:
        normed = _normed(b, "enc", il, "attn_norm", cur)
        q, k, v = _headed(b, "enc", il, "attn", normed, normed)
        bias = _biased(b, "enc", il, buckets)
        for t in (q, k, v):
            b.expand(t)
        out, residual = _out(b, "enc", il, "attn_o", b.attend(q, k, v, mask, bias=bias, il=il)), cur
        if il == b.last:
            out, residual = b.pick(out, ids), b.pick(residual, ids)
        joined = g.add(out, residual)
        cur = g.add(_feed_forward(b, "enc", il, _normed(b, "enc", il, "ffn_norm", joined)), joined)
    return b.finish_hidden(b.norm(cur, b.weight("enc.output_norm.weight"), None, -1))
