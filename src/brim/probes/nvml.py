"""Asks NVML through NVIDIA's own binding, and remembers per card and function what it can say; unsupported, denied, failed and gone are four answers.

Guarantees: no missing cell drops a card or hides another cell; a function that is not supported is asked once, one that failed is asked again;
a lost card keeps its row. Values are as NVML documents them (nvml.h: mW, °C, MHz, bytes); memory is the v2 call (used, reserved and free apart)
where the driver has it, else v1. Cells that change slowly (limits, clocks, fan, ECC, remapped rows) are asked every `SLOW_NS`.
Not covered: what a budget follows from this, and which ordinal CUDA gives a card (`budget.py`, `visible.py`). This room may crash or hang with
the driver: the first look belongs into a child process (`child.py`), later ones into a thread with a deadline (`watch.py`).
"""

import os
from ctypes import byref, c_uint

from brim.facts.device import Device, Process
from brim.probes.nvml_again import Questions, arm, function
from brim.probes.nvml_cells import ALL_ONES, CAUSES, FUNCTION_NOT_FOUND, IS_LOST, NOT_SUPPORTED, REASON_OF, SOC_WORDS, finished, pci_id, raw_of, text_of
from brim.probes.vendor import Unavailable, first_line, row_without
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SLOW_NS = 5_000_000_000
PID_MAX = 1 << 22  # Linux: the largest pid_max (include/linux/threads.h, PID_MAX_LIMIT)


class _Card:
    """One handle: what never changes, what was refused for good, and what is still asked."""

    __slots__ = (
        "again",
        "cells",
        "codes",
        "device",
        "fast",
        "handle",
        "lost",
        "mig_of",
        "raw",
        "raw_slow",
        "settled",
        "slow",
        "slow_values",
        "static",
        "told",
        "xids",
    )

    def __init__(self, handle: object, static: "dict[str, Any]", mig_of: "_Card | None" = None) -> None:
        self.handle, self.static, self.mig_of = handle, static, mig_of
        self.settled: dict[str, Missing] = {}
        self.fast: list[tuple[str, tuple[Callable[..., Any], ...]]] = []
        self.slow: list[tuple[str, tuple[Callable[..., Any], ...]]] = []
        self.slow_values: dict[str, Any] = {}
        self.lost = ""
        self.xids: list[int] = []
        self.codes: dict[str, int] = {}  # by field, why a cell failed last
        self.told: dict[str, Any] = {}  # the fast values of the last whole look
        self.cells: dict[str, Any] = {}
        self.raw: tuple[Any, ...] | None = None  # the fast values as the library gave them at the last look; None where they cannot be compared
        self.raw_slow: tuple[Any, ...] | None = None  # the slow ones
        self.device: Device | None = None
        self.again: tuple[Questions, bytes] | None = None  # what it answered last, while two whole looks in a row found the same


