"""Read, decide, record, look again, act, record, sleep: one screen, in that order; the record precedes the act, but no stop waits on a disk."""

import signal
import sys

from brim import policy
from brim.facts.process import Ending
from brim.values import Missing, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from brim.facts.device import Host
    from brim.facts.process import Identity, Usage
    from brim.facts.settings import Limits
    from brim.policy import Decision, Intent
    from brim.seams import Actuator, Clock, ProcessProbe, Sink

    class HostReader(Protocol):
        """One look at the host."""

        def read(self) -> Host:
            """The host now."""
            ...

    class Job(Protocol):
        """The child as the governor sees it."""

        identity: Identity

        def wait(self, nanoseconds: int) -> int | None:
            """Wait at most so long; the exit status, or None while it runs."""
            ...


RECORD_DEADLINE_NS = 50_000_000  # a stop never waits longer than this for its record (DESIGN.md, section 4)
SAMPLE_EVERY_NS = 1_000_000_000


class Governor:
    """Watches one job until it ends. `asked_to_stop` is set from outside (a signal handler) to the signal's number."""

    def __init__(
        self, job: "Job", limits: "Limits", *, host: "HostReader", process: "ProcessProbe", actuator: "Actuator", journal: "Sink", clock: "Clock"
    ) -> None:
        self._job, self._limits, self._host, self._process = job, limits, host, process
        self._actuator, self._journal, self._clock = actuator, journal, clock
        self.asked_to_stop = 0
        self._passed_on = 0
        self._stopped_by = self._reason = ""
        self._peak: list[int | None] = [None, None, None]  # held, mapped, lowest free
        self._level_ns: dict[str, int] = {}
        self._looks = 0
        self._sampled_ns = -SAMPLE_EVERY_NS

    def govern(self) -> Ending:
        """Look, decide and act until the job has ended."""
        state, before = policy.State(), self._clock.now_ns()
        while True:
            usage, host, now = self._process.usage(self._job.identity), self._host.read(), self._clock.now_ns()
            state = self._hand_on(state, now)
            decision = policy.decide(self._limits, state, usage, host, now)
            self._level_ns[decision.state.level] = self._level_ns.get(decision.state.level, 0) + now - before
            state, before = decision.state, now
            self._note(decision, usage, now)
            for intent in decision.intents:
                self._carry_out(intent, decision)
            status = self._job.wait(decision.poll_ns)
            if status is not None:
                return self._ended(status)

    def _hand_on(self, state: policy.State, now: int) -> policy.State:
        """Pass a signal that we were sent on to the job, once each time it comes; from then on the grace runs."""
        number, self.asked_to_stop = self.asked_to_stop, 0
        if not number:
            return state
        reason = f"brim run was sent {signal.Signals(number).name}"
        self._record_stop("intent", {"kind": policy.TERMINATE, "reason": reason})
        outcome = self._actuator.signal(self._job.identity, number)
        self._record_stop("outcome", {"kind": policy.TERMINATE, "outcome": outcome})
        self._stopped_by, self._reason = self._stopped_by or "signal", self._reason or reason
        return state if state.phase != policy.RUNNING else state.replace(phase=policy.TERMINATING, terminated_at_ns=now)

    def _note(self, decision: "Decision", usage: "Usage", now: int) -> None:
        """Keep the extremes, and write a sample once a second and whenever the level changed."""
        self._looks += 1
        for index, value in enumerate((usage.held_bytes, usage.mapped_file_bytes)):
            if isinstance(value, int):
                self._peak[index] = max(value, self._peak[index] or 0)
        if isinstance(decision.free_bytes, int):
            lowest = self._peak[2]
            self._peak[2] = decision.free_bytes if lowest is None else min(lowest, decision.free_bytes)
        if now - self._sampled_ns >= SAMPLE_EVERY_NS or decision.intents:
            self._sampled_ns = now
            body = {"held_bytes": plain(usage.held_bytes), "mapped_file_bytes": plain(usage.mapped_file_bytes), "processes": usage.processes}
            self._journal.append("sample", {**body, "free_bytes": plain(decision.free_bytes), "level": decision.state.level}, durable=False)

    def _carry_out(self, intent: "Intent", decision: "Decision") -> None:
        """Record, look again (the actuator checks the identity), act, record."""
        if intent.kind == policy.NOTIFY:
            self._journal.append("level", {"level": decision.state.level, "reason": intent.reason}, durable=False)
            if decision.state.level != policy.RUN:
                print(f"brim: {intent.reason}", file=sys.stderr)
            return
        self._stopped_by, self._reason = self._stopped_by or "governor", self._reason or intent.reason
        self._record_stop("intent", {"kind": intent.kind, "reason": intent.reason})
        outcome = self._actuator.signal(self._job.identity, signal.SIGTERM if intent.kind == policy.TERMINATE else signal.SIGKILL)
        self._record_stop("outcome", {"kind": intent.kind, "outcome": outcome})
        print(f"brim: {intent.kind}: {intent.reason}; {outcome}", file=sys.stderr)

    def _record_stop(self, kind: str, body: "dict[str, object]") -> None:
        """Try the record within the deadline; where the disk does not answer, say so, and let the record follow, marked late."""
        if not self._journal.append(kind, body, deadline_ns=RECORD_DEADLINE_NS):
            print(f"brim: the journal did not take the record {kind} {body} in {RECORD_DEADLINE_NS // 10**6} ms; going on without it", file=sys.stderr)
            self._journal.append(kind, {**body, "late": True}, durable=False)

    def _ended(self, status: int) -> Ending:
        """The job's leader has ended; nobody of its tree may be left behind after a stop."""
        if self._stopped_by:
            rest = [pid for pid in self._process.tree(self._job.identity.pid) if pid != self._job.identity.pid]
            if rest:
                self._record_stop("intent", {"kind": policy.KILL, "reason": f"{len(rest)} process(es) of the job outlived its leader"})
                self._record_stop("outcome", {"kind": policy.KILL, "outcome": self._actuator.signal(self._job.identity, signal.SIGKILL)})
        held, mapped, free = (Missing(reason="gone", detail="the job ended before it was seen") if value is None else value for value in self._peak)
        return Ending(
            status=status, by=self._stopped_by or "child", reason=self._reason, peak_held_bytes=held, peak_mapped_bytes=mapped,
            lowest_free_bytes=free, level_ns=self._level_ns, looks=self._looks,
        )  # fmt: skip
