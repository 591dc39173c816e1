"""Decoders in Llama's mould, with one feed-forward block a layer: which biases, norms and windows each family has; no experts here.

Defaults of absent fields: `shapes/defaults.py`. Rules: transformers 5.24, models/<family>/configuration_<family>.py and modeling_<family>.py.
"""

from brim.facts.model import Attention, FeedForward
from brim.shapes import blocks, kinds
from brim.shapes.families import decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

SANDWICH = (*decoder.NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
AFTER = ("post_attention_layernorm", "post_feedforward_layernorm")


def llama(f: "Fields", b: "Blueprint") -> None:
    """Llama 1 to 3, Granite, Arcee's base, SmolLM, Yi, Vicuna …: one `attention_bias` for all four projections."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias, mlp_bias=f.flag("mlp_bias"))


def mistral(f: "Fields", b: "Blueprint") -> None:
    """Mistral: no bias; every layer slides where a window is set."""
    decoder.simple(f, b, rule=kinds.all_sliding)


def qwen2(f: "Fields", b: "Blueprint") -> None:
    """Qwen2 and 2.5: bias on query, key and value, none on the output."""
    decoder.simple(f, b, rule=kinds.tail_sliding, bias=True)


def qwen3(f: "Fields", b: "Blueprint") -> None:
    """Qwen3: norms of one head's width on query and key."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, rule=kinds.tail_sliding, bias=bias, o_bias=bias, qk_norm="head")


def gemma(f: "Fields", b: "Blueprint") -> None:
    """Gemma 1."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias)


def gemma2(f: "Fields", b: "Blueprint") -> None:
    """Gemma 2: four norms a layer, every second layer full."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, rule=lambda _f, n: kinds.every(n, 2, kinds.FULL, kinds.SLIDING), bias=bias, o_bias=bias, norms=SANDWICH)


def gemma3(f: "Fields", b: "Blueprint") -> None:
    """Gemma 3: norms on query and key; every `sliding_window_pattern`-th (6th) layer full."""
    bias = f.flag("attention_bias")

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        period = f.maybe("sliding_window_pattern", 0, 1 << 16)
        return kinds.every(n, 6 if period is None else period, kinds.FULL, kinds.SLIDING)

    decoder.simple(f, b, rule=rule, bias=bias, o_bias=bias, qk_norm="head", norms=SANDWICH)


def phi3(f: "Fields", b: "Blueprint") -> None:
    """Phi-3 and Phi-4: query, key and value in one matrix, gate and up in one."""
    width, inner = f.whole("hidden_size"), f.whole("intermediate_size")
    types = (kinds.SLIDING,) if kinds.window_of(f) else (kinds.FULL,)

    def attend(p: str, _index: int) -> Attention:
        a = blocks.attention(f, width, types[0], kinds.window_of(f))
        return blocks.fused_qkv(b, p + "self_attn.", width, a, qkv="qkv_proj", o="o_proj")

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.fused_mlp(b, p + "mlp.", width, inner)

    decoder.simple(f, b, attend=attend, feed=feed)


def gpt2(f: "Fields", b: "Blueprint") -> None:
    """GPT-2: learned positions, LayerNorm, matrices stored the other way round (Conv1D)."""
    width, layers = decoder.begin(f, b, "")
    b.context = f.whole("max_position_embeddings", 1, 1 << 24)
    inner = f.maybe("n_inner", 1) or 4 * width
    b.table("transformer.wte", b.vocabulary, width)
    b.table("transformer.wpe", b.context, width, "position")
    a = blocks.attention(f, width)

    def matrix(name: str, role: str, inputs: int, outputs: int) -> None:
        b.add(name + ".weight", (outputs, inputs), role, "transposed")
        b.add(name + ".bias", (outputs,), role, "bias")

    def attend(p: str, _index: int) -> Attention:
        matrix(p + "attn.c_attn", "qkv", width, 3 * width)
        matrix(p + "attn.c_proj", "o", width, width)
        return a

    def feed(p: str, _index: int) -> FeedForward:
        matrix(p + "mlp.c_fc", "up", width, inner)
        matrix(p + "mlp.c_proj", "down", inner, width)
        return FeedForward(kind="dense", width=inner, gated=False)

    decoder.stack(b, layers, attend, feed, at="transformer.h.{}.", norms=("ln_1", "ln_2"), norm="layer")
    decoder.end(b, final="transformer.ln_f", norm="layer")
