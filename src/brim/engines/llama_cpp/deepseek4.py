"""DeepSeek V4: four residual streams, a window of keys beside keys of 4 or 128 tokens made one, an indexer over the former, experts by score or by token.

Source: src/models/deepseek4.cpp, src/llama-kv-cache-dsv4.cpp `dsv4_build_reserve_comp_plan`, src/llama-graph.cpp `build_inp_dsv4`; llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.caches import Cache
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import experts, shared
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.indexers import narrowed, scores
from brim.engines.llama_cpp.tensor import T


class _Inputs:
    """The inputs of one compressed cache: rows to keep, to put back, to copy, to read, and where the new keys go (`dsv4_build_comp_inputs`)."""

    __slots__ = ("cache", "copied", "held", "kept", "mask", "places", "positions", "read", "restored", "rot", "turns")

    def __init__(self, b: Builder, name: str, ratio: int, *, overlap: bool, half: bool) -> None:
        self.cache, self.held = b.memory.named(name), b.memory.named(name + "_state")
        tokens, streams, again = b.tokens, b.context.sequences, b.context.rollback
        blocks = tokens // ratio + b.sequences
        rows = self.held.cells * streams
        self.positions = g.given("I32", tokens)
        self.kept = (g.given("I32", min(tokens, rows)), g.given("I32", min(tokens, rows)))
        self.restored = (g.given("I32", rows), g.given("I32", rows)) if again else None
        self.copied = (g.given("I32", again * rows), g.given("I32", again * rows)) if again else None
        self.read = g.given("I32", (2 if overlap else 1) * ratio * blocks)
        self.places, self.turns = g.given("I64", blocks), g.given("I32", blocks)
        self.mask = g.given("F16" if half else "F32", self.cache.cells, tokens // b.sequences, 1, b.sequences)
        side = self.cache.rotation_k
        self.rot = g.given("F32", side, side) if side else None


def _pending(b: Builder, il: int, half: str, cache: Cache) -> T:
    """All rows of a layer's pending keys or scores (`get_kv_all`, `get_score_all`)."""
    store = b.store(half, il, cache)
    return g.view(store, (store.ne[0], cache.cells * cache.streams), (g.strides(store)[1],))


def _appended(t: T) -> T:
    """One more row, of zeros or of minus infinity (`dsv4_append_zero_row`)."""
    row = g.reshape(g.scale(g.view(t, (t.ne[0],))), t.ne[0], 1)
    return g.concat(t, row, 1)


def _halves(rows: T, size: int, ratio: int, blocks: int) -> T:
    """The first half of the earlier rows beside the second half of the later ones."""
    step, read = g.strides(rows)[1], ratio * blocks
    before = g.reshape(g.cont(g.view(rows, (size, read), (step,))), size, ratio, blocks)
    after = g.reshape(g.cont(g.view(rows, (size, read), (step,), read * step + 4 * size)), size, ratio, blocks)
    return g.concat(before, after, 1)


def _made_one(b: Builder, il: int, inp: _Inputs, keys: T, weights: T, size: int, ratio: int, norm: str) -> T:
    """Keys of several tokens weighed and summed to one, normed and rotated; with a ratio of 4 the windows overlap."""
    blocks = inp.turns.ne[0]
    if ratio == 4:
        keys, weights = _appended(keys), _appended(weights)
        rows = (g.get_rows(keys, inp.read), g.get_rows(weights, inp.read))
        values, score = _halves(rows[0], size, ratio, blocks), _halves(rows[1], size, ratio, blocks)
    else:
        values, score = (g.reshape(g.get_rows(t, inp.read), size, ratio, blocks) for t in (keys, weights))
    values, score = g.cont(g.permute(values, 1, 0, 2, 3)), g.cont(g.permute(score, 1, 0, 2, 3))
    one = g.sum_rows(g.mul(values, g.soft_max(score)))
    one = b.normed(g.cont(g.permute(one, 1, 0, 2, 3)), il, norm)
    one = g.rope(one, inp.turns)
    return one if inp.rot is None else b.rotate(one, inp.rot)


