"""A tape of operations that knows what autograd keeps: how many bytes are live while a block runs forward, and while it runs backward.

Rules (PyTorch 2.13, `tools/autograd/derivatives.yaml` and `torch/csrc/autograd/input_buffer.cpp`): an operation keeps the tensors that its derivative names until its
own backward has run; a tensor that nobody keeps dies after its last use; gradients that meet are added in place where the first is not shared.
Shapes are gone here: a tensor is a number of bytes, a storage, and whether it needs a gradient.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Op:
    """One operation. `keeps` are storages kept for its backward; `fresh` counts bytes made only to be kept; `cached` bytes that autocast keeps (cast weights)."""

    __slots__ = ("alias", "cached", "fresh", "holds", "ins", "keeps", "outs", "temp_back", "temp_forward", "weight_grad", "weight_temp")

    def __init__(self, ins: "tuple[int, ...]", outs: "tuple[int, ...]", *, alias: bool = False) -> None:
        self.ins, self.outs, self.alias = ins, outs, alias
        self.keeps: tuple[int, ...] = ()
        self.holds: tuple[int, ...] = ()
        self.fresh = self.cached = self.temp_forward = self.temp_back = self.weight_grad = self.weight_temp = 0


class Block:
    """What one run over a tape costs, in bytes above what was live before it (its input and everything earlier are the caller's).

    `backward_grads` counts the weight gradients among `backward_peak`; `backward_lean` is the highest point without any. `lean_peak` is the forward peak where nothing is kept (inside activation checkpointing); `cached` outlives it under autocast.
    """

    __slots__ = ("backward_grads", "backward_lean", "backward_peak", "cached", "forward_peak", "input_kept", "lean_peak", "saved", "weight_grads")

    def __init__(self) -> None:
        self.saved = self.forward_peak = self.lean_peak = self.backward_peak = self.weight_grads = self.cached = 0
        self.backward_grads = self.backward_lean = 0
        self.input_kept = False


class Tape:
    """A block of the model as operations in order. `x` is the tensor that comes in; its storage belongs to the caller."""

    __slots__ = ("grad", "grad_bytes", "ops", "size", "store", "x")

    def __init__(self, input_bytes: int, *, input_needs_grad: bool = True) -> None:
        self.size: list[int] = []
        self.store: list[int] = []
        self.grad_bytes: list[int] = []
        self.grad: list[bool] = []
        self.ops: list[Op] = []
        self.x = self.tensor(input_bytes, grad=input_needs_grad)

    def tensor(self, size: int, *, grad: bool, view_of: int | None = None) -> int:
        """A tensor of `size` bytes; a view shares the storage of another (its gradient is still its own)."""
        if view_of is None:
            self.store.append(len(self.size))
            self.size.append(size)
        else:
            self.store.append(self.store[view_of])
        self.grad_bytes.append(size)
        self.grad.append(grad)
        return len(self.store) - 1

    def op(
        self,
        size: int,
        ins: "Sequence[int]",
        keeps: "Sequence[int]" = (),
        *,
        keep_out: bool = False,
        fresh: int = 0,
        alias: bool = False,
        temp: int = 0,
        temp_back: int = 0,
        weight_grad: int = 0,
        weight_temp: int = 0,
        cached: int = 0,
        holds: "Sequence[int]" = (),
    ) -> int:
        """One output of `size` bytes from `ins`. What is kept is kept only where a gradient will flow; `cached` is made in any case.

        `holds` are tensors that a variable keeps alive until here although they are no inputs.
        """
        needs = weight_grad > 0
        for index in ins:
            needs = needs or self.grad[index]
        out = self.tensor(size, grad=needs)
        op = Op(tuple(ins), (out,), alias=alias)
        op.temp_forward, op.cached, op.holds = temp, cached, tuple(holds)
        if needs:
            op.keeps = tuple([self.store[k] for k in keeps] + ([self.store[out]] if keep_out else []))
            op.fresh, op.temp_back, op.weight_grad, op.weight_temp = fresh, temp_back, weight_grad, weight_temp
        self.ops.append(op)
        return out

    def split(self, source: int, sizes: "Sequence[int]") -> "tuple[int, ...]":
        """Views into one tensor; their gradients are joined into one of the whole size."""
        outs = tuple(self.tensor(size, grad=self.grad[source], view_of=source) for size in sizes)
        self.ops.append(Op((source,), outs))
        return outs

    def _deaths(self) -> "dict[int, list[int]]":
        """Operation number → storages whose last use it is; the block's input and output die elsewhere."""
        last: dict[int, int] = {}
        for number, op in enumerate(self.ops):
            for index in op.ins:
                last[self.store[index]] = number
            for index in op.outs + op.holds:
                last[self.store[index]] = number
        last.pop(self.store[self.x], None)
        last.pop(self.store[self.ops[-1].outs[0]], None)
        deaths: dict[int, list[int]] = {}
        for storage, number in last.items():
            deaths.setdefault(number, []).append(storage)
        return deaths

    def _forward(self, deaths: "dict[int, list[int]]", kept: "set[int]", *, saving: bool) -> int:
        """The forward peak without the input, keeping `kept` (and what is made to be kept) where `saving`."""
        live = peak = 0
        seen = {self.store[self.x]}
        for number, op in enumerate(self.ops):
            for index in op.outs:
                storage = self.store[index]
                if storage not in seen:
                    seen.add(storage)
                    live += self.size[storage]
            live += op.cached + (op.fresh if saving else 0)
            top = live + op.temp_forward + (0 if saving else op.fresh)
            peak = max(peak, top)
            for storage in deaths.get(number, ()):
                if storage not in kept:
                    live -= self.size[storage]
        return peak

    def _backward(self, holders: "dict[int, int]") -> "tuple[int, int, int]":
        """(peak, weight gradients in it, highest point without weight gradients): starts with everything saved and the gradient of the output, ends with the gradient of the input and of the weights."""
        live = sum([self.size[storage] for storage in holders]) + sum([op.fresh + op.cached for op in self.ops])
        buffers: list[list[int]] = []  # [bytes, references]
        grads: dict[int, int] = {}
        out = self.ops[-1].outs[0]
        if self.grad[out]:
            buffers.append([self.grad_bytes[out], 1])
            grads[out] = 0
            live += self.grad_bytes[out]
        peak = lean = live
        learned = learned_at_peak = 0
        for op in reversed(self.ops):
            live, top = self._step_back(op, live, buffers, grads)
            learned += op.weight_grad
            if top > peak:
                peak, learned_at_peak = top, learned
            lean = max(lean, top - learned)
            for storage in op.keeps:
                if storage in holders:
                    holders[storage] -= 1
                    if not holders[storage]:
                        live -= self.size[storage]
            live -= op.fresh + op.cached
        return peak, learned_at_peak, lean

    def _step_back(self, op: Op, live: int, buffers: "list[list[int]]", grads: "dict[int, int]") -> "tuple[int, int]":
        """One operation's backward: its input gradients come, its weight gradient stays, its output gradient goes. (live, top)."""
        arriving = [grads.pop(index) for index in op.outs if index in grads]
        if not arriving:
            return live, live
        live += op.weight_grad
        fresh: list[tuple[int, int]] = []
        for index in op.ins:
            if not self.grad[index]:
                continue
            if op.alias:
                buffers[arriving[0]][1] += 1
                fresh.append((index, arriving[0]))
            else:
                buffers.append([self.grad_bytes[index], 1])
                live += self.grad_bytes[index]
                fresh.append((index, len(buffers) - 1))
        top = live + op.temp_back + op.weight_temp
        for buffer in arriving:
            live = _release(buffers, buffer, live)
        for index, buffer in fresh:
            old = grads.get(index)
            if old is None:
                grads[index] = buffer
                continue
            if buffers[old][1] > 1:  # shared with another path: the sum needs a tensor of its own
                buffers.append([self.grad_bytes[index], 1])
                live += self.grad_bytes[index]
                top = max(top, live)
                grads[index] = len(buffers) - 1
                live = _release(buffers, old, live)
            live = _release(buffers, buffer, live)
        return live, top

    def run(self) -> Block:
        """Forward with saving, forward without (inside activation checkpointing), and backward."""
        block = Block()
        deaths = self._deaths()
        holders: dict[int, int] = {}
        for op in self.ops:
            for storage in op.keeps:
                holders[storage] = holders.get(storage, 0) + 1
        block.input_kept = holders.pop(self.store[self.x], None) is not None
        block.forward_peak = self._forward(deaths, set(holders), saving=True)
        block.lean_peak = self._forward(deaths, set(), saving=False)
        block.cached = sum([op.cached for op in self.ops])
        block.saved = sum([self.size[storage] for storage in holders]) + sum([op.fresh for op in self.ops]) + block.cached
        block.weight_grads = sum([op.weight_grad for op in self.ops])
        block.backward_peak, block.backward_grads, block.backward_lean = self._backward(holders)
        return block


def _release(buffers: "list[list[int]]", buffer: int, live: int) -> int:
    """One reference less; the bytes go with the last."""
    entry = buffers[buffer]
    entry[1] -= 1
    return live - entry[0] if entry[1] == 0 else live
