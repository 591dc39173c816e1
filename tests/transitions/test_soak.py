"""A day under the real governor on a virtual clock: its loop, mind, journal, evidence and claims, with a job and a card that a test plays."""

import os

import pytest

from brim import claim as claims
from brim import dossier
from brim.facts.device import Device, Host, Memory, Reading
from brim.facts.look import GONE, SAME, JobWords, Look
from brim.facts.process import Identity, Usage
from brim.facts.settings import SECOND, limits
from brim.governor import Governor
from brim.governor.eyes import Seen
from brim.journal.store import Journal
from brim.units import GIB, MIB
from brim.values import Missing, plain
from tests.transitions.driver import BUDGET

HOUR = 3600 * SECOND
POLL = 60 * SECOND


class World:
    """Clock, card and job in one: `second` is the time; the hooks say what the card shows and what happens to the clock and to the job."""

    def __init__(self) -> None:
        self.now = 1000 * SECOND
        self.slept = 0
        self.ended: int | None = None
        self.identity = Identity(pid=4242, birth=1)
        self.free = lambda s: 10 * GIB + (s * 7919 % 64) * MIB
        self.heat = lambda s: 60 + s * 31 % 7
        self.tokens = lambda s: s * 50
        self.sleep_at: tuple[int, int] | None = None
        self.stall_at: tuple[int, int] | None = None
        self.done: list[str] = []

    @property
    def second(self) -> int:
        return (self.now - 1000 * SECOND) // SECOND

    # the clock
    def now_ns(self) -> int:
        return self.now

    def wall_ns(self) -> int:
        return 1_780_000_000 * SECOND + self.now + self.slept

    def sleep_ns(self, nanoseconds: int) -> None:
        self.now += nanoseconds

    # the wake-ups
    def wait(self, nanoseconds: int) -> tuple[str, ...]:
        before = self.second
        self.now += nanoseconds
        for what, at in (("sleep", self.sleep_at), ("stall", self.stall_at)):
            if at is not None and before < at[0] <= self.second:
                if what == "sleep":
                    self.slept += at[1] * SECOND
                else:
                    self.now += at[1] * SECOND
        return ()

    def forget(self, fd: int) -> None:
        """There is no descriptor."""

    # the job
    pidfd = -1

    def attend(self, pids: tuple[int, ...] = ()) -> None:
        """Nothing is reaped here."""

    def poll(self) -> int | None:
        return self.ended

    def is_ready(self) -> bool:
        return True

    # the eyes
    def look(
        self, now: int, *, wishes: tuple[str, ...] = (), wakes: tuple[str, ...] = (), halting: bool = False, ended: bool = False, ready: bool = False
    ) -> Seen:
        s = self.second
        card = Device(
            id="cpu", backend="cpu", name="host", memory=Memory(total_bytes=24 * GIB, available_bytes=self.free(s)), budget=BUDGET,
            temperature_c=self.heat(s), utilisation_percent=90.0,
        )  # fmt: skip
        words = JobWords(beat_ns=now, step=s // 2, tokens=self.tokens(s), phase="training", asked=0, seen=0, answered=0, evaluations=s // 7200)
        usage = Usage(held_bytes=GIB, mapped_file_bytes=0, peak_bytes=GIB, processes=1, by="test")
        look = Look(
            reading=Reading(at_ns=now, devices=(card,), host=Host()), usage=usage, words=words, wishes=wishes, wakes=wakes, ready=ready,
            held=(("cpu", 13 * GIB),), leader=SAME if self.ended is None else GONE, leader_on_term="caught",
        )  # fmt: skip
        return Seen(look=look, pids=() if self.ended is not None else (4242,))

    # the hands
    def do(self, intent, look) -> str:
        self.done.append(intent.action)
        if intent.action == "stop":
            self.ended = 0
        return "done"

    def finish(self) -> list[str]:
        return []


def soaked(world: World, folder: str, hours: float = 24.1) -> "dossier.Opened":
    """Govern the world for so long and give the run as a reader finds it."""
    os.makedirs(folder)
    bounds = limits(floor_bytes=6 * GIB, max_temp_c=82.0, poll_ns=POLL, run_ns=round(hours * HOUR), woken=True)
    journal = Journal(os.path.join(folder, "journal.db"), world)
    journal.append("begin", {"schema": "brim.journal/1", "brim": "test", "command": ["x"], "cwd": "/", "limits": plain(bounds)})
    journal.append("launched", {"pid": 4242, "birth": 1})
    governor = Governor(world, bounds, eyes=world, hands=world, journal=journal, clock=world, wakes=world, page=None, watch=lambda *_: None)  # type: ignore[arg-type]
    ending = governor.govern()
    journal.append("child_end", {"exit_code": ending.status, "by": ending.by})
    journal.append("end", {"exit_code": 0, "by": ending.by})
    journal.close()
    return dossier.open_run(folder)


def stable(opened: "dossier.Opened") -> "claims.Verdict":
    return next(one for one in dossier.claims(opened) if one.name == "stable_long_run")


def test_a_day_passes_in_seconds_and_supports_the_claim(tmp_path) -> None:
    """24.1 virtual hours: the governor ends the job at its time, the packed journal verifies, and the claim is allowed."""
    world = World()
    opened = soaked(world, str(tmp_path / "run"))
    assert world.done[-2:] == ["stop", "verify"] or "stop" in world.done
    assert opened.chain_holds, opened.chain_fault
    verdict = stable(opened)
    assert verdict.allowed, verdict.missing
    found = dossier.evidence_of(opened)
    assert found.measures["continuous_hours"] == pytest.approx(24.1, abs=0.05)
    assert found.measures["coverage"] == pytest.approx(1, abs=1e-3)
    assert sum(1 for line in opened.lines if line.kind == "evaluated") == 12


@pytest.mark.parametrize(
    ("spoil", "missing"),
    [
        ({"sleep_at": (40000, 7200)}, "continuous_hours"),
        ({"stall_at": (40000, 600)}, "continuous_hours"),
        ({"free": lambda s: Missing(reason="failed", detail="x") if 40000 < s < 40500 else 10 * GIB + s % 3 * MIB}, "continuous_hours"),
        ({"heat": lambda s: Missing(reason="failed", detail="x") if 40000 < s < 40500 else 60 + s * 31 % 7}, "continuous_hours"),
        ({"free": lambda s: 12 * GIB - s * 40000}, "hours_to_floor"),
        ({"tokens": lambda s: s * 50 - s * s * 50 // 400000}, "throughput_drift"),
    ],
)
def test_what_a_day_does_not_show(tmp_path, spoil: "dict[str, object]", missing: str) -> None:
    """A suspended machine, a governor that stood still, telemetry that was lost, a leak, a job that slows down: the claim is not made, and says why."""
    world = World()
    for key, value in spoil.items():
        setattr(world, key, value)
    opened = soaked(world, str(tmp_path / "run"))
    assert opened.chain_holds
    verdict = stable(opened)
    assert not verdict.allowed
    assert any(text.startswith(missing) for text in verdict.missing), verdict.missing
