"""The knobs of a llama.cpp run, for the solver: context, slots, cache types, quantisation, layers and experts on the card, the split, and their flags.

A trial is a workload and, where the quantisation is turned, the mix; the checkpoint stays outside, so that trials are cheap to compare. Flags are llama.cpp's
own (common/arg.cpp, b11434). Not covered: which mix answers best (a larger file of the same family is taken to be the better one).
"""

from _collections_abc import Sequence  # `collections.abc` by the name that Python has loaded already: the other loads all of `collections`

from brim.engines.base import Plan
from brim.engines.llama_cpp.defaults import MAX_SEQUENCES
from brim.engines.llama_cpp.startup import LEAST_CTX, number
from brim.facts.model import Checkpoint
from brim.facts.workload import LlamaWorkload
from brim.planner import Knob, Solver
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    PriceOne = Callable[[Checkpoint, LlamaWorkload], Plan]

CTX_STEP = 256  # a context is rounded up to this many cells (src/llama-context.cpp, b11434)
CACHE_TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "f16")  # from least to most wanted
UBATCHES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
# mixes that only experiments or special weights use; the solver does not offer them
_NOT_OFFERED = frozenset(("F32", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0"))
NAMES = ("ctx", "slots", "quant", "layers", "experts", "split", "kv-type")


class Trial(Record):
    """One thing that the solver asks a price for: the workload, and a quantisation mix where it is not the checkpoint's own ("")."""

    workload: LlamaWorkload
    mix: str = ""


def pricer(checkpoint: Checkpoint, price: "PriceOne") -> "Callable[[Trial], Plan]":
    """The engine's price as the solver wants it; each mix of the checkpoint is made once."""
    made: dict[str, Checkpoint] = {"": checkpoint}

    def ask(trial: Trial) -> Plan:
        if trial.mix not in made:
            from brim.engines.llama_cpp.quantisation import quantise

            made[trial.mix] = quantise(checkpoint, trial.mix)
        return price(made[trial.mix], trial.workload)

    return ask


def _set(field: str) -> "Callable[[Trial, Any], Trial]":
    return lambda trial, value: trial.replace(workload=trial.workload.replace(**{field: value}))


class Steps(Sequence[int]):
    """Rising numbers a step apart and, where the last one is no step, that one too; never laid out, so that a context of any length costs nothing."""

    __slots__ = ("_last", "_steps")

    def __init__(self, steps: range, last: int) -> None:
        self._steps = steps
        self._last: tuple[int, ...] = () if steps and steps[-1] == last else (last,)

    def __len__(self) -> int:
        return len(self._steps) + len(self._last)

    def __getitem__(self, index: "Any") -> "Any":
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return Steps(self._steps[start:], self._last[0]) if stop > len(self._steps) else self._steps[start:stop]
        at = range(len(self))[index]
        return self._steps[at] if at < len(self._steps) else self._last[0]

    def reach(self, least: int, otherwise: int) -> int:
        """The index of the first number that is `least` or more; `otherwise` where there is none."""
        at = max(0, -((self._steps[0] - least) // self._steps.step)) if self._steps else 0
        return at if at < len(self._steps) else len(self._steps) if self._last and self._last[0] >= least else otherwise


def context(checkpoint: Checkpoint, workload: LlamaWorkload, *, least: int = CTX_STEP) -> Knob:
    """Tokens, in steps of 256 up to the trained context (each slot's, where slots have caches of their own), or up to what was asked for."""
    trained = number(checkpoint, "context_length") or 131072
    most = trained * (1 if workload.kv_unified or not workload.slots else max(1, workload.slots))
    most = max(most, workload.ctx or 0)
    values = Steps(range(min(least, most), most + 1, CTX_STEP), most)
    return Knob(
        name="ctx",
        values=values,
        put=_set("ctx"),
        says=lambda value: f"-c {value}",
        now=values.reach(workload.ctx or trained, len(values) - 1),
        floor=values.reach(LEAST_CTX, 0),
    )


def slots(workload: LlamaWorkload) -> Knob:
    """Parallel sequences. With a context per slot the total grows with them; without, they share the total, as llama.cpp does it."""
    per_slot = workload.ctx_per_slot if workload.ctx_per_slot else 0

    def put(trial: Trial, value: int) -> Trial:
        asked = trial.workload.replace(slots=value, outputs=None)
        return trial.replace(workload=asked.replace(ctx=value * per_slot) if per_slot else asked)

    def says(value: int) -> str:
        return f"-np {value}" + (f" -c {value * per_slot}" if per_slot else "")

    now = (workload.slots or 1) - 1
    return Knob(name="slots", values=range(1, MAX_SEQUENCES + 1), put=put, says=says, now=max(0, min(now, MAX_SEQUENCES - 1)))


def cache_type(workload: LlamaWorkload) -> Knob:
    """One type for K and V. A quantised V needs flash attention, which `auto` gives."""

    def put(trial: Trial, value: str) -> Trial:
        return trial.replace(workload=trial.workload.replace(ctk=value, ctv=value))

    held = workload.ctk or "f16"
    return Knob(
        name="kv-type", values=CACHE_TYPES, put=put, says=lambda value: f"-ctk {value} -ctv {value}",
        now=CACHE_TYPES.index(held) if held in CACHE_TYPES and held == (workload.ctv or "f16") else None, floor=len(CACHE_TYPES) - 1,
    )  # fmt: skip


def micro_batch(workload: LlamaWorkload) -> Knob:
    """The micro-batch: the compute buffer goes with it, and so does the speed of reading a prompt."""
    held = workload.ubatch or 512
    return Knob(name="ubatch", values=UBATCHES, put=_set("ubatch"), says=lambda value: f"-ub {value}", now=UBATCHES.index(held) if held in UBATCHES else None)


def quantisation(checkpoint: Checkpoint) -> Knob:
    """The mixes by predicted size, smallest first."""
    from brim.engines.llama_cpp.quantisation import MIXES, quantise

    experts = number(checkpoint, "expert_count") > 1
    offered = [mix for mix in MIXES if mix not in _NOT_OFFERED and (experts or mix != "MXFP4_MOE")]
    sizes = {mix: quantise(checkpoint, mix).file_bytes for mix in offered}
    ordered = tuple(sorted(offered, key=lambda mix: sizes[mix]))
    now = ordered.index(checkpoint.quantisation) if checkpoint.quantisation in ordered else None
    return Knob(name="quant", values=ordered, put=lambda trial, value: trial.replace(mix=value), says=lambda _value: "", now=now)


def layers(checkpoint: Checkpoint, workload: LlamaWorkload) -> Knob:
    """Layers on the cards; the output layer counts as one."""
    most = number(checkpoint, "block_count") + 1
    held = workload.gpu_layers
    now = most if held is None or held < 0 else min(held, most)
    return Knob(name="layers", values=range(most + 1), put=_set("gpu_layers"), says=lambda value: f"-ngl {value}", now=now)


def experts(checkpoint: Checkpoint, workload: LlamaWorkload) -> Knob:
    """Layers whose experts stay on the host, the fewer the better."""
    most = number(checkpoint, "block_count")
    return Knob(
        name="experts", values=range(most, -1, -1), put=_set("cpu_experts"), says=lambda value: f"-ncmoe {value}" if value else "",
        now=most - min(most, workload.cpu_experts or 0),
    )  # fmt: skip


def split(checkpoint: Checkpoint, trial: Trial, solver: Solver, devices: tuple[str, ...]) -> Knob:
    """Shares of the layers by card, ordered by what the fullest card has left; each candidate was priced at `trial`."""
    count = number(checkpoint, "block_count") + 1
    put = _set("tensor_split")

    def least_margin(shares: tuple[float, ...]) -> int:
        margins = solver.margins(solver.plan(put(trial, shares)))
        return min((margins[device] for device in devices if device in margins), default=0)

    candidates: set[tuple[float, ...]]
    if len(devices) == 2:
        candidates = {(float(first), float(count - first)) for first in range(count + 1)}
    else:
        candidates = _climb(count, len(devices), least_margin)
    ordered = tuple(Shares(shares) for shares in sorted(candidates, key=lambda shares: (least_margin(shares), shares)))
    return Knob(name="split", values=ordered, put=put, says=lambda value: f"-ts {value}", floor=len(ordered) - 1)


class Shares(tuple[float, ...]):
    """Layers by card; as text, what `-ts` takes."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(f"{share:g}" for share in self)


def _climb(count: int, cards: int, score: "Callable[[tuple[float, ...]], int]") -> set[tuple[float, ...]]:
    """Even shares, then one layer moved from card to card for as long as the fullest card gains."""
    best = tuple(float(count // cards + (i < count % cards)) for i in range(cards))
    seen = {best}
    while True:
        moves = []
        for source in range(cards):
            for target in range(cards):
                if source != target and best[source] > 0:
                    moved = (share + (i == target) - (i == source) for i, share in enumerate(best))
                    moves.append(tuple(moved))
        seen.update(moves)
        following = max(moves, key=score, default=best)
        if score(following) <= score(best):
            return seen
        best = following


def make(name: str, checkpoint: Checkpoint, trial: Trial, solver: Solver, devices: tuple[str, ...]) -> Knob:
    """The knob of a name in `NAMES`; `devices` are the accelerators by id. `KeyError` for another name."""
    workload = trial.workload
    made: dict[str, Callable[[], Knob]] = {
        "ctx": lambda: context(checkpoint, workload), "slots": lambda: slots(workload), "quant": lambda: quantisation(checkpoint),
        "layers": lambda: layers(checkpoint, workload), "experts": lambda: experts(checkpoint, workload),
        "split": lambda: split(checkpoint, trial, solver, devices), "kv-type": lambda: cache_type(workload),
    }  # fmt: skip
    return made[name]()


def last_resorts(checkpoint: Checkpoint, trial: Trial, devices: tuple[str, ...], fixed: frozenset[str]) -> "Iterator[Knob]":
    """What may be turned down where a workload does not fit, in order of what it costs its user; what the user fixed is left alone. Each is made when it is asked for."""
    workload = trial.workload
    found: list[tuple[str, Callable[[], Knob]]] = [
        ("ctx", lambda: context(checkpoint, workload, least=LEAST_CTX)), ("kv-type", lambda: cache_type(workload)), ("ubatch", lambda: micro_batch(workload)),
        ("slots", lambda: slots(workload)),
    ]  # fmt: skip
    if devices and number(checkpoint, "expert_count") > 1:
        found.append(("experts", lambda: experts(checkpoint, workload)))
    if devices:
        found.append(("layers", lambda: layers(checkpoint, workload)))
    if checkpoint.tensors:
        found.append(("quant", lambda: quantisation(checkpoint)))
    return (make_one() for name, make_one in found if name not in fixed)
