"""Carries out intents with the actions it was given, and says in words what happened; it decides nothing but which hand fits."""

import os
import signal

from brim import control
from brim.facts.look import GONE
from brim.policy.states import (
    ASKED,
    CHECKPOINT,
    KILLING,
    NOTIFY,
    PAUSE,
    RESUME,
    SIGNALLED,
    SLOW,
    STOP,
    TERMINATING,
    VERIFY,
    WORKERS,
)
from brim.units import MIB, format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from brim.actions.group import Group
    from brim.actions.notify import Notifier
    from brim.actions.pause import Brake
    from brim.actions.power import PowerCap
    from brim.actions.signal import Signaller
    from brim.control import Page
    from brim.facts.look import Look
    from brim.facts.process import Identity
    from brim.policy.states import Intent

UNSEEN_NS = 5_000_000_000


class Hands:
    """Everything that may be done to one job."""

    def __init__(
        self,
        leader: "Identity",
        *,
        page: "Page | None",
        signaller: "Signaller",
        brake: "Brake",
        group: "Group | None",
        notifier: "Notifier",
        checkpoint_signal: int,
        power: "Mapping[str, PowerCap] | None" = None,
    ) -> None:
        self._leader, self._page, self._signaller, self._brake = leader, page, signaller, brake
        self._group, self._notifier, self._checkpoint_signal, self._power = group, notifier, checkpoint_signal, power or {}
        self._capped = False
        self._share, self._stopped = 0, False
        self.ending_signal = int(signal.SIGTERM)

    def do(self, intent: "Intent", look: "Look") -> str:
        """Carry out one intent; the outcome in words."""
        if intent.action == NOTIFY:
            self._notifier.tell(intent.why, intent.level)
            return "told"
        if intent.action == STOP:
            return self._stop(intent, look)
        if intent.action == CHECKPOINT:
            return self._save_by_signal() if intent.stage == "signalled" else self._direct(control.CHECKPOINT, intent)
        if intent.action == VERIFY:
            return self._verify(look)
        return {SLOW: self._slow, PAUSE: self._pause, RESUME: self._resume}[intent.action](intent, look)

    def _direct(self, code: int, intent: "Intent") -> str:
        if self._page is None:
            return "no control page"
        number = self._page.direct(code, intent.deadline_ns, slow_permille=intent.permille)
        return f"request {number} on the control page: {control.NAMES[code]}"

    def _cooperates(self, look: "Look") -> bool:
        """Say whether the job looks at the page: it has spoken there, and it saw the last directive, or that is too recent to say."""
        words = look.words
        if words is None:
            return False
        return words.seen >= words.asked or look.reading.at_ns - words.beat_ns < UNSEEN_NS

    def _slow(self, intent: "Intent", look: "Look") -> str:
        capped = ""
        if self._power and not self._capped:
            self._capped = True
            capped = "; " + "; ".join(cap.apply() for cap in self._power.values())
        if self._cooperates(look) and not self._brake.stopped:
            return self._direct(control.SLOW, intent) + capped
        return self._brake.slow(intent.permille) + capped

    def _pause(self, intent: "Intent", look: "Look") -> str:
        # Who is of the job is asked anew: the look may know of its workers what was so some seconds ago, and a page pauses its leader alone.
        if self._cooperates(look) and not set(self._signaller.alive(self._leader)) - {self._leader.pid}:
            return self._direct(control.PAUSE, intent)
        return self._brake.pause()

    def _resume(self, intent: "Intent", _look: "Look") -> str:
        said = [self._brake.release()]
        if self._page is not None:
            said.append(self._direct(control.RUN, intent))
        return "; ".join(said)

    def _save_by_signal(self) -> str:
        return self._signaller.save(self._leader, self._checkpoint_signal) if self._checkpoint_signal else "no checkpoint signal is set"

    def _stop(self, intent: "Intent", look: "Look") -> str:
        """One stage of a stop. SIGCONT always comes after SIGTERM: a stopped process acts on nothing else."""
        if intent.stage == ASKED:
            return self._direct(control.STOP, intent)
        if intent.stage == SIGNALLED:
            return self._save_by_signal()
        if intent.stage == TERMINATING:
            if self._page is not None and look.words is not None:
                self._page.direct(control.STOP, intent.deadline_ns)
            said = self._signaller.end(self._leader, self.ending_signal) if look.leader != GONE else self._signaller.workers(self._leader, signal.SIGTERM)
            return f"{said}; {self._brake.release()}"
        if intent.stage == WORKERS:
            return f"{self._signaller.workers(self._leader, signal.SIGTERM)}; {self._brake.release()}"
        assert intent.stage == KILLING
        killed = "cgroup.kill; " if self._group is not None and self._group.kill() else ""
        return killed + self._signaller.tree(self._leader, signal.SIGKILL)

    def _verify(self, look: "Look") -> str:
        """Say whether the memory came back."""
        said = []
        for device, count in look.held:
            if isinstance(count, int) and count > 64 * MIB:
                said.append(f"{format_bytes(count)} still held on {device}")
        left = self._signaller.alive(self._leader)
        if left:
            said.append(f"{len(left)} process(es) still alive: {left[:8]}")
        return "; ".join(said) or "the memory came back, no process is left"

    def rest(self) -> str:
        """Stop the job, then brim itself: a job that goes on without its guard is worse than one that waits. Comes back when brim is continued."""
        self._share, self._stopped = self._brake.share, self._brake.stopped
        said = self._brake.pause()
        os.kill(os.getpid(), signal.SIGSTOP)
        return said

    def wake(self) -> str:
        """Let the job go on as it was before `rest`."""
        if self._stopped and not self._share:
            return "stays paused"
        said = f"{self._brake.release()}; {self._signaller.tree(self._leader, signal.SIGCONT)}"  # a Ctrl-Z of its own stopped it beside the freezer
        return self._brake.slow(self._share) if self._share else said

    def keep(self, look: "Look") -> list[str]:
        """Set caps again that something else has changed since (another service's own limit, a reset of the driver); the outcomes in words."""
        if not self._capped:
            return []
        said = [self._power[device.id].again(device.power_limit_w) for device in look.reading.devices if device.id in self._power]
        return [text for text in said if text]

    def finish(self) -> list[str]:
        """Undo what must not outlast the run: the brake, the power cap."""
        said = [self._brake.release() if self._brake.stopped else ""]
        if self._capped:
            said += [cap.restore() for cap in self._power.values()]
        return [text for text in said if text]
