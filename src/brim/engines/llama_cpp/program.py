"""One recorded walk of the allocator, run again for other context lengths: the operations stay, only sizes change, and each is linear in the cells of the cache.

A recording at three lengths shows whether that holds for a graph: the same takes and gives in the same order, every size on one line. Where it does not, there is no
program and the graph is laid out anew. A program is only run between the lengths that it was recorded at, so that a kernel's limit cannot lie between unseen.
"""

from brim.engines.llama_cpp.allocator import Arena, Label, sentence

# (kind, slot, buffer or parent's slot, size): 0 takes, 1 takes over a parent's place, 2 gives back
Event = tuple[int, int, int, int]
Straight = tuple[str, tuple[tuple[int, int], ...], str]  # a label whose extents are base + slope × cells


class Program:
    """Takes and gives of one graph with sizes `base + slope × cells`, between `low` and `high` cells."""

    __slots__ = ("alignments", "events", "high", "labels", "low", "slots")

    def __init__(self, alignments: "tuple[int, ...]", low: int, high: int, events: "list[tuple[int, int, int, int, int]]", labels: "list[Straight]") -> None:
        self.alignments = alignments
        self.low, self.high = low, high
        self.events = events
        self.labels = labels
        self.slots = len(labels)

    def run(self, cells: int) -> "tuple[tuple[int, ...], tuple[str, ...]]":
        """The high-water mark of each buffer, and what is alive then in the words of the walk itself (`Replay.peaks`)."""
        arenas = tuple(Arena(alignment) for alignment in self.alignments)
        address, size, home = [0] * self.slots, [0] * self.slots, [0] * self.slots
        moments = [-1] * len(arenas)
        for index, (kind, slot, other, base, slope) in enumerate(self.events):
            if kind == 0:
                wanted = base + slope * cells
                size[slot], home[slot] = wanted, other
                arena = arenas[other]
                high = arena.high
                address[slot] = arena.take(wanted)
                if arena.high > high:
                    moments[other] = index
            elif kind == 1:
                wanted = base + slope * cells
                size[slot], home[slot], address[slot] = wanted, home[other], address[other]
                if size[other] > wanted:
                    arenas[home[other]].give(address[other] + wanted, size[other] - wanted)
            else:
                arenas[home[slot]].give(address[slot], size[slot])
        said = [sentence(arena.high, self._alive(buffer, moments[buffer], cells, address, size, home)) for buffer, arena in enumerate(arenas)]
        return tuple(arena.high for arena in arenas), tuple(said)

    def _alive(self, buffer: int, moment: int, cells: int, address: "list[int]", size: "list[int]", home: "list[int]") -> "list[tuple[int, Label]]":
        """The tensors in one buffer just after the event `moment`, in the order in which their places were taken."""
        live: dict[int, int] = {}
        for kind, slot, _, _, _ in self.events[: moment + 1]:
            if home[slot] == buffer:
                if kind == 2:
                    if size[slot]:
                        live.pop(address[slot], None)
                elif kind == 1 or size[slot]:
                    live[address[slot]] = slot
        found: list[tuple[int, Label]] = []
        for slot in live.values():
            op, extents, dtype = self.labels[slot]
            found.append((size[slot], (op, tuple(base + slope * cells for base, slope in extents), dtype)))
        return found


def _straight(samples: "list[tuple[int, list[Event], list[Label]]]") -> "list[Straight] | None":
    """The tensors of the slots with extents linear in the cells, or None where the recordings do not agree."""
    (low, _, first), (high, _, last) = samples[0], samples[-1]
    made: list[Straight] = []
    for slot, (op, ne, dtype) in enumerate(first):
        extents = []
        for small, large in zip(ne, last[slot][1], strict=True):
            slope = (large - small) // (high - low)
            extents.append((small - slope * low, slope))
        made.append((op, tuple(extents), dtype))
        for cells, _, labels in samples:
            if labels[slot] != (op, tuple(base + slope * cells for base, slope in extents), dtype):
                return None
    return made


def learn(alignments: "tuple[int, ...]", samples: "list[tuple[int, list[Event], list[Label]]]") -> "Program | None":
    """The program of recordings at three or more lengths, or None where they do not agree."""
    samples = sorted(samples, key=lambda sample: sample[0])
    (low, first, names), (high, last, _) = samples[0], samples[-1]
    if low == high or any(len(events) != len(first) or len(labels) != len(names) for _, events, labels in samples):
        return None
    straight = _straight(samples)
    if straight is None:
        return None
    made = []
    for index, (kind, slot, other, small) in enumerate(first):
        slope, left = divmod(last[index][3] - small, high - low)
        base = small - slope * low
        for cells, events, _ in samples:
            if events[index][:3] != (kind, slot, other) or events[index][3] != base + slope * cells:
                return None
        if left:
            return None
        made.append((kind, slot, other, base, slope))
    return Program(alignments, low, high, made, straight)
