"""Turns a prediction and a reading into admit, refuse or cannot tell, with the arithmetic that a person can redo."""

from brim.availability import NOT_NOW, of_device
from brim.engines.base import Plan
from brim.facts.device import Device
from brim.units import Span, format_bytes
from brim.values import Missing, Record

FITS, DOES_NOT_FIT, CANNOT_TELL = "fits", "does_not_fit", "cannot_tell"


class DeviceVerdict(Record):
    """What one device is asked for and whether it can give it. `fits` is None where the span straddles the budget, or the budget is unknown."""

    device: Device
    required: Span
    fits: bool | None
    fits_now: bool | None
    says: str


class Verdict(Record):
    """The gate's answer over all devices, with one sentence a device."""

    verdict: str
    devices: tuple[DeviceVerdict, ...]
    reasons: tuple[str, ...]


def judge(plan: Plan, devices: tuple[Device, ...], *, waiting: bool = False) -> Verdict:
    """Compare the plan with what each device could ever give and with what it has at this moment.

    With `waiting`, a plan that a device could hold once others let go of it fits, but not now (`fits_now` is False); without, what is free now is the ceiling.
    """
    if plan.missing:
        return Verdict(verdict=CANNOT_TELL, devices=(), reasons=tuple(f"not priced: {item}" for item in plan.missing))
    known = {device.id for device in devices}
    homeless = sorted({part.device for part in plan.parts} - known)
    judged = tuple(_judge_device(plan.on(device.id), device, waiting=waiting) for device in devices)
    answers = [item.fits for item in judged]
    if any(answer is False for answer in answers):
        verdict = DOES_NOT_FIT
    elif any(answer is None for answer in answers) or not judged:
        verdict = CANNOT_TELL
    else:
        verdict = FITS
    beside = tuple(f"{name}: {format_bytes(plan.on(name).likely)} priced, not enforced (no such device was given)" for name in homeless)
    return Verdict(verdict=verdict, devices=judged, reasons=tuple(item.says for item in judged) + beside)


def _could(device: Device) -> str:
    ever = device.budget.ever_bytes
    return f"{format_bytes(ever)} that it could ever give" if isinstance(ever, int) else "its budget"


def _judge_device(required: Span, device: Device, *, waiting: bool) -> DeviceVerdict:
    budget, available = device.budget, device.memory.available_bytes
    now = None if isinstance(available, Missing) else required.high <= available
    there = of_device(required.high, device)
    if isinstance(budget.usable_bytes, Missing):
        return DeviceVerdict(
            device=device, required=required, fits=None, fits_now=now, says=f"{device.id}: the budget is unknown ({budget.source}); no ceiling enforced"
        )
    usable = budget.usable_bytes
    if required.high <= usable:
        fits: bool | None = True
        says = f"{device.id}: {format_bytes(required.high)} at most of {format_bytes(usable)} usable; {format_bytes(usable - required.high)} to spare"
        if now is False and isinstance(available, int):
            holders = f"; {there.sentence}" if there.held_by else ""
            says += f"; but not now: only {format_bytes(available)} is available at this moment{holders}"
    elif waiting and there.verdict == NOT_NOW:  # the budget of a card is what is free on it: others hold what this plan could have
        fits, now = True, False
        says = f"{device.id}: {format_bytes(required.high)} at most of {_could(device)}; {there.sentence}"
    elif required.low > usable:
        fits = False
        says = f"{device.id}: needed {format_bytes(required.likely)}, available {format_bytes(usable)}, short by {format_bytes(required.likely - usable)}"
        if isinstance(budget.total_bytes, int) and required.high <= budget.total_bytes:
            says += f"; it fits only without the reserve ({format_bytes(budget.total_bytes)} in all)"
    else:
        fits = None
        says = f"{device.id}: needed {format_bytes(required.low)} to {format_bytes(required.high)}, usable {format_bytes(usable)}: the budget lies inside the uncertainty"
    return DeviceVerdict(device=device, required=required, fits=fits, fits_now=now, says=says)
