"""One prediction: what was asked of which model, engine and devices, the plan, the verdict, and the nearest thing that fits."""

from brim.engines.base import Part, Plan
from brim.facts.device import Device
from brim.facts.model import Checkpoint
from brim.gate import CANNOT_TELL, DOES_NOT_FIT, FITS, Verdict, judge
from brim.planner import largest
from brim.units import format_bytes
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from brim.engines.llama_cpp.startup import Start

CTX_STEP = 256  # llama.cpp rounds a context up to this many cells (src/llama-context.cpp, b11434)


class Prediction(Record):
    """The answer of `brim fit`. `max_ctx` is the largest context that fits with everything else as asked, None where that is not known.

    `grows` are parts beyond the start-up plan, from nothing to their limit; `defaults` say what the engine chose where the user said nothing; `unpriced` are words of
    the command that were not priced; `resolved` is the workload with the engine's defaults filled in; `start` is what the engine's own --fit would start with instead.
    """

    checkpoint: Checkpoint
    plan: Plan
    gate: Verdict
    max_ctx: int | None
    max_ctx_is_trained: bool
    suggestions: tuple[str, ...]
    caveats: tuple[str, ...]
    bare: "Plan | None" = None  # the plan before this machine's calibration, where that changed it
    grows: tuple[Part, ...] = ()
    defaults: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()
    resolved: "Record | None" = None
    start: "Start | None" = None
    max_ctx_is_asked: bool = False  # more was asked for than the model was trained with, and it fits

    @property
    def verdict(self) -> str:
        """`fits`, `does_not_fit` or `cannot_tell`."""
        return self.gate.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """One sentence a device, or what kept the plan from being priced."""
        return self.gate.reasons


def predict(
    checkpoint: Checkpoint,
    price: "Callable[[int | None], Plan]",
    devices: tuple[Device, ...],
    caveats: tuple[str, ...],
    nearest: "Callable[[], tuple[str, ...]] | None" = None,
) -> Prediction:
    """Judge the workload as asked, then look for the largest context that fits. `price(None)` prices what was asked, `price(n)` a context of n tokens.

    `nearest` says what would fit instead, where an engine has more knobs than its context.
    """
    plan = price(None)
    gate = judge(plan, devices, waiting=True)
    told = most = checkpoint.metadata.get(f"{checkpoint.architecture}.context_length")
    max_ctx: int | None = None
    if not plan.missing and isinstance(most, int) and all(isinstance(device.budget.usable_bytes, int) for device in devices):
        asked = int(str(plan.workload.get("ctx", 0)))
        most = max(most, asked)
        max_ctx = _largest_context(price, devices, most, asked if gate.verdict == FITS else 0)
    return Prediction(
        checkpoint=checkpoint,
        plan=plan,
        gate=gate,
        max_ctx=max_ctx,
        max_ctx_is_trained=max_ctx is not None and max_ctx == told,
        max_ctx_is_asked=max_ctx is not None and max_ctx == most != told,
        suggestions=_suggest(gate, plan, max_ctx) if nearest is None or gate.verdict == FITS or plan.missing else nearest(),
        caveats=caveats + plan.caveats,
    )


def _largest_context(price: "Callable[[int | None], Plan]", devices: tuple[Device, ...], most: int, least: int) -> int:
    """The largest context that fits, with `least` known to. Memory grows almost in proportion to it, so the search goes straight to where the tightest device would be full."""
    margins: dict[int, int] = {}

    def fits(ctx: int) -> bool:
        plan = price(ctx)
        rooms = ((device.budget.usable_bytes, plan.on(device.id).high) for device in devices)
        margins[ctx] = min((usable - needed for usable, needed in rooms if isinstance(usable, int)), default=0)
        return judge(plan, devices).verdict == FITS

    def near(low: int, high: int) -> int:
        above, below = margins.get(low, 0), margins.get(high, 0)
        return low + (high - low) * above // (above - below) if above >= 0 > below else (low + high) // 2

    return largest(fits, most=most, step=CTX_STEP, near=near, least=least)


def _suggest(gate: Verdict, plan: Plan, max_ctx: int | None) -> tuple[str, ...]:
    """What would fit instead, nearest first."""
    if gate.verdict == FITS or plan.missing:
        return ()
    if gate.verdict == CANNOT_TELL:
        return () if max_ctx is None else (f"the largest context that surely fits is {max_ctx}",)
    assert gate.verdict == DOES_NOT_FIT
    if max_ctx:
        return (f"the largest context that fits is {max_ctx} (--ctx {max_ctx})",)
    least = min((part for part in plan.parts if part.name != "weights"), key=lambda part: part.bytes.high, default=None)
    weights = sum(part.bytes.likely for part in plan.parts if part.name == "weights")
    return (f"no context fits: the weights alone take {format_bytes(weights)}; a smaller quantisation or a larger device is needed",) if least else ()
