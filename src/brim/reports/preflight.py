"""The preflight as a document, a terminal table and Markdown: values in, characters out; no number is computed here."""

from brim.reports.text import clean, marked
from brim.reports.text import table as columns
from brim.units import format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.outlook import Preflight, Way


def document(table: "Preflight", fields: "dict[str, object]") -> "dict[str, Any]":
    """`brim.preflight/1`, with the fields that the governor report reads at its top level."""
    return {
        "schema": "brim.preflight/1",
        "model": table.model,
        "parameters": table.parameters,
        "assumed_shape": table.assumed,
        "device": table.device,
        "batch": table.batch,
        "seq": table.seq,
        "ways": [_way(way) for way in table.ways],
        "caveats": list(table.caveats),
        **fields,
    }


def _way(way: "Way") -> "dict[str, Any]":
    return {
        "name": way.name,
        "kind": way.kind,
        "verdict": way.verdict,
        "devices": way.devices,
        "needed_bytes": {"low": way.needed.low, "likely": way.needed.likely, "high": way.needed.high},
        "usable_bytes": way.usable,
        "margin_bytes": way.margin,
        "states_bytes": way.states_bytes,
        "reason": way.reason,
        "flags": way.flags,
    }


def _cells(way: "Way") -> "tuple[str, ...]":
    margin = "unknown" if way.margin is None else format_bytes(way.margin)
    return (way.name, way.verdict.replace("_", " "), format_bytes(way.needed.likely), margin)


def terminal(table: "Preflight") -> str:
    """One row a way, then each way's arithmetic."""
    rows: list[tuple[str, ...]] = [("way", "verdict", "needed", "margin"), *(_cells(way) for way in table.ways)]
    usable = next((way.usable for way in table.ways if way.usable is not None), None)
    head = f"{clean(table.model)}: {table.parameters} parameters on {table.device}" + ("" if usable is None else f", {format_bytes(usable)} usable each")
    reasons = [f"{way.name}: {way.reason}" for way in table.ways]
    return "\n".join([head, "", *columns(rows, right=(2, 3)), "", *reasons, *(f"note: {item}" for item in table.caveats)])


def markdown(table: "Preflight") -> str:
    """A table with the reason in each row."""
    lines = [f"# Preflight: {marked(table.model)} on {table.device}", "", "| way | verdict | needed | margin | reason |", "|---|---|---:|---:|---|"]
    lines.extend("| " + " | ".join((*_cells(way), way.reason.replace("|", "/"))) + " |" for way in table.ways)
    return "\n".join([*lines, "", *(f"- {item}" for item in table.caveats)])
