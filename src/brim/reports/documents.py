"""The JSON documents of DESIGN.md section 6: values in, builtins out; no number is computed here but shares and differences of given ones."""

from brim.budget import sentence
from brim.values import Missing, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.cards import Model
    from brim.engines.llama_cpp.startup import Start
    from brim.errors import BrimError
    from brim.facts.device import Asked, Budget, Device, Host
    from brim.facts.process import Checkpointed, Ending
    from brim.facts.settings import Limits
    from brim.prediction import Prediction
    from brim.units import Span


def error(fault: "BrimError") -> "dict[str, Any]":
    """`brim.error/1`."""
    return {"schema": "brim.error/1", "code": fault.exit_code, "reason": fault.reason, "message": str(fault), "hint": fault.hint}


def probe(
    devices: "tuple[Device, ...]", host: "Host", warnings: tuple[str, ...], notes: tuple[str, ...] = (), asked: "tuple[Asked, ...]" = ()
) -> "dict[str, Any]":
    """`brim.probe/1`."""
    rows = [_device(device) for device in devices]
    return {"schema": "brim.probe/1", "devices": rows, "host": plain(host), "warnings": list(warnings), "notes": list(notes), "asked": plain(asked)}


def doctor(
    asked: "tuple[Asked, ...]", facts: "tuple[tuple[str, str], ...]", devices: "tuple[Device, ...]", notes: tuple[str, ...], warnings: tuple[str, ...]
) -> "dict[str, Any]":
    """`brim.doctor/1`."""
    rows = [{"id": device.id, "name": device.name, "state": device.state, "budget": _budget(device.budget)} for device in devices]
    return {"schema": "brim.doctor/1", "facts": dict(facts), "asked": plain(asked), "devices": rows, "notes": list(notes), "warnings": list(warnings)}


def devices(models: "tuple[Model, ...]") -> "dict[str, Any]":
    """`brim.devices/1`; what is not known of a device is null."""
    rows = []
    for model in models:
        row = plain(model)
        assert isinstance(row, dict)
        rows.append({key: None if value in (0, 0.0, "") and key != "unified" else value for key, value in row.items()})
    return {"schema": "brim.devices/1", "devices": rows}


def _device(device: "Device") -> "dict[str, Any]":
    row = plain(device)
    assert isinstance(row, dict)
    row["budget"] = _budget(device.budget)
    return row


def _budget(budget: "Budget") -> "dict[str, Any]":
    row = plain(budget)
    assert isinstance(row, dict)
    row["says"] = sentence(budget)
    return row


def _span(span: "Span") -> dict[str, int]:
    return {"low": span.low, "likely": span.likely, "high": span.high}


def prediction(answer: "Prediction") -> "dict[str, Any]":
    """`brim.fit/1`."""
    checkpoint, plan = answer.checkpoint, answer.plan
    return {
        "schema": "brim.fit/1",
        "verdict": answer.verdict,
        "reasons": list(answer.reasons),
        "model": {
            "architecture": checkpoint.architecture,
            "name": checkpoint.name,
            "parameters": sum(tensor.elements for tensor in checkpoint.tensors),
            "file_bytes": checkpoint.file_bytes,
            "source": checkpoint.source,
        },
        "engine": {"name": plan.engine, "version": plan.engine_version},
        "workload": plain(plan.workload),
        "devices": [
            {
                "id": item.device.id,
                "budget": _budget(item.device.budget),
                "available_bytes": plain(item.device.memory.available_bytes),
                "required_bytes": _span(item.required),
                "fits": item.fits,
                "fits_now": item.fits_now,
            }
            for item in answer.gate.devices
        ],
        "parts": [{"name": part.name, "device": part.device, "bytes": _span(part.bytes), "rule": part.rule, "source": part.source} for part in plan.parts],
        "max_ctx": answer.max_ctx,
        "missing": list(plan.missing),
        "suggestions": list(answer.suggestions),
        "grows": [{"name": part.name, "device": part.device, "bytes": _span(part.bytes), "rule": part.rule, "source": part.source} for part in answer.grows],
        "defaults": list(answer.defaults),
        "unpriced": list(answer.unpriced),
        "caveats": list(answer.caveats),
        **({} if answer.start is None else {"engine_fit": _start(answer.start)}),
    }


def _start(start: "Start") -> "dict[str, Any]":
    """What the engine's own --fit starts with instead: what would ask for the same, and what that takes by device."""
    devices = dict.fromkeys(part.device for part in start.plan.parts)
    return {
        "flags": list(start.flags),
        "met": start.met,
        "why": start.why,
        "devices": [{"id": device, "required_bytes": _span(start.plan.on(device))} for device in devices],
    }


