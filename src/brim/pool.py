"""Which devices draw on the host's memory, and the budget of every backend: readings in, budgets out, each with the query it came from.

Guarantees: a unified device shares one pool with the host, which is counted once; its total is never a budget (FIELD_CASES 1, 3). Only a part that its
own source knows to be a system-on-chip is taken for unified; a lost card, a version mismatch or a MIG slice is not (5). An AMD APU's pool is
GTT, bounded by what the host has available, never carve-out plus GTT (51). A reading that contradicts itself is said and not used (53).
"""

from brim import budget as rule
from brim.facts.device import Budget, Device, Host, Memory, Reading
from brim.units import format_bytes
from brim.values import Missing

ACCELERATORS = ("cuda", "rocm", "xpu", "metal", "vulkan")
WORDS = {"cpu": "cpu", "host": "cpu", "cuda": "cuda", "metal": "metal", "rocm": "rocm", "hip": "rocm", "xpu": "xpu", "vulkan": "vulkan"}
SHARED = "one pool with the host, counted once"


def backend_word(text: str) -> "str | None":
    """The backend that a word on the command line means, in any case; None for a word that we do not know."""
    return WORDS.get(text.strip().lower())


def host_available(host: Host) -> "int | Missing":
    """What a new job on the host could take now: MemAvailable, and no more than the tightest cgroup leaves above its working set."""
    left = host.available_bytes
    limit, held = host.cgroup_limit_bytes, host.cgroup_working_set_bytes
    if isinstance(held, Missing):
        held = host.cgroup_usage_bytes
    if isinstance(limit, int) and isinstance(held, int):
        room = max(0, limit - held)
        return room if isinstance(left, Missing) else min(left, room)
    return left


def host_ceiling(host: Host) -> "int | Missing":
    """Physical RAM, or the cgroup limit where that is lower."""
    total, limit = host.total_bytes, host.cgroup_limit_bytes
    return min(total, limit) if isinstance(total, int) and isinstance(limit, int) else total


def settle(reading: Reading, *, reserve: "float | None" = None, override: "int | None" = None) -> Reading:
    """The reading with its pools recognised and a budget on every device; a budget that the reading brought (a script's) stands."""
    devices = tuple(settle_device(device, reading.host, reserve=reserve, override=override) for device in reading.devices)
    return Reading(at_ns=reading.at_ns, devices=devices, host=reading.host, asked=reading.asked, notes=reading.notes)


def settle_device(device: Device, host: Host, *, reserve: "float | None" = None, override: "int | None" = None) -> Device:
    """One device with its pool recognised and its budget derived; a number that no such device can have (all ones, a negative, NaN) is a missing one."""
    device = _possible(device)
    because = _unified(device)
    memory, warning = _memory(device, host, unified=bool(because))
    held_back = rule.clamp_reserve(rule.RESERVES.get(device.backend, 0.10) if reserve is None else reserve)
    if device.budget.backend:
        budget = device.budget
    elif override is not None:
        budget = _overridden(device.backend, override, memory, because)
    elif device.backend == "metal":
        budget = _metal(device, memory, host, held_back)
    elif because:
        budget = _shared(device, memory, host, held_back)
    else:
        budget = _own(device, memory, held_back)
    changes: dict[str, object] = {"memory": memory, "budget": budget}
    sick = _faults(device)
    if sick:
        changes["faults"] = tuple(dict.fromkeys((*device.faults, *sick)))
    if because:
        changes.update(unified=True, unified_because=because)
    said = [*([warning] if warning else []), *_broken(device)]
    if said:
        changes["warnings"] = tuple(dict.fromkeys((*device.warnings, *said)))
    return device.replace(**changes)


# What a reading may be at all: drivers leave a number out as all ones in 8, 16, 32 or 64 bits, as a negative, or as NaN.
_BOUNDS = (
    ("temperature_c", 0, 200), ("memory_temperature_c", 0, 200), ("slowdown_temperature_c", 0, 200), ("shutdown_temperature_c", 0, 200),
    ("max_operating_temperature_c", 0, 200), ("power_draw_w", 0, 60_000), ("power_limit_w", 0, 60_000), ("power_enforced_w", 0, 60_000), ("power_default_w", 0, 60_000),
    ("power_min_w", 0, 60_000), ("power_max_w", 0, 60_000), ("utilisation_percent", 0, 200), ("fan_percent", 0, 250), ("clock_sm_mhz", 0, 20_000),
    ("clock_memory_mhz", 0, 60_000), ("ecc_uncorrected", 0, 1 << 40),
)  # fmt: skip
_BYTES = ("total_bytes", "free_bytes", "used_bytes", "available_bytes", "reserved_bytes", "carve_out_bytes", "shared_total_bytes", "shared_used_bytes")
_SIZES = tuple((name, 0, 1 << 50) for name in _BYTES)


