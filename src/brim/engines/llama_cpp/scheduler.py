"""Replays ggml's scheduler: which backend runs each node, where the graph is split, and what is copied between devices.

Source: llama.cpp b11434, ggml/src/ggml-backend.cpp `ggml_backend_sched_split_graph` (passes 1 to 6), `ggml_backend_sched_new` (copies for pipelines).
Backends are numbered as there: accelerators first, the host last.
"""

from brim.engines.llama_cpp.allocator import Label, Replay
from brim.engines.llama_cpp.context import LIFETIMES, METAL_SORTED, MIXED_INPUT
from brim.engines.llama_cpp.cuda import Card, batch_of
from brim.engines.llama_cpp.fusions import keep_alive
from brim.engines.llama_cpp.tensor import VIEW_OPS, WEIGHTS, Graph, T, nbytes

_PIPELINE_COPIES = 4  # GGML_SCHED_MAX_COPIES
_OFFLOAD_BATCH = 32  # GGML_OP_OFFLOAD_MIN_BATCH
_MOST_OPERANDS = 10  # GGML_MAX_SRC


class Split:
    """A run of nodes on one backend, and the tensors that are copied to it first."""

    __slots__ = ("backend", "inputs", "nodes")

    def __init__(self, backend: int) -> None:
        self.backend = backend
        self.nodes: list[T] = []
        self.inputs: list[T] = []


