"""The tensors of a replayed graph: shapes, strides, views and operands, never data; it knows nothing of models or devices.

A light mirror of what ggml's constructors decide (ggml/src/ggml.c, llama.cpp b11434): result shape, result type, what is a view of what. Strides are kept as
`None` while a tensor is contiguous. Not covered: values, gradients.
"""

from brim.facts.dtypes import GGML_BLOCKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

Shape4 = tuple[int, int, int, int]

# In-place capable operations: ggml-alloc.c `ggml_op_can_inplace`.
INPLACE = frozenset(
    ("FILL", "SCALE", "ADD", "ADD_ID", "ADD1", "SUB", "MUL", "DIV", "SQR", "SQRT", "LOG", "UNARY", "ROPE", "ROPE_BACK", "RMS_NORM", "CLAMP", "SOFT_MAX")
)
VIEW_OPS = frozenset(("VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"))

WEIGHTS, STATE = 1, 2


class T:
    """One tensor. `place` is the buffer that already holds it (weights, caches) or None; `usage` is WEIGHTS or STATE there.

    `home` is the device of the layer that a fused operation belongs to. `backend` is the scheduler's choice (−1: none yet); `children`, `views`, `owned`, `buffer`, `address`, `size`, `slot` belong to the allocator's replay.
    """

    __slots__ = (
        "address",
        "backend",
        "buffer",
        "children",
        "copies",
        "detail",
        "home",
        "input",
        "nb",
        "ne",
        "offset",
        "op",
        "output",
        "owned",
        "place",
        "seen",
        "size",
        "slot",
        "src",
        "type",
        "usage",
        "uses",
        "view",
        "views",
    )  # fmt: skip

    def __init__(
        self, op: str, dtype: str, ne: Shape4, src: "tuple[T, ...]" = (), view: "T | None" = None, nb: "Shape4 | None" = None, offset: int = 0
    ) -> None:
        self.op = op
        self.type = dtype
        self.ne = ne
        self.nb = nb
        self.src = src
        self.view = view
        self.offset = offset
        self.input = False
        self.output = False
        self.place: str | None = None
        self.usage = 0
        self.detail = ""
        self.seen = False
        self.uses = 0
        self.backend = -1
        self.children = 0
        self.views = 0
        self.owned = False
        self.buffer = -1
        self.address = 0
        self.size = 0
        self.slot = 0
        self.copies: dict[int, list[T]] | None = None
        self.home = ""

    def __repr__(self) -> str:
        return f"{self.op}{list(self.ne)}"


def strides(t: T) -> Shape4:
    """Byte strides, as ggml's nb."""
    if t.nb is not None:
        return t.nb
    block, size = GGML_BLOCKS[t.type]
    ne = t.ne
    row = ne[0] // block * size
    return (size, row, row * ne[1], row * ne[1] * ne[2])


def nbytes(t: T) -> int:
    """`ggml_nbytes`: the span from the first to the last byte, strides included."""
    block, size = GGML_BLOCKS[t.type]
    ne = t.ne
    if t.nb is None:
        return ne[0] // block * size * ne[1] * ne[2] * ne[3]
    if 0 in ne:
        return 0
    nb = t.nb
    first = size + (ne[0] - 1) * nb[0] if block == 1 else ne[0] * nb[0] // block
    return first + (ne[1] - 1) * nb[1] + (ne[2] - 1) * nb[2] + (ne[3] - 1) * nb[3]


def elements(t: T) -> int:
    """Number of values."""
    ne = t.ne
    return ne[0] * ne[1] * ne[2] * ne[3]


def is_contiguous(t: T, keep: int = 0) -> bool:
    """`ggml_is_contiguous_n`: dimensions above `keep` are packed (dimensions of length one do not count)."""
    if t.nb is None:
        return True
    block, size = GGML_BLOCKS[t.type]
    ne, nb = t.ne, t.nb
    expected = size
    if ne[0] != block and nb[0] != expected:
        return False
    expected = expected * ne[0] // block
    for axis in (1, 2, 3):
        if axis > keep:
            if ne[axis] != 1 and nb[axis] != expected:
                return False
            expected *= ne[axis]
        else:
            expected = ne[axis] * nb[axis]
    return True


def is_contiguous_rows(t: T) -> bool:
    """`ggml_is_contiguous_rows`: each row is packed."""
    block, size = GGML_BLOCKS[t.type]
    return t.nb is None or t.ne[0] == block or t.nb[0] == size


def same_layout(a: T, b: T) -> bool:
    """`ggml_are_same_layout`: type, shape and strides."""
    if a.type != b.type or a.ne != b.ne:
        return False
    if a.nb is None and b.nb is None:
        return True
    return strides(a) == strides(b)


