"""Asks Intel graphics through kernel sysfs (i915 and xe) and, where its loader is here, Level Zero sysman; integrated ones share the host's memory.

An integrated GPU sits at PCI 00:02.0 and has no memory module of its own (Level Zero then enumerates none). A board's size is the driver's own file where there
is one, else its second PCI bar; what is free is what Level Zero says, and `budget.py` does not believe a board whose free is its total while somebody holds some of it
(FIELD_CASES 53). Single zeros of a sensor are no readings.
"""

from brim.facts.device import Device, Memory
from brim.probes import drm
from brim.probes.vendor import Unavailable, first_line, number_in
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VENDOR = "0x8086"
SIZES = ("lmem_total_bytes", "tile0/physical_vram_size_bytes", "device/tile0/physical_vram_size_bytes", "device/lmem_total_bytes")
FREES = ("lmem_avail_bytes", "device/lmem_avail_bytes")


def look(root: str = "", *, library: bool = True) -> tuple[Device, ...]:
    """Every Intel GPU; `Unavailable` where there is none. `library=False` reads sysfs alone."""
    found = drm.cards(root, VENDOR)
    zero: dict[str, dict[str, Any]] = {}
    if library:
        from brim.probes.level_zero import sysman

        zero = sysman()
    if not found and not zero:
        raise Unavailable("not_supported", "the kernel shows no Intel GPU (no i915 or xe device in /sys/class/drm)")
    devices = [_sysfs(index, name, folder, root, zero) for index, (name, folder) in enumerate(found)]
    devices += [_alone(len(devices) + at, pci, cells) for at, (pci, cells) in enumerate(zero.items())]
    return tuple(devices)


def _sysfs(index: int, name: str, folder: str, root: str, zero: "dict[str, dict[str, Any]]") -> Device:
    pci = drm.pci_of(folder)
    extra = zero.pop(pci, {}) if isinstance(pci, str) else {}
    integrated = isinstance(pci, str) and pci.endswith(":00:02.0")
    soc = f"integrated graphics at PCI {pci}" if integrated else ""
    sensors = drm.hwmon(folder)
    heat = drm.temperatures(sensors)
    absent = Missing(reason="not_supported", detail="the kernel shows no such sensor for this GPU")
    clock = number_in(f"{root}/sys/class/drm/{name}/gt_cur_freq_mhz")
    if isinstance(clock, Missing):
        clock = number_in(f"{folder}/tile0/gt0/freq0/cur_freq")
    cells: dict[str, Any] = {
        "id": f"xpu:{index}", "backend": "xpu", "name": extra.get("name") or f"Intel GPU {first_line(f'{folder}/device').removeprefix('0x') or index}", "index": index, "physical_index": index,
        "pci_bus_id": pci, "soc": soc, "clock_sm_mhz": clock, "sources": ("level-zero", "sysfs") if extra else ("sysfs",),
        "temperature_c": (heat.get("pkg") or next(iter(heat.values()), ("", absent)))[1], "memory_temperature_c": heat.get("vram", ("", absent))[1],
        **drm.power(sensors),
    }  # fmt: skip
    for field in ("temperature_c", "memory_temperature_c", "uuid"):
        if isinstance(cells.get(field, absent), Missing) and field in extra:
            cells[field] = extra[field]
    cells["memory"] = Memory() if integrated else _memory(f"{root}/sys/class/drm/{name}", folder, extra)
    return Device(**cells)


def _memory(card: str, folder: str, extra: "dict[str, Any]") -> Memory:
    """A board's memory: Level Zero's sizes where it has any, else what the kernel shows."""
    if isinstance(extra.get("total"), int):
        total, free = extra["total"], extra["free"]
        return Memory(total_bytes=total, free_bytes=free, used_bytes=total - free if isinstance(free, int) else free, available_bytes=free)
    total = next((value for value in (number_in(f"{card}/{name}") for name in SIZES) if isinstance(value, int)), _bar(folder))
    free = next((value for value in (number_in(f"{card}/{name}") for name in FREES) if isinstance(value, int)), Missing(
        reason="not_supported", detail="this kernel does not tell what is free; Level Zero sysman does (libze1)"))  # fmt: skip
    return Memory(
        total_bytes=total, free_bytes=free, available_bytes=free, used_bytes=total - free if isinstance(total, int) and isinstance(free, int) else free
    )


def _bar(folder: str) -> "int | Missing":
    """The size of the second PCI bar, which is the board's memory where the bar is resizable (a 256 MiB window says nothing)."""
    try:
        with open(f"{folder}/resource", encoding="ascii") as file:
            start, end, _flags = (int(word, 16) for word in file.read(4096).splitlines()[2].split())
    except (OSError, ValueError, IndexError):
        return Missing(reason="not_supported", detail="the kernel does not tell the size of this board's memory")
    size = end - start + 1 if end else 0
    return size if size > 256 << 20 else Missing(reason="not_supported", detail="the board's PCI bar is a window that does not tell its size")


def _alone(index: int, pci: str, extra: "dict[str, Any]") -> Device:
    """A GPU that Level Zero shows and sysfs does not."""
    soc = "" if isinstance(extra.get("total"), int) else "Level Zero enumerates no memory module of its own"
    known: dict[str, Any] = {key: extra[key] for key in ("uuid", "temperature_c", "memory_temperature_c") if key in extra}
    memory = Memory() if soc else _memory("/nowhere", "/nowhere", extra)
    known.update(id=f"xpu:{index}", backend="xpu", name=extra.get("name") or f"Intel GPU {pci}", index=index, physical_index=index)
    return Device(**known, pci_bus_id=pci, memory=memory, soc=soc, sources=("level-zero",))
