"""The governor's whole mind: (settings, state, reading, now) in; (state, intents, reasons) out; no clock, no I/O, every transition named.

`decide` is the one entry. It first lets every signal move (`signals`, `levels`, `forecast`), then either takes a stop one stage further (`halt`) or does
what the levels ask for (`ladder`), and says when to look again. Guarantees: nothing but a notice for a process whose identity is unsure; no level falls
without a reading; a stop never goes back; the same inputs give the same answer.
"""

from brim.facts.look import UNSURE, Look
from brim.facts.settings import Limits
from brim.policy import forecast, halt, ladder, levels, losses, signals, spill
from brim.policy.forecast import FASTEST_NS
from brim.policy.states import (
    BLOCK,
    CHECKPOINT,
    FAULT,
    HEAT,
    MEMORY,
    NOTIFY,
    ORDER,
    PAUSED,
    RESUME,
    RUN,
    THROTTLE,
    UNKNOWN,
    Decision,
    Intent,
    Signal,
    State,
    Track,
    Trend,
    worst,
)
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.device import Device

__all__ = ["CHECKPOINT", "Decision", "Intent", "Limits", "Look", "State", "begin", "decide"]

FAST_NS = 100_000_000


def begin(now: int) -> State:
    """Give the state at the start: nothing seen, so unknown."""
    return State(began_ns=now, since_ns=now, rung_since_ns=now)


def decide(limits: Limits, state: State, look: Look, now: int) -> Decision:
    """Take one look into account. `now` and all times are monotonic nanoseconds."""
    before = state
    state, reasons = _observe(limits, state, look, now)
    state = _remember(state, look)
    state, more = _clock(limits, state, now)
    reasons += more
    intents = [Intent(action=NOTIFY, why=text, level=state.level) for text in reasons]
    if state.halt is not None:
        state, todo = halt.go_on(limits, state, look, now)
    elif cause := ladder.stop_cause(limits, state, look):
        cause = (cause[0], losses.told(before, state, cause[1], now)) if cause[0] == "fault" else cause
        lead = [Intent(action=RESUME, why="a paused job cannot save")] if state.rung == PAUSED else []
        state, todo = halt.begin(limits, state, look, now, cause, may_save=not _dead(limits, look, cause[0]))
        todo = lead + todo
    else:
        state, todo = ladder.climb(limits, state, look, now)
        if before.level != BLOCK and (text := ladder.cannot_relieve(limits, state, look)):
            todo.append(Intent(action=NOTIFY, why=text, level=state.level))
    if look.leader == UNSURE:
        kept = state.replace(halt=before.halt, ask=before.ask, rung=before.rung, rung_since_ns=before.rung_since_ns, last_ask_ns=before.last_ask_ns)
        held = [f"not done, the process may be another: {intent.action}" for intent in todo if intent.action != NOTIFY]
        return Decision(state=kept, intents=tuple(intents), reasons=(*reasons, *held), next_look_ns=FAST_NS)
    return Decision(state=state, intents=(*intents, *todo), reasons=tuple(reasons), next_look_ns=_next_look(limits, state))


def _dead(limits: Limits, look: Look, cause: str) -> bool:
    """Say whether the stop is for a device that cannot be read any more."""
    return cause == "fault" and any(signals.is_dead(device) or _gone(device) for device in look.reading.devices if limits.governs(device.id))


def _why_gone(device: "Device") -> str:
    """What the driver said when the device went."""
    free = device.memory.free_bytes
    return free.detail if isinstance(free, Missing) else "it is in no reading any more"


def _gone(device: "Device") -> bool:
    free = device.memory.free_bytes
    return isinstance(free, Missing) and free.reason == "gone"


def _observe(limits: Limits, state: State, look: Look, now: int) -> "tuple[State, list[str]]":
    """Let every signal move."""
    here = tuple(device.id for device in look.reading.devices)
    absent = limits.absent(here)
    came = {f"memory:{name}" for name in limits.named() if name not in absent and name not in here}  # a backend's word, now that it has a device
    known = [track for track in state.tracks if track.name not in came]
    tracks = {track.name: track for track in known}
    trends = {trend.device: trend for trend in state.trends}
    found: list[Signal] = []
    if not signals.too_old(limits, look, now):
        for device in look.reading.devices:
            if limits.governs(device.id):
                found += _of_device(limits, state, look, device, tracks, trends, now)
        found += [signals.absent(name) for name in absent if f"memory:{name}" not in tracks]
        steps = spill.follow(limits, state, look, now)
        state = state if steps is state.steps else state.replace(steps=steps)
        slowed = spill.judge(limits, steps, look)
        found += [slowed] if slowed is not None else []
        own = signals.host(limits, look, now)  # /dev/shm that was full before this run is not its doing, and may not be there at all
        found += [signal for signal in own if signal.name != "shm:host" or signal.name in tracks or signal.level == RUN]
    names = {signal.name for signal in found}
    why = "no reading for too long" if signals.too_old(limits, look, now) else "it is in no reading any more"
    for track in known:
        if track.name not in names and track.name not in ("heartbeat:job", "spill:job"):
            found.append(Signal(name=track.name, kind=track.kind, device="", level=UNKNOWN, relaxed=UNKNOWN, why=why))
    reasons: list[str] = []
    for signal in found:
        track, sentence = levels.step(limits, tracks.get(signal.name) or levels.fresh(signal, now), signal, now)
        first = signal.name not in tracks and track.level == RUN
        tracks[signal.name] = track
        if sentence and not first:
            reasons.append(sentence)
    level = worst([track.level if not track.lost else worst([track.level, UNKNOWN]) for track in tracks.values()])
    if level != state.level:
        reasons.append(f"level {state.level} → {level}")
    since = now if level != state.level else state.since_ns
    return state.replace(tracks=tuple(tracks.values()), trends=tuple(trends.values()), level=level, since_ns=since), reasons


