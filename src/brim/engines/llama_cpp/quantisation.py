"""Which type llama.cpp's quantiser gives each tensor, so that the size of every quantisation mix is known from the shape alone; no tensor is touched.

Until about the end of 2025 rows of values that are fused with others (attn_qkv, attn_kv_b) had rules of their own: `older` takes those, because most published files are older.

Source of every rule: src/llama-quant.cpp `tensor_allows_quantization`, `llama_tensor_get_type_impl`, `tensor_type_fallback`, `init_quantize_state_counters`,
`llama_ftype_get_default_type`, and tools/quantize/quantize.cpp `QUANT_OPTIONS` (llama.cpp b11434); the older ones: the same file inside llama-cpp-python 0.3.6 and 0.3.16 (b4435,
b6165; not in 0.3.20). Not covered: files made by other tools or with
`--tensor-type`, `--output-tensor-type` or `--token-embedding-type`, which follow their maker's own table.
"""

from brim.facts.dtypes import GGML_BLOCKS, ggml_tensor_bytes
from brim.facts.model import Checkpoint, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SOURCE = "src/llama-quant.cpp `llama_tensor_get_type`, llama.cpp b11434"

# mix → the type that it gives where no rule says otherwise
MIXES: dict[str, str] = {
    "F32": "F32", "BF16": "BF16", "F16": "F16", "Q8_0": "Q8_0", "Q6_K": "Q6_K", "Q5_K_M": "Q5_K", "Q5_K_S": "Q5_K", "Q5_1": "Q5_1", "Q5_0": "Q5_0",
    "Q4_K_M": "Q4_K", "Q4_K_S": "Q4_K", "Q4_1": "Q4_1", "Q4_0": "Q4_0", "IQ4_NL": "IQ4_NL", "IQ4_XS": "IQ4_XS", "MXFP4_MOE": "MXFP4",
    "Q3_K_L": "Q3_K", "Q3_K_M": "Q3_K",
    "Q3_K_S": "Q3_K", "IQ3_M": "IQ3_S", "IQ3_S": "IQ3_S", "IQ3_XS": "IQ3_S", "IQ3_XXS": "IQ3_XXS", "Q2_K": "Q2_K", "Q2_K_S": "Q2_K", "IQ2_M": "IQ2_S",
    "IQ2_S": "IQ2_XS", "IQ2_XS": "IQ2_XS", "IQ2_XXS": "IQ2_XXS", "TQ2_0": "TQ2_0", "TQ1_0": "TQ1_0", "Q2_0": "Q2_0",
    "IQ1_M": "IQ1_M", "IQ1_S": "IQ1_S", "Q1_0": "Q1_0",
}  # fmt: skip
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "MXFP4": "MXFP4_MOE"}
# general.file_type (include/llama.h `enum llama_ftype`) → mix
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M",
    16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
    26: "IQ3_S", 27: "IQ3_M",
    28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE", 40: "Q1_0", 41: "Q2_0",
}  # fmt: skip
# mixes that llama-quantize will not make without an importance matrix (`tensor_requires_imatrix`)
NEED_IMATRIX = frozenset(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "Q2_K_S"))

_TINY_IQ = frozenset(("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M"))
_EXPERT_OUTPUT_Q5 = frozenset((
    "Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS",
))  # fmt: skip
_FALLBACK = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_0", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0",
}  # fmt: skip
# parts of names that are never quantised
_KEPT = (
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel", "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight",
    "indexer.k_proj.weight", "indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight",
    "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight", "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
    "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight", "attn_rel_b.weight", ".position_embd",
    "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger", "a.rvq.codebook", "mm.a.code_embd",
)  # fmt: skip
_KEPT_GLM5_NEXT = (
    "hc_", "indexer.attn_q_b", "indexer.attn_k", "indexer.proj", "indexer_compressor_gate", "indexer_compressor_ape", "ssm_f_a.weight", "ssm_f_b.weight",
    "ssm_g_a.weight", "ssm_g_b.weight", "ssm_beta.weight", "attn_kv_a_mqa.weight", "attn_k_b.weight", "attn_v_b.weight",
)  # fmt: skip
_CATEGORIES = (
    ("attn_qkv.weight", "qkv"), ("attn_kv_b.weight", "kv_b"), ("attn_v.weight", "v"), ("attn_k.weight", "k"), ("attn_q.weight", "q"),
    ("attn_output.weight", "attn_output"), ("ffn_up", "up"), ("ffn_gate", "gate"), ("ffn_down", "down"),
)  # fmt: skip
_LIKE_V = frozenset(("v", "qkv", "kv_b"))
_LIKE_V_OLDER = frozenset(("v",))
_FUSED_OLDER = {"Q3_K_M": "Q4_K", "Q3_K_L": "Q4_K", "IQ3_M": "Q4_K", "Q4_K_M": "Q5_K", "Q5_K_M": "Q6_K"}  # attn_qkv, in the older rules


