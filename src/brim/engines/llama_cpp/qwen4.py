"""qwen4exp: residual streams, gated delta nets, attention over pools of cells that an indexer chose, and a table of word groups in one layer.

Source: src/models/qwen4exp.cpp, src/llama-memory-hybrid-idx.cpp (the sizes of a full context), llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import AttentionInput, Builder
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import experts, shared
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.hybrids import delta_net, gated_attention
from brim.engines.llama_cpp.recurrent import rows
from brim.engines.llama_cpp.tensor import T
from brim.units import round_up


def conv_rows(b: Builder, il: int, mixed: T, steps: int, channels: int, kind: str = "r") -> T:
    """The convolution's input, its last columns copied and written back once for each rollback row (`build_conv_state_at`)."""
    store = b.store(kind, il)
    kept = steps if kind == "p" else steps - 1
    states = g.reshape(rows(b, store, kept * channels), kept, channels, b.sequences)
    joined = g.concat(states, g.transpose(mixed), 0)
    nb = g.strides(joined)
    for slot in range(b.context.rollback + 1):
        tail = g.view(joined, (kept, channels, b.sequences), nb[1:3], 4 * max(0, joined.ne[0] - kept - slot))
        b.expand(g.cpy(g.cont(tail), g.view(store, (kept * channels, b.sequences), (g.strides(store)[1],))))
    return joined


