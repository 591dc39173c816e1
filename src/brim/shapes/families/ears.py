"""Audio towers and the projectors behind them: each draws its weights and what they keep.

Rules: transformers 5.24, models/{qwen2_audio,voxtral,gemma4}/modeling_*.py. A tower that has no room here is `Missing`, never zero.
"""

from brim.facts.model import Attention, FeedForward, Layer, Tower
from brim.shapes.families.vision import clippable
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

_DEPENDS = Missing(reason="not_supported", detail="depends on the length of the sound")


def _tower(b: "Blueprint", width: int, inner: int, heads: int, layers: int) -> None:
    each = width // (heads or 1)
    a = Attention(kind="full", heads=heads, kv_heads=heads, key_dim=each, value_dim=each)
    fed = FeedForward(kind="dense", width=inner, gated=False)
    rows = tuple(Layer(index=index, attention=a, feed_forward=fed) for index in range(layers))
    b.audio = Tower(kind="audio", width=width, layers=rows, parameters=b.elements("audio"), tokens=_DEPENDS)


def _whisper(v: "Fields", b: "Blueprint", at: str, width: int, inner: int, heads: int, layers: int) -> None:
    """Whisper's encoder: two convolutions, fixed places, keys without bias."""
    b.conv(at + "conv1", "conv", 3, v.whole("num_mel_bins", 1, 1 << 16), width, bias=width)
    b.conv(at + "conv2", "conv", 3, width, width, bias=width)
    b.table(at + "embed_positions", v.whole("max_source_positions", 1, 1 << 24), width, "position")
    for index in range(layers):
        b.layer, p = index, f"{at}layers.{index}."
        for name, role in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("out_proj", "o")):
            b.linear(f"{p}self_attn.{name}", role, width, width, bias=role != "k")
        b.linear(p + "fc1", "up", width, inner, bias=True)
        b.linear(p + "fc2", "down", inner, width, bias=True)
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            b.norm(p + name, width, "layer")
    b.layer = None
    b.norm(at + "layer_norm", width, "layer")
    _tower(b, width, inner, heads, layers)


def qwen2_audio(v: "Fields", b: "Blueprint", text: int) -> None:
    """Qwen2-Audio: Whisper's encoder and one matrix with bias."""
    width, inner = v.whole("d_model"), v.whole("encoder_ffn_dim")
    _whisper(v, b, "audio_tower.", width, inner, v.whole("encoder_attention_heads", 1, 1 << 12), v.layers("encoder_layers"))
    b.linear("multi_modal_projector.linear", "projector", width, text, bias=True)


def voxtral(v: "Fields", b: "Blueprint", text: int) -> None:
    """Voxtral: Whisper's encoder; as many frames side by side as make `intermediate_size`, two layers."""
    width, inner = v.whole("hidden_size"), v.whole("intermediate_size")
    _whisper(v, b, "audio_tower.", width, inner, v.whole("num_attention_heads", 1, 1 << 12), v.layers())
    b.linear("multi_modal_projector.linear_1", "projector", inner, text)
    b.linear("multi_modal_projector.linear_2", "projector", text, text)


def gemma4(v: "Fields", b: "Blueprint", text: int) -> None:
    """Gemma 4: a conformer (two half feed-forwards around attention and a convolution over time)."""
    width, heads, layers, clipped = v.whole("hidden_size"), v.whole("num_attention_heads", 1, 1 << 12), v.layers(), v.flag("use_clipped_linears")
    v.divides("num_attention_heads", "hidden_size", heads, width)
    channels = v.wholes("subsampling_conv_channels", 2, 4, 1 << 16) or (128, 32)
    at, inner = "model.audio_tower.", 4 * width
    for index, (before, after) in enumerate(((1, channels[0]), channels)):
        b.conv(f"{at}subsample_conv_projection.layer{index}.conv", "conv", 3, 3, before, after)
        b.norm(f"{at}subsample_conv_projection.layer{index}.norm", after)
    b.linear(at + "subsample_conv_projection.input_proj_linear", "other", channels[0] // 4 * channels[1], width)
    for index in range(layers):
        b.layer, p = index, f"{at}layers.{index}."
        for half in ("feed_forward1.", "feed_forward2."):
            clippable(b, p + half + "ffw_layer_1", "up", width, inner, clipped=clipped)
            clippable(b, p + half + "ffw_layer_2", "down", inner, width, clipped=clipped)
            b.norm(p + half + "pre_layer_norm", width)
            b.norm(p + half + "post_layer_norm", width)
        for name, role in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("post", "o")):
            clippable(b, f"{p}self_attn.{name}", role, width, width, clipped=clipped)
        b.linear(p + "self_attn.relative_k_proj", "position", width, width)
        b.vector(p + "self_attn.per_dim_scale", "other", width // (heads or 1))
        clippable(b, p + "lconv1d.linear_start", "other", width, 2 * width, clipped=clipped)
        clippable(b, p + "lconv1d.linear_end", "other", width, width, clipped=clipped)
        b.conv(p + "lconv1d.depthwise_conv1d", "conv", v.whole("conv_kernel_size", 1, 1 << 12), 1, width)
        for name in ("lconv1d.pre_layer_norm", "lconv1d.conv_norm", "norm_pre_attn", "norm_post_attn", "norm_out"):
            b.norm(p + name, width)
    b.layer = None
    out = v.whole("output_proj_dims")
    b.linear(at + "output_proj", "projector", width, out, bias=True)
    b.linear("model.embed_audio.embedding_projection", "projector", out, text)
    _tower(b, width, inner, heads, layers)
