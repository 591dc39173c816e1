"""Everything the governor's mind sees at one instant: the devices, the job's processes, its words on the control page, and what was asked from outside."""

from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.device import Reading
    from brim.facts.process import Usage

SAME, GONE, UNSURE = "same", "gone", "unsure"


class JobWords(Record):
    """The job's half of the control page. Times are monotonic nanoseconds; `asked` is the number of the governor's last directive."""

    beat_ns: int
    step: int
    tokens: int
    phase: str
    asked: int
    seen: int
    answered: int
    evaluations: int
    checkpoint_step: int = -1
    checkpoint_path: str = ""
    checkpoint_started_ns: int = 0
    checkpoint_ended_ns: int = 0
    checkpoint_complete: bool = False
    checkpoint_request: int = 0


class Look(Record):
    """One look. `leader` says whether the launched process is still the same one; `others` counts its live descendants.

    `leader_on_term` is what SIGTERM does to the leader: `caught`, `ignored`, `default` or `unknown`. `wishes` are requests from outside: `stop` (a signal to
    brim, Ctrl-C), `stop_now` (asked twice), `end` (the soak's time is over), `checkpoint`. `wakes` are kernel notifications since the last look.
    """

    reading: "Reading"
    usage: "Usage | Missing"
    words: "JobWords | None" = None
    leader: str = SAME
    others: int = 0
    leader_on_term: str = "unknown"
    ready: bool = False
    held: tuple[tuple[str, "int | Missing"], ...] = ()
    wishes: tuple[str, ...] = ()
    wakes: tuple[str, ...] = ()

    def held_on(self, device: str) -> "int | Missing":
        """Give what the job holds on one device in bytes."""
        for name, count in self.held:
            if name == device:
                return count
        return Missing(reason="not_supported", detail=f"what the job holds on {device} is not told")
