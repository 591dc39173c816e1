"""When may most of a look be left out? While nothing is near, free memory alone tells whether another look could decide anything; a band says how far it may move.

Guarantees: inside the band, until its time is over, and while nobody speaks, `decide` would change no level and want nothing (a property test walks both ways side
by side); what was seen meanwhile is handed to the forecast as if each had been a whole look. Only where the host's memory is all that is governed: cards are asked
at every look.
"""

from brim.facts.look import SAME, Look
from brim.facts.settings import Limits
from brim.policy import forecast, signals
from brim.policy.signals import PRESSURE_THROTTLE, known
from brim.policy.states import FULL_SPEED, HEAT, POWER, PRESSURE, RUN, Decision, State
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from brim.facts.device import Device
    from brim.policy.states import Track

LONGEST_NS = 10_000_000_000
# Where somebody looks at the seldom-asked things meanwhile (`asides`), a whole look need not come for their sake; at most so many polls are then followed at once.
WATCHED_NS, WATCHED_POLLS = 240_000_000_000, 240
# The band is this part of the room above the margin: growth that stays in it needs as many polls again to reach the floor.
PART = 64
# A cooler machine than this is not asked about more often than once in LONGEST_NS.
CALM_PRESSURE = PRESSURE_THROTTLE / 4


class Quiet(Record):
    """Free host memory may be anywhere from `low` to `high` (bytes) until `until_ns` (monotonic) without anything to decide; 0 ns: look at once."""

    low: int
    high: int
    until_ns: int


NOT_QUIET = Quiet(low=0, high=-1, until_ns=0)


def quiet(limits: Limits, look: Look, decision: Decision, now: int, *, watched: bool = False) -> Quiet:
    """The band after a look, or `NOT_QUIET`. `watched`: between two looks the `asides` are looked at, too."""
    state = decision.state
    if decision.intents or decision.next_look_ns < limits.poll_ns or look.leader != SAME or not _at_rest(limits, state, look):
        return NOT_QUIET
    trend = state.trends[0]
    free = trend.samples[-1][1]
    room = free - signals.floor_of(limits) - limits.margin(trend.device)
    width = room // max(PART, 4 * forecast.horizon_ns(limits, state) // limits.poll_ns)
    if width <= 0 or forecast.reach_ns(limits, trend.device, free - width) < limits.poll_ns:  # nearer, the pace is faster than the poll
        return NOT_QUIET
    dues = [now + (max(LONGEST_NS, min(WATCHED_NS, WATCHED_POLLS * limits.poll_ns)) if watched else LONGEST_NS)]
    if limits.run_ns:
        dues.append(state.began_ns + limits.run_ns)
    if limits.checkpoint_every_ns:
        dues.append(max(state.checkpoint_at_ns, state.last_ask_ns, state.began_ns) + limits.checkpoint_every_ns)
    if look.words is not None and limits.job_silent_ns:
        dues.append(look.words.beat_ns + limits.job_silent_ns)
    return Quiet(low=free - width, high=free + width, until_ns=min(dues))


def _at_rest(limits: Limits, state: State, look: Look) -> bool:
    """Say whether nothing is under way, waits for confirmation, or is hot; and whether the host is the only device that is governed."""
    if state.level != RUN or state.halt is not None or state.ask is not None or state.rung != FULL_SPEED or state.unknown_since_ns >= 0:
        return False
    if [trend.device for trend in state.trends] != ["cpu"] or state.trends[0].armed_ns < 0 or limits.floor_counts_job:
        return False
    if any(limits.governs(device.id) and device.backend != "cpu" for device in look.reading.devices):
        return False
    if (known(look.reading.host.psi_full_avg10) or 0.0) >= CALM_PRESSURE:
        return False
    return all(
        track.level == RUN and not track.lost and not (track.worse_count or track.better_count or track.back_count) and _is_cool(limits, look, track)
        for track in state.tracks
        if track.kind != PRESSURE or track.value is not None
    )


def _is_cool(limits: Limits, look: Look, track: "Track") -> bool:
    """Say whether a signal is none of heat or power, or is the processor's temperature and far from its ceiling."""
    if track.kind not in (HEAT, POWER):
        return True
    tops = [signals.cool_below(limits, device) for device in look.reading.devices if device.id == "cpu" and track.name == "temperature:cpu"]
    return any(top is not None and track.value is not None and track.value < top for top in tops)


def asides(limits: Limits, devices: "Iterable[Device]") -> "dict[str, tuple[int, int]]":
    """How far what is asked seldom may go while nothing is near: pressure (all tasks waited, % of ten seconds), the disk that checkpoints go to, and /dev/shm (bytes), and the
    processor's sensors (m°C).
    """
    most = (1 << 63) - 1
    found = {"psi_full": (0, int(CALM_PRESSURE) - 1), "disk": (limits.disk_floor_bytes, most), "shm": (signals.SHM_FLOOR, most)}
    for device in devices:
        top = signals.cool_below(limits, device) if device.id == "cpu" else None
        if top is not None:
            found["heat"] = 1, int(top * 1000) - 1
    return found


def free_bytes(limits: Limits, available: int, held: int) -> int:
    """Free host memory as `signals.free_bytes` reckons it, from what the host has available and what the job holds (bytes)."""
    budget = limits.budget("cpu")
    return available if budget is None else min(available, budget - held)


def catch_up(limits: Limits, state: State, glances: "Iterable[tuple[int, int]]") -> State:
    """The state as if each (monotonic ns, free bytes) of `glances` had been a whole look: the forecast follows what was seen between two of them."""
    if not state.trends:
        return state
    trend = state.trends[0]
    for at, free in glances:
        trend = trend.replace(first_room=max(trend.first_room, free - signals.floor_of(limits)))
        trend = forecast.follow(limits, trend, free, at)
    return state.replace(trends=(trend, *state.trends[1:]))
