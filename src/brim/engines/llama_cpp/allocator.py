"""Replays ggml's graph allocator (best fit, in-place reuse, views, inputs and outputs) and returns the high-water mark of each buffer.

Mirrors ggml/src/ggml-alloc.c of llama.cpp b11434: `ggml_dyn_tallocr_alloc`, `ggml_dyn_tallocr_free_bytes`, `ggml_gallocr_allocate_node`,
`ggml_gallocr_alloc_graph_impl`. Buffers are one chunk without a size limit, as CUDA and host buffers are; a backend with a largest buffer (Vulkan, Metal)
may split the same bytes over several chunks. Not covered: the bytes between chunks of such backends.
"""

from brim.engines.llama_cpp.tensor import INPLACE, T, same_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_ENDLESS = 1 << 62
Label = tuple[str, tuple[int, ...], str]  # operation, extents, type


class Arena:
    """One buffer's free list: sorted [offset, size] blocks, the last one endless."""

    __slots__ = ("alignment", "blocks", "high")

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.blocks: list[list[int]] = [[0, _ENDLESS]]
        self.high = 0

    def take(self, size: int) -> int:
        """The offset of `size` bytes (already aligned): the smallest free block that holds them, the later of equals, else the end."""
        blocks = self.blocks
        best, best_size, last = -1, _ENDLESS, len(blocks) - 1
        for index in range(last):
            room = blocks[index][1]
            if size <= room <= best_size:
                best, best_size = index, room
        if best < 0:
            best = last
        block = blocks[best]
        offset = block[0]
        block[0] = offset + size
        block[1] -= size
        if not block[1]:
            del blocks[best]
        self.high = max(self.high, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        """Return `size` bytes at `offset`, merging with the neighbours."""
        blocks = self.blocks
        end = offset + size
        for index, block in enumerate(blocks):
            start = block[0]
            if start + block[1] == offset:
                block[1] += size
                if index + 1 < len(blocks) and blocks[index + 1][0] == end:
                    block[1] += blocks[index + 1][1]
                    del blocks[index + 1]
                return
            if start == end:
                block[0] = offset
                block[1] += size
                if index and blocks[index - 1][0] + blocks[index - 1][1] == offset:
                    blocks[index - 1][1] += block[1]
                    del blocks[index]
                return
            if start > end:
                blocks.insert(index, [offset, size])
                return
        blocks.append([offset, size])


class Replay:
    """One walk of the allocator over a scheduled graph. `size_of(tensor, buffer)` is the backend's `get_alloc_size`, unaligned."""

    __slots__ = ("arenas", "events", "highest", "labels", "live", "size_of", "slots")

    def __init__(self, alignments: "tuple[int, ...]", size_of: "Callable[[T, int], int]") -> None:
        self.arenas = tuple(Arena(alignment) for alignment in alignments)
        self.size_of = size_of
        self.live: list[dict[int, T]] = [{} for _ in alignments]
        self.highest: list[list[T]] = [[] for _ in alignments]
        self.events: list[tuple[int, int, int, int]] = []  # what was taken, taken over and given back (see program.py)
        self.labels: list[Label] = []  # the tensor of each slot
        self.slots = 0

    def place(self, node: T, buffer: int) -> None:
        """Give `node` memory in `buffer`, or let it take over a parent's (`ggml_gallocr_allocate_node`)."""
        if node.owned or node.place is not None or node.view is not None:
            return
        node.owned = True
        if node.op in INPLACE:
            for parent in node.src:
                if parent.owned and not parent.output and parent.children == 1 and not parent.views and same_layout(node, parent):
                    self._take_over(node, parent)
                    return
        arena = self.arenas[buffer]
        alignment = arena.alignment
        size = -(-self.size_of(node, buffer) // alignment) * alignment
        node.buffer = buffer
        node.size = size
        node.slot = self.slots
        self.slots += 1
        self.labels.append((node.op, tuple(node.ne), node.type))
        self.events.append((0, node.slot, buffer, size))
        high = arena.high
        node.address = arena.take(size)
        if size:
            live = self.live[buffer]
            live[node.address] = node
            if arena.high > high:
                self.highest[buffer] = list(live.values())

    def _take_over(self, node: T, parent: T) -> None:
        """`node` lives on where `parent` was; what it does not need is freed (`ggml_gallocr_free_extra_space`)."""
        node.buffer = parent.buffer
        node.address = parent.address
        parent.owned = False
        arena = self.arenas[parent.buffer]
        size = -(-self.size_of(node, parent.buffer) // arena.alignment) * arena.alignment
        node.size = size
        node.slot = self.slots
        self.slots += 1
        self.labels.append((node.op, tuple(node.ne), node.type))
        self.events.append((1, node.slot, parent.slot, size))
        self.live[parent.buffer][node.address] = node
        if parent.size > size:
            arena.give(parent.address + size, parent.size - size)

    def release(self, node: T) -> None:
        """Free `node`, unless it is an output."""
        if not node.output:
            self.arenas[node.buffer].give(node.address, node.size)
            self.events.append((2, node.slot, 0, 0))
            node.owned = False
            if node.size:
                self.live[node.buffer].pop(node.address, None)

    def peaks(self) -> "tuple[str, ...]":
        """For each buffer, the largest tensors that are alive at its highest moment, with what the others and the holes between them take."""
        return tuple(
            sentence(arena.high, [(t.size, (t.op, tuple(t.ne), t.type)) for t in alive]) for arena, alive in zip(self.arenas, self.highest, strict=True)
        )

    def run(self, nodes: "list[T]", node_buffers: "list[int]", leafs: "list[T]", leaf_buffers: "list[int]") -> "tuple[int, ...]":
        """Lay the whole graph out once; the high-water mark of each buffer in bytes (`ggml_gallocr_alloc_graph_impl`)."""
        place, release = self.place, self.release
        for leaf, buffer in zip(leafs, leaf_buffers, strict=True):
            place(leaf, buffer)
        for node, buffer in zip(nodes, node_buffers, strict=True):
            if node.view is not None and node.op != "NONE":
                node.view.views += 1
            if node.input:
                place(node, buffer)
            for operand in node.src:
                operand.children += 1
                if operand.input:
                    place(operand, buffer)
        for node, buffer in zip(nodes, node_buffers, strict=True):
            for operand in node.src:
                if not operand.owned:
                    place(operand, buffer)
            place(node, buffer)
            for parent in node.src:
                parent.children -= 1
                if parent.children or parent.views:
                    continue
                source = parent.view
                if source is not None:
                    source.views -= 1
                    if not source.views and not source.children and source.owned:
                        release(source)
                elif parent.owned:
                    release(parent)
        return tuple(arena.high for arena in self.arenas)


def sentence(high: int, alive: "list[tuple[int, Label]]") -> str:
    """The sum at the highest moment: tensors that people may look for, the rest, the holes."""
    if not high:
        return "nothing"
    rows = sorted(alive, key=lambda row: -row[0])
    shown = [
        f"{op.lower() if op != 'NONE' else 'input'} {'×'.join(str(n) for n in ne if n != 1) or '1'} {kind.lower()} {size}" for size, (op, ne, kind) in rows[:6]
    ]
    rest = sum(size for size, _ in rows[6:])
    held = sum(size for size, _ in rows)
    return (
        " + ".join([*shown, *([f"{len(rows) - 6} smaller {rest}"] if rest else []), *([f"holes between them {high - held}"] if high > held else [])])
        + f" = {high}"
    )
