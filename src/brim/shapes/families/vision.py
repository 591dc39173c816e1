"""Vision towers: each draws its weights and says how many tokens one picture becomes.

Rules: transformers 5.24, models/{siglip,siglip2,clip,pixtral,idefics3,qwen2_vl,qwen2_5_vl,qwen3_vl,glm4v,internvl,llama4,mllama,gemma4,kimi_k25}/modeling_*.py.
A tower that has no room here is `Missing`, never zero.
"""

from brim.facts.model import Attention, FeedForward, Layer, Tower
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

_DEPENDS = Missing(reason="not_supported", detail="depends on the picture's size")


def side_of(v: "Fields", name: str) -> int:
    """One side in pixels; a list of two equal sides counts as one."""
    value = v.raw(name)
    if isinstance(value, (list, tuple)) and value:
        value = value[0]
    return 0 if value is None else v.checked(name, value, 1, 1 << 16)


def _geometry(v: "Fields") -> tuple[int, int, int]:
    """Picture, patch and the number of patches in a picture."""
    image, patch = side_of(v, "image_size"), side_of(v, "patch_size")
    if not patch or patch > max(image, patch):
        raise v.bad("patch_size", "must be a positive number of pixels")
    return image, patch, (image // patch) ** 2


def _tower(b: "Blueprint", v: "Fields", width: int, inner: int, layers: int, *, gated: bool = False, heads: str = "num_attention_heads") -> None:
    """The tower's facts; its parameters are what was drawn under the name `vision` so far."""
    count = v.whole(heads, 1, 1 << 12)
    each = width // count if count else 0
    a = Attention(kind="full", heads=count, kv_heads=count, key_dim=each, value_dim=each)
    fed = FeedForward(kind="dense", width=inner, gated=gated)
    rows = tuple(Layer(index=index, attention=a, feed_forward=fed) for index in range(layers))
    b.vision = Tower(
        kind="vision",
        width=width,
        layers=rows,
        parameters=b.elements("vision"),
        patch=side_of(v, "patch_size"),
        image=side_of(v, "image_size"),
        tokens=_DEPENDS,
    )


def _vit_layer(b: "Blueprint", p: str, width: int, inner: int, *, bias: bool = True, norms: tuple[str, str] = ("layer_norm1", "layer_norm2")) -> None:
    for name, role in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("out_proj", "o")):
        b.linear(f"{p}self_attn.{name}", role, width, width, bias=bias)
    b.linear(p + "mlp.fc1", "up", width, inner, bias=True)
    b.linear(p + "mlp.fc2", "down", inner, width, bias=True)
    for name in norms:
        b.norm(p + name, width, "layer")


def siglip(v: "Fields", b: "Blueprint", at: str) -> None:
    """SigLIP (and Idefics3's, which never has the pooling head)."""
    _siglip(v, b, at, head=v.raw("vision_use_head") is not False)


def idefics(v: "Fields", b: "Blueprint", at: str) -> None:
    """Idefics3 and SmolVLM: SigLIP without the pooling head."""
    _siglip(v, b, at, head=False)


def siglip2(v: "Fields", b: "Blueprint", at: str) -> None:
    """SigLIP 2 with pictures of any shape: unfolded patches, as many positions as `num_patches` says."""
    _siglip(v, b, at, head=v.raw("vision_use_head") is not False, unfolded=True)


def _siglip(v: "Fields", b: "Blueprint", at: str, *, head: bool, unfolded: bool = False) -> None:
    width, inner, layers = v.whole("hidden_size"), v.whole("intermediate_size"), v.layers()
    if unfolded:
        patch, patches = side_of(v, "patch_size"), v.whole("num_patches", 1, 1 << 24)
        b.linear(at + "embeddings.patch_embedding", "conv", patch * patch * v.whole("num_channels", 1, 64), width, bias=True)
    else:
        _image, patch, patches = _geometry(v)
        b.conv(at + "embeddings.patch_embedding", "conv", patch, patch, v.whole("num_channels", 1, 64), width, bias=width)
    b.table(at + "embeddings.position_embedding", patches, width, "position")
    for index in range(layers):
        b.layer = index
        _vit_layer(b, f"{at}encoder.layers.{index}.", width, inner)
    b.layer = None
    b.norm(at + "post_layernorm", width, "layer")
    if head:
        h = at + "head."
        b.vector(h + "probe", "other", width, 1, 1)
        b.vector(h + "attention.in_proj_weight", "qkv", width, 3 * width)
        b.vector(h + "attention.in_proj_bias", "qkv", 3 * width)
        b.linear(h + "attention.out_proj", "o", width, width, bias=True)
        b.norm(h + "layernorm", width, "layer")
        b.linear(h + "mlp.fc1", "up", width, inner, bias=True)
        b.linear(h + "mlp.fc2", "down", inner, width, bias=True)
    _tower(b, v, width, inner, layers)


