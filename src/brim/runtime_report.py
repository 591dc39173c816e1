"""Decides from telemetry and a preflight whether a compressed run may start on a card, and says so in one document; no I/O, no clock.

The rules (free VRAM in GB means MiB / 1024 here): required = the given minimum, else the larger of the profile's least floor and the compressed weights
plus the profile's margin over them. Without telemetry the level is `unknown`; free < required or temperature ≥ maximum is `block`;
free < required + throttle margin or temperature ≥ maximum − temperature margin is `throttle`; else `run`. A field that is missing makes the level
`unknown` unless what can be seen already says `block`. A run is allowed at `run` and `throttle`, and only where the preflight says that it is feasible. Over several cards
the worst level rules.

Not covered: whether the card is of the kind that the profile names (the name is printed for a person to see).
"""

from brim.errors import Usage
from brim.units import GIB, MIB, parse_size
from brim.values import REASONS, Missing, Record, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from brim.facts.device import Device
    from brim.facts.profile import Profile

WORST_LAST = ("run", "throttle", "unknown", "block")
FIELDS = ("name", "memory_total_mb", "memory_free_mb", "power_limit_w", "temperature_c")
MOST = 10**18
NO_ROWS = "the query returned no GPU rows"


class Card(Record):
    """One card's telemetry: sizes in MiB, power in W, temperature in °C; what could not be had is `Missing`."""

    name: "str | Missing"
    memory_total_mb: "float | Missing"
    memory_free_mb: "float | Missing"
    power_limit_w: "float | Missing"
    temperature_c: "float | Missing"


class Telemetry(Record):
    """What was asked (`command`) and what came: cards, or the tool's own `error`."""

    command: "str | tuple[str, ...]"
    cards: tuple[Card, ...] = ()
    error: str = ""


class Preflight(Record):
    """The figures of a preflight file; sizes in GB as that file means them (2^30 bytes)."""

    path: str
    dense_class_params: int
    purefield_estimated_params: int
    bf16_weights_gb: float
    int4_raw_weights_gb: float
    feasible: bool


class Limits(Record):
    """The limits of the report as they were resolved: °C and GB (MiB / 1024)."""

    max_temp_c: float
    temp_margin_c: float
    required_free_gb: float
    free_margin_gb: float


class Decision(Record):
    """The level of one card or of all, whether a run is allowed, and why."""

    risk_level: str
    allowed: bool
    reason: str


def _missing(entry: "Mapping[str, Any]") -> Missing:
    """What `values.plain` writes of a `Missing`, read back; a reason that is none of ours is `failed`."""
    return Missing(reason=entry["missing"] if entry["missing"] in REASONS else "failed", detail=str(entry.get("detail", "")))


