"""Looks, by files alone, which vendors' devices and libraries are here, so that nothing is loaded or started on a machine that has none of them.

Guarantees: opens no device and no library; costs a few directory listings. Also: the rows of NVIDIA cards that the kernel or the driver's /proc shows
when their library does not answer, so that no card is lost because its telemetry is.
"""

import os
import sys

from brim.facts.device import Device
from brim.probes.vendor import first_line, row_without
from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
    "/usr/lib/aarch64-linux-gnu/nvidia", "/run/opengl-driver/lib",
)  # fmt: skip


class Present(Record):
    """What is here: display controllers by PCI vendor id, libraries and programs by path (empty: not here)."""

    controllers: tuple[tuple[str, str], ...]
    nvml: str
    nvidia_smi: str
    tegra: bool
    level_zero: str
    mac: bool

    def has(self, vendor: str) -> bool:
        """Whether a display controller of this PCI vendor (`0x10de`) is here."""
        return any(own == vendor for _pci, own in self.controllers)


def look(root: str, environment: "Mapping[str, str]") -> Present:
    """What is here, from sysfs, the linker's cache and the search paths."""
    return Present(
        controllers=_controllers(root),
        nvml=_library("libnvidia-ml.so.1", root, environment),
        nvidia_smi=program_of("nvidia-smi", environment),
        tegra="nvidia,tegra" in first_line(f"{root}/proc/device-tree/compatible"),
        level_zero=_library("libze_loader.so.1", root, environment),
        mac=sys.platform == "darwin",
    )


def _controllers(root: str) -> tuple[tuple[str, str], ...]:
    """(PCI id or card name, vendor) of each display controller and accelerator that the kernel shows."""
    found: dict[str, str] = {}
    base = f"{root}/sys/class/drm"
    for name in _listing(base):
        if name.startswith("card") and name[4:].isdigit():
            found[os.path.basename(os.path.realpath(f"{base}/{name}/device"))] = first_line(f"{base}/{name}/device/vendor")
    base = f"{root}/sys/bus/pci/devices"
    for name in _listing(base):
        if name not in found and first_line(f"{base}/{name}/class").startswith("0x03"):
            found[name] = first_line(f"{base}/{name}/vendor")
    return tuple(sorted(found.items()))


def _listing(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _library(name: str, root: str, environment: "Mapping[str, str]") -> str:
    """Where the linker would find the library: LD_LIBRARY_PATH, its usual folders, its cache (looked at as bytes)."""
    for folder in environment.get("LD_LIBRARY_PATH", "").split(":"):
        if folder and os.path.exists(f"{folder}/{name}"):
            return f"{folder}/{name}"
    for folder in LIBRARY_FOLDERS:
        if os.path.exists(f"{root}{folder}/{name}"):
            return f"{root}{folder}/{name}"
    try:
        with open(f"{root}/etc/ld.so.cache", "rb") as file:
            return name if name.encode() + b"\0" in file.read(8 << 20) else ""
    except OSError:
        return ""


def program_of(name: str, environment: "Mapping[str, str]") -> str:
    """Where a program is on the given PATH; empty where it is not."""
    for folder in environment.get("PATH", os.defpath).split(":"):
        path = f"{folder}/{name}"
        if folder and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return ""


def nvidia_rows(root: str, why: Missing) -> tuple[Device, ...]:
    """The NVIDIA cards that /proc/driver/nvidia or PCI shows, without readings, for the reason given."""
    base = f"{root}/proc/driver/nvidia/gpus"
    rows: list[tuple[str, str, str | Missing]] = []
    untold = Missing(reason="not_supported", detail="the kernel does not tell it")
    for pci in _listing(base):
        words: dict[str, str] = {}
        try:
            with open(f"{base}/{pci}/information", encoding="utf-8", errors="replace") as file:
                words = {key.strip(): value.strip() for key, _colon, value in (line.partition(":") for line in file)}
        except OSError:
            pass
        uuid = words.get("GPU UUID", "")
        rows.append((pci.lower(), words.get("Model", "NVIDIA GPU"), uuid if uuid.startswith("GPU-") and "?" not in uuid else untold))
    if not rows:
        base = f"{root}/sys/bus/pci/devices"
        for pci, vendor in _controllers(root):
            if vendor == "0x10de" and pci.count(":") == 2:
                rows.append((pci, f"NVIDIA GPU {first_line(f'{base}/{pci}/device')}".strip(), untold))
    devices = []
    for index, (pci, name, uid) in enumerate(rows):
        known = {"id": f"cuda:{index}", "backend": "cuda", "name": name, "index": index, "physical_index": index, "pci_bus_id": pci, "uuid": uid}
        devices.append(row_without(known, why, state="unreachable", source="kernel"))
    return tuple(devices)
