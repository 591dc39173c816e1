"""Writes down what a look showed: the extremes of the run, faults, checkpoints, evaluations, and samples; it decides nothing."""

from brim import policy
from brim.facts.look import GONE
from brim.policy.states import BLOCK, FAULT, NOTIFY, RUN, THROTTLE
from brim.values import Missing, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.settings import Limits
    from brim.governor.eyes import Seen
    from brim.governor.glances import Glances
    from brim.policy.states import Decision, State
    from brim.seams import Sink

SELDOM_NS = 2_000_000_000  # looks that are further apart than this are written down one by one


class Notes:
    """The running account of one run. `looks` counts them, glances too."""

    def __init__(self, limits: "Limits", journal: "Sink") -> None:
        self._limits, self._journal = limits, journal
        self._extremes: list[int | None] = [None, None, None]  # most held, most mapped, least free
        self._sampled_ns = -(1 << 62)
        self.looks = 0

    @property
    def extremes(self) -> "tuple[int | Missing, int | Missing, int | Missing]":
        """(most held, most mapped, least free) in bytes."""
        held, mapped, free = (Missing(reason="gone", detail="the job ended before it was seen") if value is None else value for value in self._extremes)
        return held, mapped, free

    def note(self, was: "State", decision: "Decision", seen: "Seen", stamp: "tuple[int, int]", glances: "Glances | None", *, sample: bool = True) -> None:
        """Keep the extremes; record faults and checkpoints as they come, and a `sample` at each poll and whenever something is done."""
        look, state, now = seen.look, decision.state, stamp[0]
        glanced, most, least = (0, None, None) if glances is None else glances.write_down()
        self.looks += 1 + glanced
        usage = look.usage
        free = {track.name.removeprefix("memory:"): track.value for track in state.tracks if track.kind == "memory" and not track.lost}
        lowest = min((int(value) for value in free.values() if value is not None), default=None)
        held, mapped = (None, None) if isinstance(usage, Missing) else (usage.held_bytes, usage.mapped_file_bytes)
        for index, values, worst in ((0, (held, most), max), (1, (mapped,), max), (2, (lowest, least), min)):
            numbers = [value for value in (*values, self._extremes[index]) if isinstance(value, int)]
            self._extremes[index] = worst(numbers, default=None)
        for track in state.tracks:
            if track.kind == FAULT and track.since_ns == now and track.level in (BLOCK, THROTTLE):
                lost = {"device": track.name.removeprefix("faults:"), "reason": track.why}
                loss = {"unpredicted": policy.losses.unpredicted(was, track), "checkpoint_age_ns": policy.losses.checkpoint_age_ns(state, now)}
                self._journal.append("fault", {**lost, **(loss if track.level == BLOCK else {})}, durable=False, stamp=stamp)
        if state.checkpoint_at_ns != was.checkpoint_at_ns and look.words is not None:
            words = look.words
            body = {"step": words.checkpoint_step, "path": words.checkpoint_path, "complete": True, "at_ns": words.checkpoint_ended_ns}
            self._journal.append("checkpoint", {**body, "took_ns": state.checkpoint_ns, "request": words.checkpoint_request}, durable=False, stamp=stamp)
        if state.evaluations != was.evaluations:
            self._journal.append("evaluated", {"count": state.evaluations}, durable=False, stamp=stamp)
        if not sample:
            return
        if now - self._sampled_ns >= self._limits.poll_ns * 9 // 10 or any(intent.action != NOTIFY for intent in decision.intents):
            self._sampled_ns = now
            # Nothing happens: the next samples come along. Something is done: the record of the act takes this one with it, and comes at once.
            alone = (look.wakes or decision.intents or state.level != RUN) and not any(intent.action != NOTIFY for intent in decision.intents)
            # Where looks are far apart the next line would be too long in coming.
            seldom = self._limits.poll_ns > SELDOM_NS and not decision.intents
            self._journal.append("sample", _sample(decision, seen, lowest), durable=False, may_wait=not (alone or seldom), stamp=stamp)


def _sample(decision: "Decision", seen: "Seen", lowest: "int | None") -> "dict[str, object]":
    """One row of the run: levels, the job's memory, each device's readings, the host's, the job's own words."""
    look, state = seen.look, decision.state
    usage = look.usage
    held: object = plain(usage) if isinstance(usage, Missing) else plain(usage.held_bytes)
    free: object = plain(Missing(reason="failed", detail="free memory is unknown")) if lowest is None else lowest
    body: dict[str, object] = {"level": state.level, "held_bytes": held, "free_bytes": free, "processes": len(seen.pids)}
    if not isinstance(usage, Missing):
        body["mapped_file_bytes"] = plain(usage.mapped_file_bytes)
    if state.rung != "full_speed":
        body["rung"] = state.rung
    for device in look.reading.devices:
        if device.backend != "cpu":
            body[device.id] = {
                "free_bytes": plain(device.memory.free_bytes),
                "held_bytes": plain(look.held_on(device.id)),
                "temperature_c": plain(device.temperature_c),
                "power_draw_w": plain(device.power_draw_w),
                "utilisation_percent": plain(device.utilisation_percent),
            }
    host = look.reading.host
    body["host"] = {"available_bytes": plain(host.available_bytes), "psi_some_avg10": plain(host.psi_some_avg10)}
    if look.words is not None:
        body["job"] = {"step": look.words.step, "tokens": look.words.tokens, "phase": look.words.phase}
    if look.wakes:
        body["wakes"] = list(look.wakes)
    if look.leader == GONE:
        body["leader"] = GONE
    return body
