"""Puts one kind of layer, and the head with its loss, on a tape in the order of the architecture's code."""

from brim.engines.train.blocks import Writer
from brim.engines.train.census import adapted, adapter_dims, linear, sides
from brim.engines.train.setting import ADAPTERS, Linear

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.engines.train.census import Census, Kind
    from brim.engines.train.setting import Setting
    from brim.engines.train.tape import Block
    from brim.facts.model import Attention, Weight
    from brim.facts.training import TrainWorkload

_INNER_NORMS = ("q_norm", "k_norm", "q_layernorm", "k_layernorm", "q_a_layernorm", "kv_a_layernorm")


class Rows:
    """One layer's rows by role, biases beside their matrices, norms by what they stand on."""

    __slots__ = ("expert_adapters", "inner", "linears", "norms")

    def __init__(self, rows: "tuple[Weight, ...]", w: "TrainWorkload", *, stacked: bool) -> None:
        biases = {row.role: row.elements for row in rows if row.op == "bias"}
        self.linears: dict[str, Linear] = {}
        self.norms = 0
        self.inner: dict[str, int] = {}
        for row in rows:
            if row.op in ("linear", "transposed") and row.copies == 1:
                if row.role in self.linears:  # several of a kind (recurrent mixers): told apart by name
                    self.linears[row.name] = linear(row, 0, w, stacked=stacked)
                else:
                    self.linears[row.role] = linear(row, biases.get(row.role, 0), w, stacked=stacked)
            elif row.role == "norm" and row.name.endswith("weight"):
                module = row.name.rsplit(".", 2)[-2]
                if module in _INNER_NORMS:
                    self.inner[module[:2] if module[1] == "_" else "kv"] = row.elements
                else:
                    self.norms += 1
        self.expert_adapters = _expert_adapters(rows, w, stacked=stacked) if w.method in ADAPTERS else (0, 0, 0)

    def take(self, role: str) -> "Linear | None":
        """The linear layer of a role."""
        return self.linears.get(role)


def _expert_adapters(rows: "tuple[Weight, ...]", w: "TrainWorkload", *, stacked: bool) -> "tuple[int, int, int]":
    """Elements of the adapters on the router, on gate and up, and on down."""
    out = [0, 0, 0]
    for row in rows:
        place = {"router": 0, "expert_gate": 1, "expert_up": 1, "expert_gate_up": 1, "expert_down": 2}.get(row.role)
        if place is not None and adapted(row, w.targets, stacked=stacked):
            out[place] += sum(a * b for a, b in adapter_dims(row, w.lora_rank))
    return out[0], out[1], out[2]


def layer_block(census: "Census", kind: "Kind", w: "TrainWorkload", s: "Setting", *, train: bool, input_grad: bool) -> "Block":
    """Forward, kept bytes and backward of one layer of this kind."""
    shape, layer = census.shape, kind.layer
    tokens = w.batch * w.seq
    rows = Rows(kind.rows, w, stacked=census.stacked)
    b = Writer(s, census.style, tokens * shape.width, s.weight, train=train, input_grad=input_grad)
    x, order = b.tape.x, census.style.order

    def norm(y: int) -> int:
        return b.norm(y, tokens, shape.width)

    def dropped(y: int) -> int:
        return b.dropout(y) if s.hidden_dropout else y

    def mix(y: int) -> int:
        if layer.attention is not None:
            return dropped(_attention(b, y, layer.attention, rows, w))
        return _recurrent(b, y, rows)

    def feed(y: int) -> int:
        f = layer.feed_forward
        if f is None:
            return y
        if f.experts:
            out = b.experts(y, f, shape.width, rows.expert_adapters)
            if rows.take("shared_down"):
                out = b.add(out, _dense(b, y, rows, "shared_"))
            return out
        return dropped(_dense(b, y, rows, ""))

    def has_feed() -> bool:
        return layer.feed_forward is not None

    if order == "parallel" and rows.norms < 2:
        h = norm(x)
        b.add(b.add(mix(h), feed(h)), x)
    elif order in ("parallel", "parallel2"):
        b.add(b.add(feed(norm(x)), mix(norm(x))), x)
    elif order == "post":
        x = b.add(x, norm(mix(x)))
        b.add(x, norm(feed(x)))
    elif order == "sandwich":
        x = b.add(x, norm(mix(norm(x))))
        b.add(x, norm(feed(norm(x))))
    else:
        x = b.add(x, mix(norm(x)))
        if has_feed():
            b.add(x, feed(norm(x)))
    return b.tape.run()


