"""Whether and how a stopped run may be gone on with: its resume document in, a command or a refusal out; no I/O.

A memory failure is never retried unchanged: it needs a smaller workload, by a change of the command that the user gives. A job that ended by itself with 0 has nothing
to go on with. The checkpoint is the last one that the job acknowledged; where it was only signalled for, the job must find it itself.
"""

import re
import shlex

from brim.errors import Refused, Usage
from brim.facts.settings import Limits
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MEMORY_CAUSES = ("memory", "kernel")
BACKOFF_NS, LONGEST_NS = 5_000_000_000, 300_000_000_000


class Again(Record):
    """What to start: the command, its folder and environment, the limits, the checkpoint to go on from (empty: from the start), and sentences to say."""

    command: tuple[str, ...]
    cwd: str
    environ: "Mapping[str, str]"
    limits: Limits
    checkpoint: str
    step: int
    attempt: int
    notes: tuple[str, ...]


def limits_of(document: "Mapping[str, Any]") -> Limits:
    """The limits in a resume document; fields that this version does not know are left out."""
    given: dict[str, Any] = {key: _tuples(value) for key, value in document.items() if key in Limits._fields and key != "woken"}
    return Limits(**given)


def _tuples(value: object) -> object:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def changed(command: "tuple[str, ...]", change: str) -> tuple[str, ...]:
    """Apply a sed-like change (`s/--batch 8/--batch 4/`, any delimiter) to a command. `Usage` where it is malformed or changes nothing.

    A pattern without blanks is a regular expression for one argument; one with blanks is several, for arguments in a row.
    """
    old, new = parsed(change)
    found: list[str] = list(command)
    if len(old) == 1 and len(new) == 1:
        found = [old[0].sub(new[0], word) for word in command]
    else:
        for at in range(len(found) - len(old) + 1):
            if all(pattern.fullmatch(found[at + index]) for index, pattern in enumerate(old)):
                found[at : at + len(old)] = new
                break
    if tuple(found) == command:
        raise Usage(f"{change!r} changes nothing in: {shlex.join(command)}", hint="Give a pattern that is in the command.")
    return tuple(found)


def parsed(change: str) -> "tuple[list[re.Pattern[str]], list[str]]":
    """The patterns and the words of a sed-like change. `Usage` where it is malformed."""
    if len(change) < 4 or change[0] != "s":
        raise Usage(f"{change!r} is no change: write s/--batch 8/--batch 4/")
    parts = change[2:].split(change[1])
    if len(parts) < 2 or not parts[0] or (len(parts) > 2 and parts[2] not in ("", "g")):
        raise Usage(f"{change!r} is no change: write s/--batch 8/--batch 4/")
    try:
        several = " " in parts[0] or " " in parts[1] or not parts[1]
        old = [re.compile(word) for word in (shlex.split(parts[0]) if several else [parts[0]])]
        new = shlex.split(parts[1]) if several else [parts[1]]
    except (re.error, ValueError) as fault:
        raise Usage(f"{change!r}: {fault}") from None
    return old, new


# Options whose number is what a workload holds memory for (by a word of their name, or in full): a greater one is a larger workload in every engine that brim knows.
_LARGER = ("batch", "ctx", "context", "seq", "length", "slots", "parallel", "ngl", "gpu-layers")
_LARGER_IN_FULL = ("-c", "-b", "-ub", "-np", "-bs")
_SMALLER = ("accum", "tensor-parallel", "pipeline-parallel", "data-parallel", "no-")


def apply_here(command: "tuple[str, ...]", change: str) -> tuple[str, ...]:
    """The command that a change would make after a memory failure, looked at before the start: `Usage` where it does not apply, or makes the workload larger.

    Larger is known where only numbers differ, none of them falls, and one belongs to an option for a batch, a context, a length or a number of slots. Not covered: other
    options and other words, whose meaning only the job knows.
    """
    after = changed(command, change)
    if len(after) == len(command):
        steps = [_step(command, after, at) for at in range(len(command)) if command[at] != after[at]]
        if steps and all(step is not None and step[1] > 0 for step in steps) and any(step is not None and _holds_memory(step[0]) for step in steps):
            raise Usage(f"--on-oom {change!r} makes the workload larger: {shlex.join(after)}", hint="After a memory failure it has to be smaller.")
    return after


