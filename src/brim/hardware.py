"""Everything that can be seen on this machine now: asks the probes, maps what CUDA shows, and lets the spine settle pools and budgets.

`look` is one look through child processes with a deadline (a driver that hangs or crashes costs its rows their readings, nothing else). `read` is for polling: the
first time it looks, then it keeps the libraries that answered open in this process, each in a thread of its own with a deadline. A machine without a vendor's
device or library pays a few directory listings for that vendor and loads nothing of it.
"""

from brim import budget as rule
from brim import pool
from brim.clock import SystemClock
from brim.facts.device import UNASKED, Asked, Device, Host, Memory, Reading
from brim.probes import processor
from brim.probes.host import HostProbe
from brim.probes.presence import Present, nvidia_rows
from brim.probes.presence import look as look_presence
from brim.probes.vendor import Answer
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from brim.following import Lookout
    from brim.probes.kept import File
    from brim.probes.scripted import Script
    from brim.probes.watch import Watch
    from brim.seams import Clock

LOOK_NS = 1_600_000_000  # the whole look: `brim probe` answers within two seconds
POLL_NS = 1_000_000_000
HANG_NS = 800_000_000  # who follows at a poll a second hears of a hang within two
SLOW_NS = 5_000_000_000
ANEW_NS = 60_000_000_000  # how often it is looked which memory group we are in
AGAIN_NS = 30_000_000_000
LONGEST_NS = 60_000_000_000  # who follows hears this often, also where nothing moves
INSTALL = {
    "nvml": "install NVIDIA's driver (Debian: apt install nvidia-driver; Ubuntu: ubuntu-drivers install)",
    "nvidia-ml-py": "pip install nvidia-ml-py",
    "amdsmi": "pip install 'brim[amd]' (and ROCm's amd-smi-lib)",
    "level-zero": "apt install libze1 intel-level-zero-gpu",
}
SOURCES = {"nvidia": "nvml", "nvidia-smi": "nvidia-smi", "tegra": "tegra", "amd": "amdsmi and sysfs", "intel": "sysfs and level-zero", "apple": "metal"}
BACKENDS = {"nvidia": "cuda", "nvidia-smi": "cuda", "tegra": "cuda", "amd": "rocm", "intel": "xpu", "apple": "metal"}
MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")  # what `masks` reads


