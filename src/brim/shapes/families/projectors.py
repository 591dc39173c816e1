"""What stands between a tower and the text model: the projectors that turn a tower's output into the text's width.

Rules: transformers 5.24, the projector classes in models/<wrapper>/modeling_<wrapper>.py. `seen` is the tower's width, `width` the text model's.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

    Projector = Callable[[Fields, Blueprint, int, int], None]


def llava(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """LLaVA: two layers; several `vision_feature_layer`s are laid side by side."""
    picked, bias = f.raw("vision_feature_layer"), f.raw("multimodal_projector_bias") is not False
    many = len(picked) if isinstance(picked, (list, tuple)) and picked else 1
    b.linear("multi_modal_projector.linear_1", "projector", seen * many, width, bias=bias)
    b.linear("multi_modal_projector.linear_2", "projector", width, width, bias=bias)


def llava_next(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """LLaVA-NeXT: LLaVA's, and a learned line break."""
    llava(f, b, seen, width)
    b.vector("image_newline", "projector", width)


def gemma3(_f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """Gemma 3: a norm and one bare matrix."""
    b.norm("multi_modal_projector.mm_soft_emb_norm", seen)
    b.vector("multi_modal_projector.mm_input_projection_weight", "projector", width, seen)


def paligemma(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """PaliGemma: one matrix with bias."""
    b.linear("multi_modal_projector.linear", "projector", seen, f.maybe("projection_dim", 1) or width, bias=True)


def mistral3(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """Mistral 3: a norm, a merger of neighbouring patches, two layers."""
    merge, bias = f.whole("spatial_merge_size", 1, 64), f.flag("multimodal_projector_bias")
    b.norm("multi_modal_projector.norm", seen)
    b.linear("multi_modal_projector.patch_merger.merging_layer", "projector", seen * merge * merge, seen)
    b.linear("multi_modal_projector.linear_1", "projector", seen, width, bias=bias)
    b.linear("multi_modal_projector.linear_2", "projector", width, width, bias=bias)


def lighton(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """LightOnOCR: Mistral 3's, under another name and without biases."""
    merge, at = f.whole("spatial_merge_size", 1, 64), "model.vision_projection."
    b.norm(at + "norm", seen)
    b.linear(at + "patch_merger.merging_layer", "projector", seen * merge * merge, seen)
    b.linear(at + "linear_1", "projector", seen, width)
    b.linear(at + "linear_2", "projector", width, width)


def idefics(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """Idefics3 and SmolVLM: pixel shuffle and one matrix."""
    scale = f.whole("scale_factor", 1, 64)
    b.linear("model.connector.modality_projection.proj", "projector", seen * scale * scale, width)


def internvl(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """InternVL: a norm over shuffled pixels, two layers."""
    ratio = f.ratio("downsample_ratio") or 0.5
    wide = seen * int(1 / ratio) ** 2
    b.norm("multi_modal_projector.layer_norm", wide, "layer")
    b.linear("multi_modal_projector.linear_1", "projector", wide, width, bias=True)
    b.linear("multi_modal_projector.linear_2", "projector", width, width, bias=True)


def llama4(f: "Fields", b: "Blueprint", _seen: int, width: int) -> None:
    """Llama 4: one matrix from the adapter's output."""
    v = f.section("vision_config")
    wide = (v.maybe("vision_output_dim", 1) if v is not None else None) or 7680
    b.linear("multi_modal_projector.linear_1", "projector", wide, width)


def vipllava(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """ViP-LLaVA: the layers of `vision_feature_layer` side by side, a norm, two layers with biases."""
    picked = f.raw("vision_feature_layer")
    wide = seen * (len(picked) if isinstance(picked, (list, tuple)) and picked else 1)
    b.norm("multi_modal_projector.projector_layernorm", wide, "layer")
    b.linear("multi_modal_projector.linear_1", "projector", wide, width, bias=True)
    b.linear("multi_modal_projector.linear_2", "projector", width, width, bias=True)


def cohere2(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """Command A Vision: neighbouring patches merged, two layers with a gate between them."""
    _gated(f, b, seen, width, f.whole("alignment_intermediate_size"), "model.multi_modal_projector.")


def aya(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """Aya Vision: as Command A Vision, behind a norm."""
    b.norm("multi_modal_projector.layernorm", seen * f.whole("downsample_factor", 1, 64) ** 2, "layer")
    _gated(f, b, seen, width, f.maybe("alignment_intermediate_size", 2) or width, "multi_modal_projector.")


def _gated(f: "Fields", b: "Blueprint", seen: int, width: int, inner: int, at: str) -> None:
    b.linear(at + "linear_1", "projector", seen * f.whole("downsample_factor", 1, 64) ** 2, inner, bias=True)
    b.linear(at + "linear_2", "projector", inner // 2, width, bias=True)


def deepseek(_f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """DeepSeek-VL: two layers."""
    b.linear("model.aligner.linear1", "projector", seen, width, bias=True)
    b.linear("model.aligner.linear2", "projector", width, width, bias=True)


def lfm2(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """LFM2-VL: neighbouring patches merged, a norm where `projector_use_layernorm` is set, two layers."""
    wide, inner, bias = seen * f.whole("downsample_factor", 1, 64) ** 2, f.whole("projector_hidden_size"), f.flag("projector_bias")
    at = "model.multi_modal_projector."
    if f.flag("projector_use_layernorm"):
        b.norm(at + "layer_norm", wide, "layer")
    b.linear(at + "linear_1", "projector", wide, inner, bias=bias)
    b.linear(at + "linear_2", "projector", inner, width, bias=bias)


def mllama(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """Llama 3.2 Vision: one matrix from the layers laid side by side."""
    v = f.section("vision_config")
    picked = v.raw("intermediate_layers_indices") if v is not None else None
    count = len(picked) if isinstance(picked, (list, tuple)) else 5
    given = v.maybe("vision_output_dim", 1) if v is not None else None
    b.linear("multi_modal_projector", "projector", given or seen * (count + 1), width, bias=True)


def gemma4(_f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """Gemma 4: one matrix; its norm has no weight."""
    b.linear("model.embed_vision.embedding_projection", "projector", seen, width)


def kimi_k25(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """Kimi K2.5: a norm, neighbouring patches merged, two layers."""
    _kimi(f, b, seen, width, "mm_projector.pre_norm", ("mm_projector.proj.0", "mm_projector.proj.2"))


def kimi_vl(f: "Fields", b: "Blueprint", seen: int, width: int) -> None:
    """Kimi-VL: Kimi K2.5's under other names."""
    at = "multi_modal_projector."
    _kimi(f, b, seen, width, at + "pre_norm", (at + "linear_1", at + "linear_2"))


def _kimi(f: "Fields", b: "Blueprint", seen: int, width: int, norm: str, names: tuple[str, str]) -> None:
    v = f.section("vision_config")
    merge = v.raw("merge_kernel_size") if v is not None else None
    wide = seen
    for side in merge if isinstance(merge, (list, tuple)) and len(merge) == 2 else (2, 2):
        wide *= f.checked("vision_config.merge_kernel_size", side, 1, 64)
    b.norm(norm, f.maybe("projection_hidden_size", 1) or seen, "layer")
    b.linear(names[0], "projector", wide, wide, bias=True)
    b.linear(names[1], "projector", wide, width, bias=True)
