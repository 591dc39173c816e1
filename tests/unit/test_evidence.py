"""Statistics and coverage as tables of promises, a day of soak on a virtual clock, and the claims that it does and does not support."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim import claim as claims
from brim import coverage, evidence, trend
from brim.facts.profile import ClaimRule, Need
from brim.journal import blocks
from brim.values import Missing

NS = 10**9
DAY = 86400


@pytest.mark.parametrize(("rate", "start"), [(0.0, 5.0), (1.0, 0.0), (-3.5, 1e6), (1e-6, 1e9)])
def test_a_line_has_its_slope(rate: float, start: float) -> None:
    """Points on a line give its slope, and an interval of no width."""
    found = trend.slope([(float(t), start + rate * t) for t in range(100)])
    assert not isinstance(found, Missing)
    assert found.likely == pytest.approx(rate, abs=1e-9)
    assert found.high - found.low == pytest.approx(0, abs=1e-9)


def test_the_interval_holds_what_it_promises() -> None:
    """Over 200 noisy series with a known slope the 95 % interval holds it in at least 180 (fixed seeds); a tenth of wild outliers moves the slope by less than its interval."""
    held = 0
    for seed in range(200):
        draw = random.Random(seed)
        points = [(float(t), 0.25 * t + draw.gauss(0, 10)) for t in range(120)]
        found = trend.slope(points)
        assert not isinstance(found, Missing)
        held += found.low <= 0.25 <= found.high
    assert held >= 180
    draw = random.Random(1)
    spoilt = [(float(t), 0.25 * t + draw.gauss(0, 1) + (5000 if t % 10 == 3 else 0)) for t in range(240)]
    robust = trend.slope(spoilt)
    assert not isinstance(robust, Missing)
    assert abs(robust.likely - 0.25) < 0.05


def test_few_values_give_no_slope() -> None:
    """Fewer than eight values, or values at one instant, give no slope but the reason."""
    assert isinstance(trend.slope([(float(t), 1.0) for t in range(7)]), Missing)
    assert isinstance(trend.slope([(1.0, float(t)) for t in range(9)]), Missing)
    assert isinstance(trend.drift([]), Missing)


@pytest.mark.parametrize(
    ("now", "rate", "floor", "hours"),
    [(100.0, -1.0, 40.0, 60 / 3600), (100.0, 0.0, 40.0, float("inf")), (100.0, 1.0, 40.0, float("inf")), (40.0, -1.0, 40.0, 0.0)],
)
def test_time_to_the_floor(now: float, rate: float, floor: float, hours: float) -> None:
    """Room over slope where it falls; infinite where it is not shown to fall; nothing left where the floor is reached."""
    found = trend.seconds_to(floor, now, trend.slope([(float(t), rate * t) for t in range(50)]))
    assert not isinstance(found, Missing)
    assert found[0] / 3600 == pytest.approx(hours)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.001, 1e3)), min_size=1, max_size=60), st.floats(0, 1))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_percentiles_are_values_and_rise(weighted: "list[tuple[float, float]]", share: float) -> None:
    """A percentile is one of the values, and a greater share never gives a lesser value."""
    low, mid, high = trend.percentiles(weighted, sorted((0.0, share, 1.0)))
    assert low <= mid <= high
    assert mid in [value for value, _ in weighted]
    assert high == max(value for value, _ in weighted)


@pytest.mark.parametrize(
    ("times", "gaps", "covered"),
    [
        (range(11), 0, 10),
        ([0, 3, 6, 9, 10], 0, 10),
        ([0, 4, 5, 6, 7, 8, 9, 10], 1, 7),
        ([5, 6, 7, 8, 9, 10], 1, 5),
        ([0, 1, 2], 1, 3),
        ([], 1, 0),
    ],
)
def test_gaps_and_coverage(times: "list[int]", gaps: int, covered: int) -> None:
    """Up to three polls is no gap; a longer one is, at the start and at the end too, and only one poll of it is covered."""
    stamps = [t * NS for t in times]
    assert len(coverage.gaps(stamps, 0, 10 * NS, NS, "x")) == gaps
    assert coverage.covered_ns(stamps, 0, 10 * NS, NS) == covered * NS


@pytest.mark.parametrize(("jump", "slept", "steps"), [(0, 0, 0), (2, 0, 0), (3600, 1, 0), (-3600, 0, 1)])
def test_suspended_clocks(jump: int, slept: int, steps: int) -> None:
    """A wall clock that ran ahead by more than three polls is a suspension; one that went back is a step and breaks nothing."""
    clocks = [(t * NS, (t + (jump if t >= 5 else 0)) * NS) for t in range(10)]
    found, stepped = coverage.suspensions(clocks, NS)
    assert (len(found), len(stepped)) == (slept, steps)


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 50)), max_size=12))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_the_longest_stretch_is_free_of_breaks(raw: "list[tuple[int, int]]") -> None:
    """No break lies inside the stretch, and no longer span without a break exists (checked against every pair of edges)."""
    breaks = [coverage.Break(at_ns=at, length_ns=length, kind="gap", what="") for at, length in raw]
    found = coverage.longest(0, 1050, breaks)
    edges = sorted({0, 1050, *(at for at, _ in raw), *(at + length for at, length in raw)})

    def free(low: int, high: int) -> bool:
        return all(at >= high or at + length <= low for at, length in raw if length) and not any(low < at < high for at, length in raw if not length)

    assert free(found.start_ns, found.end_ns) or found.start_ns == found.end_ns
    best = max((high - low for low in edges for high in edges if high > low and free(low, high)), default=0)
    assert found.end_ns - found.start_ns == best


class Soak:
    """A day on a virtual clock: what a governor would have written, with what a test does to it."""

    def __init__(self, seconds: int = DAY, poll: int = 10) -> None:
        self.seconds, self.poll = seconds, poll
        self.seen = evidence.Gathered()
        self.events: list[tuple[int, str, dict[str, object]]] = []
        self.level = lambda t: "run"
        self.free = lambda t: 10e9 + (t * 7919 % 1000) * 1e4
        self.rate = lambda t: 50 + (t * 104729 % 100) / 100
        self.skip = lambda t: False
        self.wall = lambda t: t
        self.drop = lambda t: False

    def evidence(self, **more: object) -> evidence.Evidence:
        for t in range(0, self.seconds + 1, self.poll):
            if not self.skip(t):
                values = [("free_bytes", None if self.drop(t) else self.free(t)), ("cuda:0.temperature_c", 60.0), ("job.throughput", self.rate(t))]
                self.seen.add(t * NS, self.wall(t) * NS, self.level(t), values)
        run = evidence.Run(
            name="soak", start_ns=0, end_ns=self.seconds * NS, poll_ns=self.poll * NS, limits={"free_bytes": 6e9, "cuda:0.temperature_c": 82},
            required=("free_bytes", "cuda:0.temperature_c"), events=tuple(self.events), **({"journal_holds": True, "end_record": True} | more),  # type: ignore[arg-type]
        )  # fmt: skip
        return evidence.of(run, self.seen)


def allowed(found: evidence.Evidence, name: str = "stable_long_run") -> "claims.Verdict":
    return next(one for one in claims.judge(claims.rules_of(()), found) if one.name == name)


def test_a_clean_day_is_stable() -> None:
    """24 hours without a fault, at full coverage, with steady throughput and memory, support the claim."""
    found = Soak().evidence()
    assert allowed(found).allowed, allowed(found).missing
    assert found.measures["continuous_hours"] == 24
    assert found.measures["coverage"] == 1


@pytest.mark.parametrize(
    ("spoil", "missing"),
    [
        ({"seconds": DAY - 20}, "continuous_hours"),
        ({"skip": lambda t: 40000 < t < 40040}, "continuous_hours"),
        ({"drop": lambda t: 40000 < t < 40040}, "continuous_hours"),
        ({"wall": lambda t: t + (7200 if t > 50000 else 0)}, "continuous_hours"),
        ({"events": [(40000 * NS, "restart", {})]}, "continuous_hours"),
        ({"events": [(40000 * NS, "fault", {})]}, "faults"),
        ({"level": lambda t: "block" if 500 < t < 600 else "run"}, "block_seconds"),
        ({"free": lambda t: 10e9 - t * 20000}, "hours_to_floor"),
        ({"rate": lambda t: 50 - t / DAY * 5}, "throughput_drift"),
        ({"rate": lambda t: None}, "throughput_drift"),
        ({"journal_holds": False}, "journal_holds"),
        ({"end_record": False}, "end_record"),
        ({"governed": False}, "governed"),
    ],
)
def test_what_spoils_a_day(spoil: "dict[str, object]", missing: str) -> None:
    """Each of these alone keeps the claim from being made, and the answer names what is missing."""
    more = {key: spoil.pop(key) for key in ("journal_holds", "end_record", "governed") if key in spoil}
    soak = Soak(int(spoil.pop("seconds", DAY)))  # type: ignore[call-overload]
    for key, value in spoil.items():
        setattr(soak, key, value)
    verdict = allowed(soak.evidence(**more))
    assert not verdict.allowed
    assert any(text.startswith(missing) for text in verdict.missing), verdict.missing


def test_three_polls_are_no_gap_and_a_memory_step_is_no_leak() -> None:
    """Two samples lost in a row, and memory that settles once, do not spoil a day."""
    soak = Soak()
    soak.skip = lambda t: t in (40010, 40020)
    soak.free = lambda t: (12e9 if t < 3000 else 10e9) + (t * 7919 % 1000) * 1e4
    assert allowed(soak.evidence()).allowed


def test_an_interrupted_soak_proves_its_longest_stretch() -> None:
    """A block before the gap does not spoil the 25 hours after it; only they count."""
    soak = Soak(30 * 3600)
    soak.skip = lambda t: 4 * 3600 < t < 5 * 3600
    soak.level = lambda t: "block" if t < 60 else "run"
    found = soak.evidence()
    assert found.measures["continuous_hours"] == pytest.approx(25, abs=0.02)
    assert allowed(found).allowed


def test_nothing_ever_grants_the_impossible() -> None:
    """A profile cannot make an impossible claim possible, nor drop a built-in need; a claim without needs is never allowed."""
    rules = claims.rules_of([
        ClaimRule(name="world_best", says="we are", needs=(Need(measure="governed", compare="is", bound=True),)),
        ClaimRule(name="stable_long_run", says="", needs=(Need(measure="coverage", compare="at_least", bound=1.0),)),
        ClaimRule(name="empty", says="x"),
    ])  # fmt: skip
    found = {one.name: one for one in claims.judge(rules, Soak(3600).evidence())}
    assert not found["world_best"].allowed
    assert not found["no_bottleneck_forever"].allowed
    assert not found["stable_long_run"].allowed
    assert any("coverage" in text for text in found["stable_long_run"].evidence)
    assert not found["empty"].allowed
    assert found["world_best"].missing


@pytest.mark.parametrize("value", [Missing(reason="gone"), None, "24", True, float("nan"), 23.999])
def test_only_a_number_is_at_least(value: object) -> None:
    """A missing value, a text, a truth or NaN never satisfies a need for a number."""
    assert not claims.holds(Need(measure="x", compare="at_least", bound=24), value)


def test_thinned_days_give_the_same_answer() -> None:
    """A day whose samples were thinned supports the same claim, with the same extremes, as the day itself; a gap in it still shows."""
    import json

    for gap in (False, True):
        rows = []
        for t in range(0, DAY + 1, 10):
            if not (gap and 40000 < t < 40100):
                body = {"level": "run", "free_bytes": 10**10 + t * 7919 % 1000, "cuda:0": {"temperature_c": 60}, "job": {"throughput": 50 + t % 3}}
                rows.append((t, t * NS, t * NS, json.dumps(body)))
        soak = Soak()
        for bucket in blocks.thin(rows):
            soak.seen.add_bucket(bucket)
        soak.skip = lambda t: True
        found = soak.evidence()
        assert allowed(found).allowed is not gap, allowed(found).missing
        free = next(signal for signal in found.signals if signal.name == "free_bytes")
        assert (free.low, free.high) == (10**10, 10**10 + max(t * 7919 % 1000 for t in range(0, DAY + 1, 10)))
