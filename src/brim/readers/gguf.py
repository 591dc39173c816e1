"""Reads this header as if an enemy wrote it and returns model facts or one named rejection; it never loads a tensor.

Format: ggml/docs/gguf.md and ggml/src/gguf.cpp `gguf_init_from_reader` (llama.cpp b11434); splits: src/llama.cpp `llama_split_path`.
Guarantees: never reads a byte of tensor data; holds at most one block of the header at a time, and makes nothing larger than what it has read; every count is
checked against the bytes that are left before anything is made for it. The vocabulary is stepped over, not decoded: only its length is kept, under `NAME.length`.
Covered: versions 2 and 3, both byte orders, custom alignment, every type in `facts/dtypes.py`, splits from any shard, LoRA adapters, projectors, vocabulary-only files.
Not covered: version 1 (32-bit counts; last written in August 2023), nested arrays (llama.cpp refuses them too).
"""

from itertools import repeat
from struct import Struct, error, unpack_from

from brim.errors import BadHeader, BadShards, BadTensor, NotACheckpoint, TooLarge, Truncated, UnsupportedVersion
from brim.facts.dtypes import GGML_TYPES
from brim.facts.model import Checkpoint, Tensor
from brim.units import round_up
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from brim.seams import Source

MAGIC = b"GGUF"
MAX_HEADER_BYTES = 1 << 30
MAX_STRING_BYTES = 1 << 30  # GGUF_MAX_STRING_LENGTH, ggml/src/gguf.cpp
MAX_KEY_BYTES = 1 << 16
MAX_DECODED_BYTES = 64 << 10  # longer strings (chat templates, licences) are stepped over
MAX_DECODED_ITEMS = 4096  # per-layer arrays are short; longer arrays (the vocabulary) are stepped over
MAX_DECODED_STRINGS = 64
MAX_ITEMS = 1_000_000  # of all decoded lists together
MAX_NAME_BYTES = 255
LLAMA_CPP_NAME_BYTES = 63  # GGML_MAX_NAME less its NUL, ggml/include/ggml.h
MAX_DIMS = 4  # GGML_MAX_DIMS
MAX_SHARDS = 10_000
MAX_TENSORS = 100_000  # the largest models with experts apart have some 60 000
MAX_PAIRS = 100_000
MAX_TEXT_BYTES = 16 << 20  # all decoded strings together; one odd character makes four bytes in memory of each
WORTH_KEEPING = 10_000  # a list of so many strings takes half a millisecond to walk
_SMALLEST_PAIR = 8 + 4 + 1  # an empty key, its type, one byte of value
_SMALLEST_TENSOR = 8 + 4 + 4 + 8  # an empty name, no dimensions, type, offset

# GGUF value type → struct format of one scalar
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_BLOCK_BYTES = 256 << 10
_SHORT = 64  # bytes; longer strings of a vocabulary are few
_RUN = 32  # strings that are stepped over one by one where two by two does not go on


