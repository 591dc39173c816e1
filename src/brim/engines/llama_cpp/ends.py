"""Both ends of a replayed graph: the embedding of tokens with its alternative inputs, and the pooling behind the last layer; what lies between is elsewhere.

Source: src/llama-graph.cpp `build_inp_embd`, `build_pooling`, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.context import EMBEDDING_INPUT, MIXED_INPUT, POOLED_BY_SEQUENCE, ROWS_FIRST, SCALED_VIEW
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.tensor import T


def embed(b: Builder, *, scaled_rows: bool = False) -> T:
    """Token rows, embedding rows and (from b11434) a mix of both, all built whatever the batch holds (`build_inp_embd`)."""
    hp = b.hp
    table = b.weight("token_embd.weight")
    if table is None:
        raise Wanting("the file has no token_embd.weight")
    wide = hp.width * (1 + hp.deepstack)
    tokens = b.token_ids = g.given("I32", b.tokens)
    embedded = g.given("F32", wide, b.tokens)
    mixes = hp.mixed and b.context.version >= MIXED_INPUT
    cur = g.get_rows(table, tokens)
    if mixes:
        mixed_tokens, slots, mixed = g.given("I32", b.tokens), g.given("I64", b.tokens), g.given("F32", wide, b.tokens)
        others = g.get_rows(table, mixed_tokens)
    if b.context.version >= ROWS_FIRST:
        b.expand(cur)
        if mixes:
            b.expand(others)
    cur = _padded(cur, wide)
    b.expand(cur)
    if b.context.version >= EMBEDDING_INPUT:
        b.expand(embedded)
    if mixes:
        b.expand(g.set_rows(g.dup(mixed), _padded(others, wide), slots))
    if hp.deepstack:
        cur = g.view(cur, (hp.width, b.tokens), (4 * wide,))
    b.inputs = cur
    scaled, version = bool(hp.get("embedding_scale")), b.context.version
    if hp.deepstack and (scaled or scaled_rows) and version >= SCALED_VIEW:
        cur = g.cont(cur)
    if scaled and (not hp.deepstack or version < MIXED_INPUT):
        cur = g.scale(cur)
    if (scaled_rows or (scaled and hp.deepstack)) and version >= MIXED_INPUT:
        cur = g.mul(cur, g.given("F32", 1, b.tokens))
    b.expand(cur)
    return g.scale(cur) if scaled_rows and version < MIXED_INPUT else cur


def _padded(found: T, wide: int) -> T:
    """The embeddings of tokens, padded where a picture's rows bring more to the first layers."""
    return found if wide == found.ne[0] else g.pad(found, wide - found.ne[0])


def deep_rows(b: Builder, index: int) -> T:
    """The `index`th extra part of each input row (deepstack), 0 the embedding itb."""
    assert b.inputs is not None
    return g.view(b.inputs, (b.hp.width, b.tokens), (g.strides(b.inputs)[1],), 4 * index * b.hp.width)


def pool(b: Builder) -> None:
    """One vector a sequence, where embeddings are asked for (`build_pooling`)."""
    hidden, kind = b.hidden, b.context.pooling
    if hidden is None or not b.context.embeddings or kind == "none":
        return
    if kind == "mean" or (kind == "rank" and b.hp.arch == "modern-bert"):
        cur = g.mul_mat(g.cont(g.transpose(hidden)), g.given("F32", b.tokens, b.sequences if b.context.version >= POOLED_BY_SEQUENCE else b.tokens))
    else:
        cur = g.get_rows(hidden, g.given("I32", b.sequences))
    if kind == "rank":
        cur = _ranked(b, cur)
    cur.output = True
    b.expand(cur)


def _ranked(b: Builder, cur: T) -> T:
    """The classification head of a reranker."""
    first, last = b.weight("cls.weight"), b.weight("cls.output.weight")
    if first is not None:
        cur, bias = g.mul_mat(first, cur), b.weight("cls.bias")
        cur = cur if bias is None else g.add(cur, bias)
        cur = g.unary(cur, "tanh")
        norm = b.weight("cls.norm.weight")
        cur = cur if norm is None else b.norm(cur, norm, None, -1, "NORM")
    if last is not None:
        cur, bias = g.mul_mat(last, cur), b.weight("cls.output.bias")
        cur = cur if bias is None else g.add(cur, bias)
    return g.soft_max(cur) if b.hp.arch in ("qwen3", "qwen3vl") else cur
