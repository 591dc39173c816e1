"""Caps a card's power through NVML where that is allowed, reads back what it got, and gives back what was there before; it never decides."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


AGAIN, SAME_MW = 5, 1000


class PowerCap:
    """One card's power cap. Nothing is kept open between calls."""

    def __init__(self, index: int, watts: float) -> None:
        self._index, self._watts, self._before = index, watts, 0
        self._set, self._again = 0, 0

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
            self._before = self._before or before
            got = self._set = int(nvml.nvmlDeviceGetPowerManagementLimit(handle))
        except Exception as fault:  # noqa: BLE001 - whatever the library raises, the run goes on without a cap and says so
            return f"power cap refused: {type(fault).__name__}: {fault}"
        return f"power limit {got / 1000:g} W (was {before / 1000:g} W, asked {self._watts:g} W)"

    def again(self, limit_w: object) -> str:
        """Set the cap once more where the card's limit, as it was last read (W), is no longer what was set; empty where it is, or where that cannot be told.

        At most `AGAIN` times: a service that insists is told about and left its way.
        """
        if not self._set or not isinstance(limit_w, (int, float)) or abs(limit_w * 1000 - self._set) < SAME_MW or self._again > AGAIN:
            return ""
        now_w = self._now_w()  # the reading may be from before the cap: limits are read seldom
        if now_w is None or abs(now_w * 1000 - self._set) < SAME_MW:
            return ""
        self._again += 1
        said = f"something else has set the power limit to {now_w:g} W"
        return f"{said}, for the {self._again}th time: left so" if self._again > AGAIN else f"{said}; {self.apply()}"

    def _now_w(self) -> "float | None":
        try:
            nvml, handle = self._nvml()
            return int(nvml.nvmlDeviceGetPowerManagementLimit(handle)) / 1000
        except Exception:  # noqa: BLE001 - a card that does not answer now is asked again at the next look
            return None

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