class Machine:
    """This machine, or a script in its place. `environ` is the caller's environment (CUDA_VISIBLE_DEVICES, search paths, the override)."""

    def __init__(
        self,
        *,
        environ: "Mapping[str, str]",
        clock: "Clock",
        root: str = "",
        script: "Script | None" = None,
        reserve: "float | None" = None,
        deadline_ns: int = LOOK_NS,
        wake: bool = False,
        disk: str = "",
    ) -> None:
        self._environ, self._clock, self._root, self._script = environ, clock, root, script
        self._reserve, self._deadline, self._wake = reserve, deadline_ns, wake
        self._override, self.warning = rule.parse_override(environ.get(rule.OVERRIDE))
        self._host = HostProbe(root or "/", disk=disk)
        self._watches: dict[str, Watch] | None = None
        self._slow_at = self._anew_at = 0
        self._asked: tuple[Asked, ...] = ()
        self._own: Device | None = None
        self._masks = {name: environ[name] for name in MASKS if name in environ}
        self._visible: tuple[tuple[Device, ...], tuple[Device, ...], tuple[str, ...]] = (), (), ()
        self._settled_rows: dict[str, tuple[Device | None, Device]] = {}
        self._first: tuple[Device, ...] = ()  # the rows of the last look, numbered as their libraries number them

    def look(self, now_ns: "int | None" = None) -> Reading:
        """One look at everything; never raises for what is missing."""
        now = self._clock.now_ns() if now_ns is None else now_ns
        if self._script is not None:
            return self._scripted(now)
        present = look_presence(self._root, self._environ)
        begun = self._clock.now_ns()
        answers = self._ask(present)
        asked = [_asked(answer) for answer in answers.values()] + _not_asked(present, answers)
        host = self._host.read()
        asked.append(Asked(source="host", outcome="answered", detail="/proc, /sys/fs/cgroup, sysfs", elapsed_ns=self._clock.now_ns() - begun))
        self._asked = tuple(asked)
        self._first = self._rows(answers)
        return self._settled(now, self._first, host)

    def read(self, now_ns: int) -> Reading:
        """One look in a series: libraries stay open, slow cells of the host are read every few seconds."""
        if self._script is not None:
            return self._scripted(now_ns)
        if self._watches is None:
            first, self._anew_at = self.look(now_ns), now_ns
            self._watch()
            return first
        slow, anew = now_ns - self._slow_at >= SLOW_NS, now_ns - self._anew_at >= ANEW_NS
        if slow:
            self._slow_at = now_ns
        if anew:
            self._anew_at = now_ns
        answers = {vendor: watch.read(now_ns) for vendor, watch in self._watches.items()}
        host = self._host.read(slow=slow, anew=anew)
        unwatched = tuple(row for row in self._first if not any(row.backend == BACKENDS.get(vendor) for vendor in answers))
        return self._settled(now_ns, (*self._rows(answers), *unwatched), host)

    def follow(self, *, poll_ns: int = 1_000_000_000, longest_ns: int = LONGEST_NS) -> "Iterator[Reading]":
        """A reading at once, then one whenever a poll finds news, and after `longest_ns` in any case. Every card and the host's memory are asked at every poll.

        News (`facts.moves`): a device comes or goes, its state, faults, throttle reasons or processes change, a number goes missing or comes back; memory of a device, of a process or of the host
        moves by more than a 256th of the device's (the host's) total, a temperature by more than 1 °C, power by more than 5 W, utilisation by more than 5 points, each since the last reading.
        What else a reading holds (limits, clocks, fans, pressure, disk) is read anew with each, but brings none by itself.
        """
        from brim.following import follow

        return follow(self.read, self._lookout, self._clock, poll_ns=poll_ns, longest_ns=longest_ns)

    def _lookout(self) -> "Lookout | None":
        """The built loop over what is here; None where it was not built, time is not the machine's, or something is here that it cannot ask."""
        watches = self._watches
        if self._script is not None or watches is None or watches.keys() - {"nvidia"} or not isinstance(self._clock, SystemClock):
            return None
        from brim.following import lookout

        return lookout(self._host, watches.get("nvidia"), self._clock, deadline_ns=HANG_NS)

    def files(self) -> "list[File]":
        """The files that tell what the host has available, without the devices; none where that cannot be told without a whole look."""
        return [] if self._script is not None or self._watches is None else self._host.files()

    def available(self, numbers: "tuple[int, ...]") -> "int | None":
        """What the host has available (bytes), by the numbers of `files`; None where that cannot be told."""
        return self._host.available(numbers)

    def asides(self) -> "dict[str, tuple[int, str]]":
        """What of the host is asked seldom: by name an open file, or -1 and the path of a file system."""
        return self._host.asides()

    def _ask(self, present: Present) -> "dict[str, Answer]":
        """The answers of the vendors that are here, all within the deadline; nvidia-smi where the library could not be loaded."""
        vendors = [
            vendor
            for vendor, here in (("nvidia", bool(present.nvml)), ("amd", present.has("0x1002")), ("intel", _intel(present)), ("apple", present.mac))
            if here
        ]
        answers: dict[str, Answer] = {}
        begun = self._clock.now_ns()
        if vendors:
            from brim.probes.ask import ask

            answers = ask(vendors, root=self._root, wake=self._wake, environment=self._environ, deadline_ns=self._deadline, clock=self._clock)
        nvidia = answers.get("nvidia")
        if present.nvidia_smi and (nvidia is None or (nvidia.outcome != "answered" and nvidia.code == 12)):
            from brim.probes.smi import look as look_smi

            answers["nvidia-smi"] = look_smi(environment=self._environ, deadline_ns=max(1, self._deadline - (self._clock.now_ns() - begun)), clock=self._clock)
        if present.tegra:
            from brim.probes import tegra

            answers["tegra"] = Answer(source="tegra", outcome="answered", devices=tegra.look(self._root))
        return self._with_rows(present, answers)

    def _with_rows(self, present: Present, answers: "dict[str, Answer]") -> "dict[str, Answer]":
        """Rows without readings for NVIDIA cards that are plainly here while no source of theirs answered."""
        nvidia = answers.get("nvidia-smi") or answers.get("nvidia")
        if (nvidia is None or nvidia.outcome != "answered") and "tegra" not in answers:
            outcome, detail = ("failed", "the NVIDIA driver's library is not here") if nvidia is None else (nvidia.outcome, nvidia.detail)
            reason = outcome if outcome in ("not_supported", "denied", "failed", "gone") else "failed"
            rows = nvidia_rows(self._root, Missing(reason=reason, detail=detail)) if present.has("0x10de") or nvidia is not None else ()
            if rows:
                answers["kernel"] = Answer(source="kernel", outcome="answered", detail="/proc/driver/nvidia and PCI", devices=rows)
        return answers

    def _rows(self, answers: "dict[str, Answer]") -> tuple[Device, ...]:
        """All rows, numbered as their programs number them."""
        rows: list[Device] = []
        own = answers.get("tegra")
        for name in ("nvidia", "nvidia-smi", "kernel", "tegra", "amd", "intel", "apple"):
            answer = answers.get(name)
            if answer is None or (name == "tegra" and any(row.backend == "cuda" for row in rows)):
                continue
            devices = answer.devices
            if name == "nvidia" and own is not None and own.devices:
                from brim.probes.tegra import filled

                devices = tuple(filled(device, own.devices[0]) for device in devices)
            rows += devices
        return tuple(rows)

    def _settled(self, now_ns: int, rows: tuple[Device, ...], host: Host) -> Reading:
        """Visible ordinals, pools and budgets; the host's own row comes last."""
        notes: tuple[str, ...] = ()
        if any(row.backend == "cuda" for row in rows):
            before, seen, notes = self._visible
            if len(before) == len(rows) and all(old is new for old, new in zip(before, rows, strict=True)):  # the very rows of the last look
                rows = seen
            else:
                from brim.visible import ORDER, VARIABLE, visible_devices

                told = rows
                rows, notes = visible_devices(rows, self._environ.get(VARIABLE), self._environ.get(ORDER, ""))
                self._visible = told, rows, notes
        if self._masks and any(row.backend in ("rocm", "xpu") for row in rows):
            from brim.masks import masked

            rows, hidden = masked(rows, self._masks)
            notes = (*notes, *hidden)
        known = processor.instructions(self._root) if self._own is None else self._own.instructions
        own = self._own = host_device(host, reserve=self._reserve, override=self._override, before=self._own, instructions=known)
        return Reading(at_ns=now_ns, devices=(*(self._settle(row, host) for row in rows), own), host=host, asked=self._asked, notes=notes)

    def _settle(self, row: Device, host: Host) -> Device:
        """One row settled; a row that is the very same as at the last look, and draws on no shared pool, is settled as it was."""
        before, after = self._settled_rows.get(row.id, (None, row))
        if before is not row or after.unified:
            after = pool.settle_device(row, host, reserve=self._reserve, override=self._override)
            self._settled_rows[row.id] = (row, after)
        return after

    def _scripted(self, now_ns: int) -> Reading:
        assert self._script is not None
        devices, host = self._script.at(now_ns)
        host = host or self._host.read()
        reading = pool.settle(Reading(at_ns=now_ns, devices=devices, host=host), reserve=self._reserve, override=self._override)
        own = () if any(device.backend == "cpu" for device in devices) else (host_device(host, reserve=self._reserve, override=self._override),)
        asked = (Asked(source="script", outcome="answered", detail="readings come from a script, not from this machine"),)
        return reading.replace(devices=(*reading.devices, *own), asked=asked)

    def _watch(self) -> None:
        """Open in this process what answered in a child. What did not answer there is asked again in a child now and then, and is opened here when it has."""
        self._watches = {}
        outcomes = {asked.source: asked.outcome for asked in self._asked}
        for vendor, source in SOURCES.items():
            outcome = outcomes.get(source, "absent")
            if outcome == "answered" or (outcome != "absent" and vendor in ("nvidia", "amd", "intel") and outcomes.get("nvidia-smi") != "answered"):
                from brim.probes.watch import Watch, after_a_child, reader_of

                known = tuple(device for device in self._first if device.backend == BACKENDS[vendor])
                library = any(word in ("amdsmi", "level-zero") for device in known for word in device.sources)
                reader = reader_of(vendor, root=self._root, wake=self._wake, library=library, environment=self._environ, clock=self._clock)
                if outcome != "answered":
                    reader = after_a_child(reader, lambda name=vendor: self._again(name), every_ns=AGAIN_NS)  # type: ignore[misc]
                self._watches[vendor] = Watch(source, reader, deadline_ns=POLL_NS, clock=self._clock, known=known)

    def _again(self, vendor: str) -> "Answer":
        """One more look through a child at a source that did not answer."""
        from brim.probes.ask import ask

        return ask([vendor], root=self._root, wake=self._wake, environment=self._environ, deadline_ns=self._deadline, clock=self._clock)[vendor]

    def close(self) -> None:
        """Let the host's files go."""
        self._host.close()


