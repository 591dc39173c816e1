"""Lays out numbers for the loop in vigil.c, which looks at them once a poll without the interpreter, until one leaves its band; where it was not built, nobody keeps vigil.

A `Sight` is one thing to ask: a kernel file, a place in memory, or a C function with its answer. What the numbers mean, and how far each may move, is the caller's.
Guarantees: the files are those that the interpreter would read, through the same descriptors; a file or a call that does not answer ends the vigil; a signal ends it
(the interpreter's handlers run at once). Not covered: a call that never returns; who asks a driver does so where a deadline is kept.
"""

import ctypes
import os
import sys

from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

TEXT, MEMORY, CALL, SAME = range(4)
DUE, WOKEN, MOVED, FULL = range(4)
ROWS = 120
LIBRARY = os.path.join(os.path.dirname(__file__), "libvigil.so")
ANY = (-(1 << 63), (1 << 63) - 1)
_KEY, _TEXT_ROOM = 24, 1 << 14


class Sight(Record):
    """One thing to ask at each `every`th poll.

    TEXT: `fd`, with for each number what its line begins with and what it is multiplied by. MEMORY: at `address`, with the offset and the size of each number. CALL: `call` with
    four `arguments` that fill `address`; anything but 0 is no answer. SAME: `room` bytes at `address`, which must be as `Vigil.hold` says.
    """

    kind: int
    numbers: "tuple[tuple[bytes | int, int], ...]" = ()
    fd: int = -1
    address: int = 0
    room: int = 0
    call: int = 0
    arguments: "tuple[int, ...]" = ()
    every: int = 1
    keeps: object = None  # what must live as long as the sight: its buffers


class _Number(ctypes.Structure):
    _fields_ = (
        ("low", ctypes.c_int64), ("high", ctypes.c_int64), ("value", ctypes.c_int64), ("size", ctypes.c_int32), ("offset", ctypes.c_int32),
        ("key", ctypes.c_char * _KEY),
    )  # fmt: skip


class _Source(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32), ("every", ctypes.c_int32), ("first", ctypes.c_int32), ("count", ctypes.c_int32), ("fd", ctypes.c_int32), ("room", ctypes.c_int32),
        ("buffer", ctypes.c_void_p), ("call", ctypes.c_void_p), ("arguments", ctypes.c_ssize_t * 4),
    )  # fmt: skip


class _Frame(ctypes.Structure):
    _fields_ = (
        ("epoll", ctypes.c_int32), ("sources", ctypes.c_int32), ("kept", ctypes.c_int32), ("room", ctypes.c_int32), ("filled", ctypes.c_int32),
        ("moved", ctypes.c_int32), ("polls", ctypes.c_int32), ("unused", ctypes.c_int32), ("poll_ns", ctypes.c_int64), ("until_ns", ctypes.c_int64),
        ("beat", ctypes.c_void_p), ("source", ctypes.c_void_p), ("number", ctypes.c_void_p), ("rows", ctypes.c_void_p), ("request", ctypes.c_void_p),
    )  # fmt: skip


class Request(ctypes.Structure):
    """A request that the loop makes by itself when it is woken and the job holds more than `over` bytes; the addresses are words of the control page."""

    _fields_ = (
        ("on", ctypes.c_int32), ("fired", ctypes.c_int32), ("use", ctypes.c_int32), ("files", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("over", "held", "at_ns", "wall_ns", "grace_ns", "code")),
        *((name, ctypes.c_void_p) for name in ("directive", "deadline", "slow", "ahead_at", "ahead_wall", "ahead_length")), ("length", ctypes.c_int64),
    )  # fmt: skip


def library(path: str = LIBRARY) -> "Any":
    """The loop, or None where it was not built here (no C compiler when brim was installed), is cut short, of another version, or cannot be loaded."""
    try:
        if not _is_whole(path):
            return None
        found = ctypes.CDLL(path)
        layout = tuple((ctypes.c_int32 * 5).in_dll(found, "brim_vigil_layout"))
        for name in ("keep", "disk", "child", "rows", "code", "guard", "lost"):
            getattr(found, f"brim_vigil_{name}")
        found.brim_vigil_keep.argtypes = (ctypes.c_void_p,)
    except (OSError, AttributeError, ValueError):
        return None
    return found if layout == (3, *(ctypes.sizeof(kind) for kind in (_Number, _Source, _Frame, Request))) else None


def guard(loop: "Any", place: int, size: int) -> bool:
    """From now on SIGBUS at these pages (a file that its other user cut short) puts pages of zeros there and is noted; size 0: at none. False where that is refused."""
    return bool(loop.brim_vigil_guard(ctypes.c_void_p(place if size else None), ctypes.c_size_t(size)) == 0)


def is_lost(loop: "Any") -> bool:
    """Whether that has happened to the guarded pages."""
    return bool(loop.brim_vigil_lost())