class _Header:
    """A window of one block that slides over the header; `base` is where it starts in the file and `at` the cursor inside it."""

    def __init__(self, source: "Source") -> None:
        self.source = source
        self.base = 0
        self.at = 0
        self.data = source.read(0, min(source.size, _BLOCK_BYTES))
        self.order = "<"
        self.known: Mapping[int, int] = {}
        self.ends: dict[int, int] = {}
        self.decoded = 0
        self.items = 0

    def where(self) -> int:
        """The cursor as an offset in the file."""
        return self.base + self.at

    def left(self) -> int:
        """Bytes between the cursor and the end of the file."""
        return self.source.size - self.base - self.at

    def need(self, count: int, what: str) -> None:
        """Make sure that `count` bytes from the cursor on are in the window. `Truncated` or `TooLarge` name what was being read."""
        if self.at + count <= len(self.data):
            return
        self.pass_over(0, what)
        if count > self.left():
            raise Truncated(f"{self.source.name}: the file ends at byte {self.source.size} inside {what}")
        self.base, self.at = self.base + self.at, 0
        self.data = self.source.read(self.base, min(max(count, _BLOCK_BYTES), self.source.size - self.base))

    def pass_over(self, count: int, what: str) -> None:
        """Move the cursor on without reading what lies between."""
        end = self.base + self.at + count
        if end > self.source.size:
            raise Truncated(f"{self.source.name}: the file ends at byte {self.source.size} inside {what}")
        if end > MAX_HEADER_BYTES:
            raise TooLarge(f"{self.source.name}: the header is longer than {MAX_HEADER_BYTES} bytes ({what})")
        self.at += count

    def number(self, code: str, size: int, what: str) -> "Any":
        """One scalar in the file's byte order."""
        self.need(size, what)
        value = unpack_from(self.order + code, self.data, self.at)[0]
        self.at += size
        return value

    def text(self, what: str, limit: int) -> str:
        """One length-prefixed UTF-8 string of at most `limit` bytes."""
        length = self.number("Q", 8, what)
        if length > limit:
            raise BadHeader(f"{self.source.name}: {what} claims a length of {length} bytes (at most {limit})")
        self.need(length, what)
        self.decoded += length
        if self.decoded > MAX_TEXT_BYTES:
            raise TooLarge(f"{self.source.name}: the names and words of its header are longer than {MAX_TEXT_BYTES} bytes in all ({what})")
        raw = self.data[self.at : self.at + length]
        self.at += length
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise BadHeader(f"{self.source.name}: {what} is not UTF-8") from None

    def list_of(self, count: int, what: str) -> None:
        """Make sure that all decoded lists together stay short. `TooLarge` names the one that did not."""
        self.items += count
        if self.items > MAX_ITEMS:
            raise TooLarge(f"{self.source.name}: the lists of its header have more than {MAX_ITEMS} items in all ({what})")

    def step_over_strings(self, count: int, what: str) -> None:
        """Move past `count` length-prefixed strings: the hot spot of a cold start (half a million of them in a modern vocabulary)."""
        twos = [Struct(f"<Q{length}xQ").unpack_from for length in range(_SHORT)] if self.order == "<" and count > _RUN else []
        while count:
            count = self._two_by_two(count, twos, what) if twos else count
            count = self._one_by_one(count, min(count, _RUN) if twos else count, what)

    def _two_by_two(self, count: int, twos: "Sequence[Callable[[bytes, int], tuple[int, ...]]]", what: str) -> int:
        """How many are left of `count` where two of them no longer lie side by side in the window with the first one short.

        A struct call costs more than all else here, so one reads two lengths: the low byte of the first says where the second must be, and the whole first one must
        say so too. The loop runs off the end of the window into an error, and the iterator then knows how many pairs were begun.
        """
        rest = repeat(None, count // 2)
        data, at = self.data, self.at
        try:
            for _ in rest:
                first, second = twos[data[at]](data, at)
                if first >= _SHORT:
                    raise IndexError
                at += first + second + 16
        except (error, IndexError):
            count = 2 * (rest.__length_hint__() + 1) + count % 2
        else:
            count %= 2
        if at > len(data):
            self._check_step(at, what)
        self.at = at
        return count

    def _one_by_one(self, count: int, run: int, what: str) -> int:
        """How many are left of `count` after `run` of them, wherever they lie and however long they are. A length that leads past the file ends the loop as the window does."""
        unpack = Struct(self.order + "Q").unpack_from
        count -= run
        while run:
            rest = repeat(None, run)
            data, at = self.data, self.at
            try:
                for _ in rest:
                    (length,) = unpack(data, at)
                    at += length + 8
            except (error, OverflowError):
                run = rest.__length_hint__() + 1
            else:
                run = 0
            if at > len(data):
                self._check_step(at, what)
            self.at = at
            if run:
                self.need(8, what)
        return count

    def _check_step(self, at: int, what: str) -> None:
        if self.base + at > self.source.size:
            raise Truncated(f"{self.source.name}: a string in {what} leads past the end of the file at byte {self.source.size}")
        if self.base + at > MAX_HEADER_BYTES:
            raise TooLarge(f"{self.source.name}: the header is longer than {MAX_HEADER_BYTES} bytes ({what})")


class Part:
    """What one GGUF file says: its metadata, its tensors (places are offsets in this file), and where it stands in a split (0 of 1 where there is none)."""

    __slots__ = ("ends", "file_bytes", "metadata", "name", "notes", "split_count", "split_no", "tensors")

    def __init__(self, name: str, file_bytes: int, metadata: "dict[str, Any]", tensors: "list[Tensor]", notes: "list[str]") -> None:
        self.name, self.file_bytes, self.metadata, self.tensors, self.notes = name, file_bytes, metadata, tensors, notes
        self.ends: dict[int, int] = {}
        self.split_count = _small(name, metadata, "split.count", 1)
        self.split_no = _small(name, metadata, "split.no", 0)
        if not 1 <= max(self.split_count, 1) <= MAX_SHARDS or self.split_no >= max(self.split_count, 1):
            raise BadShards(f"{name}: says it is shard {self.split_no} (from 0) of {self.split_count}")


def _small(name: str, metadata: "dict[str, Any]", key: str, default: int) -> int:
    value = metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadHeader(f"{name}: {key} is {value!r}, not a count")
    return value


def read(source: "Source") -> Checkpoint:
    """The checkpoint in one GGUF file that is no split. Raises one `BadCheckpoint` that names the file, the field and the fault."""
    return join([scan(source)])


def scan(source: "Source", shard: int = 0, known: "Mapping[int, int] | None" = None) -> Part:
    """One file of a checkpoint, alone. `shard` is the number that its tensors get, `known` the ends of lists that an earlier reading of this very file found."""
    header = _Header(source)
    header.known = known or {}
    if header.data[:4] != MAGIC:
        raise NotACheckpoint(f"{source.name}: is no GGUF file (it starts with {header.data[:4]!r})")
    header.at = 4
    _version(header)
    tensor_count = header.number("Q", 8, "the tensor count")
    pair_count = header.number("Q", 8, "the metadata count")
    _check_count(header, "metadata pairs", pair_count, _SMALLEST_PAIR)
    _check_count(header, "tensors", tensor_count, _SMALLEST_TENSOR)
    if tensor_count > MAX_TENSORS or pair_count > MAX_PAIRS:
        raise TooLarge(f"{source.name}: claims {tensor_count} tensors and {pair_count} metadata pairs (at most {MAX_TENSORS} and {MAX_PAIRS})")
    metadata = _metadata(header, pair_count)
    notes: list[str] = []
    tensors = _tensors(header, tensor_count, metadata, shard, notes)
    part = Part(source.name, source.size, metadata, tensors, notes)
    part.ends = header.ends
    return part


def _version(header: _Header) -> None:
    """The version tells the byte order too: read the wrong way round, 2 and 3 are huge (gguf.cpp tests the low 16 bits)."""
    version = header.number("I", 4, "the version")
    if version & 0xFFFF == 0:
        header.order = ">"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version == 1:
        raise UnsupportedVersion(
            f"{header.source.name}: GGUF version 1 is not read (2 and 3 are)", hint="Convert the file again; version 1 was left in August 2023."
        )
    if version not in (2, 3):
        raise UnsupportedVersion(f"{header.source.name}: GGUF version {version} is not read (2 and 3 are)")


def _check_count(header: _Header, what: str, count: int, smallest: int) -> None:
    if count * smallest > header.left():
        raise BadHeader(f"{header.source.name}: claims {count} {what}, but only {header.left()} bytes are left in the file")


def _metadata(header: _Header, count: int) -> "dict[str, Any]":
    pairs: dict[str, Any] = {}
    for number in range(count):
        key = header.text(f"the key of metadata pair {number}", MAX_KEY_BYTES)
        if key in pairs or key + ".length" in pairs:
            raise BadHeader(f"{header.source.name}: metadata key {key!r} stands twice")
        kind = header.number("I", 4, f"the type of {key!r}")
        if kind in _SCALARS:
            pairs[key] = header.number(_SCALARS[kind], _SIZES[kind], repr(key))
        elif kind == _STRING:
            _string(header, key, pairs)
        elif kind == _ARRAY:
            _array(header, key, pairs)
        else:
            raise BadHeader(f"{header.source.name}: {key!r} has the unknown value type {kind}")
    return pairs


def _string(header: _Header, key: str, pairs: "dict[str, Any]") -> None:
    """A string value; a long one is stepped over and only its length in bytes kept."""
    header.need(8, repr(key))
    length = unpack_from(header.order + "Q", header.data, header.at)[0]
    if length <= MAX_DECODED_BYTES:
        pairs[key] = header.text(repr(key), MAX_DECODED_BYTES)
        return
    if length > MAX_STRING_BYTES:
        raise BadHeader(f"{header.source.name}: {key!r} claims a length of {length} bytes (at most {MAX_STRING_BYTES})")
    header.pass_over(8 + length, repr(key))
    pairs[key + ".length"] = length


def _array(header: _Header, key: str, pairs: "dict[str, Any]") -> None:
    """One array: short ones are decoded, all others and the vocabulary stepped over and only their length kept."""
    kind = header.number("I", 4, f"the item type of {key!r}")
    count = header.number("Q", 8, f"the length of {key!r}")
    vocabulary = key.startswith("tokenizer.")
    if kind == _STRING:
        _check_count(header, f"strings in {key!r}", count, 8)
        if count <= MAX_DECODED_STRINGS and not vocabulary:
            header.list_of(count, repr(key))
            pairs[key] = [header.text(f"string {number} of {key!r}", MAX_DECODED_BYTES) for number in range(count)]
        else:
            _walk(header, key, count)
            pairs[key + ".length"] = count
        return
    if kind not in _SCALARS:
        raise BadHeader(f"{header.source.name}: {key!r} is an array of the unknown or nested type {kind}")
    _check_count(header, f"items in {key!r}", count, _SIZES[kind])
    size = _SIZES[kind] * count
    if count <= MAX_DECODED_ITEMS and not vocabulary:
        header.list_of(count, repr(key))
        header.need(size, repr(key))
        pairs[key] = list(unpack_from(f"{header.order}{count}{_SCALARS[kind]}", header.data, header.at))
        header.at += size
    else:
        header.pass_over(size, repr(key))
        pairs[key + ".length"] = count


def _walk(header: _Header, key: str, count: int) -> None:
    """Move past a list of strings: by the end that is known from an earlier reading of this very file, else string by string."""
    start = header.where()
    end = header.known.get(start, 0)
    if start + 8 * count <= end <= header.source.size:
        header.pass_over(end - start, repr(key))
        return
    header.step_over_strings(count, repr(key))
    if count >= WORTH_KEEPING:
        header.ends[start] = header.where()


def _tensors(header: _Header, count: int, metadata: "dict[str, Any]", shard: int, notes: "list[str]") -> "list[Tensor]":
    """The tensor directory, each row checked alone and then all of them for overlaps and holes."""
    name = header.source.name
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or isinstance(alignment, bool) or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
        raise BadHeader(f"{name}: general.alignment is {alignment!r}, not a power of two")
    rows = [_tensor_row(header, number) for number in range(count)]
    if len({row[0] for row in rows}) != count:
        seen: set[str] = set()
        for row in rows:
            if row[0] in seen:
                raise BadTensor(f"{name}: tensor {row[0]!r} stands twice")
            seen.add(row[0])
    start = round_up(header.where(), alignment)
    tensors = [_checked(header.source, row, start, alignment, shard) for row in rows]
    _check_places(name, tensors, start, alignment, notes)
    return tensors


def _tensor_row(header: _Header, number: int) -> "tuple[str, tuple[int, ...], int, int]":
    name = header.text(f"the name of tensor {number}", MAX_NAME_BYTES)
    rank = header.number("I", 4, f"the rank of tensor {name!r}")
    if rank > MAX_DIMS:
        raise BadTensor(f"{header.source.name}: tensor {name!r} has {rank} dimensions (at most {MAX_DIMS})")
    header.need(8 * rank + 12, f"the row of tensor {name!r}")
    *dims, code, offset = unpack_from(f"{header.order}{rank}QIQ", header.data, header.at)
    header.at += 8 * rank + 12
    return name, tuple(dims), code, offset


def _checked(source: "Source", row: "tuple[str, tuple[int, ...], int, int]", start: int, alignment: int, shard: int) -> Tensor:
    """The tensor, if its type is known, its rows are whole blocks, and its data lies inside the file."""
    name, dims, code, offset = row
    known = GGML_TYPES.get(code)
    if known is None:
        raise BadTensor(
            f"{source.name}: tensor {name!r} has the unknown ggml type {code}",
            hint="The type is newer than this brim, was removed from ggml, or the file is damaged.",
        )
    dtype, block, size = known
    elements = 1
    for dim in dims:
        elements *= dim
        if elements >= 1 << 63 or dim >= 1 << 63:
            raise BadTensor(f"{source.name}: tensor {name!r} has impossible dimensions {list(dims)}")
    if block > 1 and (dims[0] if dims else 1) % block:
        raise BadTensor(f"{source.name}: tensor {name!r}: a row of {dims[0] if dims else 1} is no multiple of the {block}-value blocks of {dtype}")
    stored = elements // block * size
    if offset % alignment:
        raise BadTensor(f"{source.name}: tensor {name!r} starts at {offset}, no multiple of the alignment {alignment}")
    if start + offset + stored > source.size and stored:
        raise Truncated(f"{source.name}: tensor {name!r} ends at byte {start + offset + stored}, but the file at {source.size}")
    return Tensor(name=name, dims=dims, dtype=dtype, offset=start + offset, stored_bytes=stored, elements=elements, shard=shard)


def _check_places(name: str, tensors: "list[Tensor]", start: int, alignment: int, notes: "list[str]") -> None:
    """Overlaps are refused; holes are told (llama.cpp takes neither: gguf.cpp wants every offset to follow from the one before)."""
    end, holes, before = start, 0, ""
    for tensor in sorted((t for t in tensors if t.stored_bytes), key=lambda t: t.offset):
        if tensor.offset < end and before:
            raise BadTensor(f"{name}: tensors {before!r} and {tensor.name!r} overlap at byte {tensor.offset}")
        gap = tensor.offset - round_up(end, alignment)
        holes += max(gap, 0)
        end, before = tensor.offset + tensor.stored_bytes, tensor.name
    if holes:
        notes.append(f"{name}: {holes} bytes between the tensors belong to none (llama.cpp refuses such a file)")
    long = sum(len(t.name.encode()) > LLAMA_CPP_NAME_BYTES for t in tensors)
    if long:
        notes.append(f"{name}: {long} tensor names are longer than the {LLAMA_CPP_NAME_BYTES} bytes that llama.cpp takes")


def shard_names(name: str, number: int, count: int) -> "list[str]":
    """The names of all shards of a split, from the name of shard `number` (from 0). `BadShards` where the name does not follow the pattern."""
    ending = f"-{number + 1:05d}-of-{count:05d}.gguf"
    if not name.endswith(ending):
        raise BadShards(
            f"{name}: is shard {number + 1} of {count}, but its name does not end in {ending}, so the others cannot be found",
            hint="Give the shards their names back.",
        )
    stem = name[: -len(ending)]
    return [f"{stem}-{index + 1:05d}-of-{count:05d}.gguf" for index in range(count)]


def join(parts: "list[Part]") -> Checkpoint:
    """One checkpoint from all shards in order. `BadShards` where one does not belong, `BadHeader` where no architecture is given."""
    first = parts[0]
    _check_split(parts)
    architecture = first.metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise BadHeader(f"{first.name}: general.architecture is missing or no string")
    if len(architecture) > MAX_NAME_BYTES or not architecture.isprintable():
        raise BadHeader(f"{first.name}: general.architecture is no word ({architecture[:40]!r})")
    title = first.metadata.get("general.name")
    tensors = [tensor for part in parts for tensor in part.tensors]
    return Checkpoint(
        form="gguf",
        source=first.name,
        name=title if isinstance(title, str) and title else first.name.rsplit("/", 1)[-1],
        architecture=architecture,
        metadata=first.metadata,
        tensors=tuple(tensors),
        file_bytes=sum(part.file_bytes for part in parts),
        shape=Missing(reason="not_supported", detail="layers are not derived from GGUF metadata yet"),
        role=_role(first.metadata, architecture, tensors),
        shards=tuple(part.name for part in parts) if len(parts) > 1 else (),
        caveats=tuple(note for part in parts for note in part.notes),
    )


def _check_split(parts: "list[Part]") -> None:
    count = len(parts)
    seen: dict[str, str] = {}
    for index, part in enumerate(parts):
        if max(part.split_count, 1) != count or part.split_no != index:
            raise BadShards(f"{part.name}: says it is shard {part.split_no + 1} of {part.split_count}, but stands as {index + 1} of {count}")
        if count == 1:
            continue
        for tensor in part.tensors:
            if tensor.name in seen:
                raise BadShards(f"{part.name}: tensor {tensor.name!r} stands in {seen[tensor.name]} too")
            seen[tensor.name] = part.name
    told = _small(parts[0].name, parts[0].metadata, "split.tensors.count", len(seen)) if count > 1 else len(seen)
    if told != len(seen):
        raise BadShards(f"{parts[0].name}: the split has {told} tensors by its own count, but its shards hold {len(seen)}")


def _role(metadata: "dict[str, Any]", architecture: str, tensors: "list[Tensor]") -> str:
    """What the file is: model, lora, mmproj, imatrix, or vocab where there is no tensor at all.

    Words: `general.type` and `adapter.type` (src/llama-adapter.cpp), `clip` (tools/mtmd/clip-impl.h), gguf-py `GGUFType`.
    """
    kind = metadata.get("general.type")
    if kind == "adapter":
        return str(metadata.get("adapter.type") or "adapter")[:32]
    if kind == "mmproj" or architecture == "clip":
        return "mmproj"
    if kind == "imatrix":
        return "imatrix"
    return "model" if tensors else "vocab"
