"""The answer of the solver, and a second opinion from the engine, as a document and for a terminal: values in, characters out; no number is computed here."""

from brim.budget import CAVEAT, sentence
from brim.reports.text import clean, table
from brim.units import format_bytes
from brim.values import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.asking import Solution
    from brim.planner import Answer, Step
    from brim.second_opinion import SecondOpinion


def document(found: "Solution") -> "dict[str, Any]":
    """`brim.solve/1`."""
    checkpoint, answer = found.checkpoint, found.answer
    return {
        "schema": "brim.solve/1",
        "verdict": found.verdict,
        "for": list(found.wanted),
        "model": {"architecture": checkpoint.architecture, "name": checkpoint.name, "file_bytes": checkpoint.file_bytes, "source": checkpoint.source},
        "engine": {"name": answer.plan.engine, "version": answer.plan.engine_version},
        "answer": _answer(answer),
        "nearest": None if found.nearest is None else _answer(found.nearest),
        "devices": [
            {
                "id": device.id,
                "usable_bytes": plain(device.budget.usable_bytes),
                "total_bytes": plain(device.budget.total_bytes),
                "says": sentence(device.budget),
            }
            for device in found.devices
        ],
        "caveats": list(found.caveats),
    }


def _answer(answer: "Answer") -> "dict[str, Any]":
    plan = answer.plan
    return {
        "fits": answer.fits,
        "chosen": dict(answer.chosen),
        "flags": list(answer.flags),
        "workload": plain(plan.workload),
        "margin_bytes": dict(answer.margins),
        "parts": [
            {
                "name": part.name,
                "device": part.device,
                "bytes": {"low": part.bytes.low, "likely": part.bytes.likely, "high": part.bytes.high},
                "rule": part.rule,
                "source": part.source,
            }
            for part in plan.parts
        ],
        "steps": [
            {"knob": step.knob, "value": step.value, "upwards": step.upwards, "bytes_by_device": dict(step.bytes_by_device), "fits": step.fits}
            for step in answer.steps
        ],
        "plans_priced": answer.priced,
        "missing": list(answer.missing),
    }


def _step(step: "Step") -> tuple[str, ...]:
    """A knob's next step in words; a device on which it does the opposite says so."""
    usual, other = ("costs", "saves") if step.upwards else ("saves", "costs")
    moved = [("" if (count > 0) == step.upwards else other + " ", format_bytes(abs(count)), device) for device, count in step.bytes_by_device.items() if count]
    if moved and all(word for word, _, _ in moved):  # on every device
        usual, moved = other, [("", size, device) for _, size, device in moved]
    words = ", ".join(f"{word}{size} on {device}" for word, size, device in sorted(moved, key=lambda row: row[0]))
    return (f"{step.knob} {step.value}", usual, words or "nothing", "" if step.fits else "does not fit")


def _told(answer: "Answer") -> list[str]:
    lines = ["  " + ", ".join(f"{knob} {value}" for knob, value in answer.chosen)]
    if answer.flags:
        lines.append(f"  flags: {' '.join(answer.flags)}")
    lines.extend(
        f"  {device}: {format_bytes(margin)} left" if margin >= 0 else f"  {device}: short by {format_bytes(-margin)}"
        for device, margin in answer.margins.items()
    )
    return lines


def terminal(found: "Solution", *, explain: bool) -> str:
    """The answer, the flags to paste, what is left, what the next step of each knob costs or saves, and where nothing fits the nearest thing that does."""
    answer, checkpoint = found.answer, found.checkpoint
    head = {"fits": "FITS", "does_not_fit": "DOES NOT FIT", "cannot_tell": "CANNOT TELL"}[found.verdict]
    lines = [
        f"{head}: the largest {', then '.join(found.wanted)} of {clean(checkpoint.name)} ({clean(checkpoint.architecture)}) with {answer.plan.engine} {answer.plan.engine_version}"
    ]
    lines.extend(f"  not priced: {clean(item)}" for item in answer.missing)
    if not answer.missing:
        lines.extend(_told(answer))
    if answer.steps:
        lines.extend(["", "one step further:", *("  " + row for row in table([_step(step) for step in answer.steps]))])
    if found.nearest is not None:
        lines.extend(["", "the nearest thing that fits:", *_told(found.nearest)])
    elif not answer.fits and not answer.missing:
        lines.extend(["", "nothing that brim can turn makes it fit: a larger device, or another model"])
    if explain:
        lines.extend(["", *(f"{part.name} on {part.device}: {part.rule}\n    [{part.source}]" for part in answer.plan.parts)])
    lines.extend(["", *(sentence(device.budget) for device in found.devices)])
    lines.extend(f"note: {item}" for item in found.caveats)
    return "\n".join([*lines, f"note: {CAVEAT}"])


def second_opinion(opinion: "SecondOpinion") -> list[str]:
    """The engine's own table beside brim's, and why they part; the engine's words are made safe for a terminal."""
    lines = ["", "the engine itself:" + (f" {clean(' '.join(opinion.command), 4000)}" if opinion.command else "")]
    if opinion.rows:
        head = ("device", "what", "brim", "engine", "")
        cells = [
            (
                clean(row.device),
                row.what,
                format_bytes(row.brim_bytes),
                f"{row.engine_mib} MiB" if row.engine_bytes is None else format_bytes(row.engine_bytes),
                "agrees" if row.agrees else "differs",
            )
            for row in opinion.rows
        ]
        lines.extend("  " + line for line in table([head, *cells], right=(2, 3)))
    return [*lines, *(f"  {clean(item, 4000)}" for item in opinion.why)]