def run(
    *, run_dir: str, command: list[str], limits: "Limits", prediction: "Prediction | None", ending: "Ending | None", exit_code: int, by: str, reason: str,
    began_wall_ns: int, lasted_ns: int, engine_log: str, journal_head: str,
) -> "dict[str, Any]":  # fmt: skip
    """`brim.run/1`: how it ended, what was predicted, what was measured, and the two side by side."""
    from brim.engines.llama_cpp.log import buffers  # on use: its package is the whole engine room

    measured = [{"part": item.part, "buffer": item.buffer, "bytes": item.bytes} for item in buffers(engine_log)]
    return {
        "schema": "brim.run/1",
        "run_dir": run_dir,
        "command": command,
        "began_wall_ns": began_wall_ns,
        "lasted_ns": lasted_ns,
        "exit_code": exit_code,
        "ended_by": by,
        "reason": reason,
        "child_status": None if ending is None else ending.status,
        "limits": plain(limits),
        "verdict": None if prediction is None else prediction.verdict,
        "reasons": [] if prediction is None else list(prediction.reasons),
        "comparison": [] if prediction is None or ending is None else _compare(prediction, ending, measured),
        "engine_buffers": measured,
        "peak_held_bytes": None if ending is None else plain(ending.peak_held_bytes),
        "peak_mapped_bytes": None if ending is None else plain(ending.peak_mapped_bytes),
        "lowest_free_bytes": None if ending is None else plain(ending.lowest_free_bytes),
        "level_ns": {} if ending is None else ending.level_ns,
        "looks": 0 if ending is None else ending.looks,
        "cause": "" if ending is None else ending.cause,
        "checkpoint": _checkpoint(None if ending is None else ending.checkpoint),
        "checkpoints_answered": 0 if ending is None else ending.answered,
        "checkpoints_unanswered": 0 if ending is None else ending.unanswered,
        "stop_stages": [] if ending is None else list(ending.stages),
        "after": "" if ending is None else ending.after,
        "journal_head": journal_head,
    }


def resume(
    *, command: list[str], cwd: str, environ: "dict[str, str]", hidden: list[str], limits: "Limits", exit_code: "int | None", by: str, cause: str, reason: str,
    checkpoint: "Checkpointed | None", attempt: int, resumed_run: str,
) -> "dict[str, Any]":  # fmt: skip
    """`brim.resume/1`: what a run can be gone on with. `exit_code` is null while it runs."""
    return {
        "schema": "brim.resume/1",
        "command": command,
        "cwd": cwd,
        "environ": environ,
        "environ_not_kept": hidden,
        "limits": plain(limits),
        "exit_code": exit_code,
        "stopped_by": by,
        "cause": cause,
        "reason": reason,
        "checkpoint": _checkpoint(checkpoint),
        "attempt": attempt,
        "resumed_run": resumed_run,
    }


def _checkpoint(last: "Checkpointed | None") -> "dict[str, Any]":
    """The last checkpoint: acknowledged with its path and step, only signalled for, or none."""
    if last is None or last.state == "none":
        return {"state": "none", "detail": "no checkpoint was acknowledged or signalled for"}
    if last.state == "signalled":
        return {"state": "signalled", "detail": "a checkpoint was signalled for; the job cannot say whether it was written"}
    return {"state": "acknowledged", "step": last.step, "path": last.path, "took_ns": last.took_ns}


def _compare(answer: "Prediction", ending: "Ending", measured: "list[dict[str, Any]]") -> "list[dict[str, Any]]":
    """Part by part where the engine says it, and the host's parts together against what the process tree held and mapped on the host."""
    from brim.facts.engine import copied_bytes

    rows: list[dict[str, Any]] = []
    copied = copied_bytes(measured)
    less = f", less {copied} B of mapped pages whose copies the CPU uses" if copied else ""
    for name in dict.fromkeys(part.name for part in answer.plan.parts):
        predicted = sum(part.bytes.likely for part in answer.plan.parts if part.name == name)
        told = [item["bytes"] for item in measured if item["part"] == name]
        told += [-copied] if copied and name == "weights" else []
        rows.append(_row(name, predicted, told, f"the engine's own log, two decimals of a MiB{less if name == 'weights' else ''}"))
    held, mapped = ending.peak_held_bytes, ending.peak_mapped_bytes
    seen = [] if isinstance(held, Missing) or isinstance(mapped, Missing) else [held + mapped - min(copied, mapped)]
    rows.append(
        _row(
            "total",
            answer.plan.on("cpu").likely,
            seen,
            f"the host: peak anonymous and shared + peak mapped memory of the process tree (programs and libraries included){less}",
        )
    )
    return rows


def _row(name: str, predicted: int, measured: list[int], source: str) -> "dict[str, Any]":
    total = sum(measured) if measured else None
    return {
        "part": name,
        "predicted_bytes": predicted,
        "measured_bytes": total,
        "difference_bytes": None if total is None else total - predicted,
        "source": source,
    }
