"""Robust statistics over dated values: slope with its interval, time to a floor, drift and percentiles; plain numbers in, plain numbers out.

Sources: slope, Theil 1950 and Sen 1968 ("Estimates of the regression coefficient based on Kendall's tau", J. Am. Stat. Assoc. 63): the median of the
slopes of all
pairs; interval by Sen's rank method with the variance of Kendall's S corrected for ties. Series longer than `BINS` are cut into equal spans of time, each
by its
median, so that a day costs what an hour costs. The interval treats the bins as independent: where neighbours move together (a cache that
fills and is emptied) it is too narrow, and says so nowhere else than here.
"""

from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

BINS = 240
Z95 = 1.959964
LEAST = 8


class Slope(Record):
    """A slope in units a second: low ≤ likely ≤ high at 95 %, from `points` binned values over `seconds`."""

    low: float
    likely: float
    high: float
    points: int
    seconds: float

    @property
    def rises(self) -> bool:
        """Shown to rise: the whole interval is above zero."""
        return self.low > 0

    @property
    def falls(self) -> bool:
        """Shown to fall: the whole interval is below zero."""
        return self.high < 0


def median(values: "Sequence[float]") -> float:
    """The median of at least one value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(weighted: "Sequence[tuple[float, float]]", share: float) -> float:
    """The smallest value that at least `share` (0…1) of the weight does not exceed; (value, weight) pairs, at least one, weights ≥ 0."""
    return percentiles(weighted, (share,))[0]


def percentiles(weighted: "Sequence[tuple[float, float]]", shares: "Sequence[float]") -> list[float]:
    """`percentile` for several shares, sorting once; `shares` must rise."""
    ordered = sorted(weighted)
    whole = sum(weight for _, weight in ordered)
    found: list[float] = []
    gone = 0.0
    wanted = list(shares)
    for value, weight in ordered:
        gone += weight
        while len(found) < len(wanted) and gone >= wanted[len(found)] * whole:
            found.append(value)
    return found + [ordered[-1][0]] * (len(wanted) - len(found))


def binned(points: "Sequence[tuple[float, float]]", bins: int = BINS) -> list[tuple[float, float]]:
    """(seconds, value) points, in order of time, as at most `bins` medians over equal spans of time."""
    if len(points) <= bins:
        return list(points)
    start, end = points[0][0], points[-1][0]
    width = (end - start) / bins or 1.0
    cells: list[list[tuple[float, float]]] = [[] for _ in range(bins)]
    for at, value in points:
        cells[min(int((at - start) / width), bins - 1)].append((at, value))
    return [(sum(at for at, _ in cell) / len(cell), median([value for _, value in cell])) for cell in cells if cell]


def slope(points: "Sequence[tuple[float, float]]") -> "Slope | Missing":
    """The slope of (seconds, value) points with its 95 % interval; `Missing` with fewer than `LEAST` points or no span of time."""
    cells = binned(points)
    if len(cells) < LEAST or cells[-1][0] <= cells[0][0]:
        return Missing(reason="failed", detail=f"a slope needs at least {LEAST} values over some time; there are {len(cells)}")
    slopes = sorted(
        (cells[j][1] - cells[i][1]) / (cells[j][0] - cells[i][0]) for i in range(len(cells)) for j in range(i + 1, len(cells)) if cells[j][0] > cells[i][0]
    )
    count = len(cells)
    spread = Z95 * _kendall_variance([value for _, value in cells], count) ** 0.5
    low = max(int((len(slopes) - spread) / 2), 0)
    high = min(int((len(slopes) + spread) / 2 + 1), len(slopes) - 1)
    return Slope(low=slopes[low], likely=median(slopes), high=slopes[high], points=count, seconds=cells[-1][0] - cells[0][0])


def _kendall_variance(values: "Sequence[float]", count: int) -> float:
    """The variance of Kendall's S with ties: (n(n−1)(2n+5) − Σ t(t−1)(2t+5)) / 18."""
    ties: dict[float, int] = {}
    for value in values:
        ties[value] = ties.get(value, 0) + 1
    whole = count * (count - 1) * (2 * count + 5) - sum(tie * (tie - 1) * (2 * tie + 5) for tie in ties.values())
    return max(whole, 0) / 18


def seconds_to(floor: float, now: float, falling: "Slope | Missing") -> "tuple[float, float] | Missing":
    """(likely, soonest) seconds until a falling value reaches `floor`; infinite where it is not shown to fall, 0 where it is there already."""
    if isinstance(falling, Missing):
        return falling
    if now <= floor:
        return 0.0, 0.0
    if not falling.falls:
        return float("inf"), float("inf")
    return (floor - now) / falling.likely, (floor - now) / falling.low


def drift(points: "Sequence[tuple[float, float]]") -> "float | Missing":
    """The change over the whole series as a share of its median (−0.1: a tenth slower at the end), by the robust slope; `Missing` where it cannot be told."""
    found = slope(points)
    if isinstance(found, Missing):
        return found
    middle = median([value for _, value in binned(points)])
    if middle <= 0:
        return Missing(reason="failed", detail="the median of the series is not above zero")
    return found.likely * found.seconds / middle
