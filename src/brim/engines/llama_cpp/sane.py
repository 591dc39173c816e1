"""What a header may say before a graph is drawn from it: each key a number where a number is due, within what the engine itself can hold.

Source: llama.cpp b11434, src/llama-hparams.h (LLAMA_MAX_LAYERS, LLAMA_MAX_EXPERTS), src/llama-model-loader.cpp `get_key` (a key of another type is an error), 32-bit counts.
Guarantees: after `check`, arithmetic on the header cannot meet a word, an empty list or a count that would make lists of any size. What is not read is not checked.
"""

from brim.errors import BadHeader, BadTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from brim.facts.model import Checkpoint

MAX_LAYERS, MAX_EXPERTS = 512, 1024
_MOST = (1 << 31) - 1
# key behind the architecture → the most it may be; one value or a list of them
_COUNTS: dict[str, int] = {
    "block_count": MAX_LAYERS, "nextn_predict_layers": MAX_LAYERS, "expert_count": MAX_EXPERTS, "expert_used_count": MAX_EXPERTS, "expert_group_count": MAX_EXPERTS,
    "expert_group_used_count": MAX_EXPERTS, "decision_block_count": MAX_LAYERS, "leading_dense_block_count": MAX_LAYERS, "n_deepstack_layers": MAX_LAYERS,
    "attention.shared_kv_layers": MAX_LAYERS, "full_attention_interval": _MOST, "moe_every_n_layers": _MOST, "context_length": _MOST, "embedding_length": 1 << 24,
    "embedding_length_out": 1 << 24, "embedding_length_per_layer_input": 1 << 24, "feed_forward_length": 1 << 28, "attention.head_count": 1 << 20,
    "attention.head_count_kv": 1 << 20, "attention.key_length": 1 << 24, "attention.value_length": 1 << 24, "attention.key_length_mla": 1 << 24,
    "attention.value_length_mla": 1 << 24, "attention.key_length_swa": 1 << 24, "attention.value_length_swa": 1 << 24, "attention.kv_lora_rank": 1 << 24,
    "attention.indexer.head_count": 1 << 20, "attention.indexer.key_length": 1 << 24, "attention.indexer.top_k": _MOST, "attention.indexer.types": _MOST,
    "attention.compress_ratios": _MOST, "attention.output_group_count": 1 << 20, "attention.output_lora_rank": 1 << 24, "hyper_connection.count": 64, "hash_layer_count": MAX_LAYERS,
    "hyper_connection.low_rank": 1 << 24, "attn_res.block_size": MAX_LAYERS, "attention.indexer.kpool": 1 << 16, "attention.indexer.block_size": 1 << 16,
    "attention.kv_lora_rank_swa": 1 << 24, "attention.key_length_mla_swa": 1 << 24, "attention.value_length_mla_swa": 1 << 24, "attention.indexer.kpool_select_tail": 1, "ple.layers": MAX_LAYERS, "ple.ngram_size": 64, "ple.heads_per_ngram": 1 << 12, "ple.conv_kernel": 1 << 12,
    "attention.q_lora_rank": 1 << 24, "attention.sliding_window": _MOST, "attention.sliding_window_pattern": _MOST, "attention.recurrent_layers": _MOST,
    "attention.rope_pattern": _MOST, "rope.dimension_count": 1 << 24, "rope.dimension_sections": 1 << 24, "shortconv.l_cache": 1 << 24, "ssm.conv_kernel": 1 << 24,
    "ssm.group_count": 1 << 24, "ssm.inner_size": 1 << 28, "ssm.state_size": 1 << 24, "ssm.time_step_rank": 1 << 24, "expert_shared_count": MAX_EXPERTS, "expert_feed_forward_length": 1 << 28,
    "expert_shared_feed_forward_length": 1 << 28, "token_shift_count": 1 << 16, "kda.head_dim": 1 << 24, "wkv.head_size": 1 << 24,
    "vocab_size": _MOST, "rope.scaling.original_context_length": _MOST, "rope.scaling.finetuned": _MOST, "expert_weights_norm": _MOST, "ssm.dt_b_c_rms": _MOST,
    "use_parallel_residual": _MOST, "deepstack_mapping": _MOST, "expert_gating_func": _MOST, "pooling_type": _MOST, "attention.causal": 1,
}  # fmt: skip
_NUMBERS = (
    "attention.clamp_kqv", "attention.max_alibi_bias", "attention.temperature_scale", "attention.value_scale", "embedding_scale", "expert_weights_scale", "final_logit_softcapping", "activation.situ_linear_beta", "kda.gate_lower_bound",
    "logit_scale", "residual_scale", "swiglu_clamp_exp", "swiglu_clamp_shexp",
)  # fmt: skip
_LISTS = frozenset(
    (
        "attention.head_count", "attention.head_count_kv", "feed_forward_length", "expert_used_count", "expert_feed_forward_length", "attention.sliding_window_pattern", "attention.recurrent_layers",
        "attention.rope_pattern", "attention.indexer.types", "attention.compress_ratios", "ple.layers", "rope.dimension_sections", "deepstack_mapping", "swiglu_clamp_exp", "swiglu_clamp_shexp",
    )
)  # fmt: skip
_NEVER_NONE = frozenset(
    ("attention.head_count", "attention.head_count_kv", "feed_forward_length", "expert_used_count", "expert_feed_forward_length")
)  # read as unsigned
_MATRICES = (
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_qkv.weight",
    "attn_output.weight",
    "ffn_up.weight",
    "ffn_down.weight",
    "ffn_gate.weight",
    "ssm_in.weight",
)
_STACKS = ("ffn_up_exps.weight", "ffn_down_exps.weight", "ffn_gate_exps.weight")


