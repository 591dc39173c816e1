"""The solver's promise: what it answers fits, and the next value does not — for prices of any shape."""

from hypothesis import given, settings
from hypothesis import strategies as st

from brim.engines.base import Part, Plan
from brim.planner import Knob, Solver, Step, highest, largest
from brim.reports import solution
from brim.units import exactly
from brim.values import Record


class Trial(Record):
    """A made-up workload of three knobs."""

    ctx: int = 0
    slots: int = 0
    kind: int = 0


def plan_of(need: dict[str, int], missing: tuple[str, ...] = ()) -> Plan:
    """A plan of one part a device."""
    parts = tuple(Part(name="weights", device=device, bytes=exactly(count), rule="test", source="test") for device, count in need.items())
    return Plan(engine="test", engine_version="0", parts=parts, workload={}, missing=missing)


def knob(name: str, count: int, now: int | None = None) -> Knob:
    """A knob over 0…count-1."""
    return Knob(name=name, values=range(count), put=lambda trial, value: trial.replace(**{name: value}), says=lambda value: f"--{name} {value}", now=now)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.booleans(), max_size=60), st.integers(0, 60))
def test_highest_fits_and_the_next_does_not(pattern: list[bool], start: int) -> None:
    """For any pattern at all, monotone or not, from any start: the answer fits; the value after it does not, or there is none."""
    found = highest(lambda i: pattern[i], len(pattern), start=start)
    if found is None:
        assert not pattern or not (pattern[0] or pattern[-1])
    else:
        assert pattern[found]
        assert found + 1 == len(pattern) or not pattern[found + 1]


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_highest_is_the_last_where_prices_rise(limit: int, count: int) -> None:
    """With monotone prices the answer is the last value that fits, found in a logarithm of the values."""
    asked: list[int] = []

    def fits(i: int) -> bool:
        asked.append(i)
        return i < limit

    found = highest(fits, count)
    assert found == (min(limit, count) - 1 if limit else None)
    assert len(set(asked)) <= 2 * count.bit_length() + 40


@given(st.integers(0, 200_000), st.integers(256, 100_000))
def test_largest_is_a_multiple_that_fits(limit: int, most: int) -> None:
    """The step form: the largest multiple of 256 at or below both limits."""
    assert largest(lambda n: n <= limit, most=most, step=256) == min(limit, most) // 256 * 256


PRICES = st.tuples(st.integers(0, 1000), st.lists(st.integers(-300, 300), min_size=1, max_size=40), st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))


@settings(max_examples=200, deadline=None)
@given(PRICES, st.integers(0, 6000), st.integers(0, 6000), st.tuples(st.integers(1, 60), st.integers(1, 12), st.integers(1, 5)))
def test_an_answer_fits_and_no_next_step_does(price: tuple, left: int, right: int, counts: tuple[int, int, int]) -> None:
    """Random prices on two devices, wobbling by a table: the answer is inside both budgets; one more of any solved knob is not."""
    base, wobble, per_ctx, per_slot, per_kind = price
    contexts, slots, kinds = counts

    def cost(trial: Trial) -> Plan:
        wave = wobble[trial.ctx % len(wobble)]
        here = base + per_ctx * trial.ctx * (1 + trial.kind) + wave
        there = base + per_slot * trial.slots + per_kind * trial.kind
        return plan_of({"cuda:0": max(0, here), "cpu": max(0, there)})

    solver = Solver(cost, {"cuda:0": left, "cpu": right})
    knobs = [knob("kind", kinds), knob("ctx", contexts), knob("slots", slots)]
    answer = solver.solve(Trial(), knobs)
    assert answer.fits == all(margin >= 0 for margin in answer.margins.values())
    assert answer.margins == {"cuda:0": left - answer.plan.on("cuda:0").high, "cpu": right - answer.plan.on("cpu").high}
    assert cost(answer.trial) == answer.plan  # re-priced
    if answer.fits:
        last = knobs[-1]
        value = answer.trial.slots
        assert value == slots - 1 or not solver.fits(last.put(answer.trial, value + 1))
        for step in answer.steps:
            if step.upwards and step.knob == "slots":
                assert not step.fits
    else:
        assert not solver.fits(Trial())


