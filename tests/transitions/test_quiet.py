"""Looks that are left out: inside the band nobody would have decided anything, and the forecast afterwards is the one that whole looks would have made."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim.clock import FakeClock
from brim.facts.device import Host
from brim.facts.look import Look
from brim.facts.settings import SECOND
from brim.governor import Governor
from brim.governor.glances import Glances
from brim.governor.notes import Notes
from brim.policy.quiet import LONGEST_NS, NOT_QUIET, asides, catch_up, free_bytes, quiet
from brim.probes.vigil import FULL, MOVED, WOKEN
from brim.units import GIB, MIB
from brim.values import Missing

from .driver import FAILED, LIMITS, Drive

WIDE = LIMITS.replace(max_temp_c=None, woken=True)


class Host1(Drive):
    """A run whose only governed device is the host; `band` is what may be left out after the last look."""

    def __init__(self, limits=WIDE, **kwargs):
        super().__init__(limits, device="cpu", backend="cpu", **kwargs)

    def look(self, after=1.0, **changes):
        super().look(after, **changes)
        look = Look(reading=self.reading(), usage=None, words=self.words, leader=self.leader)
        self.band = quiet(self.limits, look, self.last, self.now)
        return self

    def reading(self):
        from brim.facts.device import Device, Memory, Reading

        return Reading(at_ns=self.now, devices=(Device(id="cpu", backend="cpu", name="host", memory=Memory(free_bytes=self.free)),), host=self.host)


def settled(limits=WIDE, *, free=20 * GIB, **kwargs):
    return Host1(limits, **kwargs).steady(6, free=free, held=GIB, draw=0.0, load=0.0, reasons=FAILED)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    free=st.integers(4 * GIB, 60 * GIB),
    shares=st.lists(st.floats(-1, 1), min_size=1, max_size=9),
    woken=st.booleans(),
    listens=st.booleans(),
    checkpoint=st.sampled_from([1, 5, 40]),
)
def test_inside_the_band_nothing_would_have_been_decided(free, shares, woken, listens, checkpoint):
    """Whole looks at every poll, wherever free memory goes within the band: no intent, no reason, the same pace; and the state afterwards is the one that glances lead to."""
    limits = WIDE.replace(woken=woken, checkpoint_time_ns=checkpoint * SECOND)
    drive = settled(limits, free=free, listens=listens)
    band, glanced = drive.band, drive.state
    if band == NOT_QUIET:
        assert free < 10 * GIB  # far from the floor there is always something to leave out
        return
    half = (band.high - band.low) // 2
    seen = []
    for share in shares:
        drive.look(1.0, free=drive_free(band, half, share))
        if drive.now >= band.until_ns:
            break
        seen.append((drive.now, drive.free))
        assert drive.last.intents == ()
        assert drive.last.reasons == ()
        assert drive.last.next_look_ns == limits.poll_ns
    glanced = catch_up(limits, glanced, seen)
    assert glanced.trends == drive.state.trends if seen and seen[-1][0] == drive.now else True
    after = Host1(limits, listens=listens)
    after.__dict__.update({**drive.__dict__, "state": glanced, "now": drive.now})
    drive.look(1.0)
    after.look(1.0)
    assert after.last.intents == drive.last.intents
    assert after.state.level == drive.state.level


def drive_free(band, half, share):
    """A figure in the band."""
    return min(max(band.low + half + int(share * half), band.low), band.high)


NOT_NOW = [
    ({"wishes": ("checkpoint",)}, {}),
    ({"leader": "unsure"}, {}),
    ({"free": GIB + 100 * MIB}, {}),  # near the floor
    ({"free": 2 * GIB}, {}),  # throttled
    ({"host": Host(psi_full_avg10=6.0)}, {}),
    ({}, {"floor_counts_job": True}),
    ({"temp": 72.0}, {"max_temp_c": 83.0}),  # short of the throttle point (75 °C) by no more than the hysteresis
]


@pytest.mark.parametrize(("changes", "limits"), NOT_NOW)
def test_no_look_is_left_out_where_something_is_near(changes, limits) -> None:
    """Asked for something, another process, near the floor, under pressure, with a temperature to watch: every look is a whole one."""
    assert settled().band.until_ns > 0
    drive = settled(WIDE.replace(**limits))
    drive.look(1.0, **changes)
    assert drive.band == NOT_QUIET


def test_a_processor_that_is_cool_is_quiet() -> None:
    """Far from its ceiling its temperature is asked seldom, within a band that ends short of the throttle point."""
    drive = settled(WIDE.replace(max_temp_c=83.0))
    assert drive.look(1.0, temp=71.9).band.until_ns > 0
    assert asides(drive.limits, drive.reading().devices)["heat"] == (1, 71_999)
    assert "heat" not in asides(WIDE, drive.reading().devices)


def test_a_card_is_asked_at_every_look() -> None:
    """Cards heat and fail within seconds: with one of them governed no look is left out."""
    drive = Drive(WIDE).steady(6, free=20 * GIB)
    look = Look(reading=Host1.reading(drive), usage=None, words=drive.words)
    assert quiet(WIDE, look, drive.last, drive.now) == NOT_QUIET


def test_whatever_is_due_comes_in_time() -> None:
    """The end of a soak, a checkpoint by time and the job's silence are looked for when they are due."""
    assert settled().band.until_ns - settled().now == LONGEST_NS
    for limits, due in (({"run_ns": 8 * SECOND}, 8), ({"checkpoint_every_ns": 9 * SECOND}, 9), ({"job_silent_ns": 3 * SECOND}, 9)):
        drive = settled(WIDE.replace(**limits))
        assert (drive.band.until_ns - 1000 * SECOND) // SECOND == due, limits


