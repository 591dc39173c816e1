"""Follows a machine: looks at every poll, and tells only what is news; where the loop in vigil.c was built, it polls, in the vendor's own thread, and the interpreter sleeps.

Guarantees: every card and the host's memory are asked at every poll; a reading comes when `facts.moves` calls it news, and after `longest_ns` in any case. A call of
the vendor's library that hangs rings an alarm (a timer that is set anew after each poll, so that nobody wakes to look): the reading then comes with the rows silenced,
and the library is not asked again before its call has returned. Cards that are at work move at every poll: after polls in vain each look is a whole one for a while.
"""

import contextlib
import ctypes
import os
import select

from brim.facts import moves
from brim.probes import kept, vigil
from brim.probes.vigil import CALL, TEXT, Sight, Vigil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from brim.facts.device import Reading
    from brim.probes.host import HostProbe
    from brim.probes.watch import NvmlReader, Watch
    from brim.seams import Clock

    Band = tuple[int, int]

MOST_SKIPPED = 16  # whole looks between two tries, where cards are at work
WORTH = 3  # polls that a try must last
GRACE_MS = 100
_MONOTONIC, _CLOEXEC, _NONBLOCK = 1, 0o2000000, 0o4000  # time.h, fcntl.h of Linux


def follow(read: "Callable[[int], Reading]", lookout: "Callable[[], Lookout | None]", clock: "Clock", *, poll_ns: int, longest_ns: int) -> "Iterator[Reading]":
    """A reading at once, then each that is news. `lookout` is asked when two looks have been taken: before, a library is not open in this process."""
    told = read(clock.now_ns())
    yield told
    eyes: Lookout | None = None
    looks, skip, patience, anew = 1, 1, 0, True
    begun = clock.now_ns() - poll_ns  # the second look follows at once
    try:
        while True:
            polls = None
            if looks == 2:
                eyes = lookout()
            if eyes is not None and not skip:
                polls = eyes.keep(told, poll_ns, told.at_ns + longest_ns, anew=anew)
                anew = anew and polls is None
                patience = 0 if polls is not None and polls >= WORTH else min(MOST_SKIPPED, max(1, 2 * patience))
                skip = patience
            if polls is None:
                skip = max(0, skip - 1)
                clock.sleep_ns(max(0, begun + poll_ns - clock.now_ns()))
            begun = clock.now_ns()
            reading = read(begun)
            looks += 1
            if begun - told.at_ns >= longest_ns or moves.moved(told, reading):
                told, anew = reading, True
                yield told
    finally:
        if eyes is not None:
            eyes.close()


def lookout(host: "HostProbe", watch: "Watch | None", clock: "Clock", *, deadline_ns: int) -> "Lookout | None":
    """The built loop over the host and, in its thread, what `watch` reads; None where it was not built, or cannot ask these."""
    loop = vigil.library()
    if loop is None or not host.files() or (watch is not None and not hasattr(watch.reader, "questions")):
        return None
    return Lookout(loop, host, watch, clock, deadline_ns=deadline_ns)


