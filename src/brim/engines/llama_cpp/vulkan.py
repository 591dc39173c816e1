"""In which order Vulkan runs the nodes of one part of the graph: it draws independent ones together, which changes what is alive at the same time.

Source: ggml/src/ggml-vulkan/ggml-vulkan.cpp `ggml_vk_graph_optimize`, llama.cpp b9802 and b10204. Later builds know more patterns that they keep together; those are not here.
"""

from brim.engines.llama_cpp.tensor import VIEW_OPS, T

REORDERED = 6420  # the graph is sorted (PR 15850, 8 September 2025)
_AHEAD = 20
_NEAR = 15
# groups that stay as they are: experts' choice
_KEPT = (
    ("SOFT_MAX", "RESHAPE", "ARGSORT", "VIEW", "GET_ROWS", "RESHAPE", "SUM_ROWS", "CLAMP", "DIV", "RESHAPE"),
    ("UNARY", "RESHAPE", "ADD", "ARGSORT", "VIEW", "GET_ROWS", "RESHAPE", "SUM_ROWS", "CLAMP", "DIV", "RESHAPE"),
    ("SOFT_MAX", "RESHAPE", "ARGSORT", "VIEW", "GET_ROWS"),
    ("ARGSORT", "VIEW", "GET_ROWS", "RESHAPE", "SOFT_MAX", "RESHAPE"),
)
# a node and the one behind it that may come along although it needs it
_PAIRS = frozenset((
    ("RMS_NORM", "MUL"), ("MUL_MAT", "ADD"), ("MUL_MAT_ID", "ADD_ID"), ("MUL_MAT_ID", "MUL"), ("ADD", "ADD"), ("SSM_CONV", "ADD"), ("SSM_CONV", "UNARY"),
))  # fmt: skip
# (operation, what stands before it, what may be drawn behind it, whether its other operand must be ready)
_DRAWN = (("ADD_ID", "MUL_MAT_ID", "MUL", True), ("ADD", "MUL_MAT", "ADD", True), ("ADD", "SSM_CONV", "UNARY", False))


def _empty(node: T) -> bool:
    return node.op == "NONE" or node.op in VIEW_OPS


def _needs(node: T, other: T) -> bool:
    """Whether a node reads another, or both lie in the same memory."""
    return any(operand is other for operand in node.src) or (node.view or node) is (other.view or other)


class _Order:
    """The nodes on their way into a new order: `used` marks those that have a place."""

    def __init__(self, nodes: "list[T]") -> None:
        self.nodes, self.count = nodes, len(nodes)
        self.used = [False] * self.count
        self.placed: set[int] = set()
        self.made: list[T] = []
        self.first = 0

    def matches(self, pattern: tuple[str, ...], at: int) -> bool:
        """Whether a group of operations starts at `at`, none of them used."""
        if at + len(pattern) > self.count:
            return False
        return all(self.nodes[at + i].op == op and not self.used[at + i] for i, op in enumerate(pattern))

    def put(self, chosen: "list[int]") -> None:
        """Give the chosen nodes the next places."""
        for index in chosen:
            self.made.append(self.nodes[index])
            self.placed.add(id(self.nodes[index]))
            self.used[index] = True
        while self.first < self.count and self.used[self.first]:
            self.first += 1

    def keep(self) -> bool:
        """Place a group that stays as it is."""
        for pattern in _KEPT:
            if self.matches(pattern, self.first):
                self.put(list(range(self.first, self.first + len(pattern))))
                return True
        return False

    def step(self) -> None:
        """The next unused node, the real nodes near it that wait for nothing, and then the views of what was taken."""
        nodes, used, chosen = self.nodes, self.used, [self.first]
        end = min(self.first + _AHEAD, self.count)
        for j in range(self.first + 1, end):
            if not used[j] and not _empty(nodes[j]) and not any(self.matches(pattern, j) for pattern in _KEPT) and self._free(j, chosen):
                chosen.append(j)
                self._follow(j, chosen)
        if nodes[chosen[-1]].op != "ADD":
            for j in range(self.first + 1, end):
                if not used[j] and _empty(nodes[j]):
                    waits = (c for c in range(self.first, j) if not used[c] and c not in chosen and _needs(nodes[j], nodes[c]))
                    if next(waits, None) is None:
                        chosen.append(j)
        self.put(chosen)

    def _free(self, j: int, chosen: "list[int]") -> bool:
        """Whether node j waits for no unused node, but for the one before it in a pair."""
        nodes = self.nodes
        for c in range(self.first, j):
            if not self.used[c] and _needs(nodes[j], nodes[c]) and not (j == c + 1 and c == chosen[-1] and (nodes[c].op, nodes[j].op) in _PAIRS):
                return False
        return True

    def _follow(self, j: int, chosen: "list[int]") -> None:
        """Draw behind node j what a fused operation takes along."""
        nodes, turned = self.nodes, j
        before = nodes[j - 1].op
        if nodes[j].op == "MUL" and before == "RMS_NORM":
            for k in range(j + 1, min(j + _NEAR, self.count)):
                node = nodes[k]
                if node.op == "ROPE" and node.src[0] is nodes[j] and all(operand.op == "NONE" for operand in node.src[1:3]):
                    turned = k
                    chosen.append(k)
                    self.used[k] = True
                    break
        if nodes[turned].op == "ROPE":
            self._stored(turned, chosen)
        for op, behind, drawn, ready in _DRAWN:
            if nodes[j].op == op and before == behind:
                self._draw(j, drawn, chosen, ready=ready)

    def _stored(self, turned: int, chosen: "list[int]") -> None:
        """A rotation, the view of it and the rows that it writes."""
        nodes, view = self.nodes, -1
        for k in range(turned + 1, min(turned + 10, self.count)):
            if view == -1 and nodes[k].op == "VIEW" and nodes[k].src[0] is nodes[turned]:
                view = k
            elif view != -1 and nodes[k].op == "SET_ROWS" and nodes[k].src[0] is nodes[view]:
                for index in (view, k):
                    chosen.append(index)
                    self.used[index] = True
                return

    def _draw(self, j: int, op: str, chosen: "list[int]", *, ready: bool) -> None:
        nodes = self.nodes
        for k in range(j + 1, min(j + _NEAR, self.count)):
            node = nodes[k]
            if node.op == op and node.src[0] is nodes[j] and (not ready or node.src[1].op == "NONE" or id(node.src[1]) in self.placed):
                chosen.append(k)
                self.used[k] = True
                return


def reordered(nodes: "list[T]") -> "list[T]":
    """The nodes of one split as Vulkan runs them."""
    order = _Order(nodes)
    while order.first < order.count:
        if not order.keep():
            order.step()
    return order.made
