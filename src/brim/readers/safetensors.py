"""Reads this header as if an enemy wrote it and returns model facts or one named rejection; it never loads a tensor.

Format: 8 bytes of little-endian header length, a JSON object, then the data (safetensors/src/tensor.rs `Metadata::validate`, v0.8.0).
Guarantees: the data section is covered exactly, without overlap or hole, as the library demands; a header of N bytes takes a small multiple of N.
Covered: one file. Not covered: which files make a model (`readers/folder.py`), what packed tensors stand for (`packing.py`).
"""

from brim.errors import BadHeader, BadTensor, NotACheckpoint, TooLarge, Truncated
from brim.facts.dtypes import SAFETENSORS_BITS
from brim.facts.model import Tensor
from brim.readers.text import decode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.seams import Source

MAX_HEADER_BYTES = 100_000_000  # MAX_HEADER_SIZE, safetensors/src/tensor.rs
MAX_DIMS = 64
_MOST = (1 << 64) - 1


class Part:
    """What one safetensors file says: its tensors in the order of their data, and the strings of its `__metadata__`."""

    __slots__ = ("file_bytes", "metadata", "name", "tensors")

    def __init__(self, name: str, file_bytes: int, metadata: "dict[str, str]", tensors: "list[Tensor]") -> None:
        self.name, self.file_bytes, self.metadata, self.tensors = name, file_bytes, metadata, tensors


def looks_like(head: bytes, size: int) -> bool:
    """Whether the first bytes of a file can be safetensors: a length that fits the file, then a brace."""
    return len(head) >= 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") + 8 <= size


def scan(source: "Source", shard: int = 0) -> Part:
    """The directory of one file. Raises one `BadCheckpoint` that names the file, the field and the fault."""
    if source.size < 8:
        raise Truncated(f"{source.name}: is {source.size} bytes long, too short for the header length")
    length = int.from_bytes(source.read(0, 8), "little")
    if length > MAX_HEADER_BYTES:
        raise TooLarge(f"{source.name}: claims a header of {length} bytes (at most {MAX_HEADER_BYTES})")
    if length > source.size - 8:
        raise Truncated(f"{source.name}: claims a header of {length} bytes, but only {source.size - 8} follow")
    raw = source.read(8, length)
    if raw[:1] != b"{":
        raise NotACheckpoint(f"{source.name}: is no safetensors file (its header does not start with a brace)")
    document = decode_json(source.name, raw)
    if not isinstance(document, dict):
        raise BadHeader(f"{source.name}: the header is no object")
    metadata = _metadata(source.name, document.pop("__metadata__", None))
    tensors = [_tensor(source.name, name, row, 8 + length, shard) for name, row in document.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.stored_bytes))
    _check_cover(source, tensors, 8 + length)
    return Part(source.name, source.size, metadata, tensors)


def _metadata(name: str, given: "Any") -> "dict[str, str]":
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise BadHeader(f"{name}: __metadata__ must map words to words")
    return given


def _tensor(name: str, tensor: str, row: "Any", start: int, shard: int) -> Tensor:
    """One row of the directory, its place checked against its own dtype and shape."""
    if not isinstance(row, dict) or row.keys() != {"dtype", "shape", "data_offsets"}:
        raise BadTensor(f"{name}: tensor {tensor[:200]!r} must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    bits = SAFETENSORS_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise BadTensor(f"{name}: tensor {tensor[:200]!r} has the unknown dtype {str(dtype)[:40]!r}")
    if type(shape) is not list or len(shape) > MAX_DIMS:
        raise BadTensor(f"{name}: tensor {tensor[:200]!r} has no shape of at most {MAX_DIMS} dimensions")
    elements = 1
    for dim in shape:
        if type(dim) is not int or not 0 <= dim <= _MOST:
            raise BadTensor(f"{name}: tensor {tensor[:200]!r} has the impossible dimension {str(dim)[:40]}")
        elements *= dim
        if elements > _MOST:
            raise BadTensor(f"{name}: tensor {tensor[:200]!r} has more elements than 64 bits can count")
    if type(offsets) is not list or len(offsets) != 2 or type(offsets[0]) is not int or type(offsets[1]) is not int or not 0 <= offsets[0] <= offsets[1]:
        raise BadTensor(f"{name}: tensor {tensor[:200]!r} has no data_offsets of two rising whole numbers")
    if bits * elements % 8:
        raise BadTensor(f"{name}: tensor {tensor[:200]!r}: {elements} values of {bits} bits do not end on a whole byte")
    stored = bits * elements // 8
    if offsets[1] - offsets[0] != stored:
        raise BadTensor(f"{name}: tensor {tensor[:200]!r} is {stored} bytes by its shape, but {offsets[1] - offsets[0]} by its data_offsets")
    return Tensor(name=tensor, dims=tuple(reversed(shape)), dtype=dtype, offset=start + offsets[0], stored_bytes=stored, elements=elements, shard=shard)


def _check_cover(source: "Source", tensors: "list[Tensor]", start: int) -> None:
    """Every byte behind the header belongs to exactly one tensor."""
    end, before = start, ""
    for tensor in tensors:
        if tensor.offset < end:
            raise BadTensor(f"{source.name}: tensors {before[:200]!r} and {tensor.name[:200]!r} overlap at byte {tensor.offset}")
        if tensor.offset > end:
            raise BadTensor(f"{source.name}: {tensor.offset - end} bytes before tensor {tensor.name[:200]!r} belong to none")
        end, before = tensor.offset + tensor.stored_bytes, tensor.name
    if end > source.size:
        raise Truncated(f"{source.name}: its tensors end at byte {end}, but the file at {source.size}")
    if end < source.size:
        raise BadTensor(f"{source.name}: {source.size - end} bytes behind the last tensor belong to none")
