"""What packed tensors stand for: from names, dtypes and the config's own words, the logical parameters behind each stored tensor; it opens nothing.

Guarantees: stored bytes are never changed; of a quantised weight the tensor that holds its values gets the count of logical weights and everything beside it (scales,
zero points, maps) gets 0; what cannot be told is said in a note and counted as stored.
Sources, by layout: GPTQ and AWQ: AutoGPTQ `qlinear`, AutoAWQ `WQLinear_GEMM`, gptqmodel; bitsandbytes 0.48 `nn.Linear4bit`/`Linear8bitLt` state dicts and
`functional.QuantState.as_dict`; compressed-tensors 0.12 `compressors/quantized_compressors`; MXFP4: transformers 4.57 `integrations/mxfp4.py`; NVFP4, MXFP4 and INT4 of
modelopt 0.47 `export`; HQQ 0.2 `core/quantize.py`; exllamav2 0.3 `ext.make_q_matrix`; exllamav3 `modules/quant/exl3.py`; torchao 0.14 `prototype/safetensors`; MLX 0.29 `nn.QuantizedLinear`.
"""

from brim.facts.model import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# endings of tensors that only serve a quantised weight
_BESIDE = (
    ".qzeros", ".scales", ".g_idx", ".biases",
    ".weight.absmax", ".weight.quant_map", ".weight.nested_absmax", ".weight.nested_quant_map", ".SCB", ".weight_format",
    ".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_zero_point", ".weight_shape", ".weight_g_idx", ".weight_global_scale", ".input_global_scale",
    ".input_scale", ".output_scale", ".k_scale", ".v_scale", ".q_scale", ".kv_scale", ".scale_inv", ".bitmask", ".meta",
    ".q_scale_max", ".q_groups", ".q_group_map", ".q_perm", ".q_invperm", ".suh", ".svh", ".su", ".sv", ".mcg", ".mul1",
    ".scale", ".zero", ".nbits", ".group_size", ".axis", ".shape", ".packing", ".unpack_view_dtype", ".view_as_float", ".quant_scale", ".quant_zero", ".compute_dtype",
    ".pre_quant_scale", "._weight_scale", "._weight_zero_point", ":scale", ":zero_point", ":_scale", ":_zero_point",
)  # fmt: skip
_STATE = ".weight.quant_state.bitsandbytes__"
_EXPERT_SCALES = "_scales"
_WORD_BITS = {"U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "BF16": 16, "F16": 16, "F32": 32}
_CONTENT = (".qweight", ".weight_packed", ".q_weight", ".trellis", ".W_q", "._weight_qdata", ":qdata")


def unpack(tensors: "tuple[Tensor, ...]", config: "Mapping[str, Any]", quantisation: "Any" = None) -> "tuple[tuple[Tensor, ...], str, tuple[str, ...]]":
    """(tensors with logical element counts, the layout's name or "", notes). `quantisation` is a `facts.model.Quantisation` or None."""
    names = {tensor.name: tensor for tensor in tensors}
    bits, group = getattr(quantisation, "bits", 0), getattr(quantisation, "group", 0)
    method = getattr(quantisation, "method", "")
    found: dict[str, int] = {}
    guessed: set[str] = set()
    made = []
    for tensor in tensors:
        layout, count = _logical(tensor, names, config, bits, group, method, guessed)
        if layout:
            found[layout] = found.get(layout, 0) + 1
            tensor = tensor.replace(elements=count)  # noqa: PLW2901 (the same row, counted)
        made.append(tensor)
    if not found:
        return tensors, "", ()
    layouts = sorted((layout for layout in found if layout != "beside"), key=lambda layout: -found[layout])
    notes = tuple(f"{layout}: neither config nor tensors tell how many bits a weight has; counted as stored" for layout in sorted(guessed))
    return _without_beside(tensors, tuple(made), layouts), "+".join(layouts), notes


def _without_beside(stored: "tuple[Tensor, ...]", counted: "tuple[Tensor, ...]", layouts: "list[str]") -> "tuple[Tensor, ...]":
    """Endings such as `.scale` are only beside a quantised weight in a model that has one."""
    return counted if layouts else stored


def _logical(
    tensor: Tensor, names: "Mapping[str, Tensor]", config: "Mapping[str, Any]", bits: int, group: int, method: str, guessed: "set[str]"
) -> "tuple[str, int]":
    """(layout, logical elements) of one tensor; layout "" where it stands for itself, "beside" where it only serves another."""
    name, dtype = tensor.name, tensor.dtype
    if name.endswith(_CONTENT):
        return _content(tensor, names, bits, group, method, guessed)
    if name.endswith("_blocks") and dtype == "U8" and name[: -len("_blocks")] + _EXPERT_SCALES in names:
        return "mxfp4", 2 * tensor.elements
    if name.endswith(_EXPERT_SCALES) and dtype == "U8" and name[: -len(_EXPERT_SCALES)] + "_blocks" in names:
        return "beside", 0
    stem = name.rpartition(".")[0]
    if stem + ".W_q" in names and not name.endswith(".bias"):  # HQQ saves its settings as tensors of one element each
        return "beside", 0
    if _STATE in name or (name.endswith(_BESIDE) and _serves(name, names)):
        return "beside", 0
    if name.endswith(".weight"):
        return _weight(tensor, names, config, bits, group, guessed)
    return "", 0


def _serves(name: str, names: "Mapping[str, Tensor]") -> bool:
    """Whether a scale or the like has the weight that it serves beside it."""
    ending = next(end for end in _BESIDE if name.endswith(end))
    stem = name[: -len(ending)]
    if any(stem + content in names for content in _CONTENT):
        return True
    weight = names.get(stem + ".weight") or names.get(stem)
    if weight is None:
        return ending in (".k_scale", ".v_scale", ".q_scale", ".kv_scale", ".input_scale", ".output_scale")
    return weight.dtype in ("U8", "I8", "U32", "I32") or weight.dtype.startswith(("F8", "F4")) or ending.startswith((".weight_scale", ".weight.", ".SCB"))


def _content(tensor: Tensor, names: "Mapping[str, Tensor]", bits: int, group: int, method: str, guessed: "set[str]") -> "tuple[str, int]":
    """Tensors whose name alone says that they hold packed values."""
    stem, _, ending = tensor.name.rpartition(":" if tensor.name.endswith(":qdata") else ".")
    word = _WORD_BITS.get(tensor.dtype, 8)
    if ending == "trellis":  # EXL3: tiles of 16 × 16 weights in the two leading dimensions
        return "exl3", 256 * (tensor.dims[-1] * tensor.dims[-2] if len(tensor.dims) >= 2 else 0)
    if ending == "q_weight":
        order = names.get(stem + ".q_invperm") or names.get(stem + ".q_perm")
        if order is not None and tensor.dims:
            return "exl2", order.elements * tensor.dims[0]
        return _told("exl2", tensor, word, bits, guessed)
    if ending == "qweight":
        layout = method if method in ("awq", "gptq") else "gptq" if stem + ".g_idx" in names else "gptq/awq"
        zeros, scales = names.get(stem + ".qzeros"), names.get(stem + ".scales")
        packed = zeros is not None and zeros.dtype == "I32"  # AutoAWQ's fast GEMV keeps its zero points as plain numbers
        if packed and zeros is not None and scales is not None and scales.elements and zeros.elements * 32 % scales.elements == 0:
            bits = zeros.elements * 32 // scales.elements
        return _told(layout, tensor, word, bits, guessed)
    if ending == "weight_packed":
        if tensor.dtype == "U8":
            return "nvfp4" if stem + ".weight_global_scale" in names else "compressed-tensors", 2 * tensor.elements
        zeros, scales = names.get(stem + ".weight_zero_point"), names.get(stem + ".weight_scale")
        if not bits and zeros is not None and scales is not None and scales.elements and zeros.dtype == "I32":
            bits = zeros.elements * 32 // scales.elements
        return _told("compressed-tensors", tensor, word, bits, guessed)
    if ending == "W_q":  # three bits: ten values a 32-bit word, the last ones padded; the other widths fill their bytes
        scale = names.get(stem + ".scale")
        if scale is not None and group:
            return "hqq", scale.elements * group
        return ("hqq", tensor.elements * 10) if tensor.dtype == "I32" and bits in (0, 3) else _told("hqq", tensor, word, bits, guessed)
    return _told("torchao", tensor, word, bits if tensor.dtype in ("U8", "I32") else word, guessed)


def _told(layout: str, tensor: Tensor, word: int, bits: int, guessed: "set[str]") -> "tuple[str, int]":
    """Values of `bits` bits packed into words of `word` bits; unknown bits are noted and the words counted."""
    if not 0 < bits <= word:
        guessed.add(layout)
        return layout, tensor.elements
    return layout, tensor.elements * word // bits


def _weight(tensor: Tensor, names: "Mapping[str, Tensor]", config: "Mapping[str, Any]", bits: int, group: int, guessed: "set[str]") -> "tuple[str, int]":
    """A tensor called `….weight`, told by its dtype and by what stands beside it."""
    name, dtype = tensor.name, tensor.dtype
    stem = name[: -len(".weight")]
    if name + ".absmax" in names:  # any storage dtype (bnb_4bit_quant_storage): two values a byte
        return "bitsandbytes-4bit", 2 * tensor.stored_bytes
    if dtype == "I8" and stem + ".SCB" in names:
        return "bitsandbytes-int8", tensor.elements
    if dtype == "U32" and stem + ".scales" in names:
        return _mlx(tensor, names[stem + ".scales"], stem, config, bits, group, guessed)
    if dtype.startswith("F8"):
        return "fp8", tensor.elements
    scale = names.get(name + "_scale")
    if dtype == "U8" and scale is not None:
        if scale.dtype == "F8_E4M3":
            return "nvfp4", 2 * tensor.elements
        if scale.dtype in ("U8", "F8_E8M0"):
            return "mxfp4", 2 * tensor.elements
        # whole numbers of four bits (modelopt): two rows of outputs in one, so there are twice as many rows of scales
        halved = bool(scale.dims) and bool(tensor.dims) and len(scale.dims) == len(tensor.dims) and scale.dims[-1] == 2 * tensor.dims[-1]
        return _told("int4", tensor, 8, 4 if halved or name + "_scale_2" in names else bits, guessed)
    if dtype == "I8" and scale is not None:
        return "int8", tensor.elements
    return "", 0


def _mlx(weight: Tensor, scales: Tensor, stem: str, config: "Mapping[str, Any]", bits: int, group: int, guessed: "set[str]") -> "tuple[str, int]":
    """MLX packs whole rows into 32-bit words; its config may give single modules their own width."""
    told = config.get("quantization")
    for own in (told, told.get(stem)) if isinstance(told, dict) else ():
        if not isinstance(own, dict):
            continue
        bits, group = (own.get(key) if type(own.get(key)) is int else default for key, default in (("bits", bits), ("group_size", group)))  # type: ignore[assignment]
    if group and scales.elements and 0 < group <= 1 << 16 and scales.elements * group * 2 <= weight.elements * 32:
        return "mlx", scales.elements * group
    return _told("mlx", weight, 32, bits, guessed)


def trimmed(tensors: "tuple[Tensor, ...]", weights: "Mapping[str, Any]") -> "tuple[Tensor, ...]":
    """EXL2 pads outputs to 32 and EXL3 both sides to 128 (exllamav2 `linear.py`, exllamav3 `modules/linear.py`, `pad_to`): padding is no parameter.

    `weights` (name → `facts.model.Weight`) is what the config implies; a tensor that is exactly such a weight with its padding gets the weight's count.
    """
    made = []
    for tensor in tensors:
        for ending, pads in ((".q_weight", (1, 32)), (".trellis", (128, 128))):
            row = weights.get(tensor.name[: -len(ending)] + ".weight") if tensor.name.endswith(ending) else None
            if row is not None and len(row.dims) == 2:
                padded = 1
                for size, pad in zip(row.dims, pads, strict=True):
                    padded *= -(-size // pad) * pad
                if padded == tensor.elements:
                    tensor = tensor.replace(elements=row.elements // row.copies)  # noqa: PLW2901 (the same row, without its padding)
        made.append(tensor)
    return tuple(made)
