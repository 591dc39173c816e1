"""A dense model of which only the parameter count is known: a Llama-like stack whose rows sum to exactly that count; every plan made from it says so.

Widths follow the published dense models: one layer for each 128 of width, heads of 128, feed-forward 8/3 of the width rounded to 256, a vocabulary of 32,000
(128,256 from 20 billion on). The count is exact; activations are those of this shape, and the plan's caveats name it.
"""

from brim.engines.train.census import Census
from brim.facts.model import Attention, FeedForward, Layer, Shape, Weight

SMALLEST = 10_000_000


def _layer_elements(width: int, inner: int) -> int:
    return 4 * width * width + 3 * width * inner + 2 * width


def _widths(parameters: int) -> tuple[int, int, int, int]:
    """(width, inner, layers, vocabulary): the widest stack of the family that stays under the count."""
    vocabulary = 128_256 if parameters >= 20_000_000_000 else 32_000
    best = (128, 512, 1, min(vocabulary, 32_000))
    width = 128
    while True:
        width += 128
        inner = -(-8 * width // 3 // 256) * 256
        layers = (parameters - 2 * vocabulary * width) // _layer_elements(width, inner)
        if layers < width // 128:
            return best
        best = (width, inner, layers, vocabulary)


def dense(parameters: int) -> Census:
    """The census of an assumed dense model of exactly `parameters` weights (at least ten million)."""
    width, inner, layers, vocabulary = _widths(parameters)
    attention = Attention(kind="full", heads=width // 128, kv_heads=width // 128, key_dim=128, value_dim=128)
    blocks = tuple(Layer(index=i, attention=attention, feed_forward=FeedForward(kind="dense", width=inner)) for i in range(layers))
    rows = [_row("model.embed_tokens.weight", "embedding", "embedding", (width, vocabulary), None)]
    for i in range(layers):
        stem = f"model.layers.{i}."
        rows.extend(_row(f"{stem}self_attn.{name}_proj.weight", name, "linear", (width, width), i) for name in ("q", "k", "v", "o"))
        rows.extend(_row(f"{stem}mlp.{name}_proj.weight", name, "linear", (width, inner), i) for name in ("gate", "up"))
        rows.append(_row(f"{stem}mlp.down_proj.weight", "down", "linear", (inner, width), i))
        rows.extend(_row(f"{stem}{name}.weight", "norm", "norm", (width,), i) for name in ("input_layernorm", "post_attention_layernorm"))
    rows += [_row("model.norm.weight", "norm", "norm", (width,), None), _row("lm_head.weight", "lm_head", "linear", (width, vocabulary), None)]
    left = parameters - sum(row.elements for row in rows)
    if left >= width:
        rows.append(_row("rest.weight", "other", "linear", (width, left // width), None))
    if left % width:
        rows.append(_row("rest.bias", "other", "vector", (left % width,), None))
    shape = Shape(architecture="llama", vocabulary=vocabulary, width=width, layers=blocks, parameters=parameters, unusual=("assumed",))
    return Census(shape, tuple(rows))


def _row(name: str, role: str, op: str, dims: tuple[int, ...], layer: int | None) -> Weight:
    elements = 1
    for dim in dims:
        elements *= dim
    return Weight(name=name, dims=dims, role=role, op=op, layer=layer, elements=elements, active=elements)
