"""What a device is and one dated reading of it, where a missing number is a `Missing(reason)` and never a zero."""

from brim.values import REASONS, Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 10**18
UNASKED = Missing(reason="not_supported", detail="this source does not tell")


class Budget(Record):
    """The ceiling that a plan may spend on one device, in bytes, and the sentence that says which query it came from.

    `usable_bytes` is the total less the reserve. Both are `Missing` where nothing answered: then nothing is enforced. `approximate` is
    always true for a probed device: mmapped weights live in the page cache, and a snapshot is no reservation.
    Two more numbers tell "could ever" from "has now" apart: `ever_bytes` is what the device could give a plan if nobody else held any of
    it, `now_bytes` what a new job could take at this moment.
    """

    backend: str
    total_bytes: "int | Missing"
    usable_bytes: "int | Missing"
    reserve_fraction: float
    source: str
    approximate: bool = True
    fell_back: bool = False
    hypothetical: bool = False
    ever_bytes: "int | Missing" = UNASKED
    now_bytes: "int | Missing" = UNASKED
    caveats: tuple[str, ...] = ()


class DeviceSpec(Record):
    """What an engine model must know of a device, real or hypothetical. Bytes; `free_bytes` decides how llama.cpp splits layers over several cards.

    `compute_capability` is CUDA's, times 100 (890 is 8.9). `unified` says that device and host draw on one pool. `instructions` are the host's processor's
    (`Device.instructions`), None where they are not known; `built_for` those that the engine's build is known to use.
    """

    id: str
    backend: str
    total_bytes: int
    free_bytes: int
    compute_capability: int = 890
    unified: bool = False
    instructions: "tuple[str, ...] | None" = None
    built_for: "tuple[str, ...] | None" = None


class Memory(Record):
    """One device's memory now, in bytes. `available` is what a new job could take at this moment.

    The last three are an AMD APU's own: the carve-out that the firmware set apart, and the pool of host pages (GTT) that the driver may map.
    """

    total_bytes: "int | Missing" = UNASKED
    free_bytes: "int | Missing" = UNASKED
    used_bytes: "int | Missing" = UNASKED
    available_bytes: "int | Missing" = UNASKED
    reserved_bytes: "int | Missing" = UNASKED
    carve_out_bytes: "int | Missing" = UNASKED
    shared_total_bytes: "int | Missing" = UNASKED
    shared_used_bytes: "int | Missing" = UNASKED


class Process(Record):
    """One process that holds memory on a device, as the vendor tells it. `name` is empty where the pid is not one of ours to see."""

    pid: int
    used_bytes: "int | Missing"
    name: str = ""


NOT_DERIVED = Budget(
    backend="",
    total_bytes=Missing(reason="failed", detail="no budget was derived"),
    usable_bytes=Missing(reason="failed", detail="no budget was derived"),
    reserve_fraction=0.0,
    source="no budget was derived",
)


