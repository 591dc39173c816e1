"""MiniMax M3: grouped attention over the best blocks of positions, one indexer head a group; dense layers first, experts with a shared one behind.

Source: src/models/minimax-m3.cpp, src/llama-kv-cache-msa.cpp `get_n_pos`, src/llama-graph.cpp `build_attn_inp_kv_msa`; llama.cpp b11434. The engine reserves
this graph for 256 positions; it grows with the context in use, to `context.filled`.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense, experts, shared
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.tensor import T
from brim.facts.dtypes import GGML_BLOCKS
from brim.units import round_up

_RESERVED = 256  # positions that an empty cache counts


class _Blocks:
    """The inputs of block selection (`llm_graph_input_msa`); a batch of one token a stream gathers the chosen rows instead of masking the others."""

    def __init__(self, b: Builder) -> None:
        assert b.base is not None
        self.block = int(b.hp.get("attention.indexer.block_size", 0))
        if self.block < 1:
            raise Wanting("minimax-m3.attention.indexer.block_size must be above 0")
        cache = b.base.cache
        self.streams, self.cells = cache.streams, cache.cells
        self.each = b.tokens // self.streams
        self.positions = round_up(round_up(cache.cells, _RESERVED) if b.context.filled else _RESERVED, self.block)
        self.blocks = self.positions // self.block
        self.bias, self.visible = g.given("F32", self.blocks, b.tokens), g.given("F32", self.positions, b.tokens)
        self.slots = g.given("I32", self.positions, self.streams)
        self.homes = g.given("I32", self.cells, self.streams) if self.each > 1 else g.given("F32", self.positions, self.streams)
        self.whole = g.cast(b.base.mask, "F32")
        self.indexer = b.attention_input(b.memory.named("indexer"), keys_only=True)


def _mask(b: Builder, inp: _Blocks, stream: int, q: T, keys: T) -> T:
    """The mask of each group in one stream: the best blocks of positions, and what is visible in them."""
    assert b.hp.indexer is not None
    heads, size, most = b.hp.indexer
    each, cells, blocks = inp.each, inp.cells, inp.blocks
    nq, nk, nv, nw, nb = g.strides(q), g.strides(keys), g.strides(inp.visible), g.strides(inp.whole), g.strides(inp.bias)
    queries = g.view(q, (size, heads, each), nq[1:3], stream * each * nq[2])
    own = g.view(keys, (size, cells), (nk[2],), stream * nk[3])
    slots = g.view(inp.slots, (inp.positions,), offset=4 * inp.positions * stream)
    visible = g.view(inp.visible, (inp.positions, 1, each), (nv[1], nv[1]), stream * each * nv[1])
    homes = g.view(inp.homes, (cells,), offset=4 * cells * stream)
    whole = g.view(inp.whole, (cells, each, 1), (nw[1], nw[3]), stream * nw[3])
    bias = g.view(inp.bias, (blocks, 1, each), (nb[1], nb[1]), stream * each * nb[1])
    score = g.mul_mat(g.get_rows(own, slots), g.reshape(queries, size, heads * each))
    score = g.add_inplace(g.reshape(score, inp.positions, heads, each), visible)
    pooled = T("POOL_2D", "F32", (blocks, heads, each, 1), (score,))
    kept = min(most, blocks)
    best = g.best(g.add(pooled, bias), kept)
    nothing = g.repeat(g.cast(g.scale(bias), "F16"), blocks, heads, each, 1)
    zero = g.scale(g.cast(best, "F32"))
    rows = g.set_rows(g.reshape(nothing, 1, blocks, heads * each), g.reshape(zero, 1, kept, heads * each), g.reshape(best, kept, heads * each))
    rows = g.cont(g.permute(g.reshape(rows, blocks, heads, each), 0, 2, 1, 3))
    by_block = g.cont(g.transpose(g.reshape(rows, blocks, each * heads)))
    by_cell = g.reshape(g.cont(g.transpose(g.get_rows(by_block, homes))), cells, each, heads)
    return g.cast(g.reshape(g.add_inplace(by_cell, whole), cells, each, 1, heads), "F16")


def _one_token(b: Builder, inp: _Blocks, q: T, iq: T, keys: T, k: T, v: T) -> T:
    """One token a stream: the rows of the best blocks themselves."""
    assert b.hp.indexer is not None
    heads, size, most = b.hp.indexer
    block, positions, blocks, streams, cells = inp.block, inp.positions, inp.blocks, inp.streams, inp.cells
    kept, head, groups = min(most, blocks), k.ne[0], k.ne[1]
    nk = g.strides(keys)
    own = g.get_rows(g.view(keys, (size, cells, streams), nk[2:4]), inp.slots)
    score = g.mul_mat(g.reshape(own, size, positions, 1, streams), g.reshape(iq, size, heads, 1, streams))
    score = g.add_inplace(score, g.reshape(inp.visible, positions, 1, 1, streams))
    pooled = T("POOL_2D", "F32", (blocks, heads, 1, streams), (score,))
    best = g.best(g.add(pooled, g.reshape(inp.bias, blocks, 1, 1, streams)), kept)
    first = g.reshape(g.scale(g.cast(best, "F32")), 1, kept, heads, streams)
    every = g.add(g.repeat(first, block, kept, heads, streams), g.reshape(T("ARANGE", "F32", (block, 1, 1, 1)), block, 1, 1))
    count = block * kept * heads
    tokens = g.cast(g.reshape(every, count, streams), "I32")
    places = g.reshape(g.get_rows(g.reshape(inp.homes, 1, positions, streams), tokens), block, kept, heads, streams)
    rows = g.add(g.scale(places), g.reshape(T("ARANGE", "F32", (groups, 1, 1, 1)), 1, 1, heads))
    rows = g.cast(g.reshape(rows, count, streams), "I32")
    made = []
    for whole in (k, v):
        nb = g.strides(whole)
        found = g.get_rows(g.view(whole, (head, groups * cells, streams), (nb[1], nb[3])), rows)
        found = g.reshape(found, head, block * kept, 1, heads * streams)
        kind = "F16" if GGML_BLOCKS[whole.type][0] > 1 else whole.type
        made.append(found if kind == "F32" else g.cast(found, kind))
    seen = g.get_rows(g.reshape(inp.visible, 1, positions, streams), tokens)
    mask = g.cast(g.reshape(seen, block * kept, 1, 1, heads * streams), "F16")
    return _grouped(q, made[0], made[1], mask)


def _grouped(q: T, k: T, v: T, mask: T) -> T:
    """One flash attention over all groups at once (`build_attn_msa_fa`)."""
    head, heads, tokens = q.ne[0], q.ne[1], q.ne[2]
    group = heads // k.ne[3]
    turned = g.permute(g.reshape(q, head, group, k.ne[3], tokens), 0, 2, 3, 1)
    made = T("FLASH_ATTN_EXT", "F32", (v.ne[0], turned.ne[2], turned.ne[1], turned.ne[3]), (turned, k, v, mask))
    out = g.permute(made, 0, 1, 3, 2)
    return g.reshape(out if g.is_contiguous(out) else g.cont(out), head * heads, tokens)


def _sparse(b: Builder, il: int, cur: T, q: T, k: T, v: T, inp: _Blocks) -> T:
    assert b.hp.indexer is not None
    assert b.base is not None
    heads, size, _ = b.hp.indexer
    if heads != b.hp.kv_heads[il]:
        raise Wanting("minimax-m3 needs one indexer head for each group of queries")
    iq = g.reshape(b.mm(b.need(il, "indexer.q_proj.weight"), cur), size, heads, b.tokens)
    ik = g.reshape(b.mm(b.need(il, "indexer.k_proj.weight"), cur), size, 1, b.tokens)
    iq, ik = g.rope(b.normed(iq, il, "indexer.q_norm"), b.positions), g.rope(b.normed(ik, il, "indexer.k_norm"), b.positions)
    b.expand(b.cache_keys(ik, inp.indexer.k_ids, il, inp.indexer.cache))
    keys = b.cached_keys(il, inp.indexer.cache, joined=True)
    base = b.base
    if base.rot_k is not None:
        q, k = b.rotate(q, base.rot_k), b.rotate(k, base.rot_k)
    if base.rot_v is not None:
        v = b.rotate(v, base.rot_v)
    for t in (q, k, v):
        b.expand(t)
    b.expand(b.cache_keys(k, base.k_ids, il))
    b.expand(b.cache_values(v, base.v_ids, il))
    whole_k, whole_v = b.cached_keys(il, base.cache), b.cached_values(il, base.cache)
    if inp.each == 1:
        return _out(b, il, _one_token(b, inp, q, iq, keys, whole_k, whole_v))
    nq, outs = g.strides(q), []
    for stream in range(inp.streams):
        mine = g.view(q, (q.ne[0], q.ne[1], inp.each), nq[1:3], stream * inp.each * nq[2])
        parts = []
        for whole in (whole_k, whole_v):
            nb = g.strides(whole)
            parts.append(g.permute(g.view(whole, (*whole.ne[:3], 1), nb[1:4], stream * nb[3]), 0, 3, 1, 2))
        outs.append(_grouped(mine, parts[0], parts[1], _mask(b, inp, stream, iq, keys)))
    out = outs[0]
    for more in outs[1:]:
        out = g.concat(out, more, 1)
    return _out(b, il, out)


def _out(b: Builder, il: int, out: T) -> T:
    """The values turned back, and the output matrix."""
    if b.base is not None and b.base.rot_v is not None:
        out = b.rotate(out, b.base.rot_v)
    return b.mm(b.need(il, "attn_output.weight"), out, b.layer(il, "attn_output.scale"))


def minimax_m3(b: Builder) -> T:
    """The whole graph; dense attention without flash attention, and where several sequences share a cache."""
    hp = b.hp
    cur = embed(b)
    b.attend_to()
    sparse = b.context.flash and (b.context.sequences == 1 or not b.context.unified)
    inp = _Blocks(b) if sparse else None
    ids = b.output_ids()
    lead = int(hp.get("leading_dense_block_count", 0))
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        q, k, v = b.qkv(cur, il, hp.value, hp.heads[il], hp.kv_heads[il])
        q, k = g.rope(b.normed(q, il, "attn_q_norm"), b.positions), g.rope(b.normed(k, il, "attn_k_norm"), b.positions)
        cur = b.attention(il, q, k, v) if inp is None or il < lead else _sparse(b, il, cur, q, k, v, inp)
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        joined = g.add(cur, residual)
        cur = b.normed(joined, il, "ffn_norm")
        if il < lead:
            cur = dense(b, cur, il, "swiglu_oai")
        else:
            gating, normalise = int(hp.get("expert_gating_func", 0)), bool(hp.get("expert_weights_norm", False))
            routed, extra = experts(b, cur, il, "swiglu_oai", gating=gating, normalise=normalise), shared(b, cur, il, "swiglu_oai")
            cur = routed if extra is None else g.add(routed, extra)
        cur = g.add(cur, joined)
    return b.finish(cur)
