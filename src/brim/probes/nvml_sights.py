"""Lays out what NVML is asked of each card at every poll as calls for the loop in vigil.c, each number with how far it may go; it calls none of them itself.

The functions are the library's own, as the binding finds them, with the structures of the binding; every card has buffers of its own. What the whole look (nvml.py)
found is what the numbers are held against, so that the loop comes back for what `facts.moves` calls news, and for every return code but the one that the card gave
before. A card of which the memory or the processes cannot be read, or whose driver answers in another form than the newest, cannot be kept an eye on so: None, and every
look is a whole one.
"""

import ctypes
import sys
from ctypes import c_uint, c_ulonglong

from brim.facts import moves
from brim.probes import vigil
from brim.probes.nvml_again import FIELDS, MOST_PROCESSES, PROCESSES, function
from brim.probes.nvml_cells import IS_LOST, TIMEOUT
from brim.probes.vigil import CALL, Sight
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.probes.nvml import Nvml, _Card

    Band = tuple[int, int]

ECC_NS = 2_000_000_000  # counted errors are told within this
SENSORS = ("temperature_c", "power_draw_w")
_ECC = "nvmlDeviceGetTotalEccErrors"


class Questions:
    """The sights of all cards of one open NVML, made anew only where what is asked has changed. `loop` is the built library."""

    def __init__(self, probe: "Nvml", loop: "Any") -> None:
        self._probe, self._binding, self._loop = probe, probe.binding, loop
        self._made: dict[tuple[object, ...], Sight] = {}
        self._told: list[dict[str, Any]] = []
        self.sensors: list[tuple[str, bool, bool]] = []  # by card: its id, whether temperature and power are asked; these numbers come first
        self.event: Any = None  # a return code, and at the eighth byte what happened

    def lay_out(self, poll_ns: int, *, anew: bool) -> "tuple[list[Sight], list[Band], int] | None":
        """(sights, the band of each of their numbers, how many of the first numbers are sensors); `anew`: what the last look found is what the bands stand around."""
        cards = self._probe.cards
        if anew or len(self._told) != len(cards):
            self._told = [card.told for card in cards]
        first: list[tuple[Sight, list[Band]]] = []
        rest: list[tuple[Sight, list[Band]]] = []
        self.sensors = []
        try:
            for at, card in enumerate(cards):
                self._card(at, card, poll_ns, first, rest)
            rest += self._events()
        except (KeyError, AttributeError, TypeError, ValueError, ctypes.ArgumentError, self._binding.NVMLError):
            return None
        rows = first + rest
        return [sight for sight, _ in rows], [band for _, bands in rows for band in bands], sum(len(bands) for _, bands in first)

    def _card(self, at: int, card: "_Card", poll_ns: int, first: "list[tuple[Sight, list[Band]]]", rest: "list[tuple[Sight, list[Band]]]") -> None:
        """All sights of one card; `KeyError` and its kin where it cannot be asked so."""
        if card.lost:
            if card.mig_of is None and not isinstance(card.handle, self._binding.NVMLError):  # others do not come back by themselves
                rest.append((self._kept((at, "lost"), lambda: self._code("nvmlDeviceGetUUID", vigil.place(card.handle), IS_LOST)[0]), []))
            return
        names = {field: calls[0].__name__ for field, calls in card.fast}
        told = {field: value for field, value in card.told.items() if field in names}  # what is settled by now is not asked
        if not told:
            raise ValueError
        for field in SENSORS:
            if _asked(told, field):
                first.append(self._cell(at, card, field, names[field]))
        rest += [self._cell(at, card, field, name) for field, name in names.items() if field in told and not (field in SENSORS and _asked(told, field))]
        self.sensors.append((card.static["id"], *(_asked(told, field) for field in SENSORS)))
        errors = card.slow_values.get("ecc_uncorrected")
        if isinstance(errors, int):
            every = max(1, ECC_NS // poll_ns)
            sight = self._kept((at, _ECC, every), lambda: self._ecc(card, every))
            rest.append((sight, [(errors, errors)]))

    def _cell(self, at: int, card: "_Card", field: str, name: str) -> "tuple[Sight, list[Band]]":
        """The question behind one cell, with how far its numbers may go."""
        value = card.told[field]
        if isinstance(value, Missing):
            return self._kept((at, field, name, card.codes[field], "refused"), lambda: self._refused(card, field, name)), []
        base = self._told[at].get(field, value)
        base = value if isinstance(base, Missing) else base
        bands = _holders(value, base, card.told.get("memory")) if field == "processes" else _bands(field, value, base)
        key = (at, field, name, getattr(value, "reserved", None) is None, len(value) if field == "processes" else 0)
        return self._kept(key, lambda: _sight(self._binding, self._loop, card, field, name, value)), bands

    def _kept(self, key: "tuple[object, ...]", make: "Any") -> Sight:
        if key not in self._made:
            if len(self._made) > 4096:  # processes that come and go in ever new numbers
                self._made.clear()
            self._made[key] = make()
        return self._made[key]

    def _ecc(self, card: "_Card", every: int) -> Sight:
        count = c_ulonglong()
        at = ctypes.addressof(count)
        return Sight(
            kind=CALL,
            numbers=((0, 8),),
            address=at,
            call=vigil.place(function(self._binding, _ECC)),
            arguments=(vigil.place(card.handle), 1, 0, at),
            every=every,
            keeps=count,
        )

    def _refused(self, card: "_Card", field: str, name: str) -> Sight:
        """A cell that failed must go on to fail so (a sensor that answers with an error is asked as others are). Not for calls of more than two arguments."""
        plain = None if field in ("memory", "processes") else _sight(self._binding, self._loop, card, field, name, None)
        if plain is None or len(plain.arguments) != 2:
            raise ValueError
        sight, answer = self._code(name, plain.arguments[0], card.codes[field])
        ctypes.memmove(ctypes.addressof(answer) + 8, plain.address, ctypes.sizeof(plain.keeps))  # type: ignore[arg-type]
        return sight

    def _events(self) -> "list[tuple[Sight, list[Band]]]":
        """That no event is there to be heard."""
        events = self._probe.events
        if events is None:
            return []

        def make() -> Sight:
            sight, self.event = self._code("nvmlEventSetWait_v2", vigil.place(events), TIMEOUT)
            return sight

        return [(self._kept(("events",), make), [])]

    def after(self, ended_by: "Sight | None") -> None:
        """What the loop has found out must not be lost: an event that it took, and that errors were counted."""
        if self.event is not None and not int.from_bytes(self.event[:4], sys.byteorder):
            self._probe.take(self._binding.c_nvmlEventData_t.from_buffer_copy(self.event, 8))
            self.event[:4] = TIMEOUT.to_bytes(4, sys.byteorder)
        if ended_by is not None and any(ended_by is sight for key, sight in self._made.items() if key[1:2] == (_ECC,)):
            self._probe.ask_all()

    def _code(self, name: str, of: int, well: int) -> "tuple[Sight, Any]":
        """That a function answers with this return code."""
        answer = ctypes.create_string_buffer(well.to_bytes(4, sys.byteorder), 256)
        place = ctypes.addressof(answer)
        arguments = (vigil.place(function(self._binding, name)), of, place, well)
        return Sight(kind=CALL, address=place, call=vigil.place(self._loop.brim_vigil_code), arguments=arguments, keeps=answer), answer


def _sight(binding: "Any", loop: "Any", card: "_Card", field: str, name: str, value: "Any") -> Sight:
    """One question to one card, with a buffer of its own."""
    handle = vigil.place(card.handle)
    if field == "processes":
        return _processes(binding, loop, handle, name, len(value))
    given: dict[str, int] = {}
    before: tuple[int, ...] = ()
    parts: tuple[str, ...]
    if field == "memory" and getattr(value, "reserved", None) is not None:
        name, kind, given, parts = f"{name}_v2", binding.c_nvmlMemory_v2_t, {"version": binding.nvmlMemory_v2}, ("total", "free", "used", "reserved")
    elif field == "memory":
        kind, parts = binding.c_nvmlMemory_t, ("total", "free", "used")
    elif name == "nvmlDeviceGetTemperatureV":
        kind, given, parts = binding.c_nvmlTemperature_v1_t, {"version": binding.nvmlTemperature_v1, "sensorType": 0}, ("temperature",)
    elif name == FIELDS:
        kind, given, before, parts = binding.c_nvmlFieldValue_t, {"fieldId": binding.NVML_FI_DEV_MEMORY_TEMP}, (1,), ("nvmlReturn", "value")
    elif field == "utilisation_percent":
        kind, parts = binding.c_nvmlUtilization_t, ("gpu",)
    else:
        plain = {
            "nvmlDeviceGetTemperature": (c_uint, (0,)),
            "nvmlDeviceGetPowerUsage": (c_uint, ()),
            "nvmlDeviceGetCurrentClocksEventReasons": (c_ulonglong, ()),
            "nvmlDeviceGetCurrentClocksThrottleReasons": (c_ulonglong, ()),
        }
        (kind, before), parts = plain[name], ()
    cell = kind()
    for key, word in given.items():
        setattr(cell, key, word)
    place = ctypes.addressof(cell)
    numbers = tuple((getattr(kind, part).offset, 4 if part == "value" else getattr(kind, part).size) for part in parts) or ((0, ctypes.sizeof(kind)),)
    return Sight(kind=CALL, numbers=numbers, address=place, call=vigil.place(function(binding, name)), arguments=(handle, *before, place), keeps=cell)


def _processes(binding: "Any", loop: "Any", handle: int, name: str, count: int) -> Sight:
    """How many there are, and of each its pid and its memory."""
    if name != PROCESSES or count > MOST_PROCESSES:
        raise ValueError
    row = binding.c_nvmlProcessInfo_v3_t
    size = ctypes.sizeof(row)
    rows = ctypes.create_string_buffer(8 + size * MOST_PROCESSES)
    place = ctypes.addressof(rows)
    numbers = [(0, 4)]
    for at in range(count):
        numbers += [(8 + at * size + part.offset, part.size) for part in (row.pid, row.usedGpuMemory)]
    arguments = (vigil.place(function(binding, name)), handle, place, MOST_PROCESSES)
    return Sight(kind=CALL, numbers=tuple(numbers), address=place, call=vigil.place(loop.brim_vigil_rows), arguments=arguments, keeps=rows)


def _bands(field: str, value: "Any", base: "Any") -> "list[Band]":
    """How far the numbers of one answer may go before it is news, in the order of `_sight`: what is exact as it is now, what has slack around what was told."""
    if field == "memory":
        slack = moves.slack_of(value.total)
        parts = [_exact(value.total), *(_around(getattr(base, part), slack) for part in ("free", "used"))]
        return [*parts, _around(base.reserved, slack)] if getattr(value, "reserved", None) is not None else parts
    if field == "temperature_c":
        return [_warm(value, base)]
    if field == "memory_temperature_c":
        code = value[0].nvmlReturn
        return [_exact(code), vigil.ANY if code else _warm(value[0].value.uiVal, base[0].value.uiVal)]
    if field == "power_draw_w":
        return [_around(base, moves.POWER_W * 1000)]
    if field == "utilisation_percent":
        return [_around(base.gpu, moves.UTILISATION_POINTS)]
    return [_exact(value)]


def _holders(value: "Any", base: "Any", memory: "Any") -> "list[Band]":
    """Processes as they stand now, each with its memory around what was told of it."""
    was = {row.pid: row.usedGpuMemory for row in base}
    slack = 0 if memory is None or isinstance(memory, Missing) else moves.slack_of(memory.total)
    bands = [_exact(len(value))]
    for row in value:
        used = row.usedGpuMemory
        told = was.get(row.pid, used)
        bands += [_exact(row.pid), _exact((1 << 64) - 1) if used is None or told is None else _around(told, slack)]
    return bands


def _asked(told: "dict[str, Any]", field: str) -> bool:
    return field in told and not isinstance(told[field], Missing)


def _exact(number: int) -> "Band":
    number = number - (1 << 64) if number >= 1 << 63 else number  # the loop's numbers are signed
    return number, number


def _around(number: int, slack: int) -> "Band":
    return number - slack, number + slack


def _warm(number: int, base: int) -> "Band":
    """A temperature; 0 is no reading and never warm."""
    return (max(1, base - moves.TEMPERATURE_C), base + moves.TEMPERATURE_C) if number > 0 and base > 0 else _exact(number & 0xFFFFFFFF)
