"""A GGUF directory as the rows that training code has: roles from llama.cpp's tensor names, layers from the header's keys; the training program's own names are not known.

Names: llama.cpp b11434 `gguf-py/gguf/constants.py` TENSOR_NAMES. Quantised tensors count by their logical elements: training starts from the unpacked model.
Not covered: recurrent blocks, latent attention, encoders (the answer is Missing).
"""

from brim.facts.model import Attention, FeedForward, Layer, Shape, Weight
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from brim.facts.model import Tensor

_ROLES = {
    "attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_qkv": "qkv", "attn_output": "o", "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down", "ffn_gate_inp": "router",
    "ffn_gate_exps": "expert_gate", "ffn_up_exps": "expert_up", "ffn_down_exps": "expert_down", "ffn_gate_shexp": "shared_gate", "ffn_up_shexp": "shared_up",
    "ffn_down_shexp": "shared_down",
}  # fmt: skip
_OUTSIDE = {"token_embd": "embedding", "output": "lm_head", "position_embd": "position"}
_INNER = {"attn_q_norm": "q_norm", "attn_k_norm": "k_norm"}


def _row(tensor: "Tensor") -> Weight:
    """One tensor as a row; norms get the names that the census tells apart."""
    stem, _, kind = tensor.name.rpartition(".")
    block = stem.split(".")
    layer = int(block[1]) if block[0] == "blk" and len(block) > 2 and block[1].isdecimal() else None
    short = block[-1]
    dims: tuple[int, ...] = tensor.dims
    copies = 1
    role = _ROLES.get(short) or _OUTSIDE.get(stem) or ("norm" if short.endswith("norm") else "other")
    if role.startswith("expert_") and len(dims) == 3:
        *pair, copies = dims
        dims = tuple(pair)
    matrix = len(dims) > 1
    op = "norm" if role == "norm" else "bias" if kind == "bias" else "embedding" if role in ("embedding", "position") else "linear" if matrix else "vector"
    name = f"blk.{layer}.{_INNER.get(short, short)}.{kind}" if layer is not None else tensor.name
    return Weight(name=name, dims=dims, role=role, op=op, layer=layer, elements=tensor.elements, active=tensor.elements, copies=copies)


def shape_and_rows(metadata: "Mapping[str, Any]", tensors: "tuple[Tensor, ...]") -> "tuple[Shape | Missing, tuple[Weight, ...]]":
    """The shape and rows of a decoder in GGUF form; `Missing` names the keys that are wanting."""
    architecture = str(metadata.get("general.architecture", ""))

    def key(name: str, default: int = 0) -> int:
        value = metadata.get(f"{architecture}.{name}", default)
        value = max(value) if isinstance(value, (list, tuple)) and value else value
        return value if isinstance(value, int) else default

    heads, layers, width = key("attention.head_count"), key("block_count"), key("embedding_length")
    wanting = [name for name, value in (("attention.head_count", heads), ("block_count", layers), ("embedding_length", width)) if value < 1]
    rows = tuple(_row(tensor) for tensor in tensors if not tensor.name.startswith("rope"))
    if wanting or key("attention.kv_lora_rank") or any("ssm" in row.name or "time_mix" in row.name for row in rows):
        return Missing(
            reason="not_supported", detail=f"{architecture or 'no architecture'}: {', '.join(wanting) or 'its blocks have no training rows from a GGUF'}"
        ), ()
    table = next((row for row in rows if row.role == "embedding"), None)
    kv, dim = key("attention.head_count_kv", heads), key("attention.key_length", width // heads)
    attention = Attention(kind="full", heads=heads, kv_heads=kv or heads, key_dim=dim, value_dim=key("attention.value_length", dim))
    experts, gated = key("expert_count"), any(row.role in ("gate", "expert_gate") for row in rows)
    inner = key("expert_feed_forward_length", key("feed_forward_length")) if experts else key("feed_forward_length")
    feed = FeedForward(
        kind="experts" if experts else "dense", width=inner, gated=gated or architecture == "phi3", experts=experts, experts_used=key("expert_used_count")
    )
    shape = Shape(
        architecture=architecture, vocabulary=table.dims[1] if table is not None else 0, width=width,
        layers=tuple(Layer(index=i, attention=attention, feed_forward=feed) for i in range(layers)),
        context_trained=key("context_length") or Missing(reason="not_supported", detail="the header does not say"),
        tied_embeddings=not any(row.role == "lm_head" for row in rows), parameters=sum(row.elements for row in rows),
    )  # fmt: skip
    return shape, rows
