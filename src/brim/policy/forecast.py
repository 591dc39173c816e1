"""When will the floor be reached? A slope over the last samples of free memory, held back where a fast load would look like a leak.

Guarantees: no forecast with fewer than three samples, before half of the room at the start is used, in a declared load phase, before the engine is ready,
or - for a job that says nothing - before its memory was once flat for `SETTLE_NS`. The horizon is the measured time of a checkpoint plus the confirmations and
a reserve (a fixed horizon without these raised a false alarm in three of three loads when it was measured). Not covered: growth in jumps between two looks.
"""

from brim.facts.look import Look
from brim.facts.settings import Limits
from brim.policy.signals import floor_of
from brim.policy.states import BLOCK, FORECAST, RUN, THROTTLE, Signal, State, Trend
from brim.units import MIB, format_bytes, format_ns

WINDOW_NS = 2_000_000_000
SETTLE_NS = 2_000_000_000
KEPT = 24
# Growth below this share of the room per second is flat.
FLAT_SHARE = 0.02
# No memory fills faster than this (earlyoom assumes 6000 MiB/s): near the floor, look again before it could be reached.
FASTEST_FILL = 6 << 30
NEAR_BYTES = 256 << 20
# How long before the budget is gone the grace of a stop ends; and the fastest pace of looks.
LAST_LOOK_NS, FASTEST_NS = 40_000_000, 10_000_000
LEAD_PART = 8
LOADING = ("loading", "warmup", "compile", "starting")


def follow(limits: Limits, trend: Trend, free: int, now: int) -> Trend:
    """Add one sample and work out the rate of growth (bytes a second) and the times to the floor and to nothing (ns; -1: not in sight)."""
    samples = tuple(pair for pair in trend.samples if now - pair[0] <= WINDOW_NS or pair in trend.samples[-3:])[-KEPT + 1 :]
    samples = (*samples, (now, free)) if not samples or now > samples[-1][0] else samples
    rate = _slope(samples)
    flat = rate <= max(int(FLAT_SHARE * max(trend.first_room, 0)), 8 * MIB)
    flat_since = (now if trend.flat_since_ns < 0 else trend.flat_since_ns) if flat and len(samples) >= 3 else -1
    settled = trend.settled or (flat_since >= 0 and now - flat_since >= SETTLE_NS)
    return trend.replace(
        samples=samples,
        rate=rate,
        flat_since_ns=flat_since,
        settled=settled,
        to_floor_ns=_until(free - floor_of(limits), rate),
        to_zero_ns=_until(free, min(rate, _recent(samples))),
    )


def _slope(samples: "tuple[tuple[int, int], ...]") -> int:
    """Least squares over the samples: bytes a second by which free memory shrinks (0 where it grows, or with fewer than three)."""
    if len(samples) < 3:
        return 0
    start, n = samples[0][0], len(samples)
    sum_t = sum_f = 0
    for t, f in samples:
        sum_t += t - start
        sum_f += f
    mean_t, mean_f, var, cov = sum_t / n, sum_f / n, 0.0, 0.0
    for t, f in samples:
        away = t - start - mean_t
        var += away * away
        cov += away * (f - mean_f)
    return max(0, int(-cov / var * 1e9)) if var > 0 else 0


