"""Values, units and errors: what everything else stands on."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brim import errors, units
from brim.values import Missing, Record, plain


class Point(Record):
    x: int
    y: int = 2


def test_a_record_is_frozen_keyword_only_and_complete() -> None:
    """Fields are given by name, once, all of them, and never change."""
    point = Point(x=1)
    assert (point.x, point.y) == (1, 2)
    assert point == Point(x=1, y=2) != Point(x=2)
    assert hash(point) == hash(Point(x=1))
    assert point.replace(y=5) == Point(x=1, y=5)
    assert pickle.loads(pickle.dumps(point)) == point
    for wrong in (lambda: Point(y=1), lambda: Point(x=1, z=3), lambda: Point(1)):  # type: ignore[call-arg,misc]
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(AttributeError, match="frozen"):
        point.x = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        point.z = 3  # type: ignore[attr-defined]


def test_missing_has_no_arithmetic_and_no_truth() -> None:
    """An unknown number cannot be used as one by accident."""
    missing = Missing(reason="denied", detail="no permission")
    for wrong in (lambda: missing + 1, lambda: missing < 1, lambda: bool(missing), lambda: max(missing, 1)):  # type: ignore[operator,type-var]
        with pytest.raises(TypeError):
            wrong()
    assert plain({"a": (missing, Point(x=1))}) == {"a": [{"missing": "denied", "detail": "no permission"}, {"x": 1, "y": 2}]}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0), ("1", 1), ("24GiB", 24 << 30), ("512MiB", 512 << 20), ("24GB", 24 * 10**9), ("24Gi", 24 << 30), ("24g", 24 << 30), ("1.5GiB", 3 << 29),
        (" 10 KiB ", 10240), ("0.1GB", 10**8), ("2TiB", 2 << 40), ("5B", 5), ("1e3", None), ("GiB", None), ("", None), ("-1", None), ("1.2.3", None),
        ("24GiBs", None), ("nan", None), ("²", None), ("٣", None), (".", None),
    ],
)  # fmt: skip
def test_sizes(text: str, count: int | None) -> None:
    """Binary and decimal units are told apart; what is no size is a ValueError that shows how to write one."""
    if count is None:
        with pytest.raises(ValueError, match="is no size"):
            units.parse_size(text)
    else:
        assert units.parse_size(text) == count


@pytest.mark.parametrize(
    ("text", "ns"), [("20s", 20e9), ("30m", 1800e9), ("24h", 86400e9), ("7", 7e9), ("0.5", 5e8), ("200ms", 2e8), ("1d", 86400e9), ("x", None), ("1y", None)]
)
def test_times(text: str, ns: float | None) -> None:
    """A bare number is seconds."""
    if ns is None:
        with pytest.raises(ValueError, match="is no time"):
            units.parse_time(text)
    else:
        assert units.parse_time(text) == int(ns)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1 << 20, "1.00 MiB"), ((1 << 30) - 1, "1024.00 MiB"), (3 << 40, "3.00 TiB"), (-2048, "-2.00 KiB"), (5 << 50, "5120.00 TiB")]
)  # fmt: skip
def test_format_bytes(count: int, text: str) -> None:
    """Two decimals, B to TiB."""
    assert units.format_bytes(count) == text


@given(st.lists(st.tuples(st.integers(0, 2**50), st.integers(0, 2**40), st.integers(0, 2**40))))
def test_spans_add_end_by_end(parts: list[tuple[int, int, int]]) -> None:
    """The sum of spans keeps low ≤ likely ≤ high, and equals the sums of its ends."""
    spans = [units.Span(low=a, likely=a + b, high=a + b + c) for a, b, c in parts]
    whole = units.total(spans)
    assert whole.low <= whole.likely <= whole.high
    assert (whole.low, whole.likely, whole.high) == (sum(s.low for s in spans), sum(s.likely for s in spans), sum(s.high for s in spans))


# DESIGN.md, section 6: one row a class of failure
EXIT_TABLE = [
    (errors.BrimError, 1), (errors.Usage, 2), (errors.Unreadable, 2), (errors.Refused, 3), (errors.CannotTell, 4), (errors.BadCheckpoint, 5), (errors.NotACheckpoint, 5),
    (errors.EmptyFile, 5), (errors.NotARegularFile, 5), (errors.UnsupportedVersion, 5), (errors.Truncated, 5), (errors.BadHeader, 5), (errors.TooLarge, 5),
    (errors.BadTensor, 5), (errors.BadShards, 5), (errors.NoSuchDevice, 6), (errors.BrokenJournal, 7), (errors.ClaimNotSupported, 8), (errors.KilledByOther, 9),
    (errors.Stopped, 75),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "code"), EXIT_TABLE)
def test_exit_codes(kind: type[errors.BrimError], code: int) -> None:
    """Each class of failure has the documented exit code, a reason word of its own, and a hint."""
    assert kind.exit_code == code
    assert kind("x").hint
    assert [other for other, _ in EXIT_TABLE if other.reason == kind.reason] == [kind]


def test_the_exit_table_is_complete() -> None:
    """No error class is missing from the table above."""
    classes = {item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, errors.BrimError)}
    assert classes == {kind for kind, _ in EXIT_TABLE}
