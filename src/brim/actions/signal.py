"""Sends one signal to a job's leader, its workers or all, after looking again whether they are still the same, and says what happened; it never decides."""

import contextlib
import os
import signal

from brim.facts.process import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Processes(Protocol):
        """What a signaller must know of processes."""

        def identity(self, pid: int) -> "Identity | None":
            """Say who has this pid now."""
            ...

        def tree(self, leader: int) -> list[int]:
            """Give the pids of the job that are alive."""
            ...

        def on_signal(self, pid: int, number: int) -> str:
            """Say what a signal does to a process."""
            ...


AT_ONCE = 100


class Signaller:
    """Signals a job. Never pid 0 or 1, never ourselves, never a leader that has become somebody else; a pidfd is taken before the last look."""

    def __init__(self, probe: "Processes") -> None:
        self._probe = probe

    def signal(self, target: Identity, number: int) -> str:
        """Send `number` to the leader and everybody else of the job; the outcome in words."""
        return self.tree(target, number)

    def leader(self, target: Identity, number: int) -> str:
        """Send `number` to the leader alone."""
        refused = self._refuses(target)
        if refused:
            return refused
        name = signal.Signals(number).name
        try:
            handle = os.pidfd_open(target.pid)
        except OSError:
            return "already gone"
        try:
            now = self._probe.identity(target.pid)
            if now is None:
                return "already gone"
            if target.is_same(now) is not True:
                return f"refused: pid {target.pid} is another process now"
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return "already gone"
        except PermissionError:
            return f"{name} denied for {target.pid}"
        finally:
            os.close(handle)
        return f"{name} sent to {target.pid}"

    def end(self, target: Identity, number: int) -> str:
        """Send the leader the signal that we were sent, where it catches that one; else SIGTERM."""
        caught = number == signal.SIGTERM or self._probe.on_signal(target.pid, number) == "caught"
        return self.leader(target, number if caught else signal.SIGTERM)

    def workers(self, target: Identity, number: int) -> str:
        """Send `number` to everybody of the job but its leader."""
        return self._many(target, number, [pid for pid in self._probe.tree(target.pid) if pid != target.pid])

    def tree(self, target: Identity, number: int) -> str:
        """Send `number` to the leader, then to everybody else of the job."""
        refused = self._refuses(target)
        if refused:
            return refused
        first = self.leader(target, number)
        if first.startswith("refused"):
            return first
        others = [pid for pid in self._probe.tree(target.pid) if pid != target.pid]
        return f"{first}; {self._many(target, number, others)}" if others else first

    def save(self, target: Identity, number: int) -> str:
        """Send a checkpoint signal to those of the job that catch it: to others it would be the end (leader first)."""
        refused = self._refuses(target)
        if refused:
            return refused
        catching = [pid for pid in self._probe.tree(target.pid) if self._probe.on_signal(pid, number) == "caught"]
        if not catching:
            return f"nobody catches {signal.Signals(number).name}: not sent"
        return self._many(target, number, sorted(catching, key=lambda pid: pid != target.pid))

    def alive(self, target: Identity) -> list[int]:
        """Give who of the job is still there."""
        return self._probe.tree(target.pid)

    def _refuses(self, target: Identity) -> str:
        if target.pid <= 1:
            return f"refused: pid {target.pid} is never signalled"
        now = self._probe.identity(target.pid)
        if now is not None and target.is_same(now) is not True:
            return f"refused: pid {target.pid} is another process now"
        return ""

    def _many(self, target: Identity, number: int, pids: list[int]) -> str:
        """Signal some of the job, each after a look whether it is (still) of the job; a hundred at a time, since each takes a descriptor."""
        name = signal.Signals(number).name
        wanted = [pid for pid in pids if pid > 1 and pid != os.getpid()]
        sent = sum(self._some(target, number, wanted[at : at + AT_ONCE]) for at in range(0, len(wanted), AT_ONCE))
        return f"{name} sent to {sent} process(es)" if sent else "already gone"

    def _some(self, target: Identity, number: int, pids: list[int]) -> int:
        """To how many it was sent."""
        handles: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(OSError):
                handles[pid] = os.pidfd_open(pid)
        sent = 0
        try:
            still = set(self._probe.tree(target.pid))
            for pid, handle in handles.items():
                if pid in still:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(handle, number)
                        sent += 1
        finally:
            for handle in handles.values():
                os.close(handle)
        return sent
