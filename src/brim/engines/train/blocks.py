"""Writes one block of a model on a tape: projections, norms, rotary positions, attention, feed-forward, experts, and the head with its loss.

Every method says which tensors the backward of transformers' own code needs (transformers 5.24.0, torch 2.13; peft 0.21 for adapters). Widths are bytes an element.
Not covered: convolutions and recurrent states (the caller says so and widens its span).
"""

from brim.engines.train.tape import Tape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.engines.train.setting import Linear, Setting
    from brim.engines.train.styles import Style
    from brim.facts.model import Attention, FeedForward


class Writer:
    """A tape with element counts and widths beside it. `train` tells whether this block's own weights learn."""

    __slots__ = ("elements", "s", "style", "tape", "train", "width")

    def __init__(self, setting: "Setting", style: "Style", elements: int, width: int, *, train: bool, input_grad: bool) -> None:
        self.s, self.style, self.train = setting, style, train
        self.tape = Tape(elements * width, input_needs_grad=input_grad)
        self.elements, self.width = [elements], [width]

    def op(self, elements: int, width: int, ins: "list[int]", keeps: "list[int] | tuple[int, ...]" = (), **more: "int | bool | list[int]") -> int:
        """One operation with an output of `elements` × `width`."""
        out = self.tape.op(elements * width, ins, keeps, **more)  # type: ignore[arg-type]
        self.elements.append(elements)
        self.width.append(width)
        return out

    def like(self, x: int, ins: "list[int] | None" = None, keeps: "list[int] | tuple[int, ...]" = (), **more: "int | bool | list[int]") -> int:
        """An operation whose output looks like `x`."""
        return self.op(self.elements[x], self.width[x], [x] if ins is None else ins, keeps, **more)

    def cast(self, x: int, width: int) -> int:
        """`x` in another format: the same tensor where it has it already."""
        return x if self.width[x] == width else self.op(self.elements[x], width, [x])

    def view(self, x: int, counts: "list[int]", width: int | None = None) -> "list[int]":
        """Views into `x` of `counts` elements; `width` is that of their gradients (type promotion inside a kernel)."""
        width = width or self.width[x]
        outs = self.tape.split(x, [count * width for count in counts])
        self.elements.extend(counts)
        self.width.extend([width] * len(counts))
        return list(outs)

    def add(self, a: int, b: int) -> int:
        """a + b; the gradient passes through, cast where the widths differ."""
        width = max(self.width[a], self.width[b])
        ends = [x if self.width[x] == width else self.view(x, [self.elements[x]], width)[0] for x in (a, b)]
        return self.op(self.elements[a], width, ends, alias=True)

    def learn(self, elements: int, width: int, *, cast: bool) -> "dict[str, int]":
        """What a weight of `elements` costs in backward: its gradient, and the 16-bit one before the cast under autocast."""
        if not self.train:
            return {}
        temp = elements * self.s.compute if cast else 0
        if self.s.gradients_live:
            return {"weight_temp": temp + elements * width}
        return {"weight_grad": elements * width, "weight_temp": temp}

    def norm(self, x: int, rows: int, weight: int, kind: str = "") -> int:
        """A normalisation over rows of `weight` elements; a weight of 0 has none."""
        kind = kind or self.style.norm
        if kind == "layer32":  # without weights, in fp32, and cast back
            wide = self.cast(x, 4)
            return self.cast(self.like(wide, None, [wide], fresh=8 * rows), self.width[x])
        if kind == "layer":
            x = self.cast(x, 4) if self.s.autocast else x
            return self.like(x, None, [x], fresh=2 * rows * self.width[x], **self.learn(2 * weight, self.s.weight, cast=False))
        narrow, n = self.width[x], self.elements[x]
        wide = centred = self.cast(x, 4)
        if kind == "cohere":  # the mean is taken off twice, once for the variance and once for the result
            wide, centred = self.like(wide), self.like(wide)
        square = self.like(wide, None, [wide], temp_back=4 * n)
        scale = self.op(rows, 4, [self.op(rows, 4, [square])], keep_out=True)
        h = self.like(centred, [centred, scale], [centred, scale])
        learn = self.learn(weight, self.s.weight, cast=False)
        if kind == "llama":
            h = self.cast(h, narrow)
            return self.op(n, max(narrow, self.s.weight), [h], [h] if self.train else [], **learn)
        out = self.op(n, 4, [h], [h] if self.train else [], fresh=4 * weight if kind in ("gemma", "cohere") else 0, **learn)
        return self.cast(out, narrow)

    def linear(self, x: int, layer: "Linear") -> int:
        """A projection with its adapter. `layer.inputs` and `layer.outputs` in elements a token."""
        s = self.s
        tokens, held = self.elements[x] // layer.inputs, layer.inputs * layer.outputs
        source, width = x, self.width[x]
        cast_weight = s.autocast and s.weight == 4 and not s.packed
        if s.autocast:
            x = self.cast(x, s.compute)
        out_width = s.compute if s.autocast or s.packed else max(width, s.weight)
        more = self.learn(held + layer.bias, s.weight, cast=cast_weight)
        if s.packed:
            more |= {"temp": held * s.compute, "temp_back": held * s.compute}
        if cast_weight and self.train:
            more["cached"] = held * s.compute
        elif cast_weight:
            more["fresh"] = held * s.compute
        keep = [x] if self.train else []
        if self.train and s.fp8:
            keep, more["fresh"] = [], more.get("fresh", 0) + self.elements[x]
        out = self.op(tokens * layer.outputs, out_width, [x], keep, **more)
        return self.adapter(source, out, layer, tokens) if layer.rank else out

    def adapter(self, x: int, out: int, layer: "Linear", tokens: int) -> int:
        """out + B(A(dropout(x))) × scale, as peft's `Linear.forward` writes it (tuners/lora/layer.py 0.21)."""
        s = self.s
        x = self.cast(x, s.adapter)
        if s.dropout:
            x = self.dropout(x)
        width = s.compute if s.autocast else s.adapter
        x = self.cast(x, width)
        casted = s.autocast and s.adapter == 4
        down, up = layer.inputs * layer.rank, layer.rank * layer.outputs
        a = self.op(tokens * layer.rank, width, [x], [x], **self._adapter_weight(down, casted=casted))
        b = self.op(tokens * layer.outputs, width, [a], [a], **self._adapter_weight(up, casted=casted))
        if s.dora:
            return self._magnitude(out, b, layer)
        scaled = self.like(b)
        return self.add(out, scaled)

    def _magnitude(self, out: int, b: int, layer: "Linear") -> int:
        """DoRA's two scaled paths (peft `tuners/lora/dora.py` 0.21): base and adapter results are kept; the identity that it sends through the adapter is not."""
        width, held = self.s.adapter, layer.inputs * layer.outputs
        made = (layer.inputs * layer.inputs + layer.inputs * layer.rank) * width
        base = self.like(out, None, [out], temp=2 * held * width + made, weight_grad=layer.outputs * width)
        scaled = self.like(self.like(b, None, [b]))
        return self.add(out, self.add(base, scaled))

    def _adapter_weight(self, elements: int, *, casted: bool) -> "dict[str, int]":
        s = self.s
        grad = {"weight_temp": elements * s.adapter} if s.gradients_live else {"weight_grad": elements * s.adapter}
        return grad | ({"cached": elements * s.compute} if casted else {})

    def activation(self, x: int) -> int:
        """The feed-forward's activation."""
        kind = self.style.activation
        if kind == "relu":
            return self.like(x, None, keep_out=True)
        if kind == "relu2":
            y = self.like(x, None, keep_out=True)
            return self.like(y, None, [y])
        if kind != "gelu_new":
            return self.like(x, None, [x])
        base = self.cast(x, 4) if self.s.autocast and self.s.cuda else x  # torch.autocast runs pow in fp32 on CUDA, not on the CPU
        cube = self.like(base, None, [base], temp_back=self.elements[x] * self.width[base])
        inner = self.add(x, self.like(cube))
        bend = self.like(self.like(inner), None, keep_out=True)
        one = self.like(bend, None, alias=True)
        half = self.like(x)
        return self.like(one, [half, one], [half, one])

    def rope(self, x: int, width: int) -> int:
        """Rotary positions: x·cos + rotate(x)·sin; cos and sin need no gradient, so x is not kept."""
        kind = self.style.rope
        if kind == "none":
            return x
        n = self.elements[x]
        turned = self.like(x)
        left = self.op(n, width, [x])
        out = self.op(n, width, [left, self.op(n, width, [turned])], alias=True)
        return self.like(out) if kind == "partial" else out

    def attend(self, q: int, k: int, v: int, a: "Attention", batch: int, seq: int) -> int:
        """Scaled dot-product attention, in one kernel or in eager steps; returns the input of the output projection."""
        s = self.s
        tokens = batch * seq
        c = s.compute if s.autocast else self.width[v]
        wide = s.eager or (s.masked and self.style.mask)
        if wide and 1 < a.kv_heads != a.heads:  # repeat_kv copies; a single key head is only expanded
            k = self.op(tokens * a.heads * a.key_dim, self.width[k], [k])
            v = self.op(tokens * a.heads * a.value_dim, self.width[v], [v])
        outs = tokens * a.heads * a.value_dim
        single = self.style.math_single_head and a.kv_heads == 1 < a.heads
        if not s.eager and (single or (not s.cuda and (a.key_dim != a.value_dim or s.attention_dropout))):
            return self._plain_kernel(q, k, v, a, batch, seq, c)
        if not s.eager:
            q, k, v = self.cast(q, c), self.cast(k, c), self.cast(v, c)
            out = self.op(outs, c, [q, k, v], [q, k, v], keep_out=True, fresh=4 * tokens * a.heads + (batch * seq * seq * c if wide else 0))
            return self.like(out) if self.style.rope == "partial" else out
        n = batch * a.heads * seq * seq
        q, k, v = self.cast(q, c), self.cast(k, c), self.cast(v, c)
        q, k, v = self.like(q), self.like(k), self.like(v)  # bmm wants contiguous heads
        scores = self.like(self.op(n, c, [q, k], [q, k]))
        if self.style.cap:
            scores = self.like(self.like(self.like(scores), None, keep_out=True))
        if s.masked:
            scores = self.like(scores, None, alias=True)
        soft = self.op(n, 4 if self.style.scores == "fp32" or s.autocast else c, [scores], keep_out=True)
        soft = self.cast(soft, c)
        if s.attention_dropout:
            soft = self.dropout(soft)
        return self.like(self.op(outs, c, [soft, v], [soft, v]))

    def _plain_kernel(self, q: int, k: int, v: int, a: "Attention", batch: int, seq: int, width: int) -> int:
        """SDPA's plain kernel (aten `_scaled_dot_product_attention_math`): fp32 copies with every head, and the probabilities, are kept.

        The CPU takes it where values are narrower than keys or attention has dropout; a single key head that is not expanded takes it everywhere.
        """
        tokens, scores = batch * seq, batch * a.heads * seq * seq
        queries, outs = tokens * a.heads * a.key_dim, tokens * a.heads * a.value_dim
        wide_q, wide_k, wide_v = self.op(queries, 4, [q]), self.op(queries, 4, [k]), self.op(outs, 4, [v])
        soft = self.op(scores, 4, [self.op(scores, 4, [wide_q, wide_k], [wide_q, wide_k])], keep_out=True)
        if self.s.attention_dropout:
            soft = self.dropout(soft)
        out = self.cast(self.op(outs, 4, [soft, wide_v], [soft, wide_v]), width)
        return self.like(out)

    def dropout(self, x: int) -> int:
        """Dropout: the fused CUDA kernel keeps one byte of mask an element, the CPU's noise is as wide as its input (aten Dropout.cpp)."""
        return self.like(x, None, fresh=self.elements[x] * (1 if self.s.cuda else self.width[x]))

    def gated(self, x: int, gate: "Linear | None", up: "Linear", down: "Linear") -> int:
        """down(act(gate(x)) · up(x)); without a gate down(act(up(x))). One matrix for both where `gate` is `up`."""
        if gate is None:
            return self.linear(self.activation(self.linear(x, up)), down)
        if gate is up:
            both = self.linear(x, up)
            half = self.elements[both] // 2
            first, second = self.view(both, [half, half])
            bent = self.activation(first)
        else:
            bent = self.activation(self.linear(x, gate))
            second = self.linear(x, up)
        return self.linear(self.like(bent, [bent, second], [bent, second]), down)

    def experts(self, x: int, f: "FeedForward", width: int, ranks: "tuple[int, int, int]") -> int:
        """Routed experts as transformers runs them (`integrations/moe.py` grouped_mm_experts_forward): every chosen (token, expert) pair is a row.

        `ranks` are the elements of the adapters on the router, on gate and up, and on down (0 where there is none).
        """
        s = self.s
        tokens = self.elements[x] // width
        rows = tokens * f.experts_used
        learn = self.learn(width * f.experts, s.weight, cast=False) if not ranks[0] else {"weight_grad": ranks[0] * s.adapter}
        scores = self.op(tokens * f.experts, s.compute, [x], [x] if self.train or ranks[0] else [], **learn)
        chosen = self.op(tokens * f.experts, 4, [scores], keep_out=True, fresh=24 * rows)
        c = self.width[x] if not s.autocast else s.compute
        sides, held = 2 if f.gated else 1, width * f.width * f.experts
        picked = self.cast(self.op(rows * width, self.width[x], [x]), c)
        inner = self.op(rows * f.width * sides, c, [picked], [picked] if self.train or ranks[1] else [], **self._stack(sides * held, ranks[1]))
        if f.gated:
            first, second = self.view(inner, [rows * f.width] * 2)
            bent = self.activation(first)
            inner = self.like(bent, [bent, second], [bent, second])
        else:
            inner = self.activation(inner)
        out = self.op(rows * width, c, [inner], [inner] if self.train or ranks[2] else [], **self._stack(held, ranks[2]))
        weighed = self.op(rows * width, 4 if s.autocast else c, [out, chosen], [out], fresh=4 * rows)
        return self.op(tokens * width, self.width[x], [self.like(weighed)])

    def _stack(self, elements: int, adapter: int) -> "dict[str, int]":
        """The costs of a stacked expert weight: learned, cast under autocast over fp32 weights, or joined with its adapter's product.

        peft writes the product of the adapter out at full size and adds it to the weight (`tuners/lora/layer.py` ParamWrapper): the sum is kept, its gradient is made.
        """
        s = self.s
        if adapter:
            size = elements * s.compute
            return {"fresh": size, "temp": size, "temp_back": 2 * size, "weight_grad": adapter * s.adapter}
        cast = s.autocast and s.weight == 4
        more = self.learn(elements, s.weight, cast=cast)
        if s.packed:
            more |= {"temp": elements * s.compute, "temp_back": elements * s.compute}
        if cast:
            more["cached" if self.train else "fresh"] = elements * s.compute
        return more
