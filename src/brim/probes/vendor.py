"""What a vendor's library said: rows, or why there are none; and the row of a device that is known to be there but tells nothing."""

from brim.facts.device import Device, Memory
from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

READINGS = tuple(
    key
    for key in Device._fields
    if isinstance(Device._defaults.get(key), Missing)  # noqa: SLF001 - what a Record leaves missing is its own list of readings
    and key not in ("uuid", "pci_bus_id", "physical_index", "parent_uuid", "driver_version", "runtime_version", "compute_capability")
)


class Unavailable(Exception):
    """The whole library cannot be used: `reason` is one of `values.REASONS`, `code` is the vendor's own number."""

    def __init__(self, reason: str, detail: str, code: int = 0) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.code = reason, detail, code


class Answer(Record):
    """One source's answer: its rows, or `outcome` (`answered`, `absent`, or a reason of `Missing`) and `detail`; and how long that took.

    `beside`: the rows are the kernel's alone, and this is why the vendor's library adds nothing to them.
    """

    source: str
    outcome: str
    detail: str = ""
    devices: tuple[Device, ...] = ()
    elapsed_ns: int = 0
    code: int = 0
    pid: int = 0
    beside: str = ""


def row_without(known: "dict[str, Any]", why: Missing, *, state: str, source: str, faults: tuple[str, ...] = ()) -> Device:
    """The row of a device whose identity is known and whose every reading is missing for the same reason."""
    cells: dict[str, Any] = dict.fromkeys(READINGS, why)
    memory = Memory(total_bytes=why, free_bytes=why, used_bytes=why, available_bytes=why, reserved_bytes=why)
    return Device(**{**cells, **known, "memory": memory, "state": state, "faults": faults, "sources": (source,)})


def silenced(device: Device, why: Missing, *, state: str = "unreachable") -> Device:
    """The same device when its telemetry is gone: who it is stays, what it read does not."""
    known = {key: getattr(device, key) for key in Device._fields if key not in READINGS and key not in ("memory", "budget", "state", "faults", "sources")}
    return row_without(known, why, state=state, source=device.sources[0] if device.sources else "", faults=device.faults)


def first_line(path: str, limit: int = 4096) -> str:
    """The first line of a small file, stripped; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).split(b"\n", 1)[0].decode("utf-8", "replace").strip("\0 \t\r\n")
    except OSError:
        return ""


def number_in(path: str, scale: int = 1) -> "int | Missing":
    """A whole number from a small file, times `scale`; the four reasons told apart."""
    try:
        with open(path, "rb") as file:
            text = file.read(64).strip()
    except FileNotFoundError:
        return Missing(reason="not_supported", detail=f"{path} is not here")
    except PermissionError:
        return Missing(reason="denied", detail=f"{path} may not be read")
    except OSError as error:
        return Missing(reason="gone" if error.errno == 19 else "failed", detail=f"{path}: {error.strerror}")
    try:
        return int(text) * scale
    except ValueError:
        return Missing(reason="failed", detail=f"{path} reads {text[:40]!r}")