def _compress(b: Builder, il: int, cur: T, inp: _Inputs, size: int, ratio: int, prefix: str) -> None:
    """This batch's keys and scores, the cells made of them, and the rows that are kept for the next batch."""
    keys = g.mul_mat(b.need(il, f"{prefix}_kv.weight"), cur)
    weights = g.add(g.mul_mat(b.need(il, f"{prefix}_gate.weight"), cur), g.get_rows(b.need(il, f"{prefix}_ape.weight"), inp.positions))
    held = [_pending(b, il, half, inp.held) for half in "kv"]
    if inp.restored is not None:
        held = [g.set_rows(_pending(b, il, half, inp.held), g.get_rows(t, inp.restored[0]), inp.restored[1]) for half, t in zip("kv", held, strict=True)]
    first = inp.held.cells * b.context.sequences
    sources = [g.concat(g.view(t, (t.ne[0], first), (g.strides(t)[1],)), new, 1) for t, new in zip(held, (keys, weights), strict=True)]
    one = _made_one(b, il, inp, sources[0], sources[1], size, ratio, f"{prefix}_norm")
    b.expand(b.cache_keys(one, inp.places, il, inp.cache))
    if inp.copied is not None:
        whole = [g.concat(t, new, 1) for t, new in zip(held, (keys, weights), strict=True)]
        for half, t in zip("kv", whole, strict=True):
            b.expand(g.set_rows(_pending(b, il, half, inp.held), g.get_rows(t, inp.copied[0]), inp.copied[1]))
    for half, t in (("k", keys), ("v", weights)):
        b.expand(g.set_rows(_pending(b, il, half, inp.held), g.get_rows(t, inp.kept[0]), inp.kept[1]))


