"""From a model's tensor table and a workload to a plan: the parts at the step's highest moment, and which moment that is.

Guarantees: the parts on a device are what is live at one moment, so they sum to the peak; weights, master copies, gradients and optimiser state are exact.
Not covered (the plan says `missing`): tensor, pipeline, context and expert parallelism; vision towers' activations; recurrent layers are an estimate.
"""

from brim.engines.base import Part, Plan
from brim.engines.train import costs
from brim.engines.train.census import Census, check_targets
from brim.engines.train.checks import check
from brim.engines.train.parallel import Share, share
from brim.engines.train.setting import ADAPTERS, Setting, base_of
from brim.engines.train.states import States, gradient_bytes, optimizer_bytes, states, step_temporaries
from brim.engines.train.step import Moment, Step, step
from brim.units import Span, exactly
from brim.values import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from brim.facts.model import Shape, Weight
    from brim.facts.training import TrainWorkload

VERSION = "torch 2.13"
_TAPE = "torch 2.13 derivatives.yaml and transformers 5.24 modeling code, checked against MemTracker (docs/evidence/train-oracle.md)"
_TABLE = "the tensor table of the checkpoint"


def survey(shape: "Shape", weights: "tuple[Weight, ...]", config: "Mapping[str, object] | None" = None) -> Census:
    """Sort a model's weights once; a solver prices the result many times. `config` tells whether the model has dropout (default: its architecture's)."""
    return Census(shape, weights, config)