class Scheduler:
    """One scheduling of one graph. `cards` are the accelerators; the host has the number after them. `together`: the card stands for several that share every tensor, a
    device that neither takes work for the host nor keeps tensors alive for its fusions.
    """

    def __init__(self, cards: "tuple[Card, ...]", *, op_offload: bool, pipeline: bool, version: int, together: bool = False) -> None:
        self.cards = cards
        self.host = len(cards)
        self.op_offload = op_offload and not together
        self.together = together
        self.version = version
        self.copies = _PIPELINE_COPIES if pipeline else 1
        self.homes = {card.id: index for index, card in enumerate(cards)}
        self.homes["cpu"] = self.host
        self.peaks: tuple[str, ...] = ()
        self.events: list[tuple[int, int, int, int]] = []
        self.labels: list[Label] = []

    def _takes(self, backend: int, t: T) -> bool:
        return backend == self.host or self.cards[backend].takes(t)

    def _home(self, t: T) -> "int | None":
        """The buffer that holds a tensor already, as a backend number."""
        place = t.view.place if t.view is not None else t.place
        return None if place is None else self.homes[place]

    def _readable(self, t: T, backend: int) -> bool:
        """Whether `backend` can read `t` where it is (`ggml_backend_sched_buffer_supported`): every buffer is read by its own device only."""
        home = self._home(t)
        if home is None:
            home = t.backend
            if home == -1 and t.view is not None:
                home = t.view.backend
        return home == backend

    def _from_operands(self, t: T) -> int:
        """Pass 1 for one node: where its result lies, where its weights lie, or −1."""
        home = self._home(t)
        if home is not None:
            return home if self._takes(home, t) else -1
        if t.input:
            return self.host
        if t.op in ("ROPE", "FLASH_ATTN_EXT"):
            return -1
        for operand in t.src:
            if operand.place is not None and operand.usage == WEIGHTS:
                home = self.homes[operand.place]
                if home != self.host and not self._takes(home, t):
                    return -1
                if home == self.host and self.op_offload:
                    for backend in range(self.host):
                        if batch_of(t) >= _OFFLOAD_BATCH and self.cards[backend].offloads(t) and self._takes(backend, t):
                            return backend
                return home
        return -1

    def _spread(self, nodes: "list[T]", *, host_too: bool) -> None:
        """Pass 2: a node without a backend takes its neighbour's, first going down, then going up."""
        for order in (nodes, nodes[::-1]):
            current = -1
            for node in order:
                if node.op in VIEW_OPS:
                    continue
                if node.backend != -1:
                    current = node.backend if host_too or node.backend != self.host else -1
                elif current != -1 and self._takes(current, node):
                    node.backend = current

    def assign(self, graph: Graph) -> None:
        """Passes 1 to 4."""
        nodes = graph.nodes
        for leaf in graph.leafs:
            if leaf.backend == -1:
                home = self._home(leaf)
                leaf.backend = home if home is not None else self.host if leaf.input else -1
        for node in nodes:
            if node.backend == -1:
                node.backend = self._from_operands(node)
        self._spread(nodes, host_too=False)
        self._spread(nodes, host_too=True)
        for node in nodes:
            if node.op not in VIEW_OPS and node.backend == -1:
                self._best(node)
        for node in nodes:
            if node.view is not None and node.backend == -1:
                node.backend = node.view.backend
            for operand in node.src:
                if operand.backend == -1:
                    operand.backend = operand.view.backend if operand.view is not None else node.backend
            if node.backend == -1:
                node.backend = next(index for index in range(self.host + 1) if self._takes(index, node))

    def _best(self, node: T) -> None:
        """Pass 3: the backend that can read most of the operands."""
        most = -1
        for backend in range(self.host + 1):
            if self._takes(backend, node):
                count = sum(1 for t in node.src if (t.backend != -1 or (t.view is not None and t.view.backend != -1)) and self._readable(t, backend))
                if count > most:
                    most = count
                    node.backend = backend

    def _split(self, graph: Graph) -> "list[Split]":
        """Pass 5: runs of one backend; a run also ends where a weight from elsewhere is needed, so that the copy's room can be used again."""
        nodes = graph.nodes
        first = next((node for node in nodes if node.op not in VIEW_OPS), nodes[0])
        split = Split(first.backend)
        splits = [split]
        for node in nodes:
            if node.op in VIEW_OPS:
                split.nodes.append(node)
                continue
            again = node.backend == split.backend and bool(split.inputs) and any(
                t.place is not None and t.usage == WEIGHTS and t.backend != split.backend and not self._readable(t, split.backend) for t in node.src
            )  # fmt: skip
            if node.backend != split.backend or again:
                split = Split(node.backend)
                splits.append(split)
            split.nodes.append(node)
            if any(t.backend != split.backend for t in node.src):
                self._copy_inputs(node, split)
        return splits

    def _copy_inputs(self, node: T, split: Split) -> None:
        """Replace the operands that this backend cannot read by copies of them."""
        replaced = []
        for operand in node.src:
            if operand.backend == split.backend or self._readable(operand, split.backend):
                replaced.append(operand)
                continue
            if operand.copies is None:
                operand.copies = {}
            if split.backend not in operand.copies:
                made = []
                for _ in range(self.copies):
                    copy = T("NONE", operand.type, operand.ne, (), None, operand.nb)
                    copy.backend = split.backend
                    copy.input = copy.output = self.copies > 1
                    made.append(copy)
                operand.copies[split.backend] = made
                split.inputs.append(operand)
            replaced.append(operand.copies[split.backend][0])
        node.src = tuple(replaced)

    def measure(self, graph: Graph) -> "tuple[tuple[int, ...], int]":
        """The compute buffer of each backend in bytes (accelerators first, the host last), and the number of splits."""
        self.assign(graph)
        read = {id(operand) for node in graph.nodes for operand in node.src} if self.copies > 1 else set()
        splits = self._split(graph)
        spare = self._graph_inputs(graph, read) if self.copies > 1 else []
        nodes: list[T] = []
        buffers: list[int] = []
        for split in splits:
            lifetimes = self._lifetimes(split)
            for operand in split.inputs:
                dependency = T("NONE", operand.type, operand.ne, (operand,), operand.view or operand, operand.nb)
                nodes += (dependency, operand.copies[split.backend][0])  # type: ignore[index]
                buffers += (operand.backend, split.backend)
            for node in split.nodes:
                nodes.append(node)
                buffers.append(node.backend)
                for dependency in lifetimes.get(id(node), ()):
                    nodes.append(dependency)
                    buffers.append(split.backend)
        leafs = [*spare, *self._split_copies(splits), *[(leaf, leaf.backend) for leaf in graph.leafs if leaf.place is None]]
        replay = Replay((*(card.alignment for card in self.cards), 32), self._size)
        sizes = replay.run(nodes, buffers, [leaf for leaf, _ in leafs], [max(0, backend) for _, backend in leafs])
        self.peaks = replay.peaks()
        self.events, self.labels = replay.events, replay.labels
        return sizes, len(splits)

    def _size(self, t: T, buffer: int) -> int:
        return nbytes(t) if buffer == self.host else self.cards[buffer].size(t)

    def _graph_inputs(self, graph: Graph, read: "set[int]") -> "list[tuple[T, int]]":
        """Pass 5: with pipeline copies every graph input that a node reads is kept four times where it lies; one that is there for another kind of batch is not, before a mix of both was built."""
        made: list[tuple[T, int]] = []
        for leaf in graph.leafs:
            if not leaf.input or (self.version < MIXED_INPUT and id(leaf) not in read):
                continue
            copies = [leaf]
            for _ in range(self.copies - 1):
                copies.append(T("NONE", leaf.type, leaf.ne))
            for copy in copies:
                copy.input = copy.output = True
                made.append((copy, leaf.backend))
        return made

    def _split_copies(self, splits: "list[Split]") -> "list[tuple[T, int]]":
        """With pipeline copies, all copies of the splits' inputs are allocated first."""
        if self.copies == 1:
            return []
        return [(copy, split.backend) for split in splits for operand in split.inputs for copy in operand.copies[split.backend]]  # type: ignore[index]

    def _lifetimes(self, split: Split) -> "dict[int, list[T]]":
        """Nodes that do nothing but keep others alive, by the node they follow."""
        if split.backend == self.host or self.together:
            return {}
        card = self.cards[split.backend]
        if card.id.startswith("vulkan"):
            from brim.engines.llama_cpp.vulkan import REORDERED, reordered

            if self.version >= REORDERED:
                split.nodes = reordered(split.nodes)
        elif card.metal and self.version >= METAL_SORTED:
            from brim.engines.llama_cpp import metal

            split.nodes = metal.reordered(split.nodes, self.version)
        if self.version < LIFETIMES or not card.own:
            return {}
        until: dict[int, list[T]] = {}
        for tensors, node in keep_alive(split.nodes):
            kept = until.setdefault(id(node), [])
            for t in tensors:
                if not any(other is t for other in kept):
                    kept.append(t)
        made: dict[int, list[T]] = {}
        for key, kept in until.items():
            for start in range(0, len(kept), _MOST_OPERANDS):
                group = kept[start : start + _MOST_OPERANDS]
                first = group[0]
                made.setdefault(key, []).append(T("NONE", first.type, first.ne, tuple(group), first.view or first, first.nb))
        return made