class Device(Record):
    """One dated reading of one device. Temperatures in °C, power in W, clocks in MHz, utilisation and fan in %.

    `id` is what a person and a program say (`cuda:0` is what CUDA calls 0 here); `physical_index` is the vendor library's own number. `state` is
    `ok`, `asleep` (runtime-suspended and left so), `lost`, `unreachable` (its telemetry does not answer) or `stale`. `soc` says that the source
    knows the device to be part of a system-on-chip without memory of its own, and how it knows. `instructions` are the host's own: what its processor has of those that decide
    how an engine lays out weights (`avx2`, `avx512`, `amx`, `neon`, `dotprod`, `i8mm`, `vxe`).
    """

    id: str
    backend: str
    name: str
    memory: Memory
    budget: Budget = NOT_DERIVED
    index: int = 0
    physical_index: "int | Missing" = UNASKED
    uuid: "str | Missing" = UNASKED
    pci_bus_id: "str | Missing" = UNASKED
    state: str = "ok"
    unified: bool = False
    unified_because: str = ""
    soc: str = ""
    compute_capability: "str | Missing" = UNASKED
    driver_version: "str | Missing" = UNASKED
    runtime_version: "str | Missing" = UNASKED
    temperature_c: "float | Missing" = UNASKED
    memory_temperature_c: "float | Missing" = UNASKED
    slowdown_temperature_c: "float | Missing" = UNASKED
    shutdown_temperature_c: "float | Missing" = UNASKED
    max_operating_temperature_c: "float | Missing" = UNASKED
    power_draw_w: "float | Missing" = UNASKED
    power_limit_w: "float | Missing" = UNASKED
    power_enforced_w: "float | Missing" = UNASKED
    power_min_w: "float | Missing" = UNASKED
    power_max_w: "float | Missing" = UNASKED
    power_default_w: "float | Missing" = UNASKED
    clock_sm_mhz: "int | Missing" = UNASKED
    clock_memory_mhz: "int | Missing" = UNASKED
    throttle_reasons: "tuple[str, ...] | Missing" = UNASKED
    fan_percent: "float | Missing" = UNASKED
    utilisation_percent: "float | Missing" = UNASKED
    ecc_uncorrected: "int | Missing" = UNASKED
    remap_pending: "bool | Missing" = UNASKED
    remap_failed: "bool | Missing" = UNASKED
    mig: "str | Missing" = UNASKED
    parent_uuid: "str | Missing" = UNASKED
    persistence: "bool | Missing" = UNASKED
    processes: "tuple[Process, ...] | Missing" = UNASKED
    instructions: "tuple[str, ...] | Missing" = UNASKED
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sources: "tuple[str, ...]" = ()


class Host(Record):
    """One dated reading of the host: RAM and cgroup in bytes, PSI in % of the last 10 s, counters since the group was made.

    The cgroup figures are those of the tightest scope (our own group or an ancestor), which `cgroup_path` names. `cgroup_working_set_bytes` is
    usage − file cache + shared memory: what reclaim cannot give back.
    """

    total_bytes: "int | Missing" = UNASKED
    available_bytes: "int | Missing" = UNASKED
    shared_bytes: "int | Missing" = UNASKED
    swap_total_bytes: "int | Missing" = UNASKED
    swap_free_bytes: "int | Missing" = UNASKED
    cgroup_version: "int | Missing" = UNASKED
    cgroup_limit_bytes: "int | Missing" = UNASKED
    cgroup_usage_bytes: "int | Missing" = UNASKED
    cgroup_working_set_bytes: "int | Missing" = UNASKED
    cgroup_path: "str | Missing" = UNASKED
    oom_kills: "int | Missing" = UNASKED
    memory_events: "tuple[tuple[str, int], ...] | Missing" = UNASKED
    psi_some_avg10: "float | Missing" = UNASKED
    psi_full_avg10: "float | Missing" = UNASKED
    cgroup_psi_some_avg10: "float | Missing" = UNASKED
    cgroup_psi_full_avg10: "float | Missing" = UNASKED
    disk_free_bytes: "int | Missing" = UNASKED
    shm_free_bytes: "int | Missing" = UNASKED
    cpu_temperature_c: "float | Missing" = UNASKED
    cpu_critical_temperature_c: "float | Missing" = UNASKED
    nvme_temperature_c: "float | Missing" = UNASKED
    wired_limit_bytes: "int | Missing" = UNASKED


class Asked(Record):
    """One source that was asked: what it is, whether it answered, what it said, and how long that took (monotonic ns).

    `outcome` is `answered`, `absent` (nothing of it is here), `asleep`, or one of the reasons of `Missing`. `install` is the command that brings it.
    """

    source: str
    outcome: str
    detail: str = ""
    elapsed_ns: int = 0
    install: str = ""


class Reading(Record):
    """Everything that was seen at one instant. `at_ns` is monotonic; the journal stamps wall time."""

    at_ns: int
    devices: tuple[Device, ...]
    host: Host
    asked: tuple[Asked, ...] = ()
    notes: tuple[str, ...] = ()