def _attention(b: Writer, x: int, a: "Attention", rows: Rows, w: "TrainWorkload") -> int:
    """Projections, norms on queries and keys, rotary positions, attention, output projection."""
    tokens = w.batch * w.seq
    rope_width = max(b.s.weight if b.s.autocast else 0, b.s.compute) if b.style.rope != "none" else 0
    if rows.take("kv_a"):
        q, k, v = _latent(b, x, a, rows, tokens, rope_width)
    else:
        q, k, v = _grouped(b, x, a, rows, tokens, rope_width)
    out = b.attend(q, k, v, a, w.batch, w.seq)
    o = rows.take("o")
    return b.linear(out, o) if o else out


def _grouped(b: Writer, x: int, a: "Attention", rows: Rows, tokens: int, rope_width: int) -> "tuple[int, int, int]":
    queries, keys, values = tokens * a.heads * a.key_dim, tokens * a.kv_heads * a.key_dim, tokens * a.kv_heads * a.value_dim
    fused = rows.take("qkv")
    if fused:
        q, k, v = b.view(b.linear(x, fused), [queries, keys, values])
    else:
        q_layer, k_layer, v_layer = rows.take("q"), rows.take("k"), rows.take("v")
        q = b.linear(x, q_layer) if q_layer else x
        q = _inner(b, q, rows.inner.get("q_", 0))
        k = b.linear(x, k_layer) if k_layer else q
        k = _inner(b, k, rows.inner.get("k_", 0))
        v = b.linear(x, v_layer) if v_layer else k
        if b.elements[q] == 2 * queries:  # a gate of the same width rides on the queries
            q = b.view(q, [queries, queries])[0]
    if rope_width:
        q, k = b.rope(q, max(rope_width, b.width[q])), b.rope(k, max(rope_width, b.width[k]))
    return q, k, v