class Lookout:
    """The built loop over the host's memory and, in its `watch`'s thread, over NVML's cards."""

    def __init__(self, loop: "Any", host: "HostProbe", watch: "Watch | None", clock: "Clock", *, deadline_ns: int) -> None:
        self._loop, self._host, self._watch, self._clock, self._deadline = loop, host, watch, clock, deadline_ns
        self._stop, self._bell = (os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2))
        self._alarm = Alarm()
        self._worker, self._waits = select.epoll(), select.poll()
        self._worker.register(self._stop, select.EPOLLIN)
        for fd in (self._bell, self._alarm.fd):
            self._waits.register(fd, select.POLLIN)
        self._made: tuple[tuple[object, ...], Vigil] | None = None
        self._lent = False
        self._sensors: list[tuple[str, bool, bool]] = []  # as in `Questions`

    def keep(self, told: "Reading", poll_ns: int, until_ns: int, *, anew: bool) -> "int | None":
        """Look at each poll until something is news to who was told this, or until then: at how many polls all was well. None where it cannot be done now. `anew`: it was told just now."""
        laid = self._host_sights(told)
        if laid is None:
            return None
        sights, bands = laid
        if self._watch is None:
            rows = self._vigil(sights, bands, 0).keep(poll_ns, until_ns)[1]
            return len(rows)
        if not self._watch.free():
            return None
        for fd in (self._stop, self._bell):
            _emptied(fd)
        self._alarm.set(poll_ns + self._deadline)
        self._watch.lend(lambda: self._work(sights, bands, poll_ns, until_ns, anew=anew))
        self._lent = True
        if not self._come_back():
            os.eventfd_write(self._stop, 1)  # it must not go on when the call returns
            self._watch.overdue(self._clock.now_ns() - self._deadline)
            return 0
        self._lent = False
        self._alarm.set(0)
        rows = self._watch.regain()
        if not isinstance(rows, list):
            return None
        self._tell_sensors(self._watch, rows)
        return len(rows)

    def _work(self, sights: "list[Sight]", bands: "list[Band]", poll_ns: int, until_ns: int, *, anew: bool) -> "list[tuple[int, ...]] | None":
        """In the worker, where alone the library is touched: the polls at which all was well, each with the sensors' numbers; None where these cards cannot be asked so."""
        try:
            assert self._watch is not None
            reader: NvmlReader = self._watch.reader  # type: ignore[assignment]
            questions = reader.questions(self._loop)
            laid = None if questions is None else questions.lay_out(poll_ns, anew=anew)
            if laid is None or questions is None:
                return None
            found = self._vigil([*laid[0], *sights, self._alarm.sight(poll_ns + self._deadline)], [*laid[1], *bands], laid[2])
            why, rows = found.keep(poll_ns, until_ns)
            questions.after(found.sights[found.moved] if why == vigil.MOVED else None)
            self._sensors = questions.sensors
            return rows
        finally:
            os.eventfd_write(self._bell, 1)

    def _tell_sensors(self, watch: "Watch", rows: "list[tuple[int, ...]]") -> None:
        """A value that stands still under load is stale: these polls count, too."""
        at = 2
        for device, warm, power in self._sensors:
            here, there = at, at + warm
            at = there + power
            if rows and watch.counts(device):
                watch.stood(device, [(float(row[here]) if warm else None, row[there] / 1000 if power else None) for row in rows])

    def _come_back(self) -> bool:
        """Wait for the end of the job; False where a call in it hangs. An alarm that is set anew meanwhile (we all stood still, and go on) was none."""
        while True:
            ready = {fd for fd, _ in self._waits.poll()}
            if self._bell in ready:
                return True
            if self._bell in (late := {fd for fd, _ in self._waits_for(GRACE_MS)}):
                return True
            if self._alarm.fd in late:
                return False

    def _waits_for(self, milliseconds: int) -> "list[tuple[int, int]]":
        """What is ready after this time, or as soon as the job is done."""
        bell = select.poll()
        bell.register(self._bell, select.POLLIN)
        bell.poll(milliseconds)
        return self._waits.poll(0)

    def _host_sights(self, told: "Reading") -> "tuple[list[Sight], list[Band]] | None":
        """The host's memory, with how far its numbers may go before it is news."""
        files = self._host.files()
        numbers = kept.numbers(files) if files else None
        now = None if numbers is None else self._host.available(numbers)
        was, swap = told.host.available_bytes, told.host.swap_free_bytes
        if numbers is None or not isinstance(now, int) or not isinstance(was, int):
            return None
        slack = moves.host_slack(told.host)
        room = max(0, slack - abs(now - was))
        sights: list[Sight] = []
        bands: list[Band] = []
        left = iter(numbers)
        for file, asked in files:
            texts = [(key, scale) for key, scale, _ in asked]
            for _key, _scale, eighths in asked:
                number, width = next(left), room * eighths // 8
                bands.append((number - width, number + width))
            if not sights and isinstance(swap, int):  # in the same file
                texts.append((b"SwapFree:", 1024))
                bands.append((swap - slack, swap + slack))
            sights.append(Sight(kind=TEXT, fd=file.fd, numbers=tuple(texts)))
        return sights, bands

    def _vigil(self, sights: "list[Sight]", bands: "list[Band]", sensors: int) -> Vigil:
        """The loop over these, which is laid out anew only where what is asked has changed."""
        key = tuple((sight.fd, sight.numbers) if sight.kind == TEXT else id(sight) for sight in sights)
        if self._made is None or self._made[0] != key:
            self._made = key, Vigil(self._loop, sights, epoll=self._worker.fileno(), kept=sensors)
        found = self._made[1]
        for at, (low, high) in enumerate(bands):
            found.band(at, low, high)
        return found

    def close(self) -> None:
        """End the loop and let everything go; what a call that hangs may still touch is left to it."""
        if self._lent:
            os.eventfd_write(self._stop, 1)
            if self._bell not in {fd for fd, _ in self._waits_for(GRACE_MS)}:
                return
            if self._watch is not None:
                self._watch.regain()
        for fd in (self._stop, self._bell):
            os.close(fd)
        self._worker.close()
        self._alarm.close()


class Alarm:
    """A timer of the kernel (timerfd) that the loop itself sets anew after each poll, as one call more; it rings where a poll takes too long."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._set = libc.timerfd_settime
        self.fd = int(libc.timerfd_create(_MONOTONIC, _CLOEXEC | _NONBLOCK))
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "no timer")
        self._sights: dict[int, Sight] = {}

    def set(self, after_ns: int) -> None:
        """Ring then; 0: not at all."""
        self._set(self.fd, 0, ctypes.byref(_span(after_ns)), None)

    def sight(self, after_ns: int) -> Sight:
        """Asked last at each poll: ring then, unless it is asked again before."""
        if after_ns not in self._sights:
            span = _span(after_ns)
            self._sights[after_ns] = Sight(kind=CALL, call=vigil.place(self._set), arguments=(self.fd, 0, ctypes.addressof(span), 0), keeps=span)
        return self._sights[after_ns]

    def close(self) -> None:
        """Let the timer go."""
        os.close(self.fd)


def _span(after_ns: int) -> "Any":
    """struct itimerspec of timerfd_create(2): rings once."""
    return (ctypes.c_long * 4)(0, 0, after_ns // 1_000_000_000, after_ns % 1_000_000_000)


def _emptied(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(fd)
