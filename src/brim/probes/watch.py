"""Polls one vendor library in a thread of its own with a deadline: a call that does not return leaves rows without readings, and brim goes on.

Guarantees: one worker per source, never more; while a call hangs the source is not asked again, and it is believed again when the call returns. A value that has
not changed at all for `STALE_POLLS` polls under load is said to be stale (FIELD_CASES 27).
"""

import _thread

from brim.probes.vendor import Answer, Unavailable, silenced
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from brim.facts.device import Device
    from brim.probes.nvml import Nvml
    from brim.probes.nvml_sights import Questions
    from brim.seams import Clock

STALE_POLLS = 60


class Watch:
    """One source that is looked at again and again. `reader` takes the time (monotonic ns) and returns rows; it may hang, and it may raise."""

    def __init__(
        self, source: str, reader: "Callable[[int], tuple[Device, ...]]", *, deadline_ns: int, clock: "Clock", known: "tuple[Device, ...]" = ()
    ) -> None:
        self._source, self._reader, self._deadline, self._clock = source, reader, deadline_ns, clock
        self._go, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._go.acquire()
        self._done.acquire()
        self._busy_since = 0
        self._started = False
        self._now = 0
        self._job: Callable[[], Any] | None = None
        self._result: Any = ()
        self._known = known
        self._same: dict[str, tuple[object, int]] = {}

    def _work(self) -> None:
        """The worker: one look (or what it is lent for) per `go`, for ever; it dies with the process."""
        while True:
            self._go.acquire()
            job, self._job = self._job, None
            try:
                self._result = self._reader(self._now) if job is None else job()
            except Exception as error:  # noqa: BLE001 - whatever the library raises is the answer of this look
                self._result = error
            self._done.release()

    def read(self, now_ns: int) -> Answer:
        """The rows now, or the known rows without readings and the reason."""
        begun = self._clock.now_ns()
        if not self._started:
            # Imported here, by the caller's thread: a vendor binding that imports it first, in the worker, would make the worker Python's main thread, and the exit would wait for it.
            from threading import Thread

            Thread(target=self._work, name=f"brim-{self._source}", daemon=True).start()
            self._started = True
        if self._busy_since:
            if not self._done.acquire(blocking=False):
                return self._silent(f"has not answered for {(begun - self._busy_since) / 1e9:.1f} s", 0)
            self._busy_since = 0
        self._now = now_ns
        self._go.release()
        if not self._done.acquire(timeout=self._deadline / 1e9):
            self._busy_since = begun
            return self._silent(f"did not answer within {self._deadline / 1e9:g} s", self._clock.now_ns() - begun)
        elapsed = self._clock.now_ns() - begun
        if isinstance(self._result, Exception):
            return self._silent(f"{type(self._result).__name__}: {self._result}", elapsed)
        self._known = tuple(self._fresh(device) for device in self._result)
        return Answer(source=self._source, outcome="answered", devices=self._known, elapsed_ns=elapsed)

    @property
    def reader(self) -> "Callable[[int], tuple[Device, ...]]":
        """What is called for a look."""
        return self._reader

    def free(self) -> bool:
        """Whether the worker may be lent: a look was taken before, and no call of ours hangs."""
        if self._busy_since and self._done.acquire(blocking=False):
            self._busy_since = 0
        return self._started and not self._busy_since

    def lend(self, job: "Callable[[], Any]") -> None:
        """Let the worker, which is `free`, do this with its library, and come straight back; `regain` or `overdue` must follow."""
        self._busy_since, self._job = self._clock.now_ns(), job
        self._go.release()

    def regain(self) -> "Any":
        """What the job gave, or the exception that it raised; None where it is not done within the deadline, or its end was seen before."""
        if not self._busy_since or not self._done.acquire(timeout=self._deadline / 1e9):
            return None
        self._busy_since = 0
        return self._result

    def overdue(self, since_ns: int) -> None:
        """The job has hung since then: every look says so until it is done."""
        self._busy_since = since_ns

    def counts(self, device_id: str) -> bool:
        """Whether this device is under load, so that it is counted how long its values stand still."""
        return device_id in self._same

    def stood(self, device_id: str, seen: "Iterable[tuple[float | None, float | None]]") -> None:
        """Polls that the job made: of one device, temperature (°C) and power (W) at each, None for what is not told. They count as looks under load do."""
        for temperature, power in seen:
            before, count = self._same.get(device_id, (None, 0))
            if not isinstance(before, tuple):
                return
            now = (before[0] if temperature is None else temperature, before[1] if power is None else power)
            self._same[device_id] = (now, count + 1 if before == now else 1)

    def _silent(self, detail: str, elapsed_ns: int) -> Answer:
        why = Missing(reason="failed", detail=f"telemetry unavailable: {self._source} {detail}")
        return Answer(
            source=self._source, outcome="failed", detail=why.detail, devices=tuple(silenced(device, why) for device in self._known), elapsed_ns=elapsed_ns
        )

    def _fresh(self, device: "Device") -> "Device":
        """The device, marked stale where its temperature and power stood still under load for too long."""
        if isinstance(device.utilisation_percent, Missing) or device.utilisation_percent < 50:
            self._same.pop(device.id, None)
            return device
        seen = (device.temperature_c, device.power_draw_w)
        before, count = self._same.get(device.id, (None, 0))
        self._same[device.id] = (seen, count + 1 if before == seen else 1)
        patience = STALE_POLLS * (10 if isinstance(device.power_draw_w, Missing) else 1)  # a whole degree alone may well stand still
        if self._same[device.id][1] < patience:
            return device
        why = Missing(
            reason="failed", detail=f"stale: the same temperature and power for {self._same[device.id][1]} polls at {device.utilisation_percent:g} % load"
        )
        return device.replace(state="stale", temperature_c=why, power_draw_w=why, warnings=(*device.warnings, why.detail))


