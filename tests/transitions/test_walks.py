"""Random walks of events: whatever comes, some things never happen."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from brim.policy.states import ARROWS, BLOCK, ORDER, STAGES, THROTTLE, UNKNOWN
from brim.units import GIB, MIB

from .driver import FAILED, GONE, LIMITS, Drive

EVENTS = st.fixed_dictionaries(
    {
        "after": st.sampled_from([0.02, 0.1, 1.0, 5.0, 40.0]),
        "free": st.sampled_from([0, 10 * MIB, 900 * MIB, 2 * GIB, 3 * GIB + 1, 20 * GIB, FAILED, GONE]),
        "temp": st.sampled_from([0.0, 60.0, 74.0, 76.0, 82.0, 84.0, 130.0, FAILED]),
        "reasons": st.sampled_from([(), ("hw_power_brake_slowdown",), ("sw_thermal_slowdown",)]),
        "faults": st.sampled_from([(), (), (), (), ("XID 13",), ("XID 79",)]),
        "leader": st.sampled_from(["same", "same", "same", "unsure", "gone"]),
        "others": st.integers(0, 2),
        "rows": st.sampled_from([True, True, True, False]),
        "wishes": st.sampled_from([(), (), (), (), ("checkpoint",), ("stop",)]),
    }
)
OPTIONS = st.fixed_dictionaries(
    {"on_unknown": st.sampled_from(["keep", "checkpoint", "stop"]), "checkpoint_signal": st.sampled_from([0, 10]), "max_temp_c": st.sampled_from([83.0, None])}
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(options=OPTIONS, listens=st.booleans(), events=st.lists(st.tuples(EVENTS, st.booleans()), min_size=1, max_size=40))
def test_random_walks(options, listens, events):
    """Never an act on an unsure identity, never a better level without a reading or before the dwell, never a stop that goes back, only arrows of the table."""
    drive = Drive(LIMITS.replace(**options), listens=listens)
    for event, answers in events:
        before, was = {track.name: track for track in drive.state.tracks}, drive.state
        after = event.pop("after")
        if answers and listens:
            drive.answer()
        drive.look(after, **event)
        event["after"] = after
        _acts_are_allowed(drive, event)
        for track in drive.state.tracks:
            old = before.get(track.name)
            if old is None or old.level == track.level:
                continue
            assert (old.level, track.level) in ARROWS
            if ORDER[track.level] < ORDER[old.level] and old.level != UNKNOWN:
                assert not track.lost
                assert event["rows"]
                assert drive.now - old.better_since_ns >= drive.limits.dwell_ns
        _stop_goes_forward(was.halt, drive.state.halt, event)
        lost = [track for track in drive.state.tracks if track.lost]
        assert not lost or drive.state.level != "run"
        assert drive.last.next_look_ns >= 10_000_000


def _acts_are_allowed(drive, event):
    acts = [intent for intent in drive.last.intents if intent.action != "notify"]
    if event["leader"] == "unsure":
        assert not acts
    memory = [track for track in drive.state.tracks if track.kind in ("memory", "forecast") and track.level in (THROTTLE, BLOCK)]
    heat = [track for track in drive.state.tracks if track.kind in ("heat", "power")]
    if memory and all(track.level == "run" for track in heat) and not drive.state.rung_since_ns > drive.now - 1:
        assert drive.state.rung != "paused" or not heat
    for intent in acts:
        assert intent.why
        assert intent.action != "pause" or any(track.kind == "heat" for track in heat)


def _stop_goes_forward(old, new, event):
    if old is None:
        return
    assert new is not None
    assert STAGES.index(new.stage) >= STAGES.index(old.stage)
    if event["leader"] == "unsure":
        assert new == old


@settings(max_examples=60, deadline=None, derandomize=True)
@given(walk=st.lists(st.integers(-400, 400), min_size=10, max_size=120))
def test_no_flapping(walk):
    """Free memory that wanders around a limit changes the level at most once a dwell time, after each rise."""
    drive, free = Drive(LIMITS.replace(max_temp_c=None), listens=False), 3 * GIB
    changes = []
    level = None
    for delta in walk:
        free = max(GIB + 200 * MIB, min(5 * GIB, free + delta * MIB))
        drive.look(1.0, free=free)
        if drive.level() != level:
            changes.append((drive.now, level, drive.level()))
            level = drive.level()
    for (at, _, _), (later, old, new) in pairwise(changes):
        if old is not None and ORDER[new] < ORDER[old]:
            assert later - at >= drive.limits.dwell_ns


@settings(max_examples=40, deadline=None, derandomize=True)
@given(events=st.lists(EVENTS, min_size=1, max_size=15))
def test_the_same_inputs_give_the_same_answer(events):
    """The mind has no hidden memory, clock or chance."""
    one, two = Drive(), Drive()
    for given_event in events:
        event = dict(given_event)
        after = event.pop("after")
        assert one.look(after, **event).last == two.look(after, **event).last
