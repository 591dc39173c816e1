"""The governor's limits as plain numbers: bytes, °C and nanoseconds; where each came from stands in the settings they were made of."""

from brim.units import GIB, MIB
from brim.values import Record

SECOND = 1_000_000_000


class Limits(Record):
    """What the job is held to. A zero time or size that may be zero means: not asked for.

    `floor_bytes` holds for every governed device; `memory_budgets` are (device, bytes) pairs that the job's own use is held to. `admitted_bytes` is what the
    gate admitted the job with, where the floor was set for the launch (then that much of the job's own memory is not missing, DESIGN.md section 4).
    """

    devices: tuple[str, ...] = ()
    floor_bytes: int = 512 * MIB
    throttle_margin_bytes: int = 2 * GIB
    memory_budgets: tuple[tuple[str, int], ...] = ()
    max_temp_c: "float | None" = None
    throttle_temp_margin_c: float = 8.0
    poll_ns: int = SECOND
    grace_ns: int = 30 * SECOND
    checkpoint_signal: int = 0
    checkpoint_every_ns: int = 0
    on_unknown: str = "keep"
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

    def budget(self, device: str) -> "int | None":
        """Give the budget of one device in bytes; None where none was set."""
        for name, count in self.memory_budgets:
            if name == device:
                return count
        return None

    def margin(self, device: str) -> int:
        """Give the throttle margin in bytes: as set, but at most an eighth of a memory budget."""
        budget = self.budget(device)
        return self.throttle_margin_bytes if budget is None else min(self.throttle_margin_bytes, budget // 8)

    def governs(self, device: str) -> bool:
        """Say whether this device is governed: all of them where none was named."""
        return not self.devices or device in self.devices