def leaf(dtype: str, *dims: int) -> T:
    """A tensor without an operation."""
    return T("NONE", dtype, (*dims, *(1,) * (4 - len(dims))))  # type: ignore[arg-type]


def given(dtype: str, *dims: int) -> T:
    """A graph input: filled by the host before the graph runs."""
    made = leaf(dtype, *dims)
    made.input = True
    return made


def stored(dtype: str, dims: "Sequence[int]", place: str, usage: int) -> T:
    """A weight or a cache tensor that lies in the buffer `place`."""
    made = leaf(dtype, *dims)
    made.place = place
    made.usage = usage
    return made


# ---- operations whose result has the shape of the first operand


def same(op: str, a: T, *others: T, detail: str = "") -> T:
    """A result like `a` (contiguous), e.g. ADD, MUL, SCALE, ROPE, RMS_NORM, SOFT_MAX, UNARY."""
    made = T(op, a.type, a.ne, (a, *others))
    made.detail = detail
    return made


def add(a: T, b: T) -> T:
    """a + b."""
    return T("ADD", a.type, a.ne, (a, b))


def mul(a: T, b: T) -> T:
    """a × b, b broadcast."""
    return T("MUL", a.type, a.ne, (a, b))


def sub(a: T, b: T) -> T:
    """a − b."""
    return T("SUB", a.type, a.ne, (a, b))


def div(a: T, b: T) -> T:
    """a ÷ b."""
    return T("DIV", a.type, a.ne, (a, b))


def scale(a: T) -> T:
    """a × constant."""
    return T("SCALE", a.type, a.ne, (a,))


def unary(a: T, kind: str) -> T:
    """An element-wise function."""
    made = T("UNARY", a.type, a.ne, (a,))
    made.detail = kind
    return made


def glu(gate: T, up: T, kind: str = "swiglu") -> T:
    """A gated unit of two tensors (`ggml_*_split`): never in place."""
    made = T("GLU", gate.type, gate.ne, (gate, up))
    made.detail = kind
    return made


