"""One line about a run in progress: level, free memory against the floor, temperature, forecast, last checkpoint, phase; values in, characters out."""

from brim.facts.look import Look
from brim.facts.settings import Limits
from brim.policy.states import BLOCK, RUN, THROTTLE, UNKNOWN, State
from brim.units import format_bytes, format_ns

# A sign and a colour for each level: the sign alone says it, the colour only helps.
SIGNS = {RUN: "●", THROTTLE: "▲", BLOCK: "■", UNKNOWN: "?"}
COLOURS = {RUN: "32", THROTTLE: "33", BLOCK: "31", UNKNOWN: "35"}
CELLS = 12


def line(limits: Limits, state: State, look: Look, now: int, *, width: int = 100, colour: bool = False) -> str:
    """The line, at most `width` characters wide (colour codes not counted)."""
    level = f"{SIGNS[state.level]} {state.level}"
    parts = [f"{(now - state.began_ns) // 1_000_000_000} s", *_memory(limits, state), *_heat(state)]
    if state.halt is not None:
        parts.insert(0, f"stopping: {state.halt.stage} ({state.halt.cause})")
    elif state.ask is not None:
        parts.insert(0, "checkpoint asked for")
    if state.rung != "full_speed":
        parts.append(state.rung.replace("_", " "))
    parts.append(_checkpoint(state, now))
    words = look.words
    if words is not None and (words.phase or words.step):
        parts.append(f"{words.phase or 'running'}, step {words.step}")
    text = " · ".join(part for part in parts if part)
    text = text[: max(0, width - len(level) - 2)]
    return (f"\x1b[{COLOURS[state.level]}m{level}\x1b[0m" if colour else level) + "  " + text


def _memory(limits: Limits, state: State) -> list[str]:
    """The tightest device: a bar of its room above the floor, and when the floor would be reached."""
    rows = [trend for trend in state.trends if trend.samples]
    if not rows:
        return ["free memory unknown"]
    tightest = min(rows, key=lambda trend: trend.samples[-1][1])
    free = tightest.samples[-1][1]
    whole = max(tightest.first_room, 1)
    full = min(CELLS, max(0, round(CELLS * (free - limits.floor_bytes) / whole)))
    parts = [f"{tightest.device} [{'█' * full}{'░' * (CELLS - full)}] {format_bytes(free)} free, floor {format_bytes(limits.floor_bytes)}"]
    if tightest.rate and tightest.to_floor_ns > 0 and tightest.to_floor_ns < 3600 * 10**9:
        parts.append(f"floor in {format_ns(tightest.to_floor_ns)}")
    return parts


def _heat(state: State) -> list[str]:
    values = [(float(track.value), track) for track in state.tracks if track.name.startswith("temperature:") and track.value is not None]
    if not values:
        return []
    value, track = max(values, key=lambda pair: pair[0])
    return [f"{value:.0f} °C{' (lost)' if track.lost else ''}"]


def _checkpoint(state: State, now: int) -> str:
    if state.checkpoint_at_ns < 0:
        return ""
    return f"saved step {state.checkpoint_step}, {format_ns(max(0, now - state.checkpoint_at_ns))} ago"
