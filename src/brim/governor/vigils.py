"""Lays out what is looked at between two glances (the files of a glance, the job's words, what is asked seldom, the job's orphans), with how far each may go.

And what is foreseen: a request that the loop puts on the control page as soon as it is woken and the job holds too much.
"""

import sys

from brim import control
from brim.probes import vigil
from brim.probes.vigil import MEMORY, SAME, TEXT, WOKEN, Request, Sight, Vigil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from brim.control import Page
    from brim.probes.kept import File

    Aside = tuple[Sight, int, int, bool]  # with its band; whether a whole look is needed where it is left
    Row = tuple[int, int, tuple[int, ...], int, int]  # monotonic and wall ns, the files' numbers, the job's step and tokens

_WORDS = {
    "directive": control.W_DIRECTIVE,
    "deadline": control.W_DEADLINE,
    "slow": control.W_SLOW_PERMILLE,
    "ahead_at": control.W_AHEAD_AT,
    "ahead_wall": control.W_AHEAD_WALL,
    "ahead_length": control.W_AHEAD_LENGTH,
}
_NEVER = (1 << 31) - 1
# What is asked seldom is asked this often.
SELDOM_NS = 10_000_000_000


class Vigils:
    """Vigils of one run, by the built loop. `asides` are further sights, each with its band."""

    def __init__(self, loop: "Any", *, epoll: int, page: "Page | None", asides: "Sequence[Aside]") -> None:
        self._loop, self._epoll, self._asides = loop, epoll, tuple(asides)
        self._eighths: tuple[int, ...] = ()
        self._fds: tuple[int, ...] = ()
        self._vigil: Vigil | None = None
        self._guard: Vigil | None = None
        self._beat = self._counters = self._first_aside = 0
        self._words: tuple[Sight, ...] = ()
        self._page, self._request = page, Request()
        if page is not None:
            at = vigil.address_of(page.map)
            self._beat = at + control.W_GOVERNOR_BEAT * 8
            vigil.guard(loop, at, control.SIZE)
            for name, word in _WORDS.items():
                setattr(self._request, name, at + word * 8)
            counters = Sight(kind=MEMORY, numbers=((control.W_STEP * 8, 8), (control.W_TOKENS * 8, 8)), address=at)
            self._words = (counters, *(Sight(kind=SAME, address=at + offset, room=size) for offset, size in (*control.SAID, (control.W_WATCHED * 8, 8))))

    @property
    def page_lost(self) -> bool:
        """Whether the job has cut its control page short: what is read there now are zeros, and nobody reads what is written there."""
        return self._page is not None and vigil.is_lost(self._loop)

    def close(self) -> None:
        """Guard the page no longer; before it is put away."""
        vigil.guard(self._loop, 0, 0)

    def lay_out(self, files: "Sequence[File]") -> None:
        """Make ready for a vigil over these files: nothing is done where they are those of the last one."""
        fds = tuple(file.fd for file, _ in files)
        if fds == self._fds and self._vigil is not None:
            return
        self._fds, self._eighths = fds, tuple(eighths for _, asked in files for _, _, eighths in asked)
        texts = [Sight(kind=TEXT, fd=file.fd, numbers=tuple((key, scale) for key, scale, _ in asked)) for file, asked in files]
        sights = [*texts, *self._words, *(sight for sight, _, _, _ in self._asides)]
        self._first_aside = len(sights) - len(self._asides)
        self._counters = len(self._eighths)
        kept = self._counters + (2 if self._words else 0)
        request = self._request if self._page is not None else None
        self._vigil = Vigil(self._loop, sights, epoll=self._epoll, kept=kept, beat=self._beat, request=request)
        of_job = [text.replace(every=_NEVER) for text in texts[-2:]]  # read when the wait ends, for the request alone
        self._guard = Vigil(self._loop, of_job, epoll=self._epoll, kept=0, beat=self._beat, request=request)
        at = kept
        for sight, low, high, _whole in self._asides:
            for place in range(at, at + len(sight.numbers)):
                self._vigil.band(place, low, high)
            at += len(sight.numbers)

    def keep(
        self, numbers: "tuple[int, ...]", slack: int, said: bytes, *, poll_ns: int, until_ns: int, watched: int = 0, room: int = vigil.ROWS
    ) -> "tuple[int, list[Row]]":
        """Look at each poll while no number strays so far from these that what is made of them moves by more than `slack` bytes: why it ended (see `vigil`), and what was seen.

        `said` and `watched` are what must stand on the page; at most `room` polls.
        """
        found = self._vigil
        assert found is not None
        for at, (number, eighths) in enumerate(zip(numbers, self._eighths, strict=True)):
            width = slack * eighths // 8
            found.band(at, number - width, number + width)
        first = len(self._fds) + 1
        if self._words:
            said += watched.to_bytes(8, sys.byteorder)
            for at, sight in enumerate(self._words[1:], first):
                found.hold(at, said[: sight.room])
                said = said[sight.room :]
        self._request.use, self._request.files = len(self._fds) - 2, len(self._fds) - 1
        why, rows = found.keep(poll_ns, until_ns, room)
        end = 2 + self._counters
        spoken = len(self._words) > 0
        return why, [(row[0], row[1], row[2:end], row[end] if spoken else 0, row[end + 1] if spoken else 0) for row in rows]

    @property
    def needs_look(self) -> bool:
        """Whether the last vigil ended for what no glance reads."""
        at = -1 if self._vigil is None else self._vigil.moved - self._first_aside
        return at >= 0 and self._asides[at][3]

    def wait(self, now: int, nanoseconds: int) -> bool:
        """Wait at most so long, ready to make the request; whether something has come."""
        assert self._guard is not None
        self._request.use, self._request.files = 0, 1
        return self._guard.keep(nanoseconds, now + nanoseconds)[0] == WOKEN

    def arm(self, over: int, code: int, *, grace_ns: int, text: str) -> None:
        """From now on make this request when a wait or a vigil ends and the job holds more than `over` bytes; `text` then stands on the page as what is about to be done."""
        assert self._page is not None
        request = self._request
        request.length = self._page.prepare(text)
        request.over, request.code, request.grace_ns, request.fired, request.on = over, code, grace_ns, 0, 1

    def disarm(self) -> None:
        """Make no request."""
        self._request.on = 0

    @property
    def armed(self) -> bool:
        """Whether a request is ready to be made."""
        return bool(self._request.on)

    @property
    def has_asked(self) -> bool:
        """Whether the request was made and nobody has owned up to it yet."""
        return bool(self._request.fired)

    def fired(self) -> "tuple[int, int, int] | None":
        """Once after the request was made: (bytes that the job held, monotonic ns, wall ns)."""
        request = self._request
        if not request.fired:
            return None
        request.on = request.fired = 0
        return request.held, request.at_ns, request.wall_ns


def asides(loop: "Any", where: "dict[str, tuple[int, str]]", bands: "dict[str, tuple[int, int]]", *, poll_ns: int) -> "list[Aside]":
    """What is asked seldom: pressure and sensors by their open files, file systems by their paths, each with its band (by its name, or by what stands before a colon in it)."""
    every = max(1, SELDOM_NS // poll_ns)
    found = []
    for name, (fd, path) in where.items():
        kind = name.partition(":")[0]
        if kind in bands:
            key = b"full avg10=" if kind == "psi_full" else b""
            sight = Sight(kind=TEXT, fd=fd, numbers=((key, 1),), every=every) if fd >= 0 else vigil.disk(loop, path, every=every)
            found.append((sight, *bands[kind], True))
    return found
