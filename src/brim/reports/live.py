"""One line about a run in progress: level, free memory against the floor, temperature, forecast, last checkpoint, phase; values in, characters out."""

from brim.facts.look import Look
from brim.facts.settings import Limits
from brim.policy.states import BLOCK, RUN, THROTTLE, UNKNOWN, State
from brim.units import format_bytes, format_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

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


def screen(document: "Mapping[str, Any]") -> list[str]:
    """What `brim top` shows of a `brim.top/1` document: the run, its levels and readings, and what was done last."""
    rows = [f"run      {document['run']}", f"command  {' '.join(document['command'])[:120]}"]
    sample, limits = document["sample"], document["limits"]
    if sample is None:
        rows.append("no sample yet")
    else:
        age = (document["sample_wall_ns"] - document["began_wall_ns"]) // 1_000_000_000
        rows.append(f"level    {SIGNS.get(sample['level'], '?')} {sample['level']} after {age} s" + (" (ended)" if document["ended"] else ""))
        floor = limits.get("floor_bytes", 0)
        rows.append(f"memory   {_size(sample['free_bytes'])} free, floor {format_bytes(floor)}; the job holds {_size(sample['held_bytes'])}")
        rows += [f"{name:<8} {_row(value)}" for name, value in sample.items() if isinstance(value, dict) and "temperature_c" in value]
        if isinstance(sample.get("job"), dict):
            job = sample["job"]
            rows.append(f"job      {job['phase'] or 'running'}, step {job['step']}" + (f", {job['tokens']} tokens" if job["tokens"] else ""))
    if "job_pid" in document:
        rows.append(f"alive    the job still runs, as pid {document['job_pid']}; until it has ended it is not resumed")
    for entry in document["last"]:
        body = entry["body"]
        seconds = (entry["wall_ns"] - document["began_wall_ns"]) / 1e9
        text = body.get("reason") or body.get("outcome") or body.get("path") or body.get("by") or ""
        rows.append(f"{seconds:8.1f} s  {entry['kind']} {body.get('kind', body.get('level', ''))} {text}"[:160].rstrip())
    return rows


def _size(value: object) -> str:
    return format_bytes(value) if isinstance(value, int) else "unknown"


def _row(value: "Mapping[str, Any]") -> str:
    heat, draw = value.get("temperature_c"), value.get("power_draw_w")
    parts = [f"{_size(value.get('free_bytes'))} free"]
    parts += [f"{heat:.0f} °C"] if isinstance(heat, (int, float)) else []
    parts += [f"{draw:.0f} W"] if isinstance(draw, (int, float)) else []
    return ", ".join(parts)
