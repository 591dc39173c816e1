"""The shared blocks that every llama.cpp graph is composed of: inputs, norms, attention, dense and expert feed-forward, logits.

Each mirrors the order of operations of one function of src/llama-graph.cpp, llama.cpp b11434 (`build_inp_embd`, `build_norm`, `build_qkv`, `build_attn`,
`build_attn_mha`, `build_ffn`, `build_moe_ffn`, `build_rs`), because the order decides what is alive at the same time. Values are never computed.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.caches import Cache, Memory
from brim.engines.llama_cpp.context import CACHE_ROWS, F16_MASK, FUSED_QUERIES, FUSED_VALUES, KEPT_ROWS, Context
from brim.engines.llama_cpp.hparams import Hparams, Wanting
from brim.engines.llama_cpp.tensor import STATE, WEIGHTS, Graph, T
from brim.engines.llama_cpp.weights import HOST, Placement
from brim.facts.dtypes import GGML_BLOCKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SOFTMAX, SIGMOID, SOFTMAX_WEIGHT, SQRT_SOFTPLUS = 1, 2, 3, 4


class AttentionInput:
    """The inputs of one attention cache: row indices, mask and rotation matrices."""

    __slots__ = ("cache", "k_ids", "mask", "rot_k", "rot_v", "v_ids")

    def __init__(self, cache: Cache, k_ids: "T | None", v_ids: "T | None", mask: T) -> None:
        self.cache = cache
        self.k_ids = k_ids
        self.v_ids = v_ids
        self.mask = mask
        self.rot_k = g.given("F32", cache.rotation_k, cache.rotation_k) if cache.rotation_k else None
        self.rot_v = g.given("F32", cache.rotation_v, cache.rotation_v) if cache.rotation_v else None


class Builder:
    """One graph under construction. `tokens` and `sequences` are the reserved batch; `walk` lists the layers to lay out (repeats may be left out)."""

    def __init__(
        self, hp: Hparams, context: Context, memory: Memory, placement: Placement, walk: "tuple[int, ...]", *, tokens: int, sequences: int, outputs: int
    ) -> None:
        self.hp, self.context, self.memory, self.placement = hp, context, memory, placement
        self.walk = walk
        self.last = hp.depth - 1
        self.tokens, self.sequences, self.outputs = tokens, sequences, outputs
        self.sequence_tokens = tokens // sequences
        self.graph = Graph()
        self.pins: dict[str, int] = {device.id: index for index, device in enumerate(placement.gpus)}
        self.pins[HOST] = len(placement.gpus)
        self.pinning = tokens < 32 or placement.full
        self._weights: dict[str, T | None] = {}
        self._caches: dict[tuple[str, int], T] = {}
        self.base: AttentionInput | None = None
        self.window: AttentionInput | None = None
        self.everyone: T | None = None
        self.state_ids: T | None = None
        self.state_main: T | None = None
        self.state_tail: T | None = None
        self.temperature: T | None = None
        self.inputs: T | None = None
        self.hidden: T | None = None
        self.token_ids: T | None = None
        self.positions: T = g.given("I32", tokens * hp.positions)

    # ---- weights and stores

    def weight(self, name: str, device: str = "") -> "T | None":
        """A tensor of the file where it lies, or None where the file has none; `device` picks one of several copies."""
        key = name + device
        if key not in self._weights:
            found = self.hp.tensors.get(name)
            homes = self.placement.tensors.get(name, ())
            made = None
            if found is not None and homes:
                made = g.stored(found[1], found[0], device if device in homes else homes[0], WEIGHTS)
            self._weights[key] = made
        return self._weights[key]

    def layer(self, il: int, name: str) -> "T | None":
        """A tensor of a block, e.g. `attn_q.weight`."""
        return self.weight(f"blk.{il}.{name}")

    def need(self, il: int, name: str) -> T:
        """A tensor of a block that the graph cannot do without."""
        found = self.layer(il, name)
        if found is None:
            raise Wanting(f"the file has no blk.{il}.{name}")
        return found

    def output_weight(self) -> T:
        """The output matrix: its own, or the token embedding's copy on the output layer's device."""
        found = self.weight("output.weight") or self.weight("token_embd.weight", self.placement.output)
        if found is None:
            raise Wanting("the file has neither output.weight nor token_embd.weight")
        return found

    def store(self, kind: str, il: int, cache: "Cache | None" = None) -> T:
        """A layer's cache tensor (`k`, `v`; of another cache than the layer's own: `cache`) or state (`r`, `s`, history `p`) where it lies."""
        key = (kind + cache.name if cache else kind, il)
        if key not in self._caches:
            home = self.placement.layers[il] if self.context.kv_offload else HOST
            if kind in "kv":
                held = cache or self.memory.cache_of(self.hp, il)
                assert held is not None
                row = next(row for row in held.rows if row[0] == il)
                dtype, width = (held.type_k, row[1]) if kind == "k" else (held.type_v, row[2])
                made = g.stored(dtype, (width, held.cells, held.streams), home, STATE)
            else:
                state = self.memory.state
                assert state is not None
                made = g.stored("F32", ({"r": state.conv, "s": state.state, "p": state.history[1]}[kind], state.rows), home, STATE)
            self._caches[key] = made
        return self._caches[key]

    def expand(self, t: T) -> None:
        """Fix the order: `t` and what it needs come next."""
        self.graph.expand(t)

    # ---- inputs

    def output_ids(self) -> T:
        """The rows whose logits are wanted."""
        return g.given("I32", self.outputs)

    def attention_input(self, cache: Cache, *, keys_only: bool = False, half: "bool | None" = None) -> AttentionInput:
        """Row indices and mask of one cache (`build_attn_inp_kv`); `half` makes the mask f16 or f32 whatever flash attention asks for."""
        flash, version = self.context.flash if half is None else half, self.context.version
        wide = max((self.hp.width_value(il) for il in range(self.hp.blocks)), default=0)
        k_ids = v_ids = None
        if version >= CACHE_ROWS:
            k_ids = g.given("I64", self.tokens)
            v_ids = None if keys_only else g.given("I64", self.tokens if flash else self.tokens * wide)
        return AttentionInput(cache, k_ids, v_ids, self.mask(cache, narrow=flash))

    def mask(self, cache: Cache, *, narrow: bool) -> T:
        """The mask over one cache, f16 where it is `narrow` (`build_attn_inp_kq_mask`)."""
        streams = min(cache.streams, self.sequences)
        rows = self.tokens // streams
        if self.context.version >= F16_MASK:
            return g.given("F16" if narrow else "F32", cache.cells, rows, 1, streams)
        if self.context.version < CACHE_ROWS:
            rows = -(-rows // 64) * 64  # GGML_KQ_MASK_PAD
        made = g.given("F32", cache.cells, rows, 1, streams)
        return g.cast(made, "F16") if narrow else made

    def attend_to(self, *, keys_only: bool = False) -> None:
        """Make the inputs of the caches that this context has."""
        if self.memory.base is not None:
            self.base = self.attention_input(self.memory.base, keys_only=keys_only)
        if self.memory.window is not None:
            self.window = self.attention_input(self.memory.window, keys_only=keys_only)
        elif self.base is not None and any(self.hp.windowed):  # one cache with a second mask, from before sliding layers had their own
            self.window = AttentionInput(self.base.cache, self.base.k_ids, self.base.v_ids, self.mask(self.base.cache, narrow=self.context.flash))
        cacheless = self.memory.base is None and self.memory.window is None
        if cacheless or self.hp.arch == "llama-embed":  # no cache, or one that is never read: one mask over the micro-batch (`build_attn_inp_no_cache`)
            self.everyone = g.given("F16" if self.context.flash else "F32", self.tokens, self.tokens)
        if self.hp.arch in ("lfm2", "lfm2moe") and self.hp.window_kind:
            for made in (self.base, self.window):
                if made is not None:
                    made.rot_k = made.rot_v = None

    def recur(self) -> None:
        """Make the inputs of the recurrent state (`build_rs_inp`)."""
        self.state_ids = g.given("I32", self.context.sequences)
        self.state_main = g.view(self.state_ids, (self.sequences,))
        self.state_tail = g.view(self.state_ids, (self.context.sequences - 1,), offset=4)

    # ---- small steps

    def norm(self, cur: T, weight: "T | None", bias: "T | None", il: int, kind: str = "RMS_NORM") -> T:
        """A norm with its weight and bias; the norm of a layer is kept on that layer's device (`graph_get_cb`)."""
        cur = g.same(kind, cur)
        if (weight is not None or bias is not None) and il >= 0 and self.pinning:
            cur.backend = self.pins[self.placement.layers[il]]
        if weight is not None:
            cur = g.mul(cur, weight)
        if bias is not None:
            cur = g.add(cur, bias)
        return cur

    def normed(self, cur: T, il: int, name: str, kind: str = "RMS_NORM") -> T:
        """The norm `name` of a block, with its bias where the file has one (plamo's files name some norms without `.weight`)."""
        return self.norm(cur, self.layer(il, name + ".weight") or self.layer(il, name), self.layer(il, name + ".bias"), il, kind)

    def mm(self, weight: T, cur: T, scale: "T | None" = None) -> T:
        """`build_lora_mm` without adapters."""
        made = g.mul_mat(weight, cur)
        return made if scale is None else g.mul(made, scale)

    def project(self, cur: T, il: int, name: str) -> T:
        """A matrix of a block with its scale and bias."""
        cur = self.mm(self.need(il, name + ".weight"), cur, self.layer(il, name + ".scale"))
        bias = self.layer(il, name + ".bias")
        return cur if bias is None else g.add(cur, bias)

    def cropped(self, il: int) -> bool:
        """Whether the rows whose logits are wanted are picked in this layer, by a build that picks them behind it now (`KEPT_ROWS`)."""
        return il == self.last and self.context.version < KEPT_ROWS.get(self.hp.arch, 0)

    def pick(self, cur: T, ids: T) -> T:
        """Only the rows whose logits are wanted."""
        return g.get_rows(cur, ids)

    def finish(self, cur: T, *, head: "Callable[[T], T] | None" = None, kind: str = "RMS_NORM", normed: bool = True) -> T:
        """Output norm, output matrix, what comes behind it, and the end of the graph."""
        if normed:
            cur = self.norm(cur, self.weight("output_norm.weight"), self.weight("output_norm.bias"), -1, kind)
        self.hidden = cur
        cur.output = True  # `t_embd` stays alive whether embeddings are asked for or not
        cur = self.logits(cur)
        if head is not None:
            cur = head(cur)
        cur.output = True
        self.expand(cur)
        return cur

    def finish_hidden(self, cur: T) -> T:
        """The end of a graph that has no logits."""
        self.hidden = cur
        cur.output = True
        self.expand(cur)
        return cur

    def logits(self, cur: T) -> T:
        """The output matrix with its scale and bias."""
        cur = self.mm(self.output_weight(), cur, self.weight("output.scale"))
        bias = self.weight("output.bias")
        return cur if bias is None else g.add(cur, bias)

    # ---- attention

    def qkv(self, cur: T, il: int, key: int, heads: int, kv_heads: int, value: int = 0, *, clamp: bool = False) -> tuple[T, T, T]:
        """Queries, keys and values as {head width, heads, tokens} (`build_qkv`)."""
        value = value or key
        fused = self.layer(il, "attn_qkv.weight")
        clamp = clamp or bool(self.hp.get("attention.clamp_kqv", 0.0))
        if fused is None:
            made = []
            for name, width, count in (("attn_q", key, heads), ("attn_k", key, kv_heads), ("attn_v", value, kv_heads)):
                part = self.project(cur, il, name)
                if clamp:
                    part = g.same("CLAMP", part)
                made.append(g.reshape(part, width, count, self.tokens))
            return made[0], made[1], made[2]
        whole = self.project(cur, il, "attn_qkv")
        if clamp:
            whole = g.same("CLAMP", whole)
        row = whole.ne[0] * 4
        q = g.view(whole, (key, heads, self.tokens), (4 * key, row))
        k = g.view(whole, (key, kv_heads, self.tokens), (4 * key, row), 4 * key * heads)
        v = g.view(whole, (value, kv_heads, self.tokens), (4 * value, row), 4 * key * (heads + kv_heads))
        if self.context.version < FUSED_QUERIES:
            q, k = self._cut(whole, key, heads, 0), self._cut(whole, key, kv_heads, key * heads)
        if self.context.version < FUSED_VALUES:
            v = self._cut(whole, value, kv_heads, key * (heads + kv_heads))
        return q, k, v

    def _cut(self, whole: T, width: int, count: int, offset: int) -> T:
        """Heads copied out of a fused matrix's rows, as earlier builds did: a copy first, then its shape."""
        part = g.cont(g.view(whole, (width * count, self.tokens), (whole.ne[0] * 4,), 4 * offset))
        return g.reshape(part, width, count, self.tokens)

    def flat_qkv(self, cur: T, il: int, q: int, k: int, v: int) -> tuple[T, T, T]:
        """Queries, keys and values as {width, tokens}, for norms over the whole width; cut out of a fused matrix by copies."""
        if self.layer(il, "attn_qkv.weight") is None:
            return self.project(cur, il, "attn_q"), self.project(cur, il, "attn_k"), self.project(cur, il, "attn_v")
        whole = self.project(cur, il, "attn_qkv")
        row = (whole.ne[0] * 4,)
        parts = [g.cont(g.view(whole, (width, self.tokens), row, 4 * offset)) for width, offset in ((q, 0), (k, q), (v, q + k))]
        return parts[0], parts[1], parts[2]

    def rotate(self, cur: T, matrix: T) -> T:
        """The Hadamard rotation that a quantised cache brings (`llama_mul_mat_hadamard`)."""
        side = matrix.ne[0]
        count = g.elements(cur) // side
        flat = g.reshape(cur, side, count) if g.is_contiguous(cur) else g.cont(cur, side, count)
        return g.reshape(g.mul_mat(matrix, flat), *cur.ne)

    def cache_keys(self, cur: T, ids: "T | None", il: int, cache: "Cache | None" = None) -> T:
        """Write keys into a layer's cells (`cpy_k`)."""
        store = self.store("k", il, cache)
        if ids is None:
            return g.cpy(cur, g.view(store, (g.elements(cur),)))
        rows = g.view(cur, (cur.ne[0] * cur.ne[1], cur.ne[2]), (g.strides(cur)[2],))
        if store.ne[2] > 1:
            store = g.reshape(store, store.ne[0], store.ne[1] * store.ne[2])
        return g.set_rows(store, rows, ids)

    def cache_values(self, cur: T, ids: "T | None", il: int) -> T:
        """Write values into a layer's cells, element by element where they are stored transposed (`cpy_v`)."""
        store = self.store("v", il)
        width, tokens = cur.ne[0] * cur.ne[1], cur.ne[2]
        if ids is None:
            rows = g.reshape(cur, width, tokens) if g.is_contiguous(cur) else g.cont(cur, width, tokens)
            if self.context.flash:
                return g.cpy(rows, g.view(store, (width * tokens,)))
            return g.cpy(g.transpose(rows), g.view(store, (tokens, width), (_row(store.type, store.ne[1]),)))
        if self.context.flash:
            rows = g.view(cur, (width, tokens), (g.strides(cur)[2],))
            if store.ne[2] > 1:
                store = g.reshape(store, store.ne[0], store.ne[1] * store.ne[2])
            return g.set_rows(store, rows, ids)
        rows = g.reshape(cur, width, tokens) if g.strides(cur)[2] == 4 * width else g.cont(cur, width, tokens)
        if width < store.ne[0]:
            rows = g.pad(rows, store.ne[0] - width)
        flat = g.reshape(store, 1, g.elements(store))
        return g.set_rows(flat, g.reshape(rows, 1, g.elements(rows)), ids)

    def cached_keys(self, il: int, cache: Cache, *, joined: bool = False) -> T:
        """All cells of a layer's keys (`get_k`); `joined` reads a cache beside the layer's own, of one head."""
        store = self.store("k", il, cache if joined else None)
        if joined:
            row = _row(store.type, store.ne[0])
            return g.view(store, (store.ne[0], 1, cache.cells, cache.streams), (row, row, row * cache.cells))
        head, heads = self.hp.head_key(il), self.hp.kv_heads[il]
        row = _row(store.type, store.ne[0])
        return g.view(store, (head, heads, cache.cells, cache.streams), (_row(store.type, head), row, row * cache.cells))

    def cached_values(self, il: int, cache: Cache) -> T:
        """All cells of a layer's values (`get_v`)."""
        store = self.store("v", il)
        head, heads, cells = self.hp.head_value(il), self.hp.kv_heads[il], cache.cells
        if self.context.flash:
            row = _row(store.type, store.ne[0])
            return g.view(store, (head, heads, cells, cache.streams), (_row(store.type, head), row, row * cells))
        row = _row(store.type, cells)
        return g.view(store, (cells, heads, head, cache.streams), (row * head, row, row * store.ne[0]))

    def attention(
        self,
        il: int,
        q: T,
        k: "T | None",
        v: "T | None",
        *,
        wo: str = "attn_output",
        sinks: "T | None" = None,
        v_mla: "T | None" = None,
        soft_cap: bool = False,
        bias: "T | None" = None,
        values: int = 0,
        mask: "Callable[[T], T] | None" = None,
    ) -> T:
        """Store, attend, project (`build_attn`). `v_mla` decompresses a latent cache, whose keys serve as values of width `values`; `mask` narrows the input's."""  # fmt: skip
        if self.everyone is not None:
            assert k is not None
            assert v is not None
            for operand in (q, k, v):
                self.expand(operand)
            cur = self.attend(q, k, v, self.everyone, sinks=sinks, soft_cap=soft_cap, bias=bias, il=il)
            return self.project(cur, il, wo) if wo else cur
        windowed = self.hp.windowed[il] and self.window is not None
        inp = self.window if windowed else self.base
        assert inp is not None
        keys_only = not any(row[2] for row in inp.cache.rows)
        if inp.rot_k is not None and not keys_only:
            q = self.rotate(q, inp.rot_k)
            k = None if k is None else self.rotate(k, inp.rot_k)
        if inp.rot_v is not None and v is not None:
            v = self.rotate(v, inp.rot_v)
        self.expand(q)
        for t in (k, v) if self.memory.window is not None and not self.hp.mla else (v, k):
            if t is not None:
                self.expand(t)
        if k is not None:
            self.expand(self.cache_keys(k, inp.k_ids, il))
        if v is not None and not keys_only:
            self.expand(self.cache_values(v, inp.v_ids, il))
        reads = self.memory.reads[il]
        keys = self.cached_keys(reads, inp.cache)
        vals = g.view(keys, (values, *keys.ne[1:]), g.strides(keys)[1:]) if keys_only else self.cached_values(reads, inp.cache)
        cur = self.attend(q, keys, vals, inp.mask if mask is None else mask(inp.mask), sinks=sinks, v_mla=v_mla, soft_cap=soft_cap, bias=bias, il=il)
        if inp.rot_v is not None and not keys_only:
            cur = self.rotate(cur, inp.rot_v)
        return self.project(cur, il, wo) if wo else cur

    def attend(
        self,
        q: T,
        k: T,
        v: T,
        mask: "T | None",
        *,
        sinks: "T | None" = None,
        v_mla: "T | None" = None,
        soft_cap: bool = False,
        bias: "T | None" = None,
        il: int = 0,
    ) -> T:
        """Attention itself, with or without the flash kernel (`build_attn_mha`)."""
        transposed = g.strides(v)[1] > g.strides(v)[2]
        streams = k.ne[3]
        nb = g.strides(q)
        q = g.view(q, (q.ne[0], q.ne[1], q.ne[2] // streams, streams), (nb[1], nb[2], nb[2] * (q.ne[2] // streams)))
        q, k, v = g.permute(q, 0, 2, 1, 3), g.permute(k, 0, 2, 1, 3), g.permute(v, 0, 2, 1, 3)
        if self.context.flash and bias is None:
            cur = self._flash(q, k, g.transpose(v) if transposed else v, mask, sinks, v_mla, il)
        else:
            cur = self._plain(q, k, v, mask, sinks, v_mla, transposed=transposed, soft_cap=soft_cap, bias=bias)
        self.expand(cur)
        return cur

    def _flash(self, q: T, k: T, v: T, mask: "T | None", sinks: "T | None", v_mla: "T | None", il: int) -> T:
        if k.type == "F32":
            k = g.cast(k, "F16")
        if v.type == "F32":
            v = g.cast(v, "F16")
        operands = tuple(t for t in (q, k, v, mask, sinks) if t is not None)
        cur = T("FLASH_ATTN_EXT", "F32", (v.ne[0], q.ne[2], q.ne[1], q.ne[3]), operands)
        cur.home = self.placement.layers[il]
        if self.hp.get("attention.max_alibi_bias"):
            cur.detail = "alibi"
        if v_mla is not None:
            cur = g.mul_mat(v_mla, g.permute(cur, 0, 2, 1, 3))
            cur = g.cont(g.permute(cur, 0, 2, 1, 3))
        return g.reshape(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])

    def _plain(self, q: T, k: T, v: T, mask: "T | None", sinks: "T | None", v_mla: "T | None", *, transposed: bool, soft_cap: bool, bias: "T | None") -> T:
        kq = g.mul_mat(k, q)
        if self.hp.arch == "grok":
            kq = g.scale(g.unary(g.scale(kq), "tanh"))
        if soft_cap:
            kq = g.scale(g.unary(g.scale(kq), "tanh"))
        if bias is not None:
            kq = g.add(kq, bias)
        kq = g.soft_max(kq, mask, sinks)
        if not transposed:
            v = g.cont(g.transpose(v))
        kqv = g.mul_mat(v, kq)
        if v_mla is not None:
            kqv = g.mul_mat(v_mla, kqv)
        cur = g.permute(kqv, 0, 2, 1, 3)
        cur = g.cont(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
        if not self.context.kv_offload:
            cur.backend = self.pins[HOST]
        return cur


def _row(dtype: str, count: int) -> int:
    """`ggml_row_size` without the whole-block check (views may cut a block only where the engine does)."""
    block, size = GGML_BLOCKS[dtype]
    return count * size // block
