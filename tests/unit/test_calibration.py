"""What a machine may teach: bounds that no observation can break, outliers named, spans that narrow only with agreement."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim import calibration
from brim.engines.base import Part, Plan
from brim.units import MIB, Span, exactly

DEVICES = {"cpu": "cpu x86_64"}


def plan(low: int = 90 * MIB, likely: int = 100 * MIB, high: int = 120 * MIB, name: str = "compute_buffer") -> Plan:
    parts = (
        Part(name="weights", device="cpu", bytes=exactly(1000 * MIB), rule="w", source="file"),
        Part(name=name, device="cpu", bytes=Span(low=low, likely=likely, high=high), rule="r", source="s"),
    )
    return Plan(engine="llama.cpp", engine_version="b1", parts=parts, workload={})


def seen(measured: int, run: str = "r", *, part: str = "compute_buffer", predicted: int = 100 * MIB, **more: str) -> calibration.Observation:
    fields = {"engine": "llama.cpp", "version": "b1", "device": "cpu x86_64", "architecture": "llama", "at": "2026-05-04T10:00:00+00:00"} | more
    return calibration.Observation(run=run, part=part, predicted_bytes=predicted, measured_bytes=measured, **fields)  # type: ignore[arg-type]


def applied(observations: "list[calibration.Observation]", base: Plan | None = None) -> dict[str, Part]:
    return {part.name: part for part in calibration.apply(base or plan(), observations, DEVICES, "llama").parts}


@given(st.lists(st.integers(0, 1 << 50), min_size=1, max_size=20), st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_no_observation_breaks_the_bounds(measured: "list[int]", a: int, b: int, c: int) -> None:
    """Whatever was observed, no end of the new span is below the low end that was predicted, the span is a span, and exact parts are untouched."""
    low, likely, high = sorted((a * MIB, b * MIB, c * MIB))
    base = plan(low, likely, high)
    found = calibration.apply(base, [seen(m, f"r{i}") for i, m in enumerate(measured)], DEVICES, "llama")
    for old, new in zip(base.parts, found.parts, strict=False):
        assert old.bytes.low <= new.bytes.low <= new.bytes.likely <= new.bytes.high
        assert not old.bytes.exact or new == old
    assert found.total().low >= base.total().low


def test_a_refusal_at_the_low_end_stands() -> None:
    """A store that claims nothing is needed cannot make a plan fit a budget below its predicted low end."""
    parts = applied([seen(0, f"r{i}") for i in range(50)])
    assert parts["compute_buffer"].bytes.low == parts["compute_buffer"].bytes.likely == 90 * MIB


def test_more_than_predicted_is_believed_at_once() -> None:
    """One run that needed more raises the likely and the high end."""
    part = applied([seen(300 * MIB)])["compute_buffer"]
    assert part.bytes.likely == 300 * MIB
    assert part.bytes.high >= 300 * MIB


def test_spans_narrow_with_agreement_only() -> None:
    """One run narrows nothing; agreeing runs narrow step by step, never to nothing; disagreeing runs keep the span as wide as they differ."""
    widths = []
    for count in (1, 2, 4, 8, 16):
        span = applied([seen(100 * MIB, f"r{i}") for i in range(count)])["compute_buffer"].bytes
        widths.append(span.high - span.low)
    assert widths[0] >= 30 * MIB
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == len(widths)
    assert widths[-1] > 0
    apart = applied([seen((92 + 2 * (i % 9)) * MIB, f"r{i}") for i in range(18)])["compute_buffer"].bytes
    assert apart.low <= 92 * MIB
    assert apart.high >= 108 * MIB


def test_outliers_are_left_out_and_named() -> None:
    """A run with foreign processes on the device, and one far from all others, count for nothing and stand in the source."""
    runs = [seen((100 + i % 2) * MIB, f"r{i}") for i in range(6)] + [
        seen(900 * MIB, "wild"),
        seen(500 * MIB, "shared", foreign="pid 77 held 400 MiB on the device"),
    ]
    part = applied(runs)["compute_buffer"]
    assert part.bytes.high < 140 * MIB
    assert "wild" in part.source
    assert "pid 77" in part.source
    assert part.source.startswith("measured here on 2026-05-04, 6 runs")
    only = applied([seen(500 * MIB, "shared", foreign="pid 77")])["compute_buffer"]
    assert only == plan().parts[1]


@pytest.mark.parametrize("other", [{"version": "b2"}, {"engine": "vllm"}, {"device": "cpu arm64"}, {"architecture": "qwen3"}])
def test_only_the_same_key_counts(other: "dict[str, str]") -> None:
    """Another engine, version, device or architecture teaches nothing."""
    assert applied([seen(300 * MIB, **other)])["compute_buffer"] == plan().parts[1]


def test_a_fixed_overhead_is_learnt() -> None:
    """The peak less every other part becomes the device's overhead in the next plan, with its date; the engine's own figure counts before the predicted one."""
    base = plan()
    about = {"at": "2026-05-04T10:00:00+00:00", "run": "r1", "architecture": "llama"}
    found = calibration.observe(base, {("compute_buffer", "cpu"): 110 * MIB}, {"cpu": 1160 * MIB}, DEVICES, about)
    assert {(one.part, one.measured_bytes) for one in found} == {("compute_buffer", 110 * MIB), ("context_overhead", 50 * MIB)}
    short = calibration.observe(base, {("compute_buffer", "cpu"): 110 * MIB}, {"cpu": 300 * MIB}, DEVICES, about)
    assert [one.part for one in short] == ["compute_buffer"]
    parts = applied(list(found))
    assert parts["context_overhead"].bytes.likely == 50 * MIB
    assert parts["context_overhead"].source == "measured here on 2026-05-04, 1 run"
    assert "compute_buffer" in parts


def test_hypothetical_devices_learn_and_are_told_nothing() -> None:
    """A device that has no name in the table (a hypothetical one) is left as it was priced."""
    assert calibration.apply(plan(), [seen(300 * MIB)], {}, "llama") == plan()


@pytest.mark.parametrize("rows", [None, {}, [1], [{}], [{"at": 1}], [{"predicted_bytes": -1}], [{"measured_bytes": True}]])
def test_a_damaged_store_teaches_nothing(rows: object) -> None:
    """Rows that do not hold are left out."""
    assert calibration.from_rows(rows) == ()