def _recent(samples: "tuple[tuple[int, int], ...]") -> int:
    """Give the lower of the last two rates: one jump must not end a grace."""
    if len(samples) < 3:
        return 0
    (t0, f0), (t1, f1), (t2, f2) = samples[-3:]
    return max(0, min((f0 - f1) * 1_000_000_000 // max(t1 - t0, 1), (f1 - f2) * 1_000_000_000 // max(t2 - t1, 1)))


def _until(room: int, rate: int) -> int:
    """Nanoseconds until `room` bytes are used up at `rate` bytes a second; 0 where there is none left; -1 where nothing grows."""
    if room <= 0:
        return 0
    return int(room / rate * 1e9) if rate > 0 else -1


def pace_ns(limits: Limits, trend: Trend) -> int:
    """Give the time (ns) to the floor at the slope or, where that is faster, at the rate between the last two looks; -1 where nothing grows. What has begun to grow is looked at soon."""
    if len(trend.samples) < 2:
        return trend.to_floor_ns
    (before, then), (now, free) = trend.samples[-2:]
    left = _until(free - floor_of(limits), max(then - free, 0) * 1_000_000_000 // max(now - before, 1))
    return left if trend.to_floor_ns < 0 else trend.to_floor_ns if left < 0 else min(left, trend.to_floor_ns)


def reach_ns(limits: Limits, device: str, free: int) -> int:
    """Give the time (ns) in which the floor could be reached at the fastest that memory fills; where the kernel will wake us, the poll, but at once when it is near.

    A guard that has looked just now acts several times as fast as one that slept for a second.
    """
    room = max(free - limits.floor_bytes, 0)
    if limits.woken and device == "cpu":
        return 0 if room < NEAR_BYTES else limits.poll_ns
    return room * 1_000_000_000 // FASTEST_FILL


def arm(look: Look, trend: Trend, now: int) -> Trend:
    """Note since when a forecast may be believed: since the load was over. What was seen while the job loaded says nothing about how it runs."""
    words = look.words
    speaks = words is not None and (words.step > 0 or words.phase != "")
    loads = (words is not None and words.phase in LOADING) or not (speaks or look.ready or trend.settled)
    armed = -1 if loads else trend.armed_ns if trend.armed_ns >= 0 else now
    return trend if armed == trend.armed_ns else trend.replace(armed_ns=armed)


def horizon_ns(limits: Limits, state: State) -> int:
    """Give how early to act: the measured checkpoint time (else the assumed one), the confirmations at the present poll, and a reserve."""
    return (state.checkpoint_ns or limits.checkpoint_time_ns) + limits.confirmations * min(limits.poll_ns, 200_000_000) + limits.reserve_ns


def is_there(limits: Limits, room: int, rate: int) -> bool:
    """Say whether a job that grows at `rate` (bytes a second) and has `room` bytes to the floor is as good as there: a stop then has the whole gap below the floor.

    What the end of a stop loses to our last look and to the hard reserve, and its beginning to confirmation, is so given back, up to an eighth of the floor: a job
    that grows fast and ends just above the floor is let alone.
    """
    lead_ns = LAST_LOOK_NS + limits.confirmations * FASTEST_NS + limits.hard_reserve_bytes * 1_000_000_000 // max(rate, 1)
    return room < min(rate * lead_ns // 1_000_000_000, floor_of(limits) // LEAD_PART)


def judge(limits: Limits, state: State, trend: Trend, free: int) -> Signal:
    """Turn a trend into a signal: throttle where the floor comes within the horizon, block where it is all but there, so that a stop has the whole gap below the floor."""
    rate = 0
    if trend.armed_ns >= 0:
        whole = trend.samples and trend.samples[0][0] >= trend.armed_ns
        rate = trend.rate if whole else _slope(tuple(pair for pair in trend.samples if pair[0] >= trend.armed_ns))
    room = free - floor_of(limits)
    left = _until(room, rate)
    near = rate > 0 and room * 2 <= max(trend.first_room, 0) and 0 <= left < horizon_ns(limits, state)
    why = f"{trend.device}: nothing grows"
    if rate:
        why = f"{trend.device} fills at {format_bytes(rate)}/s, floor in {format_ns(max(left, 0))}, horizon {format_ns(horizon_ns(limits, state))}"
    level = THROTTLE if near else RUN
    if near and is_there(limits, room, max(rate, _recent(trend.samples))):
        level, early = BLOCK, ": the stop begins now, so that it has the whole of what is left below the floor"
        why += early if room > 0 else ""
    return Signal(
        name=f"forecast:{trend.device}", kind=FORECAST, device=trend.device, level=level, relaxed=level, why=why, value=free, confirm=limits.confirmations
    )
