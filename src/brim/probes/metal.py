"""Asks Metal on a Mac: recommendedMaxWorkingSetSize, unified or not, and the wired limit as a reading; by ctypes, without pyobjc.

Metal framework: MTLCreateSystemDefaultDevice, MTLDevice.recommendedMaxWorkingSetSize, .currentAllocatedSize, .hasUnifiedMemory, .name. `iogpu.wired_limit_mb` is
shown and never used in a budget (DESIGN.md, section 2). Not run on a Mac by our own tests: they drive `device_of` with recorded answers and a stand-in of libobjc.
"""

import ctypes
import sys

from brim.facts.device import Device, Memory
from brim.probes.vendor import Unavailable
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OBJC, METAL, LIBC = "/usr/lib/libobjc.A.dylib", "/System/Library/Frameworks/Metal.framework/Metal", "/usr/lib/libSystem.B.dylib"


def look() -> tuple[Device, ...]:
    """The default Metal device; `Unavailable` where there is none."""
    if not sys.platform.startswith("darwin"):
        raise Unavailable("not_supported", "Metal is on macOS only")
    return (device_of(ask(ctypes.CDLL)),)


def ask(load: "Any") -> "dict[str, object]":
    """The raw answers of Metal, through `load` (ctypes.CDLL, or a test's stand-in)."""
    try:
        objc, metal = load(OBJC), load(METAL)
    except OSError as error:
        raise Unavailable("not_supported", f"Metal cannot be loaded: {error}") from None
    metal.MTLCreateSystemDefaultDevice.restype = ctypes.c_void_p
    objc.sel_registerName.restype = ctypes.c_void_p
    objc.sel_registerName.argtypes = [ctypes.c_char_p]
    device = metal.MTLCreateSystemDefaultDevice()
    if not device:
        raise Unavailable("gone", "Metal has no default device (no window server session?)")

    def send(receiver: object, selector: bytes, result: "Any") -> "Any":
        call = objc.objc_msgSend
        call.restype, call.argtypes = result, [ctypes.c_void_p, ctypes.c_void_p]
        return call(receiver, objc.sel_registerName(selector))

    name = send(send(device, b"name", ctypes.c_void_p), b"UTF8String", ctypes.c_char_p)
    return {
        "name": name.decode("utf-8", "replace") if name else "Apple GPU",
        "recommended": int(send(device, b"recommendedMaxWorkingSetSize", ctypes.c_uint64)),
        "allocated": int(send(device, b"currentAllocatedSize", ctypes.c_uint64)),
        "unified": bool(send(device, b"hasUnifiedMemory", ctypes.c_bool)),
        "wired_limit_mb": _sysctl(load, b"iogpu.wired_limit_mb"),
    }


def _sysctl(load: "Any", name: bytes) -> "int | None":
    """A whole number from sysctl; None where the kernel has no such name."""
    try:
        value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
        if load(LIBC).sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)):
            return None
    except (OSError, AttributeError):
        return None
    return value.value & (0xFFFFFFFF if size.value == 4 else -1)


def device_of(answers: "dict[str, object]") -> Device:
    """A device from Metal's raw answers; a working set of 0 is no number."""
    recommended = answers["recommended"]
    total: int | Missing = (
        recommended if isinstance(recommended, int) and recommended > 0 else Missing(reason="failed", detail="Metal recommends a working set of 0 bytes")
    )
    limit = answers.get("wired_limit_mb")
    unified = bool(answers.get("unified"))
    return Device(
        id="metal:0",
        backend="metal",
        name=str(answers.get("name", "Apple GPU")),
        memory=Memory(total_bytes=total),
        unified=unified,
        unified_because="Metal says hasUnifiedMemory" if unified else "",
        warnings=(f"iogpu.wired_limit_mb is {limit} (0: the system's own); shown, not used",) if isinstance(limit, int) else (),
        sources=("metal",),
    )