def _is_whole(path: str) -> bool:
    """Whether a file reaches to the end of its section headers, which stand last (ELF64): the dynamic linker maps one that was cut short, and whoever touches what is missing is killed."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        head, size = file.read(64), os.fstat(file.fileno()).st_size
    if head[:5] != b"\x7fELF\x02":
        return True
    start, each, count = (int.from_bytes(head[at : at + width], sys.byteorder) for at, width in ((40, 8), (58, 2), (60, 2)))
    return len(head) == 64 and start + each * count <= size


def address_of(buffer: "Any") -> int:
    """Where a writable buffer lies. It must outlive whoever looks there."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def disk(loop: "Any", path: str, *, every: int) -> Sight:
    """What a file system has for us, in bytes. A dead network mount holds whoever asks it."""
    name, answer = ctypes.create_string_buffer(os.fsencode(path)), ctypes.c_int64()
    at = ctypes.addressof(answer)
    return Sight(
        kind=CALL, numbers=((0, 8),), address=at, call=place(loop.brim_vigil_disk), arguments=(ctypes.addressof(name), at), every=every, keeps=(name, answer)
    )


def child(loop: "Any", kind: int, of: int, how: int) -> Sight:
    """The pid of a child of ours that ended (`how`: WEXITED) or stands still (WSTOPPED) and was not waited for yet, 0 for none; `kind` and `of` as for waitid."""
    answer = ctypes.c_int32()
    at = ctypes.addressof(answer)
    return Sight(kind=CALL, numbers=((0, 4),), address=at, call=place(loop.brim_vigil_child), arguments=(kind, of, at, how), keeps=answer)


def place(pointer: "Any") -> int:
    """Where a function of a library, or what one of its handles stands for, lies; 0 for null."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


class Vigil:
    """One loop over some sights, whose first `kept` numbers are kept at each poll. `epoll` ends it when a descriptor of that epoll is ready; `request` see there."""

    def __init__(self, loop: "Any", sights: "Sequence[Sight]", *, epoll: int, kept: int, beat: int = 0, request: "Request | None" = None) -> None:
        self._loop, self.sights, self._request = loop, tuple(sights), request
        count = sum(len(sight.numbers) for sight in self.sights)
        self._numbers, self._sources = (_Number * count)(), (_Source * len(self.sights))()
        self._text = ctypes.create_string_buffer(_TEXT_ROOM)
        self._rows = (ctypes.c_int64 * (ROWS * (kept + 2)))()
        self._held: dict[int, Any] = {}
        first = 0
        for at, (source, sight) in enumerate(zip(self._sources, self.sights, strict=True)):
            source.kind, source.every, source.fd, source.first, source.count = sight.kind, sight.every, sight.fd, first, len(sight.numbers)
            text = sight.kind == TEXT
            source.buffer, source.room = (ctypes.addressof(self._text), _TEXT_ROOM) if text else (sight.address, sight.room)
            source.call, source.arguments = sight.call or None, (*sight.arguments, *(0,) * (4 - len(sight.arguments)))
            if sight.kind == SAME:
                self._held[at] = ctypes.create_string_buffer(sight.room)
                source.arguments = (ctypes.addressof(self._held[at]), 0, 0, 0)
            for number, (where, size) in zip(self._numbers[first : first + len(sight.numbers)], sight.numbers, strict=True):
                number.low, number.high = ANY
                if isinstance(where, bytes):
                    number.key, number.size, number.offset = where, len(where), size
                else:
                    number.offset, number.size = where, size
            first += len(sight.numbers)
        self._frame = _Frame(
            epoll=epoll, sources=len(self.sights), kept=kept, room=ROWS, beat=beat or None, source=ctypes.addressof(self._sources),
            number=ctypes.addressof(self._numbers) if count else None, rows=ctypes.addressof(self._rows), request=None if request is None else ctypes.addressof(request),
        )  # fmt: skip
        self._at = ctypes.addressof(self._frame)
        self._width = kept + 2

    def band(self, at: int, low: int, high: int) -> None:
        """How far the number at this place may go (both inclusive)."""
        self._numbers[at].low, self._numbers[at].high = low, high

    def hold(self, at: int, data: bytes) -> None:
        """What the bytes of the sight at this place must be."""
        self._held[at][: len(data)] = data

    def keep(self, poll_ns: int, until_ns: int, room: int = ROWS) -> "tuple[int, list[tuple[int, ...]]]":
        """Look at each poll until something ends it, at most `room` times: (DUE, WOKEN, MOVED or FULL; the polls at which all was well, each with its monotonic and wall ns and the kept numbers)."""
        self._frame.poll_ns, self._frame.until_ns, self._frame.room = poll_ns, until_ns, min(room, ROWS)
        why = self._loop.brim_vigil_keep(self._at)
        width, flat = self._width, self._rows
        return why, [tuple(flat[at : at + width]) for at in range(0, self._frame.filled * width, width)]

    @property
    def moved(self) -> int:
        """Which sight ended the last vigil; -1 where none did."""
        return int(self._frame.moved)
