"""GLM 5 Next: four residual streams, delta attention, and latent attention without rotation over pools of cells that an indexer chose.

Source: src/models/glm5-next.cpp, src/llama-memory-hybrid-idx.cpp (the sizes of a full context), llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import SIGMOID, AttentionInput, Builder
from brim.engines.llama_cpp.deepseek4 import Layers
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense, experts, shared
from brim.engines.llama_cpp.indexers import scores
from brim.engines.llama_cpp.kimi import delta_attention
from brim.engines.llama_cpp.qwen4 import scattered
from brim.engines.llama_cpp.tensor import T
from brim.units import round_up

_GATHERED = 16  # micro-batches up to this size read the chosen rows instead of masking the others


class _Pools:
    """The inputs that all layers share (`build_inp_kpool`)."""

    def __init__(self, b: Builder, inp: AttentionInput) -> None:
        hp = b.hp
        assert hp.indexer is not None
        each = self.each = hp.pool
        most = max(1, inp.cache.cells // each * b.context.sequences)
        count = max(64, round_up(most + 1, 64))
        self.inp, self.tail_too = inp, bool(hp.get("attention.indexer.kpool_select_tail", False))
        self.cells, self.members = g.given("I32", count), g.given("I32", each, count)
        self.mask, self.tail = g.given("F16" if b.context.fused_indexer else "F32", count, b.tokens), g.given("I32", each - 1, b.tokens)
        self.chosen = min(count, hp.indexer[2] // each)
        self.count = each * self.chosen + (each - 1 if self.tail_too else 0)
        self.gathers = b.context.ubatch <= _GATHERED and b.context.total_cells > hp.indexer[2] + each - 1
        self.live = g.given("F32", self.count, 1, 1, b.tokens)
        for t in (self.cells, self.members, self.mask, self.tail, self.live):
            b.expand(t)
        self.fresh_cells, self.fresh_at = g.given("I32", each, most), g.given("I64", most)


def _pooled(b: Builder, il: int, cur: T, pools: _Pools) -> T:
    """The keys of all pools; this batch's keys, gates and pools are written first."""
    assert b.hp.indexer is not None
    size, each, fresh = b.hp.indexer[1], pools.each, pools.fresh_at.ne[0]
    key = b.norm(g.mul_mat(b.need(il, "indexer.attn_k.weight"), cur), b.layer(il, "indexer.k_norm.weight"), b.layer(il, "indexer.k_norm.bias"), il, "NORM")
    gate = g.mul_mat(b.need(il, "indexer_compressor_gate.weight"), cur)
    packed = g.concat(g.concat(key, gate, 0), g.same("FILL", g.leaf("F32", size, b.tokens)), 0)
    b.expand(b.cache_keys(g.reshape(packed, 3 * size, 1, b.tokens), pools.inp.k_ids, il, pools.inp.cache))
    store = b.store("k", il, pools.inp.cache)
    step, cells = g.strides(store)[1], store.ne[1] * store.ne[2]
    singles, joined = g.view(store, (2 * size, cells), (step,)), g.view(store, (size, cells), (step,), step // 3 * 2)
    members = g.reshape(g.get_rows(singles, g.reshape(pools.fresh_cells, each * fresh)), 2 * size, each, fresh)
    nb = g.strides(members)
    keys, gates = (g.view(members, (size, each, fresh), nb[1:3], 4 * size * part) for part in range(2))
    logits = g.cont(g.permute(g.add(gates, b.need(il, "indexer_compressor_ape.weight")), 1, 0, 2, 3))
    shares = g.reshape(g.soft_max(g.reshape(logits, each, size * fresh)), each, size, fresh)
    mean = g.sum_rows(g.mul(shares, g.cont(g.permute(keys, 1, 0, 2, 3))))
    b.expand(g.set_rows(joined, g.reshape(mean, size, fresh), pools.fresh_at))
    return g.reshape(g.get_rows(joined, pools.cells), size, 1, pools.cells.ne[0])


def _selected(b: Builder, il: int, cur: T, low: T, pools: _Pools, mask: T) -> T:
    """The cells of the best pools: their indices where rows are gathered, else the mask that leaves only them (`build_kpool_select`)."""
    assert b.hp.indexer is not None
    heads, size, _ = b.hp.indexer
    tokens, chosen, each, cells = b.tokens, pools.chosen, pools.each, pools.inp.cache.cells
    q = g.reshape(g.mul_mat(b.need(il, "indexer.attn_q_b.weight"), low), size, heads, tokens)
    keys = _pooled(b, il, cur, pools)
    weights = g.scale(g.mul_mat(b.need(il, "indexer.proj.weight"), cur))
    score = scores(b, il, q, keys, weights, pools.mask)
    best = g.best(score, chosen)
    order = g.argsort(g.reshape(g.get_rows(g.reshape(score, 1, score.ne[0], tokens), best), chosen, tokens))
    best = g.get_rows(g.reshape(g.cast(best, "F32"), 1, chosen, tokens), order)
    best = g.cast(g.cont(g.reshape(best, chosen, tokens)), "I32")
    found = g.reshape(g.get_rows(pools.members, g.reshape(best, chosen * tokens)), each * chosen, tokens)
    if pools.tail_too:
        found = g.concat(found, pools.tail, 0)
    if pools.gathers:
        return found
    b.expand(found)
    live = g.unary(g.reshape(pools.live, pools.count, tokens), "exp")
    spare = T("ARANGE", "F32", (pools.count, 1, 1, 1))
    places = g.add(g.mul(g.sub(g.cast(found, "F32"), spare), live), spare)
    kept = scattered(mask.type, g.cast(places, "I32"), cells)
    return g.add(g.view(kept, (cells, tokens), (g.strides(kept)[2],)), g.reshape(mask, cells, tokens))


def _gathered(b: Builder, il: int, q: T, selected: T, pools: _Pools) -> T:
    """Attention over the chosen rows themselves."""
    store = b.store("k", il)
    rank, count, tokens, heads = store.ne[0], selected.ne[0], b.tokens, b.hp.heads[il]
    whole = g.view(store, (rank, store.ne[1] * store.ne[2]), (g.strides(store)[1],))
    keys = g.reshape(g.get_rows(whole, g.reshape(selected, count * tokens)), rank, count, 1, tokens)
    kq = g.soft_max(g.mul_mat(keys, g.permute(q, 0, 2, 3, 1)), pools.live)
    kqv = g.mul_mat(b.need(il, "attn_v_b.weight"), g.mul_mat(g.cont(g.transpose(keys)), kq))
    return g.reshape(g.cont(g.permute(kqv, 0, 2, 1, 3)), kqv.ne[0] * heads, tokens)


class _Chosen:
    """The last choice of cells; layers without an indexer use it again."""

    def __init__(self) -> None:
        self.cells: T | None = None


def _latent(b: Builder, il: int, cur: T, pools: _Pools, last: _Chosen) -> T:
    hp, tokens, heads = b.hp, b.tokens, b.hp.heads[il]
    assert b.base is not None
    width, rank = (hp.mla or (hp.key, 0))[0], int(hp.get("attention.kv_lora_rank", 0))
    low = b.normed(g.mul_mat(b.need(il, "attn_q_a.weight"), cur), il, "attn_q_a_norm")
    q = g.reshape(g.mul_mat(b.need(il, "attn_q_b.weight"), low), width, heads, tokens)
    latent = g.reshape(b.normed(g.mul_mat(b.need(il, "attn_kv_a_mqa.weight"), cur), il, "attn_kv_a_norm"), rank, 1, tokens)
    absorbed = g.permute(g.mul_mat(b.need(il, "attn_k_b.weight"), g.permute(q, 0, 2, 1, 3)), 0, 2, 1, 3)
    mask = b.base.mask
    if hp.indexes[il]:
        last.cells = _selected(b, il, cur, low, pools, mask)
    assert last.cells is not None
    b.expand(absorbed)
    b.expand(latent)
    b.expand(b.cache_keys(latent, b.base.k_ids, il))
    if pools.gathers:
        b.expand(mask)
        out = _gathered(b, il, absorbed, last.cells, pools)
    else:
        narrow = g.reshape(last.cells, *mask.ne)
        keys = b.cached_keys(il, b.base.cache)
        values = g.view(keys, (rank, *keys.ne[1:]), g.strides(keys)[1:])
        out = b.attend(absorbed, keys, values, narrow, v_mla=b.need(il, "attn_v_b.weight"), il=il)
    return g.mul_mat(b.need(il, "attn_output.weight"), out)


def glm5_next(b: Builder) -> T:
    """The whole graph."""
    hp = b.hp
    cur = embed(b)
    b.recur()
    b.attend_to(keys_only=True)
    pools = _Pools(b, b.attention_input(b.memory.named("indexer"), keys_only=True))
    ids = b.output_ids()
    made, last = Layers(b, bare=True), _Chosen()
    streams = g.repeat(g.reshape(cur, hp.width, 1, b.tokens), hp.width, made.streams, b.tokens, 1)
    lead, gating = int(hp.get("leading_dense_block_count", 0)), int(hp.get("expert_gating_func", 0)) or SIGMOID
    for il in b.walk:
        residual = streams
        cur, after, joins = made.mixed(il, streams, "hc_attn")
        cur = b.normed(cur, il, "attn_norm")
        b.expand(cur)
        cur = delta_attention(b, il, cur) if hp.recurrent[il] else _latent(b, il, cur, pools, last)
        residual = made.spread(il, cur, residual, after, joins)
        cur, after, joins = made.mixed(il, residual, "hc_ffn")
        cur = b.normed(cur, il, "ffn_norm")
        if il < lead:
            cur = dense(b, cur, il)
        else:
            routed, extra = experts(b, cur, il, gating=gating, normalise=bool(hp.get("expert_weights_norm", False))), shared(b, cur, il)
            cur = routed if extra is None else g.add(routed, extra)
        streams = made.spread(il, cur, residual, after, joins)
    flat = b.pick(g.reshape(streams, hp.width * made.streams, b.tokens), ids)
    streams = g.reshape(flat, hp.width, made.streams, b.outputs)
    step, wide = g.strides(streams)[1:3]
    total = g.view(streams, (hp.width, b.outputs), (wide,))
    for stream in range(1, made.streams):
        total = g.add(total, g.view(streams, (hp.width, b.outputs), (wide,), stream * step))
    return b.finish(g.scale(total))
