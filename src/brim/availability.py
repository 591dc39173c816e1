"""Says whether what a plan needs is there: could the device ever give it, and has it that much now; and who holds the rest.

Two launches at the same time must not both be promised the same memory: what governed runs were promised and have not yet allocated is taken off what is free.
"""

from brim.facts.device import Budget, Device, Process
from brim.units import format_bytes
from brim.values import Missing, Record

FITS, DOES_NOT_FIT, NOT_NOW, CANNOT_TELL, UNFIT = "fits", "does_not_fit", "not_now", "cannot_tell", "unfit"


class Availability(Record):
    """The answer for one device, in bytes. `verdict` is `fits`, `does_not_fit`, `not_now` (it would fit, and waiting may help), `cannot_tell`,
    or `unfit` (the device shows a hardware fault: it calls itself healthy and fails the next job too).
    """

    verdict: str
    device: str
    needed_bytes: int
    ever_bytes: "int | Missing"
    now_bytes: "int | Missing"
    promised_bytes: int
    short_by_bytes: int
    held_by: tuple[Process, ...]
    sentence: str


def availability(needed_bytes: int, device_id: str, budget: Budget, *, holders: "tuple[Process, ...] | Missing" = (), promised_bytes: int = 0) -> Availability:
    """What the gate says before a launch; pure. `promised_bytes` is what others were promised on this device and have not allocated yet."""
    ever = budget.ever_bytes if isinstance(budget.ever_bytes, int) else budget.usable_bytes
    now = budget.now_bytes if isinstance(budget.now_bytes, int) else budget.usable_bytes
    held = () if isinstance(holders, Missing) else tuple(p for p in holders if not isinstance(p.used_bytes, int) or p.used_bytes > 0)
    left: int | Missing = now if isinstance(now, Missing) else max(0, now - promised_bytes)

    def answer(verdict: str, sentence: str, short: int = 0) -> Availability:
        return Availability(
            verdict=verdict, device=device_id, needed_bytes=needed_bytes, ever_bytes=ever, now_bytes=left, promised_bytes=promised_bytes,
            short_by_bytes=short, held_by=held, sentence=sentence,
        )  # fmt: skip

    if isinstance(ever, Missing) and isinstance(left, Missing):
        return answer(CANNOT_TELL, f"cannot tell: the budget of {device_id} is unknown ({budget.source}); no ceiling enforced")
    if isinstance(ever, int) and needed_bytes > ever:
        short = needed_bytes - ever
        return answer(
            DOES_NOT_FIT,
            f"does not fit: {format_bytes(needed_bytes)} needed, {device_id} could ever give {format_bytes(ever)}, short by {format_bytes(short)}",
            short,
        )
    if isinstance(left, Missing) or needed_bytes <= left:
        return answer(FITS, "fits")
    return answer(NOT_NOW, f"fits, but not now: {_holding(needed_bytes - left, held, promised_bytes)}", needed_bytes - left)


def _holding(short: int, held: "tuple[Process, ...]", promised: int) -> str:
    """Who holds what is missing, largest first, at most three by name."""
    named = sorted((p for p in held if isinstance(p.used_bytes, int)), key=lambda p: -p.used_bytes if isinstance(p.used_bytes, int) else 0)
    words = [f"{format_bytes(p.used_bytes)} of it is held by PID {p.pid}{f' ({p.name})' if p.name else ''}" for p in named[:3] if isinstance(p.used_bytes, int)]
    if len(named) > 3:
        words.append(f"{format_bytes(sum(p.used_bytes for p in named[3:] if isinstance(p.used_bytes, int)))} by {len(named) - 3} others")
    if promised:
        words.append(f"{format_bytes(promised)} is promised to other runs that have not allocated it yet")
    if not words:
        words.append(f"{format_bytes(short)} more is needed than is free, and nobody can be named who holds it")
    return ", ".join(words)


def of_device(needed_bytes: int, device: Device, *, promised_bytes: int = 0) -> Availability:
    """`availability` for a probed device."""
    return availability(needed_bytes, device.id, device.budget, holders=device.processes, promised_bytes=promised_bytes)
