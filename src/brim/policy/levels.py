"""Remembers each signal: confirmation before it gets worse, hysteresis and dwell before it gets better, a clock while it is lost; no intents.

Guarantees: a level never falls without a fresh reading, nor before `dwell_ns` and two looks that were better throughout; it rises after `confirm` looks in
a row that are 0.1 s apart; a lost signal keeps its level, and is believed again after `confirmations` readings in a row; a sticky signal never falls.
"""

from brim.facts.settings import Limits
from brim.policy.signals import known
from brim.policy.states import FORECAST, ORDER, RUN, UNKNOWN, Signal, Track

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.device import Device

# Looks that confirm each other are at least this far apart: a sensor that drops out does so for a moment, not for a look.
CONFIRM_NS = 100_000_000


def fresh(signal: Signal, now: int) -> Track:
    """Give the memory of a signal that was never seen before."""
    lost = signal.level == UNKNOWN
    return Track(
        name=signal.name,
        kind=signal.kind,
        level=UNKNOWN,
        since_ns=now,
        why=signal.why,
        lost_since_ns=now if lost else -1,
        changed_ns=now,
    )


def step(limits: Limits, track: Track, signal: Signal, now: int) -> "tuple[Track, str]":
    """Take one look at a signal into account; returns the new memory and a sentence where something changed (else empty)."""
    if signal.level == UNKNOWN:
        changed = "" if track.lost else f"{signal.name}: lost ({signal.why}); its level stays {track.level}"
        since = track.lost_since_ns if track.lost else now
        return track.replace(lost_since_ns=since, back_count=0, worse=RUN, worse_count=0, better_since_ns=-1, better_count=0), changed
    if track.lost and track.level != UNKNOWN:
        if track.back_count + 1 < limits.confirmations:
            return track.replace(back_count=track.back_count + 1), ""
        track = track.replace(lost_since_ns=-1, back_count=0)
        after, sentence = _move(limits, track, signal, now)
        return after, f"{signal.name}: back" + (f"; {sentence}" if sentence else "")
    return _move(limits, track.replace(lost_since_ns=-1, back_count=0) if track.lost or track.back_count else track, signal, now)


def _move(limits: Limits, track: Track, signal: Signal, now: int) -> "tuple[Track, str]":
    """Rise, fall or stay."""
    if signal.value != track.value or signal.why != track.why or signal.kind != track.kind:
        track = track.replace(why=signal.why, value=signal.value, kind=signal.kind)
    if track.level == UNKNOWN or ORDER[signal.level] > ORDER[track.level]:
        return _rise(track, signal, now)
    if track.worse_count:
        track = track.replace(worse=RUN, worse_count=0)
    if signal.sticky or ORDER[signal.relaxed] >= ORDER[track.level]:
        return (track.replace(better_since_ns=-1, better_count=0) if track.better_count else track), ""
    since = now if track.better_since_ns < 0 else track.better_since_ns
    count = track.better_count + 1
    if now - since < limits.dwell_ns or count < 2:
        return track.replace(better_since_ns=since, better_count=count), ""
    return _become(track, signal.relaxed, now, signal.why)


def _rise(track: Track, signal: Signal, now: int) -> "tuple[Track, str]":
    """Count looks that are worse; the level rises to the least bad of them once there are enough."""
    if track.level == UNKNOWN and signal.level == RUN:
        return _become(track, RUN, now, signal.why)
    seen = signal.level if track.worse_count == 0 or ORDER[signal.level] < ORDER[track.worse] else track.worse
    count, since = track.worse_count + 1, track.worse_since_ns if track.worse_count else now
    apart = CONFIRM_NS if signal.confirm > 1 and signal.kind != FORECAST else 0
    if count < signal.confirm or now - since < apart:
        return track.replace(worse=seen, worse_count=count, worse_since_ns=since, better_since_ns=-1, better_count=0), ""
    return _become(track, seen, now, signal.why)


def _become(track: Track, level: str, now: int, why: str) -> "tuple[Track, str]":
    sentence = f"{track.name}: {track.level} → {level} ({why})" if level != track.level else ""
    return track.replace(level=level, since_ns=now, worse=RUN, worse_count=0, better_since_ns=-1, better_count=0), sentence


def frozen(limits: Limits, track: Track, device: "Device", value: float, now: int) -> "tuple[Track, bool]":
    """Say whether a temperature is frozen: unchanged under load for `stale_after_ns` although the power moved by a fifth, or did not move to the last digit.

    A steady load holds an integer temperature for minutes, so an unchanged value alone proves nothing; without a power reading nothing is concluded before
    ten times that.
    """
    draw, load, limit = known(device.power_draw_w), known(device.utilisation_percent), known(device.power_limit_w)
    if track.value is None or value != track.value or (track.beside is None and draw is not None):
        return track.replace(changed_ns=now, beside=None if draw is None else float(draw)), False
    busy = (load is not None and load >= 50) or (draw is not None and limit is not None and draw >= limit / 2)
    age = now - track.changed_ns
    if not busy or age < limits.stale_after_ns:
        return track, False
    if draw is None or track.beside is None:
        return track, age >= 10 * limits.stale_after_ns
    moved = abs(draw - track.beside)
    return track, moved >= 0.2 * max(track.beside, 1.0) or (moved == 0 and age >= 2 * limits.stale_after_ns)