def clip(v: "Fields", b: "Blueprint", at: str) -> None:
    """CLIP: a class token, a norm before the layers too."""
    width, inner, layers = v.whole("hidden_size"), v.whole("intermediate_size"), v.layers()
    _image, patch, patches = _geometry(v)
    b.vector(at + "embeddings.class_embedding", "embedding", width)
    b.conv(at + "embeddings.patch_embedding", "conv", patch, patch, v.whole("num_channels", 1, 64), width)
    b.table(at + "embeddings.position_embedding", patches + 1, width, "position")
    b.norm(at + "pre_layrnorm", width, "layer")
    for index in range(layers):
        b.layer = index
        _vit_layer(b, f"{at}encoder.layers.{index}.", width, inner)
    b.layer = None
    b.norm(at + "post_layernorm", width, "layer")
    _tower(b, v, width, inner, layers)


def pixtral(v: "Fields", b: "Blueprint", at: str) -> None:
    """Pixtral: rotary positions, no biases, gated blocks."""
    width, inner, layers, patch = v.whole("hidden_size"), v.whole("intermediate_size"), v.layers(), side_of(v, "patch_size")
    b.conv(at + "patch_conv", "conv", patch, patch, v.whole("num_channels", 1, 64), width)
    b.norm(at + "ln_pre", width)
    for index in range(layers):
        b.layer, p = index, f"{at}transformer.layers.{index}."
        b.norm(p + "attention_norm", width)
        b.norm(p + "ffn_norm", width)
        for name, role in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("o_proj", "o")):
            b.linear(f"{p}attention.{name}", role, width, width)
        for name, role, inputs, outputs in (("gate_proj", "gate", width, inner), ("up_proj", "up", width, inner), ("down_proj", "down", inner, width)):
            b.linear(f"{p}feed_forward.{name}", role, inputs, outputs)
    b.layer = None
    _tower(b, v, width, inner, layers, gated=True)


def _qwen_patches(v: "Fields", b: "Blueprint", at: str, width: int, *, bias: bool) -> int:
    patch, merge = side_of(v, "patch_size"), v.whole("spatial_merge_size", 1, 64)
    frames = side_of(v, "temporal_patch_size")
    channels = v.maybe("in_chans", 1, 64) or v.whole("in_channels", 1, 64)
    b.conv(at + "patch_embed.proj", "conv", patch, patch, frames, channels, width, bias=width if bias else 0)
    return merge * merge


def qwen2(v: "Fields", b: "Blueprint", at: str) -> None:
    """Qwen2-VL: LayerNorm, plain blocks, a merger of neighbouring patches."""
    width, out, layers = v.whole("embed_dim"), v.whole("hidden_size"), v.layers("depth")
    inner, merged = int(width * (v.ratio("mlp_ratio") or 4)), _qwen_patches(v, b, at, width, bias=False)
    for index in range(layers):
        b.layer, p = index, f"{at}blocks.{index}."
        b.norm(p + "norm1", width, "layer")
        b.norm(p + "norm2", width, "layer")
        b.linear(p + "attn.qkv", "qkv", width, 3 * width, bias=True)
        b.linear(p + "attn.proj", "o", width, width, bias=True)
        b.linear(p + "mlp.fc1", "up", width, inner, bias=True)
        b.linear(p + "mlp.fc2", "down", inner, width, bias=True)
    b.layer = None
    b.norm(at + "merger.ln_q", width, "layer")
    b.linear(at + "merger.mlp.0", "projector", width * merged, width * merged, bias=True)
    b.linear(at + "merger.mlp.2", "projector", width * merged, out, bias=True)
    _tower(b, v, width, inner, layers, heads="num_heads")


