"""Gathers one look from the probes, the job's processes and the control page; it judges nothing."""

from brim import control
from brim.facts.look import GONE, SAME, UNSURE, JobWords, Look
from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from brim.control import Page
    from brim.facts.device import Device, Reading
    from brim.facts.process import Identity, Usage
    from brim.probes.kept import File
    from brim.seams import Probe

    class JobProbe(Protocol):
        """One look at the job's processes."""

        def identity(self, pid: int) -> "Identity | None":
            """Say who has this pid now."""
            ...

        def tree(self, leader: int) -> list[int]:
            """Give the pids of the job that are alive."""
            ...

        def usage(self, leader: "Identity") -> "Usage":
            """Say what the job holds on the host."""
            ...

        def files(self) -> "list[File]":
            """The files that tell what the job holds on the host; none where it has no group of its own."""
            ...

        @property
        def lists(self) -> bool:
            """Whether that is a sum over processes, so that a new one is not counted before the next look."""
            ...

        def held(self, numbers: tuple[int, ...]) -> int:
            """What the job holds on the host (bytes), by the numbers of these files."""
            ...

        def on_signal(self, pid: int, number: int) -> str:
            """Say what a signal does to a process: caught, ignored, default, unknown."""
            ...


SIGTERM = 15
# While nothing happens who belongs to the job is listed this often only: the list is a third of a look, and what the job holds is asked without it. A kernel notice
# of memory asks for a fast answer and not for a new list; whoever sends a signal makes one of his own.
LIST_NS = 5_000_000_000
FIRST_LISTS = 3


class Seen(Record):
    """One look, and the pids it counted."""

    look: Look
    pids: tuple[int, ...]
    said: bytes = b""  # what stood on the job's half of the control page just before


class Eyes:
    """Looks at one job on one machine. What the cards held before the job began is remembered, for cards that do not tell who holds what."""

    def __init__(self, *, probe: "Probe", process: "JobProbe", page: "Page | None", leader: "Identity") -> None:
        self._probe, self._process, self._page, self._leader = probe, process, page, leader
        self._before: dict[str, int] = {}
        self._pids: tuple[int, ...] = ()
        self._listed_ns = 0
        self._looks = self._of_host = 0

    def first(self, now: int) -> "Reading":
        """Look at the devices before the job begins."""
        reading = self._probe.read(now)
        for device in reading.devices:
            if isinstance(device.memory.used_bytes, int):
                self._before[device.id] = device.memory.used_bytes
        return reading

    def look(
        self, now: int, *, wishes: tuple[str, ...] = (), wakes: tuple[str, ...] = (), halting: bool = False, ended: bool = False, ready: bool = False
    ) -> Seen:
        """Look once. With `halting` it is also asked what SIGTERM does to the leader; `ended` says that the leader has an exit status."""
        said = b"" if self._page is None else self._page.said()
        reading = self._probe.read(now)
        pids = self._list(reading, now, soon=bool(halting or ended or wishes or any(not name.startswith("threshold") for name in wakes)))
        usage = self._process.usage(self._leader)
        held = tuple((device.id, self._held(device, usage, pids)) for device in reading.devices)
        look = Look(
            reading=reading,
            usage=usage,
            words=self._words(),
            leader=self._who(),
            others=len([pid for pid in pids if pid != self._leader.pid]),
            leader_on_term=self._process.on_signal(self._leader.pid, SIGTERM) if halting else "unknown",
            ready=ready,
            held=held,
            wishes=wishes,
            wakes=wakes,
        )
        return Seen(look=look, pids=pids, said=said)

    def files(self, *, counts: bool) -> "list[File]":
        """The few files that tell what the host has available and what the job holds; none where that takes a whole look, as where what the job holds `counts` and is a sum over its processes."""
        if counts and self._process.lists:
            return []
        tell = getattr(self._probe, "files", None)
        of_host = [] if tell is None else tell()
        of_job = self._process.files() if of_host else []
        self._of_host = sum(len(asked) for _, asked in of_host)
        return [*of_host, *of_job] if of_job else []

    @property
    def lists(self) -> bool:
        """Whether what the job holds is a sum over the processes of the last look."""
        return self._process.lists

    def sizes(self, numbers: tuple[int, ...]) -> "tuple[int, int] | None":
        """(what the host has available, what the job holds) in bytes, by the numbers of `files`; None where they do not tell."""
        available = self._probe.available(numbers[: self._of_host])  # type: ignore[attr-defined]
        return None if available is None else (available, self._process.held(numbers[self._of_host :]))

    def _list(self, reading: "Reading", now: int, *, soon: bool) -> tuple[int, ...]:
        """Who is of the job: listed anew where something happens, where a card says which process holds what, at the first looks, and every few seconds."""
        self._looks += 1
        if (
            soon
            or self._looks <= FIRST_LISTS
            or now - self._listed_ns >= LIST_NS
            or any(device.backend != "cpu" and isinstance(device.processes, tuple) for device in reading.devices)
        ):
            self._pids, self._listed_ns = tuple(self._process.tree(self._leader.pid)), now
        return self._pids

    def _who(self) -> str:
        now = self._process.identity(self._leader.pid)
        if now is None:
            return GONE
        same = self._leader.is_same(now)
        return UNSURE if same is None else SAME if same else GONE

    def _held(self, device: "Device", usage: "Usage", pids: tuple[int, ...]) -> "int | Missing":
        """What the job holds on one device: its processes as the card tells them, else what the card holds more than before it began."""
        if device.backend == "cpu":
            return usage.held_bytes
        if isinstance(device.processes, tuple):
            mine = [entry.used_bytes for entry in device.processes if entry.pid in pids]
            numbers = [count for count in mine if isinstance(count, int)]
            if mine and len(numbers) == len(mine):
                return sum(numbers)
        if isinstance(device.memory.used_bytes, int) and device.id in self._before:
            return max(0, device.memory.used_bytes - self._before[device.id])
        return Missing(reason="not_supported", detail=f"{device.id} does not tell who holds its memory")

    def _words(self) -> "JobWords | None":
        """The job's half of the page; None while it has said nothing."""
        page = self._page
        if page is None or page.words[control.W_JOB_PID] == 0:
            return None
        words = page.words
        note = page.last_checkpoint()
        extra: dict[str, Any] = {}
        if note is not None:
            extra = {
                "checkpoint_step": note.step,
                "checkpoint_path": note.path,
                "checkpoint_started_ns": note.started_ns,
                "checkpoint_ended_ns": note.ended_ns,
                "checkpoint_complete": note.complete,
                "checkpoint_request": note.request,
            }
        return JobWords(
            beat_ns=words[control.W_JOB_BEAT],
            step=words[control.W_STEP],
            tokens=words[control.W_TOKENS],
            phase=control.unpack_name(words[control.W_PHASE]),
            asked=words[control.W_DIRECTIVE] >> 8,
            seen=words[control.W_SEEN],
            answered=words[control.W_ANSWERED],
            evaluations=words[control.W_EVALUATIONS],
            **extra,
        )
