"""Says whether a device was lost without a sign, and what that costs: no forecast can catch it, the age of the last checkpoint is the only defence.

A loss is unpredicted where the device's own faults, heat and power were all seen and quiet at the look before. One that was there at the first look is no loss of this run.
"""

from brim.policy.states import FAULT, HEAT, ORDER, POWER, THROTTLE, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.policy.states import Track


def unpredicted(before: State, track: "Track") -> bool:
    """Say whether nothing announced this fault: at the look before, its device had a fault signal at run, and no heat or power signal near a limit."""
    device = track.name.partition(":")[2]
    mine = [other for other in before.tracks if other.name.partition(":")[2] == device and other.kind in (FAULT, HEAT, POWER)]
    quiet = all(ORDER[other.level] < ORDER[THROTTLE] for other in mine)
    return quiet and any(other.name == track.name and not other.lost for other in mine)


def checkpoint_age_ns(state: State, now: int) -> "int | None":
    """Give how old the last acknowledged checkpoint is in nanoseconds; None where there is none."""
    return now - state.checkpoint_at_ns if state.checkpoint_at_ns >= 0 else None


def told(before: State, state: State, why: str, now: int) -> str:
    """The sentence of a stop for a fault, with what is known of its loss."""
    track = next((track for track in state.tracks if track.kind == FAULT and track.why == why), None)
    if track is None or not unpredicted(before, track):
        return why
    age = checkpoint_age_ns(state, now)
    left = (
        f"no checkpoint was acknowledged in {(now - state.began_ns) // 1_000_000_000} s"
        if age is None
        else f"the last acknowledged checkpoint (step {state.checkpoint_step}) is {age // 1_000_000_000} s old"
    )
    return f"{why}; unpredicted loss: nothing announced it, and {left}"
