"""How soon the governor looks again: what the decision says, and once more soon where the kernel told of a threshold that was not yet passed."""

from brim.clock import FakeClock
from brim.facts.device import Host, Reading
from brim.facts.look import Look
from brim.facts.settings import Limits
from brim.governor import CROSSED_NS, Governor
from brim.governor.eyes import Seen
from brim.policy import begin
from brim.policy.states import NOTIFY, Decision, Intent
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


class Order(Parts):
    """The same, with a page and a look that wants a stop: what was called, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.words, self.taken = [], [0] * 600, True

    def beat(self, _now: int) -> None:
        pass

    def foretell(self, at_ns: int, _wall_ns: int, text: str) -> None:
        self.calls.append(("foretell", at_ns, text))

    def told(self) -> None:
        self.calls.append(("told",))

    def do(self, intent: object, _look: object) -> str:
        self.calls.append(("do", intent.action, intent.stage))
        return "done"

    def append(self, kind: str, body: dict, *, stamp: "tuple | None" = None, **_: object) -> bool:
        self.calls.append((kind, (stamp or (0, 0))[0], body.get("kind")))
        return self.taken


def _acts(page: bool, taken: bool = True, acts: tuple = (("stop", "asked"),)) -> list:
    parts = Order()
    parts.taken = taken
    clock = FakeClock(5)
    governor = Governor(parts, Limits(), eyes=parts, hands=parts, journal=parts, clock=clock, wakes=parts, page=parts if page else None, watch=lambda *_: None)
    seen = Seen(look=Look(reading=Reading(at_ns=5, devices=(), host=Host()), usage=Missing(reason="failed", detail="")), pids=())
    intents = (Intent(action=NOTIFY, why="level run → block", level="block"), *(Intent(action=action, why="memory", stage=stage) for action, stage in acts))
    decision = Decision(state=begin(0), intents=intents, reasons=(), next_look_ns=1)
    governor._do_all(intents, seen, governor._ask_first(decision, seen), (5, 6))
    return [call for call in parts.calls if call[:2] != ("do", "notify")]


def test_a_request_is_foretold_and_anything_else_recorded_before_it_is_done() -> None:
    """A request: foretold, done, then level, intent (with the stamp of before the act) and outcome, and the page is cleared. Without a page, and for a signal, and for a request behind one, the intent comes first."""
    assert _acts(page=True) == [
        ("foretell", 5, "stop:asked: memory\n"), ("do", "stop", "asked"), ("level", 5, None), ("intent", 5, "stop:asked"), ("told",), ("outcome", 0, "stop:asked"),
    ]  # fmt: skip
    assert _acts(page=False) == [("level", 5, None), ("intent", 0, "stop:asked"), ("do", "stop", "asked"), ("outcome", 0, "stop:asked")]
    signalled = [("level", 5, None), ("intent", 0, "stop:killing"), ("do", "stop", "killing"), ("outcome", 0, "stop:killing")]
    assert _acts(page=True, acts=(("stop", "killing"),)) == signalled
    assert [call[0] for call in _acts(page=True, acts=(("resume", ""), ("stop", "asked")))] == ["level", "intent", "do", "outcome", "intent", "do", "outcome"]


def test_what_the_journal_refused_stays_on_the_page(capfd) -> None:
    """A dead disk: the act is done, stderr says that it has no record, and the page keeps what it was."""
    calls = _acts(page=True, taken=False)
    assert ("told",) not in calls
    assert calls[1] == ("do", "stop", "asked")
    assert "did not take the record" in capfd.readouterr().err
