"""The preflight: ways to run and to train one model on given devices, each allowed or blocked with the arithmetic; pure, from a census and budgets.

Inference rows count weights in the named format, a cache for one sequence and the device context. Training rows are plans of the engine `train`. A compressed
class is priced from its declaration (bits a parameter, the share of parameters that is kept, overhead), never from a name.
"""

from brim.engines.train import costs, price
from brim.engines.train.setting import Setting
from brim.engines.train.states import states
from brim.errors import Usage
from brim.facts.training import TrainWorkload
from brim.units import GIB, Span, exactly, format_bytes
from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.engines.train.census import Census
    from brim.facts.device import Device

ALLOWED, BLOCKED, CANNOT_TELL = "allowed", "blocked", "cannot_tell"
CARD_24GB = 24 * GIB


class Compressed(Record):
    """A declared compressed class: `bits` a kept parameter, `kept` of `of` parameters, and storage `overhead` as a share."""

    bits: float
    kept: int = 1
    of: int = 1
    overhead: float = 0.0


class Way(Record):
    """One row: what one device needs, what it can give, and why. `usable` is None where the budget is not known."""

    name: str
    kind: str
    verdict: str
    needed: Span
    usable: int | None
    margin: int | None
    reason: str
    devices: int = 1
    flags: str = ""
    states_bytes: int = 0


class Preflight(Record):
    """The table for one model. `assumed` tells that only a parameter count was given; `device` names what it was judged against."""

    model: str
    parameters: int
    assumed: bool
    device: str
    ways: tuple[Way, ...]
    batch: int
    seq: int
    compressed: Compressed | None = None
    caveats: tuple[str, ...] = ()

    @property
    def kept_parameters(self) -> int:
        """Parameters that the compressed class keeps; all of them where none was declared."""
        return self.parameters if self.compressed is None else self.parameters * self.compressed.kept // self.compressed.of


def preflight(
    census: "Census",
    devices: "tuple[Device, ...]",
    *,
    name: str = "",
    assumed: bool = False,
    batch: int = 1,
    seq: int = 2048,
    compressed: Compressed | None = None,
) -> Preflight:
    """Judge every way against the smallest of `devices`; ways that share work are tried where there are several."""
    if not devices:
        raise Usage("a preflight needs a device", hint='Give --device "RTX 3090" or --device cuda:24GiB.')
    if batch < 1 or seq < 1:
        raise Usage(f"a batch of {batch} × {seq} tokens is no workload")
    least = min(devices, key=_usable_or_zero)
    usable = None if isinstance(least.budget.usable_bytes, Missing) else least.budget.usable_bytes
    ways = [*_inference(census, usable, seq, compressed), *_training(census, usable, batch, seq, least.id)]
    if len(devices) > 1:
        ways.extend(_shared(census, usable, batch, seq, len(devices), least.id))
    caveats = [f"training rows: micro-batch {batch}, {seq} tokens, full activation checkpointing, attention without a score matrix"]
    if assumed:
        shape = census.shape
        caveats.append(
            f"only the parameter count is known: a dense stack of {len(shape.layers)} layers of width {shape.width} is assumed for everything but the weights"
        )
    return Preflight(
        model=name, parameters=census.elements, assumed=assumed, device=f"{len(devices)} × {least.name}" if len(devices) > 1 else least.name,
        ways=tuple(ways), batch=batch, seq=seq, compressed=compressed, caveats=tuple(caveats),
    )  # fmt: skip


def _usable_or_zero(device: "Device") -> int:
    return 0 if isinstance(device.budget.usable_bytes, Missing) else device.budget.usable_bytes


def _way(name: str, kind: str, needed: Span, usable: int | None, reason: str, *, devices: int = 1, flags: str = "", states_bytes: int = 0) -> Way:
    """Blocked where even the low end is above the budget, allowed where the high end is not; between them it cannot tell."""
    if usable is None:
        verdict = CANNOT_TELL
    elif needed.high <= usable:
        verdict = ALLOWED
    else:
        verdict = BLOCKED if needed.likely > usable else CANNOT_TELL
    margin = None if usable is None else usable - needed.likely
    return Way(
        name=name,
        kind=kind,
        verdict=verdict,
        needed=needed,
        usable=usable,
        margin=margin,
        reason=reason,
        devices=devices,
        flags=flags,
        states_bytes=states_bytes,
    )


def weights_in(census: "Census", base: str) -> int:
    """Bytes of all weights with the linear layers in `base` and the rest in 16 bits."""
    w = TrainWorkload(method="lora", base=base, precision="bf16", lora_rank=1)
    return states(census, w, Setting(w, cuda=True, eager=False)).weights


def cache_bytes(census: "Census", tokens: int) -> int:
    """A 16-bit key and value cache of one sequence; latent layers keep their latent and rotary parts; windows are not counted off."""
    total = 0
    for layer in census.shape.layers:
        a = layer.attention
        if a is None or a.shares_cache_of is not None:
            continue
        total += 2 * tokens * (a.latent_rank + a.rope_dim if a.kind == "latent" else a.kv_heads * (a.key_dim + a.value_dim))
    return total