def category(name: str) -> str:
    """`tensor_get_category`: the broad kind that the rules speak of."""
    if name == "output.weight":
        return "output"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "embedding"
    return next((kind for part, kind in _CATEGORIES if part in name), "other")


def is_quantised(tensor: Tensor, architecture: str) -> bool:
    """`tensor_allows_quantization`: matrices whose name ends in `weight`, less the small and delicate ones."""
    dims = len(tensor.dims)
    while dims > 1 and tensor.dims[dims - 1] == 1:  # ggml_n_dims drops trailing ones
        dims -= 1
    name = tensor.name
    if dims < 2 or not name.endswith("weight") or any(part in name for part in _KEPT):
        return False
    if name in ("position_embd.weight", "token_types.weight"):
        return False
    return architecture != "glm5-next" or not any(part in name for part in _KEPT_GLM5_NEXT)


class _Model:
    """What the rules ask of the model: grouped-query ratio, experts, layers, tied embeddings, and counters that run while the tensors are walked."""

    def __init__(self, checkpoint: Checkpoint, *, imatrix: bool, older: bool) -> None:
        self.like_v = _LIKE_V_OLDER if older else _LIKE_V
        arch, keys = checkpoint.architecture, checkpoint.metadata
        self.arch, self.imatrix = arch, imatrix
        heads, kv_heads = _first(keys, f"{arch}.attention.head_count"), _first(keys, f"{arch}.attention.head_count_kv")
        kv_heads = heads if kv_heads is None else kv_heads
        self.gqa = (heads or 0) // kv_heads if kv_heads else 0
        self.experts = _first(keys, f"{arch}.expert_count") or 0
        self.layers = _first(keys, f"{arch}.block_count") or 0
        self.is_70b = (arch in ("qwen2", "deci", "olmo") and self.layers == 80) or (arch == "jais2" and self.layers == 68)
        self.is_70b = self.is_70b or (arch == "llama" and self.layers == 80 and heads != kv_heads)
        names = [tensor.name for tensor in checkpoint.tensors]
        self.tied = "output.weight" not in names
        self.attn_v_count = sum(category(name) in _LIKE_V for name in names)
        self.attn_v = self.down = self.gate = self.up = 0

    def layer(self, counter: int, name: str) -> int:
        """`layer_info`: with experts the layer comes from the name, else from the counter."""
        return block_of(name) if self.experts > 1 else counter


def _first(keys: "Mapping[str, Any]", key: str) -> int | None:
    """A whole number of the header; of a per-layer list its first (n_head(0))."""
    value = keys.get(key)
    if isinstance(value, (list, tuple)):
        value = value[0] if value else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def block_of(name: str) -> int:
    """The layer in `blk.N.…`, -1 elsewhere (`sscanf` in weight_name_comparer)."""
    head, _, rest = name.partition(".")
    number = rest.partition(".")[0]
    return int(number) if head == "blk" and number.isdecimal() else -1


