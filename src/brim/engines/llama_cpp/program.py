"""One recorded walk of the allocator, run again for other context lengths: the operations stay, only sizes change, and each is linear in the cells of the cache.

A recording at three lengths shows whether that holds for a graph: the same takes and gives in the same order, every size on one line. Where it does not, there is no
program and the graph is laid out anew. A program is only run between the lengths that it was recorded at, so that a kernel's limit cannot lie between unseen.
"""

from brim.engines.llama_cpp.allocator import Arena

# (kind, slot, buffer or parent's slot, size): 0 takes, 1 takes over a parent's place, 2 gives back
Event = tuple[int, int, int, int]


class Program:
    """Takes and gives of one graph with sizes `base + slope × cells`, between `low` and `high` cells."""

    __slots__ = ("alignments", "events", "high", "low", "slots")

    def __init__(self, alignments: "tuple[int, ...]", low: int, high: int, events: "list[tuple[int, int, int, int, int]]", slots: int) -> None:
        self.alignments = alignments
        self.low, self.high = low, high
        self.events = events
        self.slots = slots

    def run(self, cells: int) -> "tuple[int, ...]":
        """The high-water mark of each buffer."""
        arenas = tuple(Arena(alignment) for alignment in self.alignments)
        address, size, home = [0] * self.slots, [0] * self.slots, [0] * self.slots
        for kind, slot, other, base, slope in self.events:
            if kind == 0:
                wanted = base + slope * cells
                size[slot], home[slot] = wanted, other
                address[slot] = arenas[other].take(wanted)
            elif kind == 1:
                wanted = base + slope * cells
                size[slot], home[slot], address[slot] = wanted, home[other], address[other]
                if size[other] > wanted:
                    arenas[home[other]].give(address[other] + wanted, size[other] - wanted)
            else:
                arenas[home[slot]].give(address[slot], size[slot])
        return tuple(arena.high for arena in arenas)


def learn(alignments: "tuple[int, ...]", samples: "list[tuple[int, list[Event]]]") -> "Program | None":
    """The program of recordings at three or more lengths, or None where they do not agree."""
    samples = sorted(samples, key=lambda sample: sample[0])
    (low, first), (high, last) = samples[0], samples[-1]
    if low == high or any(len(events) != len(first) for _, events in samples):
        return None
    made = []
    slots = 0
    for index, (kind, slot, other, small) in enumerate(first):
        slope, left = divmod(last[index][3] - small, high - low)
        base = small - slope * low
        for cells, events in samples:
            if events[index][:3] != (kind, slot, other) or events[index][3] != base + slope * cells:
                return None
        if left:
            return None
        slots = max(slots, slot + 1)
        made.append((kind, slot, other, base, slope))
    return Program(alignments, low, high, made, slots)
