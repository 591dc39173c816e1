"""Asks a card that stood still the same questions once more, straight into kept buffers, to tell whether a byte has moved; it interprets nothing but the once it is armed.

The binding makes a structure, looks a function up and may raise for every cell; for a card whose numbers do not move that is most of what polling costs. Here the
binding's own library handle and structures are used, without its wrappers, and the same few for all cards: what a poll a second touches has to come back into the
processor's caches each time. Any return code but success ends it: the whole look then says what is wrong. A card that is at work moves at every look and is never
asked twice: the caller arms this only where two whole looks found the same.
"""

import ctypes
from ctypes import byref, c_int, c_uint, c_ulonglong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST_PROCESSES = 16
FIELDS, PROCESSES = "nvmlDeviceGetFieldValues", "nvmlDeviceGetComputeRunningProcesses_v3"


class Questions:
    """What is asked, by the names of the binding's functions in the order in which their numbers are compared; the same for every card with the same plan."""

    __slots__ = ("_buffer", "_calls", "_count", "_field", "_numbers", "_row_bytes", "_used", "_view")

    def __init__(self, binding: "Any", names: "tuple[str, ...]") -> None:
        """`KeyError`, `AttributeError`, `ValueError` or the binding's own error where one of them cannot be asked so."""
        self._calls: list[tuple[Callable[..., int], tuple[Any, ...]]] = []
        self._numbers: list[Callable[[], list[Any]]] = []
        self._buffer: Any = ctypes.create_string_buffer(256 + 32 * MOST_PROCESSES)
        self._view = memoryview(self._buffer)
        self._used = self._row_bytes = 0
        self._count: Any = None  # in and out: how many processes fit, how many there are
        self._field: Any = None  # carries the time of its reading, which moves always
        for name in sorted(names, key=lambda name: name == PROCESSES):  # of variable length: last in the buffer
            if name == FIELDS:
                self._memory_temperature(binding)
            elif name == PROCESSES:
                self._processes(binding)
            else:
                called, kind, given, first, numbers = _cell(binding, name)
                cell = self._place(kind)
                for key, value in given.items():
                    setattr(cell, key, value)
                self._calls.append((function(binding, called), (*first, byref(cell))))
                self._numbers.append(lambda cell=cell, numbers=numbers: numbers(cell))  # type: ignore[misc]
        order = sorted(range(len(names)), key=lambda at: names[at] == PROCESSES)
        self._numbers = [self._numbers[order.index(at)] for at in range(len(names))]

    def _place(self, kind: "Any") -> "Any":
        """The next structure in the buffer."""
        cell = kind.from_buffer(self._buffer, self._used)
        self._used += -(-ctypes.sizeof(kind) // 8) * 8
        return cell

    def _processes(self, binding: "Any") -> None:
        count = self._count = self._place(c_uint)
        rows = (binding.c_nvmlProcessInfo_v3_t * MOST_PROCESSES).from_buffer(self._buffer, self._used)
        self._row_bytes = ctypes.sizeof(binding.c_nvmlProcessInfo_v3_t)
        self._calls.append((function(binding, PROCESSES), (byref(count), rows)))
        unknown = binding.NVML_VALUE_NOT_AVAILABLE_ulonglong.value

        def numbers() -> "list[Any]":
            found = []
            for row in rows[: count.value]:
                found += [row.pid, None if row.usedGpuMemory == unknown else row.usedGpuMemory]
            return [*found, None]

        self._numbers.append(numbers)

    def _memory_temperature(self, binding: "Any") -> None:
        field = self._field = self._place(binding.c_nvmlFieldValue_t)
        field.fieldId = binding.NVML_FI_DEV_MEMORY_TEMP
        self._calls.append((function(binding, FIELDS), (c_int(1), byref(field))))
        self._numbers.append(lambda: [field.nvmlReturn, field.value.uiVal])

    def ask(self, handle: object) -> "bytes | None":
        """Everything that one card answers, as it stands in memory; None where it did not answer one."""
        if self._count is not None:
            self._count.value = MOST_PROCESSES
        for call, words in self._calls:
            if call(handle, *words):
                return None
        if self._field is not None:
            self._field.timestamp = self._field.latencyUsec = 0
        return bytes(self._view[: self._used + (0 if self._count is None else self._count.value * self._row_bytes)])

    def numbers(self) -> "list[Any]":
        """The numbers of the last answers, as `nvml_cells.raw_of` gives them."""
        return [value for part in self._numbers for value in part()]


def arm(
    binding: "Any", handle: object, names: "tuple[str, ...]", known: "tuple[Any, ...]", made: "dict[tuple[str, ...], Questions]"
) -> "tuple[Questions, bytes] | None":
    """The questions of a card whose numbers are `known`, and what it answers now; None where one cannot be asked so, or something has moved. `made`: those made before."""
    try:
        questions = made.get(names) or Questions(binding, names)
    except (KeyError, AttributeError, TypeError, ValueError, binding.NVMLError):
        return None
    made[names] = questions
    answer = questions.ask(handle)
    return None if answer is None or questions.numbers() != list(known) else (questions, answer)


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
