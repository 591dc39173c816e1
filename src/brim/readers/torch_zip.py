"""Reads the zip directory of a PyTorch file and the sizes of its storages; the pickle inside is never executed, nor looked into.

Format: torch/csrc/jit/serialization and torch/serialization.py `_save` (2.x): a stored (never compressed) zip64 archive, one record `PREFIX/data/KEY` a storage, beside
`PREFIX/data.pkl`, `version` and `byteorder`. Names and shapes of tensors stand only in the pickle, so a storage is what brim can tell: its bytes, exactly.
Not covered: files before torch 1.6 (a bare pickle) and pickles of any other kind: refused with a sentence.
"""

from struct import unpack_from

from brim.errors import BadHeader, BadTensor, NotACheckpoint, TooLarge, Truncated, UnsupportedVersion
from brim.facts.model import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.seams import Source

MAX_DIRECTORY_BYTES = 64 << 20
MAX_RECORDS = 200_000
_END, _END64, _LOCATOR64, _ENTRY, _LOCAL = b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\1\2", b"PK\3\4"
_NONE16, _NONE32 = 0xFFFF, 0xFFFFFFFF


class Part:
    """What one PyTorch archive says: one tensor a storage (named by its record), elements unknown (0)."""

    __slots__ = ("file_bytes", "name", "tensors")

    def __init__(self, name: str, file_bytes: int, tensors: "list[Tensor]") -> None:
        self.name, self.file_bytes, self.tensors = name, file_bytes, tensors


def refuse_pickle(name: str) -> UnsupportedVersion:
    """The refusal of a file that is a bare pickle."""
    return UnsupportedVersion(
        f"{name}: is a pickle (a PyTorch file from before 1.6, or no model at all), which only running it could read; brim never does",
        hint="Save it again with a recent PyTorch, or better as safetensors.",
    )


def scan(source: "Source", shard: int = 0) -> Part:
    """The storages of one archive. Raises one `BadCheckpoint` that names the file, the record and the fault."""
    start, size, count = _directory(source)
    if size > MAX_DIRECTORY_BYTES:
        raise TooLarge(f"{source.name}: a zip directory of {size} bytes is above the cap of {MAX_DIRECTORY_BYTES}")
    if start + size > source.size:
        raise Truncated(f"{source.name}: the zip directory ends at byte {start + size}, but the file at {source.size}")
    if count > MAX_RECORDS:
        raise TooLarge(f"{source.name}: {count} records in the zip directory are above the cap of {MAX_RECORDS}")
    if count * 46 > size:
        raise BadHeader(f"{source.name}: {count} records do not fit into a zip directory of {size} bytes")
    tensors, names = _storages(source, source.read(start, size), count, start, shard)
    if not any(name.endswith("/data.pkl") for name in names):
        raise NotACheckpoint(f"{source.name}: is a zip archive, but holds no PyTorch checkpoint (no data.pkl)")
    return Part(source.name, source.size, tensors)


def _directory(source: "Source") -> "tuple[int, int, int]":
    """Offset, bytes and records of the central directory, from the end record at the very end (a comment may follow it), zip64 included."""
    tail_bytes = min(source.size, 22 + _NONE16)
    base = source.size - tail_bytes
    tail = source.read(base, tail_bytes)
    at = tail.rfind(_END)
    if at < 0 or at + 22 > len(tail):
        raise Truncated(f"{source.name}: starts as a zip archive, but has no end record")
    disk, first, _here, count, size, start = unpack_from("<4H2I", tail, at + 4)
    if (disk and disk != _NONE16) or (first and first != _NONE16):
        raise UnsupportedVersion(f"{source.name}: is a zip archive over several disks")
    if _NONE32 in (size, start) or count == _NONE16:
        if at < 20 or tail[at - 20 : at - 16] != _LOCATOR64:
            raise BadHeader(f"{source.name}: its zip end record points to a zip64 record that is not there")
        place = unpack_from("<Q", tail, at - 12)[0]
        if place + 56 > source.size:
            raise Truncated(f"{source.name}: its zip64 end record lies at byte {place}, behind the end of the file")
        record = source.read(place, 56)
        if record[:4] != _END64:
            raise BadHeader(f"{source.name}: there is no zip64 end record at byte {place}")
        count, size, start = unpack_from("<3Q", record, 32)
    return start, size, count


def _storages(source: "Source", raw: bytes, count: int, end: int, shard: int) -> "tuple[list[Tensor], list[str]]":
    tensors: list[Tensor] = []
    names: list[str] = []
    seen: set[str] = set()
    at = 0
    for number in range(count):
        if raw[at : at + 4] != _ENTRY or at + 46 > len(raw):
            raise BadHeader(f"{source.name}: record {number} of {count} of the zip directory is damaged")
        method, packed, plain, name_len, extra_len, note_len, place = (
            *unpack_from("<H", raw, at + 10),
            *unpack_from("<2I3H", raw, at + 20),
            unpack_from("<I", raw, at + 42)[0],
        )
        after = at + 46 + name_len
        if after + extra_len + note_len > len(raw):
            raise BadHeader(f"{source.name}: record {number} of the zip directory leads out of it")
        name = raw[at + 46 : after].decode("utf-8", "replace")
        if name in seen:
            raise BadHeader(f"{source.name}: the record {name[:200]!r} stands twice")
        seen.add(name)
        names.append(name)
        plain, packed, place = _wide(source.name, name, raw[after : after + extra_len], plain, packed, place)
        at = after + extra_len + note_len
        if place + 30 + packed > end:
            raise Truncated(f"{source.name}: the record {name[:200]!r} ends behind the start of the zip directory at byte {end}")
        if "/data/" in name:
            if method or packed != plain:
                raise BadTensor(f"{source.name}: the storage {name[:200]!r} is compressed, which PyTorch never does")
            tensors.append(Tensor(name=name.split("/", 1)[1], dims=(), dtype="?", offset=place, stored_bytes=plain, elements=0, shard=shard))
    _check_overlap(source.name, tensors)
    return tensors, names


def _wide(file: str, name: str, extra: bytes, plain: int, packed: int, place: int) -> "tuple[int, int, int]":
    """The 64-bit sizes and place out of the zip64 extra field (APPNOTE 4.5.3), where the 32-bit ones say to look there."""
    wanted = [value == _NONE32 for value in (plain, packed, place)]
    if not any(wanted):
        return plain, packed, place
    at = 0
    while at + 4 <= len(extra):
        tag, size = unpack_from("<2H", extra, at)
        if tag == 1 and size >= 8 * sum(wanted) and at + 4 + size <= len(extra):
            wide = list(unpack_from(f"<{sum(wanted)}Q", extra, at + 4))
            plain, packed, place = (wide.pop(0) if want else value for want, value in zip(wanted, (plain, packed, place), strict=True))
            return plain, packed, place
        at += 4 + size
    raise BadHeader(f"{file}: the record {name[:200]!r} lacks its 64-bit sizes")


def _check_overlap(file: str, tensors: "list[Tensor]") -> None:
    end, before = 0, ""
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise BadTensor(f"{file}: the storages {before[:200]!r} and {tensor.name[:200]!r} overlap at byte {tensor.offset}")
        end, before = tensor.offset + 30 + tensor.stored_bytes, tensor.name
