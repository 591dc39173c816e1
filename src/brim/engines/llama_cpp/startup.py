"""What a workload becomes where the engine's own `--fit` is on: the question to `autofit` from a model, a workload and devices, and its answer in flags.

Source: common/common.cpp `common_init_result`, common/fit.cpp, b11434. Weights, caches, state, compute and the draft count, as in the engine's dry load; projector, adapters and
overheads do not. What a card has free is taken less the driver's own context, which is there when the engine asks.
"""

from brim.engines.base import Plan
from brim.engines.llama_cpp.weights import accelerators
from brim.facts.device import DeviceSpec
from brim.facts.model import Checkpoint
from brim.facts.workload import LlamaWorkload
from brim.units import MIB
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TARGET_MIB = 1024  # common/common.h fit_params_target
LEAST_CTX = 4096  # common/common.h fit_params_min_ctx
_COUNTED = frozenset(("weights", "kv_cache", "kv_cache_swa", "recurrent_state", "compute_buffer", "draft"))


class Start(Record):
    """What the engine starts with instead. `workload` is the one turned, `plan` its price, `flags` what would ask for the same; `met` false: it gave up and loads as asked."""

    workload: LlamaWorkload
    plan: Plan
    flags: tuple[str, ...]
    met: bool
    why: str = ""


def number(checkpoint: Checkpoint, key: str) -> int:
    """A count of the header under its architecture's name; 0 where it is not there or is none."""
    value = checkpoint.metadata.get(f"{checkpoint.architecture}.{key}")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _held(plan: Plan, device: str, *, model: bool = False) -> int:
    names = ("weights",) if model else _COUNTED
    return sum(part.bytes.likely for part in plan.parts if part.device == device and part.name in names)


def _margins(workload: LlamaWorkload, count: int) -> tuple[int, ...]:
    """What must stay free on each device, the host's where there is no card (`--fit-target`: one value for all, or one each)."""
    given, count = workload.fit_target_mib, max(count, 1)
    each = given * count if len(given) == 1 else (*given, *(TARGET_MIB,) * count)
    return tuple(mib * MIB for mib in each[:count])


def turned(
    checkpoint: Checkpoint, workload: LlamaWorkload, devices: "tuple[DeviceSpec, ...]", host_bytes: "int | None", price: "Callable[[LlamaWorkload], Plan]", *, ctx_given: bool,
) -> "Start | None":  # fmt: skip
    """What `--fit` makes of a resolved workload; None where it changes nothing, cannot be told, or there is nothing that it may change."""
    cards, plan = accelerators(workload, devices), price(workload)
    if plan.missing or (not cards and host_bytes is None) or workload.split_mode == "tensor":
        return None
    overheads = {part.device: part.bytes.likely for part in plan.parts if part.name == "context_overhead"}
    free = tuple(max(0, card.free_bytes - overheads.get(card.id, 0)) for card in cards)
    margins = _margins(workload, len(cards))
    rooms = [room - _held(plan, card.id) for room, card in zip(free, cards, strict=True)] if cards else [(host_bytes or 0) - _held(plan, "cpu")]
    if all(room >= margin for room, margin in zip(rooms, margins, strict=True)):
        return None
    return _ask(checkpoint, workload, cards, free, margins, host_bytes or 0, price, ctx_given=ctx_given)


def _ask(
    checkpoint: Checkpoint, workload: LlamaWorkload, cards: "tuple[DeviceSpec, ...]", free: tuple[int, ...], margins: tuple[int, ...], host: int, price: "Callable[[LlamaWorkload], Plan]",
    *, ctx_given: bool,
) -> "Start | None":  # fmt: skip
    from brim.engines.llama_cpp.autofit import Asked, Measured, Trial, adapt

    def as_workload(trial: Trial) -> LlamaWorkload:
        made = workload.replace(ctx=trial.ctx)
        if trial.layers is not None:
            made = made.replace(gpu_layers=trial.layers, tensor_split=tuple(map(float, trial.split)))
        return made.replace(override_tensors=trial.overrides) if trial.overrides else made

    unsure: list[str] = []

    def measure(trial: Trial) -> Measured:
        found = price(as_workload(trial))
        unsure.extend(found.missing)
        return Measured(
            used=tuple(_held(found, card.id) for card in cards), model=tuple(_held(found, card.id, model=True) for card in cards), host=_held(found, "cpu")
        )

    layers = None if workload.gpu_layers in (None, -1) else max(workload.gpu_layers or 0, 0)
    asked = Asked(
        free=free, margins=margins, buffers=tuple(card.id.upper().replace(":", "") for card in cards), host=host,
        blocks=number(checkpoint, "block_count") - (0 if workload.load_mtp else number(checkpoint, "nextn_predict_layers")), trained=number(checkpoint, "context_length"), experts=number(checkpoint, "expert_count") > 0,
        streams=1 if workload.kv_unified else max(1, workload.slots or 1), ctx=workload.ctx or 0, least=None if ctx_given else workload.fit_ctx or LEAST_CTX,
        layers=layers, split_fixed=any(workload.tensor_split), overrides_fixed=bool(workload.override_tensors or workload.cpu_experts), split_mode=workload.split_mode or "layer",
    )  # fmt: skip
    if not asked.trained or not asked.blocks:
        return None
    found = adapt(asked, measure)
    became = as_workload(found.trial)
    plan = price(became)
    if unsure or plan.missing:
        return None
    flags = [f"-c {found.trial.ctx}"] if found.trial.ctx != (workload.ctx or asked.trained * asked.streams) else []
    if found.trial.layers is not None:
        flags.append(f"-ngl {found.trial.layers}")
        flags += [f"-ts {','.join(map(str, found.trial.split))}"] if found.trial.split else []
        flags += [f"-ot {','.join(f'{pattern}={home}' for pattern, home in found.trial.overrides)}"] if found.trial.overrides else []
    return Start(workload=became, plan=plan, flags=tuple(flags), met=found.met, why=found.why)
