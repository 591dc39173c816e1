"""Reads the temperatures of CPU and NVMe drives from the kernel's hwmon and thermal classes; the sensors are found once and kept open."""

import os

from brim.probes.kept import Kept
from brim.probes.vendor import first_line
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CPU_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "scpi_sensors")
CPU_ZONES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "CPU-therm", "soc-thermal", "acpitz")


class Heat:
    """The hottest CPU sensor with its critical limit, and the hottest NVMe sensor, in °C."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._cpu: list[Kept] | None = None
        self._nvme: list[Kept] = []
        self._critical: float | Missing = Missing(reason="not_supported", detail="no CPU sensor tells its limit")

    def read(self) -> "dict[str, Any]":
        """Cells of `facts.device.Host`."""
        if self._cpu is None:
            self._find()
        return {
            "cpu_temperature_c": _hottest(self._cpu or [], "no CPU temperature sensor is in /sys/class/hwmon or /sys/class/thermal"),
            "cpu_critical_temperature_c": self._critical,
            "nvme_temperature_c": _hottest(self._nvme, "no NVMe temperature sensor is in /sys/class/hwmon"),
        }

    def fds(self) -> list[int]:
        """The open files of the CPU's sensors, in m°C."""
        return [file.fd for file in self._cpu or () if file.fd >= 0]

    def _find(self) -> None:
        self._cpu = []
        base = "/sys/class/hwmon"
        for chip in _listing(self._root + base):
            name = first_line(f"{self._root}{base}/{chip}/name")
            inputs = [f"{base}/{chip}/{file}" for file in _listing(f"{self._root}{base}/{chip}") if file.startswith("temp") and file.endswith("_input")]
            if name in CPU_CHIPS:
                self._cpu += [Kept(self._root, path, size=32) for path in inputs]
                for path in inputs:
                    limit = first_line(f"{self._root}{path.removesuffix('_input')}_crit")
                    if isinstance(self._critical, Missing) and limit.isdigit() and int(limit) > 0:
                        self._critical = int(limit) / 1000
            elif name == "nvme":
                self._nvme += [Kept(self._root, path, size=32) for path in inputs]
        if not self._cpu:
            base = "/sys/class/thermal"
            zones = {first_line(f"{self._root}{base}/{zone}/type"): zone for zone in _listing(self._root + base) if zone.startswith("thermal_zone")}
            found = next((zones[kind] for kind in CPU_ZONES if kind in zones), None)
            if found:
                self._cpu = [Kept(self._root, f"{base}/{found}/temp", size=32)]

    def close(self) -> None:
        """Let the sensors go."""
        for file in (*(self._cpu or ()), *self._nvme):
            file.close()


def _listing(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _hottest(files: "list[Kept]", absent: str) -> "float | Missing":
    """The highest of some m°C files, in °C; a reading of 0 or below is none."""
    best: float | Missing = Missing(reason="not_supported", detail=absent)
    for file in files:
        text = file.read()
        if isinstance(text, Missing):
            best = text if isinstance(best, Missing) else best
            continue
        word = text.strip()
        value = int(word) / 1000 if word.isdigit() else 0.0
        if value > 0 and (isinstance(best, Missing) or value > best):
            best = value
    return best