def _possible(device: Device) -> Device:
    """The device without numbers that cannot be; the very same one where there is none."""
    wrong = _beyond(device, _BOUNDS)
    memory = device.memory
    sizes = _beyond(memory, _SIZES)
    total, own = memory.total_bytes, not (device.soc or device.unified)  # an APU's carve-out is less than what it uses of the pool
    if own and isinstance(total, int) and "total_bytes" not in sizes:
        sizes |= _beyond(memory, (("free_bytes", 0, total), ("used_bytes", 0, total), ("available_bytes", 0, total)))
    if sizes:
        wrong["memory"] = memory.replace(**sizes)
    return device.replace(**wrong) if wrong else device


def _beyond(record: "Device | Memory", bounds: "tuple[tuple[str, int, int], ...]") -> "dict[str, object]":
    wrong: dict[str, object] = {}
    for name, low, high in bounds:
        value = getattr(record, name)
        if value.__class__ is not Missing and not low <= value <= high:
            wrong[name] = Missing(reason="failed", detail=f"{name} {value} cannot be")
    return wrong


def _faults(device: Device) -> list[str]:
    """Hardware faults that its counters show: such a card calls itself healthy and fails the next job too (FIELD_CASES 39)."""
    found = []
    if isinstance(device.ecc_uncorrected, int) and device.ecc_uncorrected > 0:
        found.append(f"{device.ecc_uncorrected} uncorrected memory errors since the driver was loaded: start nothing on it before a reset")
    if device.remap_failed is True:
        found.append("row remapping failed (as XID 64 says): isolate this card")
    elif device.remap_pending is True:
        found.append("row remapping is pending: reset this card before the next job")
    return found


def _broken(device: Device) -> list[str]:
    """Sensors that answer with an error while the card itself answers (FIELD_CASES 23)."""
    if device.state != "ok":
        return []
    cells = (("fan", device.fan_percent), ("power", device.power_draw_w))
    broken = [name for name, value in cells if isinstance(value, Missing) and value.reason == "failed"]
    return [f"{' and '.join(broken)}: the sensor reports an error; rely on this card only for short runs"] if broken else []


def _unified(device: Device) -> str:
    """How we know that the device draws on the host's pool; nothing where it has memory of its own, or where nobody knows."""
    if device.unified:
        return device.unified_because or "its source says so"
    if device.state in ("lost", "asleep") or not device.soc or device.mig == "slice":
        return ""
    total = device.memory.total_bytes
    if isinstance(total, Missing) and total.reason not in ("not_supported", "failed"):
        return ""
    return f"{device.soc}, and it has no memory of its own" if isinstance(total, Missing) else device.soc


def _memory(device: Device, host: Host, *, unified: bool) -> "tuple[Memory, str]":
    """The device's memory with `available` filled in, and a warning where the driver contradicts itself."""
    memory = device.memory
    if unified:
        used = memory.used_bytes if isinstance(memory.used_bytes, int) else _held(device)
        available = host_available(host)
        if isinstance(memory.shared_total_bytes, int) and isinstance(memory.shared_used_bytes, int):
            room = max(0, memory.shared_total_bytes - memory.shared_used_bytes)
            available, used = (room if isinstance(available, Missing) else min(room, available)), memory.shared_used_bytes
        return memory.replace(used_bytes=used, free_bytes=available, available_bytes=available), ""
    held = _held(device)
    if isinstance(held, int) and held and memory.free_bytes == memory.total_bytes and isinstance(memory.total_bytes, int):
        left = max(0, memory.total_bytes - held)
        return memory.replace(
            available_bytes=left, used_bytes=held
        ), f"the driver says that all is free while processes hold {format_bytes(held)}: their sum is used"
    if isinstance(memory.available_bytes, Missing):
        memory = memory.replace(available_bytes=memory.free_bytes)
    return memory, ""


def _held(device: Device) -> "int | Missing":
    """What the device's processes hold, as far as they are told."""
    if isinstance(device.processes, Missing):
        return device.processes
    known = [p.used_bytes for p in device.processes if isinstance(p.used_bytes, int)]
    if device.processes and not known:
        return Missing(reason="not_supported", detail="no process tells what it holds")
    return sum(known)


def _query(device: Device) -> str:
    """The words for the query that gave a device's free memory."""
    source = device.sources[0] if device.sources else "script"
    words = {"nvml": "NVML free memory", "nvidia-smi": "nvidia-smi free memory", "amdsmi": "amdsmi free VRAM", "sysfs": "free VRAM in kernel sysfs"}
    return words.get(source, f"{source} free memory")


