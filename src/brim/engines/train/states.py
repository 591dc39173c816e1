"""What lives through the whole step: weights, master copies, gradients and optimiser state, exact to the byte from the tensor table.

Sources: torch 2.13 `torch/optim/*.py` (state is made like the parameter; one fp32 `step` a tensor), bitsandbytes 0.45 `optim/optimizer.py` (blocks of 256 with an fp32
maximum; tensors under 4096 elements keep 32-bit state) and `functional.py` quantize_4bit (blocks of 64; double quantisation: 8-bit maxima in blocks of 256),
torchao 0.12 `optim/subclass_4bit.py`, DeepSpeed `runtime/bf16_optimizer.py` and the ZeRO paper (arXiv 1910.02054) for mixed precision.
"""

from brim.engines.train.census import adapted, adapter_dims, sides, trains
from brim.engines.train.setting import ADAPTERS, PACKED, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.engines.train.census import Census
    from brim.facts.model import Weight
    from brim.facts.training import TrainWorkload

    Tally = dict[tuple[tuple[int, ...], int, bool], int]  # (dims, bytes an element, whether inside a layer and no norm) → how many

SMALL_8BIT = 4096
BLOCK_8BIT, BLOCK_4BIT, BLOCK_NF4, BLOCK_NESTED = 256, 128, 64, 256
CODE_8BIT, CODE_4BIT = 256 * 4, 16 * 4


class Learned:
    """Alike trainable tensors: dims, elements of one, how many, and bytes an element."""

    __slots__ = ("count", "dims", "elements", "hidden", "width")

    def __init__(self, dims: tuple[int, ...], count: int, width: int, *, hidden: bool) -> None:
        self.dims, self.count, self.width, self.hidden = dims, count, width, hidden
        self.elements = 1
        for dim in dims:
            self.elements *= dim


class States:
    """Bytes by part. `largest` is the largest trainable tensor's elements and width; `learned` the trainable tensors."""

    __slots__ = ("adapter", "adapter_elements", "learned", "master", "trainable", "unpacked", "weights", "weights_rule")

    def __init__(self) -> None:
        self.weights = self.master = self.adapter = self.unpacked = self.trainable = self.adapter_elements = 0
        self.learned: list[Learned] = []
        self.weights_rule = ""