def _number(value: object, name: str) -> "float | Missing":
    """A finite number, as a tool or a person wrote it; anything else is `Missing` with what was there."""
    if isinstance(value, Missing):
        return value
    if isinstance(value, dict) and "missing" in value:
        return _missing(value)
    if isinstance(value, str):
        text = value.strip()
        try:
            value = float(text)
        except ValueError:
            low = text.lower()
            reason = "not_supported" if any(word in low for word in ("n/a", "not supported", "not available")) else "failed"
            return Missing(reason=reason, detail=f"{name}: {text or 'empty'}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return Missing(reason="failed", detail=f"{name}: not given" if value is None else f"{name}: {value!r} is no number")
    if not abs(value) < MOST or (value < 0 and name != "temperature_c"):
        return Missing(reason="failed", detail=f"{name}: {str(value)[:40]} cannot be")
    return int(value) if float(value).is_integer() else float(value)


def card(fields: "Mapping[str, Any]") -> Card:
    """A card from a mapping with the report's own names; whatever is absent or cannot be true is `Missing`."""
    name = fields.get("name")
    if isinstance(name, dict) and "missing" in name:
        name = _missing(name)
    if not isinstance(name, Missing):
        name = name.strip() if isinstance(name, str) and name.strip() else Missing(reason="failed", detail="name: not given")
    total, free = _number(fields.get("memory_total_mb"), "memory_total_mb"), _number(fields.get("memory_free_mb"), "memory_free_mb")
    if not isinstance(total, Missing) and not isinstance(free, Missing) and free > total:
        free = Missing(reason="failed", detail=f"memory_free_mb: {free} is more than the total of {total}")
    return Card(
        name=name,
        memory_total_mb=total,
        memory_free_mb=free,
        power_limit_w=_number(fields.get("power_limit_w"), "power_limit_w"),
        temperature_c=_number(fields.get("temperature_c"), "temperature_c"),
    )


def card_of(device: "Device") -> Card:
    """A card from one reading of a device."""

    def mib(count: "int | Missing") -> "float | Missing":
        return count if isinstance(count, Missing) else count / MIB

    return card({
        "name": device.name, "memory_total_mb": mib(device.memory.total_bytes), "memory_free_mb": mib(device.memory.free_bytes),
        "power_limit_w": device.power_limit_w, "temperature_c": device.temperature_c,
    })  # fmt: skip


def telemetry_of(given: object, command: "str | tuple[str, ...]" = "given by the caller") -> Telemetry:
    """Telemetry from what a caller has.

    None, a `Telemetry`, one mapping with the report's names (or with `available` and `error`), devices, or a list of either.
    """
    if isinstance(given, Telemetry):
        return given
    if given is None:
        return Telemetry(command=command, error="no telemetry was given")
    devices = getattr(given, "devices", None)
    if devices is not None:
        given = [device for device in devices if device.backend == "cuda"]
    if isinstance(given, dict):
        if isinstance(given.get("command"), (str, list, tuple)):
            command = given["command"] if isinstance(given["command"], str) else tuple(given["command"])
        if given.get("available") is False or ("error" in given and "memory_free_mb" not in given):
            return Telemetry(command=command, error=str(given.get("error") or "not available"))
        given = [given]
    if not isinstance(given, (list, tuple)):
        given = [given]
    gone = [isinstance(row, dict) and row.get("available") is False for row in given]
    if all(gone):
        errors = [str(row["error"]) for row in given if isinstance(row, dict) and row.get("error")]
        return Telemetry(command=command, error=errors[0] if errors else NO_ROWS)
    cards = tuple(card({}) if lost else card(row) if isinstance(row, dict) else card_of(row) for row, lost in zip(given, gone, strict=True))
    return Telemetry(command=command, cards=cards)


def preflight_from(document: object, path: str) -> Preflight:
    """The preflight in a decoded file; `Usage` names the file and the field that is absent or of the wrong kind."""
    if not isinstance(document, dict):
        raise Usage(f"{path}: a preflight is a JSON object")
    vram = document.get("purefield_vram")
    if not isinstance(vram, dict):
        raise Usage(f"{path}: purefield_vram is missing or no object")

    def number(table: "Mapping[str, Any]", key: str, prefix: str = "") -> float:
        value = table.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise Usage(f"{path}: {prefix}{key} is {'missing' if key not in table else f'{value!r}, which is no number of that kind'}")
        return value

    feasible = vram.get("rtx_3090_24gb_int4_or_adapter_feasible")
    if not isinstance(feasible, bool):
        raise Usage(f"{path}: purefield_vram.rtx_3090_24gb_int4_or_adapter_feasible must be true or false")
    return Preflight(
        path=str(document.get("report_path") or path),
        dense_class_params=int(number(document, "dense_class_params")),
        purefield_estimated_params=int(number(document, "purefield_estimated_params")),
        bf16_weights_gb=number(vram, "bf16_weights_gb", "purefield_vram."),
        int4_raw_weights_gb=number(vram, "int4_raw_weights_gb", "purefield_vram."),
        feasible=feasible,
    )


def preflight_document(profile: "Profile", report_path: str) -> "dict[str, Any]":
    """The preflight computed from the profile's declaration of its compressed precision, in the form of a preflight file.

    Kept parameters = dense × kept / of; raw weights = kept × bits / 8; feasible where raw × (1 + overhead) + what a run needs
    beside them fits the card less its reserve.
    """
    model, packed = profile.model, profile.model.get("compressed", {})
    feasible = model.get("feasible", {})
    absent = [f"[model] {key}" for key in ("dense_class_params",) if key not in model]
    absent += [f"[model.compressed] {key}" for key in ("bits_per_parameter", "kept", "of") if key not in packed]
    absent += ["[hardware] memory_gib"] if "memory_gib" not in profile.hardware else []
    if absent:
        raise Usage(
            f"{profile.source}: a preflight cannot be computed without {', '.join(absent)}", hint="Declare it in the profile, or give --preflight FILE."
        )
    dense = model["dense_class_params"]
    kept = dense * packed["kept"] // packed["of"]
    raw_bytes = kept * packed["bits_per_parameter"] / 8
    stored_gb = raw_bytes * (1 + packed.get("overhead", 0)) / GIB
    usable_gb = profile.hardware["memory_gib"] * (1 - feasible.get("reserve_fraction", 0.1))
    needed_gb = stored_gb + feasible.get("beside_weights_gib", 4)
    return {
        "dense_class_params": dense,
        "purefield_estimated_params": kept,
        "purefield_vram": {
            "bf16_weights_gb": kept * 2 / GIB,
            "int4_raw_weights_gb": raw_bytes / GIB,
            "int4_stored_weights_gb": stored_gb,
            "needed_gb": needed_gb,
            "usable_gb": usable_gb,
            "rtx_3090_24gb_int4_or_adapter_feasible": needed_gb <= usable_gb,
        },
        "report_path": report_path,
        "rule": f"{dense} × {packed['kept']}/{packed['of']} parameters kept, {packed['bits_per_parameter']} bits each, "
        f"overhead {packed.get('overhead', 0):.1%}",
    }


def limits_of(profile: "Profile", preflight: Preflight, max_temp: float | None, min_free_gb: float | None) -> Limits:
    """The limits from the profile, with what the caller overrides."""
    watch = profile.watchdog
    floor = (
        max(watch.get("floor_at_least_gib", 6), preflight.int4_raw_weights_gb + watch.get("floor_over_weights_gib", 4)) if min_free_gb is None else min_free_gb
    )
    return Limits(
        max_temp_c=profile.limits.get("max_temp", 82) if max_temp is None else max_temp,
        temp_margin_c=profile.limits.get("throttle_temp_margin", 8),
        required_free_gb=floor,
        free_margin_gb=parse_size(str(profile.limits.get("throttle_margin", "2GiB"))) / GIB,
    )


def decide(seen: Card, limits: Limits, preflight: Preflight) -> Decision:
    """The level of one card; see the module's rules."""
    said = {"block": [], "throttle": []}  # type: dict[str, list[str]]
    absent = [name for name in FIELDS if isinstance(getattr(seen, name), Missing)]
    if not isinstance(seen.memory_free_mb, Missing):
        free, need = seen.memory_free_mb / 1024, limits.required_free_gb
        if free < need:
            said["block"].append(f"free VRAM {free:.2f} GB is below the required {need:.2f} GB")
        elif free < need + limits.free_margin_gb:
            said["throttle"].append(f"free VRAM {free:.2f} GB is within {limits.free_margin_gb:g} GB of the required {need:.2f} GB")
    if not isinstance(seen.temperature_c, Missing):
        heat, top = seen.temperature_c, limits.max_temp_c
        if heat >= top:
            said["block"].append(f"{heat:g} °C is at or above the maximum of {top:g} °C")
        elif heat >= top - limits.temp_margin_c:
            said["throttle"].append(f"{heat:g} °C is within {limits.temp_margin_c:g} °C of the maximum of {top:g} °C")
    level = "block" if said["block"] else "unknown" if absent else "throttle" if said["throttle"] else "run"
    reasons = said["block"] + said["throttle"] + [f"{name} is missing ({_why(getattr(seen, name))})" for name in absent]
    if not reasons:
        reasons = [f"free VRAM {float(seen.memory_free_mb) / 1024:.2f} GB and {seen.temperature_c:g} °C are inside the limits"]  # type: ignore[arg-type]
    return _judged(level, "; ".join(reasons), preflight)


def _why(value: Missing) -> str:
    return f"{value.reason}: {value.detail}" if value.detail else value.reason


def _judged(level: str, reason: str, preflight: Preflight) -> Decision:
    if not preflight.feasible:
        reason += "; the preflight says that an int4 or adapter run is not feasible on 24 GB"
    return Decision(risk_level=level, allowed=level in ("run", "throttle") and preflight.feasible, reason=reason)


def decide_all(telemetry: Telemetry, limits: Limits, preflight: Preflight) -> tuple[Decision, tuple[Decision, ...]]:
    """(the decision for all, one for each card). The worst level rules; no card at all is `unknown`."""
    each = tuple(decide(seen, limits, preflight) for seen in telemetry.cards)
    if not each:
        return _judged("unknown", f"no GPU telemetry: {telemetry.error or NO_ROWS}", preflight), ()
    if len(each) == 1:
        return each[0], each
    worst = max(each, key=lambda one: WORST_LAST.index(one.risk_level))
    which = "; ".join(f"GPU {index}: {one.risk_level} ({one.reason})" for index, one in enumerate(each))
    return Decision(risk_level=worst.risk_level, allowed=all(one.allowed for one in each), reason=f"the worst of {len(each)} GPUs rules: {which}"), each


def _gpu(seen: Card, command: "str | tuple[str, ...]") -> "dict[str, Any]":
    return {"available": True, **{name: plain(getattr(seen, name)) for name in FIELDS}, "command": plain(command)}


def _decision(made: Decision) -> "dict[str, Any]":
    return {
        "risk_level": made.risk_level,
        "run_12b_compressed_on_3090_allowed": made.allowed,
        "dense_12b_full_train_on_3090_allowed": False,
        "reason": made.reason,
    }


def document(
    profile: "Profile", telemetry: Telemetry, preflight: Preflight, limits: Limits, *, created_at: str, paths: "Sequence[str]"
) -> "dict[str, Any]":  # one literal, as long as the contract that it writes
    """The whole report as JSON-able builtins. `gpu` is the card that decides; with several, `gpus` and `decisions` list every one in order."""
    for section in ("report", "runtime_profile"):
        if not getattr(profile, section):
            raise Usage(f"{profile.source}: a governor report needs a [{section}] section, which profile {profile.name!r} does not have")
    made, each = decide_all(telemetry, limits, preflight)
    several = len(each) > 1
    worst = max(range(len(each)), key=lambda index: WORST_LAST.index(each[index].risk_level)) if each else 0
    gpu = (
        _gpu(telemetry.cards[worst], telemetry.command)
        if each
        else {"available": False, "error": telemetry.error or NO_ROWS, "command": plain(telemetry.command)}
    )
    more = {
        "gpus": [{"index": index, **_gpu(seen, telemetry.command)} for index, seen in enumerate(telemetry.cards)],
        "decisions": [{"index": index, "name": plain(telemetry.cards[index].name), **_decision(one)} for index, one in enumerate(each)],
    }
    return {
        "schema_version": profile.report.get("schema_version", "brim-governor-report-v1"),
        "created_at": created_at,
        "hardware_target": profile.hardware.get("target", ""),
        "model_target": profile.model.get("target", ""),
        "gpu": gpu,
        "preflight": {
            "path": preflight.path,
            "dense_class_params": preflight.dense_class_params,
            "purefield_estimated_params": preflight.purefield_estimated_params,
            "bf16_weights_gb": preflight.bf16_weights_gb,
            "int4_raw_weights_gb": preflight.int4_raw_weights_gb,
        },
        "runtime_profile": dict(profile.runtime_profile),
        "watchdog": {
            "max_temp_c": limits.max_temp_c,
            "min_free_vram_gb": limits.required_free_gb,
            "poll_seconds": profile.watchdog.get("poll_seconds", 20),
            "actions": list(profile.watchdog.get("actions", ())),
        },
        "decision": _decision(made),
        "claim_gate": {
            "no_bottleneck_forever_claim_allowed": False,
            "stable_long_run_claim_requires_soak_test_hours": 24,
            "world_best_performance_claim_allowed": False,
        },
        "json_path": paths[0],
        "markdown_path": paths[1],
        **(more if several else {}),
    }
