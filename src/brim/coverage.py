"""Says for how long a series of values really covered a run: gaps, suspended clocks, the longest continuous stretch, time in each level; no I/O, no clock.

A value covers the time to the next one where that comes within three polls; else it covers one poll and the rest is a gap. Coverage counts values, not
samples: a sample without the value is nothing. Clocks: the monotonic clock stops while a Linux machine sleeps and the wall clock goes on, so a wall clock
that ran ahead
of the monotonic one by more than three polls is a suspension (or a step of the wall clock: nothing in the series can tell them apart, so it counts as
one); a wall clock that went
back is told as a step and breaks nothing.
"""

from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

POLLS = 3
NS = 10**9


class Break(Record):
    """One interruption: nanoseconds from the run's start (monotonic), its length, its kind and what was missing.

    Kinds: `gap`, `suspended`, `restart`, `clock_step`.
    """

    at_ns: int
    length_ns: int
    kind: str
    what: str


class Stretch(Record):
    """A span of the run without interruption, in monotonic nanoseconds."""

    start_ns: int
    end_ns: int

    @property
    def hours(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / NS / 3600


def gaps(times: "Sequence[int]", start_ns: int, end_ns: int, poll_ns: int, what: str) -> list[Break]:
    """The spans longer than three polls between neighbouring values, the run's own start and end included."""
    limit, found, last = POLLS * poll_ns, [], start_ns
    for at in (*times, end_ns):
        if at - last > limit:
            found.append(Break(at_ns=last, length_ns=at - last, kind="gap", what=what))
        last = at
    return found


def covered_ns(times: "Sequence[int]", start_ns: int, end_ns: int, poll_ns: int) -> int:
    """Nanoseconds of [start, end] that the values at `times` cover; the time before the first value counts where it is within three polls."""
    if not times:
        return 0
    limit = POLLS * poll_ns
    whole = times[0] - start_ns if times[0] - start_ns <= limit else 0
    for here, there in zip(times, (*times[1:], end_ns), strict=True):
        step = max(there - here, 0)
        whole += step if step <= limit else poll_ns
    return min(whole, max(end_ns - start_ns, 0))


def suspensions(clocks: "Iterable[tuple[int, int]]", poll_ns: int) -> tuple[list[Break], list[Break]]:
    """(suspended spans, backward steps) from (monotonic, wall) stamps in order: where the wall clock ran ahead of, or fell behind, the monotonic one."""
    slept, steps, before = [], [], None
    for now, wall in clocks:
        if before is not None:
            ahead = (wall - before[1]) - (now - before[0])
            if ahead > POLLS * poll_ns:
                slept.append(Break(at_ns=before[0], length_ns=now - before[0], kind="suspended", what=f"the wall clock ran ahead by {ahead / NS:.1f} s"))
            elif ahead < -POLLS * poll_ns:
                steps.append(Break(at_ns=now, length_ns=0, kind="clock_step", what=f"the wall clock went back by {-ahead / NS:.1f} s"))
        before = (now, wall)
    return slept, steps


def longest(start_ns: int, end_ns: int, breaks: "Iterable[Break]") -> Stretch:
    """The longest span of [start, end] that no break touches (a break of no length cuts in two); the earlier one where two are equal."""
    best, at = Stretch(start_ns=start_ns, end_ns=start_ns), start_ns
    for one in sorted(breaks, key=lambda each: each.at_ns):
        if one.at_ns - at > best.end_ns - best.start_ns:
            best = Stretch(start_ns=at, end_ns=one.at_ns)
        at = max(at, one.at_ns + one.length_ns)
    if end_ns - at > best.end_ns - best.start_ns:
        best = Stretch(start_ns=at, end_ns=end_ns)
    return best


def level_ns(levels: "Sequence[tuple[int, str]]", start_ns: int, end_ns: int, poll_ns: int) -> dict[str, int]:
    """Nanoseconds spent in each level between start and end; a level holds until the next sample, at most three polls, and the rest is `not_covered`."""
    spent: dict[str, int] = {}
    limit = POLLS * poll_ns
    for index, (at, level) in enumerate(levels):
        until = levels[index + 1][0] if index + 1 < len(levels) else end_ns
        low, high = max(at, start_ns), min(until, end_ns)
        step = max(high - low, 0)
        held = step if until - at <= limit else min(step, poll_ns)
        spent[level] = spent.get(level, 0) + held
    rest = max(end_ns - start_ns, 0) - sum(spent.values())
    if rest > poll_ns:  # less than one poll is the way to the first sample
        spent["not_covered"] = rest
    return spent