class Pools:
    """The inputs that the layers with an indexer share (`build_inp_kpool`): pools of cells, their members, the tail, and those to make anew."""

    __slots__ = ("cells", "chosen", "each", "fresh_at", "fresh_cells", "fresh_turns", "inp", "mask", "members", "tail")

    def __init__(self, b: Builder, inp: AttentionInput) -> None:
        assert b.hp.indexer is not None
        each = self.each = b.hp.pool
        most = max(1, inp.cache.cells // each * b.context.sequences)
        count = max(64, round_up(most + 1, 64))
        self.inp = inp
        self.cells, self.members = g.given("I32", count), g.given("I32", each, count)
        self.mask, self.tail = g.given("F16", count, b.tokens), g.given("I32", each - 1, b.tokens)
        for t in (self.cells, self.members, self.mask, self.tail):
            b.expand(t)
        self.fresh_cells, self.fresh_at, self.fresh_turns = g.given("I32", each, most), g.given("I64", most), g.given("I32", 4 * most)
        self.chosen = min(count, b.hp.indexer[2] // each)


def _scored(b: Builder, il: int, cur: T, pools: Pools) -> T:
    """One score for each token and pool; this batch's keys and pools are written first."""
    assert b.hp.indexer is not None
    heads, size, _ = b.hp.indexer
    each, fresh = pools.each, pools.fresh_at.ne[0]
    raw = b.mm(b.need(il, "indexer.k_proj.weight"), cur)
    packed = g.reshape(g.concat(raw, g.same("FILL", g.leaf("F32", size, b.tokens)), 0), 2 * size, 1, b.tokens)
    b.expand(b.cache_keys(packed, pools.inp.k_ids, il, pools.inp.cache))
    store = b.store("k", il, pools.inp.cache)
    step, cells = g.strides(store)[1], store.ne[1] * store.ne[2]
    singles, joined = g.view(store, (size, cells), (step,)), g.view(store, (size, cells), (step,), step // 2)
    members = g.reshape(g.get_rows(singles, g.reshape(pools.fresh_cells, each * fresh)), size, each, fresh)
    nb = g.strides(members)
    total: T | None = None
    for index in range(each):
        part = g.view(members, (size, fresh), (nb[2],), index * nb[1])
        total = g.cont(part) if total is None else g.add(total, part)
    assert total is not None
    mean = b.normed(g.scale(total), il, "indexer.k_norm")
    mean = g.reshape(g.rope(g.reshape(mean, size, 1, fresh), pools.fresh_turns), size, fresh)
    b.expand(g.set_rows(joined, mean, pools.fresh_at))
    keys = g.reshape(g.get_rows(joined, pools.cells), size, 1, pools.cells.ne[0])
    q = g.reshape(b.mm(b.need(il, "indexer.q_proj.weight"), cur), size, heads, b.tokens)
    q = g.rope(b.normed(q, il, "indexer.q_norm"), b.positions)
    weights = g.same("FILL", g.leaf("F32", heads, b.tokens))
    made = T("LIGHTNING_INDEXER", "F32", (keys.ne[2], b.tokens, 1, 1), (q, keys, weights, pools.mask))
    made.home = b.placement.layers[il]
    return made


def scattered(dtype: str, places: T, cells: int) -> T:
    """Zeros at the chosen places of rows of minus infinity, with room behind the cells for places that stand for none."""
    count, tokens = places.ne[0], places.ne[1]

    def filled(length: int) -> T:
        row = g.same("FILL", g.leaf(dtype, length))
        return g.reshape(g.repeat(row, length, tokens, 1, 1), 1, length, tokens)

    return g.set_rows(filled(cells + count), filled(count), g.reshape(places, count, tokens, 1))


def _selected(b: Builder, il: int, cur: T, pools: Pools, mask: T) -> T:
    """The mask of a layer: only the cells of the best pools and the tail (`build_qsa_sel`)."""
    each, chosen, tokens, cells = pools.each, pools.chosen, b.tokens, pools.inp.cache.cells
    score = _scored(b, il, cur, pools)
    best = g.best(score, chosen)
    found = g.reshape(g.get_rows(pools.members, g.reshape(best, chosen * tokens)), each * chosen, tokens)
    found = g.concat(found, pools.tail, 0)
    b.expand(found)
    top = g.get_rows(g.reshape(score, 1, score.ne[0], tokens), best)
    live = g.same("CLAMP", g.scale(top))
    live = g.reshape(g.repeat(live, each, chosen, tokens, 1), each * chosen, tokens)
    behind = g.same("CLAMP", g.scale(g.cast(pools.tail, "F32")))
    live = g.concat(live, behind, 0)
    spare = g.scale(g.same("CUMSUM", g.same("FILL", live)))
    places = g.add(g.mul(g.sub(g.cast(found, "F32"), spare), live), spare)
    kept = scattered(mask.type, g.cast(places, "I32"), cells)
    row, ne = g.strides(kept)[2], mask.ne
    return g.add(g.view(kept, (cells, ne[1], ne[2], ne[3]), (row, row * ne[1], row * ne[1] * ne[2])), mask)


def feed(b: Builder, il: int, cur: T) -> T:
    """Experts and a gated shared one."""
    routed = experts(b, cur, il)
    extra = shared(b, cur, il, gate="sigmoid")
    return routed if extra is None else g.add(routed, extra)


def attention(b: Builder, il: int, cur: T, pools: "Pools | None") -> T:
    """Gated attention, over the chosen pools where a layer has an indexer at work."""
    if pools is None or not b.hp.pooled[il]:
        return gated_attention(b, il, cur)
    assert b.base is not None
    mask = _selected(b, il, cur, pools, b.base.mask)
    return gated_attention(b, il, cur, lambda whole: g.reshape(mask, *whole.ne))


def mixed(b: Builder, x: T, name: str, il: int) -> "tuple[T, T]":
    """The streams mixed to one, and their normed form (`build_hc_mix`); `il` −1 is the end of the graph, which has no operation of its own for it."""
    norm, down, up = (b.weight(f"{name}_{part}.weight") for part in ("norm", "down", "up"))
    if norm is None or down is None or up is None:
        raise Wanting("the file lacks a mixer of the residual streams (hc_…_norm, hc_…_down, hc_…_up)")
    width, streams, tokens = x.ne[0], x.ne[1], x.ne[2]
    normed = g.reshape(g.mul(g.same("RMS_NORM", x), norm), streams * width, tokens)
    gate = b.mm(up, g.unary(g.scale(b.mm(down, normed)), "silu"))
    if il >= 0:
        made = T("DSV4_HC_PRE", "F32", (width, tokens, 1, 1), (g.reshape(normed, width, streams, tokens), g.reshape(gate, width, streams, tokens)))
        made.home = b.placement.layers[il]
        return made, normed
    gated = g.reshape(g.mul(normed, g.unary(gate, "sigmoid")), width, streams, tokens)
    step = 4 * width
    total = g.cont(g.view(gated, (width, tokens), (step * streams,)))
    for stream in range(1, streams):
        total = g.add(total, g.view(gated, (width, tokens), (step * streams,), step * stream))
    return g.scale(total), normed


def entry(b: Builder, il: int, x: T, name: str) -> "tuple[T, T]":
    """What a block reads, and how its result goes back to the streams."""
    cur, normed = mixed(b, x, f"blk.{il}.{name}", il)
    return cur, b.mm(b.need(il, f"{name}_inject.weight"), normed)


def joined(b: Builder, il: int, residual: T, cur: T, inject: T) -> T:
    """A block's result added to every stream by its own weight (`build_hc_combine`)."""
    weights = g.scale(g.unary(g.scale(inject), "sigmoid"))
    made = T("DSV4_HC_POST", "F32", residual.ne, (cur, residual, weights))
    made.home = b.placement.layers[il]
    return made


def _looked_up(b: Builder, il: int, found: T, x: T) -> T:
    """The rows of word groups, gated by the streams and convolved with their history (`build_ple`)."""
    hp, tokens = b.hp, b.tokens
    streams, width = x.ne[1], hp.width
    wide = streams * width
    taps, apart = int(hp.get("ple.conv_kernel", 0)), int(hp.get("ple.ngram_size", 0))
    key, value = b.mm(b.need(il, "ple_key.weight"), found), b.mm(b.need(il, "ple_value.weight"), found)

    def grouped(t: T, name: str) -> T:
        return g.mul(g.same("RMS_NORM", g.reshape(t, width, streams, tokens)), b.need(il, name))

    key, query = grouped(key, "ple_norm_key.weight"), grouped(x, "ple_norm_query.weight")
    score = g.scale(g.sum_rows(g.mul(key, query)))
    size = g.same("SQRT", g.same("CLAMP", g.unary(score, "abs")))
    gate = g.unary(g.mul(g.unary(score, "sgn"), size), "sigmoid")
    gated = g.mul(g.repeat(g.reshape(value, width, 1, tokens), width, streams, tokens, 1), gate)
    normed = g.reshape(grouped(g.reshape(gated, wide, tokens), "ple_norm_conv.weight"), wide, tokens)
    past = (taps - 1) * apart
    st, ns = b.sequence_tokens, b.sequences
    padded = conv_rows(b, il, g.reshape(normed, wide, st, ns), past, wide, "p")
    kernel, nb = b.need(il, "ple_conv1d.weight"), g.strides(padded)
    total: T | None = None
    for tap in range(taps):
        shifted = g.cont(g.transpose(g.view(padded, (st, wide, ns), nb[1:3], 4 * (past - (taps - 1 - tap) * apart))))
        steps = g.strides(kernel)
        column = g.reshape(g.cont(g.view(kernel, (1, wide), (steps[1],), tap * steps[0])), wide)
        term = g.mul(shifted, column if column.type == "F32" else g.cast(column, "F32"))
        total = term if total is None else g.add(total, term)
    assert total is not None
    out = g.reshape(g.cont(g.unary(total, "silu")), width, streams, tokens)
    return g.add(x, g.add(gated, out))


def _words(b: Builder) -> "T | None":
    """The rows of the table of word groups, several for each token."""
    if b.hp.history[0] < 0:
        return None
    table = b.weight("per_layer_token_embd.weight")
    if table is None:
        raise Wanting("the file has no per_layer_token_embd.weight")
    heads = (int(b.hp.get("ple.ngram_size", 0)) - 1) * int(b.hp.get("ple.heads_per_ngram", 0))
    found = g.get_rows(table, g.given("I32", heads * b.tokens))
    found = g.reshape(found, table.ne[0] * heads, b.tokens)
    b.expand(found)
    return found


def qwen4exp(b: Builder) -> T:
    """The whole graph."""
    hp = b.hp
    count = int(hp.get("hyper_connection.count", 0))
    cur = embed(b)
    b.recur()
    b.attend_to()
    pools = Pools(b, b.attention_input(b.memory.named("indexer"), keys_only=True)) if hp.pool and b.memory.named("indexer").rows else None
    ids = b.output_ids()
    found = _words(b)
    streams = g.repeat(g.reshape(cur, hp.width, 1, b.tokens), hp.width, count, b.tokens, 1)
    b.expand(streams)
    for il in b.walk:
        if il == hp.history[0] and found is not None:
            streams = _looked_up(b, il, found, streams)
        cur, inject = entry(b, il, streams, "hc_attn")
        b.expand(cur)
        cur = delta_net(b, il, cur, gate_by="sigmoid", conv_rows=conv_rows) if hp.recurrent[il] else attention(b, il, cur, pools)
        if il == b.last:
            cur, inject = b.pick(cur, ids), b.pick(inject, ids)
            streams = g.reshape(b.pick(g.reshape(streams, hp.width * count, b.tokens), ids), hp.width, count, b.outputs)
        streams = joined(b, il, streams, cur, inject)
        cur, inject = entry(b, il, streams, "hc_ffn")
        streams = joined(b, il, streams, feed(b, il, cur), inject)
    cur, _ = mixed(b, streams, "output_hc", -1)
    return b.finish(cur, normed=False)