def value_of(entry: object) -> object:
    """What `values.plain` wrote, read back: `{"missing": …}` becomes `Missing`, lists become tuples, anything else stays."""
    if isinstance(entry, dict) and "missing" in entry:
        reason = entry["missing"]
        return Missing(reason=reason if reason in REASONS else "failed", detail=_text(str(entry.get("detail", ""))))
    if isinstance(entry, (list, tuple)):
        return tuple(value_of(item) for item in entry)
    return _text(entry) if isinstance(entry, str) else entry


def _text(words: str) -> str:
    """The words without half characters (lone surrogates), which no output can spell."""
    return words if words.isascii() else words.encode("utf-8", "replace").decode()


def _is_kind(value: object, kind: str) -> bool:
    """Whether a value is of the kind that a field's annotation names. A number is finite and below 10^18; a text that looks like one is none."""
    kind = kind.partition(" | ")[0]
    if kind in ("int", "float"):
        return isinstance(value, (int, float)) and not isinstance(value, bool) and -MOST < value < MOST
    if kind.startswith("tuple"):
        inner = (lambda item: isinstance(item, str)) if kind == "tuple[str, ...]" else _is_pair
        return isinstance(value, tuple) and all(inner(item) for item in value)
    return isinstance(value, {"str": str, "bool": bool}.get(kind, object))


def _is_pair(item: object) -> bool:
    return isinstance(item, (tuple, Record)) and (isinstance(item, Record) or (len(item) == 2 and isinstance(item[0], str) and _is_kind(item[1], "int")))


def _kept(cls: "type[Record]", key: str, entry: object) -> "tuple[bool, object]":
    """(whether to take it, the value): a value of another kind is `Missing` where the field may be, and is left out where it may not."""
    kind, value = cls.__annotations__[key], value_of(entry)
    kind = kind if isinstance(kind, str) else kind.__name__ if isinstance(kind, type) and kind is not tuple else str(kind)
    may_miss = kind.endswith("Missing")
    if isinstance(value, Missing):
        return may_miss, value
    if not _is_kind(value, kind) or (key.endswith("_bytes") and isinstance(value, (int, float)) and value < 0):
        return may_miss, Missing(reason="failed", detail=f"{key}: {str(value)[:40]} cannot be")
    return True, int(value) if key.endswith("_bytes") and isinstance(value, float) else value


def _fields(cls: "type[Record]", entry: "dict[str, Any]") -> "dict[str, Any]":
    """The fields of `cls` that `entry` gives; names from a later version are skipped."""
    found = ((key, _kept(cls, key, entry[key])) for key in cls._fields if key in entry and entry[key] is not None)
    return {key: value for key, (taken, value) in found if taken}


def device_from(entry: "dict[str, Any]") -> Device:
    """A device from its plain form (`brim.probe/1`, a `--readings` line, a child's answer); only `id` is required (`KeyError` without it)."""
    fields = _fields(Device, {key: value for key, value in entry.items() if key not in ("memory", "budget", "processes")})
    ident = fields["id"] = _text(str(entry["id"]))
    backend, _, number = ident.partition(":")
    fields.setdefault("backend", backend)
    fields.setdefault("name", ident)
    fields.setdefault("index", int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0)
    memory = entry.get("memory")
    fields["memory"] = Memory(**_fields(Memory, memory)) if isinstance(memory, dict) and "missing" not in memory else Memory()
    budget = entry.get("budget")
    told = _fields(Budget, budget) if isinstance(budget, dict) else {}
    fields["budget"] = NOT_DERIVED.replace(**told) if "backend" in told else NOT_DERIVED
    holders = entry.get("processes")
    if isinstance(holders, (list, tuple)):
        rows = [_fields(Process, item) for item in holders if isinstance(item, dict)]
        fields["processes"] = tuple(Process(**{"used_bytes": UNASKED, **row}) for row in rows if "pid" in row)
    elif isinstance(holders, dict):
        fields["processes"] = value_of(holders) if "missing" in holders else UNASKED
    return Device(**fields)


def host_from(entry: "dict[str, Any]") -> Host:
    """The host from its plain form; what is not given stays missing."""
    return Host(**_fields(Host, entry))
