"""Asks Level Zero sysman through its loader, by ctypes: memory modules and temperatures of Intel GPUs; only to be run in a child process.

Structures and numbers: level-zero `zes_api.h` and `ze_api.h` 1.x (zes_device_properties_t, zes_pci_properties_t, zes_mem_state_t, zes_temp_properties_t).
"""

import ctypes
from ctypes import byref, c_char, c_double, c_int32, c_int64, c_ubyte, c_uint32, c_uint64, c_void_p

from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REASON_OF = {0x70000001: "gone", 0x70010000: "denied", 0x70010001: "not_supported", 0x78000003: "not_supported", 0x70000007: "not_supported"}


class _Properties(ctypes.Structure):
    _fields_ = [
        ("stype", c_int32), ("next", c_void_p), ("core_stype", c_int32), ("core_next", c_void_p), ("type", c_int32), ("vendor", c_uint32), ("device", c_uint32),
        ("flags", c_uint32), ("subdevice", c_uint32), ("clock", c_uint32), ("most", c_uint64), ("contexts", c_uint32), ("priority", c_uint32), ("threads", c_uint32),
        ("simd", c_uint32), ("eus", c_uint32), ("subslices", c_uint32), ("slices", c_uint32), ("timer", c_uint64), ("bits", c_uint32), ("kernel_bits", c_uint32),
        ("uuid", c_ubyte * 16), ("name", c_char * 256), ("subdevices", c_uint32), ("serial", c_char * 64), ("board", c_char * 64), ("brand", c_char * 64),
        ("model", c_char * 64), ("maker", c_char * 64), ("driver", c_char * 64),
    ]  # fmt: skip


class _Pci(ctypes.Structure):
    _fields_ = [
        ("stype", c_int32), ("next", c_void_p), ("domain", c_uint32), ("bus", c_uint32), ("device", c_uint32), ("function", c_uint32), ("gen", c_int32), ("width", c_int32),
        ("bandwidth", c_int64), ("have_bandwidth", c_ubyte), ("have_packets", c_ubyte), ("have_replays", c_ubyte), ("spare", c_ubyte * 16),
    ]  # fmt: skip


class _MemoryState(ctypes.Structure):
    _fields_ = [("stype", c_int32), ("next", c_void_p), ("health", c_int32), ("free", c_uint64), ("size", c_uint64)]


class _TemperatureProperties(ctypes.Structure):
    _fields_ = [
        ("stype", c_int32), ("next", c_void_p), ("type", c_int32), ("on_subdevice", c_uint32), ("subdevice", c_uint32), ("most", c_double), ("spare", c_ubyte * 64),
    ]  # fmt: skip


def sysman(library: "str | None" = None) -> "dict[str, dict[str, Any]]":
    """PCI id → name, uuid, total, free, temperatures; empty where the loader is not here or finds no driver."""
    try:
        zes = ctypes.CDLL(library or "libze_loader.so.1")
        if zes.zesInit(0):
            return {}
        found = {}
        for driver in _handles(zes.zesDriverGet):
            for device in _handles(zes.zesDeviceGet, driver):
                pci, cells = _device(zes, device)
                found[pci] = cells
    except (OSError, AttributeError):
        return {}
    return found


def _handles(call: "Any", *args: object) -> "list[c_void_p]":
    """The two-step listing of Level Zero: first how many, then which."""
    count = c_uint32(0)
    if call(*args, byref(count), None) or not count.value:
        return []
    handles = (c_void_p * count.value)()
    if call(*args, byref(count), handles):
        return []
    return [c_void_p(handle) for handle in handles[: count.value]]


def _device(zes: "Any", device: c_void_p) -> "tuple[str, dict[str, Any]]":
    properties, pci = _Properties(stype=1), _Pci(stype=2)
    zes.zesDeviceGetProperties(device, byref(properties))
    zes.zesDevicePciGetProperties(device, byref(pci))
    name = (properties.model or properties.name).decode("utf-8", "replace").strip()
    cells: dict[str, Any] = {"name": name, "uuid": bytes(properties.uuid).hex(), **_memory(zes, device), **_heat(zes, device)}
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.{pci.function:x}", cells


def _memory(zes: "Any", device: c_void_p) -> "dict[str, Any]":
    """Total and free over all modules; without a module there is no total (integrated graphics)."""
    total = free = 0
    modules = _handles(zes.zesDeviceEnumMemoryModules, device)
    for module in modules:
        state = _MemoryState(stype=0x1E)
        code = zes.zesMemoryGetState(module, byref(state))
        if code:
            why = Missing(reason=REASON_OF.get(code & 0xFFFFFFFF, "failed"), detail=f"zesMemoryGetState: 0x{code & 0xFFFFFFFF:x}")
            return {"total": why, "free": why}
        total, free = total + state.size, free + state.free
    return {"total": total, "free": free} if total else {}


def _heat(zes: "Any", device: c_void_p) -> "dict[str, Any]":
    """The GPU's and the memory's temperature (sensor kinds 0, 1 and 2); a zero is a sensor that dropped out."""
    found: dict[str, Any] = {}
    for sensor in _handles(zes.zesDeviceEnumTemperatureSensors, device):
        properties, value = _TemperatureProperties(stype=0x14), c_double(0)
        if zes.zesTemperatureGetProperties(sensor, byref(properties)) or zes.zesTemperatureGetState(sensor, byref(value)) or value.value <= 0:
            continue
        field = {0: "temperature_c", 1: "temperature_c", 2: "memory_temperature_c"}.get(properties.type)
        if field and value.value > found.get(field, 0.0):
            found[field] = value.value
    return found
