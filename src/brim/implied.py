"""The tensors that GGUF metadata imply where a shape file lists none: a table of families, each held against files that llama.cpp wrote; it opens nothing.

Source: llama.cpp b11434, src/models/*.cpp `load_arch_tensors`, and gguf-py/gguf/tensor_mapping.py. Guarantees: a family that is not in the table gives nothing; whether the
output matrix is tied and whether rotation factors are stored stands in no key, so all variants are made and the caller picks the one whose bytes are those of the file.
"""

from brim.facts.dtypes import ggml_tensor_bytes
from brim.facts.model import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# architecture → what its blocks have beside q, k, v, output, two norms and a gated feed-forward
_TRAITS: dict[str, frozenset[str]] = {
    "llama": frozenset(("rope_freqs",)),
    "qwen2": frozenset(("bias",)),
    "qwen3": frozenset(("head_norms",)),
    "qwen3moe": frozenset(("head_norms",)),
    "gemma": frozenset(("tied",)),
    "gemma2": frozenset(("tied", "post_norms")),
    "gemma3": frozenset(("tied", "post_norms", "head_norms")),
    "gemma4": frozenset(("tied", "post_norms", "head_norms", "two_kinds")),  # the dense models
    "phi3": frozenset(("fused",)),  # as published; libllama's own quantiser takes the three apart too
    "deepseek2": frozenset(("latent", "sigmoid_bias")),
    "chatglm": frozenset(("fused", "fused_bias")),
    "glm4": frozenset(("post_norms", "fused_ffn")),
    "glm4moe": frozenset(("bias", "head_norms", "post_norm_only", "sigmoid_bias")),
    "command-r": frozenset(("tied", "bare_ffn_norm")),
    "deci": frozenset(("rope_freqs",)),
    "minimax-m2": frozenset(("wide_norms", "sigmoid_bias")),
    "bert": frozenset(("encoder",)),
    "bitnet": frozenset(("sub_norms", "tied")),
    "qwen35": frozenset(("head_norms", "delta", "post_norm_only")),
    "qwen35moe": frozenset(("head_norms", "delta", "post_norm_only", "shared_gate")),
    "gpt-oss": frozenset(("bias", "sinks", "bare_ffn_norm", "expert_bias")),
    "granite": frozenset(("tied",)),
    "granitemoe": frozenset(("tied",)),
    "mistral3": frozenset(("tied",)),
    "smollm3": frozenset(("tied",)),
    "ernie4_5": frozenset(("tied",)),
    "internlm2": frozenset(),
    "qwen2vl": frozenset(("bias",)),
    "qwen3vl": frozenset(("head_norms",)),
    "qwen3vlmoe": frozenset(("head_norms",)),
    "cohere2": frozenset(("tied", "bare_ffn_norm")),
    "olmo2": frozenset(("wide_norms", "post_norms", "post_only")),
    "exaone4": frozenset(("head_norms", "post_norms", "post_only", "rope_freqs")),
    "starcoder": frozenset(("classic", "fused", "fused_bias", "positions")),
    "gpt2": frozenset(("classic", "fused", "fused_bias", "positions")),
    "starcoder2": frozenset(("classic", "bias", "tied")),
    "gptneox": frozenset(("classic", "fused", "fused_bias")),
    "phi2": frozenset(("classic", "bias", "bare_ffn_norm", "output_bias")),
    "falcon": frozenset(("fused", "ungated", "norm_bias", "bare_ffn_norm")),
    "lfm2": frozenset(("head_norms", "short_conv", "tied")),
    "afmoe": frozenset(("head_norms", "post_norms", "gated", "sigmoid_bias")),
    "llama4": frozenset(("rope_freqs",)),
}
_APART = frozenset(("fused_ffn",))
_KEYS_ARE_VALUES = frozenset(("keys_are_values",))  # Gemma 4's larger models: full-attention layers have no value matrix
_NORM_BIASES = frozenset(("classic", "norm_bias"))  # norms with a bias; "classic" blocks have one at every matrix too, and no gate
_STILL = ("token_types.weight", "position_embd.weight")  # never quantised, kept as F32
_SIGMOID = 2  # expert_gating_func: files with it carry a bias for the choice of experts
MAX_LAYERS, MAX_WIDTH = 512, 1 << 24