def _inference(census: "Census", usable: int | None, seq: int, compressed: Compressed | None) -> "list[Way]":
    p = census.elements
    cache = exactly(cache_bytes(census, seq))
    work = Span(low=0, likely=2 * seq * max(census.shape.vocabulary, census.shape.width), high=6 * seq * max(census.shape.vocabulary, census.shape.width))
    beside = cache + work + costs.CUDA_CONTEXT
    rows = []
    for name, base in (("inference, bf16", "bf16"), ("inference, 8-bit", "int8"), ("inference, 4-bit", "nf4")):
        weights = weights_in(census, base)
        reason = f"{p} parameters in {base}: weights alone {format_bytes(weights)}; cache for {seq} tokens {format_bytes(cache.likely)}"
        rows.append(_way(name, "inference", exactly(weights) + beside, usable, reason, states_bytes=weights))
    if compressed is not None:
        kept = p * compressed.kept // compressed.of
        weights = round(kept * compressed.bits / 8 * (1 + compressed.overhead))
        reason = f"{p} × {compressed.kept}/{compressed.of} kept × {compressed.bits:g} bits × {1 + compressed.overhead:g}: weights alone {format_bytes(weights)}"
        rows.append(_way("inference, compressed as declared", "inference", exactly(weights) + beside, usable, reason, states_bytes=weights))
    return rows


def _trained(census: "Census", usable: int | None, w: TrainWorkload, name: str, why: str, flags: str, device: str) -> Way:
    """One training row from a plan: the states first, because they alone may be too much."""
    where = device if device != "cpu" else "cuda:0"
    plan = price(census, w, where)
    held = sum(part.bytes.likely for part in plan.parts if part.device == where and part.name in ("weights", "master_weights", "optimizer_state", "adapter"))
    grads = sum(part.bytes.likely for part in plan.parts if part.device == where and part.name == "gradients")
    host = plan.on("cpu").likely
    reason = f"{why} = {format_bytes(held + grads)}; peak at {plan.workload['peak_moment']}"
    if w.offload != "none":
        reason += f"; on the host {format_bytes(host)}"
    return _way(name, "training", plan.on(where), usable, reason, devices=w.ranks, flags=flags, states_bytes=held + grads)


def _training(census: "Census", usable: int | None, batch: int, seq: int, device: str) -> "list[Way]":
    p = census.elements
    full = TrainWorkload(batch=batch, seq=seq)
    return [
        _trained(
            census, usable, full, "full fine-tune, Adam",
            f"states alone {p} × 16 bytes (weights 4, gradients 4, moments 8), 18 with the 16-bit copies of autocast: {format_bytes(16 * p)} to {format_bytes(18 * p)}; "
            "weights, moments and gradients at the peak", "--train full", device,
        ),
        _trained(
            census, usable, full.replace(precision="bf16", optimizer="adamw_8bit"), "full fine-tune, 8-bit Adam, pure bf16",
            f"{p} × about 6 bytes (weights 2, gradients 2, moments 2)", "--train full --precision bf16 --optimizer adamw_8bit", device,
        ),
        _trained(
            census, usable, full.replace(precision="mixed", offload="optimizer"), "full fine-tune, Adam offloaded to the host",
            f"{p} × 2 bytes on the card (16-bit weights; gradients leave by buckets; 16 bytes a parameter on the host)", "--train full --precision mixed --offload optimizer", device,
        ),
        _trained(census, usable, full.replace(method="lora", base="bf16"), "LoRA, 16-bit base", f"{p} × 2 bytes and the adapter", "--train lora --base bf16", device),
        _trained(
            census, usable, full.replace(method="qlora"), "QLoRA, 4-bit base (adapter)",
            "4-bit base with double quantisation, and the adapter", "--train qlora", device,
        ),
    ]  # fmt: skip


def _shared(census: "Census", usable: int | None, batch: int, seq: int, ranks: int, device: str) -> "list[Way]":
    p = census.elements
    base = TrainWorkload(batch=batch, seq=seq, ranks=ranks)
    rows = []
    for name, changes, why, flags in (
        ("full fine-tune, ZeRO-2", {"sharding": "zero2"}, f"{p} × (2 + 14 / {ranks}) bytes", "--train full --zero 2"),
        ("full fine-tune, ZeRO-3", {"sharding": "zero3"}, f"{p} × 16 / {ranks} bytes", "--train full --zero 3"),
        ("full fine-tune, ZeRO-3, all offloaded", {"sharding": "zero3", "offload": "all"}, "states on the host", "--train full --zero 3 --offload all"),
        ("full fine-tune, FSDP", {"sharding": "fsdp"}, f"{p} × 16 / {ranks} bytes", "--train full --fsdp full"),
        (
            "LoRA, 16-bit base, FSDP",
            {"sharding": "fsdp", "method": "lora", "base": "bf16"},
            f"{p} × 2 / {ranks} bytes and the adapter",
            "--train lora --fsdp full",
        ),
        ("QLoRA, 4-bit base, FSDP", {"sharding": "fsdp", "method": "qlora"}, f"4-bit base / {ranks}, and the adapter", "--train qlora --fsdp full"),
    ):
        rows.append(_trained(census, usable, base.replace(**changes), f"{name}, {ranks} devices", why, flags, device))
    return rows


def governor_fields(table: Preflight, report_path: str) -> "dict[str, object]":
    """The fields that the governor report reads. Gigabytes here are GiB (bytes / 2^30), as that report counts them.

    Feasible: a 4-bit run or a 4-bit adapter step fits a 24 GiB card less a tenth.
    """
    kept = table.kept_parameters
    bits = 4.0 if table.compressed is None else table.compressed.bits
    names = ("inference, compressed as declared",) if table.compressed is not None else ("inference, 4-bit", "QLoRA, 4-bit base (adapter)")
    room = CARD_24GB - CARD_24GB // 10
    feasible = any(way.needed.likely <= room for way in table.ways if way.name in names)
    return {
        "dense_class_params": table.parameters,
        "purefield_estimated_params": kept,
        "purefield_vram": {
            "bf16_weights_gb": round(kept * 2 / GIB, 4),
            "int4_raw_weights_gb": round(kept * bits / 8 / GIB, 4),
            "rtx_3090_24gb_int4_or_adapter_feasible": feasible,
        },
        "report_path": report_path,
    }
