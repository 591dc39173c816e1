"""What a person reads in a terminal: values in, lines out; no number is computed here."""

from brim.budget import CAVEAT, sentence
from brim.units import format_bytes, format_ns
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.facts.settings import Limits
    from brim.prediction import Prediction
    from brim.units import Span

_VERDICTS = {"fits": "FITS", "does_not_fit": "DOES NOT FIT", "cannot_tell": "CANNOT TELL"}


def clean(words: str, longest: int = 400) -> str:
    """Words out of a file, made safe for a terminal: no control characters, no line breaks, at most `longest` characters."""
    return words[:longest] if words.isprintable() else "".join(char if char.isprintable() else "�" for char in words[:longest])


def marked(words: str) -> str:
    """Words that somebody else wrote, made safe for one line of Markdown: no control characters, and no sign that opens a table cell, a heading or markup."""
    return "".join(f"\\{char}" if char in "\\`|#<>[]" else char for char in clean(words, 4000))


def size(value: "int | Missing") -> str:
    """A number of bytes, or the word for its absence."""
    return f"unknown ({value.reason})" if isinstance(value, Missing) else format_bytes(value)


def table(rows: list[tuple[str, ...]], right: tuple[int, ...] = ()) -> list[str]:
    """Columns two blanks apart; those whose index is in `right` are set flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _bytes_cell(span: "Span") -> str:
    return format_bytes(span.likely) if span.exact else f"{format_bytes(span.low)} … {format_bytes(span.high)}"


def prediction(answer: "Prediction", *, explain: bool) -> str:
    """The verdict first, then a table that a person can check by hand."""
    plan, checkpoint = answer.plan, answer.checkpoint
    lines = [f"{_VERDICTS[answer.verdict]}: {clean(checkpoint.name)} ({clean(checkpoint.architecture)}) with {plan.engine} {plan.engine_version}"]
    lines.extend(f"  {clean(reason, 4000)}" for reason in answer.reasons)
    if plan.workload:
        lines.append("  priced for: " + ", ".join(f"{key} {value}" for key, value in plan.workload.items() if value not in (None, [], "")))
    if plan.parts:
        rows: list[tuple[str, ...]] = [("part", "device", "bytes", "size")]
        rows.extend((part.name, part.device, str(part.bytes.likely), _bytes_cell(part.bytes)) for part in plan.parts)
        rows.append(("total", "", str(plan.total().likely), _bytes_cell(plan.total())))
        lines.extend(["", *table(rows, right=(2,))])
    if explain:
        lines.extend(["", *(f"{part.name}: {part.rule}\n    [{part.source}]" for part in plan.parts)])
    lines.extend(["", *(sentence(item.device.budget) for item in answer.gate.devices)])
    if answer.max_ctx is not None:
        why = "as trained" if answer.max_ctx_is_trained else "as asked, longer than trained" if answer.max_ctx_is_asked else ""
        bound = f" ({why}; not looked beyond)" if why else ""
        lines.append(f"largest context that fits: {answer.max_ctx}{bound}" if answer.max_ctx else "largest context that fits: none")
    lines.extend(f"try: {item}" for item in answer.suggestions)
    lines.extend(f"default: {item}" for item in answer.defaults)
    lines.extend(f"not priced: {item}" for item in answer.unpriced)
    lines.extend(f"note: {item}" for item in answer.caveats)
    return "\n".join([*lines, f"note: {CAVEAT}"])


def verified(path: str, lines: int, head: str, signer: str | None = None, *, finished: bool = True, interrupted: bool = False, foretold: str = "") -> str:
    """What `brim verify` says of a good journal; of a run without an end, that it is unfinished, and what brim was doing when it was killed."""
    said = f"Signed by {signer}." if signer else "Without a signature this proves consistency, not authorship."
    open_end = "" if finished else "The run is unfinished: it is still going, or it ended without a report; lines cut off its end cannot be told.\n"
    if interrupted:
        open_end = "The run has ended, and brim was ended before it wrote the report: the end record holds it, and brim report writes it.\n"
    if foretold:  # the job can write there, too
        acts = "; ".join(clean(line, 4000) for line in foretold.splitlines())
        open_end += f"brim was killed while it did this, which stands on the control page and under no chain: {acts}\n"
    return f"{path}: {lines} lines, chain intact, head {head}\n{open_end}{said}"


def error(message: str, hint: str) -> str:
    """One sentence, and what to do."""
    return f"brim: {message}\n      {hint}" if hint else f"brim: {message}"


def limit(name: str, value: object) -> str:
    """One limit as it was understood."""
    if value is None or (not isinstance(value, bool) and value in ((), [], "", 0)):
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "memory_budgets" and isinstance(value, (list, tuple)):
        return ", ".join(f"{device or 'the device'} {format_bytes(count)}" for device, count in value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, int) and name.endswith("_ns"):
        return format_ns(value)
    if isinstance(value, int) and name.endswith("_bytes"):
        return format_bytes(value)
    units = {"_c": " °C", "_w": " W"}
    return f"{value}{next((unit for end, unit in units.items() if name.endswith(end)), '')}"


def ladder(limits: "Limits") -> list[str]:
    """What would be done, level by level (a dry run prints it)."""
    save = "ask for a checkpoint on the control page" + (", else by signal" if limits.checkpoint_signal else " (a job that does not listen is only told about)")
    lines = [
        "brim: on throttle by memory: " + save,
        f"brim: on throttle by heat: slow to half, after {format_ns(limits.heat_patience_ns)} to a quarter, then pause (at most {format_ns(limits.pause_max_ns)})",
        f"brim: on block: checkpoint and stop (up to {format_ns(limits.grace_ns)}), SIGTERM to the leader, then to its workers (up to {format_ns(limits.grace_ns)}), SIGKILL",
        f"brim: when telemetry is lost for {format_ns(limits.unknown_after_ns)}: {limits.on_unknown}",
        f"brim: when brim itself dies: {'the job is ended' if limits.die_with_me else 'the job goes on, ungoverned, and can see it'}",
    ]
    if limits.checkpoint_every_ns:
        lines.append(f"brim: a checkpoint is asked for every {format_ns(limits.checkpoint_every_ns)}")
    return [*lines, "brim: nothing was started (--dry-run)"]


def ended(report: "dict[str, Any]") -> str:
    """One line after a governed run."""
    return f"brim: ended by {report['ended_by']}, exit {report['exit_code']}; report in {report['run_dir']}/report.md"
