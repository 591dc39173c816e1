"""What each level does: heat slows and pauses, memory saves and stops, faults stop, the unknown has a clock. One test per arrow of the ladder."""

import pytest

from brim.facts.settings import SECOND
from brim.policy.states import ASKED, BLOCK, ENDED, KILLING, RUN, SIGNALLED, TERMINATING, THROTTLE, WORKERS
from brim.units import GIB, MIB

from .driver import FAILED, GONE, LIMITS, Drive

PLAIN = LIMITS.replace(max_temp_c=None)


def test_heat_slows_then_slows_more_then_pauses_then_lets_go():
    """Throttle by heat: half speed, after the patience a quarter, then a pause; back within the limits for the dwell time: full speed."""
    drive = Drive().look().look(temp=78.0)
    assert drive.did == []
    drive.look()
    assert drive.did == ["slow"]
    assert drive.last.intents[-1].permille == 500
    drive.steady(19)
    assert drive.did == []
    drive.look()
    assert drive.last.intents[-1].permille == 750
    drive.steady(20)
    assert drive.did == ["pause"]
    drive.steady(10, temp=71.0)
    assert drive.did == []
    drive.look()
    assert drive.did == ["resume"]
    assert drive.level("temperature") == RUN


def test_a_pause_does_not_last_for_ever():
    """Case 71: After `pause_max_ns` a paused job goes on at a quarter of its speed (collective watchdogs)."""
    drive = Drive().look().steady(60, temp=78.0)
    assert drive.state.rung == "paused"
    drive.steady(300)
    assert "slow" in [action for action, _ in drive.log[-5:]]
    assert drive.state.rung in {"quarter_speed", "paused"}


def test_heat_that_is_not_seen_any_more_is_not_relaxed():
    """While the temperature is lost the job stays as slow as it was, and climbs no further."""
    drive = Drive().look().steady(3, temp=78.0)
    before = len(drive.log)
    drive.steady(200, temp=FAILED)
    assert drive.state.rung == "half_speed"
    assert [entry for entry in drive.log[before:] if entry[0] != "notify"] == []


def test_heat_at_the_ceiling_saves_and_stops():
    """Block by heat: a checkpoint is asked for with the stop; the answer ends the asking, then SIGTERM."""
    drive = Drive().look().steady(2, temp=84.0)
    assert drive.did == ["stop:asked"]
    drive.answer().look(0.1)
    assert drive.did == []
    drive.look(10.0)
    assert drive.did == ["stop:terminating"]


def test_a_power_brake_slows_and_never_pauses():
    """A device that throttles itself by power is slowed once; pausing is for heat."""
    drive = Drive().look().steady(120, reasons=("hw_power_brake_slowdown",))
    assert [entry for entry in drive.log if entry[0] not in ("notify",)] == [("slow", "")]


def test_memory_near_the_floor_asks_for_one_checkpoint():
    """Throttle by memory: one checkpoint an episode, never a pause; its time is measured."""
    drive = Drive().look().look(free=2 * GIB)
    assert drive.did == ["checkpoint:asked"]
    drive.answer(took=1.5).look(0.1)
    assert drive.did == ["resume"]
    assert drive.state.checkpoint_ns == int(1.5 * SECOND)
    drive.steady(60)
    assert drive.did == []
    assert {action for action, _ in drive.log} == {"notify", "checkpoint", "resume"}


def test_memory_near_the_floor_only_tells_where_nothing_can_be_saved():
    """A job that neither listens nor has a checkpoint signal is told about, not touched."""
    drive = Drive(PLAIN, listens=False).look().steady(5, free=2 * GIB)
    assert {action for action, _ in drive.log} == {"notify"}


def test_a_request_that_is_not_answered_is_withdrawn_and_told():
    """Past its deadline a request ends with a notice that says whether it was seen."""
    drive = Drive().look().look(free=2 * GIB).steady(20)
    assert "not seen by the job" in drive.said
    assert (drive.state.ask, drive.state.unanswered) == (None, 1)


def test_a_request_that_is_not_seen_falls_back_to_the_signal():
    """Where a checkpoint signal is set, a request that nobody looks at is repeated as a signal."""
    drive = Drive(LIMITS.replace(checkpoint_signal=10)).look().look(free=2 * GIB).steady(20)
    assert drive.did == ["checkpoint:signalled"]


