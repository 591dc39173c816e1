"""Models that keep states: Mamba, RWKV and Griffin; memory that does not grow with the context.

Rules: transformers 5.24, models/<family>/configuration_<family>.py and modeling_<family>.py; RWKV 7 as flash-linear-attention writes it.
"""

from brim.facts.model import FeedForward, Layer, State
from brim.shapes import blocks, kinds, states
from brim.shapes.families import decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields


def mamba(f: "Fields", b: "Blueprint") -> None:
    """Mamba 1 and Falcon-Mamba: nothing but Mamba blocks."""
    _pure(f, b)
    width, layers = decoder.begin(f, b, "backbone.embeddings")
    inner = int((f.ratio("expand") or 0) * width)
    state, kernel, rank = f.whole("state_size"), f.whole("conv_kernel", 1, 1024), states.rank_of(f, "time_step_rank", width)
    conv_bias, bias = f.flag("use_conv_bias"), f.flag("use_bias")
    for index in range(layers):
        b.layer, p = index, f"backbone.layers.{index}."
        b.norm(p + "norm", width)
        kept = states.mamba1(b, p + "mixer.", width, inner, state, kernel, rank, conv_bias=conv_bias, bias=bias)
        b.draw(Layer(index=index, state=kept))
    decoder.end(b, final="backbone.norm_f")


def _pure(f: "Fields", b: "Blueprint") -> None:
    b.unusual.append("no attention: memory does not grow with the context")


def mamba2(f: "Fields", b: "Blueprint") -> None:
    """Mamba 2: heads times head width must be the inner width."""
    _pure(f, b)
    width, layers = decoder.begin(f, b, "backbone.embeddings")
    inner, heads = int((f.ratio("expand") or 0) * width), f.whole("num_heads", 1, 1 << 16)
    if heads * f.whole("head_dim") != inner:
        raise f.bad("num_heads", f"({heads}) times head_dim ({f.whole('head_dim')}) is not expand times hidden_size ({inner})")
    groups, state, kernel = f.whole("n_groups", 1, 1 << 16), f.whole("state_size"), f.whole("conv_kernel", 1, 1024)
    conv_bias, bias = f.flag("use_conv_bias"), f.flag("use_bias")
    for index in range(layers):
        b.layer, p = index, f"backbone.layers.{index}."
        b.norm(p + "norm", width)
        kept = states.mamba2(b, p + "mixer.", width, inner, heads, groups, state, kernel, conv_bias=conv_bias, bias=bias, out_bias=bias)
        b.draw(Layer(index=index, state=kept))
    decoder.end(b, final="backbone.norm_f")


def rwkv4(f: "Fields", b: "Blueprint") -> None:
    """RWKV 4: five vectors a layer."""
    _pure(f, b)
    width, layers = decoder.begin(f, b, "rwkv.embeddings")
    wide, inner = f.maybe("attention_hidden_size", 1) or width, f.maybe("intermediate_size", 1) or 4 * width
    for index in range(layers):
        b.layer, p = index, f"rwkv.blocks.{index}."
        for name in ("pre_ln", "ln1", "ln2") if index == 0 else ("ln1", "ln2"):
            b.norm(p + name, width, "layer")
        for name in ("time_decay", "time_first"):
            b.vector(p + "attention." + name, "state", wide)
        for name in ("key", "value", "receptance"):
            b.vector(f"{p}attention.time_mix_{name}", "state", width, 1, 1)
            b.linear(p + "attention." + name, "state_in", width, wide)
        b.linear(p + "attention.output", "state_out", wide, width)
        for name in ("key", "receptance"):
            b.vector(f"{p}feed_forward.time_mix_{name}", "state", width, 1, 1)
        b.linear(p + "feed_forward.key", "up", width, inner)
        b.linear(p + "feed_forward.receptance", "gate", width, width)
        b.linear(p + "feed_forward.value", "down", inner, width)
        kept = State(kind="rwkv4", conv_elements=2 * width, state_elements=3 * wide, inner_width=wide)
        b.draw(Layer(index=index, state=kept, feed_forward=FeedForward(kind="dense", width=inner, gated=False)))
    decoder.end(b, final="rwkv.ln_out", norm="layer", head="head")