def glu_halves(a: T, kind: str = "swiglu") -> T:
    """A gated unit over the two halves of one tensor."""
    made = T("GLU", a.type, (a.ne[0] // 2, *a.ne[1:]), (a,))
    made.detail = kind
    return made


def rope(a: T, positions: T, factors: T | None = None) -> T:
    """Rotary embedding."""
    return T("ROPE", a.type, a.ne, (a, positions) if factors is None else (a, positions, factors))


def soft_max(a: T, mask: T | None = None, sinks: T | None = None) -> T:
    """Soft-max over rows."""
    made = T("SOFT_MAX", a.type, a.ne, tuple(t for t in (a, mask, sinks) if t is not None))
    made.detail = "plain" if mask is None and sinks is None else "masked"
    return made


# ---- operations with a shape of their own


def mul_mat(a: T, b: T) -> T:
    """`ggml_mul_mat`: {k, n} × {k, m} → {n, m} in f32."""
    return T("MUL_MAT", "F32", (a.ne[1], b.ne[1], b.ne[2], b.ne[3]), (a, b))


def mul_mat_id(experts: T, b: T, ids: T) -> T:
    """`ggml_mul_mat_id`: the chosen experts of each token."""
    return T("MUL_MAT_ID", "F32", (experts.ne[1], ids.ne[0], b.ne[2], 1), (experts, b, ids))


def get_rows(a: T, ids: T) -> T:
    """`ggml_get_rows`: rows by index; i32 stays i32, all else becomes f32."""
    return T("GET_ROWS", "I32" if a.type == "I32" else "F32", (a.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]), (a, ids))


def set_rows(a: T, rows: T, ids: T) -> T:
    """`ggml_set_rows`: writes into `a`, so the result is a view of it; operands in ggml's order (rows, ids, a)."""
    return T("SET_ROWS", a.type, a.ne, (rows, ids, a), a.view or a, strides(a) if a.nb is not None else None, a.offset)


def cpy(a: T, b: T) -> T:
    """`ggml_cpy`: writes into `b`, so the result is a view of it."""
    return T("CPY", b.type, b.ne, (a, b), b.view or b, b.nb, b.offset)


def cast(a: T, dtype: str) -> T:
    """A copy in another type."""
    made = T("CPY", dtype, a.ne, (a,))
    made.src = (a, made)
    return made


def cont(a: T, *dims: int) -> T:
    """A packed copy, with another shape where `dims` are given."""
    return T("CONT", a.type, (*dims, *(1,) * (4 - len(dims))) if dims else a.ne, (a,))  # type: ignore[arg-type]


def dup(a: T) -> T:
    """A copy."""
    return T("DUP", a.type, a.ne, (a,))


def reshape(a: T, *dims: int) -> T:
    """The same bytes under another shape; `a` is contiguous."""
    return T("RESHAPE", a.type, (*dims, *(1,) * (4 - len(dims))), (a,), a.view or a, None, a.offset)  # type: ignore[arg-type]


def view(a: T, dims: "Sequence[int]", steps: "Sequence[int]" = (), offset: int = 0) -> T:
    """`ggml_view_nd`: `steps` are nb1…; what is not given is packed."""
    ne = (*dims, *(1,) * (4 - len(dims)))
    block, size = GGML_BLOCKS[a.type]
    nb = [size, ne[0] // block * size, 0, 0]
    for axis in (1, 2, 3):
        nb[axis] = steps[axis - 1] if axis - 1 < len(steps) else nb[axis - 1] * ne[axis - 1] if axis > 1 else nb[1]
    return T("VIEW", a.type, ne, (a,), a.view or a, (nb[0], nb[1], nb[2], nb[3]), a.offset + offset)  # type: ignore[arg-type]


def permute(a: T, *axes: int) -> T:
    """`ggml_permute`: axis i of `a` becomes axis `axes[i]`."""
    nb = strides(a)
    ne2, nb2 = [0] * 4, [0] * 4
    for axis in range(4):
        ne2[axes[axis]] = a.ne[axis]
        nb2[axes[axis]] = nb[axis]
    return T("PERMUTE", a.type, tuple(ne2), (a,), a.view or a, tuple(nb2), a.offset)  # type: ignore[arg-type]


def transpose(a: T) -> T:
    """The first two axes swapped."""
    nb, ne = strides(a), a.ne
    return T("TRANSPOSE", a.type, (ne[1], ne[0], ne[2], ne[3]), (a,), a.view or a, (nb[1], nb[0], nb[2], nb[3]), a.offset)


def scale_inplace(a: T) -> T:
    """A scale that writes into its operand."""
    return T("SCALE", a.type, a.ne, (a,), a.view or a, a.nb, a.offset)


def add_inplace(a: T, b: T) -> T:
    """a + b, written into `a`."""
    return T("ADD", a.type, a.ne, (a, b), a.view or a, a.nb, a.offset)


def concat(a: T, b: T, axis: int) -> T:
    """Two tensors joined along an axis."""
    ne = list(a.ne)
    ne[axis] += b.ne[axis]
    return T("CONCAT", a.type, tuple(ne), (a, b))  # type: ignore[arg-type]


def repeat(a: T, *dims: int) -> T:
    """`ggml_repeat_4d`."""
    return T("REPEAT", a.type, (*dims, *(1,) * (4 - len(dims))), (a,))  # type: ignore[arg-type]


def sum_rows(a: T, op: str = "SUM_ROWS") -> T:
    """Row sums (or MEAN)."""
    return T(op, a.type, (1, *a.ne[1:]), (a,))


def argsort(a: T) -> T:
    """Indices that sort each row."""
    return T("ARGSORT", "I32", a.ne, (a,))


def top_k(a: T, count: int) -> T:
    """`ggml_argsort_top_k`: a view of the first `count` indices of a full sort."""
    order = argsort(a)
    nb = strides(order)
    return view(order, (count, *a.ne[1:]), nb[1:])


def best(a: T, count: int) -> T:
    """`ggml_top_k`: the indices of the largest values of each row, an operation of its own."""
    return T("TOP_K", "I32", (count, *a.ne[1:]), (a,))


def pad(a: T, *more: int) -> T:
    """Zero padding at the end of each axis."""
    return T("PAD", a.type, tuple(n + m for n, m in zip(a.ne, (*more, 0, 0, 0), strict=False)), (a,))  # type: ignore[arg-type]


class Graph:
    """A compute graph in ggml's order: `expand` visits operands left to right and appends what is new (`ggml_visit_parents_graph`)."""

    __slots__ = ("leafs", "nodes")

    def __init__(self) -> None:
        self.nodes: list[T] = []
        self.leafs: list[T] = []

    def expand(self, t: T) -> None:
        """Append `t` and everything it needs that is not in the graph yet."""
        if t.seen:
            return
        t.seen = True
        for operand in t.src:
            if not operand.seen:
                self.expand(operand)
            operand.uses += 1
        if t.op == "NONE":
            self.leafs.append(t)
        else:
            self.nodes.append(t)