def _of_device(limits: Limits, state: State, look: Look, device: "Device", tracks: "dict[str, Track]", trends: "dict[str, Trend]", now: int) -> list[Signal]:
    """Judge one device: memory and its forecast, temperatures (a frozen one is unknown), its own throttling, faults."""
    free = signals.free_bytes(limits, look, device)
    found = [signals.memory(limits, look, device, free)]
    before = tracks.get(f"memory:{device.id}")
    if isinstance(free, int) and (free != 0 or (before is not None and before.level == BLOCK)):  # a single zero is no sample
        room = free - signals.floor_of(limits)
        trend = trends.get(device.id) or Trend(device=device.id, first_room=room)
        if room > trend.first_room:
            trend = trend.replace(first_room=room)
        trends[device.id] = trend = forecast.arm(look, forecast.follow(limits, trend, free, now), now)
        found.append(forecast.judge(limits, state, trend, free))
    own = look.reading.host.cpu_temperature_c if device.backend == "cpu" and isinstance(device.temperature_c, Missing) else device.temperature_c
    others = len([other for other in look.reading.devices if limits.governs(other.id)]) > 1
    for label, value in (("temperature", own), ("memory_temperature", device.memory_temperature_c)):
        signal = None if device.backend == "cpu" and isinstance(value, Missing) and others else signals.heat(limits, device, value, label)
        if signal is not None:
            found.append(_unless_frozen(limits, signal, device, tracks, now))
    found += [signal for signal in (signals.power(device),) if signal is not None]
    name = f"faults:{device.id}"
    errors = signals.known(device.ecc_uncorrected)
    track = tracks.get(name)
    if track is None:
        track = levels.fresh(signals.fault(state, device, -1), now)
    if track.beside is None and errors is not None:
        track = track.replace(beside=float(errors))
    signal = signals.fault(state, device, int(track.beside) if track.beside is not None else -1)
    if _gone(device) and name in tracks:
        signal = signal.replace(level=BLOCK, relaxed=BLOCK, why=f"{device.id} is lost: {_why_gone(device)}")
    if name in tracks or track.beside is not None:
        tracks[name] = track
    found.append(signal)
    return found


def _unless_frozen(limits: Limits, signal: Signal, device: "Device", tracks: "dict[str, Track]", now: int) -> Signal:
    """Turn a temperature that does not move under load into an unknown one."""
    track = tracks.get(signal.name)
    if track is None or signal.value is None:
        return signal
    track, stale = levels.frozen(limits, track, device, float(signal.value), now)
    tracks[signal.name] = track
    if not stale:
        return signal
    seconds = (now - track.changed_ns) // 1_000_000_000
    return signal.replace(level=UNKNOWN, relaxed=UNKNOWN, why=f"{signal.name} has not moved for {seconds} s under load: frozen")


def _remember(state: State, look: Look) -> State:
    """Take over what the job says: its last complete checkpoint and how long that took, and its evaluations."""
    words = look.words
    if words is None:
        return state
    if words.checkpoint_complete and words.checkpoint_ended_ns > state.checkpoint_at_ns:
        took = words.checkpoint_ended_ns - words.checkpoint_started_ns if words.checkpoint_started_ns else 0
        measured = max(took, state.checkpoint_ns * 7 // 10) if took > 0 else state.checkpoint_ns
        state = state.replace(
            checkpoint_at_ns=words.checkpoint_ended_ns, checkpoint_step=words.checkpoint_step, checkpoint_path=words.checkpoint_path, checkpoint_ns=measured
        )
    return state.replace(evaluations=words.evaluations) if words.evaluations != state.evaluations else state


def _clock(limits: Limits, state: State, now: int) -> "tuple[State, list[str]]":
    """Keep the clock of lost telemetry."""
    watched = [track for track in state.tracks if track.kind in (MEMORY, HEAT, FAULT)]
    lost = [track for track in watched if track.lost] if watched else []
    if watched and not lost:
        if state.unknown_done:
            return state.replace(unknown_since_ns=-1, unknown_done=False), ["telemetry is back"]
        return (state if state.unknown_since_ns < 0 else state.replace(unknown_since_ns=-1)), []
    if state.unknown_since_ns < 0:
        return state.replace(unknown_since_ns=now), []
    if state.unknown_done or now - state.unknown_since_ns < limits.unknown_after_ns:
        return state, []
    names = ", ".join(track.name for track in lost) or "every device"
    return state.replace(unknown_done=True), [f"telemetry lost for {limits.unknown_after_ns // 1_000_000_000} s: {names}; --on-unknown {limits.on_unknown}"]


def _next_look(limits: Limits, state: State) -> int:
    """Say when to look again at the latest: at once in a stop, soon where something is near or waits for confirmation, else at the poll."""
    if state.halt is not None:
        return FASTEST_NS
    wait = limits.poll_ns
    if any(track.worse_count for track in state.tracks) or any(track.lost and track.back_count for track in state.tracks):
        wait = min(wait, FAST_NS)
    for trend in state.trends:
        left = forecast.pace_ns(limits, trend)
        if left > 0 or (left == 0 and trend.rate > 0):
            wait = min(wait, max(left // 8, FASTEST_NS))
        if trend.samples:
            wait = min(wait, max(forecast.reach_ns(limits, trend.device, trend.samples[-1][1]), FAST_NS))
    if state.ask is not None:
        wait = min(wait, FAST_NS)
    if any(ORDER[track.level] >= ORDER[THROTTLE] and track.kind == HEAT for track in state.tracks):
        wait = min(wait, max(limits.poll_ns // 2, FAST_NS))
    return wait
