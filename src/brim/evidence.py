"""Computes what a run showed from its records: coverage, stretches, time in level, percentiles, trends, drift, prediction beside measurement; no I/O, no clock.

Measures that claims may use (all in the longest continuous stretch unless the name says otherwise):

governed, journal_holds, end_record, plan_priced, peak_within_span, quality_passed, artifact_unchanged: truths (the first four about the whole run);
duration_hours: the whole run; continuous_hours: the stretch; coverage: share of the run that the values of the least covered required signal cover;
suspended_seconds, gap_seconds: in the whole run; block_seconds, throttle_seconds, unknown_seconds; faults, restarts (restarts in the whole run);
hours_to_floor: until a shown trend in memory reaches the floor, infinite where none is shown; memory_slope_bytes_per_hour: the steepest; throughput_drift:
a share.
"""

from array import array
from itertools import pairwise

from brim import coverage, trend
from brim.facts.evidence import Comparison, Evidence, Interruption, Mark, Series, Signal
from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

NS = 10**9
ROLES = (
    ("temperature_c", "°C", "ceiling"), ("free_bytes", "bytes", "floor"), ("available_bytes", "bytes", "floor"), ("held_bytes", "bytes", "ceiling"),
    ("power_draw_w", "W", "ceiling"), ("utilisation_percent", "%", ""), ("throughput", "1/s", ""), ("tokens", "count", ""), ("step", "count", ""),
)  # fmt: skip
MEMORY = ("free_bytes", "available_bytes", "held_bytes")


class Run(Record):
    """What evidence needs to know of a run beside its samples. Times are monotonic nanoseconds; `poll_ns` is the longest interval between polls that was set.

    `limits` maps a signal's name to its limit; `required` names the signals that must be covered. `events` are (monotonic ns, kind, body). `priced` is
    None where no plan was made.
    """

    name: str
    start_ns: int
    end_ns: int
    poll_ns: int
    limits: "Mapping[str, float]"
    required: tuple[str, ...]
    events: "tuple[tuple[int, str, Mapping[str, Any]], ...]" = ()
    governed: bool = True
    journal_holds: "bool | Missing" = Missing(reason="failed", detail="the journal was not verified")
    end_record: bool = False
    priced: bool | None = None
    comparisons: tuple[Comparison, ...] = ()
    quality_passed: "bool | Missing" = Missing(reason="not_supported", detail="no quality gate was run for this file")
    artifact_unchanged: "bool | Missing" = Missing(reason="not_supported", detail="no quality gate was run for this file")


class Track:
    """One signal's values in order: `times` of every value there was, and the values that were kept `at` their times (a thinned bucket keeps three).

    Packed arrays: a day at 1 Hz with eight cards is four million values. A value is a float: bytes are exact up to 2^53.
    """

    __slots__ = ("at", "times", "values")

    def __init__(self) -> None:
        self.times, self.at, self.values = array("q"), array("q"), array("d")

    @property
    def points(self) -> "list[tuple[int, float]]":
        """(monotonic ns, value) pairs."""
        return list(zip(self.at, self.values, strict=True))

    def add(self, mono_ns: int, value: float) -> None:
        """One value."""
        self.times.append(mono_ns)
        self.at.append(mono_ns)
        self.values.append(value)


