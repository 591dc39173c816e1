"""Ask the gate, start the child in its own group, hand it to the governor; refuse loudly, exit with the refusal's code."""

import json
import os
import signal
import sys

from brim import __version__
from brim.actions.child import Child
from brim.actions.files import write_atomically
from brim.actions.signal import Signaller
from brim.clock import SystemClock
from brim.errors import Refused, Unreadable, Usage
from brim.facts.process import Ending
from brim.gate import DOES_NOT_FIT
from brim.governor import Governor
from brim.journal.store import Journal
from brim.probes.host import HostProbe
from brim.probes.process import ProcessProbe
from brim.reports import documents, markdown
from brim.values import Record, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from brim.facts.settings import Limits
    from brim.prediction import Prediction
    from brim.seams import Clock

STOPPED = 75
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunResult(Record):
    """How a run ended: brim's own exit code, its folder, and the report (`brim.run/1`)."""

    exit_code: int
    run_dir: str
    report: "Mapping[str, Any]"


def run(
    command: "Sequence[str]",
    limits: "Limits",
    *,
    run_dir: str,
    prediction: "Prediction | None",
    force: bool = False,
    environ: "Mapping[str, str] | None" = None,
    clock: "Clock | None" = None,
) -> RunResult:
    """Gate, launch and govern one command; every outcome leaves a report in `run_dir`.

    `Refused` where the gate says no (the folder then holds the refusal); `Unreadable` where the run folder or the command cannot be used.
    """
    clock = clock or SystemClock()
    _make_folder(run_dir)
    journal = Journal(os.path.join(run_dir, "journal.db"), clock)
    begun = {"schema": "brim.journal/1", "brim": __version__, "command": list(command), "cwd": os.getcwd(), "limits": plain(limits)}
    journal.append("begin", begun)
    book = _Book(run_dir, journal, clock, list(command), limits, prediction)
    book.write_plan()
    verdict = prediction.verdict if prediction is not None else "cannot_tell"
    reasons = list(prediction.reasons) if prediction is not None else ["no model that brim can price is named; the limits alone are enforced"]
    journal.append("gate", {"verdict": verdict, "reasons": reasons, "forced": force})
    if verdict == DOES_NOT_FIT and not force:
        book.close(Refused.exit_code, "gate", "; ".join(reasons), None)
        raise Refused(f"not started: {'; '.join(reasons)}", hint=_nearest(prediction))
    return _govern(book, limits, dict(os.environ if environ is None else environ))


def _govern(book: "_Book", limits: "Limits", environ: "dict[str, str]") -> RunResult:
    probe = ProcessProbe()
    book.journal.append("launch", {"command": book.command})
    child = Child(book.command, probe, env=environ, cwd=os.getcwd(), log_path=os.path.join(book.run_dir, "engine.log"))
    book.journal.append("launched", {"pid": child.pid, "birth": plain(child.identity.birth)})
    governor = Governor(child, limits, host=HostProbe(), process=probe, actuator=Signaller(probe), journal=book.journal, clock=book.clock)

    def hand_on(number: int, _frame: object) -> None:
        governor.asked_to_stop = number

    previous = {number: signal.signal(number, hand_on) for number in _PASSED_ON}
    try:
        child.release()
        ending = governor.govern()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        child.close()
    own = 128 - ending.status if ending.status < 0 else ending.status
    book.journal.append("child_end", {"exit_code": own, "by": ending.by, "status": ending.status, "reason": ending.reason})
    return book.close(own if ending.by == "child" else STOPPED, ending.by, ending.reason, ending)


class _Book:
    """The run folder: everything that is written about one run."""

    def __init__(self, run_dir: str, journal: Journal, clock: "Clock", command: list[str], limits: "Limits", prediction: "Prediction | None") -> None:
        self.run_dir, self.journal, self.clock, self.command = run_dir, journal, clock, command
        self._limits, self._prediction, self._begun_ns, self._begun_wall_ns = limits, prediction, clock.now_ns(), clock.wall_ns()

    def write_plan(self) -> None:
        """The prediction as it stood before the launch."""
        plan = {
            "schema": "brim.plan/1",
            "prediction": None if self._prediction is None else documents.prediction(self._prediction),
            "limits": plain(self._limits),
        }
        self._write("plan.json", plan)

    def close(self, exit_code: int, by: str, reason: str, ending: Ending | None) -> RunResult:
        """Write the end record, then resume.json and the reports, which carry the journal's head."""
        self.journal.append("end", {"exit_code": exit_code, "by": by})
        self.journal.close()
        log = self._log()
        report = documents.run(
            run_dir=self.run_dir, command=self.command, limits=self._limits, prediction=self._prediction, ending=ending, exit_code=exit_code, by=by, reason=reason,
            began_wall_ns=self._begun_wall_ns, lasted_ns=self.clock.now_ns() - self._begun_ns, engine_log=log, journal_head=self.journal.head,
        )  # fmt: skip
        resume = {
            "schema": "brim.resume/1", "command": self.command, "cwd": os.getcwd(), "exit_code": exit_code, "stopped_by": by, "reason": reason,
            "checkpoint": {"state": "none", "detail": "no checkpoint was acknowledged or signalled for"},
        }  # fmt: skip
        self._write("resume.json", resume)
        self._write("report.json", report)
        self._write("report.md", markdown.run(report))
        return RunResult(exit_code=exit_code, run_dir=self.run_dir, report=report)

    def _log(self) -> str:
        try:
            with open(os.path.join(self.run_dir, "engine.log"), encoding="utf-8", errors="replace") as file:
                return file.read(8 << 20)
        except OSError:
            return ""

    def _write(self, name: str, content: "Mapping[str, Any] | str") -> None:
        text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        try:
            write_atomically(os.path.join(self.run_dir, name), text)
        except OSError as fault:
            print(f"brim: {name} could not be written: {fault.strerror}", file=sys.stderr)


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as fault:
        raise Unreadable(f"{path}: the run folder cannot be made: {fault.strerror}", hint="Give a writable --run-dir.") from None
    if os.path.exists(os.path.join(path, "journal.db")):
        raise Usage(f"{path}: already holds a run", hint="Give another --run-dir.")


def _nearest(prediction: "Prediction | None") -> str:
    if prediction is None or not prediction.suggestions:
        return "Use --force to start anyway; the limits stay enforced."
    return "; ".join(prediction.suggestions) + ". Or use --force to start anyway; the limits stay enforced."
