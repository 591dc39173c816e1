"""Monotonic nanoseconds, wall stamps and sleep; and a fake that a test advances by hand."""

import time


class SystemClock:
    """The machine's clocks."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        """Wall-clock nanoseconds since 1970, for stamps only."""
        return time.time_ns()

    def sleep_ns(self, nanoseconds: int) -> None:
        """Sleep; a signal that raises ends it."""
        if nanoseconds > 0:
            time.sleep(nanoseconds / 1e9)


class FakeClock:
    """A clock that moves only when it is told to, or when somebody sleeps on it. Ships for users' tests as well as ours."""

    def __init__(self, now_ns: int = 0, wall_ns: int = 1_800_000_000_000_000_000) -> None:
        self._now = now_ns
        self._wall = wall_ns

    def now_ns(self) -> int:
        """Monotonic nanoseconds of the fake."""
        return self._now

    def wall_ns(self) -> int:
        """Wall nanoseconds of the fake."""
        return self._wall

    def sleep_ns(self, nanoseconds: int) -> None:
        """Advance both clocks at once."""
        self.advance(nanoseconds)

    def advance(self, nanoseconds: int, *, wall_ns: int | None = None) -> None:
        """Move the monotonic clock; the wall clock moves alike unless told otherwise (a clock step)."""
        self._now += nanoseconds
        self._wall += nanoseconds if wall_ns is None else wall_ns
