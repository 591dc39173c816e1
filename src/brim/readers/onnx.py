"""Reads this graph's initialisers as if an enemy wrote it and returns model facts or one named rejection; it never loads a tensor.

Format: protobuf wire format (protobuf.dev, "Encoding") of onnx/onnx.proto3 v1.19: ModelProto.graph = 7; GraphProto.node = 1, .initializer = 5, .sparse_initializer = 15;
NodeProto.input = 1, .op_type = 4, .attribute = 5; AttributeProto.name = 1, .i = 3, .t = 5, .g = 6, .tensors = 10, .graphs = 11; TensorProto.dims = 1, .data_type = 2,
.name = 8, .raw_data = 9, .external_data = 13, .data_location = 14.
Guarantees: data inside the file is jumped over by its length; the walk holds one window of the file and one row a tensor; nesting is bounded.
Covered: initialisers, constants inside nodes and subgraphs, external data files, four-bit weights of MatMulNBits. Not covered: functions, training graphs, string tensors' contents.
"""

from brim.errors import BadHeader, BadShards, BadTensor, NotACheckpoint, Truncated
from brim.facts.dtypes import ONNX_TYPES, packed_bytes
from brim.facts.model import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from brim.seams import Source

MAX_DIMS = 64
MAX_DEPTH = 32
MAX_TENSORS = 50_000
MAX_NODES = 2_000_000
MAX_NAME = 4096
_WINDOW = 16 << 10
_STRING = 8  # TensorProto.STRING
_TYPED = {4: 4, 5: 0, 6: 0, 7: 0, 10: 8, 11: 0}  # float_data, int32_data, string_data, int64_data, double_data, uint64_data → bytes a value, 0 for varints
_NBITS = ("K", "N", "bits")


class Part:
    """What one ONNX file says. `external` maps each file of external data to the bytes that tensors claim of it; such tensors have shard 1, 2, … in its order."""

    __slots__ = ("external", "file_bytes", "ir_version", "name", "nodes", "places", "producer", "tensors")

    def __init__(self, name: str, file_bytes: int) -> None:
        self.name, self.file_bytes = name, file_bytes
        self.ir_version, self.producer, self.nodes = 0, "", 0
        self.tensors: list[Tensor] = []
        self.external: dict[str, int] = {}
        self.places: dict[str, int] = {}  # the place of each in that order, from 1 on: there may be a file for each tensor


