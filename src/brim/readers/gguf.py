"""Reads this header as if an enemy wrote it and returns model facts or one named rejection; it never loads a tensor.

Format: ggml/docs/gguf.md and ggml/src/gguf.cpp `gguf_init_from_file_ptr` (llama.cpp b11434).
Guarantees: never reads a byte of tensor data; memory stays a small multiple of the header's size; every count is checked against the bytes that are left before
anything is made for it. The vocabulary is stepped over, not decoded: only its length is kept, under `NAME.length`.
Covered: version 3, little-endian, one file. Not covered yet: version 2, big-endian, split files.
"""

from struct import Struct, unpack_from

from brim.errors import BadHeader, BadTensor, NotACheckpoint, TooLarge, Truncated, UnsupportedVersion
from brim.facts.dtypes import GGML_TYPES, ggml_tensor_bytes
from brim.facts.model import Checkpoint, Tensor
from brim.units import round_up
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.seams import Source

MAGIC = b"GGUF"
MAX_HEADER_BYTES = 512 << 20
MAX_STRING_BYTES = 1 << 20
MAX_DECODED_ITEMS = 4096  # per-layer arrays are short; longer arrays (the vocabulary) are stepped over
MAX_NAME_BYTES = 64  # GGML_MAX_NAME, ggml/include/ggml.h
MAX_DIMS = 4  # GGML_MAX_DIMS
_SMALLEST_PAIR = 8 + 4 + 1  # an empty key, its type, one byte of value
_SMALLEST_TENSOR = 8 + 4 + 4 + 8  # an empty name, no dimensions, type, offset

# GGUF value type → struct format of one scalar
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SIZES = {kind: Struct("<" + code).size for kind, code in _SCALARS.items()}
_STRING, _ARRAY = 8, 9
_FIRST_BLOCK = 256 << 10
_NEXT_BLOCK = 4 << 20


class _Header:
    """The bytes of the header, fetched block by block as the walk needs them."""

    def __init__(self, source: "Source") -> None:
        self.source = source
        self.data = bytearray(source.read(0, min(source.size, _FIRST_BLOCK)))
        self.at = 0

    def need(self, count: int, what: str) -> None:
        """Make sure that `count` more bytes are here. `Truncated` or `TooLarge` name what was being read."""
        end = self.at + count
        if end <= len(self.data):
            return
        if end > self.source.size:
            raise Truncated(f"{self.source.name}: the file ends at byte {self.source.size} inside {what}")
        if end > MAX_HEADER_BYTES:
            raise TooLarge(f"{self.source.name}: the header is longer than {MAX_HEADER_BYTES} bytes ({what})")
        while len(self.data) < end:
            start = len(self.data)
            self.data += self.source.read(start, min(_NEXT_BLOCK, self.source.size - start))

    def number(self, code: str, size: int, what: str) -> "Any":
        """One little-endian scalar."""
        self.need(size, what)
        value = unpack_from("<" + code, self.data, self.at)[0]
        self.at += size
        return value

    def text(self, what: str, limit: int = MAX_STRING_BYTES) -> str:
        """One length-prefixed UTF-8 string of at most `limit` bytes."""
        length = self.number("Q", 8, what)
        if length > limit:
            raise BadHeader(f"{self.source.name}: {what} claims a length of {length} bytes (at most {limit})")
        self.need(length, what)
        raw = bytes(self.data[self.at : self.at + length])
        self.at += length
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise BadHeader(f"{self.source.name}: {what} is not UTF-8") from None

    def left(self) -> int:
        """Bytes between the cursor and the end of the file."""
        return self.source.size - self.at

    def step_over_strings(self, count: int, what: str) -> None:
        """Move past `count` length-prefixed strings. The loop is the hot spot of a cold start: one struct call a string."""
        unpack = Struct("<Q").unpack_from
        done = 0
        while done < count:
            data, at, end = self.data, self.at, len(self.data) - 8
            while done < count and at <= end:
                after = at + 8 + unpack(data, at)[0]
                if after > end + 8:
                    break
                at = after
                done += 1
            self.at = at
            if done < count:
                self.need(8, what)
                length = unpack(self.data, self.at)[0]
                if length > MAX_STRING_BYTES:
                    raise BadHeader(f"{self.source.name}: string {done} of {what} claims a length of {length} bytes")
                self.need(8 + length, what)


def read(source: "Source") -> Checkpoint:
    """The checkpoint in a GGUF file. Raises one `BadCheckpoint` that names the file, the field and the fault."""
    header = _Header(source)
    if bytes(header.data[:4]) != MAGIC:
        raise NotACheckpoint(f"{source.name}: is no GGUF file (it starts with {bytes(header.data[:4])!r})")
    header.at = 4
    version = header.number("I", 4, "the version")
    if version != 3:
        raise UnsupportedVersion(f"{source.name}: GGUF version {version} is not read (3 is)")
    tensor_count = header.number("Q", 8, "the tensor count")
    pair_count = header.number("Q", 8, "the metadata count")
    _check_count(header, "metadata pairs", pair_count, _SMALLEST_PAIR)
    _check_count(header, "tensors", tensor_count, _SMALLEST_TENSOR)
    metadata = _metadata(header, pair_count)
    tensors = _tensors(header, tensor_count, metadata)
    return _checkpoint(source, metadata, tensors)