def test_free_is_reckoned_alike() -> None:
    """What a glance calls free is what a whole look does, with a budget and without."""
    for budgets in ((), (("cpu", 8 * GIB),), (("cpu", 30 * GIB),)):
        drive = Host1(WIDE.replace(memory_budgets=budgets)).look(1.0, free=20 * GIB, held=3 * GIB)
        track = next(track for track in drive.state.tracks if track.name == "memory:cpu")
        assert free_bytes(drive.limits, 20 * GIB, 3 * GIB) == track.value


class Parts:
    """What a glance looks at, from a list: (what woke us, what the host has available, what the job holds)."""

    def __init__(self, clock, script):
        self.clock, self.script, self.lines = clock, list(script), []

    def wait(self, ns):
        self.clock.advance(ns)
        self.now = self.script.pop(0)
        return self.now[0]

    lists = False

    def files(self, *, counts):
        return [(self, ((b"available ", 1, 8), (b"held ", 1, 8)))]

    def read(self):
        return Missing(reason="failed") if self.now[1] is None else b"available %d\nheld %d\n" % self.now[1:]

    def sizes(self, numbers):
        return numbers

    def append(self, kind, body, **how):
        self.lines.append((kind, body, how["stamp"][0]))
        return True


ENDS = [
    ([((), 20 * GIB, GIB)] * 20, 9, ()),  # the time is over
    ([((), 20 * GIB, GIB), (("child",), None, 0)], 1, ("child",)),
    ([((), 20 * GIB, GIB), ((), 19 * GIB, GIB)], 1, ()),  # out of the band
    ([((), 20 * GIB, GIB), ((), None, 0)], 1, ()),  # a file that does not answer
]


@pytest.mark.parametrize(("script", "count", "wakes"), ENDS)
def test_what_ends_the_glances(script, count, wakes) -> None:
    """A notice, free memory outside the band, a file that does not answer, or the time: each ends them at once; each glance is a sample with its own stamp, told once."""
    drive = settled()
    clock = FakeClock(drive.now)
    parts = Parts(clock, script)
    glances = Glances(WIDE, eyes=parts, journal=parts, clock=clock, wakes=parts, page=None)
    assert glances.until_needed(drive.band, seen_of(drive), drive.state, lambda: False) == wakes
    assert len(parts.lines) == count // 5 * 5  # by fives while nothing happens
    assert len(glances.caught_up(drive.state).trends[0].samples) >= len(drive.state.trends[0].samples)
    assert glances.write_down()[0] == count
    assert [line[2] for line in parts.lines] == [drive.now + (n + 1) * SECOND for n in range(count)]
    assert all(kind == "sample" and body["held_bytes"] == GIB and body["free_bytes"] == 20 * GIB for kind, body, _ in parts.lines)
    assert glances.write_down() == (0, None, None)


def seen_of(drive):
    """The last look of a drive with who is of the job."""
    from brim.facts.process import Usage
    from brim.governor.eyes import Seen

    usage = Usage(held_bytes=GIB, mapped_file_bytes=0, peak_bytes=GIB, processes=1, by="test")
    return Seen(look=Look(reading=drive.reading(), usage=usage, words=None, held=(("cpu", GIB),)), pids=(7, 8))


class Tended(Parts):
    """A job whose terminal brings a Ctrl-Z at the third glance."""

    def tend(self):
        self.tended = getattr(self, "tended", 0) + 1
        if self.tended == 3:
            self.governor.ask_to_rest()


def test_the_job_is_tended_at_every_glance() -> None:
    """Its orphans are reaped and its terminal is lent at each poll, not only at whole looks ten seconds apart; what the terminal brings ends the glances."""
    drive = settled()
    clock = FakeClock(drive.now)
    job = Tended(clock, [((), 20 * GIB, GIB)] * 20)
    job.governor = Governor(job, WIDE, eyes=job, hands=job, journal=job, clock=clock, wakes=job, page=None, watch=lambda *_: None, glances=True)
    assert job.governor._wait(drive.last, seen_of(drive), (), drive.now, ended=False, alone=0) == ()
    assert (job.tended, clock.now_ns() - drive.now) == (3, 3 * SECOND)


def test_what_one_look_showed_bears_one_stamp() -> None:
    """A checkpoint, an evaluation and the sample of the same look: the stamps of a journal do not run backwards."""
    drive = settled(listens=True)
    parts = Parts(FakeClock(drive.now), [])
    now = drive.last.replace(state=drive.state.replace(checkpoint_at_ns=drive.now - 5, evaluations=drive.state.evaluations + 1))
    seen = seen_of(drive)
    seen = seen.replace(look=seen.look.replace(words=drive.words))
    Notes(WIDE, parts).note(drive.state, now, seen, (drive.now, 7), None)
    assert [(kind, at) for kind, _, at in parts.lines] == [(kind, drive.now) for kind in ("checkpoint", "evaluated", "sample")]


