"""The narrow protocols that join the halves — Source, Probe, Clock, Actuator, Sink — signatures only."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    from brim.facts.device import Reading
    from brim.facts.process import Identity, Usage
else:

    class Protocol:
        """At run time a protocol is only a name."""


class Source(Protocol):
    """Bounded byte ranges from a file or a URL."""

    name: str
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes at `offset`; `Truncated` where the source ends before, `TooLarge` above the cap."""


class Clock(Protocol):
    """Monotonic nanoseconds, wall stamps and sleep."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""

    def wall_ns(self) -> int:
        """Wall-clock nanoseconds since 1970, for stamps only."""

    def sleep_ns(self, nanoseconds: int) -> None:
        """Sleep, or advance the fake."""


class Probe(Protocol):
    """One dated look at the devices and the host. Never raises for a missing value."""

    def read(self, now_ns: int) -> "Reading":
        """Everything that can be seen now."""


class ProcessProbe(Protocol):
    """One look at the job's processes."""

    def identity(self, pid: int) -> "Identity | None":
        """The identity of a live process; None where there is none."""

    def tree(self, leader: int) -> list[int]:
        """The pids of the leader, its group and all descendants."""

    def usage(self, leader: "Identity") -> "Usage":
        """What the tree of this process holds on the host."""


class Sink(Protocol):
    """Where records go. `append` returns only after the record is as durable as its kind asks for."""

    def append(
        self,
        kind: str,
        body: "Mapping[str, Any]",
        *,
        durable: bool = True,
        synced: bool = True,
        deadline_ns: int | None = None,
        may_wait: bool = False,
        more: bool = False,
        stamp: "tuple[int, int] | None" = None,
    ) -> bool:
        """Add one record. False where it was not on disk within the deadline; it is still written when the disk answers.

        One that is not `synced` is there when our own death cannot take it away; one that `may_wait` is kept a few seconds for company; `more`: the next comes at once, and both go together; `stamp` is (monotonic, wall) ns of
        what was before now.
        """


class Actuator(Protocol):
    """Carries out one intent on one identity and says what happened."""

    def signal(self, target: "Identity", number: int) -> str:
        """Send a signal to the whole group of `target`, if it is still the same process; the outcome in words."""