def qwen2_5(v: "Fields", b: "Blueprint", at: str) -> None:
    """Qwen2.5-VL: RMS norms, gated blocks with biases."""
    width, inner, out, layers = v.whole("hidden_size"), v.whole("intermediate_size"), v.whole("out_hidden_size"), v.layers("depth")
    merged = _qwen_patches(v, b, at, width, bias=False)
    for index in range(layers):
        b.layer, p = index, f"{at}blocks.{index}."
        b.norm(p + "norm1", width)
        b.norm(p + "norm2", width)
        b.linear(p + "attn.qkv", "qkv", width, 3 * width, bias=True)
        b.linear(p + "attn.proj", "o", width, width, bias=True)
        b.linear(p + "mlp.gate_proj", "gate", width, inner, bias=True)
        b.linear(p + "mlp.up_proj", "up", width, inner, bias=True)
        b.linear(p + "mlp.down_proj", "down", inner, width, bias=True)
    b.layer = None
    b.norm(at + "merger.ln_q", width)
    b.linear(at + "merger.mlp.0", "projector", width * merged, width * merged, bias=True)
    b.linear(at + "merger.mlp.2", "projector", width * merged, out, bias=True)
    _tower(b, v, width, inner, layers, gated=True, heads="num_heads")


def qwen3(v: "Fields", b: "Blueprint", at: str) -> None:
    """Qwen3-VL and Qwen3.5: learned positions, plain blocks, mergers for the layers of `deepstack_visual_indexes` too."""
    width, inner, out, layers = v.whole("hidden_size"), v.whole("intermediate_size"), v.whole("out_hidden_size"), v.layers("depth")
    merged = _qwen_patches(v, b, at, width, bias=True)
    b.table(at + "pos_embed", v.whole("num_position_embeddings", 1, 1 << 24), width, "position")
    for index in range(layers):
        b.layer, p = index, f"{at}blocks.{index}."
        b.norm(p + "norm1", width, "layer")
        b.norm(p + "norm2", width, "layer")
        b.linear(p + "attn.qkv", "qkv", width, 3 * width, bias=True)
        b.linear(p + "attn.proj", "o", width, width, bias=True)
        b.linear(p + "mlp.linear_fc1", "up", width, inner, bias=True)
        b.linear(p + "mlp.linear_fc2", "down", inner, width, bias=True)
    b.layer = None
    deep = v.raw("deepstack_visual_indexes")
    places = ["merger."] + [f"deepstack_merger_list.{index}." for index in range(len(deep) if isinstance(deep, (list, tuple)) else 0)]
    for place in places:
        b.norm(at + place + "norm", width if place == "merger." else width * merged, "layer")
        b.linear(at + place + "linear_fc1", "projector", width * merged, width * merged, bias=True)
        b.linear(at + place + "linear_fc2", "projector", width * merged, out, bias=True)
    _tower(b, v, width, inner, layers, heads="num_heads")


def glm4v(v: "Fields", b: "Blueprint", at: str) -> None:
    """GLM-4.1V: gated blocks as wide as `out_hidden_size`, a downsampling convolution, a gated merger."""
    width, inner, out, layers = v.whole("hidden_size"), v.whole("intermediate_size"), v.whole("out_hidden_size"), v.layers("depth")
    _image, _patch, patches = _geometry(v)
    _qwen_patches(v, b, at, width, bias=True)
    merge, bias = v.whole("spatial_merge_size", 1, 64), v.flag("attention_bias")
    b.table(at + "embeddings.position_embedding", patches, width, "position")
    b.norm(at + "post_conv_layernorm", width)
    for index in range(layers):
        b.layer, p = index, f"{at}blocks.{index}."
        b.norm(p + "norm1", width)
        b.norm(p + "norm2", width)
        b.linear(p + "attn.qkv", "qkv", width, 3 * width, bias=bias)
        b.linear(p + "attn.proj", "o", width, width)
        for name, role, inputs, outputs in (("gate_proj", "gate", width, out), ("up_proj", "up", width, out), ("down_proj", "down", out, width)):
            b.linear(f"{p}mlp.{name}", role, inputs, outputs)
    b.layer = None
    b.conv(at + "downsample", "conv", merge, merge, width, out, bias=out)
    b.norm(at + "post_layernorm", width)
    b.linear(at + "merger.proj", "projector", out, out)
    b.norm(at + "merger.post_projection_norm", out, "layer")
    for name, inputs, outputs in (("gate_proj", out, inner), ("up_proj", out, inner), ("down_proj", inner, out)):
        b.linear(f"{at}merger.{name}", "projector", inputs, outputs)
    _tower(b, v, width, out, layers, gated=True, heads="num_heads")


