"""One test per arrow of a signal's level, and what holds it back."""

import pytest

from brim.facts.device import Host
from brim.facts.settings import SECOND
from brim.policy import levels
from brim.policy.states import ARROWS, BLOCK, ORDER, RUN, STAGES, THROTTLE, UNKNOWN, Signal
from brim.units import GIB, MIB

from .driver import FAILED, LIMITS, Drive

LEVELS = (RUN, THROTTLE, BLOCK)


def signal(level, relaxed=None, **extra):
    return Signal(name="s", kind="memory", device="d", level=level, relaxed=relaxed or level, why="why", **extra)


def track(level, now=0):
    return levels.fresh(signal(UNKNOWN), now).replace(level=level, lost_since_ns=-1)


def test_the_names_are_disjoint_and_ordered():
    """Levels and stages have no name in common, and every level has its own place in the order."""
    assert not set(ORDER) & set(STAGES)
    assert sorted(ORDER.values()) == [0, 1, 2, 3]


@pytest.mark.parametrize(("before", "after"), sorted(ARROWS), ids=lambda level: level)
def test_arrow(before, after):
    """Each arrow of the table is taken when its signal asks for it long enough."""
    now, moved = track(before), ""
    for second in range(30):
        now, sentence = levels.step(LIMITS, now, signal(after), second * SECOND)
        moved = moved or sentence
    assert now.level == after
    assert moved == f"s: {before} → {after} (why)"


@pytest.mark.parametrize(("before", "after"), [(a, b) for a in LEVELS for b in LEVELS if ORDER[b] < ORDER[a]])
def test_nothing_falls_before_the_dwell_time(before, after):
    """A level falls only after `dwell_ns` of looks that were better throughout."""
    now = track(before)
    for second in range(10):
        now, _ = levels.step(LIMITS, now, signal(after), second * SECOND)
        assert now.level == before
    now, _ = levels.step(LIMITS, now, signal(after), 10 * SECOND)
    assert now.level == after


def test_one_bad_look_restarts_the_dwell():
    """Better, once worse again, better: the dwell time starts anew (no flapping)."""
    now = track(THROTTLE)
    for second in range(25):
        now, _ = levels.step(LIMITS, now, signal(THROTTLE if second == 9 else RUN), second * SECOND)
        assert (now.level == THROTTLE) == (second < 20)


def test_hysteresis_holds_a_level():
    """Just on the good side of a limit is not yet better."""
    now = track(THROTTLE)
    for second in range(60):
        now, _ = levels.step(LIMITS, now, signal(RUN, relaxed=THROTTLE), second * SECOND)
    assert now.level == THROTTLE


def test_a_single_wild_value_is_not_believed():
    """A sensor that jumps once (or reads zero once) raises nothing; twice in a row it does, and to the less bad of the two."""
    now = track(RUN)
    for at, level in enumerate((BLOCK, RUN, BLOCK, RUN)):
        now, _ = levels.step(LIMITS, now, signal(level, confirm=2), at * SECOND)
        assert now.level == RUN
    for at, level in enumerate((BLOCK, THROTTLE)):
        now, _ = levels.step(LIMITS, now, signal(level, confirm=2), at * SECOND)
    assert now.level == THROTTLE


