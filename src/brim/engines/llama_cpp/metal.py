"""In which order Metal runs the nodes of one part of the graph, and what its kernels add to a result: independent nodes are drawn together, which changes what is alive at once.

Source: ggml/src/ggml-metal/ggml-metal-common.cpp `ggml_graph_optimize`, `ggml_metal_graph_optimize_reorder`, ggml-metal.cpp `get_alloc_size`, ggml-metal-ops.cpp
`ggml_metal_op_*_extra_*`, as in llama-cpp-python 0.3.20 to 0.3.30 (b8708 and later; alike in all). Builds from about b10500 on pack other groups before they sort, and reserve
room for f16 copies of quantised caches: those groups are not here. Not covered: machines whose Metal is told not to sort (GGML_METAL_GRAPH_OPTIMIZE_DISABLE).
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.tensor import VIEW_OPS, T

_FAR = 7750  # how far it looks for nodes to draw: 64 nodes (in b8708); before, eight (in b7217; between the two the build is not known)
_MOST_FUSED = 16
_STARTS = frozenset(("ADD", "NORM", "RMS_NORM"))
_FOLLOW = frozenset(("ADD", "MUL", "NORM", "RMS_NORM"))
_SAFE = frozenset((
    "MUL_MAT", "MUL_MAT_ID", "ROPE", "NORM", "RMS_NORM", "GROUP_NORM", "L2_NORM", "SUM_ROWS", "SSM_CONV", "SSM_SCAN", "CLAMP", "TRI", "DIAG", "MUL", "ADD", "SUB", "DIV", "GLU",
    "SCALE", "UNARY", "GET_ROWS", "SET_ROWS", "SET", "CPY", "CONT", "REPEAT", "NONE",
)) | VIEW_OPS  # fmt: skip
_QUERIES, _KEYS, _GROUPS, _VECTOR_ROWS = 8, 64, 32, 20  # OP_FLASH_ATTN_EXT_NQPSG, _NCPSG, work groups, the batch below which the vector kernel runs


def kernel_room(t: T) -> int:
    """Bytes behind a result for its kernel."""
    if t.op == "MUL_MAT_ID":
        experts, tokens = t.src[0].ne[2], t.src[2].ne[1]
        return 4 * experts + 4 * experts * tokens
    if t.op == "FLASH_ATTN_EXT":
        return _attention(t)
    return 0


def _attention(t: T) -> int:
    """Padded keys, values and mask; which blocks of the mask are empty; partial sums of the vector kernel."""
    q, k, v = t.src[:3]
    mask = t.src[3] if len(t.src) > 3 else None
    rows = mask.ne[1] * mask.ne[2] * mask.ne[3] if mask is not None else 0
    size = _KEYS * (g.strides(k)[1] * k.ne[2] * k.ne[3] + g.strides(v)[1] * v.ne[2] * v.ne[3] + 2 * rows)
    if mask is not None:
        vector = q.ne[1] < _VECTOR_ROWS and q.ne[0] % 32 == 0
        per_query, per_key = (1, 32) if vector else (_QUERIES, _KEYS)
        blocks = -(-q.ne[1] // per_query) * -(-mask.ne[0] // per_key) * mask.ne[2] * mask.ne[3]
        size += -(-blocks // 32) * 32
    return size + 4 * min(q.ne[1], 32) * q.ne[2] * q.ne[3] * _GROUPS * (v.ne[0] + 2)


def _root(t: T) -> int:
    return id(t.view or t)


class _Ranges:
    """What a set of nodes reads and writes, by the tensor that owns the memory."""

    __slots__ = ("read", "written")

    def __init__(self) -> None:
        self.read: set[int] = set()
        self.written: set[int] = set()

    def add(self, reads: "tuple[int, ...]", writes: int) -> None:
        self.read.update(reads)
        self.written.add(writes)

    def allows(self, reads: "tuple[int, ...]", writes: int) -> bool:
        """Whether a node may run beside the set."""
        return self.written.isdisjoint(reads) and writes not in self.written and writes not in self.read


def _packed(nodes: "list[T]") -> "list[tuple[list[T], tuple[int, ...], int]]":
    """(nodes that stay together, what they read, what they write) in the graph's order."""
    made, at, count = [], 0, len(nodes)
    while at < count:
        group = [nodes[at]]
        if nodes[at].op in _STARTS:
            end = at + 1
            while end < count and end < at + _MOST_FUSED and nodes[end].op in _FOLLOW:
                end += 1
            while end - at > 1 and not _fusable(nodes[at:end]):
                end -= 1
            group = nodes[at:end]
        made.append((group, tuple(_root(operand) for node in group for operand in node.src), _root(group[-1])))
        at += len(group)
    return made


def _fusable(group: "list[T]") -> bool:
    """`ggml_can_fuse`: each but the last is used once, by the next, which has its shape."""
    for at in range(len(group) - 1):
        node, after = group[at], group[at + 1]
        if node.output or node.uses != 1 or node.view is not None or after.ne != node.ne or not any(operand is node for operand in after.src[:2]):
            return False
    return True


def reordered(nodes: "list[T]", build: int) -> "list[T]":
    """The nodes of one split as Metal runs them."""
    ahead = 64 if build >= _FAR else 8
    packed = _packed(nodes)
    count = len(packed)
    used = [False] * count
    made: list[T] = []
    beside = _Ranges()
    for first, (group, reads, writes) in enumerate(packed):
        if used[first]:
            continue
        if not _empty(group[0]) and not beside.allows(reads, writes):
            _draw(packed, used, range(first, min(first + ahead, count)), beside, made)
            beside = _Ranges()
        beside.add(reads, writes)
        made += group
    return made


def _draw(packed: "list[tuple[list[T], tuple[int, ...], int]]", used: "list[bool]", reach: range, beside: _Ranges, made: "list[T]") -> None:
    """Before a barrier: later nodes that may run beside those at work, and that need nothing of what they overtake."""
    passed = _Ranges()
    passed.add(*packed[reach.start][1:])
    for later in reach[1:]:
        if used[later]:
            continue
        group, reads, writes = packed[later]
        if group[0].op not in _SAFE:
            return
        if (_empty(group[0]) or beside.allows(reads, writes)) and passed.allows(reads, writes):
            beside.add(reads, writes)
            made += group
            used[later] = True
        else:
            passed.add(reads, writes)


def _empty(node: T) -> bool:
    return node.op == "NONE" or node.op in VIEW_OPS
