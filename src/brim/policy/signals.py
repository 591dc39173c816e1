"""One look in, levels out: what each signal would be by the bare limits, and by the limits shifted by the hysteresis; no memory, no intents.

Memory: free < F is block, free < F + margin is throttle. Temperature: ≥ T is block, ≥ T − margin is throttle; where no ceiling was set, the device's own
threshold is used if it is above zero. Faults are by NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors): those that end the context or the device block,
those that an application makes are told only.
"""

from itertools import pairwise

from brim.facts.look import Look
from brim.facts.settings import FLOOR_BYTES, Limits
from brim.policy.states import (
    BLOCK,
    DISK,
    FAULT,
    HEARTBEAT,
    HEAT,
    MEMORY,
    POWER,
    PRESSURE,
    RUN,
    THROTTLE,
    UNKNOWN,
    Signal,
    State,
)
from brim.units import format_bytes
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.device import Device

HYSTERESIS_C = 3.0
# XIDs after which nothing more can be had from the device or its memory cannot be trusted.
FATAL_XIDS = frozenset({48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 154})
_DEAD_XIDS = frozenset({79, 119, 120, 154})
PRESSURE_THROTTLE, PRESSURE_BLOCK = 20.0, 60.0
SHM_FLOOR = 8 << 20  # a container's own /dev/shm has 64 MiB by default