def _inner(b: Writer, x: int, width: int) -> int:
    return b.norm(x, b.elements[x] // width, width) if width else x


def _latent(b: Writer, x: int, a: "Attention", rows: Rows, tokens: int, rope_width: int) -> "tuple[int, int, int]":
    """DeepSeek's latent attention as `models/deepseek_v3/modeling_deepseek_v3.py` expands it in training."""
    first, second, direct = rows.take("q_a"), rows.take("q_b"), rows.take("q")
    q = b.linear(x, direct) if direct else x
    if first and second:
        q = b.linear(b.norm(b.linear(x, first), tokens, a.query_rank), second)
    compressed = rows.take("kv_a")
    expand = rows.take("kv_b")
    assert compressed is not None, "a latent layer compresses"
    assert expand is not None, "a latent layer expands"
    both = b.linear(x, compressed)
    latent, k_rope = b.view(both, [tokens * a.latent_rank, tokens * a.rope_dim])
    kv = b.linear(b.norm(latent, tokens, a.latent_rank), expand)
    nope = tokens * a.heads * (a.key_dim - a.rope_dim)
    k_nope, v = b.view(kv, [nope, tokens * a.heads * a.value_dim])
    turned = b.rope(k_rope, max(rope_width, b.width[k_rope]))
    keys = tokens * a.heads * a.key_dim
    return b.op(keys, b.width[q], [b.rope(q, max(rope_width, b.width[q]))]), b.op(keys, b.width[q], [k_nope, turned]), v


def _recurrent(b: Writer, x: int, rows: Rows) -> int:
    """A recurrent mixer as its linear layers one after the other, inputs and outputs kept twice (convolution, gate, scan): an estimate, and said to be one."""
    out = x
    for layer in rows.linears.values():
        if b.elements[out] % layer.inputs == 0 and b.elements[out] // layer.inputs * layer.inputs == b.elements[out]:
            y = b.linear(out, layer)
            out = b.like(b.like(y, None, [y], keep_out=True), None, keep_out=True)
    if b.elements[out] != b.elements[x]:
        out = b.op(b.elements[x], b.width[out], [out])
    return out


def _dense(b: Writer, x: int, rows: Rows, prefix: str) -> int:
    both, gate = rows.take(prefix + "gate_up"), rows.take(prefix + "gate")
    up, down = both or rows.take(prefix + "up"), rows.take(prefix + "down")
    if up is None or down is None:
        return x
    return b.gated(x, both or gate, up, down)


def head_block(census: "Census", w: "TrainWorkload", s: "Setting", *, train: bool, input_grad: bool) -> "tuple[Block, int]":
    """Final norm, output projection and loss; (block, bytes of it that are logits and their copies at the worst moment)."""
    shape = census.shape
    tokens = w.batch * w.seq
    b = Writer(s, census.style, tokens * shape.width, s.weight, train=train, input_grad=input_grad)
    h = b.norm(b.tape.x, tokens, shape.width)
    inputs, outputs = sides(census.head) if census.head is not None else (shape.width, shape.vocabulary)
    layer = Linear(inputs, outputs, 0, w.lora_rank if census.head is not None and "lm_head" in w.targets and w.method in ("lora", "qlora", "dora") else 0)
    packed, s.packed = s.packed, False
    count = tokens * outputs
    if w.loss == "fused":
        _fused_loss(b, h, layer, tokens)
        logits = 0
    else:
        out = b.linear(h, layer)
        if census.style.final_cap:
            out = b.like(b.like(b.like(out), None, keep_out=True))
        if w.loss == "chunked":
            _chunked_loss(b, out, count, w)
            logits = count * (s.compute + 4) + 8 * count // w.loss_chunks
        else:
            wide = b.cast(out, 4)
            if w.loss == "shifted":  # the shifted copy; the whole fp32 logits stay in the model's output while backward runs
                wide = b.like(wide, None, fresh=4 * count)
            soft = b.op(count, 4, [wide], keep_out=True, holds=[out])
            b.op(1, 4, [soft], holds=[out, wide], fresh=8 * tokens)
            logits = (16 if w.loss == "shifted" else 12) * count
    s.packed = packed
    return b.tape.run(), logits


def _chunked_loss(b: Writer, out: int, count: int, w: "TrainWorkload") -> None:
    """Cross-entropy a chunk at a time (torchtune `modules/loss/ce_chunked_output_loss.py`): the log-softmax of every chunk is kept, its copies are not."""
    chunk = 4 * count // w.loss_chunks
    b.op(1, 4, [out], (), fresh=0 if w.compiled else 4 * count, temp=2 * chunk, temp_back=2 * chunk)


def _fused_loss(b: Writer, h: int, layer: Linear, tokens: int) -> None:
    """Projection and loss in one (liger_kernel `ops/fused_linear_cross_entropy.py`): chunks of tokens so that logits stay near the size of the input."""
    chunks = max(1, -(-layer.outputs // layer.inputs))
    rows = -(-tokens // chunks)
    weight = layer.inputs * layer.outputs
    made = b.elements[h] * b.width[h] + (weight * b.s.weight if b.train else 0)
    b.op(1, 4, [h], (), fresh=made, temp=rows * layer.outputs * (b.s.compute + 4), **b.learn(weight, b.s.weight, cast=False))