class _Wire:
    """Walks fields of protobuf messages by position; a window slides over the file."""

    def __init__(self, source: "Source") -> None:
        self.source = source
        self.base = 0
        self.data = b""

    def window(self, at: int) -> int:
        """The place of byte `at` inside the window, with a varint's ten bytes behind it where the file has them."""
        place = at - self.base
        if place < 0 or place + 10 > len(self.data):
            if at >= self.source.size:
                raise Truncated(f"{self.source.name}: the file ends inside a field at byte {at}")
            if 0 <= place < len(self.data) and self.base + len(self.data) == self.source.size:
                return place
            self.base, place = at, 0
            self.data = self.source.read(at, min(_WINDOW, self.source.size - at))
        return place

    def varint(self, at: int, end: int) -> "tuple[int, int]":
        """(value, the byte behind it); at most 64 bits."""
        place = self.window(at)
        data, value = self.data, 0
        for index in range(10):
            if at + index >= end or place + index >= len(data):
                raise Truncated(f"{self.source.name}: a number at byte {at} leads out of its message")
            byte = data[place + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, at + index + 1
        raise BadHeader(f"{self.source.name}: a number at byte {at} is longer than 64 bits")

    def fields(self, at: int, end: int) -> "Iterator[tuple[int, int, int, int]]":
        """(field, wire type, value or start, end) of each field between `at` and `end`; for fixed and length-delimited fields the range of its bytes."""
        while at < end:
            key, at = self.varint(at, end)
            field, wire = key >> 3, key & 7
            if field == 0:
                raise BadHeader(f"{self.source.name}: field number 0 at byte {at}")
            if wire == 0:
                value, at = self.varint(at, end)
                yield field, 0, value, at
                continue
            if wire == 2:
                length, at = self.varint(at, end)
            elif wire in (1, 5):
                length = 8 if wire == 1 else 4
            else:
                raise BadHeader(f"{self.source.name}: wire type {wire} at byte {at} is not used by ONNX")
            if length > end - at:
                raise Truncated(f"{self.source.name}: a field of {length} bytes at byte {at} leads out of its message")
            yield field, wire, at, at + length
            at += length

    def text(self, start: int, end: int, limit: int = MAX_NAME) -> str:
        """A string field of at most `limit` bytes."""
        if end - start > limit:
            raise BadHeader(f"{self.source.name}: a name of {end - start} bytes at byte {start} (at most {limit})")
        return self.source.read(start, end - start).decode("utf-8", "replace") if end - start > _WINDOW else self._near(start, end).decode("utf-8", "replace")

    def _near(self, start: int, end: int) -> bytes:
        place = start - self.base
        if place < 0 or place + (end - start) > len(self.data):
            if start == end:
                return b""
            self.base, place = start, 0
            self.data = self.source.read(start, min(max(_WINDOW, end - start), self.source.size - start))
        return self.data[place : place + (end - start)]


def looks_like(head: bytes) -> bool:
    """Whether a file can start a ModelProto: field 1 (ir_version) as a small varint, then another field of a ModelProto."""
    return len(head) > 3 and head[0] == 0x08 and 0 < head[1] < 0x40 and head[2] in (0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72)


def scan(source: "Source") -> Part:
    """The tensors of one file. Raises one `BadCheckpoint` that names the file, the field and the fault."""
    wire, part, graphs = _Wire(source), Part(source.name, source.size), 0
    for field, kind, start, end in wire.fields(0, source.size):
        if field == 1 and kind == 0:
            part.ir_version = start
        elif field == 2 and kind == 2:
            part.producer = wire.text(start, end)
        elif field == 7 and kind == 2:
            graphs += 1
            _graph(wire, part, start, end, 0)
    if graphs != 1:
        raise NotACheckpoint(f"{source.name}: is no ONNX model ({graphs} graphs where one is due)")
    return part


def _graph(wire: _Wire, part: Part, at: int, end: int, depth: int) -> None:
    """Initialisers of a graph, then those that its nodes carry."""
    if depth > MAX_DEPTH:
        raise BadHeader(f"{part.name}: graphs are nested deeper than {MAX_DEPTH} levels")
    logical: dict[str, int] = {}
    own: set[str] = set()  # a name is unique in its graph only: subgraphs may carry the same initialiser again
    first = len(part.tensors)
    for field, kind, start, stop in wire.fields(at, end):
        if kind != 2:
            continue
        if field == 5:
            _tensor(wire, part, start, stop)
            name = part.tensors[-1].name
            if name in own and name:
                raise BadTensor(f"{part.name}: initialiser {name[:200]!r} stands twice in one graph")
            own.add(name)
        elif field == 15:  # SparseTensorProto: values = 1, indices = 2
            for inner, inner_kind, inner_start, inner_stop in wire.fields(start, stop):
                if inner in (1, 2) and inner_kind == 2:
                    _tensor(wire, part, inner_start, inner_stop)
        elif field == 1:
            part.nodes += 1
            if part.nodes > MAX_NODES:
                raise BadHeader(f"{part.name}: has more than {MAX_NODES} nodes")
            _node(wire, part, start, stop, depth, logical)
    if logical:
        for index in range(first, len(part.tensors)):
            count = logical.get(part.tensors[index].name)
            if count is not None:
                part.tensors[index] = part.tensors[index].replace(elements=count)


def _node(wire: _Wire, part: Part, at: int, end: int, depth: int, logical: "dict[str, int]") -> None:
    """Constants and subgraphs in a node's attributes; for MatMulNBits the logical size of its packed weight (com.microsoft contrib operators)."""
    inputs: list[str] = []
    operator = ""
    numbers: dict[str, int] = {}
    for field, kind, start, stop in wire.fields(at, end):
        if kind != 2:
            continue
        if field == 1 and len(inputs) < 4:
            inputs.append(wire.text(start, stop))
        elif field == 4:
            operator = wire.text(start, stop)
        elif field == 5:
            _attribute(wire, part, start, stop, depth, numbers)
    if operator == "MatMulNBits" and len(inputs) > 1 and all(key in numbers for key in _NBITS):
        logical[inputs[1]] = numbers["K"] * numbers["N"]
        for scale in inputs[2:]:
            logical[scale] = 0


def _attribute(wire: _Wire, part: Part, at: int, end: int, depth: int, numbers: "dict[str, int]") -> None:
    name, number = "", 0
    for field, kind, start, stop in wire.fields(at, end):
        if kind == 0 and field == 3:
            number = start
        elif kind != 2:
            continue
        elif field == 1:
            name = wire.text(start, stop)
        elif field in (5, 10):
            _tensor(wire, part, start, stop)
        elif field in (6, 11):
            _graph(wire, part, start, stop, depth + 1)
    if name in _NBITS and 0 < number < 1 << 31:
        numbers[name] = number


def _tensor(wire: _Wire, part: Part, at: int, end: int) -> None:
    """One TensorProto: where its bytes lie and whether they can be the tensor that it claims."""
    if len(part.tensors) >= MAX_TENSORS:
        raise BadHeader(f"{part.name}: has more than {MAX_TENSORS} tensors")
    dims: list[int] = []
    name, code, outside = "", 0, False
    raw: tuple[int, int] | None = None
    typed, typed_field = 0, 0
    places: dict[str, str] = {}
    for field, kind, start, stop in wire.fields(at, end):
        if field == 1:
            _dims(wire, dims, kind, start, stop)
        elif field == 2 and kind == 0:
            code = start
        elif field == 8 and kind == 2:
            name = wire.text(start, stop)
        elif field == 9 and kind == 2:
            raw = (start, stop)
        elif field == 13 and kind == 2:
            key, value = _entry(wire, start, stop)
            places[key] = value
        elif field == 14 and kind == 0:
            outside = start == 1
        elif field in _TYPED:
            typed, typed_field = typed + (stop - start if kind else 1), field
    elements = 1
    for dim in dims:
        elements *= dim
        if dim >= 1 << 63 or elements >= 1 << 63:
            raise BadTensor(f"{part.name}: tensor {name[:200]!r} has impossible dimensions {dims[:8]}")
    dtype, bits = ("STRING", 0) if code == _STRING else ONNX_TYPES.get(code, ("", 0))
    if not dtype:
        raise BadTensor(f"{part.name}: tensor {name[:200]!r} has the unknown ONNX type {code}")
    wanted = packed_bytes(bits, elements)
    offset, stored, shard = at, typed, 0
    if outside:
        offset, stored, shard = _outside(part, name, places, wanted)
    elif raw is not None:
        offset, stored = raw[0], raw[1] - raw[0]
    elif typed_field and _TYPED[typed_field] and code in (1, 11) and typed != wanted:
        raise BadTensor(f"{part.name}: tensor {name[:200]!r} is {wanted} bytes by its dimensions, but {typed} by its data")
    if (raw is not None or outside) and dtype != "STRING" and stored != wanted:
        raise BadTensor(f"{part.name}: tensor {name[:200]!r} is {wanted} bytes by its dimensions, but {stored} by its data")
    part.tensors.append(Tensor(name=name, dims=tuple(reversed(dims)), dtype=dtype, offset=offset, stored_bytes=stored, elements=elements, shard=shard))


def _dims(wire: _Wire, dims: "list[int]", kind: int, start: int, stop: int) -> None:
    """Dimensions, packed (one field) or not (one field each)."""
    if kind == 0:
        dims.append(start)
    elif kind == 2:
        at = start
        while at < stop and len(dims) <= MAX_DIMS:
            value, at = wire.varint(at, stop)
            dims.append(value)
    if len(dims) > MAX_DIMS:
        raise BadTensor(f"{wire.source.name}: a tensor has more than {MAX_DIMS} dimensions")


def _entry(wire: _Wire, at: int, end: int) -> "tuple[str, str]":
    """A StringStringEntryProto: key = 1, value = 2."""
    words = {1: "", 2: ""}
    for field, kind, start, stop in wire.fields(at, end):
        if field in words and kind == 2:
            words[field] = wire.text(start, stop)
    return words[1], words[2]


def _outside(part: Part, name: str, places: "dict[str, str]", wanted: int) -> "tuple[int, int, int]":
    """(offset, bytes, shard) of external data; its file must lie beside the model or below (onnx.proto3: "relative to the filesystem directory of the model")."""
    location = "/".join(step for step in places.get("location", "").split("/") if step != ".")
    if not location or len(location) > MAX_NAME or not all(map(_step, location.split("/"))):
        told = places.get("location", "")[:200]
        raise BadShards(
            f"{part.name}: tensor {name[:200]!r} lies in {told!r}, which is no path inside the model's folder",
            hint="External data must lie beside the model file or below it.",
        )
    numbers = []
    for key, default in (("offset", "0"), ("length", str(wanted))):
        digits = places.get(key, default)
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise BadTensor(f"{part.name}: tensor {name[:200]!r} has the impossible external {key} {digits[:40]!r}")
        numbers.append(int(digits))
    offset, stored = numbers
    part.external[location] = max(part.external.get(location, 0), offset + stored)
    return offset, stored, part.places.setdefault(location, len(part.external))


def _step(step: str) -> bool:
    """Whether one step of a location leads to a file or a folder right here, on Windows too. No control characters: a name must stay on its line."""
    return 0 < len(step) <= 255 and step != ".." and not any(char in "\\:\x7f" or char < " " for char in step)
