"""Stops and continues a job, whole or for a share of the time; it re-checks nobody's identity but through the signaller it was given, and never decides.

Pausing stops growth and heat and frees no memory. The duty cycle runs in a thread of its own; `SIGCONT` (or a thaw) is always sent last: nothing stays stopped.
Guarantees: after `release` the job is running; the freezer is used where the job has a v2 group (it cannot be seen or undone by the job), SIGSTOP elsewhere.
"""

import signal
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from brim.actions.group import Group

PERIOD_S = 0.2


class Brake:
    """One job's brake. `send` signals the whole tree and says what happened."""

    def __init__(self, send: "Callable[[int], str]", group: "Group | None") -> None:
        self._send, self._group = send, group
        self._share = 0
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.stopped = False

    @property
    def share(self) -> int:
        """Thousandths of the time for which the job is stopped now; 0 without a duty cycle."""
        return self._share

    def pause(self) -> str:
        """Stop the whole job until `release`."""
        self._share = 0
        with self._lock:
            return self._stop()

    def slow(self, permille: int) -> str:
        """Let the job run for 1000 − `permille` thousandths of the time."""
        self._share = min(permille, 950)
        if self._thread is None or not self._thread.is_alive():
            self._wake.clear()
            self._thread = threading.Thread(target=self._cycle, name="brim-duty", daemon=True)
            self._thread.start()
        return f"duty cycle: stopped {permille / 10:g} % of every {PERIOD_S * 1e3:.0f} ms"

    def release(self) -> str:
        """Let the job run at full speed again."""
        self._share = 0
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)
        with self._lock:
            return self._go()

    def _cycle(self) -> None:
        while self._share and not self._wake.is_set():
            idle = PERIOD_S * self._share / 1000
            with self._lock:
                self._stop()
            self._wake.wait(idle)
            with self._lock:
                if self._share:
                    self._go()
            self._wake.wait(PERIOD_S - idle)

    def _stop(self) -> str:
        self.stopped = True
        if self._group is not None and self._group.freeze(frozen=True):
            return "frozen (cgroup.freeze)"
        return self._send(signal.SIGSTOP)

    def _go(self) -> str:
        was, self.stopped = self.stopped, False
        if self._group is not None and self._group.freeze(frozen=False):
            return "thawed (cgroup.freeze)" if was else "was running"
        return self._send(signal.SIGCONT) if was else "was running"