def variants(metadata: "Mapping[str, Any]") -> "list[tuple[Tensor, ...]]":
    """The directories that a header may stand for, unquantised (F16 matrices, F32 vectors), the likeliest first; [] where the family or a key is not known."""
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str) or arch not in _TRAITS:
        return []
    keys = _Keys(metadata, arch)
    if keys.wanting:
        return []
    made = []
    kinds = [_TRAITS[arch]]
    if arch == "phi3":
        kinds.append(_APART)
    if "two_kinds" in kinds[0]:
        if keys.experts:
            return []
        kinds.insert(1 if keys.count("embedding_length_per_layer_input", 0) else 0, kinds[0] | _KEYS_ARE_VALUES)  # the small ones have them
    for traits in kinds:
        for tied in (True, False) if "tied" in traits else (False, True):
            for factors in _factors(metadata, arch) if "rope_freqs" in traits else (False,):
                made.append(tuple(_directory(keys, traits, tied=tied, factors=factors)))
    return [] if keys.wanting else made


def _factors(metadata: "Mapping[str, Any]", arch: str) -> tuple[bool, bool]:
    """Whether rotation factors are stored, the likelier first: Llama 3's scaling leaves no key, but a base of 500000 with a context beyond the 8192 that were trained with it."""
    base, context = metadata.get(f"{arch}.rope.freq_base"), metadata.get(f"{arch}.context_length")
    scaled = isinstance(base, (int, float)) and base >= 500000 and isinstance(context, int) and context > 8192
    return (True, False) if scaled else (False, True)


class _Keys:
    """The widths of one header; `wanting` names what is missing or cannot be."""

    def __init__(self, metadata: "Mapping[str, Any]", arch: str) -> None:
        self.metadata, self.arch = metadata, arch
        self.wanting: list[str] = []
        self.layers = self.count("block_count", most=MAX_LAYERS)
        self.width = self.count("embedding_length")
        self.vocabulary = self.count("vocab_size", self.length("tokenizer.ggml.tokens"), most=1 << 31)
        self.experts = self.count("expert_count", 0)
        self.feed_forward = self.count("feed_forward_length", 0 if self.experts else None)
        self.heads = self.count("attention.head_count")
        self.kv_heads = self.count("attention.head_count_kv", self.heads)
        natural = self.width // max(self.heads, 1)
        self.key = self.count("attention.key_length", natural)
        self.value = self.count("attention.value_length", natural)
        self.expert_width = self.feed_forward if arch == "minimax-m2" else self.count("expert_feed_forward_length", self.feed_forward)
        shared = self.count("expert_shared_count", 1 if arch == "llama4" else 0)
        self.shared_width = self.count("expert_shared_feed_forward_length", shared * self.expert_width)
        self.step = self.count("interleave_moe_layer_step", 1)  # llama4: every how many blocks have experts
        self.dense = self.count("leading_dense_block_count", 0)

    def count(self, key: str, default: int | None = None, most: int = MAX_WIDTH) -> int:
        """A whole number, or the default; neither: the key is wanting."""
        value = self.metadata.get(f"{self.arch}.{key}", default)
        if isinstance(value, list) and value:  # one value a layer: that of the first, `at` gives the others
            value = value[0]
        if type(value) is not int or not 0 <= value <= most:
            self.wanting.append(key)
            return 0
        return value

    def at(self, key: str, layer: int, default: int | None = None) -> int:
        """A whole number of one layer, where the header has a list."""
        value = self.metadata.get(f"{self.arch}.{key}")
        if not isinstance(value, list):
            return self.count(key, default)
        if layer < len(value) and type(value[layer]) is int and 0 <= value[layer] <= MAX_WIDTH:
            return int(value[layer])
        self.wanting.append(key)
        return 0

    def length(self, key: str) -> "int | None":
        """How many entries a stepped-over list had."""
        value = self.metadata.get(key + ".length")
        return value if isinstance(value, int) else None