def known(value: object) -> "int | float | None":
    """Give the number, or None where it is missing: the only place where a missing value becomes something else."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def free_bytes(limits: Limits, look: Look, device: "Device") -> "int | Missing":
    """Give what is free on a device for the job: what is free there now, or its budget less what it holds, whichever is lower (bytes)."""
    memory, host = device.memory, look.reading.host
    free = known(memory.available_bytes)
    free = known(memory.free_bytes) if free is None else free
    if device.backend == "cpu" or (device.unified and free is None):
        candidates = [free, known(host.available_bytes)]
        limit, used = known(host.cgroup_limit_bytes), known(host.cgroup_working_set_bytes)
        used = known(host.cgroup_usage_bytes) if used is None else used
        candidates.append(None if limit is None or used is None else limit - used)
        numbers = [int(number) for number in candidates if number is not None]
        free = min(numbers) if numbers else None
    budget = limits.budget(device.id)
    if budget is None and free is not None:
        return int(free) + _counted(limits, look, device)
    if budget is None:
        return Missing(reason="failed", detail=f"{device.id} does not tell its free memory")
    held = look.held_on(device.id)
    if isinstance(held, Missing):
        return held
    return budget - held if free is None else min(int(free), budget - held)


def _counted(limits: Limits, look: Look, device: "Device") -> int:
    """Give what counts towards a floor that was set for the launch beside what is free: what the job holds there, but never so much that less than the ordinary floor is left."""
    if not limits.floor_counts_job:
        return 0
    return max(0, min(int(known(look.held_on(device.id)) or 0), limits.floor_bytes - FLOOR_BYTES))


def memory(limits: Limits, look: Look, device: "Device", free: "int | Missing") -> Signal:
    """Judge one device's memory."""
    name, floor, margin = f"memory:{device.id}", floor_of(limits), limits.margin(device.id)
    if isinstance(free, Missing):
        return Signal(
            name=name, kind=MEMORY, device=device.id, level=UNKNOWN, relaxed=UNKNOWN, why=f"memory of {device.id} unknown: {free.detail or free.reason}"
        )

    def level(shift: int) -> str:
        return BLOCK if free - shift < floor else THROTTLE if free - shift < floor + margin else RUN

    why = f"{device.id} has {format_bytes(free)} free, floor {format_bytes(floor)}, margin {format_bytes(margin)}"
    # A single zero is a sensor that dropped out more often than a full device: it needs a second look.
    return Signal(
        name=name, kind=MEMORY, device=device.id, level=level(0), relaxed=level(max(margin // 4, 1)), why=why, value=free, confirm=2 if free == 0 else 1
    )


def absent(device: str) -> Signal:
    """Judge a device that the limits name and that no reading has: its memory is unknown."""
    why = f"{device} is named and in no reading"
    return Signal(name=f"memory:{device}", kind=MEMORY, device=device, level=UNKNOWN, relaxed=UNKNOWN, why=why)


def floor_of(limits: Limits) -> int:
    """Give the floor in bytes: where it was set for the launch, memory that the job was admitted with is not missing."""
    return max(0, limits.floor_bytes)


def _ceiling(limits: Limits, device: "Device") -> "tuple[float, str] | None":
    """Give the ceiling temperature in °C and its source: the setting, else the device's own threshold, else None."""
    if limits.max_temp_c is not None:
        return limits.max_temp_c, "as set"
    for field, words in (("slowdown_temperature_c", "the device's slowdown point"), ("shutdown_temperature_c", "the device's shutdown point")):
        value = known(getattr(device, field))
        if value is not None and value > 0:
            return float(value), words
    return None


def cool_below(limits: Limits, device: "Device") -> "float | None":
    """Give the temperature (°C) below which a device is at rest: short of the throttle point by the hysteresis; None where it has no ceiling."""
    ceiling = _ceiling(limits, device)
    return None if ceiling is None else ceiling[0] - limits.throttle_temp_margin_c - HYSTERESIS_C


def heat(limits: Limits, device: "Device", temperature: object, label: str) -> "Signal | None":
    """Judge one temperature; None where the device has none and nobody asked for it."""
    ceiling, value, name = _ceiling(limits, device), known(temperature), f"{label}:{device.id}"
    if ceiling is None:
        return None
    top, source = ceiling
    if value is None:
        reason = temperature.reason if isinstance(temperature, Missing) else "failed"
        if reason == "not_supported" and (limits.max_temp_c is None or label != "temperature"):
            return None
        return Signal(name=name, kind=HEAT, device=device.id, level=UNKNOWN, relaxed=UNKNOWN, why=f"{label} of {device.id} unknown ({reason})")

    def level(shift: float) -> str:
        warm = float(value) + shift
        return BLOCK if warm >= top else THROTTLE if warm >= top - limits.throttle_temp_margin_c else RUN

    why = f"{device.id} {label} {float(value):.0f} °C, ceiling {top:.0f} °C ({source}), throttle from {top - limits.throttle_temp_margin_c:.0f} °C"
    return Signal(
        name=name, kind=HEAT, device=device.id, level=level(0.0), relaxed=level(HYSTERESIS_C), why=why, value=float(value), confirm=limits.confirmations
    )


def power(device: "Device") -> "Signal | None":
    """Judge the device's own throttle reasons: a power brake or a thermal slowdown is a limit that the device already enforces."""
    reasons = device.throttle_reasons
    if isinstance(reasons, Missing):
        return None
    bad = [word for word in reasons if "brake" in word.lower() or ("thermal" in word.lower()) or word.lower() in {"hw_slowdown", "hw slowdown"}]
    level = THROTTLE if bad else RUN
    why = f"{device.id} throttles itself: {', '.join(bad)}" if bad else f"{device.id} does not throttle itself"
    hot = any("thermal" in word.lower() for word in bad)
    return Signal(name=f"power:{device.id}", kind=HEAT if hot else POWER, device=device.id, level=level, relaxed=level, why=why, confirm=2)


def xids(faults: "tuple[str, ...]") -> list[int]:
    """Give the XID numbers in fault sentences (`xid 79`, `XID 79: fell off the bus`, `xid:79`)."""
    found = []
    for text in faults:
        words = text.lower().replace(":", " ").replace("_", " ").replace("=", " ").replace("(", " ").replace(",", " ").split()
        found += [int(after) for word, after in pairwise(words) if word == "xid" and after.isdigit()]
    return found


def _lost_words(text: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in ("lost", "off the bus", "gone", "not found"))


def is_dead(device: "Device") -> bool:
    """Say whether the device cannot even be read any more: then no checkpoint can come from it."""
    return any(_lost_words(text) for text in device.faults) or bool(_DEAD_XIDS & set(xids(device.faults)))


def fault(state: State, device: "Device", ecc_before: int) -> Signal:
    """Judge hardware faults: a lost device, fatal XIDs, uncorrected ECC errors since the start, a failed row remap. Sticky: a fault does not heal."""
    bad = [f"XID {number}" for number in xids(device.faults) if number in FATAL_XIDS]
    bad += [text for text in device.faults if _lost_words(text)]
    told = [text for text in device.faults if not _lost_words(text) and not FATAL_XIDS & set(xids((text,)))]
    errors = known(device.ecc_uncorrected)
    if errors is not None and errors > ecc_before >= 0:
        bad.append(f"{int(errors) - ecc_before} new uncorrected ECC errors")
    if device.remap_failed is True:
        bad.append("row remapping failed")
    if device.remap_pending is True:
        told.append("row remapping pending: reset the device before the next run")
    why = f"{device.id}: " + "; ".join(dict.fromkeys([*bad, *told])) if bad or told else f"{device.id} reports no fault"
    level = BLOCK if bad else THROTTLE if told else RUN
    return Signal(name=f"faults:{device.id}", kind=FAULT, device=device.id, level=level, relaxed=level, why=why, sticky=True)


def host(limits: Limits, look: Look, now: int) -> list[Signal]:
    """Judge what belongs to no device: memory pressure, the disk that checkpoints go to, and whether the job still speaks."""
    found, seen = [], look.reading.host
    full = known(seen.psi_full_avg10)
    if full is not None:

        def level(shift: float) -> str:
            return BLOCK if full + shift >= PRESSURE_BLOCK else THROTTLE if full + shift >= PRESSURE_THROTTLE else RUN

        why = f"all tasks waited for memory {full:.0f} % of the last 10 s"
        found.append(Signal(name="pressure:host", kind=PRESSURE, device="cpu", level=level(0), relaxed=level(5.0), why=why, value=full, confirm=3))
    disk = known(seen.disk_free_bytes)
    if disk is not None:
        level_now = THROTTLE if disk < limits.disk_floor_bytes else RUN
        relaxed = THROTTLE if disk < limits.disk_floor_bytes * 5 // 4 else RUN
        why = f"{format_bytes(int(disk))} free where checkpoints go, {format_bytes(limits.disk_floor_bytes)} wanted"
        found.append(Signal(name="disk:host", kind=DISK, device="cpu", level=level_now, relaxed=relaxed, why=why, value=disk))
    shared = known(seen.shm_free_bytes)
    if shared is not None:
        level_now, relaxed = (THROTTLE if shared < floor else RUN for floor in (SHM_FLOOR, SHM_FLOOR * 5 // 4))
        why = f"{format_bytes(int(shared))} free in /dev/shm: a data loader that needs more ends with a bus error"
        found.append(Signal(name="shm:host", kind=DISK, device="cpu", level=level_now, relaxed=relaxed, why=why, value=shared))
    if look.words is not None and look.words.step > 0 and limits.job_silent_ns:
        silent = now - look.words.beat_ns
        level_now = THROTTLE if silent > limits.job_silent_ns else RUN
        why = f"the job was last heard {silent // 1_000_000_000} s ago, at step {look.words.step}"
        found.append(Signal(name="heartbeat:job", kind=HEARTBEAT, device="cpu", level=level_now, relaxed=level_now, why=why))
    return found


def too_old(limits: Limits, look: Look, now: int) -> bool:
    """Say whether the reading itself is too old to be believed (a probe that never came back)."""
    return now - look.reading.at_ns > 3 * limits.poll_ns + 2_000_000_000