def more_bits(layer: int, layers: int) -> bool:
    """`use_more_bits`: the first eighth, the last eighth, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def tensor_types(checkpoint: Checkpoint, mix: str, *, imatrix: bool = False, older: bool = False) -> dict[str, str]:
    """Tensor name → type in a file of this mix. `KeyError` for a mix that llama-quantize does not know, `ValueError` for one that it cannot make of this shape.

    Tensors that are not quantised keep the type that the checkpoint has. The walk is in the loader's order (layer, then name), because some rules count.
    """
    mix = ALIASES.get(mix, mix)
    default = MIXES[mix]
    model = _Model(checkpoint, imatrix=imatrix, older=older)
    types: dict[str, str] = {}
    for tensor in sorted(checkpoint.tensors, key=lambda one: (block_of(one.name), one.name)):
        if not is_quantised(tensor, model.arch):
            types[tensor.name] = tensor.dtype
        elif default in ("F32", "F16", "BF16"):
            types[tensor.name] = default
        else:
            types[tensor.name] = _fitting(_choose(model, default, mix, tensor), tensor.dims[0])
    return types


def _fitting(dtype: str, row: int) -> str:
    """`tensor_type_fallback`: a type whose block divides the row; `ValueError` where llama-quantize gives up."""
    block = GGML_BLOCKS[dtype][0]
    if row % block == 0:
        return dtype
    other = _FALLBACK.get(dtype, dtype)
    if other == dtype and block > 32:
        raise ValueError(f"llama-quantize has no fallback for {dtype} where a row of {row} is no multiple of {block}")
    return other if row % GGML_BLOCKS[other][0] == 0 else "F16"


def _choose(model: _Model, dtype: str, mix: str, tensor: Tensor) -> str:
    """`llama_tensor_get_type_impl`, branch by branch in its order."""
    kind, name = category(tensor.name), tensor.name
    if model.arch == "glm5-next" and any(part in name for part in ("attn_q_a", "attn_q_b", "nextn.eh_proj")):
        return dtype if dtype in ("F32", "BF16", "F16") else "Q8_0"
    if kind == "output" or (model.tied and kind == "embedding"):
        return _output(model, dtype, mix, tensor)
    if mix == "MXFP4_MOE":
        experts = len(tensor.dims) > 2 and tensor.dims[2] > 1 and (model.arch != "bailingmoe3" or kind in ("up", "gate", "down"))
        return "MXFP4" if experts else "Q8_0"
    if kind == "embedding":
        return _embedding(dtype, mix)
    if mix in _TINY_IQ:
        return _tiny(model, dtype, mix, kind)
    if kind in model.like_v:
        chosen = _like_v(model, dtype, mix)
        model.attn_v += 1
        return chosen
    if kind == "qkv":
        return _FUSED_OLDER.get(mix, dtype)
    if kind in ("k", "q"):
        if kind == "k" and model.experts == 8:
            return "Q8_0"
        return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(mix, dtype)
    if kind == "down":
        layer = model.layer(model.down, name)
        model.down += 1
        return _down(model, dtype, mix, layer)
    if kind == "attn_output":
        return _attention_output(model, dtype, mix)
    if kind in ("gate", "up"):
        counter = model.gate if kind == "gate" else model.up
        layer = model.layer(counter, name)
        if kind == "gate":
            model.gate += 1
        else:
            model.up += 1
        middle = model.layers // 8 <= layer < 7 * model.layers // 8
        return "IQ3_XXS" if mix == "IQ3_XS" and middle else dtype
    return dtype


def _output(model: _Model, dtype: str, mix: str, tensor: Tensor) -> str:
    if mix == "MXFP4_MOE" or model.arch == "falcon" or tensor.dims[0] % GGML_BLOCKS[dtype][0]:
        return "Q8_0"
    if mix in _TINY_IQ or mix == "IQ3_XXS":
        return "Q5_K"
    return dtype if dtype == "Q8_0" else "Q6_K"


def _embedding(dtype: str, mix: str) -> str:
    if mix in ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"):
        return "Q2_K"
    if mix in ("IQ2_S", "IQ2_M", "IQ3_XXS"):
        return "IQ3_S"
    return "Q4_K" if mix in ("TQ1_0", "TQ2_0", "Q2_0") else dtype


def _tiny(model: _Model, dtype: str, mix: str, kind: str) -> str:
    """The mixes of one and two bits."""
    better = "IQ3_S" if mix in ("IQ2_S", "IQ2_M") else "Q2_K"
    if kind in model.like_v:
        model.attn_v += 1
        return "Q4_K" if model.gqa >= 4 or model.experts >= 4 else better
    if model.experts == 8 and kind == "k":
        return "Q4_K"
    if kind == "down":
        model.down += 1
        return better if model.down - 1 < model.layers // 8 else dtype
    if kind == "attn_output":
        if model.experts == 8:
            return "Q5_K"
        return {"IQ1_S": "IQ2_XXS", "IQ1_M": "IQ2_XXS", "IQ2_S": "IQ3_S", "IQ2_M": "IQ3_S"}.get(mix, dtype)
    return dtype


def _like_v(model: _Model, dtype: str, mix: str) -> str:
    grouped = model.gqa >= 4
    chosen = dtype
    if mix == "Q2_K":
        chosen = "Q4_K" if grouped else "Q3_K"
    elif mix == "IQ3_XXS":
        chosen = "Q4_K" if grouped else ("IQ3_XXS" if model.imatrix else "IQ3_S")
    elif mix == "IQ3_M" or (mix in ("Q2_K_S", "IQ3_XS", "IQ3_S") and grouped):
        chosen = "Q4_K"
    elif mix == "Q3_K_M":
        chosen = "Q5_K" if model.attn_v < 2 else "Q4_K"
    elif mix == "Q3_K_L" or (mix in ("IQ4_NL", "IQ4_XS") and grouped) or (mix == "Q4_K_S" and model.attn_v < 4):
        chosen = "Q5_K"
    elif mix in ("Q4_K_M", "Q5_K_M") and more_bits(model.attn_v, model.attn_v_count):
        chosen = "Q6_K"
    if model.is_70b and chosen in ("Q3_K", "Q4_K"):
        chosen = "Q5_K"
    return "Q8_0" if model.experts == 8 else chosen


def _down(model: _Model, dtype: str, mix: str, layer: int) -> str:
    layers, falcon = model.layers, model.arch == "falcon"
    early = layer < layers // 8
    if mix == "Q2_K":
        return "Q3_K"
    if mix == "Q2_K_S":
        return "Q4_K" if early else dtype
    if mix == "IQ3_XXS" and not model.imatrix:
        return "Q4_K" if early else "Q3_K"
    if mix == "Q3_K_M":
        return "Q5_K" if layer < layers // 16 else ("Q4_K" if not falcon or more_bits(layer, layers) else "Q3_K")
    if mix == "IQ3_M":
        return "Q4_K" if early or (model.experts == 8 and more_bits(layer, layers)) else dtype
    if mix == "Q3_K_L":
        return "Q4_K" if falcon else "Q5_K"
    if mix == "Q4_K_M":
        if falcon:
            return "Q6_K" if layer < layers // 16 else ("Q5_K" if more_bits(layer, layers) else "Q4_K")
        return "Q6_K" if more_bits(layer, layers) else dtype
    if mix == "Q5_K_M":
        return "Q6_K" if more_bits(layer, layers) else dtype
    if not early:
        return dtype
    if (mix in ("IQ4_NL", "IQ4_XS") and not model.imatrix) or (mix == "Q4_K_S" and not falcon):
        return "Q5_K"
    if mix in ("Q4_0", "Q5_0") and model.imatrix:
        return "Q4_1" if mix == "Q4_0" else "Q5_1"
    return dtype


def _attention_output(model: _Model, dtype: str, mix: str) -> str:
    if model.arch == "falcon":
        return "Q4_K" if mix == "Q3_K_L" else dtype
    if model.experts == 8:
        return "Q5_K" if mix in _EXPERT_OUTPUT_Q5 else dtype
    return {"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K"}.get(mix, dtype)


def fused(checkpoint: Checkpoint) -> bool:
    """Whether the older rules give another file: where values are fused with other rows."""
    return any(category(tensor.name) in ("qkv", "kv_b") for tensor in checkpoint.tensors)


def quantise(checkpoint: Checkpoint, mix: str, *, imatrix: bool | None = None, older: bool = False) -> Checkpoint:
    """The checkpoint as llama-quantize would write it: the same tensors in other types. `imatrix` None: only where the mix cannot be made without one.

    `file_bytes` is the new tensor data plus what the old file held beside its tensors. `KeyError` for an unknown mix.
    """
    mix = ALIASES.get(mix, mix)
    types = tensor_types(checkpoint, mix, imatrix=mix in NEED_IMATRIX if imatrix is None else imatrix, older=older)
    tensors = tuple(_as(tensor, types[tensor.name]) for tensor in checkpoint.tensors)
    beside = max(0, checkpoint.file_bytes - sum(tensor.stored_bytes for tensor in checkpoint.tensors))
    number = next((key for key, name in FILE_TYPES.items() if name == mix), None)
    metadata = dict(checkpoint.metadata) if number is None else {**checkpoint.metadata, "general.file_type": number}
    return checkpoint.replace(
        tensors=tensors,
        file_bytes=beside + sum(tensor.stored_bytes for tensor in tensors),
        metadata=metadata,
        quantisation=mix,
        caveats=(*checkpoint.caveats, f"the size of {mix} is predicted by {SOURCE}; a file made with other tools or overrides may differ"),
    )


def _as(tensor: Tensor, dtype: str) -> Tensor:
    return tensor if dtype == tensor.dtype else tensor.replace(dtype=dtype, stored_bytes=ggml_tensor_bytes(dtype, tensor.dims))
