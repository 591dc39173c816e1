"""Who a process is: pid and birth; comparison answers same, different or unknown."""

from brim.values import Missing, Record


class Identity(Record):
    """A process: its pid and its birth (clock ticks since boot on Linux, field 22 of /proc/PID/stat)."""

    pid: int
    birth: "int | Missing"

    def is_same(self, other: "Identity") -> "bool | None":
        """True: the same process. False: another one. None: a birth is missing, so nobody can tell."""
        if self.pid != other.pid:
            return False
        if isinstance(self.birth, Missing) or isinstance(other.birth, Missing):
            return None
        return self.birth == other.birth


class Usage(Record):
    """What the governed job holds on the host now, in bytes.

    `held_bytes` counts towards the budget: the working set of brim's own cgroup, else anonymous and shared memory summed over the process tree. `mapped_file_bytes`
    (mmapped weights) is reported apart. `by` says which way it was had.
    """

    held_bytes: "int | Missing"
    mapped_file_bytes: "int | Missing"
    peak_bytes: "int | Missing"
    processes: int
    by: str


class Checkpointed(Record):
    """The last checkpoint of a run. `state` is `acknowledged` (the job said so on the control page), `signalled` (it was only asked by a signal) or `none`."""

    state: str
    step: int = -1
    path: str = ""
    at_ns: int = -1
    took_ns: int = 0


class Ending(Record):
    """How a governed run ended, and what was seen on the way. Bytes and nanoseconds; `status` is negative for a signal.

    `by` is `child`, `governor`, `signal` (brim itself was asked to stop), `end` (the time of the run was over) or `kernel` (with proof); `stages` are those that a stop
    went through; `after` is what was found when everything had ended.
    """

    status: int
    by: str
    reason: str
    peak_held_bytes: "int | Missing"
    peak_mapped_bytes: "int | Missing"
    lowest_free_bytes: "int | Missing"
    level_ns: "dict[str, int]"
    looks: int
    cause: str = ""
    checkpoint: "Checkpointed | None" = None
    answered: int = 0
    unanswered: int = 0
    stages: "tuple[str, ...]" = ()
    after: str = ""
