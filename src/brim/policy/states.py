"""The names of the governor's states and the arrows between them; it imports nothing but values."""

from brim.values import Record

RUN, UNKNOWN, THROTTLE, BLOCK = "run", "unknown", "throttle", "block"
# From best to worst. A missing signal is worse than a good one (the whole is never better than unknown), and better than a bad one that was seen.
ORDER = {RUN: 0, UNKNOWN: 1, THROTTLE: 2, BLOCK: 3}

# Every arrow that a signal's level may take. `unknown` is no level of a signal that was once seen: such a signal keeps its level and is marked lost.
ARROWS = frozenset(
    {
        (RUN, THROTTLE),  # a limit comes near
        (RUN, BLOCK),  # a limit was passed between two looks
        (THROTTLE, BLOCK),  # it got worse
        (BLOCK, THROTTLE),  # better by the hysteresis, for the dwell time
        (BLOCK, RUN),  # the same, all the way
        (THROTTLE, RUN),  # the same
        (UNKNOWN, RUN),  # first seen, confirmed
        (UNKNOWN, THROTTLE),
        (UNKNOWN, BLOCK),
    }
)

# What a signal is about decides which ladder its levels climb.
MEMORY, FORECAST, HEAT, POWER, FAULT, PRESSURE, DISK, HEARTBEAT = "memory", "forecast", "heat", "power", "fault", "pressure", "disk", "heartbeat"

# The stages of a stop, in order; a stop never goes back.
ASKED, SIGNALLED, TERMINATING, WORKERS, KILLING, ENDED = "asked", "signalled", "terminating", "workers", "killing", "ended"
STAGES = (ASKED, SIGNALLED, TERMINATING, WORKERS, KILLING, ENDED)
# The rungs against heat.
FULL_SPEED, HALF_SPEED, QUARTER_SPEED, PAUSED = "full_speed", "half_speed", "quarter_speed", "paused"
RUNGS = (FULL_SPEED, HALF_SPEED, QUARTER_SPEED, PAUSED)
SLOW_PERMILLE = {FULL_SPEED: 0, HALF_SPEED: 500, QUARTER_SPEED: 750}

# Intents.
NOTIFY, SLOW, PAUSE, RESUME, CHECKPOINT, STOP, VERIFY = "notify", "slow", "pause", "resume", "checkpoint", "stop", "verify"


class Signal(Record):
    """One signal as this look shows it: its level by the bare limits, and by the limits shifted by the hysteresis (`relaxed`: what it may come down to).

    `level` is `unknown` where it could not be read. `confirm` is how many looks in a row a worsening needs. `room` and `rate` (bytes, bytes per second of
    growth) are there for memory.
    """

    name: str
    kind: str
    device: str
    level: str
    relaxed: str
    why: str
    value: "int | float | None" = None
    confirm: int = 1
    sticky: bool = False


class Track(Record):
    """What is remembered of one signal."""

    name: str
    kind: str
    level: str
    since_ns: int
    why: str = ""
    worse: str = RUN
    worse_count: int = 0
    worse_since_ns: int = -1
    better_since_ns: int = -1
    better_count: int = 0
    lost_since_ns: int = -1
    back_count: int = 0
    value: "int | float | None" = None
    changed_ns: int = 0
    beside: "float | None" = None

    @property
    def lost(self) -> bool:
        """Say whether the signal is without a reading that may be believed."""
        return self.lost_since_ns >= 0


class Trend(Record):
    """The recent course of one device's free memory: (ns, bytes) samples, newest last, and whether it was ever flat after the start."""

    device: str
    first_room: int
    samples: tuple[tuple[int, int], ...] = ()
    settled: bool = False
    flat_since_ns: int = -1
    armed_ns: int = -1
    rate: int = 0
    to_floor_ns: int = -1
    to_zero_ns: int = -1


class Steps(Record):
    """The course of the job's steps: since when and from which step on they are counted, what may not change meanwhile, how long one took before a card was nearly full (ns), over
    how many spans that was seen, how long one took last, and over how many spans in a row that was much longer.
    """

    at_ns: int = -1
    step: int = 0
    marks: "tuple[str | int, ...]" = ()
    usual_ns: int = 0
    before: int = 0
    each_ns: int = 0
    slow: int = 0


NO_STEPS = Steps()


class Ask(Record):
    """A checkpoint that was asked for and not yet answered."""

    since_ns: int
    deadline_ns: int
    why: str
    number: int


class Halt(Record):
    """A stop under way: its stage, since when, until when, and what happened to the checkpoint asked for with it."""

    stage: str
    since_ns: int
    began_ns: int
    deadline_ns: int
    why: str
    cause: str
    number: int = -1
    answered: bool = False
    kills: int = 0


class Intent(Record):
    """Something to do. `stage` refines a stop; `deadline_ns` is monotonic; `permille` is the share of time to idle."""

    action: str
    why: str
    stage: str = ""
    deadline_ns: int = 0
    permille: int = 0
    level: str = ""


class State(Record):
    """The governor's memory between two looks."""

    began_ns: int
    level: str = UNKNOWN
    since_ns: int = 0
    tracks: tuple[Track, ...] = ()
    trends: tuple[Trend, ...] = ()
    rung: str = FULL_SPEED
    rung_since_ns: int = 0
    ask: "Ask | None" = None
    halt: "Halt | None" = None
    checkpoint_ns: int = 0
    checkpoint_at_ns: int = -1
    checkpoint_step: int = -1
    checkpoint_path: str = ""
    answers: int = 0
    unanswered: int = 0
    last_ask_ns: int = -1
    unknown_since_ns: int = -1
    unknown_done: bool = False
    evaluations: int = 0
    signalled_ns: int = -1
    steps: Steps = NO_STEPS


class Decision(Record):
    """The answer to one look: the new state, what to do in this order, what changed in words, and when to look again at the latest."""

    state: State
    intents: tuple[Intent, ...]
    reasons: tuple[str, ...]
    next_look_ns: int


def worst(levels: "list[str]") -> str:
    """Give the worst of some levels; none at all is unknown."""
    return max(levels, key=ORDER.__getitem__, default=UNKNOWN)
