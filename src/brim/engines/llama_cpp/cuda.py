"""What llama.cpp's CUDA backend answers the scheduler: which operations it takes, and how many bytes a result needs.

Source: llama.cpp b11434, ggml/src/ggml-cuda/ggml-cuda.cu (`device_supports_op`, `buffer_type_get_alloc_size`),
fattn.cu (`ggml_cuda_get_best_fattn_kernel`), fattn-common.cuh (`ggml_cuda_flash_attn_ext_get_f16_extra_data`). ROCm and MUSA builds share these files.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.context import F16_COPY, METAL_OFFLOAD, METAL_ROOM
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.tensor import T, is_contiguous, is_contiguous_rows, nbytes
from brim.facts.dtypes import GGML_BLOCKS, ggml_row_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_FLASH_TYPES = frozenset(("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"))
_EQUAL_HEADS = frozenset((40, 64, 72, 80, 96, 112, 128, 256))
_NO_MATRIX = frozenset(("TQ1_0", "TQ2_0", "Q8_1", "I8", "I16", "I32", "I64", "F64"))
_ROWS = frozenset(("F16", "F32", "BF16", "I32", "Q1_0", "Q2_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
                   "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "IQ4_XS"))  # fmt: skip
_STORED = frozenset(("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL"))
_FLOATS = frozenset(("F32", "F16", "BF16"))
_OTHERS = ("vulkan", "metal", "sycl", "xpu", "opencl", "rpc", "cann")  # backends of their own, taken to support what CUDA does


class Card:
    """One CUDA device. `capability` is compute capability × 100; `build` the engine's."""

    __slots__ = ("_offloads", "alignment", "build", "capability", "id", "metal", "own")

    def __init__(self, device: str, capability: int, build: int) -> None:
        self.id = device
        self.capability = capability
        self.build = build
        self.own = not device.startswith((*_OTHERS, "cpu"))
        self.metal = device.startswith("metal")
        self.alignment = 32 if device.startswith("cpu") else 128  # a CPU device may stand for a card, as it does in the oracle of --split-mode tensor
        self._offloads = not device.startswith(("rpc", "opencl"))

    def takes(self, t: T) -> bool:
        """`ggml_backend_cuda_device_supports_op`, operands on another card included."""
        for operand in t.src:
            home = operand.place  # a view has no buffer of its own yet, so the engine does not see where it lies
            if home is not None and home not in ("cpu", self.id):
                return False
        if self.alignment == 32:
            return True
        check = _CHECKS.get(t.op)
        return True if check is None else check(self, t)

    def offloads(self, t: T) -> bool:
        """`offload_op`: whether an operation whose weights are on the host may come to the card. Metal takes products alone, and took none before."""
        if self.metal:
            return self.build >= METAL_OFFLOAD and t.op in ("MUL_MAT", "MUL_MAT_ID")
        return self._offloads

    def size(self, t: T) -> int:
        """`get_alloc_size`: the bytes of a result, with its partial row and the f16 copies of a quantised cache."""
        if self.metal:
            if self.build < METAL_ROOM or t.op not in ("MUL_MAT_ID", "FLASH_ATTN_EXT"):
                return nbytes(t)
            from brim.engines.llama_cpp.metal import kernel_room

            return nbytes(t) + kernel_room(t)
        size = self._flash_size(t) if t.op == "FLASH_ATTN_EXT" else nbytes(t)
        if self.own and GGML_BLOCKS[t.type][0] > 1 and t.ne[0] % 512:
            size += ggml_row_bytes(t.type, 512 - t.ne[0] % 512)
        return size

    def _flash_size(self, t: T) -> int:
        size = nbytes(t)
        kernel = flash_kernel(self, t)
        if kernel == "none" or self.build < F16_COPY or not self.own:
            return size
        k, v = t.src[1], t.src[2]
        fallback = kernel == "vector" and (k.type != v.type or k.type not in ("F16", "Q4_0", "Q8_0", "BF16"))
        convert = kernel in ("tile", "mma") or fallback
        if k.type != "F16" and (convert or k.type == "F32"):
            size = -(-size // 128) * 128 + 2 * g.elements(k)
        if v.type != "F16" and (convert or v.type == "F32"):
            shared = v.view is not None and (v.view is k or (v.view is k.view and v.offset == k.offset))
            if not shared:
                size = -(-size // 128) * 128 + 2 * g.elements(v)
        return size


def flash_kernel(card: Card, t: T) -> str:
    """Which flash-attention kernel a shape gets: none, vector, tile or mma (`ggml_cuda_get_best_fattn_kernel`; NVIDIA only)."""
    q, k, v = t.src[0], t.src[1], t.src[2]
    mask = t.src[3] if len(t.src) > 3 else None
    if not k.ne[2]:
        raise Wanting("attention.head_count_kv is 0 in a layer that attends")
    ratio = q.ne[2] // k.ne[2]
    grouped = ratio >= 2 and mask is not None and t.detail != "alibi" and k.ne[1] % 256 == 0
    for operand in (q, k, v, mask):
        if operand is not None and GGML_BLOCKS[operand.type][0] == 1 and any(step % 16 for step in g.strides(operand)[1:]):
            grouped = False
    if not _head_supported(k.ne[0], v.ne[0], ratio, grouped=grouped):
        return "none"
    if k.type not in _FLASH_TYPES or v.type not in _FLASH_TYPES or (mask is not None and mask.ne[2] != 1):
        return "none"
    width, columns = q.ne[0], q.ne[1]
    vector = width <= 256 and width % 64 == 0 and width != 192 and k.ne[1] % 256 == 0
    plain = GGML_BLOCKS[k.type][0] == 1 and GGML_BLOCKS[v.type][0] == 1
    if card.capability >= 750 and width not in (40, 72):
        return _turing_kernel(card, t, vector=vector, plain=plain, grouped=grouped)
    if card.capability >= 700 and width not in (40, 72):
        return _volta_kernel(columns, ratio, width, vector=vector)
    if vector and ((plain and columns == 1 and not grouped) or (not plain and columns <= 2)):
        return "vector"
    return "tile"


def _head_supported(key: int, value: int, ratio: int, *, grouped: bool) -> bool:
    if key in _EQUAL_HEADS:
        return value == key
    if key == 192:
        return value == 128 and grouped and ratio % 8 == 0
    if key == 320:
        return value == 256 and grouped and ratio % 32 == 0
    if key == 512:
        return value == key and grouped
    return key == 576 and value == 512 and grouped


def _turing_kernel(card: Card, t: T, *, vector: bool, plain: bool, grouped: bool) -> str:
    q, k = t.src[0], t.src[1]
    width, columns, streams, cells, ratio = q.ne[0], q.ne[1], q.ne[3], k.ne[1], q.ne[2] // k.ne[2]
    if vector:
        ada = card.capability >= 890
        if plain:
            if ada and columns == 1 and streams == 1 and not (ratio > 4 and (width >= 256 or cells >= 8192)):
                return "vector"
        elif columns <= (2 if ada else 1):
            return "vector"
        if not grouped and columns == 1:
            return "vector"
    return "mma"


def _volta_kernel(columns: int, ratio: int, width: int, *, vector: bool) -> str:
    most, effective = (32 if width == 320 else 16 if width in (576, 192) else 8), 1
    while ratio % (2 * effective) == 0 and effective < most:
        effective *= 2
    if vector and columns * effective <= 2:
        return "vector"
    return "tile" if columns * effective <= 16 else "mma"


# ---- which operations are taken; an operation without a row is taken


def _packed(t: T) -> bool:
    """Whether Vulkan can multiply by a quantised tensor: its matrices are contiguous (ggml-vulkan.cpp `ggml_vk_dim01_contiguous`, alike from b4435 to b11434)."""
    block, size = GGML_BLOCKS[t.type]
    nb = g.strides(t)
    return nb[0] == size and nb[1] == size * t.ne[0] // block and (t.ne[3] == 1 or nb[3] == nb[2] * t.ne[2])


def _mul_mat(card: Card, t: T) -> bool:
    a, b = t.src[0], t.src[1]
    if card.id.startswith("vulkan") and any(one.type not in _FLOATS and not _packed(one) for one in (a, b)):
        return False
    if not is_contiguous_rows(a) or not is_contiguous_rows(b):
        return False
    if b.type == "F16" and a.type != "F16":
        return False
    return a.type not in _NO_MATRIX


def _get_rows(_card: Card, t: T) -> bool:
    a = t.src[0]
    return a.type in _ROWS or (a.type in ("IQ4_NL", "MXFP4") and a.ne[0] % 256 == 0)


def _set_rows(_card: Card, t: T) -> bool:
    rows, ids = t.src[0], t.src[1]
    return ((t.type in _STORED and rows.type == "F32") or (t.type == "F16" and rows.type == "F16")) and ids.type in ("I64", "I32")


def _cpy(_card: Card, t: T) -> bool:
    a, b = t.src[0].type, t.src[1].type
    return (a in _FLOATS and b in _FLOATS) or a == b or "F32" in (a, b)


def _scan(_card: Card, t: T) -> bool:
    state, a, b = t.src[0], t.src[3], t.src[4]
    if a.ne[0] == 1:
        return state.ne[0] in (96, 128, 256) and state.ne[1] % 16 == 0
    return state.ne[0] == 16 and state.ne[1] == 1 and state.ne[2] % 128 == 0 and b.ne[1] == 1


def _lightning(_card: Card, t: T) -> bool:
    q, k = t.src[0], t.src[1]
    if q.ne[0] != 128 or q.ne[1] not in (64, 32, 4) or k.type not in _FLASH_TYPES:
        return False
    return not any(step % 16 for operand in (q, k) if GGML_BLOCKS[operand.type][0] == 1 for step in g.strides(operand)[1:])


_CHECKS: "dict[str, Callable[[Card, T], bool]]" = {
    "UNARY": lambda _card, t: is_contiguous(t.src[0]),
    "GLU": lambda _card, t: is_contiguous(t.src[0], 1),
    "MUL_MAT": _mul_mat,
    "MUL_MAT_ID": _mul_mat,
    "GET_ROWS": _get_rows,
    "SET_ROWS": _set_rows,
    "CPY": _cpy,
    "NORM": lambda _card, t: is_contiguous_rows(t.src[0]),
    "RMS_NORM": lambda _card, t: is_contiguous_rows(t.src[0]),
    "L2_NORM": lambda _card, t: is_contiguous_rows(t.src[0]),
    "GROUP_NORM": lambda _card, t: is_contiguous(t.src[0]),
    "SSM_SCAN": _scan,
    "SSM_CONV": lambda _card, t: t.src[0].ne[1] % 128 == 0,
    "ROPE": lambda _card, t: is_contiguous_rows(t.src[0]) and is_contiguous(t.src[0], 2),
    "LIGHTNING_INDEXER": _lightning,
    "SUM_ROWS": lambda _card, t: t.type == "F32" and is_contiguous_rows(t.src[0]),
    "MEAN": lambda _card, t: t.type == "F32" and is_contiguous_rows(t.src[0]),
    "FLASH_ATTN_EXT": lambda card, t: flash_kernel(card, t) != "none",
}


def batch_of(t: T) -> int:
    """How many rows an operation works on, for the choice to run it on the card though its weight is on the host (`get_op_batch_size`)."""
    if t.op == "GET_ROWS":
        return 0
    if t.op == "MUL_MAT":
        return t.ne[1]
    if t.op in ("MUL_MAT_ID", "ROPE"):
        return t.ne[2]
    return t.ne[1] * t.ne[2] * t.ne[3]