def _encoder(k: _Keys) -> "list[tuple[str, tuple[int, ...]]]":
    """One block of BERT: biases and norms everywhere, no gate."""
    rows = [(f"attn_{name}.weight", (k.width, k.width)) for name in ("q", "k", "v", "output")]
    rows += [("ffn_up.weight", (k.width, k.feed_forward)), ("ffn_down.weight", (k.feed_forward, k.width))]
    biases = [(name.removesuffix("weight") + "bias", dims[1:]) for name, dims in rows]
    norms = [(f"{name}.{kind}", (k.width,)) for name in ("attn_output_norm", "layer_output_norm") for kind in ("weight", "bias")]
    return [*rows, *biases, *norms]


def _directory(k: _Keys, traits: frozenset[str], *, tied: bool, factors: bool) -> "list[Tensor]":
    rows: list[tuple[str, tuple[int, ...]]] = [("token_embd.weight", (k.width, k.vocabulary))]
    if "encoder" in traits:
        rows += [("token_types.weight", (k.width, 2)), ("position_embd.weight", (k.width, k.count("context_length", most=1 << 20)))]
        rows += [("token_embd_norm.weight", (k.width,)), ("token_embd_norm.bias", (k.width,))]
    else:
        if "positions" in traits:
            rows.append(("position_embd.weight", (k.width, k.count("context_length", most=1 << 20))))
        rows.append(("token_embd_norm.weight" if "short_conv" in traits else "output_norm.weight", (k.width,)))
        if traits & _NORM_BIASES:
            rows.append(("output_norm.bias", (k.width,)))
        if not tied:
            rows.append(("output.weight", (k.width, k.vocabulary)))
        if "output_bias" in traits:
            rows.append(("output.bias", (k.vocabulary,)))
    if "two_kinds" in traits:
        rows.append(("rope_freqs.weight", (k.key // 2,)))
        each = k.count("embedding_length_per_layer_input", 0)
        if each:  # a table of inputs for each layer
            rows += [("per_layer_token_embd.weight", (each * k.layers, k.vocabulary)), ("per_layer_model_proj.weight", (k.width, each * k.layers))]
            rows.append(("per_layer_proj_norm.weight", (each,)))
    if factors:
        rows.append(("rope_freqs.weight", (k.count("rope.dimension_count", k.key) // 2,)))
    ahead = k.layers - k.count("nextn_predict_layers", 0) if "delta" in traits else k.layers
    for layer in range(k.layers):
        block = _encoder(k) if "encoder" in traits else [*_mixer(k, traits, layer), *_feed_forward(k, traits, layer)]
        if layer >= ahead:
            block += [
                ("nextn.eh_proj.weight", (2 * k.width, k.width)),
                *((f"nextn.{name}.weight", (k.width,)) for name in ("enorm", "hnorm", "shared_head_norm")),
            ]
        rows += [(f"blk.{layer}.{name}", dims) for name, dims in block]
    tensors, offset = [], 0
    for name, dims in rows:
        elements = 1
        for dim in dims:
            elements *= dim
        dtype = (
            "F32"
            if len(dims) == 1 or name in _STILL or name.endswith(("ffn_gate_inp.weight", "ssm_conv1d.weight", "shortconv.conv.weight", ".bias"))
            else "F16"
        )
        size = ggml_tensor_bytes(dtype, dims)
        tensors.append(Tensor(name=name, dims=dims, dtype=dtype, offset=offset, stored_bytes=size, elements=elements))
        offset += size
    return tensors


def _mixer(k: _Keys, traits: frozenset[str], layer: int) -> "list[tuple[str, tuple[int, ...]]]":
    """What stands before the feed-forward: attention, a short convolution, or a gated delta net."""
    if "short_conv" in traits and not k.at("attention.head_count_kv", layer):
        return [
            ("attn_norm.weight", (k.width,)), ("shortconv.conv.weight", (k.count("shortconv.l_cache"), k.width)), ("shortconv.in_proj.weight", (k.width, 3 * k.width)),
            ("shortconv.out_proj.weight", (k.width, k.width)),
        ]  # fmt: skip
    if "delta" not in traits:
        return _attention(k, traits, layer)
    interval = k.count("full_attention_interval", 4)
    if not interval or (layer + 1) % interval == 0 or layer >= k.layers - k.count("nextn_predict_layers", 0):
        return _attention(k, traits, layer)
    inner, groups, state, heads = (k.count(f"ssm.{name}") for name in ("inner_size", "group_count", "state_size", "time_step_rank"))
    mixed = inner + 2 * groups * state
    return [
        ("attn_norm.weight", (k.width,)), ("post_attention_norm.weight", (k.width,)), ("attn_qkv.weight", (k.width, mixed)), ("attn_gate.weight", (k.width, inner)),
        ("ssm_conv1d.weight", (k.count("ssm.conv_kernel"), mixed)), ("ssm_dt.bias", (heads,)), ("ssm_a", (heads,)), ("ssm_beta.weight", (k.width, heads)),
        ("ssm_alpha.weight", (k.width, heads)), ("ssm_norm.weight", (inner // max(heads, 1),)), ("ssm_out.weight", (inner, k.width)),
    ]  # fmt: skip


def _latent(k: _Keys) -> "tuple[list[tuple[str, tuple[int, ...]]], int]":
    """Latent attention and the width that it puts out: with `key_length_mla` absorbed, without (files from before April 2025) expanded."""
    rank, rope, low = k.count("attention.kv_lora_rank"), k.count("rope.dimension_count"), k.count("attention.q_lora_rank", 0)
    head_key, head_value = k.count("attention.key_length_mla", k.key), k.count("attention.value_length_mla", k.value)
    rows: list[tuple[str, tuple[int, ...]]] = [("attn_kv_a_mqa.weight", (k.width, rank + rope)), ("attn_kv_a_norm.weight", (rank,))]
    if low:
        rows += [("attn_q_a.weight", (k.width, low)), ("attn_q_a_norm.weight", (low,)), ("attn_q_b.weight", (low, k.heads * head_key))]
    else:
        rows.append(("attn_q.weight", (k.width, k.heads * head_key)))
    if f"{k.arch}.attention.key_length_mla" in k.metadata:
        rows += [("attn_k_b.weight", (head_key - rope, rank, k.heads)), ("attn_v_b.weight", (rank, head_value, k.heads))]
    else:
        rows.append(("attn_kv_b.weight", (rank, k.heads * (head_key - rope + head_value))))
    return rows, k.heads * head_value


def _attention(k: _Keys, traits: frozenset[str], layer: int) -> "list[tuple[str, tuple[int, ...]]]":
    rows: list[tuple[str, tuple[int, ...]]] = [] if "post_only" in traits else [("attn_norm.weight", (k.width,))]
    if traits & _NORM_BIASES:
        rows.append(("attn_norm.bias", (k.width,)))
    heads = k.at("attention.head_count", layer)
    kv_heads = k.at("attention.head_count_kv", layer, heads)
    pattern = k.metadata.get(f"{k.arch}.attention.sliding_window_pattern") if "two_kinds" in traits else None
    windowed = isinstance(pattern, list) and layer < len(pattern) and bool(pattern[layer])
    head, head_value = (k.count("attention.key_length_swa", k.key), k.count("attention.value_length_swa", k.value)) if windowed else (k.key, k.value)
    query, key, value = heads * head, kv_heads * head, kv_heads * head_value
    out = heads * head_value
    if not kv_heads:  # a pruned block: one matrix, or nothing
        return [*rows, ("attn_output.weight", (k.width, k.width))] if heads else []
    if "latent" in traits:
        more, out = _latent(k)
        rows += more
    elif "fused" in traits:
        rows.append(("attn_qkv.weight", (k.width, query + key + value)))
    else:
        doubled = 2 if "delta" in traits else 1  # queries and their gate
        rows += [("attn_q.weight", (k.width, doubled * query)), ("attn_k.weight", (k.width, key))]
        if windowed or "keys_are_values" not in traits:
            rows.append(("attn_v.weight", (k.width, value)))
    rows.append(("attn_output.weight", (out, k.width)))
    if "bias" in traits:
        rows += [("attn_q.bias", (query,)), ("attn_k.bias", (key,)), ("attn_v.bias", (value,))]
    if "classic" in traits:
        rows.append(("attn_output.bias", (k.width,)))
    if "sinks" in traits:
        rows += [("attn_output.bias", (k.width,)), ("attn_sinks.weight", (k.heads,)), ("post_attention_norm.weight", (k.width,))]
    if "fused_bias" in traits:
        rows.append(("attn_qkv.bias", (query + key + value,)))
    if "head_norms" in traits:
        rows += [("attn_q_norm.weight", (head,)), ("attn_k_norm.weight", (head,))]
    if "two_kinds" in traits:
        rows.append(("layer_output_scale.weight", (1,)))
        each = k.count("embedding_length_per_layer_input", 0)
        if each:
            rows += [("inp_gate.weight", (k.width, each)), ("proj.weight", (each, k.width)), ("post_norm.weight", (k.width,))]
    if "gated" in traits:
        rows.append(("attn_gate.weight", (k.width, query)))
    if "sub_norms" in traits:
        rows.append(("attn_sub_norm.weight", (k.width,)))
    if "wide_norms" in traits:
        rows += [("attn_q_norm.weight", (query,)), ("attn_k_norm.weight", (key,))]
    if "post_norm_only" in traits:
        rows.append(("post_attention_norm.weight", (k.width,)))
    if k.arch == "command-r" and k.layers >= 64:
        rows += [("attn_q_norm.weight", (k.key, heads)), ("attn_k_norm.weight", (k.key, kv_heads))]
    if "post_norms" in traits:
        rows += [("post_attention_norm.weight", (k.width,)), ("post_ffw_norm.weight", (k.width,))]
    return rows


def _feed_forward(k: _Keys, traits: frozenset[str], layer: int) -> "list[tuple[str, tuple[int, ...]]]":
    bare = bool(traits & frozenset(("bare_ffn_norm", "post_norm_only", "post_only")))
    rows: list[tuple[str, tuple[int, ...]]] = [] if bare else [("ffn_norm.weight", (k.width,))]
    if traits & _NORM_BIASES and not bare:
        rows.append(("ffn_norm.bias", (k.width,)))
    if not k.experts or layer < k.dense or (k.arch == "llama4" and (not k.step or (layer + 1) % k.step)):
        wide = k.at("feed_forward_length", layer)
        if not wide:
            return []
        if "classic" in traits or "ungated" in traits:
            rows += [("ffn_up.weight", (k.width, wide)), ("ffn_down.weight", (wide, k.width))]
            return [*rows, ("ffn_up.bias", (wide,)), ("ffn_down.bias", (k.width,))] if "classic" in traits else rows
        if "fused" in traits or "fused_ffn" in traits:
            return [*rows, ("ffn_up.weight", (k.width, 2 * wide)), ("ffn_down.weight", (wide, k.width))]
        if "sub_norms" in traits:
            rows.append(("ffn_sub_norm.weight", (wide,)))
        return [*rows, ("ffn_gate.weight", (k.width, wide)), ("ffn_up.weight", (k.width, wide)), ("ffn_down.weight", (wide, k.width))]
    rows.append(("ffn_gate_inp.weight", (k.width, k.experts)))
    for name in ("gate", "up"):
        rows.append((f"ffn_{name}_exps.weight", (k.width, k.expert_width, k.experts)))
    rows.append(("ffn_down_exps.weight", (k.expert_width, k.width, k.experts)))
    if k.shared_width:
        rows += [
            ("ffn_gate_shexp.weight", (k.width, k.shared_width)),
            ("ffn_up_shexp.weight", (k.width, k.shared_width)),
            ("ffn_down_shexp.weight", (k.shared_width, k.width)),
        ]
    if "shared_gate" in traits:
        rows.append(("ffn_gate_inp_shexp.weight", (k.width,)))
    if "sigmoid_bias" in traits and (k.arch != "deepseek2" or k.count("expert_gating_func", 0) == _SIGMOID):
        rows.append(("exp_probs_b.bias", (k.experts,)))
    if "expert_bias" in traits:
        rows += [("ffn_gate_inp.bias", (k.experts,)), ("ffn_gate_exps.bias", (k.expert_width, k.experts)), ("ffn_up_exps.bias", (k.expert_width, k.experts))]
        rows.append(("ffn_down_exps.bias", (k.width, k.experts)))
    return rows