def _chosen(b: Builder, il: int, cur: T, low: T, inp: _Inputs) -> T:
    """The compressed cells that the indexer chooses (`build_lid_top_k`)."""
    assert b.hp.indexer is not None
    assert inp.rot is not None
    heads, size, most = b.hp.indexer
    q = g.reshape(g.mul_mat(b.need(il, "indexer.attn_q_b.weight"), low), size, heads, b.tokens)
    q = b.rotate(g.rope(q, b.positions), inp.rot)
    weights = g.scale(g.mul_mat(b.need(il, "indexer.proj.weight"), cur))
    keys = b.cached_keys(il, inp.cache, joined=True)
    keys = g.view(keys, keys.ne, g.strides(keys)[1:])
    streams = keys.ne[3]
    each, nb = b.tokens // streams, g.strides(q)
    q = g.view(q, (size, heads, each, streams), (nb[1], nb[2], nb[3] // streams))
    nb = g.strides(weights)
    weights = g.view(weights, (heads, each, 1, streams), (nb[1], nb[2] // streams, nb[3] // streams))
    return g.cont(g.best(scores(b, il, q, keys, weights, inp.mask), min(inp.cache.cells, most)))


class Layers:
    """What all layers share. `drafting` is the context of the next-token block, which has a window and nothing compressed; `bare` the streams alone (glm5-next)."""

    def __init__(self, b: Builder, *, drafting: bool = False, bare: bool = False) -> None:
        hp, flash = b.hp, b.context.flash
        self.b = b
        self.streams = int(hp.get("hyper_connection.count", 0))
        if self.streams != 4:
            raise Wanting(f"{hp.arch}.hyper_connection.count is not 4: llama.cpp lays out four residual streams only")
        if bare:
            return
        assert b.memory.window is not None
        window = self.window = b.memory.window
        streams = window.streams if drafting else b.sequences
        self.ids = g.given("I64", b.tokens)
        self.mask = g.given("F16" if flash else "F32", window.cells, b.tokens // streams, 1, streams)
        self.rot = g.given("F32", window.rotation_k, window.rotation_k) if window.rotation_k else None
        if drafting:
            return
        self.fours = _Inputs(b, "fours", 4, overlap=True, half=flash)
        self.many = _Inputs(b, "many", 128, overlap=False, half=flash)
        self.indexer = _Inputs(b, "indexer", 4, overlap=True, half=b.context.fused_indexer)

    def mixed(self, il: int, x: T, name: str) -> "tuple[T, T, T]":
        """The streams mixed to one, and how it goes back to them (`build_hc_pre`)."""
        b, count, tokens = self.b, self.streams, x.ne[2]
        normed = g.same("RMS_NORM", g.reshape(x, count * b.hp.width, tokens))
        mixes = g.mul_mat(b.need(il, f"{name}_fn.weight"), normed)
        scale, base = b.need(il, f"{name}_scale.weight"), b.need(il, f"{name}_base.weight")
        row = g.strides(mixes)[1]

        def affine(at: int) -> T:
            part = g.view(mixes, (count, tokens), (row,), 4 * count * at)
            part = g.mul(part, g.view(scale, (1,), offset=4 * at))
            return g.unary(g.add(part, g.view(base, (count,), offset=4 * count * at)), "sigmoid")

        before, after = g.scale(affine(0)), g.scale(affine(1))
        joins = self._own("DSV4_HC_COMB", (count, count, tokens, 1), (mixes, scale, base), il)
        return self._own("DSV4_HC_PRE", (b.hp.width, tokens, 1, 1), (x, before), il), after, joins

    def _own(self, op: str, ne: "tuple[int, int, int, int]", src: "tuple[T, ...]", il: int) -> T:
        made = T(op, "F32", ne, src)
        made.home = self.b.placement.layers[il]
        return made

    def spread(self, il: int, cur: T, residual: T, after: T, joins: T) -> T:
        """A block's result added to the streams (`build_hc_post`)."""
        return self._own("DSV4_HC_POST", residual.ne, (cur, residual, after, joins), il)

    def attention(self, il: int, cur: T) -> T:
        """One attention block (`build_attention_impl`)."""
        b, hp = self.b, self.b.hp
        head, heads, ratio = hp.key, hp.heads[il], hp.compressed[il]
        low = b.normed(g.mul_mat(b.need(il, "attn_q_a.weight"), cur), il, "attn_q_a_norm")
        q = g.reshape(g.mul_mat(b.need(il, "attn_q_b.weight"), low), head, heads, b.tokens)
        q = g.rope(g.same("RMS_NORM", q), b.positions)
        kv = b.normed(g.mul_mat(b.need(il, "attn_kv.weight"), cur), il, "attn_kv_a_norm")
        kv = g.rope(g.reshape(kv, head, 1, b.tokens), b.positions)
        if ratio == 4:
            _compress(b, il, cur, self.fours, head, 4, "attn_compressor")
            assert hp.indexer is not None
            _compress(b, il, cur, self.indexer, hp.indexer[1], 4, "indexer_compressor")
        elif ratio:
            _compress(b, il, cur, self.many, head, 128, "attn_compressor")
        best = _chosen(b, il, cur, low, self.indexer) if ratio == 4 else None
        if self.rot is not None:
            q, kv = b.rotate(q, self.rot), b.rotate(kv, self.rot)
        b.expand(q)
        b.expand(kv)
        b.expand(b.cache_keys(kv, self.ids, il))
        keys, mask = b.cached_keys(il, self.window), self.mask
        if ratio:
            inp = self.fours if ratio == 4 else self.many
            more = b.cached_keys(il, inp.cache, joined=True)
            keys = g.concat(keys, g.view(more, more.ne, g.strides(more)[1:]), 2)
            narrow = inp.mask if best is None else narrowed(inp.mask, best, "F16" if b.context.flash else "F32")
            mask = g.concat(mask, narrow, 0)
        out = b.attend(q, keys, keys, mask, sinks=b.need(il, "attn_sinks.weight"), il=il)
        if self.rot is not None:
            out = b.rotate(out, self.rot)
        return self._projected(il, out)

    def _projected(self, il: int, out: T) -> T:
        """The rotation taken back, and the projection in groups."""
        b, hp = self.b, self.b.hp
        groups, rank = int(hp.get("attention.output_group_count", 1)), int(hp.get("attention.output_lora_rank", 0))
        head, heads = hp.key, hp.heads[il]
        out = g.same("ROPE_BACK", g.reshape(out, head, heads, b.tokens), b.positions)
        out = g.permute(g.reshape(out, heads // groups * head, groups, b.tokens), 0, 2, 1, 3)
        wide = g.mul_mat(self._output_a(il, groups, rank), out)
        wide = g.cont(g.permute(wide, 0, 2, 1, 3), rank * groups, b.tokens)
        return g.mul_mat(b.need(il, "attn_output_b.weight"), wide)

    def _output_a(self, il: int, groups: int, rank: int) -> T:
        """The first output matrix, one slice a group: the loader takes the file's flat one as that."""
        found = self.b.need(il, "attn_output_a.weight")
        if found.ne[2] != groups:
            found = g.stored(found.type, (found.ne[0], rank, groups), found.place or "cpu", found.usage)
        return found

    def head(self, x: T) -> T:
        """The streams mixed to one behind the last layer (`build_hc_head`)."""
        b, tokens = self.b, x.ne[2]
        normed = g.same("RMS_NORM", g.reshape(x, self.streams * b.hp.width, tokens))
        parts = [b.weight(f"output_hc_{name}.weight") for name in ("fn", "scale", "base")]
        if parts[0] is None or parts[1] is None or parts[2] is None:
            raise Wanting("the file has no output_hc_fn.weight, output_hc_scale.weight or output_hc_base.weight")
        before = g.scale(g.unary(g.add(g.mul(g.mul_mat(parts[0], normed), parts[1]), parts[2]), "sigmoid"))
        steps, wide = g.strides(x), g.strides(before)[1]
        total: T | None = None
        for stream in range(self.streams):
            part = g.mul(g.view(x, (b.hp.width, tokens), (steps[2],), stream * steps[1]), g.view(before, (1, tokens), (wide,), 4 * stream))
            total = part if total is None else g.add(total, part)
        assert total is not None
        return total


def deepseek4(b: Builder) -> T:
    """The whole graph."""
    hp = b.hp
    cur = embed(b)
    ids = b.output_ids()
    made = Layers(b)
    b.expand(made.mask)
    streams = g.repeat(g.reshape(cur, hp.width, 1, b.tokens), hp.width, made.streams, b.tokens, 1)
    hashed = int(hp.get("hash_layer_count", 0))
    for il in b.walk:
        residual = streams
        cur, after, joins = made.mixed(il, streams, "hc_attn")
        cur = made.attention(il, b.normed(cur, il, "attn_norm"))
        residual = made.spread(il, cur, residual, after, joins)
        cur, after, joins = made.mixed(il, residual, "hc_ffn")
        for t in (residual, after, joins):
            b.expand(t)
        cur = b.normed(cur, il, "ffn_norm")
        assert b.token_ids is not None
        known = g.get_rows(b.need(il, "ffn_gate_tid2eid.weight"), b.token_ids) if il < hashed else None
        routed = experts(b, cur, il, gating=int(hp.get("expert_gating_func", 4)), normalise=bool(hp.get("expert_weights_norm", False)), known=known)
        extra = shared(b, cur, il)
        assert extra is not None
        streams = made.spread(il, g.add(routed, extra), residual, after, joins)
    flat = b.pick(g.reshape(streams, hp.width * made.streams, b.tokens), ids)
    return b.finish(made.head(g.reshape(flat, hp.width, made.streams, b.outputs)))
