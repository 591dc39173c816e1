"""What is decided ahead: the same request that a look at that moment would have led to, or none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim import policy
from brim.facts.look import Look
from brim.facts.process import Usage
from brim.facts.settings import SECOND
from brim.policy.foresight import REQUESTS, came, foresee, request
from brim.policy.states import NOTIFY
from brim.units import GIB, MIB

from .driver import LIMITS
from .test_quiet import Host1

BUDGET = LIMITS.replace(max_temp_c=None, woken=True, floor_bytes=GIB, throttle_margin_bytes=2 * GIB, memory_budgets=(("cpu", 16 * GIB),))


def after_looks(limits=BUDGET, *, held=4 * GIB, looks=6, **changes):
    """(drive, its last look) of a job that holds so much and listens."""
    drive = Host1(limits).steady(looks, free=60 * GIB, held=held)
    drive.look(1.0, **changes)
    return drive, look_of(drive)


def look_of(drive):
    held = drive.held
    usage = Usage(held_bytes=held, mapped_file_bytes=0, peak_bytes=held, processes=1, by="test")
    return Look(reading=drive.reading(), usage=usage, words=drive.words, leader=drive.leader, held=(("cpu", held),))


def test_what_is_foreseen() -> None:
    """Above the margin a checkpoint at the margin; within it, where that was asked for already, a stop at the floor."""
    drive, look = after_looks()
    found = foresee(BUDGET, drive.state, look, drive.now)
    assert (found.over, found.intent.action, found.intent.stage) == (13 * GIB, "checkpoint", "asked")
    drive.look(1.0, held=14 * GIB)
    found = foresee(BUDGET, drive.state, look_of(drive), drive.now)
    assert (found.over, found.intent.action, found.intent.stage) == (15 * GIB, "stop", "asked")


NONE = [
    ({"memory_budgets": ()}, {}),
    ({}, {"leader": "unsure"}),
    ({}, {"listens": False}),
    ({}, {"wishes": ("stop",)}),  # a stop is under way
    ({}, {"held": 15 * GIB + 1}),  # as well
]


@pytest.mark.parametrize(("limits", "changes"), NONE)
def test_where_nothing_is_foreseen(limits, changes) -> None:
    """Without a budget, with another process in its place, for a job that does not listen, during a stop: there each look decides."""
    limits = BUDGET.replace(**limits)
    listens = changes.pop("listens", True) if "listens" in changes else True
    drive = Host1(limits, listens=listens).steady(6, free=60 * GIB, held=4 * GIB)
    drive.look(1.0, **changes)
    assert foresee(limits, drive.state, look_of(drive), drive.now) is None


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    walk=st.lists(st.integers(GIB, 14 * GIB), min_size=1, max_size=8),
    more=st.integers(1, 3 * GIB),
    wait=st.integers(1, 240 * SECOND),
    margin=st.sampled_from([1, 256 * MIB, 2 * GIB]),
)
def test_the_request_that_was_made_is_that_of_a_look_at_that_moment(walk, more, wait, margin) -> None:
    """However the job went before, and whenever it comes: where the decision wants the same, it is the decision of a whole look then, with the number that the page has; else nothing is lost."""
    limits = BUDGET.replace(throttle_margin_bytes=margin)
    drive = Host1(limits).steady(4, free=60 * GIB, held=4 * GIB)
    for held in walk:
        drive.look(1.0, held=held)
    look = look_of(drive)
    found = foresee(limits, drive.state, look, drive.now)
    if found is None:
        return
    assert (found.intent.action, found.intent.stage) in REQUESTS
    assert found.over >= drive.held
    held, at = found.over + more, drive.now + wait
    seen, decision, same = came(limits, drive.state, found, held, at)
    there = look.replace(reading=look.reading.replace(at_ns=at), usage=look.usage.replace(held_bytes=held), held=(("cpu", held),))
    straight = policy.decide(limits, drive.state, there, at)
    asked = look.words.asked
    if same:
        assert decision == straight
        number = (decision.state.halt or decision.state.ask).number
        assert number == asked + 1
        assert request(decision).deadline_ns == at + limits.grace_ns
    else:  # the request is already out: what the decision asks for bears the next number
        assert seen.words.asked == asked + 1
        assert [i.replace(deadline_ns=0) for i in decision.intents] == [i.replace(deadline_ns=0) for i in straight.intents]
        numbers = [part.number for part in (decision.state.halt, decision.state.ask) if part is not None]
        assert all(number == asked + 2 for number in numbers)
    assert all(intent.action != NOTIFY or intent.why for intent in decision.intents)


def test_a_jump_past_the_floor_asks_for_more_than_was_foreseen() -> None:
    """Ready to ask for a checkpoint, found below the floor: the stop follows, under a number of its own."""
    drive, look = after_looks()
    found = foresee(BUDGET, drive.state, look, drive.now)
    _, decision, same = came(BUDGET, drive.state, found, 15 * GIB + 5, drive.now + SECOND)
    assert not same
    assert decision.state.halt.number == look.words.asked + 2
    assert (request(decision).action, request(decision).stage) == ("stop", "asked")