def test_the_first_knob_goes_first() -> None:
    """Order is preference: the first knob is turned as far as it goes, the second takes what is left."""

    def cost(trial: Trial) -> Plan:
        return plan_of({"cpu": trial.ctx + trial.slots})

    for order, expected in ((("ctx", "slots"), (9, 1)), (("slots", "ctx"), (1, 9))):
        answer = Solver(cost, {"cpu": 10}).solve(Trial(), [knob(name, 10) for name in order])
        assert (answer.trial.ctx, answer.trial.slots) == expected


def test_a_floor_is_left_for_the_later_knobs() -> None:
    """A later knob's floor is set aside before the first is turned; where the floors do not fit they are given up, and the answer still fits."""

    def cost(trial: Trial) -> Plan:
        return plan_of({"cpu": trial.kind * 10 + trial.ctx})

    floored = knob("ctx", 50).replace(floor=20)
    answer = Solver(cost, {"cpu": 45}).solve(Trial(), [knob("kind", 5), floored])
    assert (answer.trial.kind, answer.trial.ctx) == (2, 25)
    tight = Solver(cost, {"cpu": 5}).solve(Trial(), [knob("kind", 5), floored])
    assert tight.fits
    assert (tight.trial.kind, tight.trial.ctx) == (0, 5)


def test_steps_say_what_a_knob_costs_and_saves() -> None:
    """One more slot costs 7 on the host, one fewer saves 7; a knob that was not asked for is priced too."""

    def cost(trial: Trial) -> Plan:
        return plan_of({"cpu": 7 * trial.slots + 3 * trial.kind})

    answer = Solver(cost, {"cpu": 22}).solve(Trial(kind=0), [knob("slots", 9)], [knob("kind", 3, now=0)])
    told = {(step.knob, step.upwards): step.bytes_by_device["cpu"] for step in answer.steps}
    assert told == {("slots", True): 7, ("slots", False): -7, ("kind", True): 3}
    assert answer.flags == ("--slots 3",)
    assert answer.margins == {"cpu": 1}


def test_the_nearest_thing_turns_the_cheapest_knob_first() -> None:
    """Where the trial does not fit: the first knob alone if that is enough, else several together, else None."""

    def cost(trial: Trial) -> Plan:
        return plan_of({"cpu": 10 * trial.ctx + 100 * trial.kind})

    knobs = [knob("ctx", 11, now=10), knob("kind", 4, now=3)]
    alone = Solver(cost, {"cpu": 350}).nearest(Trial(ctx=10, kind=3), knobs)
    assert alone is not None
    assert (alone.trial.ctx, alone.trial.kind) == (5, 3)
    other = Solver(cost, {"cpu": 250}).nearest(Trial(ctx=10, kind=3), knobs)
    assert other is not None
    assert (other.trial.ctx, other.trial.kind) == (10, 1)
    both = Solver(lambda trial: plan_of({"cpu": 50 + 30 * trial.ctx + 100 * trial.kind}), {"cpu": 230}).nearest(Trial(ctx=10, kind=3), knobs)
    assert both is not None
    assert both.fits
    assert (both.trial.ctx, both.trial.kind) == (2, 1)  # the costly knob is turned back up first, then the cheap one
    assert Solver(lambda _trial: plan_of({"cpu": 99}), {"cpu": 50}).nearest(Trial(), knobs) is None


def test_an_unpriced_part_never_fits() -> None:
    """A plan that could not be priced is no answer, whatever the budget."""
    answer = Solver(lambda _trial: plan_of({"cpu": 0}, missing=("the moon",)), {"cpu": 10**12}).solve(Trial(), [knob("ctx", 5)])
    assert not answer.fits
    assert answer.missing == ("the moon",)


def test_a_step_is_told_without_double_negation() -> None:
    """What a step down gives back is a plain size after "saves"; a device on which it does the opposite says "costs", and the other way round."""
    down = Step(knob="split", value="30,1", upwards=False, bytes_by_device={"cuda:0": -(3 << 20), "cuda:1": 5 << 20, "cpu": 0}, fits=True)
    assert solution._step(down) == ("split 30,1", "saves", "3.00 MiB on cuda:0, costs 5.00 MiB on cuda:1", "")
    up = down.replace(upwards=True, fits=False)
    assert solution._step(up) == ("split 30,1", "costs", "5.00 MiB on cuda:1, saves 3.00 MiB on cuda:0", "does not fit")
    back = down.replace(knob="slots", value="3", bytes_by_device={"cpu": 8 << 20})
    assert solution._step(back) == ("slots 3", "costs", "8.00 MiB on cpu", "")
