"""The limits as we understood them, each with where it came from."""

from brim.units import GIB, MIB
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SECOND = 1_000_000_000
FLOOR_BYTES = 256 * MIB
MARGIN_BYTES = 2 * GIB
ON_UNKNOWN = ("keep", "checkpoint", "stop")


class Setting(Record):
    """One resolved value and its origin: `flag`, `environment NAME`, `profile PATH` or `default`."""

    value: object
    origin: str


class Limits(Record):
    """What `brim run` holds a job to. Bytes, nanoseconds, °C, W. A zero, or None, where that may be: not asked for.

    `floor_bytes` and `throttle_margin_bytes` hold for every governed device; `memory_budgets` are (device, bytes) pairs that the job's own use is held to (the device is
    empty until it is known which one is meant). `devices` are the governed ones, all where it is empty. `woken` says that the kernel tells when host memory nears the
    floor. `floor_counts_job` says that the floor was set for the launch: memory that the job itself holds counts towards it, down to the ordinary floor. `origins` are
    (name, where it came from) pairs.
    """

    devices: tuple[str, ...] = ()
    floor_bytes: int = FLOOR_BYTES
    throttle_margin_bytes: int = MARGIN_BYTES
    memory_budgets: tuple[tuple[str, int], ...] = ()
    max_temp_c: "float | None" = None
    throttle_temp_margin_c: float = 8.0
    power_cap_w: "float | None" = None
    poll_ns: int = SECOND
    grace_ns: int = 30 * SECOND
    checkpoint_signal: int = 0
    checkpoint_every_ns: int = 0
    on_unknown: str = "keep"
    require_telemetry: bool = False
    die_with_me: bool = False
    on_oom: str = ""
    run_ns: int = 0
    unknown_after_ns: int = 30 * SECOND
    dwell_ns: int = 10 * SECOND
    heat_patience_ns: int = 20 * SECOND
    pause_max_ns: int = 300 * SECOND
    stale_after_ns: int = 60 * SECOND
    job_silent_ns: int = 600 * SECOND
    checkpoint_time_ns: int = 5 * SECOND
    reserve_ns: int = SECOND // 2
    confirmations: int = 2
    disk_floor_bytes: int = GIB
    hard_reserve_bytes: int = 16 * MIB
    woken: bool = False
    floor_counts_job: bool = False
    origins: tuple[tuple[str, str], ...] = ()

    def budget(self, device: str) -> "int | None":
        """The budget of one device in bytes; None where none was set."""
        backend, whole = device.partition(":")[0], None
        for name, count in self.memory_budgets:
            if name == device:
                return count
            whole = count if name == backend else whole  # a backend's word (`cuda=8GiB`) is a budget for each of its devices
        return whole

    def margin(self, device: str) -> int:
        """The throttle margin in bytes: as set (also where 2 GiB was asked for by name); the default of 2 GiB is at most an eighth of a memory budget."""
        budget = self.budget(device)
        if budget is None or self.throttle_margin_bytes != MARGIN_BYTES:
            return self.throttle_margin_bytes
        asked = any(name == "throttle_margin_bytes" and origin != "default" for name, origin in self.origins)
        return MARGIN_BYTES if asked else min(MARGIN_BYTES, budget // 8)

    def governs(self, device: str) -> bool:
        """Is this device governed? All of them where none was named, and each that has a budget; a backend's word (`cuda`) means all devices of that backend."""
        return not self.devices or device in self.devices or device.partition(":")[0] in self.devices or self.budget(device) is not None

    def named(self) -> tuple[str, ...]:
        """The devices, or words for all devices of a backend, that the limits name."""
        return tuple(dict.fromkeys((*self.devices, *(name for name, _ in self.memory_budgets if name))))

    def absent(self, present: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the named devices that are not among the present ones: nothing that was asked for them can be held to."""
        seen = {*present, *(device.partition(":")[0] for device in present)}
        return tuple(name for name in self.named() if name not in seen)

    def meaning(self, device: str) -> "Limits":
        """The same limits, where a budget without a device means this one."""
        return self.replace(memory_budgets=tuple((name or device, count) for name, count in self.memory_budgets))


def limits(*, origin: str = "flag", origins: "Mapping[str, str] | None" = None, **given: object) -> Limits:
    """Limits with the defaults filled in and every origin remembered; a value of None is not given. `TypeError` for a name that is no limit.

    `memory_budget_bytes` is one budget for the device that is meant when none is named. The floor is 256 MiB, but at most a sixteenth of a memory budget: it
    is the room in which a job may still end by itself after SIGTERM. The hard reserve, at which SIGKILL ends the grace, is at most a quarter of the floor.
    """
    values = {name: value for name, value in given.items() if value is not None}
    budget = values.pop("memory_budget_bytes", None)
    if isinstance(budget, int):
        values["memory_budgets"] = (("", budget), *tuple(values.get("memory_budgets", ())))  # type: ignore[arg-type]
        given = {**given, "memory_budgets": budget}
    budgets: tuple[tuple[str, int], ...] = values.get("memory_budgets", ())  # type: ignore[assignment]
    if "floor_bytes" not in values and budgets:
        values["floor_bytes"] = min(FLOOR_BYTES, min(count for _, count in budgets) // 16)
    floor = values.get("floor_bytes", FLOOR_BYTES)
    assert isinstance(floor, int)
    values.setdefault("hard_reserve_bytes", min(16 * MIB, floor // 4))
    asked = {name for name, value in given.items() if value is not None}
    shown = [name for name in Limits._fields if name not in ("origins", "woken")]
    where = tuple((name, (origins or {}).get(name, origin if name in asked else "default")) for name in shown)
    return Limits(**values, origins=where)  # type: ignore[arg-type]
