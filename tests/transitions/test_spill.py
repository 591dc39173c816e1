"""A driver that serves a full card from the host's memory ends no job; the steps that become long tell it."""

import pytest

from brim.facts.look import JobWords
from brim.policy.states import PRESSURE, RUN, THROTTLE
from brim.units import GIB

from .driver import LIMITS, Drive

PLAIN = LIMITS.replace(max_temp_c=None)
NEARLY = int(1.5 * GIB)  # floor 1 GiB, margin 2 GiB


class Stepping(Drive):
    """A job that takes so many steps a second."""

    def go(self, seconds, rate, **changes):
        for _ in range(seconds):
            self.words = self.words.replace(step=self.words.step + rate) if self.words else None
            self.look(1.0, **changes)
        return self

    def spill(self):
        return next((track for track in self.state.tracks if track.name == "spill:job"), None)


def test_steps_that_become_long_on_a_full_card_are_throttle() -> None:
    """Case 13: Ten steps a second before, three since the card is nearly full: told with how much longer and which card, and a checkpoint is asked for."""
    drive = Stepping(PLAIN).go(12, 10, free=20 * GIB)
    assert drive.spill().level == RUN
    drive.go(12, 3, free=NEARLY)
    track = drive.spill()
    assert (track.level, track.kind) == (THROTTLE, PRESSURE)
    assert "steps take 3.3 × as long as before cuda:0 was nearly full" in track.why
    assert ("checkpoint", "asked") in drive.log


CALM = [
    ("as fast as before", lambda drive: drive.go(12, 10, free=20 * GIB).go(20, 10, free=NEARLY)),
    ("a little slower", lambda drive: drive.go(12, 10, free=20 * GIB).go(20, 6, free=NEARLY)),
    ("slow, but the card has room", lambda drive: drive.go(12, 10, free=20 * GIB).go(20, 2, free=20 * GIB)),
    ("nearly full from the first step on", lambda drive: drive.go(12, 10, free=NEARLY).go(20, 2, free=NEARLY)),
    ("too short a time before", lambda drive: drive.go(4, 10, free=20 * GIB).go(20, 2, free=NEARLY)),
    ("slow for one span only", lambda drive: drive.go(12, 10, free=20 * GIB).go(4, 2, free=NEARLY).go(20, 10, free=NEARLY)),
    ("no step at all", lambda drive: drive.go(12, 10, free=20 * GIB).go(20, 0, free=NEARLY)),
]


@pytest.mark.parametrize(("what", "happens"), CALM)
def test_where_nothing_is_concluded(what, happens) -> None:
    """Each of these is no spill."""
    drive = Stepping(PLAIN)
    happens(drive)
    assert drive.spill() is None or drive.spill().level == RUN, what


@pytest.mark.parametrize("mark", ["checkpoint_ended_ns", "evaluations", "asked"])
def test_a_span_with_something_else_in_it_tells_nothing(mark) -> None:
    """A checkpoint, an evaluation or a request in every span: however long the steps take then."""
    drive = Stepping(PLAIN).go(12, 10, free=20 * GIB)
    for at in range(20):
        drive.words = drive.words.replace(**{mark: at + 1000})
        drive.go(1, 1, free=NEARLY)
    assert drive.spill().level == RUN


def test_another_phase_is_compared_with_itself_and_nothing_is_lost_by_it() -> None:
    """A job that goes over to something slower: what was seen before does not count, and no signal is called lost for it."""
    drive = Stepping(PLAIN).go(12, 10, free=20 * GIB)
    drive.words = drive.words.replace(phase="evaluate")
    drive.go(20, 2, free=NEARLY)
    assert drive.spill().level == RUN
    assert not drive.spill().lost


def test_a_job_without_words_or_without_a_card_has_no_such_signal() -> None:
    """There are no steps to compare, or no card to fill."""
    drive = Stepping(PLAIN, listens=False)
    drive.go(20, 0, free=NEARLY)
    assert drive.spill() is None
    drive = Stepping(PLAIN, device="cpu", backend="cpu").go(20, 10, free=20 * GIB)
    assert drive.spill() is None
    assert isinstance(drive.words, JobWords)
    assert drive.state.steps.at_ns == -1