def internvl(v: "Fields", b: "Blueprint", at: str) -> None:
    """InternVL (the transformers form): a class token, a learned scale behind each half."""
    width, inner, layers, bias = v.whole("hidden_size"), v.whole("intermediate_size"), v.layers(), v.flag("attention_bias")
    _image, patch, patches = _geometry(v)
    norm, norms = ("layer" if v.word("norm_type") == "layer_norm" else "rms"), v.flag("use_qk_norm")
    e = at + "embeddings."
    b.vector(e + "cls_token", "embedding", width, 1, 1)
    b.conv(e + "patch_embeddings.projection", "conv", patch, patch, v.whole("num_channels", 1, 64), width, bias=width)
    if v.flag("use_mask_token"):
        b.vector(e + "mask_token", "embedding", width, 1, 1)
    if v.flag("use_absolute_position_embeddings"):
        b.vector(e + "position_embeddings", "position", width, patches + 1, 1)
    for index in range(layers):
        b.layer, p = index, f"{at}encoder.layer.{index}."
        for name in ("q_proj", "k_proj", "v_proj"):
            b.linear(f"{p}attention.{name}", name[0], width, width, bias=bias)
        b.linear(p + "attention.projection_layer", "o", width, width, bias=True)
        for name in ("q_norm", "k_norm") if norms else ():
            b.norm(f"{p}attention.{name}", width)
        b.linear(p + "mlp.fc1", "up", width, inner, bias=True)
        b.linear(p + "mlp.fc2", "down", inner, width, bias=True)
        b.norm(p + "layernorm_before", width, norm)
        b.norm(p + "layernorm_after", width, norm)
        b.vector(p + "lambda_1", "other", width)
        b.vector(p + "lambda_2", "other", width)
    b.layer = None
    if not v.flag("use_mean_pooling"):
        b.norm(at + "layernorm", width, "layer")
    _tower(b, v, width, inner, layers)


def llama4(v: "Fields", b: "Blueprint", at: str) -> None:
    """Llama 4: unfolded patches, a pixel-shuffle adapter."""
    width, inner, layers = v.whole("hidden_size"), v.whole("intermediate_size"), v.layers()
    _image, patch, patches = _geometry(v)
    b.vector(at + "class_embedding", "embedding", width)
    b.vector(at + "positional_embedding_vlm", "position", width, patches + 1)
    b.linear(at + "patch_embedding.linear", "conv", patch * patch * v.whole("num_channels", 1, 64), width)
    b.norm(at + "layernorm_pre", width, "layer")
    b.norm(at + "layernorm_post", width, "layer")
    for index in range(layers):
        b.layer, p = index, f"{at}model.layers.{index}."
        for name, role in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("o_proj", "o")):
            b.linear(f"{p}self_attn.{name}", role, width, width, bias=True)
        b.linear(p + "mlp.fc1", "up", width, inner, bias=True)
        b.linear(p + "mlp.fc2", "down", inner, width, bias=True)
        b.norm(p + "input_layernorm", width, "layer")
        b.norm(p + "post_attention_layernorm", width, "layer")
    b.layer = None
    out = v.whole("projector_output_dim")
    b.linear(at + "vision_adapter.mlp.fc1", "projector", inner, v.whole("projector_input_dim"))
    b.linear(at + "vision_adapter.mlp.fc2", "projector", out, out)
    _tower(b, v, width, inner, layers)


def mllama(v: "Fields", b: "Blueprint", at: str) -> None:
    """Llama 3.2 Vision: tiles with learned places, gated layers behind the plain ones; the outputs of `intermediate_layers_indices` are laid side by side."""
    width, inner, layers, tiles = v.whole("hidden_size"), v.whole("intermediate_size"), v.layers(), v.whole("max_num_tiles", 1, 64)
    _image, patch, patches = _geometry(v)
    ratios = v.raw("supported_aspect_ratios")
    count = 1 + (len(ratios) if isinstance(ratios, (list, tuple)) else 8)
    b.conv(at + "patch_embedding", "conv", patch, patch, v.whole("num_channels", 1, 64), width)
    b.vector(at + "class_embedding", "embedding", width)
    g = at + "gated_positional_embedding."
    b.vector(g + "gate", "position", 1)
    b.vector(g + "embedding", "position", width, patches + 1)
    b.table(g + "tile_embedding", count, tiles * (patches + 1) * width, "position")
    for name in ("pre", "post"):
        b.table(f"{at}{name}_tile_positional_embedding.embedding", count, tiles * width, "position")
        b.vector(f"{at}{name}_tile_positional_embedding.gate", "position", 1)
        b.norm(f"{at}layernorm_{name}", width, "layer")
    gated = v.layers("num_global_layers")
    for index in range(layers + gated):
        b.layer, late = index, index >= layers
        p = f"{at}{'global_' if late else ''}transformer.layers.{index - layers if late else index}."
        for name, role in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("o_proj", "o")):
            b.linear(f"{p}self_attn.{name}", role, width, width)
        b.linear(p + "mlp.fc1", "up", width, inner, bias=True)
        b.linear(p + "mlp.fc2", "down", inner, width, bias=True)
        for name in ("input_layernorm", "post_attention_layernorm"):
            b.norm(p + name, width, "layer")
        for name in ("gate_attn", "gate_ffn") if late else ():
            b.vector(p + name, "other", 1)
    b.layer = None
    _tower(b, v, width, inner, layers + gated)