def check(checkpoint: "Checkpoint", architecture: str) -> None:
    """Raise `BadHeader` with the key, or `BadTensor` with the tensor, that cannot be."""
    meta = checkpoint.metadata
    for key, most in _COUNTS.items():
        _numbers(checkpoint.source, meta, f"{architecture}.{key}", most, several=key in _LISTS, least=-1 if key in _LISTS and key not in _NEVER_NONE else 0)
    for key in _NUMBERS:
        _numbers(checkpoint.source, meta, f"{architecture}.{key}", None, several=key in _LISTS)
    for key in ("block_count", "embedding_length"):
        if meta.get(f"{architecture}.{key}") == 0:
            raise BadHeader(f"{checkpoint.source}: {architecture}.{key} is 0")
    blocks, ahead = meta.get(f"{architecture}.block_count"), meta.get(f"{architecture}.nextn_predict_layers", 0)
    if blocks is not None and ahead > blocks:
        raise BadHeader(f"{checkpoint.source}: {architecture}.nextn_predict_layers is {ahead} of {blocks} blocks")
    experts, used = meta.get(f"{architecture}.expert_count", 0), meta.get(f"{architecture}.expert_used_count", 0)
    if experts and any(not 0 < count <= experts for count in (used if isinstance(used, (list, tuple)) else (used,))):
        raise BadHeader(f"{checkpoint.source}: {architecture}.expert_used_count is {used} of {experts} experts")
    for tensor in checkpoint.tensors:
        name = tensor.name
        inner = name[4:] if name.startswith(("enc.blk.", "dec.blk.")) else name
        block, _, rest = inner[4:].partition(".") if inner.startswith("blk.") else ("0", "", "")
        if not (block.isascii() and block.isdigit() and len(block) < 6):
            raise BadTensor(f"{checkpoint.source}: tensor {name[:200]!r} belongs to no block")
        least = 3 if rest in _STACKS else 2 if rest in _MATRICES or name in ("token_embd.weight", "output.weight") else 0
        if len(tensor.dims) < least:
            raise BadTensor(f"{checkpoint.source}: tensor {name!r} has {len(tensor.dims)} dimensions where {least} are due")


def _numbers(source: str, meta: "Mapping[str, Any]", key: str, most: "int | None", *, several: bool, least: int = 0) -> None:
    """One value or a list of them: numbers, and with `most` whole ones from 0 to it (-1 stands for "none" in some lists)."""
    if key not in meta:
        return
    value = meta[key]
    values = value if isinstance(value, (list, tuple)) else (value,)
    if values is value and not several:
        raise BadHeader(f"{source}: {key} is a list, where one number is due")
    if not values:
        raise BadHeader(f"{source}: {key} is an empty list")
    for item in values:
        if not isinstance(item, (int, float)):
            raise BadHeader(f"{source}: {key} is {str(item)[:40]!r}, not a number")
        if most is not None and (item != item // 1 or not (least if values is value else 0) <= item <= most):
            raise BadHeader(f"{source}: {key} is {item}, not a whole number from 0 to {most}")
