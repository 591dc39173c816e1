"""The governor's whole mind: (settings, state, reading, now) in; (state, intents, reasons) out; no clock, no I/O, every transition named.

First form: levels of host memory and the stop. Not yet: heat, forecast, pause, checkpoint.
"""

from brim.facts.device import Host
from brim.facts.process import Usage
from brim.facts.settings import FASTEST_POLL_NS, Limits
from brim.units import format_bytes
from brim.values import Missing, Record

RUN, THROTTLE, BLOCK, UNKNOWN = "run", "throttle", "block", "unknown"
NOTIFY, TERMINATE, KILL = "notify", "terminate", "kill"
# A stop that was decided is final: RUNNING → TERMINATING → KILLING, never back.
RUNNING, TERMINATING, KILLING = "running", "terminating", "killing"


class State(Record):
    """What the mind remembers between two looks. `terminated_at_ns` is when SIGTERM was decided; `held_bytes` and `at_ns` give the slope."""

    phase: str = RUNNING
    level: str = UNKNOWN
    terminated_at_ns: int = 0
    held_bytes: int = -1
    at_ns: int = 0
    growth_per_s: int = 0


class Intent(Record):
    """One thing to do, and why."""

    kind: str
    reason: str


class Decision(Record):
    """The new state, what to do now, the free memory that was judged (or why it is not known), and when to look again."""

    state: State
    intents: tuple[Intent, ...]
    free_bytes: "int | Missing"
    poll_ns: int


def free_memory(limits: Limits, usage: Usage, host: Host) -> "int | Missing":
    """What is free for the job: what the host has now, or the budget less what the job holds, whichever is lower. Bytes.

    A budget that cannot be judged makes the answer missing, whatever the host says: unknown is never better than unknown.
    """
    if limits.memory_budget_bytes is None:
        return host.available_bytes
    if isinstance(usage.held_bytes, Missing):
        return usage.held_bytes
    left = limits.memory_budget_bytes - usage.held_bytes
    return left if isinstance(host.available_bytes, Missing) else min(left, host.available_bytes)


def level_of(limits: Limits, free_bytes: "int | Missing") -> str:
    """The level that one value of free memory means (DESIGN.md, section 4)."""
    if isinstance(free_bytes, Missing):
        return UNKNOWN
    if free_bytes < limits.floor_bytes:
        return BLOCK
    return THROTTLE if free_bytes < limits.floor_bytes + limits.margin_bytes else RUN


def decide(limits: Limits, state: State, usage: Usage, host: Host, now_ns: int) -> Decision:
    """One look: the level, the transition it causes, and how soon to look again."""
    free = free_memory(limits, usage, host)
    level = level_of(limits, free)
    state = _with_growth(state, usage, now_ns)
    intents: list[Intent] = []
    if level != state.level:
        intents.append(Intent(kind=NOTIFY, reason=_says(limits, level, free)))
    if state.phase == RUNNING and level == BLOCK:
        intents.append(Intent(kind=TERMINATE, reason=_says(limits, level, free)))
        state = state.replace(phase=TERMINATING, terminated_at_ns=now_ns)
    elif state.phase == TERMINATING:
        because = _grace_is_over(limits, state, free, now_ns)
        if because:
            intents.append(Intent(kind=KILL, reason=because))
            state = state.replace(phase=KILLING)
    return Decision(state=state.replace(level=level), intents=tuple(intents), free_bytes=free, poll_ns=_next_look(limits, state, free))


def _with_growth(state: State, usage: Usage, now_ns: int) -> State:
    """The state with the growth of the job's memory since the last look, in bytes a second."""
    if isinstance(usage.held_bytes, Missing):
        return state
    if state.held_bytes < 0 or now_ns <= state.at_ns:
        return state.replace(held_bytes=usage.held_bytes, at_ns=now_ns)
    growth = (usage.held_bytes - state.held_bytes) * 1_000_000_000 // (now_ns - state.at_ns)
    return state.replace(held_bytes=usage.held_bytes, at_ns=now_ns, growth_per_s=growth)


def _grace_is_over(limits: Limits, state: State, free: "int | Missing", now_ns: int) -> str:
    """Why SIGKILL must follow SIGTERM now; empty while the job may still end by itself.

    The grace ends early when the budget would be passed before three more looks: one to see it, one to act, one in reserve.
    """
    if now_ns - state.terminated_at_ns >= limits.grace_ns:
        return f"the grace of {limits.grace_ns / 1e9:g} s after SIGTERM is over"
    if isinstance(free, Missing):
        return ""
    soon = max(0, state.growth_per_s) * 3 * FASTEST_POLL_NS // 1_000_000_000
    if free <= max(soon, limits.floor_bytes // 4):
        return f"{format_bytes(max(0, free))} is left and the job grows by {format_bytes(max(0, state.growth_per_s))}/s: the limit would be passed"
    return ""


def _next_look(limits: Limits, state: State, free: "int | Missing") -> int:
    """Look again before the fastest growth that was seen (or 4 GiB/s) could use up half of what is left above the floor."""
    if state.phase != RUNNING:
        return FASTEST_POLL_NS
    if isinstance(free, Missing):
        return limits.poll_ns
    above = max(0, free - limits.floor_bytes)
    fastest = max(4 << 30, state.growth_per_s)
    return max(FASTEST_POLL_NS, min(limits.poll_ns, above * 1_000_000_000 // (2 * fastest)))


def _says(limits: Limits, level: str, free: "int | Missing") -> str:
    if isinstance(free, Missing):
        return f"free memory is unknown ({free.detail}); nothing is enforced"
    return (
        f"{format_bytes(free)} free; floor {format_bytes(limits.floor_bytes)}, throttle below {format_bytes(limits.floor_bytes + limits.margin_bytes)}: {level}"
    )