def test_below_the_floor_a_job_that_listens_is_asked_to_save_and_stop():
    """Block by memory, cooperative: asked → (answer) → SIGTERM → workers → SIGKILL → verify."""
    drive = Drive().look().look(free=900 * MIB)
    assert drive.did == ["stop:asked"]
    assert drive.state.halt.cause == "memory"
    drive.answer().look(0.1).look(10.0, others=3)
    assert drive.state.halt.stage == TERMINATING
    drive.look(10.0)
    assert drive.did == ["stop:workers"]
    drive.look(10.0)
    assert drive.did == ["stop:killing"]
    drive.look(0.1, leader="gone", others=0)
    assert drive.did == ["verify"]
    assert drive.state.halt.stage == ENDED
    assert drive.look().did == []


def test_below_the_floor_a_plain_job_gets_sigterm_at_once():
    """Block by memory, no page, no signal: SIGTERM on the very look."""
    assert Drive(PLAIN, listens=False).look().look(free=900 * MIB).did == ["stop:terminating"]


def test_below_the_floor_a_job_with_a_checkpoint_signal_gets_it_first():
    """Block by memory with --checkpoint-signal: the signal, then SIGTERM when the deadline passes."""
    drive = Drive(PLAIN.replace(checkpoint_signal=10), listens=False).look().look(free=900 * MIB)
    assert drive.did == ["stop:signalled"]
    drive.steady(20)
    assert drive.did == ["stop:terminating"]


def test_a_listener_that_does_not_look_is_signalled():
    """A stop request that is not seen for three seconds falls back to the checkpoint signal."""
    drive = Drive(LIMITS.replace(checkpoint_signal=10)).look().look(free=900 * MIB)
    assert drive.state.halt.stage == ASKED
    drive.steady(3)
    assert drive.did == ["stop:signalled"]
    assert drive.state.halt.stage == SIGNALLED


@pytest.mark.parametrize("free", [0, 16 * MIB])
def test_the_grace_ends_early_when_the_budget_would_be_passed(free):
    """Nothing left while the job still saves: SIGKILL now, whatever the grace."""
    drive = Drive().look().look(free=900 * MIB).look(0.02, free=free)
    assert drive.did == ["stop:killing"]


def test_the_grace_ends_early_by_slope():
    """It counts when the memory would be gone before the next look, not only when it is gone."""
    drive = Drive().look()
    for free in (900, 750, 600, 450, 300):
        drive.look(0.05, free=free * MIB)
        assert drive.state.halt.stage == ASKED
    drive.look(0.05, free=60 * MIB)
    assert drive.did == ["stop:killing"]


@pytest.mark.parametrize(("on_term", "after", "stage"), [("ignored", 0.02, WORKERS), ("caught", 0.02, TERMINATING), ("caught", 10.0, WORKERS)])
def test_the_leader_comes_before_its_workers(on_term, after, stage):
    """SIGTERM goes to the leader; to its workers when it ignores it or half of the grace is used (a second SIGTERM may mean "abort")."""
    drive = Drive(PLAIN, listens=False).look(others=2, on_term=on_term).look(free=900 * MIB).look(after)
    assert drive.state.halt.stage == stage


def test_workers_that_outlive_their_leader_are_ended():
    """The leader has gone, its workers have not: SIGTERM to them, then SIGKILL."""
    drive = Drive(PLAIN, listens=False).look(others=2).look(free=900 * MIB).look(0.1, leader="gone")
    assert drive.did == ["stop:workers"]
    drive.steady(20)
    assert drive.did == ["stop:killing"]
    assert drive.look(0.5).did == ["stop:killing"]


def test_a_stop_never_goes_back():
    """Memory that comes back does not undo a stop."""
    drive = Drive(PLAIN, listens=False).look().look(free=900 * MIB).steady(30, free=20 * GIB)
    assert drive.state.halt.stage == KILLING


def test_a_full_host_is_not_always_the_jobs_doing():
    """Case 47: Memory is short but the job holds next to nothing: it is told, and not killed."""
    drive = Drive(PLAIN, listens=False).look().steady(5, free=100 * MIB, held=10 * MIB)
    assert drive.state.halt is None
    assert any("would not help" in reason for reason in [drive.said]) or ("stop", "terminating") not in drive.log