def _own(device: Device, memory: Memory, held_back: float) -> Budget:
    """A card with memory of its own: what is free on it, since others may hold most of the card; `ever` is all but what the driver keeps."""
    free = memory.available_bytes
    if isinstance(free, Missing):
        return unknown(device.backend, f"{device.name}: {free.detail or free.reason}", held_back, free)
    total = memory.total_bytes
    ever: int | Missing = (
        total if isinstance(total, Missing) else rule.usable(total - (memory.reserved_bytes if isinstance(memory.reserved_bytes, int) else 0), held_back)
    )
    size = "total unknown" if isinstance(total, Missing) else f"{format_bytes(total)} total"
    now = rule.usable(free, held_back)
    return Budget(
        backend=device.backend,
        total_bytes=free,
        usable_bytes=now,
        reserve_fraction=held_back,
        source=f"{_query(device)} on {device.name} ({size})",
        ever_bytes=ever,
        now_bytes=now,
    )


def _shared(device: Device, memory: Memory, host: Host, held_back: float) -> Budget:
    """A unified device: what the host has available now, capped by the cgroup (and by GTT on an AMD APU)."""
    left = memory.available_bytes
    if isinstance(left, Missing):
        return unknown(device.backend, f"{device.name} shares the host's memory, which did not answer", held_back, left)
    ceiling = host_ceiling(host)
    if isinstance(memory.shared_total_bytes, int) and isinstance(ceiling, int):
        ceiling = min(ceiling, memory.shared_total_bytes)
    what = "GTT, bounded by available host memory" if isinstance(memory.shared_total_bytes, int) else "available host memory"
    now = rule.usable(left, held_back)
    return Budget(
        backend=device.backend,
        total_bytes=left,
        usable_bytes=now,
        reserve_fraction=held_back,
        source=f"{what} of {device.name} ({SHARED})",
        ever_bytes=ceiling if isinstance(ceiling, Missing) else rule.usable(ceiling, held_back),
        now_bytes=now,
    )


def _metal(device: Device, memory: Memory, host: Host, held_back: float) -> Budget:
    """Apple: Metal's recommendedMaxWorkingSetSize; what is free of it now is bounded by what the host has available."""
    total = device.memory.total_bytes
    if isinstance(total, Missing):
        return unknown("metal", f"{device.name}: {total.detail or total.reason}", held_back, total)
    left = host_available(host)
    ever = rule.usable(total, held_back)
    del memory
    return Budget(
        backend="metal",
        total_bytes=total,
        usable_bytes=ever,
        reserve_fraction=held_back,
        source=f"recommendedMaxWorkingSetSize of {device.name} ({SHARED})",
        ever_bytes=ever,
        now_bytes=ever if isinstance(left, Missing) else min(ever, left),
    )


def _overridden(backend: str, override: int, memory: Memory, because: str) -> Budget:
    """The override stands for everything, with no reserve; what is free now still bounds `now` on a card of its own."""
    source = f"{rule.OVERRIDE}, which overrides the probe; no reserve applied"
    free = memory.available_bytes
    now = override if because or isinstance(free, Missing) else min(override, free)
    return Budget(backend=backend, total_bytes=override, usable_bytes=override, reserve_fraction=0.0, source=source, ever_bytes=override, now_bytes=now)


def unknown(backend: str, source: str, held_back: float, why: Missing) -> Budget:
    """Nothing answered: no ceiling is enforced, and whoever prints it says so."""
    return Budget(backend=backend, total_bytes=why, usable_bytes=why, reserve_fraction=held_back, source=source, ever_bytes=why, now_bytes=why)


def of_host(host: Host, *, reserve: "float | None" = None, override: "int | None" = None) -> Budget:
    """The host's budget (`budget.of_host`) with what it could ever give and what it has now."""
    budget = rule.of_host(host, reserve=reserve, override=override)
    left = host_available(host)
    if isinstance(budget.usable_bytes, Missing):
        return budget.replace(ever_bytes=budget.usable_bytes, now_bytes=left)
    return budget.replace(ever_bytes=budget.usable_bytes, now_bytes=budget.usable_bytes if isinstance(left, Missing) else min(left, budget.usable_bytes))


def of_host_again(before: Budget, host: Host, reserve: "float | None", override: "int | None") -> Budget:
    """`of_host`, and the very budget of the look before where it would be the same: a poll once a second need not write the same sentence again."""
    left, ever = host_available(host), before.ever_bytes
    if (
        override is None
        and isinstance(left, int)
        and isinstance(ever, int)
        and before.total_bytes == host_ceiling(host)
        and before.now_bytes == min(left, ever)
    ):
        return before
    return of_host(host, reserve=reserve, override=override)


def fall_back(backend: str, why: str, host: Host, *, reserve: "float | None" = None, override: "int | None" = None) -> Budget:
    """The budget of an accelerator that was asked for and did not answer: host RAM, and it says so. The engine is then priced on the CPU."""
    budget = of_host(host, reserve=reserve, override=override)
    if override is not None:
        return budget.replace(backend=backend)
    if isinstance(budget.usable_bytes, Missing):
        return budget.replace(backend=backend, source=f"{why}, and {budget.source or 'the host did not answer either'}")
    return budget.replace(backend=backend, fell_back=True, source=f"{budget.source} (fell back: {why})")
