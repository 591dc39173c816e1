"""What `brim solve --train` found, as a document and for a terminal: values in, characters out; no number is computed here."""

from brim.reports.text import clean
from brim.reports.text import table as columns
from brim.units import format_bytes
from brim.values import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.training_solver import Found

VERDICT = {True: "FITS", False: "NOTHING FITS"}


def document(found: "Found", model: str) -> "dict[str, Any]":
    """`brim.solve-train/1`."""
    return {
        "schema": "brim.solve-train/1",
        "verdict": found.gate.verdict,
        "fits": found.fits,
        "model": model,
        "for": found.knob,
        "answer": found.answer,
        "next": found.next_one,
        "workload": plain(found.workload),
        "peak_moment": found.plan.workload["peak_moment"],
        "devices": [
            {"id": item.device.id, "required_bytes": plain(item.required), "usable_bytes": plain(item.device.budget.usable_bytes), "fits": item.fits}
            for item in found.gate.devices
        ],
        "parts": [plain(part) for part in found.plan.parts],
        "words": found.words,
        "suggestions": [f"{says} ({flags})" for says, flags in found.others],
        "caveats": list(found.plan.caveats),
    }


def terminal(found: "Found", model: str) -> str:
    """The answer, the devices' sentences, the parts, and what to type."""
    lines = [f"{VERDICT[found.fits]}: {clean(model)}: {found.answer}", f"  {found.next_one}", *(f"  {reason}" for reason in found.gate.reasons)]
    rows: list[tuple[str, ...]] = [("part", "device", "size")]
    rows.extend((part.name, part.device, format_bytes(part.bytes.likely)) for part in found.plan.parts)
    lines.extend(["", *columns(rows, right=(2,)), "", f"peak: {found.plan.workload['peak_moment']}"])
    lines.extend(f"{program}: {words}" for program, words in found.words.items())
    lines.extend(f"try: {says} ({flags})" for says, flags in found.others)
    return "\n".join([*lines, *(f"note: {item}" for item in found.plan.caveats)])
