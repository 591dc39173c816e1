"""Turns a decoded profile document into a checked profile; an unknown word is an error that names the nearest known one; it reads no file.

Guarantees: every error is a `Usage` that names the source, the section and the key. Not covered: whether the limits make sense for the machine (the gate says).
"""

from brim.errors import Usage
from brim.facts.profile import ClaimRule, Need, Profile
from brim.units import parse_size, parse_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SCHEMA = "brim.profile/1"
ACTIONS = (
    "pause_or_checkpoint_on_throttle",
    "stop_before_oom_when_free_vram_below_floor",
    "write_resume_state_every_eval_interval",
    "rerun_quality_gate_after_quantized_export",
)
SECTIONS: "dict[str, dict[str, str]]" = {
    "": {"schema": "text", "name": "text", "description": "text"},
    "hardware": {"target": "text", "device": "text", "backend": "cpu|cuda|rocm|xpu|metal|vulkan", "memory_gib": "positive"},
    "model": {"target": "text", "path": "text", "dense_class_params": "count"},
    "model.compressed": {"bits_per_parameter": "positive", "kept": "count", "of": "count", "overhead": "number"},
    "model.feasible": {"beside_weights_gib": "number", "reserve_fraction": "fraction"},
    "limits": {
        "memory_budget": "size", "floor": "size", "throttle_margin": "size", "max_temp": "number", "throttle_temp_margin": "number", "poll": "time",
        "grace": "time", "checkpoint_signal": "text", "checkpoint_every": "time", "on_unknown": "keep|checkpoint|stop", "require_telemetry": "flag",
        "power_cap": "positive", "wait": "time", "on_oom": "text", "die_with_me": "flag", "reserve": "fraction",
    },
    "watchdog": {"floor_at_least_gib": "number", "floor_over_weights_gib": "number", "poll_seconds": "positive", "actions": "actions"},
    "runtime_profile": {
        "precision": "text", "training_mode": "text", "full_dense_adam_training": "text", "microbatch": "count", "gradient_checkpointing": "flag",
        "cpu_nvme_offload": "flag", "max_persistent_tokens": "count", "exact_memory": "text",
    },
    "quality": {"required": "flag", "metric": "text", "max_drop": "number", "baseline": "scalar", "command": "texts", "artifact": "text"},
    "report": {"schema_version": "text", "file_stem": "text", "title": "text"},
    "claims": {"name": "text", "says": "text", "needs": "needs", "never_needs": "texts", "impossible": "text"},
    "claims.needs": {"measure": "text", "at_least": "number", "at_most": "number", "is": "scalar", "why": "text"},
}  # fmt: skip


def interpret(document: "Mapping[str, Any]", source: str) -> Profile:
    """The profile in a decoded TOML document; `Usage` for an unknown key, a wrong kind of value, or a missing name."""
    tables: dict[str, Mapping[str, Any]] = {}
    top = {key: value for key, value in document.items() if not isinstance(value, dict) and key != "claims"}
    _check(top, "", source)
    if top.get("schema", SCHEMA) != SCHEMA:
        raise Usage(f"{source}: schema is {top['schema']!r}, and this brim reads {SCHEMA!r}")
    if not top.get("name"):
        raise Usage(f"{source}: a profile needs a name", hint='Write name = "…" at the top.')
    for key, value in document.items():
        if key in top or key == "claims":
            continue
        _known(key, [name for name in SECTIONS if name and "." not in name], source, "section")
        tables[key] = _table(key, value, source)
    claims = tuple(_claim(entry, source) for entry in _entries(document.get("claims", []), source))
    return Profile(
        name=top["name"],
        source=source,
        description=top.get("description", ""),
        claims=claims,
        **{key: tables.get(key, {}) for key in ("hardware", "model", "limits", "watchdog", "runtime_profile", "quality", "report")},
    )


