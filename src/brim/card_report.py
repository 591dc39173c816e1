"""Joins telemetry, preflight and profile into the governor report's two files; every decision in it is made in runtime_report.py."""

import os

from brim import runtime_report
from brim.probes import gpu_rows
from brim.profile import interpret
from brim.readers import profile_file
from brim.reports import runtime_report as page
from brim.stores import files
from brim.units import GIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.facts.profile import Profile

UNASKED = object()
DEADLINE_NS = 10_000_000_000


def config_folder() -> str:
    """The user's configuration folder for brim (XDG)."""
    from platformdirs import user_config_dir

    return user_config_dir("brim")


def load_profile(name_or_path: str, folder: str | None = None) -> "Profile":
    """A profile by name (the user's before the packaged ones) or by path, checked; `Usage` says what is wrong with it."""
    document, path = profile_file.load(name_or_path, config_folder() if folder is None else folder)
    return interpret(document, path)


def floor_bytes(profile: "Profile") -> int | None:
    """The floor that a profile's watchdog rule gives, in bytes; None where it has no such rule. It is a floor for the launch."""
    if "floor_at_least_gib" not in profile.watchdog:
        return None
    figures = runtime_report.preflight_from(runtime_report.preflight_document(profile, profile.source), profile.source)
    return round(runtime_report.limits_of(profile, figures, None, None).required_free_gb * GIB)


def profiles(folder: str | None = None) -> "list[dict[str, str]]":
    """Every profile that can be had by name: `name`, `origin` (user or packaged), `path`, `description` (or `fault`, for one that does not hold)."""
    from brim.errors import BrimError

    rows = []
    for name, origin, path in profile_file.known(config_folder() if folder is None else folder):
        row = {"name": name, "origin": origin, "path": path, "description": "", "fault": ""}
        try:
            row["description"] = interpret(profile_file.decode(path), path).description
        except BrimError as fault:
            row["fault"] = str(fault)
        rows.append(row)
    return rows


def governor_report(
    profile: "str | Profile" = "rtx3090-12b",
    out: str = ".",
    *,
    telemetry: object = UNASKED,
    preflight: "str | None" = None,
    readings: "str | None" = None,
    max_temp: "float | None" = None,
    min_free_vram: "float | None" = None,
    now_ns: "int | None" = None,
) -> "dict[str, Any]":
    """Write the governor report's JSON and Markdown into `out` (made with its parents) and return the document.

    `telemetry`: a mapping with the report's names (`name`, `memory_total_mb` and `memory_free_mb` in MiB, `power_limit_w`, `temperature_c`; or `available`
    false with
    `error`), a device of `brim.probe()`, a list of either, or None for "there is none". Not given: the first line of `readings`, else the cards are asked,
    within 10 s.
    `preflight`: a preflight file; without one it is computed and written to `out`/preflight. `max_temp` in °C and `min_free_vram` in GB (2^30 bytes) override
    the profile. Errors: `Usage` (also for a preflight file that is missing).
    """
    held = load_profile(profile) if isinstance(profile, str) else profile
    out = os.path.abspath(os.fspath(out))
    given = None if preflight is None else runtime_report.preflight_from(files.read_json(os.fspath(preflight)), os.fspath(preflight))
    seen = _ask(readings) if telemetry is UNASKED else runtime_report.telemetry_of(telemetry)
    files.make_folder(out)
    figures = _computed(held, out) if given is None else given
    stem = os.path.join(out, held.report.get("file_stem", "runtime_governor_report"))
    limits = runtime_report.limits_of(held, figures, max_temp, min_free_vram)
    document = runtime_report.document(held, seen, figures, limits, created_at=_stamp(now_ns), paths=(stem + ".json", stem + ".md"))
    files.write_whole(stem + ".json", _json(document))
    files.write_whole(stem + ".md", page.markdown(document, held.report.get("title", "Runtime governor report")))
    return document


def _ask(readings: "str | None") -> runtime_report.Telemetry:
    """Telemetry from a script of readings or from the cards."""
    command, rows, error = gpu_rows.nvidia_smi() if readings is None else gpu_rows.scripted(os.fspath(readings))
    if error and readings is None and not _is_there("nvidia-smi"):
        from brim.clock import SystemClock
        from brim.hardware import Machine

        seen = runtime_report.telemetry_of(Machine(environ=os.environ, clock=SystemClock(), deadline_ns=DEADLINE_NS).look(), "NVML, as brim probe asks it")
        if seen.cards:
            return seen
    if error:
        return runtime_report.Telemetry(command=command, error=error)
    return runtime_report.telemetry_of(rows, command)


def _is_there(program: str) -> bool:
    from shutil import which

    return which(program) is not None


def _computed(profile: "Profile", out: str) -> runtime_report.Preflight:
    """The preflight from the profile's declaration, written to its folder."""
    folder = os.path.join(out, "preflight")
    path = os.path.join(folder, "preflight.json")
    document = runtime_report.preflight_document(profile, path)
    files.make_folder(folder)
    files.write_whole(path, _json(document))
    return runtime_report.preflight_from(document, path)


def _json(document: "dict[str, Any]") -> str:
    import json

    return json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _stamp(now_ns: "int | None") -> str:
    from datetime import UTC, datetime
    from time import time_ns

    return datetime.fromtimestamp((time_ns() if now_ns is None else now_ns) / 1e9, UTC).isoformat(timespec="seconds")
