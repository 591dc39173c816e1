"""Small SVG pictures from values: a curve with its limit, and the strip of levels under it; characters out, nothing is loaded."""

from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from brim.facts.evidence import Series

WIDE, HIGH = 1000.0, 200.0


def chart(series: "Series", marks: "Sequence[float]", seconds: float) -> tuple[float, float, str]:
    """(low, high, SVG) of one series over `seconds`; low and high are what the bottom and the top of the picture stand for, the limit included."""
    values = [value for _, low, high in series.points for value in (low, high)]
    if not isinstance(series.limit, Missing):
        values.append(series.limit)
    low, high = min(values), max(values)
    edge = (high - low) * 0.06 or max(abs(high) * 0.05, 1.0)
    low, high = (low - edge if low - edge > 0 or low < 0 else 0.0), high + edge

    def x(at: float) -> float:
        return round(min(max(at / (seconds or 1), 0), 1) * WIDE, 1)

    def y(value: float) -> float:
        return round(HIGH - (value - low) / (high - low) * HIGH, 1)

    top = " ".join(f"{x(at)},{y(most)}" for at, _, most in series.points)
    bottom = " ".join(f"{x(at)},{y(least)}" for at, least, _ in reversed(series.points))
    curve = " ".join(f"{x(at)},{y((least + most) / 2)}" for at, least, most in series.points)
    lines = "".join(f'<line class="mark" x1="{x(at)}" x2="{x(at)}" y1="0" y2="{HIGH:g}" vector-effect="non-scaling-stroke"/>' for at in marks[:200])
    limit = ""
    if not isinstance(series.limit, Missing):
        limit = f'<line class="limit" x1="0" x2="{WIDE:g}" y1="{y(series.limit)}" y2="{y(series.limit)}" vector-effect="non-scaling-stroke"/>'
    inner = f'<polygon class="span" points="{top} {bottom}"/><polyline class="curve" points="{curve}" vector-effect="non-scaling-stroke"/>'
    return low, high, f'<svg viewBox="0 0 {WIDE:g} {HIGH:g}" preserveAspectRatio="none" role="img" aria-label="chart">{lines}{inner}{limit}</svg>'


def strip(bands: "Sequence[tuple[float, float, str]]", seconds: float, mark: str) -> str:
    """The levels over time as one bar. `mark` makes the names of its patterns unique on the page."""
    patterns = (
        f'<defs><pattern id="{mark}t" width="8" height="8" patternUnits="userSpaceOnUse"><path class="hatch" d="M0 8L8 0"/></pattern>'
        f'<pattern id="{mark}b" width="8" height="8" patternUnits="userSpaceOnUse"><path class="hatch" d="M0 8L8 0M0 0L8 8"/></pattern></defs>'
    )
    drawn = []
    for start, end, level in bands[:2000]:
        left, width = start / (seconds or 1) * WIDE, max((end - start) / (seconds or 1) * WIDE, 0.5)
        box = f'x="{left:.1f}" width="{width:.1f}" y="0" height="20"'
        drawn.append(
            f'<rect class="{level if level in ("run", "throttle", "block") else "unknown"}" {box}><title>{level if level.isalnum() else "unknown"}</title></rect>'
        )
        if level in ("throttle", "block"):
            drawn.append(f'<rect fill="url(#{mark}{level[0]})" {box}/>')
    return f'<svg class="strip" viewBox="0 0 {WIDE:g} 20" preserveAspectRatio="none" role="img" aria-label="levels">{patterns}{"".join(drawn)}</svg>'
