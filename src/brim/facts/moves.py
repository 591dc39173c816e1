"""Whether a reading differs from another by so much that somebody who follows a machine wants to be told; the tolerances stand here.

Told: a device that comes or goes, its state, faults, counted errors, throttle reasons and processes, a number that goes missing, comes back or is missing for another reason (each at
once); memory of a device, of a process or of the host beyond a 256th of the device's (the host's) total; temperatures beyond 1 °C; power beyond 5 W; utilisation
beyond 5 points. Not told by themselves: what is asked seldom or moves always (limits, clocks, fans, pressure, disk, the host's temperatures).
"""

from brim.facts.device import Device, Process, Reading
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.device import Host

MEMORY_SHARE = 256
TEMPERATURE_C = 1
POWER_W = 5
UTILISATION_POINTS = 5
_SENSORS = (
    ("temperature_c", TEMPERATURE_C),
    ("memory_temperature_c", TEMPERATURE_C),
    ("power_draw_w", POWER_W),
    ("utilisation_percent", UTILISATION_POINTS),
)
_EXACT = ("throttle_reasons", "ecc_uncorrected", "remap_pending", "remap_failed")
_SIZES = ("available_bytes", "used_bytes", "free_bytes", "reserved_bytes")


def moved(before: Reading, after: Reading) -> bool:
    """Whether `after` is news to somebody who was told `before`."""
    if len(before.devices) != len(after.devices) or before.notes != after.notes:
        return True
    if _host_moved(before.host, after.host):
        return True
    slack = host_slack(after.host)
    pairs = zip(before.devices, after.devices, strict=True)
    return any(old is not new and old.backend != "cpu" and _device_moved(old, new, slack) for old, new in pairs)


def host_slack(host: "Host") -> int:
    """How far the host's memory may move, in bytes; 0 where its size is not known."""
    return slack_of(host.total_bytes) if isinstance(host.total_bytes, int) else 0


def slack_of(total_bytes: int) -> int:
    """How far memory of this size may move, in bytes."""
    return total_bytes // MEMORY_SHARE


def _host_moved(before: "Host", after: "Host") -> bool:
    slack = host_slack(after)
    return (
        _far(before.available_bytes, after.available_bytes, slack)
        or _far(before.swap_free_bytes, after.swap_free_bytes, slack)
        or _far(before.total_bytes, after.total_bytes, 0)
    )


def _device_moved(before: Device, after: Device, slack: int) -> bool:
    """`slack` is the host's, for a device that has no memory of its own."""
    if (before.id, before.uuid, before.state, before.faults) != (after.id, after.uuid, after.state, after.faults):
        return True
    if _far(before.memory.total_bytes, after.memory.total_bytes, 0):
        return True
    total = after.memory.total_bytes
    own = slack if after.unified or isinstance(total, Missing) else slack_of(total)
    if before.memory is not after.memory and any(_far(getattr(before.memory, name), getattr(after.memory, name), own) for name in _SIZES):
        return True
    if any(_far(getattr(before, name), getattr(after, name), width) for name, width in _SENSORS):
        return True
    if any(_unlike(getattr(before, name), getattr(after, name)) for name in _EXACT):
        return True
    return before.processes is not after.processes and _holders_moved(before.processes, after.processes, own)


def _holders_moved(before: "tuple[Process, ...] | Missing", after: "tuple[Process, ...] | Missing", slack: int) -> bool:
    if isinstance(before, Missing) or isinstance(after, Missing):
        return _unlike(before, after)
    was, now = {row.pid: row.used_bytes for row in before}, {row.pid: row.used_bytes for row in after}
    return was.keys() != now.keys() or any(_far(was[pid], used, slack) for pid, used in now.items())


def _unlike(before: object, after: object) -> bool:
    """Two cells differ; words that tell why one is missing may change."""
    if isinstance(before, Missing) and isinstance(after, Missing):
        return before.reason != after.reason
    return before != after


def _far(before: "float | Missing", after: "float | Missing", width: float) -> bool:
    if isinstance(before, Missing) or isinstance(after, Missing):
        return _unlike(before, after)
    return abs(before - after) > width
