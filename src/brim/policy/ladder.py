"""What a level does while no stop is under way: against heat slow, slower, pause; against memory a checkpoint; checkpoints by time.

Guarantees: pausing is never used against memory (it frees none); one checkpoint request at a time, one an episode; nothing is relaxed while a signal that
asked for it is lost; a paused job is let go after `pause_max_ns` at a quarter of its speed (watchdogs of collectives end a job that is paused for longer).
"""

from brim.facts.look import Look
from brim.facts.settings import Limits
from brim.policy.halt import listens
from brim.policy.states import (
    BLOCK,
    CHECKPOINT,
    FAULT,
    FORECAST,
    FULL_SPEED,
    HALF_SPEED,
    HEAT,
    MEMORY,
    NOTIFY,
    ORDER,
    PAUSE,
    PAUSED,
    POWER,
    PRESSURE,
    QUARTER_SPEED,
    RESUME,
    RUN,
    RUNGS,
    SLOW,
    SLOW_PERMILLE,
    THROTTLE,
    Ask,
    Intent,
    State,
)
from brim.units import format_bytes

# Two episodes that follow each other so closely are one (a jump is seen by the level and by the forecast).
SAVE_APART_NS = 5_000_000_000
_SAVING = (MEMORY, FORECAST, PRESSURE, FAULT)


def can_checkpoint(limits: Limits, look: Look) -> bool:
    """Say whether the job can be asked for a checkpoint at all."""
    return listens(look) or limits.checkpoint_signal != 0


_WISHES = (
    ("stop_now", "outside", "brim was asked to stop at once"),
    ("stop", "outside", "brim was asked to stop"),
    ("end", "end", "the time of the run is over"),
    ("leftover", "leftover", "the leader has ended with a failure, and what it started lives on"),
)


def stop_cause(limits: Limits, state: State, look: Look) -> "tuple[str, str] | None":
    """Give (cause, sentence) of a stop that is due now, the most urgent first; None where there is none."""
    for wish, cause, why in _WISHES:
        if wish in look.wishes and (wish != "leftover" or look.others):
            return cause, why
    blocked = [track for track in state.tracks if track.level == BLOCK]
    for kind, cause in ((FAULT, "fault"), (MEMORY, "memory"), (FORECAST, "memory"), (HEAT, "heat")):
        for track in blocked:
            if track.kind == kind and (kind not in (MEMORY, FORECAST) or relieves(limits, look, track.name.partition(":")[2], track.value)):
                return cause, track.why
    if state.unknown_done and limits.on_unknown == "stop":
        return "unknown", "telemetry is lost for longer than allowed"
    return None


def relieves(limits: Limits, look: Look, device: str, free: "int | float | None") -> bool:
    """Say whether stopping this job could help: it holds at least a quarter of what is short (a full host is not always the job's doing)."""
    held = look.held_on(device)
    if not isinstance(held, int) or free is None:
        return True
    return held * 4 >= limits.floor_bytes - int(free)


def climb(limits: Limits, state: State, look: Look, now: int) -> "tuple[State, list[Intent]]":
    """Do what the levels ask for, in rising order; returns the new state and the intents."""
    state, intents = _answered(limits, state, look, now)
    if state.ask is None:
        state, more = _heat(limits, state, now)
        intents += more
        if state.rung != PAUSED:
            state, more = _checkpoint(limits, state, look, now)
            intents += more
    return state, intents


def _answered(limits: Limits, state: State, look: Look, now: int) -> "tuple[State, list[Intent]]":
    """Close a request that was answered or ran out of time; afterwards the page shows the present rung again."""
    ask, words = state.ask, look.words
    if ask is None:
        return state, []
    if words is not None and 0 < ask.number <= words.answered:
        done = state.replace(ask=None, answers=state.answers + 1, checkpoint_ns=state.checkpoint_ns or now - ask.since_ns)
        return done, [_at_rung(done, f"checkpoint of step {words.checkpoint_step} acknowledged")]
    if now < ask.deadline_ns:
        return state, []
    done = state.replace(ask=None, unanswered=state.unanswered + 1)
    if ask.number < 0:
        return done, []
    seen = words is not None and words.seen >= ask.number
    said = "seen, but no complete checkpoint came" if seen else "not seen by the job"
    if not seen and limits.checkpoint_signal and ask.number >= 0:
        retry = done.replace(ask=Ask(since_ns=now, deadline_ns=now + limits.grace_ns, why=ask.why, number=-1), signalled_ns=now)
        return retry, [Intent(action=CHECKPOINT, why=f"{ask.why}; the request was {said}", stage="signalled", deadline_ns=now + limits.grace_ns)]
    return done, [Intent(action=NOTIFY, why=f"checkpoint request {said} before its deadline"), _at_rung(done, "request withdrawn")]


