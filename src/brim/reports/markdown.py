"""A run's report for issues and pull requests: a `brim.run/1` document in, Markdown out."""

from brim.reports.text import clean, limit, marked
from brim.units import format_bytes, format_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def _size(value: object) -> str:
    if isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, dict):
        return f"unknown ({value.get('missing')})"
    return "–"


def _difference(row: "Mapping[str, Any]") -> str:
    difference, predicted = row["difference_bytes"], row["predicted_bytes"]
    if difference is None:
        return "not reported"
    share = f" ({difference / predicted * 100:+.2f} %)" if predicted else ""
    return f"{'+' if difference >= 0 else ''}{format_bytes(difference)}{share}"


def watchdog(profile: str, rows: "Sequence[Mapping[str, Any]]") -> str:
    """What a profile's watchdog actions did in a run."""
    lines = [f"## Watchdog of profile {profile}", "", "| action | acted | last |", "|---|---:|---|"]
    for row in rows:
        last = row["last"]
        said = f"{last['at_s']:.1f} s: {marked(last['did'])}: {marked(last['because'])}" if last else "not needed"
        lines.append(f"| {marked(row['action'])} | {row['times']} | {said} |")
    return "\n".join([*lines, ""])


def run(report: "Mapping[str, Any]") -> str:
    """Verdict first, then prediction beside measurement, then limits."""
    command = clean(" ".join(report["command"]), 4000).replace("`", "'")
    lines = [
        f"# Run report: exit {report['exit_code']}, ended by {report['ended_by']}",
        "",
        f"- Command: `{command}`",
        f"- Lasted: {format_ns(report['lasted_ns'])}",
        f"- Prediction: {report['verdict'] or 'none (no model was named)'}",
    ]
    lines.extend(f"  - {marked(reason)}" for reason in report["reasons"])
    if report["reason"]:
        lines.append(f"- Why it ended: {marked(report['reason'])}")
    lines.append(f"- Held by the job at its peak: {_size(report['peak_held_bytes'])} (mapped files apart: {_size(report['peak_mapped_bytes'])})")
    lines.append(f"- Lowest free memory: {_size(report['lowest_free_bytes'])}")
    if report["level_ns"]:
        lines.append("- Time in each level: " + ", ".join(f"{level} {format_ns(spent)}" for level, spent in report["level_ns"].items()))
    if report["stop_stages"]:
        lines.append(f"- The stop went through: {', '.join(report['stop_stages'])}")
    last = report["checkpoint"]
    lines.append(f"- Last checkpoint: {last['state']}" + (f", step {last['step']}, {marked(last['path'])}" if last["state"] == "acknowledged" else ""))
    if report["checkpoints_answered"] or report["checkpoints_unanswered"]:
        lines.append(f"- Requests to save: {report['checkpoints_answered']} acknowledged, {report['checkpoints_unanswered']} not")
    if report["after"]:
        lines.append(f"- Afterwards: {marked(report['after'])}")
    if report["comparison"]:
        lines.extend(["", "## Predicted and measured", "", "| part | predicted | measured | difference | measured by |", "|---|---:|---:|---:|---|"])
        for row in report["comparison"]:
            lines.append(f"| {row['part']} | {_size(row['predicted_bytes'])} | {_size(row['measured_bytes'])} | {_difference(row)} | {row['source']} |")
    limits = report["limits"]
    lines.extend(["", "## Limits as understood", "", "| limit | value | from |", "|---|---:|---|"])
    for name, origin in limits["origins"]:
        lines.append(f"| {name} | {marked(limit(name, limits[name]))} | {origin} |")
    if report.get("watchdog"):
        lines.extend(["", watchdog(report["profile"]["name"], report["watchdog"]).rstrip()])
    return "\n".join([*lines, "", f"Journal head: `{report['journal_head']}`", ""])