@pytest.mark.parametrize(
    ("fault", "asked"),
    [
        ({"faults": ("XID 79: GPU has fallen off the bus",)}, False),
        ({"faults": ("xid 48",)}, True),
        ({"ecc": 1}, True),
        ({"remap_failed": True}, True),
        ({"free": GONE}, False),
    ],
)
def test_a_fault_stops(fault, asked):
    """A fault that ends the device or its memory stops the job; a dead device is asked for no checkpoint."""
    drive = Drive().look().look(**fault)
    assert drive.did == ["stop:asked" if asked else "stop:terminating"]
    assert drive.state.halt.cause == "fault"


def test_ecc_errors_from_before_do_not_count():
    """Errors that were there at the start are not this run's."""
    assert Drive().look(ecc=5).look(ecc=5).did == []
    assert Drive().look(ecc=5).look(ecc=6).did == ["stop:asked"]


def test_an_applications_xid_is_told_only():
    """XID 13, 31 and 43 are an application's own; they ask for a checkpoint and stop nothing."""
    drive = Drive().look().steady(5, faults=("XID 13",))
    assert drive.state.halt is None
    assert ("checkpoint", "asked") in drive.log


@pytest.mark.parametrize(("wish", "expected"), [("keep", []), ("checkpoint", ["checkpoint:asked"]), ("stop", ["stop:asked"])])
def test_lost_telemetry_has_a_clock(wish, expected):
    """After 30 s without a reading --on-unknown decides; before that nothing."""
    drive = Drive(LIMITS.replace(on_unknown=wish)).look().steady(30, free=FAILED)
    assert drive.did == []
    drive.look()
    assert drive.did == expected
    assert f"--on-unknown {wish}" in drive.said


def test_telemetry_that_comes_back_stops_the_clock():
    """Two readings in a row and the clock starts from nothing."""
    drive = Drive(LIMITS.replace(on_unknown="stop")).look().steady(29, free=FAILED).steady(2, free=20 * GIB).steady(29, free=FAILED)
    assert drive.state.halt is None


def test_a_request_from_outside_stops_and_a_second_one_hurries():
    """SIGTERM to brim takes the checkpoint path; the second goes on to SIGTERM, the third to SIGKILL."""
    drive = Drive().look().look(wishes=("stop",))
    assert drive.did == ["stop:asked"]
    assert drive.look(0.1, wishes=("stop", "stop_now")).did == ["stop:terminating"]
    assert drive.look(0.1, wishes=("stop", "stop_now", "kill")).did == ["stop:killing"]


def test_a_paused_job_is_let_go_before_it_is_asked_to_save():
    """A stopped process saves nothing: first resume, then the request."""
    drive = Drive().look().steady(60, temp=78.0)
    assert drive.state.rung == "paused"
    assert drive.look(wishes=("stop",)).did == ["resume", "stop:asked"]


def test_checkpoints_by_time():
    """--checkpoint-every asks when the time since the last one is over, because some faults give no warning."""
    drive = Drive(LIMITS.replace(checkpoint_every_ns=60 * SECOND)).look().steady(60)
    assert ("checkpoint", "asked") in drive.log
    drive.answer().look()
    before = len(drive.log)
    drive.steady(55)
    assert len(drive.log) == before


def test_an_unsure_identity_is_never_acted_on():
    """Where the process may be another, nothing but notices, and no stage moves."""
    drive = Drive().look().look(free=900 * MIB, leader="unsure")
    assert drive.did == []
    assert drive.state.halt is None
    assert any("may be another" in reason for reason in drive.last.reasons)
    assert drive.look(leader="same").did == ["stop:asked"]


def fill(drive, rate, until, every=0.1):
    """The job grows by `rate` bytes a second until something is done or `until` bytes are free."""
    while drive.free > until and not [entry for entry in drive.log if entry[0] in ("checkpoint", "stop")]:
        drive.look(every, free=drive.free - int(rate * every), held=drive.held + int(rate * every))
    return drive