class Gathered:
    """Samples and thinned buckets, folded once in order of time."""

    def __init__(self) -> None:
        self.tracks: dict[str, Track] = {}
        self.clocks: list[tuple[int, int]] = []
        self.levels: list[tuple[int, str]] = []
        self.samples = 0
        self._left_out: set[str] = set()

    def add(self, mono_ns: int, wall_ns: int, level: str, values: "Iterable[tuple[str, float | None]]") -> None:
        """One sample."""
        self.samples += 1
        self.clocks.append((mono_ns, wall_ns))
        self.levels.append((mono_ns, level))
        for name, value in values:
            if value is not None:
                track = self.tracks.get(name)
                if track is None:
                    if name in self._left_out:
                        continue
                    if role(name) == ("", ""):
                        self._left_out.add(name)
                        continue
                    track = self.tracks[name] = Track()
                track.add(mono_ns, value)

    def add_value(self, name: str, mono_ns: int, value: float) -> None:
        """One value that came beside the samples."""
        self.tracks.setdefault(name, Track()).add(mono_ns, value)

    def add_bucket(self, bucket: "Mapping[str, Any]") -> None:
        """One thinned bucket: its extremes and mean as three points; its longest silence stands at its end."""
        start, end, count = bucket["start_ns"], bucket["end_ns"], bucket["samples"]
        self.samples += count
        self.clocks += [(start, bucket["start_wall_ns"]), (end, bucket["end_wall_ns"])]
        step = max((end - start) // max(count - 1, 1), 1)
        at = start
        for level, times in bucket["levels"].items():
            for _ in range(times):
                self.levels.append((min(at, end), level))
                at += step
        for name, (values, silence, low, mean, high) in bucket["signals"].items():
            if role(name) == ("", ""):
                continue
            track = self.tracks.setdefault(name, Track())
            busy = max(end - start - silence, 0)
            track.times.extend([start + busy * index // max(values - 1, 1) for index in range(values - 1)] + [end])
            track.at.extend((start, (start + end) // 2, end))
            track.values.extend((low, mean, high))


def role(name: str) -> "tuple[str, str]":
    """(unit, side) of a signal by the last word of its name; unknown words have neither."""
    last = name.rpartition(".")[2]
    for word, unit, side in ROLES:
        if last == word:
            return unit, side
    return "", ""


def of(run: Run, seen: Gathered) -> Evidence:
    """The evidence of one run; needs no sample at all (then everything that needs one is `Missing`)."""
    breaks, notes = _breaks(run, seen)
    stretch = coverage.longest(run.start_ns, run.end_ns, breaks)
    memo: dict[object, Any] = {}
    signals = tuple(_signal(run, name, seen.tracks.get(name), memo) for name in _names(run, seen))
    levels = coverage.level_ns(seen.levels, run.start_ns, run.end_ns, run.poll_ns)
    inside = coverage.level_ns(seen.levels, stretch.start_ns, stretch.end_ns, run.poll_ns)
    needed = [signal.coverage for signal in signals if signal.required]
    trends = _memory_trends(run, seen, stretch)
    measures: dict[str, Any] = {
        "governed": run.governed,
        "journal_holds": run.journal_holds,
        "end_record": run.end_record,
        "duration_hours": (run.end_ns - run.start_ns) / NS / 3600,
        "continuous_hours": stretch.hours if seen.samples else 0.0,
        "coverage": min(needed) if needed else Missing(reason="failed", detail="no signal was required"),
        "gap_seconds": sum(one.length_ns for one in breaks if one.kind == "gap") / NS,
        "suspended_seconds": sum(one.length_ns for one in breaks if one.kind == "suspended") / NS,
        **{f"{level}_seconds": inside.get(level, 0) / NS for level in ("block", "throttle", "unknown")},
        "faults": sum(1 for at, kind, _ in run.events if kind == "fault" and stretch.start_ns <= at <= stretch.end_ns),
        "restarts": sum(1 for _, kind, _ in run.events if kind == "restart"),
        **trends,
        "throughput_drift": _throughput_drift(seen, stretch),
        "plan_priced": Missing(reason="not_supported", detail="no plan was made for this run") if run.priced is None else run.priced,
        "peak_within_span": all(one.within for one in run.comparisons)
        if run.comparisons
        else Missing(reason="failed", detail="no predicted device was measured"),
        "quality_passed": run.quality_passed,
        "artifact_unchanged": run.artifact_unchanged,
        "stretch_start_s": (stretch.start_ns - run.start_ns) / NS,
        "stretch_end_s": (stretch.end_ns - run.start_ns) / NS,
        "samples": seen.samples,
    }
    return Evidence(
        run=run.name,
        measures=measures,
        signals=signals,
        interruptions=tuple(
            Interruption(at_s=(one.at_ns - run.start_ns) / NS, length_s=one.length_ns / NS, kind=one.kind, what=one.what)
            for one in sorted(breaks, key=lambda each: each.at_ns)
        ),
        level_seconds={level: spent / NS for level, spent in sorted(levels.items())},
        comparisons=run.comparisons,
        notes=tuple(notes),
    )


def _names(run: Run, seen: Gathered) -> list[str]:
    """Required signals first, then every one whose role is known, by name."""
    return [*run.required, *sorted(name for name in seen.tracks if name not in run.required and role(name) != ("", ""))]


def _breaks(run: Run, seen: Gathered) -> tuple[list[coverage.Break], list[str]]:
    """Everything that cuts the run's evidence, and notes about what does not."""
    samples = [at for at, _ in seen.levels]
    breaks = coverage.gaps(samples, run.start_ns, run.end_ns, run.poll_ns, "any sample")
    whole = {(one.at_ns, one.length_ns) for one in breaks}
    for name in run.required:
        track = seen.tracks.get(name)
        breaks += [
            one for one in coverage.gaps(track.times if track else (), run.start_ns, run.end_ns, run.poll_ns, name) if (one.at_ns, one.length_ns) not in whole
        ]
    breaks += _unknown(run, seen)
    slept, steps = coverage.suspensions(seen.clocks, run.poll_ns)
    breaks += slept
    breaks += [
        coverage.Break(at_ns=at, length_ns=0, kind="restart", what=str(body.get("why", "the job was started again")))
        for at, kind, body in run.events
        if kind == "restart"
    ]
    return breaks, [f"at {(one.at_ns - run.start_ns) / NS:.0f} s {one.what}" for one in steps]


def _unknown(run: Run, seen: Gathered) -> list[coverage.Break]:
    """Spans of more than three polls in which the governor itself said `unknown`: telemetry was lost, whichever signal it was."""
    return [
        coverage.Break(at_ns=start, length_ns=end - start, kind="unknown", what="the governor's level was unknown")
        for start, end, level in _spans(run, seen)
        if level == "unknown" and end - start > coverage.POLLS * run.poll_ns
    ]


def _once(memo: "dict[object, Any]", key: "tuple[str, array[int]]", work: "Callable[[], Any]") -> "Any":
    """What `work` gives, done once for all signals that have the same times (most have: they come in the same samples)."""
    found = (key[0], key[1].tobytes())
    if found not in memo:
        memo[found] = work()
    return memo[found]


def _signal(run: Run, name: str, track: "Track | None", memo: "dict[object, Any]") -> Signal:
    unit, side = role(name)
    limit: float | Missing = run.limits[name] if name in run.limits else Missing(reason="not_supported", detail="no limit was set")
    none = Missing(reason="failed", detail="no value was seen")
    if track is None or not track.values:
        return Signal(
            name=name, unit=unit, count=0, coverage=0.0, gaps=1, low=none, p50=none, p95=none, p99=none, high=none, limit=limit, side=side,
            required=name in run.required,
        )  # fmt: skip
    whole = max(run.end_ns - run.start_ns, 1)
    most = coverage.POLLS * run.poll_ns
    weights = _once(memo, ("weights", track.at), lambda: [min(b - a, most) + 1 for a, b in pairwise((*track.at, run.end_ns))])
    covered = _once(memo, ("covered", track.times), lambda: coverage.covered_ns(track.times, run.start_ns, run.end_ns, run.poll_ns))
    gaps = _once(memo, ("gaps", track.times), lambda: len(coverage.gaps(track.times, run.start_ns, run.end_ns, run.poll_ns, name)))
    p50, p95, p99 = trend.percentiles(list(zip(track.values, weights, strict=True)), (0.5, 0.95, 0.99))
    return Signal(
        name=name,
        unit=unit,
        count=len(track.times),
        coverage=covered / whole,
        gaps=gaps,
        low=min(track.values),
        p50=p50,
        p95=p95,
        p99=p99,
        high=max(track.values),
        limit=limit,
        side=side,
        required=name in run.required,
    )


def _inside(track: Track, stretch: coverage.Stretch) -> list[tuple[float, float]]:
    return [(at / NS, value) for at, value in zip(track.at, track.values, strict=True) if stretch.start_ns <= at <= stretch.end_ns]


def _memory_trends(run: Run, seen: Gathered, stretch: coverage.Stretch) -> "dict[str, Any]":
    """hours_to_floor and the steepest slope over every memory signal that has a limit. What is held is turned round: room = limit − held, its floor 0."""
    soonest: float | Missing = Missing(reason="failed", detail="no memory signal with a limit was measured long enough")
    steepest: float | Missing = Missing(reason="failed", detail="no memory signal was measured long enough")
    for name, track in seen.tracks.items():
        last = name.rpartition(".")[2]
        if last not in MEMORY:
            continue
        points = _inside(track, stretch)
        limit = run.limits.get(name)
        held = last == "held_bytes"
        if held:
            points = [(at, (limit or 0) - value) for at, value in points]
        found = trend.slope(points)
        if isinstance(found, Missing):
            continue
        per_hour = -found.likely * 3600
        steepest = per_hour if isinstance(steepest, Missing) else max(steepest, per_hour)
        if limit is not None:
            now = trend.median([value for _, value in points[-trend.LEAST :]])
            left = trend.seconds_to(0 if held else limit, now, found)
            if not isinstance(left, Missing):
                soonest = left[0] / 3600 if isinstance(soonest, Missing) else min(soonest, left[0] / 3600)
    return {"hours_to_floor": soonest, "memory_slope_bytes_per_hour": steepest}


def _throughput_drift(seen: Gathered, stretch: coverage.Stretch) -> "float | Missing":
    """From a rate if one was recorded, else from the growth of a counter (tokens before steps)."""
    for word in ("throughput", "tokens", "step"):
        for name, track in seen.tracks.items():
            if name.rpartition(".")[2] != word:
                continue
            points = _inside(track, stretch)
            rates = points if word == "throughput" else _rates(points)
            found = trend.drift(rates)
            if not isinstance(found, Missing):
                return found
    return Missing(reason="failed", detail="no throughput was measured (a job that imports brim.client tells it; so does --throughput-command)")


def _rates(points: "Sequence[tuple[float, float]]") -> list[tuple[float, float]]:
    """The growth of a counter a second over equal spans of time; a counter that went back (a restart) starts again."""
    cells = trend.binned(points)
    return [((a + b) / 2, (y - x) / (b - a)) for (a, x), (b, y) in pairwise(cells) if b > a and y >= x]


def series(run: Run, seen: Gathered, cells: int = 300) -> tuple[Series, ...]:
    """Every signal whose role is known, as at most `cells` cells of time with the least and greatest value in each: no peak is lost in drawing."""
    found = []
    for name in _names(run, seen):
        track = seen.tracks.get(name)
        unit, side = role(name)
        if track is None or len(track.values) < 2 or not unit or unit == "count":
            continue
        width = max((run.end_ns - run.start_ns) // cells, 1)
        drawn: dict[int, list[float]] = {}
        for at, value in zip(track.at, track.values, strict=True):
            cell = drawn.setdefault((at - run.start_ns) // width, [(at - run.start_ns) / NS, value, value])
            cell[1], cell[2] = min(cell[1], value), max(cell[2], value)
        limit: float | Missing = run.limits[name] if name in run.limits else Missing(reason="not_supported", detail="no limit was set")
        found.append(Series(name=name, unit=unit, points=tuple((cell[0], cell[1], cell[2]) for cell in drawn.values()), limit=limit, side=side))
    return tuple(found)


def bands(run: Run, seen: Gathered) -> tuple[tuple[float, float, str], ...]:
    """(from, to, level) in seconds from the start: neighbouring samples of one level joined; nothing where three polls passed without a sample."""
    return tuple(((a - run.start_ns) / NS, (b - run.start_ns) / NS, level) for a, b, level in _spans(run, seen))


def _spans(run: Run, seen: Gathered) -> "list[list[Any]]":
    """[from, to, level] in monotonic nanoseconds."""
    found: list[list[Any]] = []
    most = coverage.POLLS * run.poll_ns
    for index, (at, level) in enumerate(seen.levels):
        until = seen.levels[index + 1][0] if index + 1 < len(seen.levels) else run.end_ns
        if until - at > most:
            until = at + run.poll_ns
        if found and found[-1][2] == level and at - found[-1][1] <= 1:
            found[-1][1] = until
        else:
            found.append([at, until, level])
    return found


def marks(run: Run) -> tuple[Mark, ...]:
    """What happened, for the time axis: everything but the lines that every run has."""
    found = []
    for at, kind, body in run.events:
        if kind in ("level", "intent", "checkpoint", "fault", "evaluated", "restart", "quality", "child_end"):
            text = str(body.get("reason") or body.get("why") or "")
            what = str(body.get("kind") or body.get("level") or kind)
            if kind == "checkpoint":
                text = f"step {body.get('step')}"
            elif kind == "evaluated":
                text = f"evaluation {body.get('count')}: resume state written"
            elif kind == "child_end":
                text = f"the job ended with {body.get('exit_code')}, by {body.get('by')}"
            found.append(Mark(at_s=(at - run.start_ns) / NS, kind=what if kind == "intent" else kind, text=text or what))
    return tuple(found)
