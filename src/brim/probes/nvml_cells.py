"""Turns NVML's numbers, structures and error codes into our cells, units and reasons (nvml.h: mW, °C, MHz, bytes); it calls nothing."""

from brim.facts.device import Memory
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALL_ONES = (1 << 64) - 1
NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, IS_LOST, TIMEOUT = 3, 4, 13, 15, 10
# nvmlReturn_t (nvml.h) to the four reasons; a test walks the binding's NVML_ERROR_* and fails on one that is not here.
REASON_OF = {
    1: "failed", 2: "failed", 3: "not_supported", 4: "denied", 5: "failed", 6: "gone", 7: "failed", 8: "failed", 9: "failed", 10: "failed",
    11: "failed", 12: "failed", 13: "not_supported", 14: "failed", 15: "gone", 16: "failed", 17: "failed", 18: "failed", 19: "failed", 20: "failed",
    21: "not_supported", 22: "not_supported", 23: "failed", 24: "not_supported", 25: "not_supported", 26: "not_supported", 27: "failed", 28: "gone",
    29: "failed", 30: "not_supported", 999: "failed",
}  # fmt: skip
CAUSES = {
    9: "the NVIDIA driver is not loaded",
    12: "libnvidia-ml.so.1 is not here",
    18: "driver and library versions do not match (an upgrade without a reboot?); jobs that run go on, new ones cannot start",
}
THROTTLES = (
    (0x1, "idle"), (0x2, "application_clocks"), (0x4, "power_cap"), (0x8, "hardware_slowdown"), (0x10, "sync_boost"), (0x20, "software_thermal"),
    (0x40, "hardware_thermal"), (0x80, "power_brake"), (0x100, "display_clocks"), (0x200, "board_limit"), (0x400, "reliability"),
)  # fmt: skip
SOC_WORDS = ("GB10", "N1X", "ORIN", "XAVIER", "THOR", "TEGRA", "JETSON")


def raw_of(values: "dict[str, Any]") -> "tuple[Any, ...] | None":
    """The numbers of one look as a tuple, to tell whether anything has moved since the last one; None where a cell is missing or of a kind not known here."""
    found: list[Any] = []
    for field, value in values.items():
        kind = type(value)
        if kind is int:
            found.append(value)
        elif kind is Missing:
            return None
        elif field == "memory":
            found += (value.total, value.free, value.used, getattr(value, "reserved", None))
        elif kind in (list, tuple) and value and type(value[0]) is int:
            found += value
        elif field in ("processes", "graphics"):
            for row in value:
                found += (row.pid, row.usedGpuMemory)
            found.append(None)
        elif field == "utilisation_percent":
            found.append(value.gpu)
        elif field == "memory_temperature_c":
            found += (value[0].nvmlReturn, value[0].value.uiVal)
        else:
            return None
    return tuple(found)


def finished(values: "dict[str, Any]") -> "dict[str, Any]":
    """NVML's units and structures turned into ours, in place."""
    memory = values.pop("memory", None)
    values["memory"] = memory_of(memory)
    for field in ("power_draw_w", "power_limit_w", "power_enforced_w", "power_default_w"):
        cell = values.get(field)
        if type(cell) is int:
            values[field] = cell / 1000
    span = values.pop("power_range", None)
    if span is not None:
        values["power_min_w"], values["power_max_w"] = (span, span) if isinstance(span, Missing) else (span[0] / 1000, span[1] / 1000)
    rows = values.pop("remapped", None)
    if rows is not None:
        values["remap_pending"], values["remap_failed"] = (rows, rows) if isinstance(rows, Missing) else (bool(rows[2]), bool(rows[3]))
    cell = values.get("temperature_c")
    if type(cell) is int:
        values["temperature_c"] = float(cell) if cell > 0 else Missing(reason="failed", detail="the sensor reads 0 °C")
    cell = values.get("memory_temperature_c")
    if cell is not None and not isinstance(cell, Missing):
        values["memory_temperature_c"] = _field_value(cell[0])
    cell = values.get("utilisation_percent")
    if cell is not None and not isinstance(cell, Missing):
        values["utilisation_percent"] = float(cell.gpu)
    cell = values.get("throttle_reasons")
    if type(cell) is int:
        values["throttle_reasons"] = tuple(word for bit, word in THROTTLES if cell & bit) if cell else ()
    cell = values.get("persistence")
    if type(cell) is int:
        values["persistence"] = bool(cell)
    return values


def memory_of(info: "Any") -> Memory:
    """NVML's memory structure (v1 or v2) as a `Memory`; a total of 0 or of all ones, or parts above the total, are no numbers."""
    if info is None or isinstance(info, Missing):
        why = Missing(reason="not_supported", detail="memory was not asked") if info is None else info
        return Memory(total_bytes=why, free_bytes=why, used_bytes=why, available_bytes=why)
    total, free, used = info.total, info.free, info.used
    if total in (0, ALL_ONES) or free > total or used > total:
        why = Missing(reason="failed", detail=f"the driver says total {total}, free {free}, used {used} bytes, which cannot be")
        return Memory(total_bytes=why, free_bytes=why, used_bytes=why, available_bytes=why)
    reserved = getattr(info, "reserved", None)
    if reserved is None:
        return Memory(total_bytes=total, free_bytes=free, used_bytes=used, available_bytes=free)
    return Memory(total_bytes=total, free_bytes=free, used_bytes=used, available_bytes=free, reserved_bytes=reserved)


def _field_value(field: "Any") -> "float | Missing":
    """The memory temperature from a field value; consumer cards answer not supported, which is unknown and never cool."""
    if field.nvmlReturn:
        return Missing(reason=REASON_OF.get(field.nvmlReturn, "failed"), detail=f"memory temperature (field 82): NVML error {field.nvmlReturn}")
    return float(field.value.uiVal) if field.value.uiVal else Missing(reason="not_supported", detail="the memory sensor reads 0 °C")


def text_of(value: "bytes | str") -> str:
    """The binding's text, which is bytes in some versions."""
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def pci_id(text: str) -> str:
    """`00000000:65:00.0` and `0000:65:00.0` as the one form that sysfs uses."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if len(domain) > 4 and not domain[:-4].strip("0") else f"{domain}:{rest}"
