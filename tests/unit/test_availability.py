"""Could a device ever give it, has it that much now, who holds the rest; promises to others count; the sentences that people read."""

import pytest

from brim.availability import availability, of_device
from brim.engines.base import Part, Plan
from brim.facts.device import Budget, Device, Host, Memory, Process
from brim.gate import judge
from brim.pool import settle_device
from brim.units import exactly
from brim.values import Missing

GIB = 1 << 30
UNKNOWN = Missing(reason="failed", detail="no driver")


def budget(ever: "int | Missing", now: "int | Missing", usable: "int | Missing | None" = None) -> Budget:
    return Budget(
        backend="cuda", total_bytes=now, usable_bytes=now if usable is None else usable, reserve_fraction=0.1, source="NVML", ever_bytes=ever, now_bytes=now
    )  # fmt: skip


ROWS = [
    (10, 22, 15, 0, "fits", 0), (15, 22, 15, 0, "fits", 0), (16, 22, 15, 0, "not_now", 1), (22, 22, 15, 0, "not_now", 7), (23, 22, 15, 0, "does_not_fit", 1),
    (10, 22, 15, 6, "not_now", 1), (10, 22, 15, 5, "fits", 0), (10, 22, 0, 0, "not_now", 10), (30, 22, 0, 9, "does_not_fit", 8),
]  # fmt: skip


@pytest.mark.parametrize(("needed", "ever", "now", "promised", "verdict", "short"), ROWS)
def test_ever_and_now_are_two_numbers(needed, ever, now, promised, verdict, short) -> None:
    """In GiB: what is needed against what could ever be given and what is there now less what others were promised."""
    answer = availability(needed * GIB, "cuda:0", budget(ever * GIB, now * GIB), promised_bytes=promised * GIB)
    assert (answer.verdict, answer.short_by_bytes) == (verdict, short * GIB)


@pytest.mark.parametrize(("ever", "now", "verdict"), [(UNKNOWN, UNKNOWN, "cannot_tell"), (22 * GIB, UNKNOWN, "fits"), (UNKNOWN, 22 * GIB, "fits")])
def test_unknown_refuses_nothing(ever, now, verdict) -> None:
    """A number that nobody has stands in nobody's way."""
    assert availability(20 * GIB, "cuda:0", budget(ever, now)).verdict == verdict


def test_the_holder_is_named() -> None:
    """The sentence of a refusal that waiting may lift: how much is held, by which process."""
    held = (Process(pid=4242, used_bytes=6549825126, name="python"),)
    answer = availability(20 * GIB, "cuda:0", budget(22 * GIB, 15 * GIB), holders=held)
    assert answer.sentence == "fits, but not now: 6.10 GiB of it is held by PID 4242 (python)"
    assert answer.held_by == held


def test_several_holders_and_promises_are_told_apart() -> None:
    """The largest three by name, the others as a sum, promises by themselves; a holder that nobody can name has its number only."""
    held = tuple(Process(pid=n, used_bytes=n * GIB, name="" if n == 5 else f"job{n}") for n in range(1, 6))
    sentence = availability(20 * GIB, "cuda:0", budget(22 * GIB, 7 * GIB), holders=held, promised_bytes=GIB).sentence
    assert "5.00 GiB of it is held by PID 5, 4.00 GiB of it is held by PID 4 (job4)" in sentence
    assert "3.00 GiB by 2 others" in sentence
    assert "1.00 GiB is promised to other runs" in sentence
    assert "nobody can be named" in availability(20 * GIB, "cuda:0", budget(22 * GIB, 7 * GIB), holders=UNKNOWN).sentence


def test_the_gate_says_it_too() -> None:
    """A card whose free memory is too little while its own size is enough: the plan fits, but not now; a solver still counts what is free."""
    memory = Memory(total_bytes=24 * GIB, free_bytes=10 * GIB, used_bytes=14 * GIB, reserved_bytes=0)
    bare = Device(
        id="cuda:0", backend="cuda", name="card", memory=memory, processes=(Process(pid=4242, used_bytes=14 * GIB, name="python"),), sources=("nvml",)
    )
    device = settle_device(bare, Host())
    plan = Plan(engine="x", engine_version="1", workload={}, parts=(Part(name="weights", device="cuda:0", bytes=exactly(20 * GIB), rule="", source=""),))
    verdict = judge(plan, (device,), waiting=True)
    assert (verdict.verdict, verdict.devices[0].fits_now) == ("fits", False)
    assert "fits, but not now: 14.00 GiB of it is held by PID 4242 (python)" in verdict.reasons[0]
    assert judge(plan, (device,)).verdict == "does_not_fit"
    assert of_device(8 * GIB, device).verdict == "fits"
