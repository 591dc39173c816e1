"""The run folder: everything that is written about one run, and the words a resumed run is made from; it decides nothing."""

import json
import os
import re
import threading

from brim.actions.files import write_atomically
from brim.actions.notify import to_stderr
from brim.governor import Ending, checkpoint_of
from brim.journal.store import Journal
from brim.records import LATER, report_digest
from brim.reports import documents, markdown
from brim.values import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from brim.facts.extras import Extras
    from brim.facts.process import Checkpointed
    from brim.facts.settings import Limits
    from brim.policy.states import State
    from brim.prediction import Prediction
    from brim.seams import Clock

COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # what an engine writes around its words on a terminal
# Environment values that are never written down; a resumed run takes them from its own environment.
SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "COOKIE", "AUTH")


class Book:
    """One run's folder. Resume state is written by a thread of its own: a slow disk never holds the governor up."""

    def __init__(
        self,
        run_dir: str,
        clock: "Clock",
        command: list[str],
        limits: "Limits",
        prediction: "Prediction | None",
        environ: "dict[str, str]",
        extras: "Extras",
    ) -> None:
        self.run_dir, self.clock, self.command, self.environ = os.path.abspath(run_dir), clock, command, environ
        self.journal = Journal(os.path.join(run_dir, "journal.db"), clock)
        self._limits, self._prediction, self._attempt, self._resumed_run = limits, prediction, extras.attempt, extras.resumed_run
        self._resumed_step = extras.resume_step
        self.cwd = extras.cwd or os.getcwd()
        self._begun_ns, self._begun_wall_ns = clock.now_ns(), clock.wall_ns()
        self._kept: tuple[object, ...] = ()
        self._latest: dict[str, Any] | None = None
        self._wake, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._write_states, name="brim-resume", daemon=True)

    @property
    def wants_log(self) -> bool:
        """Whether the job is an engine whose own log is set beside the plan: then its output is kept, also past a terminal."""
        return self._prediction is not None and self._prediction.plan.engine != "train"

    def begin(self, version: str) -> None:
        """The first record, the plan, and a first resume state (a governor that is killed leaves one too)."""
        begun = {"schema": "brim.journal/1", "brim": version, "command": self.command, "cwd": self.cwd, "limits": plain(self._limits)}
        self.journal.append(
            "begin",
            {**begun, **({"resumed_run": self._resumed_run, "resumed_step": self._resumed_step, "attempt": self._attempt} if self._resumed_run else {})},
        )
        plan = {
            "schema": "brim.plan/1",
            "prediction": None if self._prediction is None else documents.prediction(self._prediction),
            "limits": plain(self._limits),
        }
        self._write("plan.json", plan)
        self._write("resume.json", self._resume(None, "running", "", ""), mode=0o600)
        self._thread.start()

    def keep_state(self, state: "State") -> None:
        """Write the resume state where something in it changed: a checkpoint, an evaluation, a signal."""
        now = (state.checkpoint_at_ns, state.evaluations, state.signalled_ns)
        if now in (self._kept, (-1, 0, -1)):
            return
        self._kept = now
        self._latest = self._resume(None, "running", "", "", checkpoint_of(state))
        self._wake.set()

    def _write_states(self) -> None:
        while not self._closed:
            self._wake.wait()
            self._wake.clear()
            latest = self._latest
            if latest is not None and not self._closed:
                self._write("resume.json", latest, mode=0o600)

    def _resume(self, code: "int | None", by: str, cause: str, reason: str, checkpoint: "Checkpointed | None" = None) -> "dict[str, Any]":
        return documents.resume(
            command=self.command, cwd=self.cwd, environ=_safe(self.environ), hidden=sorted(set(self.environ) - set(_safe(self.environ))), limits=self._limits,
            exit_code=code, by=by, cause=cause, reason=reason, checkpoint=checkpoint, attempt=self._attempt, resumed_run=self._resumed_run,
        )  # fmt: skip

    def close(self, exit_code: int, by: str, reason: str, ending: "Ending | None") -> "Mapping[str, Any]":
        """Write the end record with the report and its digest, then the reports, which carry the journal's head, then resume.json.

        resume.json says last that the run has ended: a run that is cut between these says of itself that it did not end well, and the end record holds what the papers lack.
        """
        report = documents.run(
            run_dir=self.run_dir, command=self.command, limits=self._limits, prediction=self._prediction, ending=ending, exit_code=exit_code, by=by, reason=reason,
            began_wall_ns=self._begun_wall_ns, lasted_ns=self.clock.now_ns() - self._begun_ns, engine_log=self._log(), journal_head="",
        )  # fmt: skip
        whole = {key: value for key, value in report.items() if key not in LATER}
        if not self.journal.append(
            "end", {"exit_code": exit_code, "by": by, "report_sha256": report_digest(report), "report": whole}, deadline_ns=5_000_000_000
        ):
            to_stderr(f"the end record could not be written into {self.journal.path}: this run cannot be proved")
        self.journal.close()
        report["journal_head"] = self.journal.head
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        cause = "" if ending is None else ending.cause
        self._write("report.json", report)
        self._write("report.md", markdown.run(report))
        self._write("resume.json", self._resume(exit_code, by, cause, reason, None if ending is None else ending.checkpoint), mode=0o600)
        return report

    def _log(self) -> str:
        try:
            with open(os.path.join(self.run_dir, "engine.log"), encoding="utf-8", errors="replace") as file:
                return COLOUR.sub("", file.read(8 << 20))
        except OSError:
            return ""

    def _write(self, name: str, content: "Mapping[str, Any] | str", mode: int = 0o644) -> None:
        text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        try:
            write_atomically(os.path.join(self.run_dir, name), text, mode=mode)
        except OSError as fault:
            to_stderr(f"{name} could not be written: {fault.strerror}")


def _safe(environ: "dict[str, str]") -> "dict[str, str]":
    """The environment without what looks like a secret and without brim's own words for a job."""
    return {
        key: value
        for key, value in environ.items()
        if not any(word in key.upper() for word in SECRET_WORDS) and not key.startswith(("BRIM_CONTROL", "BRIM_RUN", "BRIM_RESUME"))
    }
