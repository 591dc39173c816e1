"""Caps a card's power through NVML where that is allowed, reads back what it got, and gives back what was there before; it never decides."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class PowerCap:
    """One card's power cap. Nothing is kept open between calls."""

    def __init__(self, index: int, watts: float) -> None:
        self._index, self._watts, self._before = index, watts, 0

    def _nvml(self) -> "tuple[Any, Any]":
        import pynvml  # type: ignore[import-untyped]

        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(self._index)

    def apply(self) -> str:
        """Set the cap, clamped to what the card allows; the outcome in words."""
        try:
            nvml, handle = self._nvml()
            low, high = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
            before = int(nvml.nvmlDeviceGetPowerManagementLimit(handle))
            wanted = min(max(round(self._watts * 1000), low), high)
            nvml.nvmlDeviceSetPowerManagementLimit(handle, wanted)
            self._before = before
            got = int(nvml.nvmlDeviceGetPowerManagementLimit(handle))
        except Exception as fault:  # noqa: BLE001 - whatever the library raises, the run goes on without a cap and says so
            return f"power cap refused: {type(fault).__name__}: {fault}"
        return f"power limit {got / 1000:g} W (was {before / 1000:g} W, asked {self._watts:g} W)"

    def restore(self) -> str:
        """Give back the limit that was there before; the outcome in words (empty where nothing was changed)."""
        if not self._before:
            return ""
        try:
            nvml, handle = self._nvml()
            nvml.nvmlDeviceSetPowerManagementLimit(handle, self._before)
            got = int(nvml.nvmlDeviceGetPowerManagementLimit(handle))
        except Exception as fault:  # noqa: BLE001
            return f"power limit NOT restored: {type(fault).__name__}: {fault}"
        return f"power limit back at {got / 1000:g} W"
