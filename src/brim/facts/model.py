"""What a checkpoint is: layers, heads, attention kind per layer, experts, tensor directory; who read it and from where.

Covered: what the header says. Not covered: weights (never read), the tokenizer (its size only).
Shapes of tensors are in ggml's order: `dims[0]` is the row length (ne0), as in a GGUF directory; readers of other forms reverse theirs.
"""

from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Tensor(Record):
    """One row of a tensor directory. `stored_bytes` is what the file holds for it; `elements` counts logical parameters."""

    name: str
    dims: tuple[int, ...]
    dtype: str
    offset: int
    stored_bytes: int
    elements: int
    shard: int = 0


class Attention(Record):
    """One layer's attention. Widths in elements. `window` is the sliding window or chunk in tokens, 0 where there is none.

    `kind`: `full`, `sliding`, `chunked`, `latent` (MLA) or `cross`. `shares_cache_of` is the layer whose cache this one reads, else None.
    `latent_rank` and `rope_dim` are MLA's kv_lora_rank and its decoupled rope width.
    """

    kind: str
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int = 0
    shares_cache_of: int | None = None
    latent_rank: int = 0
    query_rank: int = 0
    rope_dim: int = 0


class State(Record):
    """One layer's recurrent state, in elements a sequence. `kind`: mamba, mamba2, gated_delta_net, rwkv6, rwkv7, short_conv, kda."""

    kind: str
    conv_elements: int
    state_elements: int


class FeedForward(Record):
    """One layer's feed-forward block. `gated` means gate and up projections. For experts `width` is one expert's width."""

    kind: str
    width: int
    gated: bool = True
    experts: int = 0
    experts_used: int = 0
    shared_width: int = 0


class Layer(Record):
    """One block: any of attention, recurrent state, cross-attention and feed-forward may be absent (None)."""

    index: int
    attention: Attention | None = None
    cross: Attention | None = None
    state: State | None = None
    feed_forward: FeedForward | None = None


class Shape(Record):
    """What a model is for memory purposes. `parameters` and `active_parameters` count logical weights; a count not known is `Missing`."""

    architecture: str
    vocabulary: int
    width: int
    layers: tuple[Layer, ...]
    encoder_layers: tuple[Layer, ...] = ()
    vision: "Record | None" = None
    context_trained: "int | Missing" = Missing(reason="not_supported", detail="the header does not say")
    tied_embeddings: bool = False
    parameters: "int | Missing" = Missing(reason="not_supported", detail="not counted")
    active_parameters: "int | Missing" = Missing(reason="not_supported", detail="not counted")
    unusual: tuple[str, ...] = ()


class Checkpoint(Record):
    """A checkpoint as its header tells it.

    `form`: gguf, safetensors, config, shape, peft, mlx, onnx, torch. `metadata` holds the decoded keys: GGUF keys for GGUF, config keys
    for HF. `file_bytes` is the sum over shards. `shape` is `Missing` with the fields that are wanting where the layers are not known.
    """

    form: str
    source: str
    name: str
    architecture: str
    metadata: "Mapping[str, Any]"
    tensors: tuple[Tensor, ...]
    file_bytes: int
    shape: "Shape | Missing"
    role: str = "model"
    shards: tuple[str, ...] = ()
    quantisation: str = ""
    caveats: tuple[str, ...] = ()
