"""How soon the governor looks again: what the decision says, and once more soon where the kernel told of a threshold that was not yet passed."""

from brim.clock import FakeClock
from brim.facts.device import Host, Reading
from brim.facts.look import Look
from brim.facts.settings import Limits
from brim.governor import CROSSED_NS, Governor
from brim.governor.eyes import Seen
from brim.values import Missing


class Parts:
    """A job, eyes, hands, a journal and wakes in one: three looks, a threshold before the second, the job's end before the third."""

    pidfd = -1

    def __init__(self) -> None:
        self.waits, self.looks = [], 0

    def attend(self, _pids: tuple[int, ...] = ()) -> None:
        pass

    def poll(self) -> "int | None":
        return None if self.looks < 3 else 0

    def is_ready(self) -> bool:
        return False

    def look(self, now: int, **_: object) -> Seen:
        self.looks += 1
        look = Look(reading=Reading(at_ns=now, devices=(), host=Host()), usage=Missing(reason="failed", detail=""))
        return Seen(look=look, pids=())

    def append(self, *_: object, **__: object) -> bool:
        return True

    def do(self, *_: object) -> str:
        return ""

    def finish(self) -> list[str]:
        return []

    def wait(self, ns: int) -> tuple[str, ...]:
        self.waits.append(ns)
        return ("threshold:1",) if len(self.waits) == 1 else ()

    def again(self, *_: object) -> None:
        pass

    def forget(self, _fd: int) -> None:
        pass


def test_a_threshold_is_followed_by_one_more_look_soon() -> None:
    """A job that stops growing just past its floor is seen at once, not a whole poll later: the kernel's word comes before our own count shows it."""
    parts = Parts()
    governor = Governor(
        parts, Limits(poll_ns=10**9, woken=True), eyes=parts, hands=parts, journal=parts, clock=FakeClock(), wakes=parts, page=None, watch=lambda *_: None
    )
    governor.govern()
    assert parts.waits[:3] == [10**9, CROSSED_NS, 10**9]
