"""What a device is and one dated reading of it, where a missing number is a `Missing(reason)` and never a zero."""

from brim.values import Missing, Record

UNASKED = Missing(reason="not_supported", detail="this source does not tell")


class Budget(Record):
    """The ceiling that a plan may spend on one device, in bytes, and the sentence that says which query it came from.

    `usable_bytes` is the total less the reserve. Both are `Missing` where nothing answered: then nothing is enforced. `approximate` is
    always true for a probed device: mmapped weights live in the page cache, and a snapshot is no reservation.
    """

    backend: str
    total_bytes: "int | Missing"
    usable_bytes: "int | Missing"
    reserve_fraction: float
    source: str
    approximate: bool = True
    fell_back: bool = False
    hypothetical: bool = False


class DeviceSpec(Record):
    """What an engine model must know of a device, real or hypothetical. Bytes; `free_bytes` decides how llama.cpp splits layers over several cards.

    `compute_capability` is CUDA's, times 100 (890 is 8.9). `unified` says that device and host draw on one pool.
    """

    id: str
    backend: str
    total_bytes: int
    free_bytes: int
    compute_capability: int = 890
    unified: bool = False


class Memory(Record):
    """One device's memory now, in bytes. `available` is what a new job could take at this moment."""

    total_bytes: "int | Missing" = UNASKED
    free_bytes: "int | Missing" = UNASKED
    used_bytes: "int | Missing" = UNASKED
    available_bytes: "int | Missing" = UNASKED
    reserved_bytes: "int | Missing" = UNASKED


class Process(Record):
    """One process that holds memory on a device, as the vendor tells it."""

    pid: int
    used_bytes: "int | Missing"
    name: str = ""


class Device(Record):
    """One dated reading of one device. Temperatures in °C, power in W, clocks in MHz, utilisation and fan in %."""

    id: str
    backend: str
    name: str
    memory: Memory
    budget: Budget
    index: int = 0
    uuid: "str | Missing" = UNASKED
    pci_bus_id: "str | Missing" = UNASKED
    unified: bool = False
    unified_because: str = ""
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
    clock_sm_mhz: "int | Missing" = UNASKED
    clock_memory_mhz: "int | Missing" = UNASKED
    throttle_reasons: "tuple[str, ...] | Missing" = UNASKED
    fan_percent: "float | Missing" = UNASKED
    utilisation_percent: "float | Missing" = UNASKED
    ecc_uncorrected: "int | Missing" = UNASKED
    remap_pending: "bool | Missing" = UNASKED
    remap_failed: "bool | Missing" = UNASKED
    mig: "str | Missing" = UNASKED
    persistence: "bool | Missing" = UNASKED
    processes: "tuple[Process, ...] | Missing" = UNASKED
    faults: tuple[str, ...] = ()
    sources: "tuple[str, ...]" = ()


class Host(Record):
    """One dated reading of the host: RAM and cgroup in bytes, PSI in % of the last 10 s."""

    total_bytes: "int | Missing" = UNASKED
    available_bytes: "int | Missing" = UNASKED
    swap_total_bytes: "int | Missing" = UNASKED
    swap_free_bytes: "int | Missing" = UNASKED
    cgroup_limit_bytes: "int | Missing" = UNASKED
    cgroup_usage_bytes: "int | Missing" = UNASKED
    cgroup_working_set_bytes: "int | Missing" = UNASKED
    cgroup_path: "str | Missing" = UNASKED
    oom_kills: "int | Missing" = UNASKED
    psi_some_avg10: "float | Missing" = UNASKED
    psi_full_avg10: "float | Missing" = UNASKED
    disk_free_bytes: "int | Missing" = UNASKED
    cpu_temperature_c: "float | Missing" = UNASKED


class Reading(Record):
    """Everything that was seen at one instant. `at_ns` is monotonic; the journal stamps wall time."""

    at_ns: int
    devices: tuple[Device, ...]
    host: Host