def after_a_child(reader: "Callable[[int], tuple[Device, ...]]", look: "Callable[[], Answer]", *, every_ns: int) -> "Callable[[int], tuple[Device, ...]]":
    """A reader for a source that did not answer: it looks through a child, at most every `every_ns`, and reads in this process only after one has answered."""
    state: dict[str, int | str] = {"good": 0, "at": -every_ns, "why": ""}

    def read(now_ns: int) -> "tuple[Device, ...]":
        if not state["good"]:
            if now_ns - int(state["at"]) >= every_ns:
                state["at"] = now_ns
                answer = look()
                state["good"], state["why"] = int(answer.outcome == "answered"), answer.detail
            if not state["good"]:
                raise Unavailable("failed", str(state["why"]))
        return reader(now_ns)

    return read


def reader_of(
    vendor: str, *, root: str, wake: bool, library: bool = False, environment: "Mapping[str, str] | None" = None, clock: "Clock | None" = None
) -> "Callable[[int], tuple[Device, ...]]":
    """What a `Watch` calls for each vendor; a library is opened by the first call, in the worker's thread. `library`: amdsmi or Level Zero answered in a child."""
    if vendor == "nvidia":
        return NvmlReader(root, wake=wake)
    if vendor == "nvidia-smi":
        assert environment is not None
        assert clock is not None
        return _smi_reader(environment, clock)
    return _kernel_reader(vendor, root, library=library)


class NvmlReader:
    """Reads NVML, which is opened by the first call, in the worker's thread."""

    def __init__(self, root: str, *, wake: bool) -> None:
        self._root, self._wake = root, wake
        self._opened: Nvml | None = None
        self._questions: Questions | None = None

    def __call__(self, now_ns: int) -> "tuple[Device, ...]":
        """One look."""
        if self._opened is None:
            from brim.probes.nvml import Nvml

            probe = Nvml(root=self._root, wake=self._wake)
            probe.open()
            self._opened = probe
        return self._opened.read(now_ns)

    def questions(self, loop: "Any") -> "Questions | None":
        """What the built loop would ask; None before the library was opened."""
        if self._questions is None and self._opened is not None:
            from brim.probes.nvml_sights import Questions

            self._questions = Questions(self._opened, loop)
        return self._questions


def _smi_reader(environment: "Mapping[str, str]", clock: "Clock") -> "Callable[[int], tuple[Device, ...]]":
    def read(_now_ns: int) -> "tuple[Device, ...]":
        from brim.probes.smi import look

        answer = look(environment=environment, deadline_ns=5_000_000_000, clock=clock)
        if answer.outcome != "answered":
            raise Unavailable(answer.outcome, answer.detail)
        return answer.devices

    return read


def _kernel_reader(vendor: str, root: str, *, library: bool) -> "Callable[[int], tuple[Device, ...]]":
    """Sysfs, with the vendor's library where it answered before (a library that is not here may print, or crash)."""

    def read(_now_ns: int) -> "tuple[Device, ...]":
        if vendor == "amd":
            from brim.probes.amd import look as look_amd

            return look_amd(root, library=library)
        if vendor == "intel":
            from brim.probes.intel import look as look_intel

            return look_intel(root, library=library)
        if vendor == "tegra":
            from brim.probes.tegra import look as look_tegra

            return look_tegra(root)
        from brim.probes.metal import look as look_metal

        return look_metal()

    return read
