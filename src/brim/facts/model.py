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
    `latent_rank` and `rope_dim` are MLA's kv_lora_rank and its decoupled rope width. `key_dim` and `value_dim` are always one head's expanded
    widths. `index_heads` and `index_dim` describe a sparse-attention indexer (DeepSeek v3.2), whose keys are cached beside the latent.
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
    index_heads: int = 0
    index_dim: int = 0


class State(Record):
    """One layer's recurrent state, in elements a sequence. `kind`: mamba, mamba2, gated_delta_net, rwkv4, rwkv7, short_conv, kda, lightning.

    `inner_width` is the width of the block's inner projection and `heads` its count of state heads (0 where the kind has none).
    """

    kind: str
    conv_elements: int
    state_elements: int
    inner_width: int = 0
    heads: int = 0


class FeedForward(Record):
    """One layer's feed-forward block. `kind`: `dense` or `experts`. `gated` means gate and up projections.

    For experts `width` is one expert's width and `shared_width` the summed width of the experts that every token passes.
    """

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


class Tower(Record):
    """An encoder beside the text model. `kind`: vision or audio. `tokens` is what one image (or 30 s of sound) adds to the context.

    `parameters` counts the tower and its projector. `patch` and `image` are in pixels, 0 where they do not apply.
    """

    kind: str
    width: int
    layers: tuple[Layer, ...]
    parameters: "int | Missing"
    patch: int = 0
    image: int = 0
    tokens: "int | Missing" = Missing(reason="not_supported", detail="depends on the picture")


class Quantisation(Record):
    """How a config says that its weights are packed. `method` is the config's own word; `bits` 0 and `group` 0 where it does not say.

    `skipped` names the modules that stay in full precision, as the config gives them.
    """

    method: str
    bits: int = 0
    group: int = 0
    detail: str = ""
    skipped: tuple[str, ...] = ()


class Weight(Record):
    """One tensor (or `copies` alike ones) that a config implies, by its name in the published checkpoint; logical, never packed.

    `dims` are in ggml's order like `Tensor.dims`: a linear layer's are (inputs, outputs). In `name` an expert's number is `{}` and runs from 0
    to `copies` - 1. `active` counts the elements that one token passes through. `op`: linear, transposed (GPT-2 keeps (outputs, inputs)), conv,
    embedding, norm, bias, vector, experts (one stacked tensor), buffer (saved, but not a parameter). `tower`: text, encoder, vision, audio, draft.
    `role`: embedding, position, lm_head, norm, q, k, v, qkv, o, q_a, q_b, kv_a, kv_b, gate, up, gate_up, down, router, expert_gate, expert_up,
    expert_gate_up, expert_down, shared_gate, shared_up, shared_down, state, conv, index, cross_q …, projector, other.
    """

    name: str
    dims: tuple[int, ...]
    role: str
    op: str
    layer: "int | None"
    elements: int
    active: int
    copies: int = 1
    tower: str = "text"


class Shape(Record):
    """What a model is for memory purposes. `parameters` and `active_parameters` count logical weights; a count not known is `Missing`.

    `draft_layers` counts the layers for multi-token prediction (nextn) that the file carries behind the main ones; they are not in `layers`.
    """

    architecture: str
    vocabulary: int
    width: int
    layers: tuple[Layer, ...]
    encoder_layers: tuple[Layer, ...] = ()
    encoder_width: int = 0
    vision: "Tower | None" = None
    audio: "Tower | None" = None
    context_trained: "int | Missing" = Missing(reason="not_supported", detail="the header does not say")
    tied_embeddings: bool = False
    parameters: "int | Missing" = Missing(reason="not_supported", detail="not counted")
    active_parameters: "int | Missing" = Missing(reason="not_supported", detail="not counted")
    draft_layers: int = 0
    quantisation: "Quantisation | None" = None
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