def test_two_looks_at_once_are_one() -> None:
    """Looks that confirm each other are at least 0.1 s apart."""
    now = track(RUN)
    for at in (0, SECOND // 100, SECOND // 50):
        now, _ = levels.step(LIMITS, now, signal(BLOCK, confirm=2), at)
        assert now.level == RUN
    assert levels.step(LIMITS, now, signal(BLOCK, confirm=2), SECOND // 10)[0].level == BLOCK


@pytest.mark.parametrize("level", LEVELS)
def test_a_lost_signal_keeps_its_level(level):
    """No reading, no change: the level stays and the signal is marked lost until two readings in a row."""
    now = track(level)
    for second in range(100):
        now, _ = levels.step(LIMITS, now, signal(UNKNOWN), second * SECOND)
        assert (now.level, now.lost) == (level, True)
    now, said = levels.step(LIMITS, now, signal(RUN), 101 * SECOND)
    assert (now.lost, said) == (True, "")
    now, said = levels.step(LIMITS, now, signal(RUN), 102 * SECOND)
    assert not now.lost
    assert said.startswith("s: back")


def test_a_fault_does_not_heal():
    """A sticky signal never falls."""
    now = track(BLOCK)
    for second in range(100):
        now, _ = levels.step(LIMITS, now, signal(RUN, sticky=True), second * SECOND)
    assert now.level == BLOCK


@pytest.mark.parametrize(("free", "expected"), [(20 * GIB, RUN), (3 * GIB, RUN), (3 * GIB - 1, THROTTLE), (GIB, THROTTLE), (GIB - 1, BLOCK), (FAILED, UNKNOWN)])
def test_memory_levels(free, expected):
    """Free ≥ F + margin is run, below it throttle, below F block, no reading unknown."""
    assert Drive().look(free=free).level() == expected


@pytest.mark.parametrize(("degrees", "expected"), [(74.9, RUN), (75.0, THROTTLE), (82.9, THROTTLE), (83.0, BLOCK), (120.0, BLOCK), (FAILED, UNKNOWN)])
def test_temperature_levels(degrees, expected):
    """T ≥ the ceiling is block, from 8 °C below it throttle; confirmed by a second look."""
    assert Drive().look(temp=degrees).look(0.1).level("temperature") == expected


def test_the_worst_rules_and_unknown_is_never_better_than_unknown():
    """One missing signal makes the whole unknown; a bad one outweighs it."""
    drive = Drive().look()
    assert drive.state.level == RUN
    assert drive.look(temp=FAILED).state.level == UNKNOWN
    assert drive.look(free=2 * GIB).state.level == THROTTLE


def test_a_budget_less_what_the_job_holds():
    """Under a budget free is the budget less what the job holds, where that is lower; the margin is at most an eighth of it."""
    limits = LIMITS.replace(memory_budgets=(("cuda:0", 8 * GIB),), floor_bytes=512 * MIB)
    drive = Drive(limits)
    assert drive.look(held=6 * GIB).level() == RUN
    assert drive.look(held=8 * GIB - 512 * MIB - GIB + 1).level() == THROTTLE
    assert drive.look(held=8 * GIB - 512 * MIB + 1).level() == BLOCK


def test_shared_memory_that_is_full_is_told():
    """Case 49: /dev/shm that is nearly full is a level of its own and is told, since the job would die of a bus error; nothing is stopped or asked for it."""
    drive = Drive().look(host=Host(shm_free_bytes=64 << 20)).look(host=Host(shm_free_bytes=1 << 20))
    assert "1.00 MiB free in /dev/shm: a data loader that needs more ends with a bus error" in drive.said
    assert drive.did == []
    for never in (Host(), Host(shm_free_bytes=0)):  # not here, or full before the run
        assert not [track for track in Drive().look(host=never).look().state.tracks if track.name == "shm:host"]


def test_a_frozen_temperature_is_unknown():
    """Case 27: Unchanged under load while the power moved by a fifth: the sensor is not believed; a steady load at a steady temperature is."""
    drive = Drive().look()
    for second in range(200):
        drive.look(draw=200.0 + second % 3)
    assert not drive.state.tracks[2].lost
    drive.steady(2, draw=320.0)
    assert [track.name for track in drive.state.tracks if track.lost] == ["temperature:cuda:0"]
    drive.look(temp=61.0).look(temp=62.0)
    assert not [track for track in drive.state.tracks if track.lost]


def test_a_probe_that_never_comes_back_is_lost_telemetry():
    """A reading that is too old is no reading: every signal is lost, none falls."""
    drive = Drive().look(free=2 * GIB)
    drive.look(reading_age=30 * SECOND, free=20 * GIB)
    assert drive.level() == THROTTLE
    assert all(track.lost for track in drive.state.tracks if track.name != "heartbeat:job")


@pytest.mark.parametrize("more", [{"devices": ("cuda", "rocm:0")}, {"memory_budgets": (("rocm:0", GIB),)}, {"memory_budgets": (("rocm", GIB),)}])
def test_a_named_device_that_no_reading_has_is_unknown(more) -> None:
    """The whole level is never better than unknown, others are still held to their limits, and `--on-unknown` applies after its time."""
    drive = Drive(LIMITS.replace(on_unknown="stop", **more)).steady(10)
    assert (drive.state.level, drive.level()) == ("unknown", "run")
    assert drive.look(free=2 * GIB).look().state.level == "throttle"
    drive.steady(25, free=20 * GIB)
    assert drive.state.halt is not None
    assert drive.state.halt.cause == "unknown"


def test_a_backend_that_gets_its_device_late_is_known_then() -> None:
    """A budget for a backend's word holds for each of its devices, and is unknown only while there is none."""
    drive = Drive(LIMITS.replace(memory_budgets=(("cuda", 30 * GIB),))).look(rows=False)
    assert drive.state.level == "unknown"
    drive.steady(3, rows=True)
    assert drive.state.level == "run"
    assert drive.look(held=29 * GIB + GIB // 2).level() == "block"
