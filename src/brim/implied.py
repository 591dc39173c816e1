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
    "phi3": frozenset(("fused",)),  # as published; libllama's own quantiser takes the three apart too
    "deepseek2": frozenset(("latent",)),
    "gpt-oss": frozenset(("bias", "sinks", "bare_ffn_norm", "expert_bias")),
}
_APART = frozenset(("fused_ffn",))
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
    for traits in (_TRAITS[arch], _APART) if "fused" in _TRAITS[arch] else (_TRAITS[arch],):
        for tied in (True, False) if "tied" in traits else (False, True):
            for factors in (False, True) if "rope_freqs" in traits else (False,):
                made.append(tuple(_directory(keys, traits, tied=tied, factors=factors)))
    return made


class _Keys:
    """The widths of one header; `wanting` names what is missing or cannot be."""

    def __init__(self, metadata: "Mapping[str, Any]", arch: str) -> None:
        self.metadata, self.arch = metadata, arch
        self.wanting: list[str] = []
        self.layers = self.count("block_count", most=MAX_LAYERS)
        self.width = self.count("embedding_length")
        self.vocabulary = self.count("vocab_size", self.length("tokenizer.ggml.tokens"), most=1 << 31)
        self.feed_forward = self.count("feed_forward_length")
        self.heads = self.count("attention.head_count")
        self.kv_heads = self.count("attention.head_count_kv", self.heads)
        natural = self.width // max(self.heads, 1)
        self.key = self.count("attention.key_length", natural)
        self.value = self.count("attention.value_length", natural)
        self.experts = self.count("expert_count", 0)
        self.expert_width = self.count("expert_feed_forward_length", self.feed_forward)
        self.shared_width = self.count("expert_shared_feed_forward_length", self.count("expert_shared_count", 0) * self.expert_width)
        self.dense = self.count("leading_dense_block_count", 0)

    def count(self, key: str, default: int | None = None, most: int = MAX_WIDTH) -> int:
        """A whole number, or the default; neither: the key is wanting."""
        value = self.metadata.get(f"{self.arch}.{key}", default)
        if type(value) is not int or not 0 <= value <= most:
            self.wanting.append(key)
            return 0
        return value

    def length(self, key: str) -> "int | None":
        """How many entries a stepped-over list had."""
        value = self.metadata.get(key + ".length")
        return value if isinstance(value, int) else None


def _directory(k: _Keys, traits: frozenset[str], *, tied: bool, factors: bool) -> "list[Tensor]":
    rows: list[tuple[str, tuple[int, ...]]] = [("token_embd.weight", (k.width, k.vocabulary)), ("output_norm.weight", (k.width,))]
    if not tied:
        rows.append(("output.weight", (k.width, k.vocabulary)))
    if factors:
        rows.append(("rope_freqs.weight", (k.count("rope.dimension_count", k.key) // 2,)))
    for layer in range(k.layers):
        block = [*_attention(k, traits), *_feed_forward(k, traits, layer)]
        rows += [(f"blk.{layer}.{name}", dims) for name, dims in block]
    tensors, offset = [], 0
    for name, dims in rows:
        elements = 1
        for dim in dims:
            elements *= dim
        dtype = "F32" if len(dims) == 1 or name.endswith(("ffn_gate_inp.weight", ".bias")) else "F16"
        size = ggml_tensor_bytes(dtype, dims)
        tensors.append(Tensor(name=name, dims=dims, dtype=dtype, offset=offset, stored_bytes=size, elements=elements))
        offset += size
    return tensors


def _attention(k: _Keys, traits: frozenset[str]) -> "list[tuple[str, tuple[int, ...]]]":
    rows: list[tuple[str, tuple[int, ...]]] = [("attn_norm.weight", (k.width,))]
    query, key, value = k.heads * k.key, k.kv_heads * k.key, k.kv_heads * k.value
    out = k.heads * k.value
    if "latent" in traits:
        rank, rope = k.count("attention.kv_lora_rank"), k.count("rope.dimension_count")
        head_key, head_value = k.count("attention.key_length_mla"), k.count("attention.value_length_mla")
        rows += [("attn_q.weight", (k.width, k.heads * head_key)), ("attn_kv_a_mqa.weight", (k.width, rank + rope)), ("attn_kv_a_norm.weight", (rank,))]
        rows += [("attn_k_b.weight", (head_key - rope, rank, k.heads)), ("attn_v_b.weight", (rank, head_value, k.heads))]
        out = k.heads * head_value
    elif "fused" in traits:
        rows.append(("attn_qkv.weight", (k.width, query + key + value)))
    else:
        rows += [("attn_q.weight", (k.width, query)), ("attn_k.weight", (k.width, key)), ("attn_v.weight", (k.width, value))]
    rows.append(("attn_output.weight", (out, k.width)))
    if "bias" in traits:
        rows += [("attn_q.bias", (query,)), ("attn_k.bias", (key,)), ("attn_v.bias", (value,))]
    if "sinks" in traits:
        rows += [("attn_output.bias", (k.width,)), ("attn_sinks.weight", (k.heads,)), ("post_attention_norm.weight", (k.width,))]
    if "head_norms" in traits:
        rows += [("attn_q_norm.weight", (k.key,)), ("attn_k_norm.weight", (k.key,))]
    if "post_norms" in traits:
        rows += [("post_attention_norm.weight", (k.width,)), ("post_ffw_norm.weight", (k.width,))]
    return rows


def _feed_forward(k: _Keys, traits: frozenset[str], layer: int) -> "list[tuple[str, tuple[int, ...]]]":
    rows: list[tuple[str, tuple[int, ...]]] = [] if "bare_ffn_norm" in traits else [("ffn_norm.weight", (k.width,))]
    if not k.experts or layer < k.dense:
        if "fused" in traits or "fused_ffn" in traits:
            return [*rows, ("ffn_up.weight", (k.width, 2 * k.feed_forward)), ("ffn_down.weight", (k.feed_forward, k.width))]
        return [
            *rows,
            ("ffn_gate.weight", (k.width, k.feed_forward)),
            ("ffn_up.weight", (k.width, k.feed_forward)),
            ("ffn_down.weight", (k.feed_forward, k.width)),
        ]
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
    if "expert_bias" in traits:
        rows += [("ffn_gate_inp.bias", (k.experts,)), ("ffn_gate_exps.bias", (k.expert_width, k.experts)), ("ffn_up_exps.bias", (k.expert_width, k.experts))]
        rows.append(("ffn_down_exps.bias", (k.width, k.experts)))
    return rows
