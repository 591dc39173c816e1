"""Asks AMD cards through kernel sysfs and hwmon, and through amdsmi where that extra is installed; an APU's carve-out and its GTT are told apart.

How an APU is known: its gpu_metrics table has format 2 or 3 (kernel, kgd_pp_interface.h: 1 is for boards), or its KFD node has CPU cores beside SIMDs, or its
carve-out is at most 1 GiB beside a GTT of eight times that. Covered: what sysfs says without a library. amdsmi adds names, processes and ECC.
amdsmi prints to stdout and raises KeyError at import where its library is missing: `child.py` gives it no stdout, and every exception here is an answer.
"""

import os

from brim.facts.device import Device, Memory, Process
from brim.probes import drm
from brim.probes.vendor import Unavailable, first_line, number_in
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VENDOR = "0x1002"
HOTTEST_C = 200  # above this a sensor says that it has no value (65535, or all ones)


def look(root: str = "", binding: "Any" = None, *, library: bool = True) -> tuple[Device, ...]:
    """Every AMD card; `Unavailable` where there is none. `library=False` reads sysfs alone (cheap, for polling)."""
    found = drm.cards(root, VENDOR)
    if len(found) > 1:  # ROCm numbers its GPUs as KFD numbers its nodes
        nodes = _kfd_nodes(root)
        found.sort(key=lambda card: nodes.get(str(drm.pci_of(card[1])), len(nodes)))
    smi = _smi(binding) if library else {}
    if not found and not smi:
        raise Unavailable("not_supported", "the kernel shows no AMD card (no amdgpu device in /sys/class/drm)")
    devices = []
    for index, (_name, folder) in enumerate(found):
        cells = _sysfs(index, folder, root)
        extra = smi.pop(cells["pci_bus_id"], None) if isinstance(cells["pci_bus_id"], str) else None
        devices.append(Device(**(_merged(cells, extra) if extra else cells)))
    devices += [Device(**_alone(len(devices) + at, pci, extra)) for at, (pci, extra) in enumerate(smi.items())]
    return tuple(devices)


def _sysfs(index: int, folder: str, root: str) -> "dict[str, Any]":
    """One card's cells from the kernel."""
    sensors = drm.hwmon(folder)
    heat = drm.temperatures(sensors)
    absent = Missing(reason="not_supported", detail="the card has no such sensor in hwmon")
    edge = heat.get("junction") or heat.get("edge") or next(iter(heat.values()), ("", absent))
    vram, vram_used = number_in(f"{folder}/mem_info_vram_total"), number_in(f"{folder}/mem_info_vram_used")
    gtt, gtt_used = number_in(f"{folder}/mem_info_gtt_total"), number_in(f"{folder}/mem_info_gtt_used")
    soc = _soc(folder, root, vram, gtt)
    device, revision = first_line(f"{folder}/device").removeprefix("0x"), first_line(f"{folder}/revision").removeprefix("0x")
    name = first_line(f"{folder}/product_name") or drm.name_from(f"{root}/usr/share/libdrm/amdgpu.ids", device, revision) or f"AMD GPU {device or index}"
    busy, crit = number_in(f"{folder}/gpu_busy_percent"), drm.milli(f"{edge[0]}_crit", 1000) if edge[0] else absent
    unique = first_line(f"{folder}/unique_id")
    fatal = number_in(f"{folder}/ras/umc_err_count")
    return {
        "id": f"rocm:{index}", "backend": "rocm", "name": name, "index": index, "physical_index": index, "pci_bus_id": drm.pci_of(folder),
        "uuid": f"GPU-{unique}" if unique else Missing(reason="not_supported", detail="the card has no unique_id"),
        "memory": _memory(vram, vram_used, gtt, gtt_used, shared=bool(soc)), "soc": soc,
        "temperature_c": edge[1], "memory_temperature_c": heat.get("mem", ("", absent))[1], "slowdown_temperature_c": crit,
        "shutdown_temperature_c": drm.milli(f"{edge[0]}_emergency", 1000) if edge[0] else absent,
        "utilisation_percent": float(busy) if isinstance(busy, int) else busy, "fan_percent": drm.fan(sensors) if sensors else absent,
        "driver_version": first_line(f"{root}/sys/module/amdgpu/version") or Missing(reason="not_supported", detail="the in-kernel driver has no version"),
        "ecc_uncorrected": fatal, "sources": ("sysfs",), **drm.power(sensors),
    }  # fmt: skip


