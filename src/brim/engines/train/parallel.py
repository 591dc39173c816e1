"""Who holds what when ranks share the work: DDP, ZeRO 1 to 3 and FSDP, with their buffers and what offloading moves to the host.

Sources: ZeRO (arXiv 1910.02054, table 1), DeepSpeed 0.17 `runtime/zero/stage_1_and_2.py` and `stage3.py` (reduce bucket of 5e8 elements in the gradients' dtype, twice with
overlap), torch 2.13 `distributed/fsdp/_runtime_utils.py` and `_fully_shard` (a unit is gathered while the next one is fetched; the root unit stays gathered),
torch `lib/c10d/reducer.cpp` (DDP buckets hold every gradient once more).
"""

from brim.units import NOTHING, Span, exactly

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.engines.train.census import Census
    from brim.engines.train.states import States
    from brim.facts.training import TrainWorkload

BUCKET_ELEMENTS = 500_000_000
LIVE_ELEMENTS = 1_000_000_000


class Share:
    """One rank's part, in bytes. `gradient_ranks` divides the gradients, and `gradients_leave` tells that they go to the host bucket by bucket; `communication` is a span; `host` what offloading puts on one node's host."""

    __slots__ = ("adapter", "communication", "gradient_ranks", "gradients_leave", "host", "master", "optimizer", "rule", "weights")

    def __init__(self, states: "States", optimizer: int) -> None:
        self.weights, self.master, self.adapter, self.optimizer = states.weights, states.master, states.adapter, optimizer
        self.gradient_ranks, self.host, self.gradients_leave = 1, 0, False
        self.communication: Span = NOTHING
        self.rule = ""


def _part(count: int, ranks: int) -> int:
    return -(-count // ranks)


def gather_elements(census: "Census") -> tuple[int, int]:
    """(elements of the largest layer, elements outside the layers)."""
    largest = max((sum(row.elements for row in kind.rows) for kind in census.kinds), default=0)
    return largest, sum(row.elements for row in census.rest)


def share(census: "Census", states: "States", gradients: int, optimizer: int, w: "TrainWorkload") -> Share:
    """Divide the states as `w.sharding` says. One rank of all; ranks are alike (parts are rounded up)."""
    out = Share(states, optimizer)
    n = w.ranks // w.nodes if w.sharding == "fsdp-hybrid" else w.ranks
    bucket = w.bucket_bytes or min(states.trainable, BUCKET_ELEMENTS) * 2
    layer, root = gather_elements(census)
    narrow = 4 if w.precision == "fp32" else 2
    if w.sharding == "ddp":
        out.communication = exactly(gradients)
        out.rule = f"DDP buckets: every gradient once more = {gradients}"
    elif w.sharding.startswith("zero"):
        stage = int(w.sharding[-1])
        out.master, out.optimizer = _part(out.master, n), _part(out.optimizer, n)
        out.communication = Span(low=bucket, likely=bucket, high=2 * bucket)
        out.rule = f"reduce bucket {bucket} (twice with overlap)"
        if stage >= 2:
            out.gradient_ranks = n
        if stage == 3:
            out.weights, out.adapter = _part(out.weights, n), _part(out.adapter, n)
            live = narrow * (2 * layer + root)
            out.communication += Span(low=narrow * layer, likely=live, high=max(live, narrow * min(LIVE_ELEMENTS, census.elements)))
            out.rule += f"; gathered: two layers of {layer} and {root} outside the layers, {narrow} bytes each"
    elif w.sharding.startswith("fsdp"):
        out.weights, out.adapter, out.master, out.optimizer = (_part(x, n) for x in (out.weights, out.adapter, out.master, out.optimizer))
        out.gradient_ranks = n
        whole = census.elements if w.sharding == "fsdp-grad-op" else 2 * layer + root
        learns = states.trainable * layer // max(1, census.elements)
        gathered = narrow * (whole + 2 * learns)
        out.communication = Span(low=narrow * (layer + root), likely=gathered, high=gathered + narrow * layer)
        out.rule = f"gathered {whole} elements and two layers' gradients, {narrow} bytes each"
    _offload(out, states, w, n)
    return out


def _offload(out: Share, states: "States", w: "TrainWorkload", ranks: int) -> None:
    """Move optimiser state (and with `all` the weights too) to the host; `nvme` leaves only pinned buffers there.

    Where DeepSpeed or FSDP does it, gradients leave the card too as soon as they are reduced, and are fp32 on the host (16 bytes a parameter there in all).
    """
    if w.offload == "none":
        return
    moved = out.optimizer + out.master
    out.optimizer = out.master = 0
    if w.offload in ("all", "nvme"):
        moved += out.weights
        out.weights = 0
    out.gradients_leave = w.precision == "mixed" or w.sharding in ("zero2", "zero3") or w.sharding.startswith("fsdp")
    if out.gradients_leave:
        moved += _part(4 * states.trainable, ranks)
        bucket = w.bucket_bytes or min(states.trainable, BUCKET_ELEMENTS) * 2
        if not out.communication.high:
            out.communication, out.rule = exactly(bucket), f"gradients leave by a bucket of {bucket}"
    out.host = 0 if w.offload == "nvme" else moved * min(ranks, max(1, w.ranks // w.nodes))


def zero_states_bytes(parameters: int, stage: int, ranks: int) -> int:
    """Model states of one rank by the ZeRO paper's table: 2 + 2 + 12 bytes a parameter, divided as far as the stage says; rounded up."""
    whole, parted = {0: (16, 0), 1: (4, 12), 2: (2, 14), 3: (0, 16)}[stage]
    return whole * parameters + -(-parted * parameters // ranks)


def deepspeed_estimate(parameters: int, largest_layer: int, stage: int, ranks: int, *, optimizer_on_cpu: bool = False, parameters_on_cpu: bool = False) -> int:
    """What DeepSpeed's own estimators print for one card (`runtime/zero/stage_1_and_2.py` and `stage3.py`, estimate_zero*_model_states_mem_needs), in bytes.

    Stage 2: 4 a parameter whole (fp16 weights and gradients) and 16 divided (fp32 copy, gradient and two moments); stage 3: 18 divided, and the largest layer gathered.
    """
    if stage == 2:
        return 2 * parameters if optimizer_on_cpu else 4 * parameters + 16 * parameters // ranks
    gathered = 4 * largest_layer
    if parameters_on_cpu:
        return gathered
    return gathered + (2 if optimizer_on_cpu else 18) * parameters // ranks
