"""Finds the largest batch or length, the cheapest method, the lightest sharding or the fewest cards that fit, by asking the engine `train` again and again; pure.

Guarantees: every answer was priced and fits the high end on every device whose budget is known; the next larger batch or length, and one card less, do not (or
are beyond the bounds that are stated). Not covered: what a smaller precision or rank does to the result of the training.
"""

from brim import gate
from brim.engines.train import price
from brim.engines.train.solve import cheapest
from brim.engines.train.spell import spell
from brim.errors import Usage
from brim.planner import largest
from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.engines.base import Plan
    from brim.engines.train.census import Census
    from brim.facts.device import Device
    from brim.facts.training import TrainWorkload
    from brim.gate import Verdict

KNOBS = ("batch", "seq", "method", "zero", "gpus")
MOST_BATCH, MOST_CARDS, SEQ_STEP = 4096, 4096, 128
# From what changes the result least to what changes it most.
METHODS: "tuple[dict[str, str], ...]" = (
    {"method": "full", "precision": "bf16-autocast"},
    {"method": "full", "precision": "bf16-autocast", "optimizer": "adamw_8bit"},
    {"method": "full", "precision": "bf16", "optimizer": "adamw_8bit"},
    {"method": "full", "precision": "bf16", "optimizer": "adafactor"},
    {"method": "lora", "base": "bf16"},
    {"method": "lora", "base": "int8"},
    {"method": "qlora", "base": ""},
)
SHARDINGS: "tuple[dict[str, str], ...]" = (
    {"sharding": "ddp", "offload": "none"},
    {"sharding": "zero1", "offload": "none"},
    {"sharding": "zero2", "offload": "none"},
    {"sharding": "zero3", "offload": "none"},
    {"sharding": "zero2", "offload": "optimizer"},
    {"sharding": "zero3", "offload": "all"},
)


class Found(Record):
    """What was found. `fits` false: nothing does, and the plan is the nearest that was tried. `next_one` says what was tried beyond it and does not fit."""

    knob: str
    fits: bool
    workload: "TrainWorkload"
    plan: "Plan"
    gate: "Verdict"
    answer: str
    next_one: str
    words: "dict[str, Any]"
    others: tuple[tuple[str, str], ...] = ()


class Solver:
    """One census against devices. `cards` are their ids; parts on the host are judged only where a host was given."""

    def __init__(self, census: "Census", devices: "tuple[Device, ...]") -> None:
        if not devices:
            raise Usage("solve --train needs a device", hint="Give --device cuda:24GiB.")
        self.census, self.devices = census, devices
        self.cards = tuple(device for device in devices if device.backend != "cpu") or devices[:1]
        self.known: dict[object, Plan] = {}

    def plan(self, w: "TrainWorkload") -> "Plan":
        """The plan of a workload on every card (once each)."""
        found = self.known.get(w)
        if found is None:
            found = self.known[w] = price(self.census, w, self.cards[0].id, devices=tuple(card.id for card in self.cards))
        return found

    def judge(self, w: "TrainWorkload") -> "Verdict":
        """The gate's verdict."""
        return gate.judge(self.plan(w), self.devices)

    def fits(self, w: "TrainWorkload") -> bool:
        """Whether it surely fits."""
        return self.judge(w).verdict == gate.FITS

    def found(self, knob: str, w: "TrainWorkload", answer: str, beyond: str) -> Found:
        """The answer with its plan and every program's words."""
        return Found(
            knob=knob, fits=self.fits(w), workload=w, plan=self.plan(w), gate=self.judge(w), answer=answer, next_one=beyond, words=spell(w),
            others=tuple(cheapest(w, self.fits))[:3] if not self.fits(w) else (),
        )  # fmt: skip