def _memory(vram: "int | Missing", used: "int | Missing", gtt: "int | Missing", gtt_used: "int | Missing", *, shared: bool) -> Memory:
    """VRAM for a board; for an APU carve-out and GTT, each under its own name."""
    if shared:
        return Memory(total_bytes=vram, used_bytes=gtt_used, carve_out_bytes=vram, shared_total_bytes=gtt, shared_used_bytes=gtt_used)
    free: int | Missing
    if isinstance(vram, int) and isinstance(used, int):
        free = vram - used if vram >= used else Missing(reason="failed", detail=f"the driver says {used} of {vram} bytes are used, which cannot be")
    else:
        free = used if isinstance(used, Missing) else vram
    return Memory(total_bytes=vram, used_bytes=used, free_bytes=free, available_bytes=free)


def _soc(folder: str, root: str, vram: "int | Missing", gtt: "int | Missing") -> str:
    """How we know that the card is an APU whose pool is GTT; nothing for a board, or for an APU whose carve-out is larger than its GTT."""
    if isinstance(vram, int) and isinstance(gtt, int) and vram > gtt:
        return ""
    try:
        with open(f"{folder}/gpu_metrics", "rb") as file:
            head = file.read(4)
    except OSError:
        head = b""
    if len(head) == 4 and head[2] in (2, 3):
        return f"its gpu_metrics table is an APU's (format {head[2]}.{head[3]})"
    if len(head) == 4 and head[2] == 1:
        return ""
    nodes = f"{root}/sys/class/kfd/kfd/topology/nodes"
    for node in sorted(os.listdir(nodes)) if os.path.isdir(nodes) else ():
        words = _properties(f"{nodes}/{node}/properties")
        if words.get("cpu_cores_count", 0) and words.get("simd_count", 0):
            return f"KFD node {node} has CPU cores beside its SIMDs"
    if isinstance(vram, int) and isinstance(gtt, int) and 0 < vram <= 1 << 30 and gtt >= 8 * vram:
        return f"its carve-out of {vram >> 20} MiB is a fraction of its GTT"
    return ""


def _kfd_nodes(root: str) -> dict[str, int]:
    """PCI id → place among the GPUs of KFD's topology (amdkfd, kfd_topology.c: `location_id` is bus, device and function in one number, beside `domain`)."""
    nodes = f"{root}/sys/class/kfd/kfd/topology/nodes"
    found: dict[str, int] = {}
    names = [name for name in os.listdir(nodes) if name.isdecimal()] if os.path.isdir(nodes) else []
    for name in sorted(names, key=int):
        words = _properties(f"{nodes}/{name}/properties")
        if words.get("simd_count") and (place := words.get("location_id")) is not None:
            found[f"{words.get('domain', 0):04x}:{place >> 8 & 255:02x}:{place >> 3 & 31:02x}.{place & 7:x}"] = len(found)
    return found


