"""Do steps take much longer since a card is nearly full? Some drivers then serve allocations from the host's memory, and no out-of-memory error ever comes (Windows, WSL).

Guarantees: steps are compared with those of the same run and phase from before the card was nearly full; without at least `WINDOWS` of them nothing is concluded; a span in
which a checkpoint or an evaluation fell, in which the job was slowed or asked for something, or in which no step was taken tells nothing. Not covered: a job that tells no
steps; a card that is nearly full from the first step on.
"""

from brim.facts.look import Look
from brim.facts.settings import Limits
from brim.policy import signals
from brim.policy.states import FULL_SPEED, PRESSURE, RUN, THROTTLE, Signal, State, Steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.device import Device

WINDOW_NS = 2_000_000_000
WINDOWS = 3  # spans that must have told the same, before and after
SLOWER = 2.0  # times as long


def follow(limits: Limits, state: State, look: Look, now: int) -> Steps:
    """The account of steps after this look."""
    words, steps = look.words, state.steps
    if words is None or words.step <= 0 or not any(device.backend != "cpu" and limits.governs(device.id) for device in look.reading.devices):
        return steps
    marks = (words.phase, words.checkpoint_started_ns, words.checkpoint_ended_ns, words.evaluations, words.asked)
    fresh = steps.replace(at_ns=now, step=words.step, marks=marks)
    if steps.at_ns < 0 or marks != steps.marks or words.step < steps.step or state.rung != FULL_SPEED:
        same = steps.marks[:1] == marks[:1] and words.step >= steps.step
        return fresh if same else fresh.replace(usual_ns=0, before=0, slow=0)
    if now - steps.at_ns < WINDOW_NS or words.step == steps.step:
        return steps
    each = (now - steps.at_ns) // (words.step - steps.step)
    if _nearly_full(limits, look):
        return fresh.replace(slow=steps.slow + 1 if steps.before >= WINDOWS and each >= SLOWER * steps.usual_ns else 0, each_ns=each)
    usual = each if not steps.before else (7 * steps.usual_ns + each) // 8
    return fresh.replace(usual_ns=usual, before=steps.before + 1, slow=0, each_ns=each)


def _nearly_full(limits: Limits, look: Look) -> "Device | None":
    """The first governed card whose free memory is within the margin of its floor."""
    for device in look.reading.devices:
        free = signals.known(device.memory.free_bytes)
        if device.backend != "cpu" and limits.governs(device.id) and free is not None and free < signals.floor_of(limits) + limits.margin(device.id):
            return device
    return None


def judge(limits: Limits, steps: Steps, look: Look) -> "Signal | None":
    """The signal of a run whose steps have slowed down since a card is nearly full; None while there is nothing to compare."""
    if steps.before < WINDOWS:
        return None
    device = _nearly_full(limits, look)
    slowed = device is not None and steps.slow >= WINDOWS
    why = "steps take as long as before"
    if device is not None and slowed:
        why = f"steps take {steps.each_ns / max(steps.usual_ns, 1):.1f} × as long as before {device.id} was nearly full: its driver may be serving it from the host's memory"
    level = THROTTLE if slowed else RUN
    return Signal(
        name="spill:job", kind=PRESSURE, device="cpu" if device is None else device.id, level=level, relaxed=level, why=why, value=float(steps.each_ns)
    )
