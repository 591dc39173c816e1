"""One training step in time: forward, backward, the optimiser's step and evaluation, each with its highest number of live bytes and what they are.

A layer's own curve comes from its tape; this room lays the curves one behind the other: what earlier layers keep, the gradients that later layers left, what
checkpointing drops and makes again. Source of the order: `torch/autograd` (last layer first), `torch/utils/checkpoint.py` (use_reentrant=False: a
block's input is kept, everything else is made again when its first kept tensor is asked for), transformers 5.24 `modeling_layers.py` GradientCheckpointingLayer.
"""

from brim.engines.train.census import trains
from brim.engines.train.layers import head_block, layer_block
from brim.engines.train.setting import ADAPTERS, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.engines.train.census import Census
    from brim.engines.train.tape import Block
    from brim.facts.training import TrainWorkload


class Moment:
    """One moment's highest point: bytes of activations, of logits among them, and of gradients, and where it is."""

    __slots__ = ("activations", "gradients", "logits", "name", "where")

    def __init__(self, name: str, where: str, activations: int, logits: int, gradients: int) -> None:
        self.name, self.where = name, where
        self.activations, self.logits, self.gradients = activations, logits, gradients

    @property
    def total(self) -> int:
        """All of it, in bytes."""
        return self.weighed(1)

    def weighed(self, ranks: int) -> int:
        """All of it where gradients are divided among ranks."""
        return self.activations + self.logits + -(-self.gradients // ranks)


class Step:
    """The moments of one step without the states, what forward keeps, what offloading puts on the host, and the largest layer's weight gradients."""

    __slots__ = ("forward_end", "kept", "largest_layer", "moments", "offloaded", "saved")

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.saved = self.kept = self.forward_end = self.offloaded = self.largest_layer = 0


class _Line:
    """The blocks of a model in order, each priced once per kind."""

    __slots__ = ("blocks", "head", "logits", "mask", "noise", "stream")

    def __init__(self, census: "Census", w: "TrainWorkload", s: Setting) -> None:
        tokens = w.batch * w.seq
        self.stream = tokens * census.shape.width * s.weight
        self.mask = w.batch * w.seq * w.seq * (1 if not s.eager else s.compute) if s.masked and census.style.mask else 0
        trained = trains(census, None, w) or w.checkpointing != "none"
        noise = tokens * census.shape.width * (1 if s.cuda else s.weight)
        self.noise = noise if census.dropouts[0] and trained and w.method != "freeze" else 0
        priced: dict[tuple[int, bool, bool], Block] = {}
        self.blocks: list[Block] = []
        adapters = w.method in ADAPTERS
        grad = trains(census, None, w) or (adapters and w.checkpointing != "none")
        for position, place in enumerate(census.order):
            train = trains(census, census.shape.layers[position].index, w)
            key = (place, train, grad)
            if key not in priced:
                priced[key] = layer_block(census, census.kinds[place], w, s, train=train, input_grad=grad)
            self.blocks.append(priced[key])
            grad = grad or train or adapters
        self.head, self.logits = head_block(census, w, s, train=trains(census, None, w), input_grad=grad)


def step(census: "Census", w: "TrainWorkload", s: Setting, gradient_total: int, gradient_ranks: int = 1) -> Step:
    """Lay the curves one behind the other. `gradient_total` is what stands at the optimiser's step; under accumulation it stands all the time.

    `gradient_ranks` only weighs gradients against activations where the highest layer is looked for; bytes stay those of one whole model.
    """
    line = _Line(census, w, s)
    out = Step()
    lives = gradient_total if s.gradients_live else 0
    kept, cached, top, where = _forward(line, out, w)
    head_top = kept + cached + (0 if line.head.input_kept else line.stream) + line.head.forward_peak + line.mask
    logits = min(line.logits, line.head.forward_peak)
    if head_top >= top:
        out.moments.append(Moment("forward", "at the loss", head_top - logits, logits, lives))
    else:
        out.moments.append(Moment("forward", where, top, 0, lives))
    out.kept = kept
    out.saved = kept + line.head.saved + (line.stream if line.head.input_kept else 0)
    out.forward_end = out.saved + line.mask
    _backward(census, line, out, w, (lives, gradient_ranks), kept)
    out.moments.append(Moment("optimizer", "while the optimiser steps", 0, 0, 0 if w.fused_backward else gradient_total))
    if w.evaluation_batch:
        out.moments.append(_evaluation(line, w, lives))
    return out


def _evaluation(line: _Line, w: "TrainWorkload", lives: int) -> Moment:
    """Evaluation without gradients: the same forward with nothing kept, scaled from the micro-batch to the evaluation batch (all of it is linear in the batch)."""
    layer = max((block.lean_peak for block in line.blocks), default=0) + line.stream + line.mask
    head = line.stream + line.head.lean_peak
    top, logits = (head, min(line.logits * 10 // 12, head)) if head > layer else (layer, 0)
    scaled = -(-top * w.evaluation_batch // w.batch)
    part = logits * w.evaluation_batch // w.batch
    return Moment("evaluation", "at the logits" if logits else "in a layer", scaled - part, part, lives)


def remade(w: "TrainWorkload", number: int) -> bool:
    """Whether layer `number` is under activation checkpointing; selective means every second layer (torchtitan's `selective` with option 2)."""
    return w.checkpointing in ("full", "offloaded") or (w.checkpointing == "selective" and number % 2 == 0)


def _forward(line: _Line, out: Step, w: "TrainWorkload") -> "tuple[int, int, int, str]":
    """(bytes kept, bytes cached by autocast, highest point, where) over the layers."""
    kept = line.noise
    cached = top = 0
    where = ""
    for number, block in enumerate(line.blocks):
        checkpointed = remade(w, number)
        held = kept + cached + line.stream + line.mask
        high = held + (block.lean_peak if checkpointed else block.forward_peak)
        if high > top:
            top, where = high, f"in layer {number}"
        if not checkpointed:
            kept += block.saved + (line.stream if block.input_kept else 0)
        else:
            cached += block.cached
            if w.checkpointing == "offloaded":
                out.offloaded += line.stream
                kept = min(kept + line.stream, 2 * line.stream)
            else:
                kept += line.stream
    return kept, cached, top, where


def _backward(census: "Census", line: _Line, out: Step, w: "TrainWorkload", standing: "tuple[int, int]", kept: int) -> None:
    """The backward curve, head first: its points at the loss, in the highest layer and at the embedding."""
    lives, ranks = standing
    head = line.head
    grads = 0
    top, learned = _top(head, ranks)
    here = kept + (line.stream if head.input_kept else 0) + top + line.mask
    logits = min(line.logits, top)
    out.moments.append(Moment("backward", "at the loss", here - logits, logits, lives + learned))
    best: Moment | None = None
    grads = head.weight_grads
    for number in range(len(line.blocks) - 1, -1, -1):
        block = line.blocks[number]
        checkpointed = remade(w, number)
        out.largest_layer = max(out.largest_layer, block.weight_grads)
        top, learned = _top(block, ranks)
        if checkpointed and line.stream + block.forward_peak > top + learned:
            top, learned = line.stream + block.forward_peak, 0
        if not checkpointed:
            kept -= block.saved
        moment = Moment("backward", f"in layer {number}", kept + top + line.mask, 0, lives + grads + learned)
        if best is None or moment.weighed(ranks) > best.weighed(ranks):
            best = moment
        grads = 0 if w.fused_backward else grads + block.weight_grads
        if (checkpointed and w.checkpointing != "offloaded") or (not checkpointed and block.input_kept):
            kept -= line.stream
    out.moments.extend([best] if best is not None else [])
    out.moments.append(_embedding(census, line, w, lives, grads))


def _top(block: "Block", ranks: int) -> "tuple[int, int]":
    """(highest point without weight gradients, weight gradients beside it). Divided gradients hardly count, so then the point is taken where the rest is highest."""
    if ranks > 1:
        return block.backward_lean, block.weight_grads
    return block.backward_peak - block.backward_grads, block.backward_grads


def _embedding(census: "Census", line: _Line, w: "TrainWorkload", lives: int, grads: int) -> Moment:
    """The end of backward: the embedding's gradient is dense; a tied one and the head's (a transposed view, so not added in place) meet in a third tensor."""
    table = census.table
    size = 0
    if table is not None and trains(census, None, w):
        size = table.elements * (2 if w.precision in ("bf16", "fp16", "mixed") else 4)
    temp = 2 * size if census.tied else size if lives else 0
    return Moment("backward", "at the embedding", line.stream + line.mask + temp, 0, lives or (grads if census.tied else grads + size))
