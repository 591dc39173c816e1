"""The compute buffers of one context: the reserved graph is built, scheduled and laid out once, and the high-water mark of each device is the answer.

Source: llama.cpp b11434, src/llama-context.cpp `sched_reserve`, `graph_reserve`, `resolve_fused_ops`. The prompt graph decides: it is reserved first and last, and
the one-token graph is never larger.
"""

from brim.engines.llama_cpp import caches, graphs
from brim.engines.llama_cpp.allocator import Label
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.caches import Memory
from brim.engines.llama_cpp.context import DRY_LOAD, EVENTS, INDEXER_OP, PIPELINES, Context
from brim.engines.llama_cpp.cuda import Card, flash_kernel
from brim.engines.llama_cpp.hparams import LONE, Hparams, Wanting
from brim.engines.llama_cpp.program import Event, Program, learn
from brim.engines.llama_cpp.scheduler import Scheduler
from brim.engines.llama_cpp.walk import graph_of, walk
from brim.engines.llama_cpp.weights import HOST, Placement


class Reserve:
    """Bytes by device. `reported` is what the engine's own fit and log of a dry load say where that differs: with pipeline copies it forgets which device a norm is kept on."""

    __slots__ = ("allocated", "events", "flash", "labels", "layers", "nodes", "peaks", "pipeline", "reported", "splits")

    def __init__(self) -> None:
        self.allocated: dict[str, int] = {}
        self.reported: dict[str, int] = {}
        self.nodes = 0
        self.splits = 0
        self.peaks: dict[str, str] = {}
        self.flash = True
        self.pipeline = False
        self.layers = 0
        self.events: list[Event] = []
        self.labels: list[Label] = []

    def without_recording(self) -> "Reserve":
        """The same without events and labels: only a recording has a use for them, and they are large."""
        if not self.events:
            return self
        made = Reserve()
        for name in self.__slots__:
            setattr(made, name, getattr(self, name))
        made.events, made.labels = [], []
        return made


def _cards(placement: Placement, version: int) -> "tuple[Card, ...]":
    return tuple(Card(device.id, device.compute_capability, version) for device in placement.gpus)


def _lay_out(
    hp: Hparams, context: Context, memory: Memory, placement: Placement, *, pins: bool, pipeline: bool, layers: "tuple[int, ...]", lone: bool = False
) -> "tuple[Scheduler, Builder, tuple[int, ...], int]":
    tokens, sequences = (min(context.total_cells, context.ubatch), 1) if lone else (context.tokens, context.sequences)
    if tokens % (context.streams if lone else sequences):
        raise Wanting(f"llama.cpp stops with an assertion where {hp.arch} has {context.streams} slots that do not divide the micro-batch of {tokens}")
    b = Builder(hp, context, memory, placement, layers, tokens=tokens, sequences=sequences, outputs=context.outputs)
    b.pinning = b.pinning and pins
    graphs.build(b)
    scheduler = Scheduler(
        _cards(placement, context.version), op_offload=context.op_offload, pipeline=pipeline, version=context.version, together=placement.spread is not None
    )
    sizes, splits = scheduler.measure(b.graph)
    return scheduler, b, sizes, splits


def stays_fused(hp: Hparams, context: Context, memory: Memory, placement: Placement, op: str = "FLASH_ATTN_EXT") -> bool:
    """Whether a fused operation is kept: each layer's must land on the layer's device (`resolve_fused_ops`, one token a sequence). So is `--flash-attn auto` settled."""
    if not placement.gpus or memory.base is None:
        return True
    layers = walk(hp, placement)
    b = Builder(hp, context, memory, placement, layers, tokens=context.sequences, sequences=context.sequences, outputs=context.sequences)
    graphs.build(b)
    cards = _cards(placement, context.version)
    names = [card.id for card in cards] + [HOST]
    Scheduler(cards, op_offload=context.op_offload, pipeline=False, version=context.version, together=placement.spread is not None).assign(b.graph)
    for node in b.graph.nodes:
        if node.op == op and node.home:
            if op == "FLASH_ATTN_EXT" and node.backend < len(cards) and flash_kernel(cards[node.backend], node) == "none":
                return False
            if names[node.backend] != node.home:
                return False
    return True


