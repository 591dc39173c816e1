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
        return self.activations + self.logits + self.gradients


class Step:
    """The moments of one step without the states, what forward keeps, what offloading puts on the host, and the largest layer's weight gradients."""

    __slots__ = ("forward_end", "kept", "largest_layer", "moments", "offloaded", "saved")

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.saved = self.kept = self.forward_end = self.offloaded = self.largest_layer = 0


class _Line:
    """The blocks of a model in order, each priced once per kind."""

    __slots__ = ("blocks", "head", "logits", "mask", "stream")

    def __init__(self, census: "Census", w: "TrainWorkload", s: Setting) -> None:
        tokens = w.batch * w.seq
        self.stream = tokens * census.shape.width * s.weight
        self.mask = w.batch * w.seq * w.seq * (1 if not s.eager else s.compute) if s.masked and census.style.mask else 0
        priced: dict[tuple[int, bool, bool], Block] = {}
        self.blocks: list[Block] = []
        adapters = w.method in ADAPTERS
        checkpointed = w.checkpointing in ("full", "offloaded")
        grad = trains(census, None, w) or (adapters and checkpointed)
        for position, place in enumerate(census.order):
            train = trains(census, census.shape.layers[position].index, w)
            key = (place, train, grad)
            if key not in priced:
                priced[key] = layer_block(census, census.kinds[place], w, s, train=train, input_grad=grad)
            self.blocks.append(priced[key])
            grad = grad or train or adapters
        self.head, self.logits = head_block(census, w, s, train=trains(census, None, w), input_grad=grad)


def step(census: "Census", w: "TrainWorkload", s: Setting, gradient_total: int) -> Step:
    """Lay the curves one behind the other. `gradient_total` is what stands at the optimiser's step; under accumulation it stands all the time."""
    line = _Line(census, w, s)
    out = Step()
    lives = gradient_total if s.gradients_live else 0
    checkpointed = w.checkpointing in ("full", "offloaded")
    kept, cached, top, where = _forward(line, out, w, checkpointed=checkpointed)
    head_top = kept + cached + (0 if line.head.input_kept else line.stream) + line.head.forward_peak + line.mask
    logits = min(line.logits, line.head.forward_peak)
    if head_top >= top:
        out.moments.append(Moment("forward", "at the loss", head_top - logits, logits, lives))
    else:
        out.moments.append(Moment("forward", where, top, 0, lives))
    out.kept = kept
    out.saved = kept + line.head.saved + (line.stream if line.head.input_kept else 0)
    out.forward_end = out.saved + line.mask
    _backward(census, line, out, w, lives, kept)
    out.moments.append(Moment("optimizer", "while the optimiser steps", 0, 0, gradient_total))
    return out


def _forward(line: _Line, out: Step, w: "TrainWorkload", *, checkpointed: bool) -> "tuple[int, int, int, str]":
    """(bytes kept, bytes cached by autocast, highest point, where) over the layers."""
    kept = cached = top = 0
    where = ""
    for number, block in enumerate(line.blocks):
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


def _backward(census: "Census", line: _Line, out: Step, w: "TrainWorkload", lives: int, kept: int) -> None:
    """The backward curve, head first; appends its highest point."""
    checkpointed = w.checkpointing in ("full", "offloaded")
    head = line.head
    grads = 0
    here = kept + (line.stream if head.input_kept else 0) + head.backward_peak + line.mask
    logits = min(line.logits, head.backward_peak)
    best = Moment("backward", "at the loss", here - logits - head.weight_grads, logits, lives + head.weight_grads)
    grads = head.weight_grads
    for number in range(len(line.blocks) - 1, -1, -1):
        block = line.blocks[number]
        out.largest_layer = max(out.largest_layer, block.weight_grads)
        if checkpointed:
            high = max(line.stream + block.forward_peak, block.backward_peak - block.weight_grads)
            here = kept + high
        else:
            kept -= block.saved
            here = kept + block.backward_peak - block.weight_grads
        moment = Moment("backward", f"in layer {number}", here + line.mask, 0, lives + (grads + block.weight_grads if not w.fused_backward else block.weight_grads))
        if moment.total > best.total:
            best = moment
        grads = 0 if w.fused_backward else grads + block.weight_grads
        if (checkpointed and w.checkpointing == "full") or (not checkpointed and block.input_kept):
            kept -= line.stream
    out.moments.append(best if best.total >= (last := _embedding(census, line, w, lives, grads)).total else last)


def _embedding(census: "Census", line: _Line, w: "TrainWorkload", lives: int, grads: int) -> Moment:
    """The end of backward: the embedding's gradient is dense; a tied one and the head's (a transposed view, so not added in place) meet in a third tensor."""
    table = census.table
    size = 0
    if table is not None and trains(census, None, w):
        size = table.elements * (2 if w.precision in ("bf16", "fp16", "mixed") else 4)
    temp = 2 * size if census.tied else size if lives else 0
    return Moment("backward", "at the embedding", line.stream + line.mask + temp, 0, lives or (grads if census.tied else grads + size))
