"""What one run showed: measures by name, each a number, a truth or `Missing`, with the signals, breaks and comparisons that they were taken from."""

from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Signal(Record):
    """One signal over the run, in its own unit: time-weighted percentiles, extremes, coverage and the limit that it is held against.

    `coverage` is the share of the run that its values cover.

    `side` is `ceiling` where the limit must not be reached from below and `floor` where it must not be passed from above; `limit` is `Missing` where none
    was set.
    """

    name: str
    unit: str
    count: int
    coverage: float
    gaps: int
    low: "float | Missing"
    p50: "float | Missing"
    p95: "float | Missing"
    p99: "float | Missing"
    high: "float | Missing"
    limit: "float | Missing"
    side: str
    required: bool


class Interruption(Record):
    """One break in the evidence: seconds from the run's start, its length in seconds, its kind, and what was missing."""

    at_s: float
    length_s: float
    kind: str
    what: str


class Comparison(Record):
    """Prediction beside measurement on one device, in bytes."""

    device: str
    low: int
    likely: int
    high: int
    measured: int
    within: bool


class Evidence(Record):
    """Everything that claims may rest on. `measures` are the words that a claim's needs use (the table in evidence.py says what each is)."""

    run: str
    measures: "Mapping[str, float | int | bool | str | Missing]"
    signals: tuple[Signal, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    level_seconds: "Mapping[str, float]"
    comparisons: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()


class Series(Record):
    """One signal drawn: (seconds from the start, least, greatest) for each cell of time, in its own unit, with its limit and which side must be kept."""

    name: str
    unit: str
    points: "tuple[tuple[float, float, float], ...]"
    limit: "float | Missing"
    side: str


class Mark(Record):
    """One event on the time axis: seconds from the start, its kind, and what happened."""

    at_s: float
    kind: str
    text: str