@pytest.mark.parametrize(("poll", "written"), [(0.1, [5, 10, 15, 20]), (1, [5, 10]), (2, [3, 6, 9]), (3, [1, 2, 3]), (5, [1])])
def test_a_killed_governor_takes_few_glances_along(poll, written) -> None:
    """Glances are in the journal by fives or when four seconds have passed; where polls are further apart than two seconds each at once, as whole looks are."""
    limits = WIDE.replace(poll_ns=int(poll * SECOND))
    drive = settled()
    clock = FakeClock(drive.now)
    parts = Parts(clock, [((), 20 * GIB, GIB)] * (int(10 / poll) if poll >= 1 else 20) + [((), None, 0)] * 3)
    counts = []
    parts.append = lambda *_, **how: counts.append(parts.taken) or bool(how)
    read, parts.taken = parts.read, 0
    parts.read = lambda: setattr(parts, "taken", parts.taken + 1) or read()
    Glances(limits, eyes=parts, journal=parts, clock=clock, wakes=parts, page=None).until_needed(drive.band, seen_of(drive), drive.state, lambda: False)
    assert sorted(set(counts)) == [count for count in written if count * poll < 10 or poll < 1]


class Loop:
    """A built loop, played from a list: (why it came back, the polls it saw), and whether it has made a request by then."""

    def __init__(self, parts, script, *, has_asked=False):
        self.parts, self.script, self.has_asked, self.rooms, self.needs_look = parts, list(script), has_asked, [], False

    def lay_out(self, files):
        assert files

    def keep(self, numbers, slack, said, *, watched, poll_ns, until_ns, room):
        self.rooms.append(room)
        why, count = self.script.pop(0)
        rows = []
        for _ in range(count):
            self.parts.clock.advance(poll_ns)
            rows.append((self.parts.clock.now_ns(), 0, (20 * GIB, GIB), 0, 0))
        return why, rows


def looped(script, glances, *, has_asked=False, poll=1, lists=False, needs_look=False):
    """(what ended the glances, the parts, the loop) of a quiet run with the loop; `glances`: what each wait and glance of the interpreter finds."""
    limits = WIDE.replace(poll_ns=int(poll * SECOND))
    drive = settled()
    parts = Parts(FakeClock(drive.now), glances)
    parts.now, parts.lists = ((), 20 * GIB, GIB), lists
    loop = Loop(parts, script, has_asked=has_asked)
    loop.needs_look = needs_look
    whole = Glances(limits, eyes=parts, journal=parts, clock=parts.clock, wakes=parts, page=None, vigils=loop)
    return whole.until_needed(drive.band.replace(until_ns=drive.now + 1000 * SECOND), seen_of(drive), drive.state, lambda: False), parts, loop


LOOPS = [
    # what the loop came back with, what the interpreter then finds, has a request been made, are processes listed: what ends it, how many samples are written
    ([(WOKEN, 3)], [(("child",), 20 * GIB, GIB)], False, False, ("child",), 0),
    ([(FULL, 120), (WOKEN, 1)], [(("child",), 20 * GIB, GIB)], False, False, ("child",), 120),
    ([(MOVED, 2), (WOKEN, 1)], [(("signal",), 20 * GIB, GIB)], False, False, ("signal",), 0),  # still in the band: it goes on
    ([(WOKEN, 2)], [((), 20 * GIB, GIB)], True, False, (), 0),  # by a signal that nobody has asked for (SIGCONT)
    ([(MOVED, 2)], [], True, False, (), 0),  # also where a glance would find that all is well
    ([(MOVED, 2)], [], False, True, (), 0),
]


@pytest.mark.parametrize(("script", "finds", "has_asked", "lists", "ended", "written"), LOOPS)
def test_how_the_loop_comes_back(script, finds, has_asked, lists, ended, written) -> None:
    """A notice ends the glances, full rows are only written down, a number that strayed is looked at; a request that was made, or a job that is a list of processes, needs a whole look."""
    found, parts, _ = looped(script, finds, has_asked=has_asked, lists=lists)
    assert found == ended
    assert len(parts.lines) == written


def test_what_no_glance_reads_needs_a_look() -> None:
    """Pressure, a disk, a sensor, the limit of a group: free memory being well says nothing of them."""
    assert looped([(MOVED, 2)], [], needs_look=True)[0] == ()


@pytest.mark.parametrize(("poll", "room"), [(0.1, 5), (0.5, 5), (1, 120), (5, 24), (60, 2), (600, 1)])
def test_how_long_the_loops_samples_wait(poll, room) -> None:
    """Two minutes where polls are a second and more apart, five polls below that."""
    _, _, loop = looped([(WOKEN, 0)], [(("child",), 20 * GIB, GIB)], poll=poll)
    assert loop.rooms == [room]
