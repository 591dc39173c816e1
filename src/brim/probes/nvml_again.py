"""Asks a card that stood still the same questions once more, straight into kept buffers, and says whether a byte has moved; it interprets nothing but the one time it is armed.

The binding makes a structure, looks a function up and may raise for every cell; for a card whose numbers do not move that is most of what polling costs. Here the
binding's own library handle and structures are used, without its wrappers. Any return code but success ends it: the whole look then says what is wrong. A card
that is at work moves at every look and is never asked twice: the caller arms this only where two whole looks found the same.
"""

import ctypes
from ctypes import byref, c_int, c_uint, c_ulonglong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

MOST_PROCESSES = 16


class Again:
    """The questions of one card, for (field, function of the binding) pairs in the order in which their numbers are compared."""

    __slots__ = ("_buffer", "_calls", "_counts", "_fields", "_last", "_numbers")

    def __init__(self, binding: "Any", handle: object, names: "Iterable[tuple[str, str]]") -> None:
        """`KeyError`, `AttributeError`, `ValueError` or the binding's own error where one of them cannot be asked so."""
        self._calls: list[tuple[Callable[..., int], tuple[Any, ...]]] = []
        self._numbers: list[Callable[[], list[Any]]] = []
        self._buffer: Any = ctypes.create_string_buffer(256 + 64 * MOST_PROCESSES)
        self._counts: list[Any] = []  # in and out: how many processes fit, how many there are
        self._fields: list[Any] = []  # these carry the time of the reading, which moves always
        self._last: tuple[bytes, list[tuple[int, int]]] | None = None
        at = 0
        for _field, name in names:
            if name == "nvmlDeviceGetFieldValues":
                self._memory_temperature(binding, handle, name)
            elif name == "nvmlDeviceGetComputeRunningProcesses_v3":
                at = self._processes(binding, handle, name, at)
            else:
                called, kind, given, first, numbers = _cell(binding, name)
                cell, at = self._place(kind, at)
                for key, value in given.items():
                    setattr(cell, key, value)
                self._calls.append((function(binding, called), (handle, *first, byref(cell))))
                self._numbers.append(lambda cell=cell, numbers=numbers: numbers(cell))  # type: ignore[misc]

    def _place(self, kind: "Any", at: int) -> "tuple[Any, int]":
        """A structure in the buffer, and where the next one goes."""
        return kind.from_buffer(self._buffer, at), at + -(-ctypes.sizeof(kind) // 8) * 8

    def _processes(self, binding: "Any", handle: object, name: str, at: int) -> int:
        count, at = self._place(c_uint, at)
        rows, after = self._place(binding.c_nvmlProcessInfo_v3_t * MOST_PROCESSES, at)
        self._counts.append(count)
        self._calls.append((function(binding, name), (handle, byref(count), rows)))
        unknown = binding.NVML_VALUE_NOT_AVAILABLE_ulonglong.value

        def numbers() -> "list[Any]":
            found = []
            for row in rows[: count.value]:
                found += [row.pid, None if row.usedGpuMemory == unknown else row.usedGpuMemory]
            return [*found, None]

        self._numbers.append(numbers)
        return after

    def _memory_temperature(self, binding: "Any", handle: object, name: str) -> None:
        field = (binding.c_nvmlFieldValue_t * 1)()
        field[0].fieldId = binding.NVML_FI_DEV_MEMORY_TEMP
        self._fields.append(field[0])
        self._calls.append((function(binding, name), (handle, c_int(1), byref(field))))
        self._numbers.append(lambda: [field[0].nvmlReturn, field[0].value.uiVal])

    def _ask(self) -> bool:
        """Ask everything; False where one did not answer, and at once."""
        for count in self._counts:
            count.value = MOST_PROCESSES
        return not any(call(*words) for call, words in self._calls)

    def arm(self, known: "tuple[Any, ...]") -> bool:
        """Keep what is there now as what nothing has moved from, if its numbers are the `known` ones (`nvml_cells.raw_of`)."""
        self._last = self._bytes() if self._ask() and [value for part in self._numbers for value in part()] == list(known) else None
        return self._last is not None

    def still(self) -> bool:
        """Whether everything answers and is as it was."""
        return self._last is not None and self._ask() and self._bytes() == self._last

    def _bytes(self) -> "tuple[bytes, list[tuple[int, int]]]":
        return self._buffer.raw, [(field.nvmlReturn, field.value.uiVal) for field in self._fields]


def again(binding: "Any", handle: object, names: "Iterable[tuple[str, str]]", known: "tuple[Any, ...]") -> "Again | None":
    """The questions of a card whose numbers are `known`, armed; None where one cannot be asked so, or something has moved meanwhile."""
    try:
        made = Again(binding, handle, names)
    except (KeyError, AttributeError, TypeError, ValueError, binding.NVMLError):
        return None
    return made if made.arm(known) else None


def _cell(binding: "Any", name: str) -> "tuple[str, Any, dict[str, int], tuple[Any, ...], Callable[[Any], list[Any]]]":
    """(library function, structure of the answer, what is set in it before, what is given before it, its numbers) of a function of the binding; `KeyError`: not known here."""
    if name == "nvmlDeviceGetMemoryInfo":
        return f"{name}_v2", binding.c_nvmlMemory_v2_t, {"version": binding.nvmlMemory_v2}, (), lambda cell: [cell.total, cell.free, cell.used, cell.reserved]
    if name == "nvmlDeviceGetTemperatureV":
        return name, binding.c_nvmlTemperature_v1_t, {"version": binding.nvmlTemperature_v1, "sensorType": 0}, (), lambda cell: [cell.temperature]
    if name == "nvmlDeviceGetUtilizationRates":
        return name, binding.c_nvmlUtilization_t, {}, (), lambda cell: [cell.gpu]
    kind, first = {
        "nvmlDeviceGetTemperature": (c_uint, (c_int(0),)),
        "nvmlDeviceGetPowerUsage": (c_uint, ()),
        "nvmlDeviceGetCurrentClocksEventReasons": (c_ulonglong, ()),
        "nvmlDeviceGetCurrentClocksThrottleReasons": (c_ulonglong, ()),
    }[name]
    return name, kind, {}, first, lambda cell: [cell.value]


def function(binding: "Any", name: str) -> "Callable[..., int]":
    """The library's own function, as the binding finds it; `AttributeError` where this version of the binding finds it otherwise."""
    found: Callable[..., int] = binding._nvmlGetFunctionPointer(name)  # noqa: SLF001 - its public functions wrap exactly this
    return found