class _Facts:
    """Everything that was worked out before parts are written."""

    __slots__ = ("census", "cuda", "gradients", "moment", "optimizer", "setting", "share", "states", "step", "temp", "temp_rule", "w")

    def __init__(self, census: Census, w: "TrainWorkload", device: str) -> None:
        self.census, self.w = census, w
        self.cuda = device != "cpu"
        effective = w.replace(precision="mixed") if w.sharding.startswith("zero") and w.precision.endswith("autocast") and w.method not in ADAPTERS else w
        eager = census.style.eager_only and w.attention != "flash"
        self.setting = Setting(effective, cuda=self.cuda, eager=eager, dropouts=census.dropouts)
        self.states = states(census, effective, self.setting)
        self.gradients = gradient_bytes(self.states)
        if effective.precision == "mixed" and w.accumulation > 1:
            self.gradients *= 2  # accumulated in fp32 (DeepSpeed bf16_optimizer.py)
        self.optimizer = optimizer_bytes(self.states, effective, steps_on_device=not self.cuda)
        inner = (
            Setting(effective.replace(precision="bf16"), cuda=self.cuda, eager=eager, dropouts=census.dropouts)
            if w.sharding.startswith("fsdp") and self.setting.autocast
            else self.setting
        )
        if inner is not self.setting:
            inner.gradients_live, inner.packed, inner.adapter = self.setting.gradients_live, self.setting.packed, self.setting.adapter
        self.share: Share = share(census, self.states, self.gradients, self.optimizer, effective)
        self.step: Step = step(census, effective, inner, self.gradients, self.share.gradient_ranks)
        self.temp, self.temp_rule = step_temporaries(self.states, effective, cuda=self.cuda)
        self.temp = -(-self.temp // self.share.gradient_ranks) if w.offload == "none" else 0
        self.moment = max(self.step.moments, key=self.at)

    def at(self, moment: Moment) -> int:
        """What comes and goes at a moment on this rank."""
        leaves = -(-moment.gradients // self.share.gradient_ranks) if self.share.gradients_leave else 0
        less = leaves + (moment.activations * (1000 - costs.COMPILED_PER_MILLE[1]) // 1000 if self.w.compiled else 0)
        return moment.weighed(self.share.gradient_ranks) - less + (self.temp if moment.name == "optimizer" else 0)

    def peaks(self) -> "dict[str, int]":
        """The highest point of each named moment, without the states."""
        out: dict[str, int] = {}
        for moment in self.step.moments:
            out[moment.name] = max(out.get(moment.name, 0), self.at(moment))
        return out

    def gradients_at(self, moment: Moment) -> int:
        """This rank's gradients at a moment."""
        if self.share.gradients_leave:
            return 0
        return -(-moment.gradients // self.share.gradient_ranks)


def price(census: Census, w: "TrainWorkload", device: str = "cuda:0", *, devices: "tuple[str, ...]" = ()) -> Plan:
    """The plan of one training step on `device` (or alike on each of `devices`). `Usage` for a workload that cannot be meant."""
    check(w)
    check_targets(census, w)
    facts = _Facts(census, w, device)
    parts: list[Part] = []
    for name in devices or (device,):
        parts.extend(_device_parts(facts, name))
    parts.extend(_host_parts(facts, device))
    return Plan(
        engine="train",
        engine_version=VERSION,
        parts=tuple(part for part in parts if part.bytes.high),
        workload=_workload(facts),
        missing=_missing(census),
        caveats=_caveats(facts),
    )


def _per_mille(count: int, marks: "tuple[int, int, int]") -> Span:
    low, likely, high = (count * mark // 1000 for mark in marks)
    return Span(low=low, likely=likely, high=high)


def _device_parts(f: _Facts, device: str) -> "list[Part]":
    """What one rank's device holds at the highest moment."""
    w, share_, moment = f.w, f.share, f.moment
    per = f" / {w.ranks} ranks" if w.ranks > 1 else ""
    unsure = not f.census.style.known or w.precision == "fp8" or any(layer.state is not None for layer in f.census.shape.layers)
    experts = any(layer.feed_forward is not None and layer.feed_forward.experts for layer in f.census.shape.layers)
    marks = (costs.UNSURE_EXPERTS_PER_MILLE if experts else costs.UNSURE_PER_MILLE) if unsure else costs.KNOWN_PER_MILLE
    activations = _per_mille(moment.activations, costs.COMPILED_PER_MILLE if w.compiled else marks)
    gradients = f.gradients_at(moment)
    temp = f.temp if moment.name == "optimizer" else 0
    loose = moment.activations + moment.logits + gradients + temp + share_.communication.likely
    where = f"{moment.name}, {moment.where}"
    rows = [
        ("weights", exactly(share_.weights), _weights_rule(f) + per, _TABLE),
        (
            "adapter",
            exactly(share_.adapter),
            f"{f.states.adapter_elements} adapter weights × {f.setting.adapter} bytes" + per,
            "peft 0.21 tuners/lora/layer.py",
        ),
        (
            "master_weights",
            exactly(share_.master),
            f"{f.states.trainable} × 4 bytes (fp32 copies)" + per,
            "arXiv 1910.02054; DeepSpeed runtime/bf16_optimizer.py",
        ),
        ("optimizer_state", exactly(share_.optimizer), f"{w.optimizer} on {f.states.trainable} weights" + per, "torch/optim, bitsandbytes optim/optimizer.py"),
        ("gradients", exactly(gradients), f"at {where}: of {f.gradients} in all" + (f" / {share_.gradient_ranks}" if share_.gradient_ranks > 1 else ""), _TAPE),
        ("activations", activations, f"at {where}: micro-batch {w.batch} × {w.seq} tokens, checkpointing {w.checkpointing}", _TAPE),
        ("logits", exactly(moment.logits), f"at {where}: {w.batch * w.seq} tokens × {f.census.shape.vocabulary} words, loss {w.loss}", _TAPE),
        ("compute_buffer", exactly(temp), f"at {where}: {f.temp_rule}", "torch/optim/adamw.py 2.13"),
        ("communication", share_.communication, share_.rule, "engines/train/parallel.py sources"),
    ]
    if f.cuda:
        rows.append(("context_overhead", costs.CUDA_CONTEXT + costs.CUBLAS, "device context, kernels and the cuBLAS workspace", costs.CUDA_CONTEXT_SOURCE))
    else:
        rows.append(("context_overhead", costs.CPU_PROCESS, "the Python process with its libraries and scratch", costs.HOST_PROCESS_SOURCE))
    marks = costs.SLACK_GATHERED_PER_MILLE if w.sharding.startswith("fsdp") or w.sharding == "zero3" else costs.SLACK_PER_MILLE
    said = f"reserved beyond allocated: {marks} per mille of {loose}"
    rows.append(("allocator_slack", _per_mille(loose, marks), said, "published pairs, engines/train/costs.py"))
    return [Part(name=name, device=device, bytes=size, rule=rule, source=source) for name, size, rule, source in rows if size.high]


def _weights_rule(f: _Facts) -> str:
    if f.setting.packed:
        return f"{f.census.elements} weights, linear layers in {f.setting.base}, the rest × {f.setting.weight} bytes"
    return f"{f.census.elements} weights × {f.setting.weight} bytes"


def _host_parts(f: _Facts, device: str) -> "list[Part]":
    """The host beside a card: the process, its loader workers, what was offloaded, and rank 0's copy while it saves."""
    w = f.w
    rows: list[tuple[str, Span, str, str]] = []
    local = max(1, w.ranks // w.nodes)
    if f.cuda:
        rows.append(("context_overhead", _times(costs.HOST_PROCESS, local), f"{local} Python process(es) with their libraries", costs.HOST_PROCESS_SOURCE))
    if w.workers:
        rows.append(("compute_buffer", _times(costs.WORKER, w.workers * local), f"{w.workers} loader workers × {local}", "engines/train/costs.py WORKER"))
    if f.share.host:
        rows.append(
            (
                "optimizer_state",
                exactly(f.share.host),
                f"offload {w.offload}: states of this node's ranks, pinned",
                "DeepSpeed runtime/zero, torch FSDP CPUOffload",
            )
        )
    if f.step.offloaded:
        rows.append(("activations", exactly(f.step.offloaded * local), "offloaded inputs of checkpointed layers, pinned", "torch save_on_cpu"))
    saved = save_bytes(f.states, w)
    if w.sharding in ("zero3", "fsdp", "fsdp2", "fsdp-hybrid", "fsdp-grad-op"):
        rows.append(
            (
                "weights",
                Span(low=0, likely=saved, high=saved),
                "rank 0 gathers the whole state to save it",
                "torch FSDP FULL_STATE_DICT, DeepSpeed gather_16bit_weights",
            )
        )
    return [Part(name=name, device="cpu", bytes=size, rule=rule, source=source) for name, size, rule, source in rows]


def _times(span: Span, count: int) -> Span:
    return Span(low=span.low * count, likely=span.likely * count, high=span.high * count)


def save_bytes(s: States, w: "TrainWorkload") -> int:
    """The weights that a checkpoint file holds: all of them in full training, the adapter alone under LoRA."""
    return s.adapter if w.method in ADAPTERS else s.weights


def _workload(f: _Facts) -> "dict[str, object]":
    w = f.w
    asked = plain(w)
    assert isinstance(asked, dict)
    asked.update(base=base_of(w) if w.method in ADAPTERS else "", targets=",".join(w.targets), unpriced=list(w.unpriced))
    if w.method not in ADAPTERS:
        for key in ("lora_rank", "lora_dropout", "targets", "adapter", "base"):
            asked.pop(key)
    if w.method != "freeze":
        asked.pop("trainable_layers")
    for key in ("accumulation", "ranks", "nodes"):
        if asked[key] == 1:
            asked.pop(key)
    for key in ("bucket_bytes", "workers", "evaluation_batch", "compiled", "fused_backward", "unpriced", "adapter", "base", "lora_dropout"):
        if not asked.get(key, True):
            asked.pop(key)
    if w.loss != "chunked":
        asked.pop("loss_chunks")
    states_ = f.share.weights + f.share.master + f.share.adapter + f.share.optimizer
    asked["trainable_parameters"] = f.states.trainable
    asked["peak_moment"] = f"{f.moment.name}, {f.moment.where}"
    asked["moments_bytes"] = {name: states_ + f.share.communication.likely + size for name, size in f.peaks().items()}
    asked["saved_activation_bytes"] = f.step.saved
    optimizer = f.optimizer + f.states.master if w.save_optimizer else 0
    asked["checkpoint_disk_bytes"] = save_bytes(f.states, w) + optimizer
    return asked


def _missing(census: Census) -> "tuple[str, ...]":
    if not census.shape.layers or not census.rows:
        return ("the layers of this model are not known",)
    if census.shape.encoder_layers:
        return ("the activations of the encoder (only decoders are priced)",)
    return ()


def _caveats(f: _Facts) -> "tuple[str, ...]":
    w, census = f.w, f.census
    out = [
        f"the peak is at {f.moment.name} ({f.moment.where}): " + ", ".join(f"{name} {size}" for name, size in f.peaks().items()) + " bytes beside the states"
    ]
    if w.method not in ADAPTERS and w.precision.endswith("autocast") and w.sharding.startswith("zero"):
        out.append("DeepSpeed keeps 16-bit weights and fp32 master copies instead of autocast over fp32 weights")
    if w.optimizer == "adamw":
        out.append("adamw is priced as the fused kernel on a card (transformers' default); adamw_foreach makes one more tensor like every weight")
    if w.precision == "fp8":
        out.append("fp8 is an estimate: bf16 autocast whose linear inputs are kept in one byte")
    if census.shape.quantisation is not None:
        out.append(f"the checkpoint is packed ({census.shape.quantisation.method}); the step is priced on the base format above")
    if f.setting.packed and f.setting.weight == 2:
        out.append(f"peft's prepare_model_for_kbit_training, where a program calls it, holds what is not packed in fp32: {2 * f.states.unpacked} bytes more")
    if "paged" in w.optimizer:
        out.append("paged optimiser state is counted on the card; under pressure its driver moves pages of it to the host")
    if not census.style.known:
        out.append(f"the training code of architecture {census.shape.architecture} is not known to brim: activations are an assumption with a wide span")
    if any(layer.state is not None for layer in census.shape.layers):
        out.append("recurrent layers are estimated from their projections")
    if census.shape.vision is not None or census.shape.audio is not None:
        out.append("towers are counted as weights; their activations are not priced")
    if any(layer.feed_forward is not None and layer.feed_forward.experts for layer in census.shape.layers):
        out.append("experts are priced as transformers' grouped kernel runs them; the eager loop over experts keeps the same rows")
    out.extend(f"not priced: {item}" for item in w.unpriced)
    return tuple(out)