def rwkv7(f: "Fields", b: "Blueprint") -> None:
    """RWKV 7 as flash-linear-attention writes it (fla 0.6.0, models/rwkv7, layers/rwkv7.py): for every head a state as wide as it and its values."""
    _pure(f, b)
    width, layers = decoder.begin(f, b, "model.embeddings")
    dim = f.maybe("head_dim", 1) or 64
    f.divides("head_dim", "hidden_size", dim, width)
    if isinstance(f.raw("attn"), dict):
        raise f.bad("attn", "mixes attention into RWKV, which brim does not draw")
    inner = f.maybe("intermediate_size", 1) or -(-width * (f.maybe("hidden_ratio", 1, 64) or 4) // 32) * 32
    ranks = {name: f.maybe(f"{field}_low_rank_dim", 1) or usual for name, (field, usual) in _RANKS.items()}
    wide = f.wholes("value_dim", layers, 1) or (width,) * layers
    bias = "bare" if f.raw("norm_bias") is False else "layer"
    for index in range(layers):
        b.layer, p = index, f"model.layers.{index}."
        norms = ("pre_norm", "attn_norm", "ffn_norm") if index == 0 and f.raw("norm_first") is not False else ("attn_norm", "ffn_norm")
        for name in norms:
            b.norm(p + name, width, bias)
        _rwkv7_attention(b, p + "attn.", width, wide[index], dim, ranks, first=index == 0)
        b.vector(p + "ffn.x_k", "state", width)
        b.linear(p + "ffn.key", "up", width, inner)
        b.linear(p + "ffn.value", "down", inner, width)
        kept = State(kind="rwkv7", conv_elements=2 * width, state_elements=wide[index] * dim, inner_width=wide[index], heads=width // dim)
        b.draw(Layer(index=index, state=kept, feed_forward=FeedForward(kind="dense", width=inner, gated=False)))
    decoder.end(b, final="model.norm", norm=bias)


# Low ranks of decay, value, rate and gate, and what fla's configuration_rwkv7.py takes where the file has none.
_RANKS = {"w": ("decay", 64), "v": ("v", 16), "a": ("a", 64), "g": ("gate", 128)}


def _rwkv7_attention(b: "Blueprint", p: str, width: int, wide: int, dim: int, ranks: "dict[str, int]", *, first: bool) -> None:
    for name in "rwkvag":
        b.vector(f"{p}x_{name}", "state", width, 1, 1)
    b.vector(p + "k_k", "state", width)
    b.vector(p + "k_a", "state", width)
    b.vector(p + "r_k", "state", dim, width // dim)
    for name, out in (("r", width), ("k", width), ("v", wide)):
        b.linear(f"{p}{name}_proj", "state_in", width, out)
    b.linear(p + "o_proj", "state_out", wide, width)
    for name in "wag" if first else "wvag":
        b.linear(f"{p}{name}_lora.lora.0", "state", width, ranks[name])
        b.linear(f"{p}{name}_lora.lora.2", "state", ranks[name], wide if name in "vg" else width, bias=name != "g")
    b.norm(p + "g_norm", wide, "layer")


def recurrent_gemma(f: "Fields", b: "Blueprint") -> None:
    """RecurrentGemma (Griffin): `block_types` repeats over the layers; attention slides over `attention_window_size` tokens."""
    width, layers = decoder.begin(f, b)
    wide, inner, heads = f.maybe("lru_width", 1) or width, f.whole("intermediate_size") // 2, f.whole("num_attention_heads", 1, 1 << 16)
    f.divides("num_attention_heads", "hidden_size", heads, width)
    pattern = f.raw("block_types") or ("recurrent", "recurrent", "attention")
    if not isinstance(pattern, (list, tuple)) or not pattern or any(kind not in ("recurrent", "attention") for kind in pattern):
        raise f.bad("block_types", "must be a list of the words recurrent and attention")
    a = blocks.attention(f, width, kinds.SLIDING, f.whole("attention_window_size", 1, 1 << 30))
    kernel, bias = f.whole("conv1d_width", 1, 1024), f.flag("attention_bias")
    for index in range(layers):
        b.layer, p = index, f"model.layers.{index}."
        b.norm(p + "temporal_pre_norm", width)
        b.norm(p + "channel_pre_norm", width)
        fed, at = blocks.gated_mlp(b, p + "mlp_block.", width, inner, bias=True), p + "temporal_block."
        if pattern[index % len(pattern)] == "attention":
            b.draw(Layer(index=index, attention=blocks.gqa(b, at, width, a, bias=bias, o_bias=True), feed_forward=fed))
        else:
            b.draw(Layer(index=index, state=_griffin(b, at, width, wide, heads, kernel), feed_forward=fed))
    decoder.end(b, final="model.final_norm")


def _griffin(b: "Blueprint", p: str, width: int, wide: int, heads: int, kernel: int) -> State:
    each = width // (heads or 1)
    b.linear(p + "linear_y", "state_in", width, wide, bias=True)
    b.linear(p + "linear_x", "state_in", width, wide, bias=True)
    b.linear(p + "linear_out", "state_out", wide, width, bias=True)
    b.conv(p + "conv_1d", "conv", kernel, 1, wide, bias=wide)
    b.vector(p + "rg_lru.recurrent_param", "state", wide)
    for name in ("input_gate", "recurrent_gate"):
        b.vector(f"{p}rg_lru.{name}_weight", "state", each, each, heads)
        b.vector(f"{p}rg_lru.{name}_bias", "state", each, heads)
    return State(kind="rg_lru", conv_elements=(kernel - 1) * wide, state_elements=wide, inner_width=wide)
