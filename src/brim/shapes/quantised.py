"""What a config says about packed weights: `quantization_config` of the many kinds and MLX's `quantization`, as one fact; nothing is unpacked here."""

from brim.errors import BadHeader
from brim.facts.model import Quantisation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SKIPPED = ("modules_to_not_convert", "ignore", "llm_int8_skip_modules", "modules_to_not_quantize", "ignored_layers")


def quantisation_of(config: "Mapping[str, Any]", source: str) -> "Quantisation | None":
    """The packing that the config declares, None where it declares none.

    Read: GPTQ, AWQ, bitsandbytes, compressed-tensors, fp8 (fine grained, FBGEMM), mxfp4, HQQ, EXL2/3, torchao, quanto, EETQ, AQLM, BitNet
    (transformers 5.24, utils/quantization_config.py), modelopt's own words, and MLX (`quantization`: bits and group_size).
    """
    for key in ("quantization_config", "quantization", "compression_config"):
        packed = config.get(key)
        if packed is None:
            continue
        if not isinstance(packed, dict):
            raise BadHeader(f"{source}: {key} must be an object")
        return _read(packed, "mlx" if key == "quantization" and "quant_method" not in packed else "", source)
    text = config.get("text_config")
    return quantisation_of(text, source) if isinstance(text, dict) else None


def _read(packed: "Mapping[str, Any]", method: str, source: str) -> Quantisation:
    word = str(packed.get("quant_method") or packed.get("quant_algo") or method or "unknown")[:60]
    bits, group, detail = _number(packed, "bits", "w_bit", "nbits", "num_bits"), _number(packed, "group_size", "q_group_size"), ""
    if packed.get("load_in_4bit"):
        bits, detail = 4, str(packed.get("bnb_4bit_quant_type", "fp4"))[:20] + (" double" if packed.get("bnb_4bit_use_double_quant") else "")
    elif packed.get("load_in_8bit"):
        bits, detail = 8, "int8"
    elif word in {"fp8", "fbgemm_fp8"} and not bits:
        bits = 8
    elif (
        word.startswith("modelopt") and not bits
    ):  # its algorithms: FP8, NVFP4, W4A16_AWQ, W4A8_AWQ, MXFP4, MXFP8, INT8 … (modelopt 0.47, export/model_config.py)
        bits = 4 if any(mark in str(packed.get("quant_algo")) for mark in ("FP4", "W4", "INT4")) else 8
    elif word == "mxfp4":
        bits, group = 4, group or 32
    block = packed.get("weight_block_size")
    if isinstance(block, list) and len(block) == 2 and all(isinstance(size, int) for size in block):
        detail = f"blocks of {block[0]}×{block[1]}"
    bits, group, detail = _nested(packed, bits, group, detail)
    if not 0 <= bits <= 64 or not -1 <= group <= 1 << 24:
        raise BadHeader(f"{source}: quantization_config has {bits} bits and a group of {group}, which cannot be")
    return Quantisation(method=word, bits=bits, group=max(group, 0), detail=detail, skipped=_skipped(packed))


def _nested(packed: "Mapping[str, Any]", bits: int, group: int, detail: str) -> tuple[int, int, str]:
    """compressed-tensors keeps its scheme under config_groups.*.weights, HQQ under quant_config.weight_quant_params."""
    groups = packed.get("config_groups")
    if isinstance(groups, dict):
        for scheme in groups.values():
            weights = scheme.get("weights") if isinstance(scheme, dict) else None
            if isinstance(weights, dict):
                bits, group = _number(weights, "num_bits") or bits, _number(weights, "group_size") or group
                detail = f"{packed.get('format') or weights.get('type') or ''}"[:40]
                break
    inner = packed.get("quant_config")
    inner = inner.get("weight_quant_params") if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        bits, group = _number(inner, "nbits") or bits, _number(inner, "group_size") or group
    kind = packed.get("quant_type")
    return bits, group, detail or (str(kind)[:40] if isinstance(kind, str) else "")


def _number(packed: "Mapping[str, Any]", *names: str) -> int:
    for name in names:
        value = packed.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 40:
            return int(value)
    return 0


def _skipped(packed: "Mapping[str, Any]") -> tuple[str, ...]:
    for name in _SKIPPED:
        value = packed.get(name)
        if isinstance(value, list):
            return tuple(str(item)[:200] for item in value[:4096])
    return ()