def _table(name: str, table: "Mapping[str, Any]", source: str) -> "Mapping[str, Any]":
    """One section and its sub-sections, checked."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    below = [key.removeprefix(name + ".") for key in SECTIONS if key.startswith(name + ".")]
    for key, value in table.items():
        if isinstance(value, dict):
            _known(key, [*below, *SECTIONS[name]], source, f"key in [{name}]")
            if key not in below:
                raise Usage(f"{source}: [{name}] {key} takes a single value, not a table")
            _check(value, f"{name}.{key}", source)
    _check(plain, name, source)
    return dict(table)


def _entries(claims: object, source: str) -> "list[Mapping[str, Any]]":
    if not isinstance(claims, list) or not all(isinstance(entry, dict) for entry in claims):
        raise Usage(f"{source}: claims are written as [[claims]] tables")
    return claims


def _claim(entry: "Mapping[str, Any]", source: str) -> ClaimRule:
    """One [[claims]] table; a built-in one may be named without repeating its needs."""
    _check(entry, "claims", source)
    if not entry.get("name"):
        raise Usage(f"{source}: every [[claims]] table needs a name")
    needs = []
    for need in entry.get("needs", []):
        _check(need, "claims.needs", source)
        given = [word for word in ("at_least", "at_most", "is") if word in need]
        if len(given) != 1 or "measure" not in need:
            raise Usage(f"{source}: a need of claim {entry['name']!r} takes a measure and exactly one of at_least, at_most and is")
        needs.append(Need(measure=need["measure"], compare=given[0], bound=need[given[0]], why=need.get("why", "")))
    return ClaimRule(
        name=entry["name"],
        says=entry.get("says", ""),
        needs=tuple(needs),
        never_needs=tuple(entry.get("never_needs", ())),
        impossible=entry.get("impossible", ""),
    )


def _check(table: "Mapping[str, Any]", section: str, source: str) -> None:
    """Every key known and every value of its kind."""
    known = SECTIONS[section]
    for key, value in table.items():
        if isinstance(value, dict) and f"{section}.{key}".strip(".") in SECTIONS:
            continue
        _known(key, list(known), source, f"key in [{section}]" if section else "key")
        fault = _fault(known[key], value)
        if fault:
            where = f"[{section}] {key}" if section else key
            raise Usage(f"{source}: {where} = {value!r}: {fault}")


def _known(key: str, known: list[str], source: str, what: str) -> None:
    if key in known:
        return
    from difflib import get_close_matches

    near = get_close_matches(key, known, n=1, cutoff=0.0)
    raise Usage(f"{source}: unknown {what}: {key!r}; the nearest known one is {near[0]!r}", hint=f"Known: {', '.join(sorted(known))}.")


def _fault(kind: str, value: object) -> str:
    """Why `value` is not of this kind, or nothing."""
    if kind in ("text", "flag", "scalar"):
        wanted = {"text": (str,), "flag": (bool,), "scalar": (str, bool, int, float)}[kind]
        return "" if isinstance(value, wanted) else {"text": "write text in quotes", "flag": "write true or false", "scalar": "write one value"}[kind]
    if kind in ("number", "positive", "count", "fraction"):
        return _number_fault(kind, value)
    if kind in ("size", "time"):
        return _unit_fault(kind, value)
    if kind in ("texts", "actions"):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            return "write a list of texts"
        unknown = [item for item in value if kind == "actions" and item not in ACTIONS]
        return f"{unknown[0]!r} is no action; known: {', '.join(ACTIONS)}" if unknown else ""
    if kind == "needs":
        return "" if isinstance(value, list) and all(isinstance(item, dict) for item in value) else "write a list of tables"
    return "" if value in kind.split("|") else f"write one of {kind.replace('|', ', ')}"


def _number_fault(kind: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < float("inf"):
        return "write a number"
    if kind == "count" and (not isinstance(value, int) or value < 1):
        return "write a whole number of at least 1"
    if kind == "positive" and value <= 0:
        return "write a number above zero"
    if kind == "fraction" and not 0 <= value <= 1:
        return "write a fraction from 0 to 1"
    return "write a number that is not negative" if value < 0 else ""


def _unit_fault(kind: str, value: object) -> str:
    """Sizes and times are written as on the command line; a bare number is bytes or seconds."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return "write a size such as 24GiB" if kind == "size" else "write a time such as 20s"
    try:
        (parse_size if kind == "size" else parse_time)(str(value))
    except ValueError as fault:
        return str(fault)
    return ""