def blocks(elements: int, size: int) -> int:
    """Blocks of `size` that cover `elements`."""
    return -(-elements // size)


def packed_bytes(elements: int, base: str) -> int:
    """Bytes of one linear weight in a packed format (bitsandbytes). nf4-dq: 4-bit codes, 8-bit maxima, fp32 nested maxima and code books, an fp32 offset."""
    if base == "int8":
        return elements
    codes, maxima = -(-elements // 2), blocks(elements, BLOCK_NF4)
    if base == "nf4-dq":
        return codes + maxima + 4 * blocks(maxima, BLOCK_NESTED) + CODE_4BIT + CODE_8BIT + 4
    return codes + 4 * maxima + CODE_4BIT


def states(census: "Census", w: "TrainWorkload", s: Setting) -> States:
    """Walk the tensor table once, alike rows together (freezing asks for each row's layer, so there each by itself)."""
    out = States()
    tally: Tally = {}
    adapters = w.method in ADAPTERS
    packs = s.base in PACKED and adapters
    gates = {row.layer for row, _ in census.groups if row.role == "expert_gate"}
    rows = [(row, 1) for row in census.rows] if w.method == "freeze" else census.groups
    for row, times in rows:
        each = row.elements // row.copies
        if packs and row.op in ("linear", "transposed") and row.role not in ("lm_head", "router") and row.copies == 1:
            extra = 4 * sides(row)[1] if s.base == "int8" else 0
            out.weights += (packed_bytes(each, s.base) + extra) * times
        else:
            out.weights += row.elements * _width(row, census, s) * times
            out.unpacked += row.elements * times
        if adapters:
            _tally_adapter(row, times, w, (s, census.stacked), tally)
        elif trains(census, row.layer, w):
            _tally_row(row, times, _width(row, census, s), gates, tally)
    out.learned = [Learned(dims, count, width, hidden=hidden) for (dims, width, hidden), count in tally.items()]
    out.trainable = sum(one.elements * one.count for one in out.learned)
    if adapters:
        out.adapter_elements = out.trainable
        out.adapter = sum(one.elements * one.count * one.width for one in out.learned)
    if w.precision == "mixed":
        out.master = 4 * out.trainable
    return out


def _width(row: "Weight", census: "Census", s: Setting) -> int:
    """Bytes an element of an unpacked weight."""
    return 4 if row.role == "router" and census.style.router_fp32 and row.op != "bias" else s.weight


def _tally_adapter(row: "Weight", times: int, w: "TrainWorkload", how: "tuple[Setting, bool]", tally: "Tally") -> None:
    s, stacked = how
    if not adapted(row, w.targets, stacked=stacked):
        return
    for dims in (*adapter_dims(row, w.lora_rank), *(((sides(row)[1],),) if s.dora else ())):
        key = (dims, s.adapter, True)
        tally[key] = tally.get(key, 0) + times


def _tally_row(row: "Weight", times: int, width: int, gates: "set[int | None]", tally: "Tally") -> None:
    dims, copies = row.dims, row.copies
    if copies > 1:  # training code holds all experts of a layer in one tensor, gate and up together
        if row.role == "expert_up" and row.layer in gates:
            return
        dims, copies = (*dims, copies * (2 if row.role == "expert_gate" else 1)), 1
    key = (dims, width, row.layer is not None and row.op not in ("embedding", "norm", "bias"))
    tally[key] = tally.get(key, 0) + copies * times


def gradient_bytes(out: States) -> int:
    """Gradients in the dtype of their weights (autograd's rule)."""
    return sum(one.elements * one.count * one.width for one in out.learned)


def optimizer_bytes(out: States, w: "TrainWorkload", *, steps_on_device: bool) -> int:
    """Optimiser state over all trainable tensors; master copies make it fp32. `steps_on_device` counts the fp32 step of each tensor."""
    return sum(_state(one, w, 4 if w.precision == "mixed" else one.width, steps=4 if steps_on_device else 0) * one.count for one in out.learned) + _code_books(
        w, out
    )


def _code_books(w: "TrainWorkload", out: States) -> int:
    if w.optimizer in ("adamw_8bit", "adamw_paged_8bit"):
        return 2 * CODE_8BIT
    return CODE_8BIT if w.optimizer == "lion_8bit" else 0


def _state(one: Learned, w: "TrainWorkload", width: int, *, steps: int) -> int:
    """Bytes of optimiser state for one tensor."""
    n, name = one.elements, w.optimizer
    if name in ("adamw_8bit", "adamw_paged_8bit", "lion_8bit"):
        moments = 1 if name == "lion_8bit" else 2
        return moments * (4 * n if n < SMALL_8BIT else n + 4 * blocks(n, BLOCK_8BIT))
    if name == "adamw_4bit":
        packed = n >= SMALL_8BIT and n % BLOCK_4BIT == 0
        return 2 * (-(-n // 2) + 4 * (n // BLOCK_4BIT) + CODE_4BIT) if packed else 2 * n * width
    if name == "adafactor":
        if len(one.dims) < 2:
            return n * width + steps
        row, column = n // one.dims[0], n // one.dims[1]
        return (row + column) * width + steps
    if name == "muon":
        return n * width if len(one.dims) == 2 and one.hidden else 2 * n * width + steps
    moments = {"sgd": 0, "sgd_momentum": 1, "lion": 1, "rmsprop": 1, "adagrad": 1}.get(name, 2)
    return moments * n * width + (steps if name not in ("sgd", "sgd_momentum", "lion") else 0)


def step_temporaries(out: States, w: "TrainWorkload", *, cuda: bool) -> tuple[int, str]:
    """What the optimiser's step makes and drops, and why. For-loop AdamW: two tensors like the largest; foreach: one like all; fused and 8-bit kernels: none."""
    width = 4 if w.precision == "mixed" else 0
    sizes = [(one.elements * (width or one.width), one) for one in out.learned]
    if not sizes:
        return 0, "nothing learns"
    largest = max(size for size, _ in sizes)
    everything = sum(size * one.count for size, one in sizes)
    name = w.optimizer
    if name == "adamw_foreach" or (name in ("rmsprop", "adagrad") and cuda):
        return everything, "foreach: one tensor like every trainable weight at once"
    if name == "adamw" and not cuda:
        return 2 * largest, "for-loop: two tensors like the largest weight"
    if name in ("adafactor", "muon", "lion", "adamw_4bit", "rmsprop", "adagrad"):
        return 2 * largest, "two tensors like the largest weight"
    return 0, "fused kernel: none"