def host_device(
    host: Host,
    *,
    reserve: "float | None" = None,
    override: "int | None" = None,
    before: "Device | None" = None,
    instructions: "tuple[str, ...] | Missing" = UNASKED,
) -> Device:
    """The host as a device of its own, `cpu`. `before` is that of the last look, whose budget stands where nothing that it is made from has moved."""
    available = pool.host_available(host)
    used = (
        host.total_bytes - available
        if isinstance(host.total_bytes, int) and isinstance(available, int)
        else available
        if isinstance(available, Missing)
        else host.total_bytes
    )
    return Device(
        id="cpu",
        backend="cpu",
        name="host memory",
        memory=Memory(total_bytes=host.total_bytes, free_bytes=available, used_bytes=used, available_bytes=available),
        budget=pool.of_host(host, reserve=reserve, override=override) if before is None else pool.of_host_again(before.budget, host, reserve, override),
        temperature_c=host.cpu_temperature_c,
        slowdown_temperature_c=host.cpu_critical_temperature_c,
        instructions=instructions,
        sources=("host",),
    )


def _intel(present: Present) -> bool:
    return present.has("0x8086")


def _asked(answer: "Answer") -> Asked:
    source = SOURCES.get(answer.source, answer.source)
    names = ", ".join(sorted({word for device in answer.devices for word in device.sources}))
    detail = answer.detail or (f"{len(answer.devices)} device{'s' if len(answer.devices) != 1 else ''} via {names}" if names else "no device")
    install = ""
    if answer.source == "nvidia" and answer.code == 12:
        install = INSTALL["nvidia-ml-py"] if "nvidia-ml-py" in answer.detail else INSTALL["nvml"]
    return Asked(source=source, outcome=answer.outcome, detail=detail, elapsed_ns=answer.elapsed_ns, install=install)


