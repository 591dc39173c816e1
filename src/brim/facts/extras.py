"""What a run may have beside its limits: where notices go, who watches, and what it goes on from."""

from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    from brim.facts.device import Reading
    from brim.facts.look import Look
    from brim.facts.settings import Limits

    class Artifact(Protocol):
        """The exported file that a run's quality gate is about."""

        def look(self) -> "tuple[Mapping[str, Any], ...]":
            """Give the lines for the journal if the file has changed since the last look; cheap while it has not."""
            ...

        def close(self) -> "tuple[Mapping[str, Any], ...]":
            """Give the last lines, after the job has ended: the gate is run again here where the profile gives its command."""
            ...


class Answer(Record):
    """What one more gate says of a launch: whether it may be, why, and the line for the journal (its kind and body)."""

    admitted: bool
    reason: str
    kind: str
    body: "Mapping[str, Any]"


class Extras(Record):
    """What a run may have beside its limits: where notices go, who watches, and what it goes on from.

    `needs` are (device id, bytes) that the job is known to take, for a run that is not priced itself. `throughput` is a command that prints a number, and how often it is run (ns); an empty command is none.
    `ends_process` says that the caller's process ends with this run: a signal that comes after the job has ended changes its code no more.
    """

    notify_command: tuple[str, ...] = ()
    webhook: str = ""
    watch: "Callable[[Limits, Any, Look, int], None] | None" = None
    say: "Callable[[str], None] | None" = None
    resume_from: str = ""
    resume_step: int = -1
    resumed_run: str = ""
    attempt: int = 0
    cwd: str = ""
    gates: "tuple[Callable[[Reading], Answer], ...]" = ()
    artifact: "Artifact | None" = None
    throughput: "tuple[tuple[str, ...], int]" = ((), 0)
    ledger: str = ""
    wait_ns: "int | None" = None
    needs: "tuple[tuple[str, int], ...]" = ()
    ends_process: bool = False
