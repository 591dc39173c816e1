"""The few widths and switches that a workload comes down to, in bytes an element; every other room of this engine reads these, never the workload's words."""

from brim.facts.training import TrainWorkload

WIDTH = {"fp32": 4, "bf16-autocast": 4, "fp16-autocast": 4, "fp8": 4, "bf16": 2, "fp16": 2, "mixed": 2}
BASE_WIDTH = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 2, "nf4": 2, "nf4-dq": 2, "fp4": 2}
PACKED = ("int8", "nf4", "nf4-dq", "fp4")
ADAPTERS = ("lora", "qlora", "dora")


class Linear:
    """One linear layer in a block: widths in elements a token, elements of its bias, and the rank of its adapter (0 where it has none)."""

    __slots__ = ("bias", "inputs", "outputs", "rank")

    def __init__(self, inputs: int, outputs: int, bias: int = 0, rank: int = 0) -> None:
        self.inputs, self.outputs, self.bias, self.rank = inputs, outputs, bias, rank


class Setting:
    """A workload as widths: `weight` of unpacked weights, `compute` of matrix products, `adapter` of adapter weights; and as switches."""

    __slots__ = (
        "adapter",
        "attention_dropout",
        "autocast",
        "base",
        "compute",
        "cuda",
        "dora",
        "dropout",
        "eager",
        "fp8",
        "gradients_live",
        "hidden_dropout",
        "masked",
        "packed",
        "weight",
    )

    def __init__(self, w: TrainWorkload, *, cuda: bool, eager: bool, dropouts: "tuple[bool, bool, bool]" = (False, False, False)) -> None:
        _embedding, self.hidden_dropout, self.attention_dropout = dropouts
        self.autocast = w.precision.endswith("autocast") or w.precision == "fp8"
        self.compute = 4 if w.precision == "fp32" else 2
        self.base = base_of(w)
        self.weight = BASE_WIDTH[self.base] if w.method in ADAPTERS else WIDTH[w.precision]
        self.packed = w.method in ADAPTERS and self.base in PACKED
        self.adapter = {"fp32": 4, "bf16": 2, "fp16": 2}[w.adapter] if w.adapter else WIDTH[w.precision]
        self.dropout, self.dora = w.lora_dropout > 0, w.method == "dora"
        self.fp8 = w.precision == "fp8"
        self.cuda, self.masked = cuda, w.padded
        self.eager = w.attention == "eager" or eager
        self.gradients_live = w.accumulation > 1


def base_of(w: TrainWorkload) -> str:
    """The format of frozen weights: what was asked for, else nf4 with double quantisation (qlora), fp32 (fp32) or the 16-bit format."""
    if w.base:
        return w.base
    if w.method == "qlora":
        return "nf4-dq"
    return "fp32" if w.precision == "fp32" else "fp16" if w.precision.startswith("fp16") else "bf16"