def _at_rung(state: State, why: str) -> Intent:
    if state.rung == PAUSED:
        return Intent(action=PAUSE, why=why)
    permille = SLOW_PERMILLE[state.rung]
    return Intent(action=SLOW, why=why, permille=permille) if permille else Intent(action=RESUME, why=why)


def _heat(limits: Limits, state: State, now: int) -> "tuple[State, list[Intent]]":
    """Climb against heat while it does not get better; come down at once when it has (the dwell is in the levels)."""
    hot = [track for track in state.tracks if track.kind in (HEAT, POWER) and ORDER[track.level] >= ORDER[THROTTLE]]
    at = RUNGS.index(state.rung)
    if not hot:
        if state.rung == FULL_SPEED:
            return state, []
        cool = state.replace(rung=FULL_SPEED, rung_since_ns=now)
        return cool, [Intent(action=RESUME, why="heat and power are back within the limits")]
    why = hot[0].why
    if state.rung == PAUSED and now - state.rung_since_ns >= limits.pause_max_ns:
        return state.replace(rung=QUARTER_SPEED, rung_since_ns=now), [
            Intent(action=SLOW, why=f"{why}; paused for as long as a pause may last", permille=SLOW_PERMILLE[QUARTER_SPEED])
        ]
    if state.rung == PAUSED or (state.rung != FULL_SPEED and now - state.rung_since_ns < limits.heat_patience_ns):
        return state, []
    if any(track.lost for track in hot) or all(track.better_since_ns >= 0 for track in hot):
        return state, []  # nothing is seen, or it is getting better: not the time to climb
    if at >= 1 and all(track.kind == POWER for track in hot):
        return state, []
    rung = RUNGS[at + 1] if at else HALF_SPEED
    after = state.replace(rung=rung, rung_since_ns=now)
    return after, [Intent(action=PAUSE, why=why) if rung == PAUSED else Intent(action=SLOW, why=why, permille=SLOW_PERMILLE[rung])]


def _checkpoint(limits: Limits, state: State, look: Look, now: int) -> "tuple[State, list[Intent]]":
    """Ask for a checkpoint where memory comes near its floor, a fault was told, telemetry is lost, or the time has come."""
    why = _reason(limits, state, look, now)
    if why is None or not can_checkpoint(limits, look):
        return state, []
    deadline = now + limits.grace_ns
    number = look.words.asked + 1 if look.words is not None and listens(look) else -1
    stage = "asked" if number > 0 else "signalled"
    ask = Ask(since_ns=now, deadline_ns=deadline, why=why, number=number)
    signalled = now if stage == "signalled" else state.signalled_ns
    return state.replace(ask=ask, last_ask_ns=now, signalled_ns=signalled), [Intent(action=CHECKPOINT, why=why, stage=stage, deadline_ns=deadline)]


def _reason(limits: Limits, state: State, look: Look, now: int) -> "str | None":
    """Give why a checkpoint is due; None where it is not."""
    done = max(state.checkpoint_at_ns, state.last_ask_ns)
    if "checkpoint" in look.wishes:
        return "asked for from outside"
    for track in state.tracks:
        old = track.kind == FAULT and track.since_ns == track.changed_ns  # it was there before the job
        if (
            track.kind in _SAVING
            and ORDER[track.level] >= ORDER[THROTTLE]
            and done < track.since_ns
            and now - done >= max(limits.dwell_ns, SAVE_APART_NS)
            and not old
        ):
            return track.why
    if state.unknown_done and limits.on_unknown == "checkpoint" and done < state.unknown_since_ns:
        return "telemetry is lost for longer than allowed"
    if limits.checkpoint_every_ns and now - max(done, state.began_ns) >= limits.checkpoint_every_ns:
        return "the time between checkpoints is over"
    return None


def cannot_relieve(limits: Limits, state: State, look: Look) -> "str | None":
    """Give the sentence for memory that is short although this job holds next to nothing; None where that is not so."""
    for track in state.tracks:
        device = track.name.removeprefix("memory:")
        if track.kind == MEMORY and track.level == BLOCK and not relieves(limits, look, device, track.value):
            held = look.held_on(device)
            return f"{track.why}; the job holds only {format_bytes(held) if isinstance(held, int) else 'little'}: stopping it would not help"
    return None


def calm(state: State) -> bool:
    """Say whether every signal is at run, with a reading."""
    return all(track.level == RUN and not track.lost for track in state.tracks)