def gemma4(v: "Fields", b: "Blueprint", at: str) -> None:
    """Gemma 4: a table of places for each axis, four norms a layer, norms on query and key, gated blocks."""
    width, inner, layers = v.whole("hidden_size"), v.whole("intermediate_size"), v.layers()
    heads, kv_heads, each = v.whole("num_attention_heads", 1, 1 << 12), v.whole("num_key_value_heads", 1, 1 << 12), v.whole("head_dim")
    clipped = v.flag("use_clipped_linears")
    b.vector(at + "patch_embedder.position_embedding_table", "position", width, v.whole("position_embedding_size", 1, 1 << 24), 2)
    b.linear(at + "patch_embedder.input_proj", "conv", 3 * side_of(v, "patch_size") ** 2, width)
    for index in range(layers):
        b.layer, p = index, f"{at}encoder.layers.{index}."
        sizes = (("q_proj", "q", width, heads * each), ("k_proj", "k", width, kv_heads * each), ("v_proj", "v", width, kv_heads * each))
        for name, role, inputs, outputs in (*sizes, ("o_proj", "o", heads * each, width)):
            clippable(b, f"{p}self_attn.{name}", role, inputs, outputs, clipped=clipped)
        for name in ("q_norm", "k_norm"):
            b.norm(f"{p}self_attn.{name}", each)
        for name, role, inputs, outputs in (("gate_proj", "gate", width, inner), ("up_proj", "up", width, inner), ("down_proj", "down", inner, width)):
            clippable(b, f"{p}mlp.{name}", role, inputs, outputs, clipped=clipped)
        for name in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"):
            b.norm(p + name, width)
    b.layer = None
    for name in ("std_bias", "std_scale") if v.flag("standardize") else ():
        b.vector(at + name, "other", width, op="buffer")
    _tower(b, v, width, inner, layers, gated=True)


def clippable(b: "Blueprint", name: str, role: str, inputs: int, outputs: int, *, clipped: bool) -> None:
    """Gemma 4's matrix with limits: where they are set, four numbers are saved beside it (modeling_gemma4.py, Gemma4ClippableLinear)."""
    b.linear(name + ".linear", role, inputs, outputs)
    for limit in ("input_min", "input_max", "output_min", "output_max") if clipped else ():
        b.vector(f"{name}.{limit}", role, op="buffer")


def moonvit(v: "Fields", b: "Blueprint", at: str) -> None:
    """MoonViT (Kimi-VL, Kimi K2.5): a grid of learned places, plain blocks with biases; older files call its sizes `vt_*`."""
    width = v.maybe("vt_hidden_size", 1) or v.whole("hidden_size")
    inner = v.maybe("vt_intermediate_size", 1) or v.whole("intermediate_size")
    layers = v.layers("vt_num_hidden_layers" if v.has("vt_num_hidden_layers") else "num_hidden_layers")
    patch = side_of(v, "patch_size")
    high = v.maybe("init_pos_emb_height", 1, 1 << 16) or v.whole("pos_emb_height", 1, 1 << 16)
    wide = v.maybe("init_pos_emb_width", 1, 1 << 16) or v.whole("pos_emb_width", 1, 1 << 16)
    b.conv(at + "patch_embed.proj", "conv", patch, patch, 3, width, bias=width)
    b.vector(at + "patch_embed.pos_emb.weight", "position", width, wide, high)
    for index in range(layers):
        b.layer, p = index, f"{at}encoder.blocks.{index}."
        b.linear(p + "wqkv", "qkv", width, 3 * width, bias=True)
        b.linear(p + "wo", "o", width, width, bias=True)
        b.linear(p + "mlp.fc0", "up", width, inner, bias=True)
        b.linear(p + "mlp.fc1", "down", inner, width, bias=True)
        for name in ("norm0", "norm1"):
            b.norm(p + name, width, "layer")
    b.layer = None
    b.norm(at + "encoder.final_layernorm", width, "layer")
    _tower(b, v, width, inner, layers, heads="vt_num_attention_heads" if v.has("vt_num_attention_heads") else "num_attention_heads")