def _not_asked(present: Present, answers: "dict[str, Answer]") -> list[Asked]:
    """The sources that were not asked, because nothing of them is here, and what would bring them."""
    rows = []
    if "nvidia" not in answers:
        here = present.has("0x10de")
        detail = "an NVIDIA card is here, but libnvidia-ml.so.1 is not" if here else "no NVIDIA card and no libnvidia-ml.so.1"
        rows.append(Asked(source="nvml", outcome="absent", detail=detail, install=INSTALL["nvml"] if here else ""))
    if "nvidia-smi" not in answers:
        detail = "here, and only asked where NVML cannot be loaded" if present.nvidia_smi else "not on PATH"
        rows.append(Asked(source="nvidia-smi", outcome="absent", detail=detail))
    if "amd" not in answers:
        rows.append(Asked(source="amdsmi and sysfs", outcome="absent", detail="no AMD card"))
    elif answers["amd"].beside:
        rows.append(Asked(source="amdsmi", outcome="failed", detail=answers["amd"].beside))
    elif not any("amdsmi" in device.sources for device in answers["amd"].devices):
        rows.append(Asked(source="amdsmi", outcome="absent", detail="sysfs answers without it; it would add processes and ECC", install=INSTALL["amdsmi"]))
    if "intel" not in answers:
        rows.append(Asked(source="sysfs and level-zero", outcome="absent", detail="no Intel GPU"))
    elif answers["intel"].beside:
        rows.append(Asked(source="level-zero", outcome="failed", detail=answers["intel"].beside))
    elif not present.level_zero:
        rows.append(Asked(source="level-zero", outcome="absent", detail="without it a board's free memory may be unknown", install=INSTALL["level-zero"]))
    if "apple" not in answers:
        rows.append(Asked(source="metal", outcome="absent", detail="not a Mac"))
    return rows
