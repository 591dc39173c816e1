"""A stop, stage by stage: asked or signalled, then SIGTERM to the leader, then to its workers, then SIGKILL to the whole tree; it never goes back.

Guarantees: the grace ends early when the memory budget would be passed before the next look; an answered checkpoint ends the asking; a device that is dead
is asked for nothing. Not covered: how signals are sent (SIGCONT after SIGTERM to a paused job is the hands' business).
"""

from brim.facts.look import GONE, Look
from brim.facts.settings import Limits
from brim.policy.forecast import LAST_LOOK_NS
from brim.policy.states import (
    ASKED,
    BLOCK,
    ENDED,
    KILLING,
    MEMORY,
    SIGNALLED,
    STOP,
    TERMINATING,
    VERIFY,
    WORKERS,
    Halt,
    Intent,
    State,
)

# A job that answered is given this long to end by itself; one that never looked is signalled after the other.
LINGER_NS, UNSEEN_NS, REKILL_NS = 10_000_000_000, 3_000_000_000, 500_000_000


def begin(limits: Limits, state: State, look: Look, now: int, cause: "tuple[str, str]", *, may_save: bool) -> "tuple[State, list[Intent]]":
    """Start a stop: ask where the job listens, signal where a checkpoint signal was set, else SIGTERM."""
    deadline = now + limits.grace_ns
    stage, number = TERMINATING, -1
    if "stop_now" in look.wishes:
        stage = TERMINATING
    elif may_save and listens(look):
        stage, number = ASKED, (look.words.asked + 1 if look.words else -1)
    elif may_save and limits.checkpoint_signal:
        stage = SIGNALLED
    halt = Halt(stage=stage, since_ns=now, began_ns=now, deadline_ns=deadline, why=cause[1], cause=cause[0], number=number)
    state = state.replace(halt=halt, ask=None, signalled_ns=now if stage == SIGNALLED else state.signalled_ns)
    return state, [Intent(action=STOP, why=cause[1], stage=stage, deadline_ns=deadline)]


def listens(look: Look) -> bool:
    """Say whether the job has the control page mapped and has spoken on it."""
    return look.words is not None and look.words.beat_ns > 0


def go_on(limits: Limits, state: State, look: Look, now: int) -> "tuple[State, list[Intent]]":
    """Take the stop one look further."""
    halt = state.halt
    assert halt is not None
    if halt.stage == ENDED:
        return state, []
    halt = _heard(halt, look, now)  # first: a job may acknowledge and be gone before the next look
    state = state.replace(halt=halt)
    if look.leader == GONE and look.others == 0:
        return state.replace(halt=halt.replace(stage=ENDED, since_ns=now)), [Intent(action=VERIFY, why="the job has ended")]
    if halt.stage == KILLING:
        if now - halt.since_ns < REKILL_NS * (halt.kills + 1):
            return state, []
        return _enter(state, halt.replace(kills=halt.kills + 1), KILLING, (halt.since_ns, halt.deadline_ns), "still there after SIGKILL")
    if _over(limits, state):
        return _enter(state, halt, KILLING, (now, now), "the memory budget would be passed before the grace ends")
    if halt.stage in (ASKED, SIGNALLED):
        return _asking(limits, state, halt, look, now)
    return _terminating(limits, state, halt, look, now)


def _heard(halt: Halt, look: Look, now: int) -> Halt:
    """Take the job's answer to the stop over; while it is asked, the time to end by itself begins with it."""
    words = look.words
    if halt.answered or words is None or not 0 < halt.number <= words.answered:
        return halt
    return halt.replace(answered=True, since_ns=now if halt.stage in (ASKED, SIGNALLED) else halt.since_ns)


def _enter(state: State, halt: Halt, stage: str, times: "tuple[int, int]", why: str) -> "tuple[State, list[Intent]]":
    since, deadline = times
    after = halt.replace(stage=stage, since_ns=since, deadline_ns=deadline)
    signalled = since if stage == SIGNALLED else state.signalled_ns
    return state.replace(halt=after, signalled_ns=signalled), [Intent(action=STOP, why=why, stage=stage, deadline_ns=deadline)]


def _over(limits: Limits, state: State) -> bool:
    """Say whether a device that blocks is about to have nothing left at all."""
    blocked = {track.name.removeprefix("memory:") for track in state.tracks if track.kind == MEMORY and track.level == BLOCK and not track.lost}
    for trend in state.trends:
        if trend.device in blocked and trend.samples:
            free = trend.samples[-1][1]
            if free <= limits.hard_reserve_bytes or 0 <= trend.to_zero_ns <= LAST_LOOK_NS:
                return True
    return False


def _asking(limits: Limits, state: State, halt: Halt, look: Look, now: int) -> "tuple[State, list[Intent]]":
    """Wait for the answer, or for the end of the job; then SIGTERM."""
    words = look.words
    if "stop_now" in look.wishes:
        return _enter(state, halt, TERMINATING, (now, now + limits.grace_ns), "asked a second time")
    if halt.answered and now - halt.since_ns >= LINGER_NS:
        return _enter(state, halt, TERMINATING, (now, now + limits.grace_ns), "the checkpoint is acknowledged, the job goes on running")
    if look.leader == GONE:
        return _enter(state, halt, WORKERS, (now, now + limits.grace_ns), "the leader has ended, its workers have not")
    if now >= halt.deadline_ns:
        return _enter(state, halt, TERMINATING, (now, now + limits.grace_ns), "no complete checkpoint before the deadline")
    unseen = words is None or (halt.number > 0 and words.seen < halt.number)
    if halt.stage == ASKED and unseen and limits.checkpoint_signal and now - halt.began_ns >= UNSEEN_NS:
        return _enter(state, halt, SIGNALLED, (now, halt.deadline_ns), "the request was not seen on the control page")
    return state, []


def _terminating(limits: Limits, state: State, halt: Halt, look: Look, now: int) -> "tuple[State, list[Intent]]":
    """SIGTERM was sent to the leader: its workers follow when it has ended, ignores it, or has used half of the grace; then SIGKILL."""
    if now >= halt.deadline_ns or "kill" in look.wishes:
        return _enter(state, halt, KILLING, (now, now), "asked a third time" if now < halt.deadline_ns else "the grace is over")
    if halt.stage == WORKERS or look.others == 0:
        return state, []
    if look.leader == GONE:
        return _enter(state, halt, WORKERS, (now, halt.deadline_ns), "the leader has ended, its workers have not")
    if look.leader_on_term == "ignored" or now - halt.since_ns >= limits.grace_ns // 2:
        return _enter(state, halt, WORKERS, (now, halt.deadline_ns), "the leader does not end")
    return state, []
