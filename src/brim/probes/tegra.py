"""Asks a Jetson's kernel for its GPU: load and temperature from sysfs; its memory is the host's. NVML there answers with zeros or not at all.

Files: /proc/device-tree/compatible, /sys/class/thermal/thermal_zone*/type (`gpu-thermal`, `GPU-therm`, `tj-thermal`), the GPU's `load` in permille. (FIELD_CASES 7.)
"""

import os

from brim.facts.device import Device, Memory
from brim.probes.vendor import Unavailable, first_line, number_in
from brim.values import Missing

LOADS = (
    "/sys/devices/gpu.0/load",
    "/sys/devices/platform/gpu.0/load",
    "/sys/devices/platform/bus@0/17000000.gpu/load",
    "/sys/devices/17000000.ga10b/load",
    "/sys/devices/platform/17000000.gpu/load",
)
ZONES = ("gpu-thermal", "GPU-therm", "gpu_thermal", "tj-thermal")


def look(root: str = "") -> tuple[Device, ...]:
    """The one GPU of a Jetson; `Unavailable` on another machine."""
    compatible = first_line(f"{root}/proc/device-tree/compatible")
    chip = next((word for word in compatible.split("\0") if "nvidia,tegra" in word), "")
    if not chip:
        raise Unavailable("not_supported", "this is no Tegra system-on-chip")
    busy = next((value for value in (number_in(root + path) for path in LOADS) if isinstance(value, int)), None)
    name = first_line(f"{root}/proc/device-tree/model") or chip
    return (
        Device(
            id="cuda:0",
            backend="cuda",
            name=name,
            memory=Memory(),
            soc=f"the device tree says {chip}",
            physical_index=0,
            temperature_c=_temperature(root),
            utilisation_percent=busy / 10 if busy is not None else Missing(reason="not_supported", detail="no load file of the GPU is where we know one"),
            sources=("sysfs",),
        ),
    )


def _temperature(root: str) -> "float | Missing":
    base = f"{root}/sys/class/thermal"
    try:
        zones = sorted(os.listdir(base))
    except OSError:
        zones = []
    kinds = {first_line(f"{base}/{zone}/type"): zone for zone in zones if zone.startswith("thermal_zone")}
    for kind in ZONES:
        if kind in kinds:
            value = number_in(f"{base}/{kinds[kind]}/temp")
            return value if isinstance(value, Missing) else value / 1000
    return Missing(reason="not_supported", detail="no thermal zone of the GPU or the junction is here")


def filled(device: Device, own: Device) -> Device:
    """An NVML row of a Jetson with the kernel's temperature and load where NVML has none or zeros."""
    changes: dict[str, object] = {"soc": own.soc}
    if isinstance(device.temperature_c, Missing):
        changes["temperature_c"] = own.temperature_c
    if isinstance(device.utilisation_percent, Missing) or device.utilisation_percent == 0:
        changes["utilisation_percent"] = own.utilisation_percent
    if isinstance(device.processes, tuple):
        changes["processes"] = tuple(process for process in device.processes if process.name)
    return device.replace(**changes)
