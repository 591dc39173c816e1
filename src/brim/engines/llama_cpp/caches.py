"""One frozen spec per cache of a context, each owning its cells, its layers and its bytes; the graph and the price read the same numbers.

Kinds: full, sliding window, latent (MLA: keys only), indexer keys beside a latent cache, shared between layers (a later layer reads an earlier one's rows), and recurrent state. Source: llama.cpp
b11434, src/llama-model.cpp `create_memory`, llama-kv-cache.cpp `llama_kv_cache()`, llama-kv-cache-iswa.cpp, llama-kv-cache-dsa.cpp, llama-kv-cache-dsv4.cpp, llama-memory-recurrent.cpp.
"""

from brim.engines.llama_cpp.context import ENCODER_MEMORY, GLM_INDEXER, INDEXER_KEYS, NO_VALUES, PLAIN_WINDOW, POOLED_KEYS, ROTATED_CACHE, SPLIT_WINDOW, Context
from brim.engines.llama_cpp.hparams import CACHELESS, RECURRENT, Hparams, Wanting
from brim.engines.llama_cpp.weights import stored_bytes
from brim.facts.dtypes import GGML_BLOCKS
from brim.units import round_up
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Cache(Record):
    """One attention cache. `rows` are (layer, K width, V width) in values; `cells` a stream. `rotation_k`, `rotation_v`: side of the Hadamard matrix, 0 for none."""

    name: str
    cells: int
    streams: int
    type_k: str
    type_v: str
    rows: tuple[tuple[int, int, int], ...]
    rotation_k: int = 0
    rotation_v: int = 0

    def layer_bytes(self, key: int, value: int, device: str) -> int:
        """Bytes of one layer's cells on a device, padded as any tensor there."""
        dims = (self.cells, self.streams)
        k = stored_bytes(self.type_k, (key, *dims), device)
        return k + (stored_bytes(self.type_v, (value, *dims), device) if value else 0)


