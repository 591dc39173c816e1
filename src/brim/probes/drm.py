"""Reads what the kernel's graphics drivers put in sysfs and hwmon: which cards there are, and the sensors that they share; it opens no driver.

Files: Documentation/gpu/amdgpu/thermal.rst and driver-misc.rst, Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon, Documentation/hwmon/sysfs-interface.rst.
"""

import os

from brim.probes.vendor import first_line, number_in
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def cards(root: str, vendor: str) -> "list[tuple[str, str]]":
    """(card name, its device folder) of each display controller of a PCI vendor (`0x1002`), in the kernel's order."""
    base = f"{root}/sys/class/drm"
    try:
        names = [name for name in os.listdir(base) if name.startswith("card") and name[4:].isdigit()]
    except OSError:
        return []
    names.sort(key=lambda name: int(name[4:]))
    return [(name, f"{base}/{name}/device") for name in names if first_line(f"{base}/{name}/device/vendor") == vendor]


def pci_of(folder: str) -> "str | Missing":
    """The PCI id behind a device folder: the `PCI_SLOT_NAME` of its uevent, or the name that the link leads to."""
    try:
        with open(f"{folder}/uevent", "rb") as file:
            for line in file.read(4096).decode("ascii", "replace").splitlines():
                if line.startswith("PCI_SLOT_NAME="):
                    return line.partition("=")[2].lower()
    except OSError:
        pass
    name = os.path.basename(os.path.realpath(folder))
    return name.lower() if name.count(":") == 2 else Missing(reason="not_supported", detail=f"{folder} does not say its PCI id")


def hwmon(folder: str) -> str:
    """The card's hwmon folder; empty where it has none."""
    try:
        names = sorted(os.listdir(f"{folder}/hwmon"))
    except OSError:
        return ""
    return f"{folder}/hwmon/{names[0]}" if names else ""


def milli(path: str, divide: float) -> "float | Missing":
    """A sensor's value in whole units, `divide` being 1000 for m°C and 1e6 for µW."""
    value = number_in(path)
    return value if isinstance(value, Missing) else value / divide


def temperatures(folder: str) -> "dict[str, tuple[str, float | Missing]]":
    """Label → (its file's stem, °C) of the temperature sensors of a hwmon folder; a sensor without a label has its own stem for one."""
    found: dict[str, tuple[str, float | Missing]] = {}
    if not folder:
        return found
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return found
    for name in names:
        if name.startswith("temp") and name.endswith("_input"):
            stem = f"{folder}/{name[:-6]}"
            value = milli(f"{folder}/{name}", 1000)
            found[first_line(f"{stem}_label") or name[:-6]] = (
                stem,
                value if isinstance(value, Missing) or value > 0 else Missing(reason="failed", detail=f"{name} reads {value:g} °C"),
            )
    return found


def power(folder: str) -> "dict[str, Any]":
    """The power cells of a hwmon folder, in W."""
    if not folder:
        return {}
    draw = milli(f"{folder}/power1_average", 1e6)
    if isinstance(draw, Missing):
        draw = milli(f"{folder}/power1_input", 1e6)
    cells: dict[str, Any] = {"power_draw_w": draw}
    for field, names in (
        ("power_limit_w", ("power1_cap", "power1_max")),
        ("power_min_w", ("power1_cap_min",)),
        ("power_max_w", ("power1_cap_max", "power1_rated_max")),
        ("power_default_w", ("power1_cap_default",)),
    ):
        for name in names:
            cells[field] = milli(f"{folder}/{name}", 1e6)
            if not isinstance(cells[field], Missing):
                break
    return cells


def fan(folder: str) -> "float | Missing":
    """The fan in % of its pwm range."""
    pwm = number_in(f"{folder}/pwm1")
    return pwm if isinstance(pwm, Missing) else round(pwm / 2.55, 1)


def name_from(table: str, device: str, revision: str) -> str:
    """The card's name in libdrm's `amdgpu.ids` (device, revision, name); empty where the table is not here or does not know it."""
    try:
        with open(table, encoding="utf-8", errors="replace") as file:
            for line in file:
                cells = line.split(",\t")
                if len(cells) == 3 and cells[0].lower() == device.lower() and cells[1].lower() == revision.lower():
                    return cells[2].strip()
    except OSError:
        pass
    return ""