def _properties(path: str) -> dict[str, int]:
    try:
        with open(path, "rb") as file:
            rows = [line.split() for line in file.read(1 << 16).decode("ascii", "replace").splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _smi(binding: "Any") -> "dict[str, dict[str, Any]]":
    """PCI id → cells from amdsmi; nothing where the extra is not installed or its library is not here."""
    if binding is None:
        try:
            binding = __import__("amdsmi")
        except Exception:  # noqa: BLE001 - without its library amdsmi raises KeyError at import, older ones AttributeError
            return {}
    try:
        binding.amdsmi_init()
        handles = binding.amdsmi_get_processor_handles()
    except Exception:  # noqa: BLE001 - its own error class is only known after a good import
        return {}
    found = {}
    for handle in handles:
        pci = _try(binding, "amdsmi_get_gpu_device_bdf", handle)
        if isinstance(pci, str):
            found[pci.lower()] = _smi_cells(binding, handle)
    return found


def _try(binding: "Any", call: str, *args: object) -> "Any":
    """The call's value or why there is none (amdsmi status 2 is not supported, 9 and 10 no permission, 14 busy…; amdsmi.h, amdsmi_status_t)."""
    try:
        return _known(getattr(binding, call)(*args), call)
    except Exception as error:  # noqa: BLE001 - amdsmi has a family of its own
        code = getattr(error, "err_code", None)
        reason = {2: "not_supported", 3: "not_supported", 10: "denied", 31: "gone"}.get(code if isinstance(code, int) else -1, "failed")
        return Missing(reason=reason, detail=f"{call}: {' '.join(str(error).split())}")


def _known(value: "Any", what: str) -> "Any":
    """The value; all ones in 64 or 32 bits is how amdsmi leaves a number out (amdsmi_interface.py, _validate_if_max_uint)."""
    return Missing(reason="not_supported", detail=f"{what}: all ones") if value in ((1 << 64) - 1, (1 << 32) - 1) and isinstance(value, int) else value


def _smi_cells(binding: "Any", handle: object) -> "dict[str, Any]":
    """What amdsmi tells of one card; cells that it does not have stay out."""
    asic = _try(binding, "amdsmi_get_gpu_asic_info", handle)
    heat = {}
    for field, sensor in (("temperature_c", "HOTSPOT"), ("edge", "EDGE"), ("memory_temperature_c", "VRAM")):
        kind, metric = getattr(binding.AmdSmiTemperatureType, sensor), binding.AmdSmiTemperatureMetric.CURRENT
        value = _try(binding, "amdsmi_get_temp_metric", handle, kind, metric)
        heat[field] = (
            float(value)
            if isinstance(value, (int, float)) and 0 < value <= HOTTEST_C
            else value
            if isinstance(value, Missing)
            else Missing(reason="failed", detail=f"the sensor reads {value} °C")
        )
    edge = heat.pop("edge")
    if isinstance(heat["temperature_c"], Missing):
        heat["temperature_c"] = edge
    sizes = {}
    for word in ("VRAM", "GTT"):
        kind = getattr(binding.AmdSmiMemoryType, word)
        sizes[word] = (_try(binding, "amdsmi_get_gpu_memory_total", handle, kind), _try(binding, "amdsmi_get_gpu_memory_usage", handle, kind))
    errors = _try(binding, "amdsmi_get_gpu_total_ecc_count", handle)
    return {
        "name": asic["market_name"].strip() if isinstance(asic, dict) and asic.get("market_name") not in (None, "", "N/A") else "",
        "uuid": _try(binding, "amdsmi_get_gpu_device_uuid", handle),
        "sizes": sizes,
        "heat": heat,
        "processes": _holders(_try(binding, "amdsmi_get_gpu_process_list", handle)),
        "ecc_uncorrected": _known(errors["uncorrectable_count"], "amdsmi_get_gpu_total_ecc_count") if isinstance(errors, dict) else errors,
    }


def _holders(rows: "Any") -> "tuple[Process, ...] | Missing":
    if isinstance(rows, Missing):
        return rows
    held = []
    for row in rows:
        used = _known(row.get("memory_usage", {}).get("vram_mem") or row.get("mem") or 0, "amdsmi_get_gpu_process_list")
        if isinstance(row.get("pid"), int) and row["pid"] > 0:
            held.append(
                Process(
                    pid=row["pid"],
                    used_bytes=used if isinstance(used, Missing) else int(used),
                    name="" if row.get("name") in (None, "N/A") else str(row["name"]).rsplit("/", maxsplit=1)[-1],
                )
            )
    return tuple(sorted(held, key=lambda p: -p.used_bytes if isinstance(p.used_bytes, int) else 0))


def _merged(cells: "dict[str, Any]", extra: "dict[str, Any]") -> "dict[str, Any]":
    """Sysfs first (it cannot hang); amdsmi where sysfs is silent, and for what only amdsmi has."""
    for field, value in (*extra["heat"].items(), ("uuid", extra["uuid"]), ("ecc_uncorrected", extra["ecc_uncorrected"])):
        if isinstance(cells[field], Missing) and not isinstance(value, Missing):
            cells[field] = value
    return {**cells, "name": extra["name"] or cells["name"], "processes": extra["processes"], "sources": ("amdsmi", "sysfs")}


def _alone(index: int, pci: str, extra: "dict[str, Any]") -> "dict[str, Any]":
    """A card that amdsmi shows and sysfs does not (a container without /sys/class/drm)."""
    (vram, used), (gtt, gtt_used) = extra["sizes"]["VRAM"], extra["sizes"]["GTT"]
    soc = _soc("", "/nowhere", vram, gtt)
    return {
        "id": f"rocm:{index}", "backend": "rocm", "name": extra["name"] or f"AMD GPU {pci}", "index": index, "physical_index": index, "pci_bus_id": pci, "uuid": extra["uuid"],
        "memory": _memory(vram, used, gtt, gtt_used, shared=bool(soc)), "soc": soc, "processes": extra["processes"], "ecc_uncorrected": extra["ecc_uncorrected"],
        "sources": ("amdsmi",), **extra["heat"],
    }  # fmt: skip