class Nvml:
    """The NVIDIA cards as NVML tells them. `binding` is the `pynvml` module; `root` is where /sys and /proc hang (tests move it)."""

    def __init__(self, binding: "Any" = None, *, root: str = "", wake: bool = False) -> None:
        if binding is None:
            binding = __import__("pynvml")
        self.binding = self._nvml = binding
        self._error = binding.NVMLError
        self._root, self._wake = root, wake
        self.cards: list[_Card] = []
        self._asleep: list[Device] = []
        self._names: dict[int, str] = {}
        self.events: Any = None
        self._slow_at = 0
        self._fixed: dict[str, Any] = {}
        self._questions: dict[tuple[str, ...], Questions] = {}

    def open(self) -> None:
        """Load the library and list the cards; `Unavailable` says why where that fails. Cards that sleep are not woken unless `wake`."""
        asleep = [] if self._wake else [pci for pci, status in _runtime_states(self._root) if status == "suspended"]
        awake = [] if not asleep else [pci for pci, status in _runtime_states(self._root) if status != "suspended"]
        self._asleep = [_sleeper(index, pci) for index, pci in enumerate(asleep)]
        if asleep and not awake:
            return
        nvml = self._nvml
        try:
            nvml.nvmlInitWithFlags(nvml.NVML_INIT_FLAG_NO_ATTACH if asleep else 0)
            if asleep:
                handles = [nvml.nvmlDeviceGetHandleByPciBusId_v2(pci) for pci in awake]
            else:
                handles = [self._handle(index) for index in range(nvml.nvmlDeviceGetCount())]
        except self._error as error:
            raise self._unavailable(error) from None
        self._fixed = {"driver_version": self._try(nvml.nvmlSystemGetDriverVersion), "runtime_version": self._cuda_version()}
        for index, handle in enumerate(handles):
            self._add(index, handle)
        self._listen()

    def _handle(self, index: int) -> object:
        """One card's handle; a card that answers with an error still gets a row, so its error stands where the handle would."""
        try:
            return self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._error as error:
            return error

    def _unavailable(self, error: "Any") -> Unavailable:
        code = error.value
        return Unavailable(REASON_OF.get(code, "failed"), CAUSES.get(code, f"NVML: {error}"), code)

    def _missing(self, error: "Any", call: object) -> Missing:
        name = getattr(call, "__name__", "")
        return Missing(reason=REASON_OF.get(error.value, "failed"), detail=f"{name}: {error}" if name else str(error))

    def _try(self, call: "Callable[..., Any]", *args: object) -> "Any":
        """The call's value, or why there is none."""
        try:
            return call(*args)
        except self._error as error:
            return self._missing(error, call)
        except Exception as error:  # noqa: BLE001 - the binding's own faults (a name that is no UTF-8) cost one cell, not the card
            return Missing(reason="failed", detail=f"{getattr(call, '__name__', '')}: {type(error).__name__}: {error}")

    def _cuda_version(self) -> "str | Missing":
        version = self._try(self._nvml.nvmlSystemGetCudaDriverVersion_v2)
        return version if isinstance(version, Missing) else f"{version // 1000}.{version % 1000 // 10}"

    def _add(self, index: int, handle: object) -> None:
        """A card, and its MIG slices where it is split."""
        nvml = self._nvml
        static: dict[str, Any] = {
            "index": index,
            "physical_index": index,
            "id": f"cuda:{index}",
            "backend": "cuda",
            "name": f"NVIDIA GPU {index}",
            **self._fixed,
        }
        card = _Card(handle, static)
        self.cards.append(card)
        if isinstance(handle, self._error):
            card.lost = str(handle)
            return
        self._describe(card)
        mode = self._try(nvml.nvmlDeviceGetMigMode, handle)
        static["mig"] = mode if isinstance(mode, Missing) else ("enabled" if mode[0] else "disabled")
        self._plan(card)
        if static["mig"] == "enabled":
            most = self._try(nvml.nvmlDeviceGetMaxMigDeviceCount, handle)
            for number in range(most if isinstance(most, int) else 0):
                slice_handle = self._try(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
                if not isinstance(slice_handle, Missing):
                    own = _Card(slice_handle, {**static, "mig": "slice", "parent_uuid": static["uuid"]}, mig_of=card)
                    self._describe(own)
                    self._plan(own)
                    self.cards.append(own)

    def _describe(self, card: _Card) -> None:
        """What never changes while the driver is loaded."""
        nvml, static = self._nvml, card.static
        name = self._try(nvml.nvmlDeviceGetName, card.handle)
        if isinstance(name, str) and name:
            static["name"] = name
        static["uuid"] = self._try(nvml.nvmlDeviceGetUUID, card.handle)
        if card.mig_of is None:
            pci = self._try(nvml.nvmlDeviceGetPciInfo_v3, card.handle)
            static["pci_bus_id"] = pci if isinstance(pci, Missing) else pci_id(text_of(pci.busId))
            cc = self._try(nvml.nvmlDeviceGetCudaComputeCapability, card.handle)
            static["compute_capability"] = cc if isinstance(cc, Missing) else f"{cc[0]}.{cc[1]}"
            static["soc"] = _soc(static["name"], self._root)
            for field, which in (("shutdown_temperature_c", 0), ("slowdown_temperature_c", 1), ("max_operating_temperature_c", 3)):
                limit = self._try(nvml.nvmlDeviceGetTemperatureThreshold, card.handle, which)
                static[field] = (
                    limit if isinstance(limit, Missing) else (float(limit) if limit else Missing(reason="not_supported", detail="the threshold reads 0"))
                )

    def _bound(self, handle: object, name: str, *args: object) -> "Callable[[], Any]":
        """A call of the binding on one card, ready to be asked; one that this binding does not have answers as a driver without it."""
        call = getattr(self._nvml, name, None)

        def ask() -> "Any":
            if call is None:
                raise self._error(FUNCTION_NOT_FOUND)
            return call(handle, *args)

        ask.__name__ = name
        return ask

    def _plan(self, card: _Card) -> None:
        """Which calls this card is asked, fast and slow; each entry is a field and its alternatives, newest first."""
        nvml, handle = self._nvml, card.handle

        def bound(name: str, *args: object) -> "Callable[[], Any]":
            return self._bound(handle, name, *args)

        card.fast = [("memory", (bound("nvmlDeviceGetMemoryInfo", nvml.nvmlMemory_v2), bound("nvmlDeviceGetMemoryInfo")))]
        card.fast.append(("processes", (bound("nvmlDeviceGetComputeRunningProcesses_v3"), bound("nvmlDeviceGetComputeRunningProcesses_v2"))))
        if card.mig_of is not None:
            return
        card.fast += [
            ("temperature_c", (bound("nvmlDeviceGetTemperatureV", 0), bound("nvmlDeviceGetTemperature", 0))),
            ("memory_temperature_c", (bound("nvmlDeviceGetFieldValues", [nvml.NVML_FI_DEV_MEMORY_TEMP]),)),
            ("power_draw_w", (bound("nvmlDeviceGetPowerUsage"),)),
            ("utilisation_percent", (bound("nvmlDeviceGetUtilizationRates"),)),
            ("throttle_reasons", (bound("nvmlDeviceGetCurrentClocksEventReasons"), bound("nvmlDeviceGetCurrentClocksThrottleReasons"))),
        ]
        card.slow = [
            ("power_limit_w", (bound("nvmlDeviceGetPowerManagementLimit"),)),
            ("power_enforced_w", (bound("nvmlDeviceGetEnforcedPowerLimit"),)),
            ("power_default_w", (bound("nvmlDeviceGetPowerManagementDefaultLimit"),)),
            ("power_range", (bound("nvmlDeviceGetPowerManagementLimitConstraints"),)),
            ("clock_sm_mhz", (bound("nvmlDeviceGetClockInfo", 1),)),
            ("clock_memory_mhz", (bound("nvmlDeviceGetClockInfo", 2),)),
            ("fan_percent", (bound("nvmlDeviceGetFanSpeed"),)),
            ("ecc_uncorrected", (bound("nvmlDeviceGetTotalEccErrors", 1, 0),)),
            ("remapped", (bound("nvmlDeviceGetRemappedRows"),)),
            ("persistence", (bound("nvmlDeviceGetPersistenceMode"),)),
            ("graphics", (bound("nvmlDeviceGetGraphicsRunningProcesses_v3"), bound("nvmlDeviceGetGraphicsRunningProcesses_v2"))),
        ]

    def _listen(self) -> None:
        """Ask for XID events; a driver that has none is not asked again."""
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
            for card in self.cards:
                if card.mig_of is None and not card.lost:
                    nvml.nvmlDeviceRegisterEvents(card.handle, nvml.nvmlEventTypeXidCriticalError, events)
            self._next_event, self._event = function(nvml, "nvmlEventSetWait_v2"), nvml.c_nvmlEventData_t()
            self.events = events
        except (self._error, AttributeError):
            self.events = None

    def _hear(self) -> None:
        """Take the XID events that came since the last look, at most 64 (a storm must not hold the poll)."""
        for _ in range(64):
            code = self._next_event(self.events, byref(self._event), c_uint(0))  # straight, for the usual answer (nobody has anything to say) is an error code
            if code:
                if code == NOT_SUPPORTED:
                    self.events = None
                return
            self.take(self._event)

    def take(self, event: "Any") -> None:
        """An XID event, whoever heard it."""
        key = _address(event.device)
        for card in self.cards:
            if card.mig_of is None and not isinstance(card.handle, self._error) and _address(card.handle) == key:
                card.xids.append(int(event.eventData))

    def ask_all(self) -> None:
        """Let the next look ask the slow cells, too."""
        self._slow_at = 0

    def read(self, now_ns: int = 0) -> tuple[Device, ...]:
        """One look at every card; a row for each, whatever fails."""
        slow = not self._slow_at or now_ns - self._slow_at >= SLOW_NS
        if slow:
            self._slow_at = now_ns or 1
            self._names.clear()
        if self.events is not None:
            self._hear()
        return (*(self._row(card, slow=slow) for card in self.cards), *self._asleep)

    def _row(self, card: _Card, *, slow: bool) -> Device:
        if card.mig_of is not None and card.mig_of.lost:
            card.lost = card.mig_of.lost
        if card.lost and not self._is_back(card):
            return self._gone(card)
        if not slow and not card.xids and card.again is not None and card.again[0].ask(card.handle) == card.again[1] and card.device is not None:
            return card.device
        moved = False
        if slow:
            card.slow_values = self._ask(card, card.slow)
            known, card.raw_slow = card.raw_slow, raw_of(card.slow_values)
            moved = card.raw_slow is None or card.raw_slow != known
        fast = card.told = self._ask(card, card.fast)
        if card.lost:
            card.raw = card.again = None
            return self._gone(card)
        before, card.raw = card.raw, raw_of(fast)
        if card.raw is not None and card.raw == before and not moved and not card.xids and card.device is not None:
            if card.again is None:
                card.again = arm(self._nvml, card.handle, tuple(calls[0].__name__ for _field, calls in card.fast), card.raw, self._questions)
            return card.device
        card.again = None
        values = {**card.static, **card.settled, **card.slow_values, **fast}
        if card.mig_of is not None:
            values.setdefault("temperature_c", Missing(reason="not_supported", detail="a MIG slice has no sensor of its own; see its parent card"))
        values["processes"] = self._holders(values.get("processes"), values.pop("graphics", None))
        if card.xids:
            values["faults"] = tuple(f"xid {number}" for number in card.xids)
        values["sources"] = ("nvml",)
        cells = finished(values)
        if cells != card.cells or card.device is None:  # what has not changed is the same reading: no new value is made for it
            card.cells, card.device = cells, Device(**cells)
        return card.device

    def _ask(self, card: _Card, plan: "list[tuple[str, tuple[Callable[..., Any], ...]]]") -> "dict[str, Any]":
        """The values of one plan. An alternative that the driver does not know is dropped for good; a field with none left is settled."""
        values: dict[str, Any] = {}
        for entry in tuple(plan):
            field, calls = entry
            call = calls[0]
            try:
                values[field] = call()
                continue
            except self._error as error:
                missing, code = self._missing(error, call), error.value
            except Exception as error:  # noqa: BLE001 - as in `_try`
                missing, code = Missing(reason="failed", detail=f"{call.__name__}: {type(error).__name__}: {error}"), 999
            if code == IS_LOST:
                card.lost = missing.detail
                return values
            if REASON_OF.get(code) != "not_supported":
                values[field], card.codes[field] = missing, code
                continue
            plan.remove(entry)
            if len(calls) > 1:
                plan.append((field, calls[1:]))
                values.update(self._ask_one(card, plan, field))
            else:
                values[field] = card.settled[field] = missing
        return values

    def _ask_one(self, card: _Card, plan: "list[tuple[str, tuple[Callable[..., Any], ...]]]", field: str) -> "dict[str, Any]":
        """Ask the entry that was just put at the end of the plan."""
        last = [plan.pop()]
        values = self._ask(card, last)
        plan.extend(last)
        return values if field in values else {}

    def _is_back(self, card: _Card) -> bool:
        """Whether a card that was lost answers again (after a reset); one call a poll."""
        if isinstance(card.handle, self._error) or card.mig_of is not None:
            return False
        back = isinstance(self._try(self._nvml.nvmlDeviceGetUUID, card.handle), str)
        if back:
            card.lost = ""
        return back

    def _gone(self, card: _Card) -> Device:
        """The row of a lost card: who it is, and every reading gone."""
        faults = ("lost: " + card.lost, *(f"xid {number}" for number in card.xids))
        known = {key: value for key, value in card.static.items() if not isinstance(value, Missing)}
        return row_without(known, Missing(reason="gone", detail=card.lost), state="lost", source="nvml", faults=faults)

    def _holders(self, compute: "Any", graphics: "Any") -> "tuple[Process, ...] | Missing":
        """The processes on a card, largest first. Pids that cannot be (0, beyond pid_max) are dropped; one that is not visible here has no name."""
        if compute is None:
            return Missing(reason="not_supported", detail="the driver lists no processes")
        if isinstance(compute, Missing):
            return compute
        found: dict[int, Process] = {}
        for row in (*compute, *(() if isinstance(graphics, Missing) or graphics is None else graphics)):
            pid, used = int(row.pid), row.usedGpuMemory
            if not 0 < pid < PID_MAX:
                continue
            if used is None or used == ALL_ONES:
                used = Missing(reason="not_supported", detail="the driver tells no memory per process here (as under WSL and WDDM)")
            found[pid] = Process(pid=pid, used_bytes=used, name=self._name(pid))
        return tuple(sorted(found.values(), key=lambda p: -p.used_bytes if isinstance(p.used_bytes, int) else 0))

    def _name(self, pid: int) -> str:
        """The process's own short name; empty where it is not visible (another pid namespace, or gone)."""
        if pid not in self._names:
            self._names[pid] = first_line(f"{self._root}/proc/{pid}/comm")
        return self._names[pid]

    def close(self) -> None:
        """Let the library go, so that a laptop's card may sleep again."""
        if self.cards:
            self._try(self._nvml.nvmlShutdown)
            self.cards = []


def _address(handle: "Any") -> object:
    """What tells two handles apart: the address that the binding's pointer holds."""
    from ctypes import c_void_p, cast

    return cast(handle, c_void_p).value


def _soc(name: str, root: str) -> str:
    """How we know that the card is part of a system-on-chip, or nothing."""
    compatible = first_line(f"{root}/proc/device-tree/compatible")
    if "nvidia,tegra" in compatible:
        return "the device tree says " + next(word for word in compatible.split("\0") if "nvidia,tegra" in word)
    words = name.upper().replace("(", " ").replace(")", " ").replace("-", " ").split()
    return next((f"the driver calls it {name}" for word in SOC_WORDS if word in words), "")


def _runtime_states(root: str) -> list[tuple[str, str]]:
    """(PCI id, runtime power status) of each NVIDIA display controller, read from sysfs, which wakes nothing."""
    base = f"{root}/sys/bus/pci/devices"
    try:
        names = sorted(os.listdir(base))
    except OSError:
        return []
    cards = [name for name in names if first_line(f"{base}/{name}/vendor") == "0x10de" and first_line(f"{base}/{name}/class").startswith("0x03")]
    return [(name, first_line(f"{base}/{name}/power/runtime_status") or "active") for name in cards]


def _sleeper(index: int, pci: str) -> Device:
    """The row of a card that sleeps: asking it anything would wake it (20 W and more on a laptop)."""
    asleep = Missing(reason="not_supported", detail="the card sleeps (runtime power management) and was not woken; name it with --device to wake it")
    known = {"id": f"cuda:{index}", "backend": "cuda", "name": "NVIDIA GPU (asleep)", "index": index, "pci_bus_id": pci}
    return row_without(known, asleep, state="asleep", source="sysfs")