def _check_count(header: _Header, what: str, count: int, smallest: int) -> None:
    if count * smallest > header.left():
        raise BadHeader(f"{header.source.name}: claims {count} {what}, but only {header.left()} bytes are left in the file")


def _metadata(header: _Header, count: int) -> "dict[str, Any]":
    pairs: dict[str, Any] = {}
    for number in range(count):
        key = header.text(f"the key of metadata pair {number}", 1 << 16)
        if key in pairs:
            raise BadHeader(f"{header.source.name}: metadata key {key!r} stands twice")
        kind = header.number("I", 4, f"the type of {key!r}")
        if kind in _SCALARS:
            pairs[key] = header.number(_SCALARS[kind], _SIZES[kind], repr(key))
        elif kind == _STRING:
            pairs[key] = header.text(repr(key), MAX_STRING_BYTES * 16)
        elif kind == _ARRAY:
            _array(header, key, pairs)
        else:
            raise BadHeader(f"{header.source.name}: {key!r} has the unknown value type {kind}")
    return pairs


def _array(header: _Header, key: str, pairs: "dict[str, Any]") -> None:
    """One array: short ones of numbers are decoded, all others stepped over and only their length kept."""
    kind = header.number("I", 4, f"the item type of {key!r}")
    count = header.number("Q", 8, f"the length of {key!r}")
    if kind == _STRING:
        _check_count(header, f"strings in {key!r}", count, 8)
        header.step_over_strings(count, repr(key))
        pairs[key + ".length"] = count
        return
    if kind not in _SCALARS:
        raise BadHeader(f"{header.source.name}: {key!r} is an array of the unknown or nested type {kind}")
    size = _SIZES[kind] * count
    _check_count(header, f"items in {key!r}", count, _SIZES[kind])
    header.need(size, repr(key))
    if count <= MAX_DECODED_ITEMS:
        pairs[key] = list(unpack_from(f"<{count}{_SCALARS[kind]}", header.data, header.at))
    else:
        pairs[key + ".length"] = count
    header.at += size


def _tensors(header: _Header, count: int, metadata: "dict[str, Any]") -> tuple[Tensor, ...]:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
        raise BadHeader(f"{header.source.name}: general.alignment is {alignment!r}, not a power of two")
    rows = [_tensor_row(header, number) for number in range(count)]
    start = round_up(header.at, alignment)
    seen: set[str] = set()
    tensors = []
    for name, dims, code, offset in rows:
        if name in seen:
            raise BadTensor(f"{header.source.name}: tensor {name!r} stands twice")
        seen.add(name)
        tensors.append(_checked(header.source, name, dims, code, offset, start, alignment))
    return tuple(tensors)


def _tensor_row(header: _Header, number: int) -> tuple[str, tuple[int, ...], int, int]:
    name = header.text(f"the name of tensor {number}", MAX_NAME_BYTES)
    rank = header.number("I", 4, f"the rank of tensor {name!r}")
    if rank > MAX_DIMS:
        raise BadTensor(f"{header.source.name}: tensor {name!r} has {rank} dimensions (at most {MAX_DIMS})")
    header.need(8 * rank + 12, f"the row of tensor {name!r}")
    *dims, code, offset = unpack_from(f"<{rank}QIQ", header.data, header.at)
    header.at += 8 * rank + 12
    return name, tuple(dims), code, offset


def _checked(source: "Source", name: str, dims: tuple[int, ...], code: int, offset: int, start: int, alignment: int) -> Tensor:
    """The tensor, if its type is known, its rows are whole blocks, and its data lies inside the file."""
    if code not in GGML_TYPES:
        raise BadTensor(f"{source.name}: tensor {name!r} has the unknown ggml type {code}")
    dtype = GGML_TYPES[code][0]
    elements = 1
    for dim in dims:
        elements *= dim
        if dim == 0 or elements > 1 << 62:
            raise BadTensor(f"{source.name}: tensor {name!r} has impossible dimensions {list(dims)}")
    try:
        stored = ggml_tensor_bytes(dtype, dims)
    except ValueError as fault:
        raise BadTensor(f"{source.name}: tensor {name!r}: {fault}") from None
    if offset % alignment:
        raise BadTensor(f"{source.name}: tensor {name!r} starts at {offset}, no multiple of the alignment {alignment}")
    if start + offset + stored > source.size:
        raise Truncated(f"{source.name}: tensor {name!r} ends at byte {start + offset + stored}, but the file at {source.size}")
    return Tensor(name=name, dims=dims, dtype=dtype, offset=start + offset, stored_bytes=stored, elements=elements)


def _checkpoint(source: "Source", metadata: "dict[str, Any]", tensors: tuple[Tensor, ...]) -> Checkpoint:
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise BadHeader(f"{source.name}: general.architecture is missing or no string")
    name = metadata.get("general.name")
    return Checkpoint(
        form="gguf",
        source=source.name,
        name=name if isinstance(name, str) else source.name.rsplit("/", 1)[-1],
        architecture=architecture,
        metadata=metadata,
        tensors=tensors,
        file_bytes=source.size,
        shape=Missing(reason="not_supported", detail="layers are not derived from GGUF metadata yet"),
    )