class State(Record):
    """Recurrent state, always f32: `rows` sequences (with their rollback copies) of `conv` and `state` values for each layer, and of more (layer, values) in one."""

    rows: int
    conv: int
    state: int
    layers: tuple[int, ...]
    history: tuple[int, int] = (-1, 0)

    def layer_bytes(self, il: int) -> int:
        """Bytes of one layer's rows."""
        more = self.history[1] if il == self.history[0] else 0
        return sum(-(-4 * size * self.rows // 128) * 128 for size in (self.conv, self.state, more))


class Memory(Record):
    """All that a context keeps between micro-batches: the caches (`base`, `window`, and by name those `beside` them: an indexer's keys,
    compressed cells and the f32 rows that they are made from) and the recurrent state. `reads[il]` is the layer whose rows layer il reads.
    """

    base: Cache | None = None
    window: Cache | None = None
    beside: tuple[Cache, ...] = ()
    state: State | None = None
    reads: tuple[int, ...] = ()

    def named(self, name: str) -> Cache:
        """One of the caches beside the main ones."""
        return next(cache for cache in self.beside if cache.name == name)

    def cache_of(self, hp: Hparams, il: int) -> "Cache | None":
        """The cache that layer `il` reads."""
        return self.window if hp.windowed[il] and self.window is not None else self.base


def _attends(hp: Hparams, il: int) -> bool:
    """Whether a layer owns cells (the layer filters of `create_memory`)."""
    if (il >= hp.layers and hp.arch != "graniteswitch") or not hp.cached[il]:
        return False
    if hp.arch == "falcon-h1":
        return True
    if hp.arch in ("nemotron_h", "nemotron_h_moe"):
        return not hp.recurrent[il] and not hp.ff[il]
    return not hp.recurrent[il]


def _rotations(hp: Hparams, context: Context, layers: "list[int]") -> tuple[int, int]:
    """Sides of the rotation matrices that a quantised cache brings (`attn_rot_k`, `attn_rot_v`)."""
    if context.version < ROTATED_CACHE:
        return 0, 0
    keys = {hp.head_key(il) for il in layers}
    values = {hp.head_value(il) for il in layers}
    rot_k = rot_v = 0
    if len(keys) == 1 and max(keys) > 0 and GGML_BLOCKS[context.type_k][0] > 1 and hp.key % 64 == 0:
        side = next(iter(keys))
        rot_k = 64
        while side % (2 * rot_k) == 0:
            rot_k *= 2
    if not hp.mla and len(values) == 1 and max(values) > 0 and GGML_BLOCKS[context.type_v][0] > 1 and hp.value % 64 == 0:
        rot_v = 64
    return rot_k, rot_v


def _cache(hp: Hparams, context: Context, name: str, cells: int, layers: "list[int]") -> Cache:
    """One cache over some layers."""
    widest = 0 if context.flash else max((hp.width_value(il) for il in range(hp.blocks)), default=0)
    latent = bool(hp.mla) and context.version >= NO_VALUES
    rows = tuple((il, hp.width_key(il), 0 if latent else hp.width_value(il) if context.flash else widest) for il in layers)
    rot_k, rot_v = _rotations(hp, context, layers)
    type_k, type_v = context.type_k, context.type_v
    if name == "window" and PLAIN_WINDOW[0] <= context.version < PLAIN_WINDOW[1]:
        type_k, type_v, rot_k, rot_v = "F16", "F16", 0, 0
    return Cache(name=name, cells=cells, streams=context.streams, type_k=type_k, type_v=type_v, rows=rows, rotation_k=rot_k, rotation_v=rot_v)


def _indexer(hp: Hparams, context: Context) -> "tuple[Cache, ...]":
    """The keys of the layers that own an indexer: one head a cell, in the type of K; the Hadamard matrix is always there (llama-kv-cache-dsa.cpp).

    qwen4exp and glm5-next keep pooled keys beside the raw ones and no matrix (llama-memory-hybrid-idx.cpp); qwen4exp's first builds kept room for values, too.
    """
    if hp.indexer is None or (hp.arch == "glm-dsa" and context.version < GLM_INDEXER):
        return ()
    pooled = bool(hp.pool) and (hp.arch != "qwen4exp" or context.version >= POOLED_KEYS)
    width = hp.indexer[1] * ({"qwen4exp": 2, "glm5-next": 3}[hp.arch] if pooled else 1)
    idle = hp.arch == "minimax-m3" or (hp.arch == "qwen4exp" and context.version < INDEXER_KEYS)  # a V cache that nothing reads
    rows = tuple((il, width, hp.value if idle else 0) for il in range(hp.layers) if hp.indexes[il])
    side = _side(width) if hp.arch in _TURNED else 0
    return (Cache(name="indexer", cells=context.cells, streams=context.streams, type_k=context.type_k, type_v=context.type_v, rows=rows, rotation_k=side),)


_TURNED = frozenset(("deepseek32", "glm-dsa", "dots3note"))  # indexers with a Hadamard matrix whatever the cache type


def _side(width: int) -> int:
    """The largest Hadamard matrix from 64 on that divides a width."""
    side = 64
    while width % (2 * side) == 0:
        side *= 2
    return side


def _compressed(hp: Hparams, context: Context) -> Memory:
    """deepseek4: a window of keys for every layer, keys of 4 or 128 tokens made one, the indexer's, and the f32 rows that the next ones are made from.

    Each sequence has cells of its own, shared cache or not (llama-kv-cache-dsv4.cpp).
    """
    assert hp.indexer is not None
    streams, width, small = context.sequences, hp.key, hp.indexer[1]
    narrow = context.cells if context.swa_full else min(context.cells, round_up(min(context.cells, hp.window + context.ubatch), 256))
    every = range(hp.blocks)
    fours, many = [il for il in every if hp.compressed[il] == 4], [il for il in every if hp.compressed[il] == 128]
    if width == small or not fours:
        raise Wanting("llama.cpp b11434 ends in a division by zero here: an indexer as wide as a head, or no layer with one")
    turned = _side(width) if GGML_BLOCKS[context.type_k][0] > 1 and width % 64 == 0 else 0

    def keys(name: str, cells: int, layers: "Iterable[int]", size: int, side: int) -> Cache:
        rows = tuple((il, size, 0) for il in layers)
        return Cache(name=name, cells=cells, streams=streams, type_k=context.type_k, type_v=context.type_k, rows=rows, rotation_k=side)

    def pending(name: str, cells: int, layers: "list[int]", size: int) -> Cache:
        rows = tuple((il, size, size) for il in layers if il < hp.layers)
        return Cache(name=name, cells=cells, streams=streams * (1 + context.rollback), type_k="F32", type_v="F32", rows=rows)

    quarter, little = (round_up(-(-context.cells // ratio), 256) for ratio in (4, 128))
    beside = (
        keys("fours", quarter, fours, width, turned), keys("many", little, many, width, turned), keys("indexer", quarter, fours, small, _side(small)),
        pending("fours_state", 8, fours, 2 * width), pending("many_state", 128, many, width), pending("indexer_state", 8, fours, 2 * small),
    )  # fmt: skip
    return Memory(base=keys("base", context.cells, (), width, 0), window=keys("window", narrow, every, width, turned), beside=beside, reads=tuple(every))


def _drafting(hp: Hparams, context: Context) -> Memory:
    """What the context of the next-token blocks keeps: attention of those blocks alone, and qwen4exp's indexer (LLAMA_CONTEXT_TYPE_MTP)."""
    blocks = list(range(hp.layers, hp.blocks))
    base = _cache(hp, context, "base", context.cells, [il for il in blocks if not hp.windowed[il]])
    window = _cache(hp, context, "window", context.window_cells, [il for il in blocks if hp.windowed[il]]) if hp.window_kind else None
    beside: tuple[Cache, ...] = ()
    if hp.arch == "qwen4exp":
        beside = tuple(cache.replace(rows=tuple((il, cache.rows[0][1], 0) for il in blocks)) for cache in _indexer(hp, context) if cache.rows)
    return Memory(base=base, window=window, beside=beside, reads=tuple(range(hp.blocks)))


_SHAPES: "dict[tuple[object, ...], tuple[Hparams, Memory]]" = {}
_MOST_SHAPES = 64
_ONCE_KEPT = frozenset(("bert", "jina-bert-v2", "nomic-bert", "nomic-bert-moe"))


def remember(hp: Hparams, context: Context) -> Memory:
    """The memory module that llama.cpp makes for a model and a context. Which layers own how wide rows is worked out once; only cells and sequences differ from price to price."""
    if hp.arch in CACHELESS and (context.version >= ENCODER_MEMORY or hp.arch not in _ONCE_KEPT):
        return Memory()
    if context.mtp:
        return _drafting(hp, context)
    if hp.compressed:
        return _compressed(hp, context)
    key = (id(hp), context.flash, context.type_k, context.type_v, context.version)
    known = _SHAPES.get(key)
    if known is None or known[0] is not hp:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        known = _SHAPES[key] = (hp, _made(hp, context))
    shape = known[1]
    base, window, state = shape.base, shape.window, shape.state
    return Memory(
        base=None if base is None else base.replace(cells=context.cells, streams=context.streams),
        window=None if window is None else window.replace(cells=context.window_cells, streams=context.streams),
        beside=tuple(cache.replace(cells=context.cells, streams=context.streams) for cache in shape.beside),
        state=None if state is None else state.replace(rows=context.sequences * (1 + context.rollback)),
        reads=shape.reads,
    )


def _made(hp: Hparams, context: Context) -> Memory:
    """`create_memory` for one length, for all but compressed caches."""
    state = None
    kept = tuple(il for il in range(hp.layers) if hp.recurrent[il])
    if kept:
        state = State(rows=context.sequences * (1 + context.rollback), conv=hp.rows_r, state=hp.rows_s, layers=kept, history=hp.history)
    if hp.arch in RECURRENT:
        return Memory(state=state)
    owners = [il for il in range(hp.blocks) if _attends(hp, il)]
    split = bool(hp.window_kind) and context.version >= SPLIT_WINDOW
    base = _cache(hp, context, "base", context.cells, [il for il in owners if not (split and hp.windowed[il])])
    window = _cache(hp, context, "window", context.window_cells, [il for il in owners if hp.windowed[il]]) if split else None
    return Memory(base=base, window=window, beside=_indexer(hp, context), state=state, reads=tuple(_read_from(hp, il) for il in range(hp.blocks)))


def _read_from(hp: Hparams, il: int) -> int:
    """The layer whose cells a layer reads: its own, or the last full or sliding one of those that own cells (gemma 3n and 4)."""
    if hp.cached[il]:
        return il
    owners = sum(hp.cached)
    return owners - (2 if hp.windowed[il] else 1)