def test_the_forecast_acts_while_there_is_time():
    """A leak of 0.5 GiB/s: the checkpoint is asked for before the margin is reached, with at least the horizon left."""
    drive = Drive(LIMITS.replace(throttle_margin_bytes=MIB)).look()
    fill(drive, GIB // 2, 0)
    assert drive.did == ["checkpoint:asked"]
    assert "floor in" in drive.said
    left = (drive.free - GIB) / (GIB / 2)
    assert 4.5 <= left <= 6.5
    assert drive.level() == RUN


@pytest.mark.parametrize("held_back", [{"phase": "loading"}, {"phase": "warmup"}])
def test_a_declared_load_raises_no_forecast(held_back):
    """In a declared load phase 3 GiB/s is no leak."""
    drive = Drive(LIMITS.replace(throttle_margin_bytes=MIB)).look()
    drive.words = drive.words.replace(**held_back)
    fill(drive, 3 * GIB, 2 * GIB)
    assert [entry for entry in drive.log if entry[0] != "notify"] == []


@pytest.mark.parametrize("rate", [GIB // 8, 3 * GIB])
def test_what_was_seen_while_loading_is_no_leak_afterwards(rate):
    """A load that ends near the floor, then training at a steady level: the slope of the load is forgotten with its end."""
    drive = Drive(LIMITS.replace(throttle_margin_bytes=MIB)).look()
    drive.words = drive.words.replace(phase="loading")
    fill(drive, rate, GIB + 256 * MIB)
    drive.words = drive.words.replace(phase="training")
    drive.steady(20, every=0.1)
    assert [entry for entry in drive.log if entry[0] != "notify"] == []


def test_a_silent_jobs_load_raises_no_forecast():
    """A job that says nothing is believed to load until its memory was once flat."""
    drive = Drive(PLAIN.replace(throttle_margin_bytes=MIB, checkpoint_signal=10), listens=False).look()
    fill(drive, 3 * GIB, 6 * GIB)
    drive.steady(5, every=0.1)
    assert [entry for entry in drive.log if entry[0] != "notify"] == []
    fill(drive, GIB // 2, GIB)
    assert drive.did == ["checkpoint:signalled"]


def test_two_samples_make_no_forecast():
    """One jump between two looks is no slope."""
    drive = Drive(LIMITS.replace(throttle_margin_bytes=MIB)).look().look(0.1, free=3 * GIB)
    assert drive.did == []


def test_looks_come_sooner_near_a_limit():
    """Far away the poll; near the floor sooner than the fastest fill; in a stop at the fastest pace."""
    drive = Drive().look()
    assert drive.last.next_look_ns == LIMITS.poll_ns
    assert drive.look(free=GIB + 300 * MIB).last.next_look_ns <= SECOND // 10
    assert drive.look(free=900 * MIB).last.next_look_ns <= SECOND // 50
    assert drive.level() == BLOCK
    assert THROTTLE


@pytest.mark.parametrize("rate_mib", [200, 512, 800, 1000, 1024])
@pytest.mark.parametrize("listens", [True, False])
def test_a_stop_has_the_whole_gap_below_the_floor(rate_mib, listens) -> None:
    """A job that was flat and then grows is told to end so early that it has the time which the floor stands for, although brim's own last look and reserve come off its end."""
    limits = LIMITS.replace(max_temp_c=None, floor_bytes=GIB, throttle_margin_bytes=1, hard_reserve_bytes=16 * MIB)
    drive = Drive(limits, listens=listens, device="cpu", backend="cpu").steady(6, free=8 * GIB, held=GIB)
    told = killed = None
    began = drive.now
    while killed is None and drive.now - began < 60 * SECOND:
        after = min(drive.last.next_look_ns, SECOND)
        grown = (drive.now + after - began) * rate_mib * MIB // SECOND
        drive.look(after / SECOND, free=max(0, 8 * GIB - grown), held=GIB + grown)
        stages = [intent.stage for intent in drive.last.intents if intent.action == "stop"]
        told = drive.now if stages and told is None else told
        killed = drive.now if "killing" in stages else None
    assert (killed - told) / SECOND >= 1024 / rate_mib
    assert (killed - told) / SECOND <= (1024 + 128) / rate_mib
    assert "begins now" not in next(track.why for track in drive.state.tracks if track.name == "forecast:cpu")  # the floor is behind it


@pytest.mark.parametrize("short_mib", [129, 200, 256])
def test_a_fast_load_that_ends_above_the_floor_is_let_alone(short_mib) -> None:
    """4 GiB/s until an eighth of the floor and a little more is left above it, then flat: no stop, although it was a hundredth of a second away."""
    limits = LIMITS.replace(max_temp_c=None, floor_bytes=GIB, throttle_margin_bytes=1)
    drive = Drive(limits, listens=False, device="cpu", backend="cpu").steady(6, free=8 * GIB, held=GIB)
    last = GIB + short_mib * MIB
    for at in range(0, 2000, 20):
        drive.look(0.02, free=max(last, 8 * GIB - at * 4 * GIB // 1000))
        assert all(intent.action != "stop" for intent in drive.last.intents)
    drive.steady(20)
    assert not [entry for entry in drive.log if entry[0] == "stop"]
