"""Goes on with a stopped run: reads its resume document, asks whether and how (`again`), waits, launches; as often as the retry budget allows."""

import json
import os

from brim import again, api, launch
from brim.clock import SystemClock
from brim.errors import BrimError, BrokenJournal, Refused, Unreadable
from brim.facts.extras import Extras
from brim.journal import store
from brim.probes.process import ProcessProbe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from brim.facts.settings import Limits
    from brim.launch import RunResult
    from brim.prediction import Prediction
    from brim.seams import Clock, Probe

LONGEST_CHAIN = 1000  # runs that were gone on with, one from the other


def resume(
    run: str,
    command: "tuple[str, ...]" = (),
    *,
    overrides: "Mapping[str, object] | None" = None,
    on_oom: str = "",
    from_start: bool = False,
    retries: int = 1,
    backoff_ns: int = 5_000_000_000,
    run_dir: str | None = None,
    force: bool = False,
    extras: "Extras | None" = None,
    clock: "Clock | None" = None,
    probe: "Probe | None" = None,
    readings: str = "",
) -> "RunResult":
    """Go on with a stopped run, `retries` times at most, each from the newest acknowledged checkpoint; see `again.plan` for what is refused.

    Each try is gated and takes its seat in the ledger of promises as a first run does: by the command's own plan, else, where the command is the same, by what the run before was priced at.
    `command` stands for the old one; `overrides` are limits that differ; `readings` is a script that stands in for the probes while the command is priced. `Unreadable` where there is no resume document, `Refused` where the job still runs.
    """
    clock, extras, folder = clock or SystemClock(), extras or Extras(), api.run_folder(run)
    eyes = probe or api.machine(clock=clock, wake=True)
    for number in range(1, retries + 1):
        document = resume_document(folder)
        if (pid := living(folder)) is not None:
            raise Refused(f"not resumed: the job of {folder} still runs, as pid {pid}", hint=f"Let it end, or end it (kill {pid}), and resume then.")
        path = str(document.get("checkpoint", {}).get("path", ""))
        todo = again.plan(document, os.environ, command=command, on_oom=on_oom, from_start=from_start, exists=os.path.exists(path))
        clock.sleep_ns(again.backoff_ns(backoff_ns, number))
        for note in todo.notes:
            if extras.say is not None:
                extras.say(note)
        origins = tuple((name, "resume" if name in (overrides or {}) else origin) for name, origin in todo.limits.origins)
        limits = todo.limits.replace(origins=origins, **(overrides or {}))
        priced = _priced(todo, limits, readings)
        needs = () if priced is not None else _priced_before(folder, list(todo.command))
        ledger = extras.ledger or api.ledger_path(os.environ)
        more = extras.replace(
            ledger=ledger,
            needs=needs,
            resume_from=todo.checkpoint,
            resume_step=todo.step,
            resumed_run=os.path.abspath(folder),
            attempt=todo.attempt,
            cwd=todo.cwd,
        )
        target = run_dir if run_dir and number == 1 else api.default_run_dir(f"-{number}" if number > 1 else "")
        result = launch.run(todo.command, limits, run_dir=target, prediction=priced, force=force, environ=todo.environ, clock=clock, probe=eyes, extras=more)
        folder, command = result.run_dir, ()
        if not again.retriable(result.report):
            break
    return result


def _priced(todo: again.Again, limits: "Limits", readings: str) -> "Prediction | None":
    """The plan of the command that is started, where it names a model itself; None where brim cannot price it."""
    environ = {**todo.environ, **({"BRIM_READINGS": readings} if readings else {})}
    if (budget := limits.budget("") or limits.budget("cpu")) is not None:
        environ["BRIM_DEVICE_BUDGET_BYTES"] = str(budget)
    try:
        if (training := api.training_command(todo.command)) is not None:
            return api.fit_training(training[1], training[0]) if training[1] else None
        return api.fit(command=todo.command, device=limits.devices, environ=environ)
    except BrimError:
        return None


def _priced_before(folder: str, command: "list[str]") -> "tuple[tuple[str, int], ...]":
    """What the same command was priced at when it was first started, per device in bytes: the high end where that fitted, else what was likely. Nothing where it was not priced."""
    for _ in range(LONGEST_CHAIN):
        try:
            plan = api.run_document(folder, "plan.json", "brim.plan/1", "no plan", "").get("prediction")
            before = api.run_document(folder, "resume.json", "brim.resume/1", "no resume state", "")
            if before["command"] != command:
                return ()
            if plan is None:
                folder = before["resumed_run"]
                continue
            real = [row for row in plan["devices"] if not row["budget"].get("hypothetical")]
            return tuple((row["id"], int(row["required_bytes"]["high" if row["fits"] else "likely"])) for row in real)
        except (Unreadable, KeyError, TypeError, ValueError):
            return ()
    return ()


def living(folder: str) -> "int | None":
    """A pid of the run's job that is still alive: the launched process itself, or one of its group that carries the run's mark; None where nobody is left.

    A pid alone proves nothing, since it is given out again: the process must have been born when the journal says, or name the run in its environment.
    """
    try:
        launched = [json.loads(line.body) for line in store.events(os.path.join(folder, "journal.db")) if line.kind == "launched"]
    except (Unreadable, BrokenJournal):
        return None
    if not launched or not isinstance(pid := launched[-1].get("pid"), int):
        return None
    process = ProcessProbe()
    found = process.identity(pid)
    if found is not None and found.birth == launched[-1].get("birth"):
        return pid
    return next((one for one in process.tree(pid) if _carries(one, os.fsencode(f"BRIM_RUN={os.path.abspath(folder)}"))), None)


def _carries(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def resume_document(folder: str) -> "dict[str, Any]":
    """The `brim.resume/1` document of a run. `Unreadable` where there is none or it is no JSON."""
    document = api.run_document(folder, "resume.json", "brim.resume/1", "nothing to resume here", "Name a run folder (brim runs lists them).")
    return document if document.get("exit_code") is not None else _completed(folder, document)


def _completed(folder: str, document: "dict[str, Any]") -> "dict[str, Any]":
    """A resume document that was never told of the run's end, with what the journal says of it (brim was ended before it could write it down)."""
    try:
        told = {line.kind: json.loads(line.body) for line in store.events(os.path.join(folder, "journal.db")) if line.kind in ("child_end", "end")}
    except (Unreadable, BrokenJournal, ValueError):
        return document
    report = told.get("end", {}).get("report")
    if isinstance(report, dict):
        kept = {"exit_code": report.get("exit_code"), "stopped_by": report.get("ended_by"), "checkpoint": report.get("checkpoint", document["checkpoint"])}
        return {**document, **kept, "cause": report.get("cause", ""), "reason": report.get("reason", "")}
    if (end := told.get("child_end")) is not None:
        return {**document, "exit_code": end.get("exit_code"), "stopped_by": end.get("by"), "cause": end.get("cause", ""), "reason": end.get("reason", "")}
    return document