def reserve(hp: Hparams, context: Context, memory: Memory, placement: Placement, *, whole: bool = False) -> Reserve:
    """Lay out the prompt graph. `whole` walks every layer instead of a few of each run."""
    made = Reserve()
    many = len(placement.gpus) > 1
    made.pipeline = many and placement.full and context.kv_offload and not placement.overridden and placement.split == "layer"
    made.pipeline = made.pipeline and context.version >= PIPELINES and all(context.version >= EVENTS.get(device.backend, 1 << 30) for device in placement.gpus)
    layers = tuple(range(hp.depth)) if whole or many else walk(hp, placement)
    made.layers = len(layers)
    scheduler, b, sizes, splits = _lay_out(hp, context, memory, placement, pins=True, pipeline=made.pipeline, layers=layers)
    made.nodes, made.splits, made.flash = len(b.graph.nodes), splits, context.flash
    names = [device.id for device in placement.gpus] + [HOST]
    made.allocated = dict(zip(names, sizes, strict=True))
    made.peaks = dict(zip(names, scheduler.peaks, strict=True))
    made.events, made.labels = scheduler.events, scheduler.labels
    if hp.arch in LONE and context.sequences > 1:
        again, _, sizes, _ = _lay_out(hp, context, memory, placement, pins=True, pipeline=made.pipeline, layers=layers, lone=True)
        for name, size, peak in zip(names, sizes, again.peaks, strict=True):
            if size > made.allocated[name]:
                made.allocated[name], made.peaks[name] = size, peak
    made.reported = made.allocated
    if made.pipeline and context.version >= DRY_LOAD:
        _, _, sizes, _ = _lay_out(hp, context, memory, placement, pins=False, pipeline=True, layers=layers)
        made.reported = dict(zip(names, sizes, strict=True))
    return made


_RECENT: "dict[tuple[object, ...], tuple[Hparams, Reserve]]" = {}
_REMEMBERED = 2048
_WORTH_LEARNING = 3  # lengths asked for before a graph is recorded


_SETTLED: "dict[tuple[object, ...], tuple[Hparams, bool, bool]]" = {}


def forget() -> None:
    """Drop what is remembered (for benchmarks)."""
    _RECENT.clear()
    _SETTLED.clear()
    _LEARNED.clear()


def _settle(hp: Hparams, context: Context, memory: Memory, placement: Placement, where: "tuple[object, ...]") -> Memory:
    """Decide `--flash-attn auto`, then the fused indexer, for this context; remembered: they ask for devices, types and widths, not for lengths."""
    asks = context.auto_flash and context.flash
    key = (
        id(hp),
        asks,
        context.flash,
        context.sequences,
        context.streams,
        context.type_k,
        context.type_v,
        context.kv_offload,
        context.op_offload,
        context.version,
        context.mtp,  # the context of the next-token blocks asks for a graph of its own
        context.embeddings,
        context.pooling,
        context.rollback,
        where,
    )
    known = _SETTLED.get(key)
    if known is None or known[0] is not hp:
        if len(_SETTLED) >= _REMEMBERED:
            _SETTLED.pop(next(iter(_SETTLED)))
        flash = context.flash and (not asks or stays_fused(hp, context, memory, placement))
        fused = context.version >= INDEXER_OP
        if hp.indexer is not None and fused:
            flash, context.flash = context.flash, flash
            fused = stays_fused(hp, context, caches.remember(hp, context), placement, "LIGHTNING_INDEXER")
            flash, context.flash = context.flash, flash
        known = _SETTLED[key] = (hp, flash, fused)
    changed = context.flash != known[1]
    context.flash, context.fused_indexer = known[1], known[2]
    return caches.remember(hp, context) if changed else memory


