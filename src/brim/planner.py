"""Finds the largest workload that fits, by asking an engine again and again with trial values; it changes nothing it was given.

The engine is a callable: any trial value in, a `Plan` out. A knob is one thing that may be turned: its values from least to most wanted, and how a value is put
into a trial. Prices need not rise with a knob: llama.cpp's compute buffer may shrink as the context grows. Guarantees, whatever the prices: every answer was
priced and fits; the next value of each solved knob was priced and does not fit, or there is none. Not covered: knobs whose values cannot be put in an order.
"""

from brim.engines.base import Plan
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    Price = Callable[[Any], Plan]
    Room = Mapping[str, int]

LOOK_AHEAD = 8  # values beyond a limit that are tried, because a buffer may shrink again
DOUBTS = 16  # values that are tried where even the least wanted does not fit


def largest(fits: "Callable[[int], bool]", *, most: int, step: int, near: "Callable[[int, int], int] | None" = None, least: int = 0) -> int:
    """The largest multiple of `step`, at most `most`, for which `fits` is true; 0 where none is found. Promise as `highest`; `near` and `least` speak of multiples too."""
    guess = None if near is None else lambda low, high: near((low + 1) * step, (high + 1) * step) // step - 1
    found = highest(lambda index: fits((index + 1) * step), most // step, guess, max(0, least // step - 1))
    return 0 if found is None else (found + 1) * step


def highest(fits: "Callable[[int], bool]", count: int, near: "Callable[[int, int], int] | None" = None, start: int = 0) -> int | None:
    """An index below `count` that fits while the next does not (or is not there); None where none of the values that were tried fits.

    `near` guesses the last index that fits between one that does and one that does not; it saves prices and cannot change the promise (every third step halves). `start` is
    an index that is believed to fit, tried before the least.
    `fits` need not be monotone. Where it is, the answer is the last index that fits. A few values beyond the limit are looked at too, and the climb goes on
    from there.
    """
    if count < 1:
        return None
    if fits(count - 1):
        return count - 1
    low = _foothold(fits, count, start)
    if low is None:
        return None
    high = count - 1
    while True:
        step = 0
        while high - low > 1:
            middle = (low + high) // 2
            if near is not None and step % 3 < 2:
                middle = min(max(near(low, high), low + 1), high - 1)
            step += 1
            if fits(middle):
                low = middle
            else:
                high = middle
        further = next((low + ahead for ahead in range(2, LOOK_AHEAD + 1) if low + ahead < count - 1 and fits(low + ahead)), None)
        if further is None:
            return low
        low = further
        high = next((low + ahead for ahead in range(1, count - low) if not fits(low + ahead)), count)
        low = high - 1


def _foothold(fits: "Callable[[int], bool]", count: int, start: int) -> int | None:
    """An index that fits: the one that is believed to, the least wanted, else one of a few spread over the rest."""
    if 0 < start < count - 1 and fits(start):
        return start
    if fits(0):
        return 0
    spread = sorted({round(i * (count - 1) / DOUBTS) for i in range(1, DOUBTS)} | set(range(1, min(4, count - 1))))
    return next((index for index in spread if 0 < index < count - 1 and fits(index)), None)


class Knob(Record):
    """One thing that may be turned. `values` go from least to most wanted; `put` puts one into a trial; `says` is a value as flags to paste.

    `now` is the index of the value that the user's trial has (None: none of them). `floor` is the index that other knobs assume before this one is solved.
    """

    name: str
    values: "Sequence[Any]"
    put: "Callable[[Any, Any], Any]"
    says: "Callable[[Any], str]"
    now: int | None = None
    floor: int = 0


class Step(Record):
    """What turning one knob by one value would do: bytes by device (positive costs, negative saves), and whether the plan would fit then."""

    knob: str
    value: str
    upwards: bool
    bytes_by_device: "dict[str, int]"
    fits: bool


class Answer(Record):
    """What the solver found. `fits` false: nothing that it may turn makes it fit, and `trial` is the nearest that it tried.

    `chosen` are (knob, value) as text; `flags` are to paste; `margins` are the bytes left on each device whose ceiling is known (negative: short); `steps` tell
    what each knob costs or saves next; `priced` counts the plans that were asked for.
    """

    fits: bool
    trial: "Any"
    plan: Plan
    chosen: tuple[tuple[str, str], ...]
    flags: tuple[str, ...]
    margins: "dict[str, int]"
    steps: tuple[Step, ...] = ()
    priced: int = 0
    missing: tuple[str, ...] = ()


class Solver:
    """Asks one engine about one trial against one set of ceilings; remembers every plan, so that nothing is priced twice."""

    def __init__(self, price: "Price", room: "Room") -> None:
        self._price, self._room = price, dict(room)
        self._known: dict[Any, Plan] = {}

    @property
    def priced(self) -> int:
        """How many different plans were asked for."""
        return len(self._known)

    def plan(self, trial: "Any") -> Plan:
        """The engine's plan of a trial."""
        found = self._known.get(trial)
        if found is None:
            found = self._known[trial] = self._price(trial)
        return found

    def margins(self, plan: Plan) -> dict[str, int]:
        """Usable bytes less the high end of what the plan asks for, by device."""
        return {device: usable - plan.on(device).high for device, usable in self._room.items()}

    def fits(self, trial: "Any") -> bool:
        """Whether the high end fits on every device whose ceiling is known. A plan with an unpriced part never fits."""
        plan = self.plan(trial)
        return not plan.missing and all(margin >= 0 for margin in self.margins(plan).values())

    def solve(self, trial: "Any", wanted: "Sequence[Knob]", others: "Sequence[Knob]" = ()) -> Answer:
        """Turn the `wanted` knobs, the first being the most important: each as far as it goes while those behind it stand at their floor.

        `others` are not turned; they are only priced one step up and down. Where not even the floors fit, all knobs go to their least value first.
        """
        chosen: dict[str, int] = {}
        current = trial
        for knob in wanted:
            current = knob.put(current, knob.values[min(knob.floor, len(knob.values) - 1)])
        if not self.fits(current):
            for knob in wanted:
                current = knob.put(current, knob.values[0])
        for knob in wanted:
            index = highest(lambda i, knob=knob, base=current: self.fits(knob.put(base, knob.values[i])), len(knob.values))  # type: ignore[misc]
            chosen[knob.name] = 0 if index is None else index
            current = knob.put(current, knob.values[chosen[knob.name]])
        return self._answer(current, wanted, chosen, others)

    def _answer(self, trial: "Any", wanted: "Sequence[Knob]", chosen: dict[str, int], others: "Sequence[Knob]") -> Answer:
        plan = self.plan(trial)
        steps: list[Step] = []
        for knob in (*wanted, *others):
            at = chosen.get(knob.name, knob.now)
            if at is not None and not plan.missing:
                steps.extend(self._steps(trial, plan, knob, at))
        return Answer(
            fits=self.fits(trial),
            trial=trial,
            plan=plan,
            chosen=tuple((knob.name, str(knob.values[chosen[knob.name]])) for knob in wanted),
            flags=tuple(dict.fromkeys(text for knob in wanted if (text := knob.says(knob.values[chosen[knob.name]])))),
            margins=self.margins(plan),
            steps=tuple(steps),
            priced=self.priced,
            missing=plan.missing,
        )

    def _steps(self, trial: "Any", plan: Plan, knob: Knob, at: int) -> "list[Step]":
        found = []
        for index in (at + 1, at - 1):
            if 0 <= index < len(knob.values):
                turned = knob.put(trial, knob.values[index])
                other = self.plan(turned)
                if not other.missing:
                    devices = dict.fromkeys(part.device for part in (*plan.parts, *other.parts))
                    change = {device: other.on(device).high - plan.on(device).high for device in devices}
                    found.append(Step(knob=knob.name, value=str(knob.values[index]), upwards=index > at, bytes_by_device=change, fits=self.fits(turned)))
        return found

    def nearest(self, trial: "Any", knobs: "Iterable[Knob]") -> "Answer | None":
        """The nearest thing that fits, by knobs in order of what they cost the user: one alone, else as few of them together as will do; None where nothing fits.

        Several together are then turned back up as far as they go, the one that costs most first.
        """
        downs: list[Knob] = []
        for full in knobs:  # one at a time: a knob that is not needed is not even made
            knob = full.replace(values=full.values[: len(full.values) if full.now is None else full.now + 1], floor=0)
            if not len(knob.values):
                continue
            downs.append(knob)
            index = highest(lambda i, knob=knob: self.fits(knob.put(trial, knob.values[i])), len(knob.values))  # type: ignore[misc]
            if index is not None:
                return self._answer(knob.put(trial, knob.values[index]), (knob,), {knob.name: index}, ())
        least, turned = trial, []
        for knob in downs:
            least = knob.put(least, knob.values[0])
            turned.append(knob)
            if len(turned) > 1 and self.fits(least):
                found = self.solve(trial, turned[::-1])
                moved = {
                    knob.name: dict(found.chosen)[knob.name] for knob in turned if knob.now is None or dict(found.chosen)[knob.name] != str(knob.values[-1])
                }
                flags = tuple(
                    text
                    for knob in turned[::-1]
                    if knob.name in moved
                    for value in knob.values
                    if str(value) == moved[knob.name] and (text := knob.says(value))
                )
                return found.replace(chosen=tuple((name, value) for name, value in found.chosen if name in moved), flags=flags, steps=())
        return None
