"""Sends one signal to one process group, after looking again whether it is still the same process, and reports what happened; it never decides."""

import os
import signal

from brim.facts.process import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.seams import ProcessProbe


class Signaller:
    """Signals a job's whole group, and those of its descendants that left the group."""

    def __init__(self, probe: "ProcessProbe") -> None:
        self._probe = probe

    def signal(self, target: Identity, number: int) -> str:
        """Send `number` to the group that `target` leads, and to stray descendants. The outcome in words.

        Never signals pid 0 or 1, nor a group whose leader has become somebody else. A leader that ended while its group lives on is no
        obstacle: a group id is not given out again while the group has members.
        """
        if target.pid <= 1:
            return f"refused: pid {target.pid} is never signalled"
        now = self._probe.identity(target.pid)
        if now is not None and target.is_same(now) is not True:
            return f"refused: pid {target.pid} is another process now"
        name = signal.Signals(number).name
        strays = [pid for pid in self._probe.tree(target.pid) if pid > 1 and pid not in (target.pid, os.getpid())]
        sent = 0
        try:
            os.killpg(target.pid, number)
            sent += 1
        except ProcessLookupError:
            pass
        except PermissionError:
            return f"{name} denied for group {target.pid}"
        for pid in strays:
            sent += self._one(pid, number, target.pid)
        return f"{name} sent to group {target.pid}" + (f" and {sent - 1} more" if sent > 1 else "") if sent else "already gone"

    @staticmethod
    def _one(pid: int, number: int, group: int) -> int:
        """Signal one stray descendant that is not in the group (members have had theirs)."""
        try:
            if os.getpgid(pid) == group:
                return 0
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            return 0
        return 1