def solve(census: "Census", w: "TrainWorkload", devices: "tuple[Device, ...]", wanted: str, *, auto: bool = False) -> Found:
    """Turn one knob of `w` as far as it goes. With `auto` the method is chosen first: the one of least loss of fidelity that fits at all."""
    if wanted not in KNOBS:
        raise Usage(f"--for {wanted}: with --train brim knows {', '.join(KNOBS)}")
    solver = Solver(census, devices)
    if any(isinstance(card.budget.usable_bytes, Missing) for card in solver.cards):
        raise Usage(f"the budget of {solver.cards[0].id} is not known, so nothing can be solved for", hint="Give a device with a size, as in cuda:24GiB.")
    if auto and wanted != "method":
        w = _method(solver, w.replace(batch=1 if wanted == "batch" else w.batch, seq=SEQ_STEP if wanted == "seq" else w.seq))[0]
    return _SOLVERS[wanted](solver, w)


def _largest(solver: Solver, w: "TrainWorkload", field: str, most: int, step: int) -> Found:
    best = largest(lambda value: solver.fits(w.replace(**{field: value})), most=most, step=step)
    chosen = w.replace(**{field: best or step})
    beyond = f"{field} {best + step} does not fit" if best < most else f"{most} is the most that is tried"
    return solver.found(field, chosen, f"{field} {best}" if best else f"not even {field} {step} fits", beyond)


def _batch(solver: Solver, w: "TrainWorkload") -> Found:
    return _largest(solver, w, "batch", MOST_BATCH, 1)


def _seq(solver: Solver, w: "TrainWorkload") -> Found:
    trained = solver.census.shape.context_trained
    most = trained if isinstance(trained, int) and trained >= SEQ_STEP else 1 << 20
    return _largest(solver, w, "seq", most // SEQ_STEP * SEQ_STEP, SEQ_STEP)


def _method(solver: Solver, w: "TrainWorkload") -> "tuple[TrainWorkload, str]":
    """The method of least loss that fits, and the sentence about the one before it."""
    before = ""
    for changes in METHODS:
        trial = w.replace(**{"base": "", "adapter": "", **changes})
        if solver.fits(trial):
            return trial, f"{before} does not fit" if before else "there is nothing of less loss"
        before = spell(trial)["brim"]
    return trial, f"not even {before} fits"


def _methods(solver: Solver, w: "TrainWorkload") -> Found:
    chosen, beyond = _method(solver, w)
    return solver.found("method", chosen, f"{chosen.method}, {chosen.precision}, {chosen.optimizer}", beyond)


def _zero(solver: Solver, w: "TrainWorkload") -> Found:
    if w.ranks < 2 and len(solver.cards) < 2:
        raise Usage("--for zero shares work between cards, and there is one", hint="Give --device several times, or --ranks N.")
    before = ""
    trial = w
    for changes in SHARDINGS:
        trial = w.replace(ranks=max(w.ranks, len(solver.cards)), **changes)
        if solver.fits(trial):
            break
        before = f"{changes['sharding']}" + (f" with {changes['offload']} offloaded" if changes["offload"] != "none" else "")
    return solver.found("zero", trial, f"{trial.sharding}, offload {trial.offload}", f"{before} does not fit" if before else "nothing lighter shares less")


def _gpus(solver: Solver, w: "TrainWorkload") -> Found:
    """The fewest cards like the first: one alone, else ZeRO-3 (or the sharding that was asked for) over two or more."""
    alone = w.replace(ranks=1, nodes=1, sharding="none")
    if w.offload == "none" and solver.fits(alone):
        return solver.found("gpus", alone, "1 card", "there is no smaller number")
    sharding = w.sharding if w.sharding not in ("none", "ddp", "zero1", "zero2") else "zero3"

    def at(count: int) -> "TrainWorkload":
        return w.replace(ranks=count, nodes=1, sharding=sharding)

    high = 2
    while high < MOST_CARDS and not solver.fits(at(high)):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if solver.fits(at(middle)) else (middle, high)
    fewer = f"{high - 1} {'card does' if high == 2 else 'cards do'} not fit"
    return solver.found("gpus", at(high), f"{high} cards with {sharding}" if solver.fits(at(high)) else f"not even {high} cards with {sharding} fit", fewer)


_SOLVERS = {"batch": _batch, "seq": _seq, "method": _methods, "zero": _zero, "gpus": _gpus}
