"""Says what a profile's watchdog actions did in one run, counted from the journal's lines; no I/O, no clock."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

# action → (what it does, which lines show it)
MEANING = {
    "pause_or_checkpoint_on_throttle": "at level throttle by heat the job is slowed and then paused; by memory it is asked for a checkpoint",
    "stop_before_oom_when_free_vram_below_floor": "below the floor the job is checkpointed if there is time, then stopped, before the memory is gone",
    "write_resume_state_every_eval_interval": "at each evaluation that the job marks (brim.client.evaluated()) resume.json is written",
    "rerun_quality_gate_after_quantized_export": "when the exported file changes the quality gate is open again, and is run again where the profile gives its command",
}


def _shows(action: str, kind: str, body: "Mapping[str, Any]") -> bool:
    what = str(body.get("kind", ""))
    if action == "pause_or_checkpoint_on_throttle":
        return kind == "intent" and what.split(":", maxsplit=1)[0] in ("slow", "pause", "checkpoint")
    if action == "stop_before_oom_when_free_vram_below_floor":
        return kind == "intent" and what.split(":", maxsplit=1)[0] == "stop" and "free, floor" in str(body.get("reason", ""))
    if action == "write_resume_state_every_eval_interval":
        return kind == "evaluated"
    return kind == "quality" and body.get("event") in ("export", "rerun")


def summary(actions: "Sequence[str]", lines: "Iterable[tuple[int, str, Mapping[str, Any]]]") -> "list[dict[str, Any]]":
    """One row for each action: what it means, how often it acted, and the last time's own words. `lines` are (monotonic ns, kind, body)."""
    held = list(lines)
    start = held[0][0] if held else 0
    rows = []
    for action in actions:
        times = [(at, kind, body) for at, kind, body in held if _shows(action, kind, body)]
        last: dict[str, Any] | None = None
        if times:
            at, kind, body = times[-1]
            said = str(body.get("reason") or f"evaluation {body.get('count')}")
            last = {"at_s": round((at - start) / 1e9, 3), "did": str(body.get("kind") or body.get("event") or kind), "because": said}
        rows.append({"action": action, "does": MEANING.get(action, ""), "times": len(times), "last": last})
    return rows
