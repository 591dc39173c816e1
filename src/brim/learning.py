"""Joins a run's plan and measurements into the calibration store, and the store into the next plan; the arithmetic is calibration.py's."""

import os
import sys

from brim.values import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from brim.calibration import Observation
    from brim.engines.base import Plan
    from brim.facts.device import Device
    from brim.prediction import Prediction

OFF = "BRIM_CALIBRATION"
SCHEMA = "brim.calibration/1"
MOST_PER_KEY = 50


def store_path(environ: "Mapping[str, str] | None" = None) -> str:
    """The calibration file under the XDG state folder. On Linux it is found without platformdirs, whose import every `brim fit` would pay for."""
    environ = os.environ if environ is None else environ
    if sys.platform.startswith("linux"):
        base = environ.get("XDG_STATE_HOME", "").strip() or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "state")
        return os.path.join(base, "brim", "calibration.json")
    from platformdirs import user_state_dir

    return os.path.join(user_state_dir("brim"), "calibration.json")


def device_names(devices: "Sequence[Device]") -> dict[str, str]:
    """Plan device id → the name that observations go by. Hypothetical devices have none: nothing was ever measured on them."""
    machine = os.uname().machine if hasattr(os, "uname") else ""
    return {device.id: f"cpu {machine}".strip() if device.backend == "cpu" else device.name for device in devices if not device.budget.hypothetical}


def observations(path: str | None = None) -> "tuple[Observation, ...]":
    """Everything in the store; nothing where there is no store."""
    path = store_path() if path is None else path
    if not os.path.exists(path):
        return ()
    from brim.calibration import from_rows
    from brim.stores import ledger

    return from_rows(ledger.load(path).get("observations"))


def calibrator(devices: "Sequence[Device]", architecture: str, environ: "Mapping[str, str] | None" = None) -> "Callable[[Plan], Plan] | None":
    """What this machine has shown, as a function from plan to plan; None where nothing was learnt, or where `BRIM_CALIBRATION=off`. The store is read once."""
    environ = os.environ if environ is None else environ
    path = store_path(environ)
    if environ.get(OFF, "").strip().lower() in ("off", "0", "no") or not os.path.exists(path):
        return None
    from brim.calibration import apply

    held, names = observations(path), device_names(devices)
    return lambda plan: apply(plan, held, names, architecture)


def learn_from(
    prediction: "Prediction",
    report: "Mapping[str, Any]",
    *,
    at: str,
    bare: "Plan | None" = None,
    path: str | None = None,
    peaks: "Mapping[str, int] | None" = None,
    foreign: str = "",
) -> "tuple[Observation, ...]":
    """Add one governed run to the store and return what was added; nothing from a run that did not get as far as the engine's own buffers.

    `bare` is the plan as priced without calibration (default: the prediction's), because a residual must not be learnt from what was learnt before.
    `peaks` is the most that the job held on each device (bytes); `foreign` names what spoils it.
    """
    from brim import calibration
    from brim.stores import ledger

    plan = prediction.plan if bare is None else bare
    if plan.missing or not report.get("engine_buffers"):
        return ()
    devices = [item.device for item in prediction.gate.devices]
    known = {device.id for device in devices}
    measured: dict[tuple[str, str], int] = {}
    for row in report["engine_buffers"]:
        device = _device_of(str(row.get("buffer", "")), known)
        measured[str(row.get("part")), device] = measured.get((str(row.get("part")), device), 0) + int(row.get("bytes", 0))
    if ("weights", "cpu") in measured:
        from brim.facts.engine import copied_bytes

        measured["weights", "cpu"] -= copied_bytes(report["engine_buffers"])
    about = {"at": at, "run": os.path.basename(str(report.get("run_dir", ""))), "architecture": prediction.checkpoint.architecture, "foreign": foreign}
    found = calibration.observe(plan, measured, peaks or {}, device_names(devices), about)
    if found:
        ledger.change(store_path() if path is None else path, lambda document: _add(document, found))
    return found


def _device_of(buffer: str, known: "set[str]") -> str:
    """The device of one of llama.cpp's buffer types: CUDA0 is cuda:0, everything else (CPU, CPU_Mapped, CUDA_Host) is the host."""
    word = buffer.rstrip("0123456789")
    device = f"{word.lower()}:{buffer[len(word) :]}"
    return device if buffer != word and device in known else "cpu"


def remember(prediction: "Prediction", report: "Mapping[str, Any]", peaks: "Mapping[str, int]", foreign: str) -> None:
    """`learn_from` after a run of ours; a store that cannot be written costs one line on stderr, never the run."""
    from datetime import UTC, datetime

    from brim.actions.notify import to_stderr
    from brim.clock import SystemClock
    from brim.errors import BrimError

    if os.environ.get(OFF, "").strip().lower() in ("off", "0", "no"):
        return
    at = datetime.fromtimestamp(SystemClock().wall_ns() / 1e9, UTC).isoformat(timespec="seconds")
    try:
        learn_from(prediction, report, bare=prediction.bare, at=at, peaks=peaks, foreign=foreign)
    except (BrimError, OSError) as fault:
        to_stderr(f"what this run taught could not be kept: {fault}")


def _add(document: "dict[str, Any]", found: "Sequence[Observation]") -> None:
    """Append, and keep the newest of each key and part, so that the store cannot grow without end."""
    document["schema"] = SCHEMA
    rows = [row for row in document.get("observations", []) if isinstance(row, dict)]
    rows += [row for row in (plain(one) for one in found) if isinstance(row, dict)]
    counts: dict[tuple[str, ...], int] = {}
    kept = []
    for row in reversed(rows):
        key = tuple(str(row.get(word)) for word in ("engine", "version", "device", "architecture", "part"))
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= MOST_PER_KEY:
            kept.append(row)
    document["observations"] = kept[::-1]


def forget(word: str | None, path: str | None = None) -> int:
    """Remove every observation whose key or run contains `word` (None: all of them); the number removed."""
    from brim.calibration import from_rows, key_text
    from brim.stores import ledger

    path = store_path() if path is None else path
    before = observations(path)
    gone = [one for one in before if word is None or word in key_text(one.key) or word == one.run]
    if gone:
        keep = [plain(one) for one in before if one not in gone]
        ledger.change(path, lambda document: document.update(schema=SCHEMA, observations=keep))
        assert len(from_rows(keep)) == len(before) - len(gone)
    return len(gone)


def take_in(document: object, path: str | None = None) -> int:
    """Add the observations of an exported document that are not there yet; the number added. `Usage` where it is no such document."""
    from brim.calibration import from_rows
    from brim.errors import Usage
    from brim.stores import ledger

    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise Usage(f"this is no {SCHEMA} document", hint="Make one with `brim calibration export`.")
    path = store_path() if path is None else path
    here = observations(path)
    new = [one for one in from_rows(document.get("observations")) if one not in here]
    if new:
        ledger.change(path, lambda held: _add(held, new))
    return len(new)