def remembered(hp: Hparams, context: Context, placement: Placement) -> "tuple[Memory, Reserve]":
    """`reserve`, with the last answers kept: weights and cache sizes may change while the graph does not. Settles `--flash-attn auto` first."""
    memory = caches.remember(hp, context)
    where: tuple[object, ...] = (graph_of(hp, placement),)
    if len(placement.gpus) > 1:
        where = (
            tuple(placement.layers),
            placement.output,
            placement.full,
            placement.key,
            tuple((device.id, device.backend, device.compute_capability) for device in placement.gpus),
        )
    if placement.gpus and ((context.auto_flash and context.flash) or hp.indexer is not None):
        memory = _settle(hp, context, memory, placement, where)
    key = (
        id(hp), context.tokens, context.sequences, context.outputs, context.flash, context.type_k, context.type_v, context.cells, context.streams, context.window_cells, context.total_cells,
        context.kv_offload, context.op_offload, context.rollback, context.version, context.embeddings, context.pooling, context.mtp, context.sampled, context.filled, where,
    )  # fmt: skip
    found = _RECENT.get(key)
    if found is not None and found[0] is hp:
        return memory, found[1]
    made = _from_program(hp, context, placement, where)
    if made is None:
        made = reserve(hp, context, memory, placement)
    if len(_RECENT) >= _REMEMBERED:
        _RECENT.pop(next(iter(_RECENT)))
    _RECENT[key] = (hp, made.without_recording())
    return memory, made


class _Learned:
    """How often a graph was asked for at any length, its program once there is one, and a laid-out example."""

    __slots__ = ("asked", "example", "hp", "program", "samples")

    def __init__(self, hp: Hparams) -> None:
        self.hp = hp
        self.asked = 0
        self.program: Program | None = None
        self.example: Reserve | None = None
        self.samples: dict[int, Reserve] = {}  # by cells: what was laid out before there was a program


_LEARNED: "dict[tuple[object, ...], _Learned]" = {}


def _from_program(hp: Hparams, context: Context, placement: Placement, where: "tuple[object, ...]") -> "Reserve | None":
    """The buffers from a recorded walk, where the same graph was asked for at several lengths already."""
    if hp.arch in LONE and context.sequences > 1:  # two graphs decide
        return None
    slides = bool(hp.window_kind) and not context.swa_full
    if len(placement.gpus) > 1 or hp.compressed or hp.pool or hp.arch == "minimax-m3" or (slides and context.window_cells == context.cells):
        return None
    key = (
        id(hp), context.tokens, context.sequences, context.outputs, context.flash, context.type_k, context.type_v, context.streams, context.window_cells if slides else 0, context.kv_offload, context.op_offload,
        context.rollback, context.version, context.embeddings, context.pooling, context.mtp, context.sampled, context.filled, where,
    )  # fmt: skip
    learned = _LEARNED.get(key)
    if learned is None or learned.hp is not hp:
        if len(_LEARNED) >= 4 * _REMEMBERED:
            _LEARNED.pop(next(iter(_LEARNED)))
        learned = _LEARNED[key] = _Learned(hp)
    learned.asked += 1
    if learned.asked == _WORTH_LEARNING:
        _record(hp, context, placement, learned)
    program, example = learned.program, learned.example
    if program is None and learned.asked < _WORTH_LEARNING:
        found = learned.samples[context.cells] = reserve(hp, context, caches.remember(hp, context), placement)
        return found
    if program is None or example is None or not program.low <= context.cells <= program.high:
        return None
    made = Reserve()
    names = [device.id for device in placement.gpus] + [HOST]
    sizes, peaks = program.run(context.cells)
    made.allocated = made.reported = dict(zip(names, sizes, strict=True))
    made.peaks = dict(zip(names, peaks, strict=True))
    made.nodes, made.splits, made.flash, made.layers = example.nodes, example.splits, example.flash, example.layers
    return made


def _record(hp: Hparams, context: Context, placement: Placement, learned: _Learned) -> None:
    """Lay the graph out at a short, a middle and a long context, and learn its program where the three agree."""
    low = context.window_cells if context.window_cells < context.cells else 256  # a sliding cache is never longer than the full one
    high = max(context.cells, hp.context_trained // 256 * 256, 131072)
    middle = next((cells for cells in learned.samples if 4 * low <= cells <= high // 4), (low + high) // 512 * 256)
    samples = []
    for cells in (low, middle, high):
        example = learned.samples.get(cells)
        if example is None:
            other = context.at(cells)
            example = reserve(hp, other, caches.remember(hp, other), placement)
        samples.append((cells, example.events, example.labels))
        learned.example = example
    learned.samples.clear()
    learned.program = learn((*(card.alignment for card in _cards(placement, context.version)), 32), samples)