def _step(before: "tuple[str, ...]", after: "tuple[str, ...]", at: int) -> "tuple[str, float] | None":
    """(option, difference) where one argument differs in its number alone (`8`, or `--batch=8`); None for any other difference."""
    old, new = (words[at].rpartition("=") for words in (before, after))
    if old[0] != new[0]:
        return None
    try:
        return old[0] or (before[at - 1] if at else ""), float(new[2]) - float(old[2])
    except ValueError:
        return None


def _holds_memory(option: str) -> bool:
    word = option.lower().replace("_", "-")
    return word in _LARGER_IN_FULL or (any(name in word for name in _LARGER) and not any(name in word for name in _SMALLER))


def plan(
    document: "Mapping[str, Any]",
    here: "Mapping[str, str]",
    *,
    command: "tuple[str, ...]" = (),
    on_oom: str = "",
    from_start: bool = False,
    exists: bool = True,
) -> Again:
    """What to start to go on with a run. `Refused` where it must not be gone on with; `Usage` where there is nothing to go on with.

    `here` is the present environment: names that were not kept come from it. `exists` says whether the checkpoint's path is still there.
    """
    cause, code = str(document.get("cause", "")), document.get("exit_code")
    by = str(document.get("stopped_by", ""))
    if code == 0 and by == "child":
        raise Usage("the job ended by itself with 0: there is nothing to go on with", hint="Start a new run.")
    before = tuple(document.get("command", ()))
    limits = limits_of(document.get("limits", {}))
    notes: list[str] = []
    after = command or before
    if (cause in MEMORY_CAUSES or by in MEMORY_CAUSES) and after == before:
        change = on_oom or limits.on_oom
        if not change:
            raise Refused(
                f"not resumed: it was stopped for memory ({document.get('reason', '')}), and a memory failure is never retried unchanged",
                hint="Make the workload smaller: --on-oom 's/--batch 8/--batch 4/', or give the new command behind --.",
            )
        after = changed(before, change)
        notes.append(f"after a memory failure the command is changed: {shlex.join(after)}")
    last = document.get("checkpoint", {})
    path, step = ("", -1) if from_start or last.get("state") != "acknowledged" else (str(last["path"]), int(last["step"]))
    if path and not exists:
        raise Refused(f"not resumed: its checkpoint {path} is gone", hint="Put it back, or start anew with --from-start.")
    if last.get("state") == "signalled" and not from_start:
        notes.append("a checkpoint was only signalled for: the job itself must find its last state")
    if last.get("state") == "none" and not from_start:
        notes.append("no checkpoint was acknowledged: the job starts from what it finds itself")
    if path:
        notes.append(f"going on from step {step}, {path}")
    missing = sorted(name for name in document.get("environ_not_kept", ()) if name not in here)
    if missing:
        notes.append(f"not kept for safety and not set here: {', '.join(missing)}")
    secrets = {name: here[name] for name in document.get("environ_not_kept", ()) if name in here}
    environ = {**document.get("environ", {}), **secrets}
    return Again(
        command=after, cwd=str(document.get("cwd", "")), environ=environ, limits=limits, checkpoint=path, step=step,
        attempt=int(document.get("attempt", 0)) + 1, notes=tuple(notes),
    )  # fmt: skip


def retriable(report: "Mapping[str, Any]") -> bool:
    """Whether a resumed run that ended like this may be tried again without asking: stopped by the governor, not from outside, with a checkpoint newer than its start."""
    return report.get("ended_by") == "governor" and report.get("checkpoint", {}).get("state") == "acknowledged"


def backoff_ns(base_ns: int, attempt: int) -> int:
    """How long to wait before an attempt (the second is 2): doubled each time, at most five minutes; nothing before the first."""
    return 0 if attempt <= 1 else min(base_ns * 2 ** min(attempt - 2, 16), LONGEST_NS)
