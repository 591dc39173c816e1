"""Gemma 3n and 4 (text): layers that reuse an earlier layer's cache, embeddings for every layer, wider heads in full layers.

Rules: transformers 5.24, models/gemma3n and models/gemma4, configuration_*.py and modeling_*.py.
"""

from brim.facts.model import Attention, FeedForward, Layer
from brim.shapes import blocks, kinds
from brim.shapes.families import decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

SANDWICH = (*decoder.NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def _sources(f: "Fields", types: tuple[str, ...]) -> "tuple[int | None, ...]":
    """For each layer the one whose cache it reads: the last of its kind before the shared ones, or None where it has its own."""
    layers = len(types)
    shared = f.maybe("num_kv_shared_layers", 0, 1 << 20) or 0
    if shared > layers:
        raise f.bad("num_kv_shared_layers", f"({shared}) is more than num_hidden_layers ({layers})")
    own = types[: layers - shared]
    found: list[int | None] = []
    for index, kind in enumerate(types):
        if index < layers - shared:
            found.append(None)
        elif kind in own:
            found.append(len(own) - 1 - own[::-1].index(kind))
        else:
            raise f.bad("num_kv_shared_layers", f"leaves no {kind} layer whose cache layer {index} could read")
    return tuple(found)


def _per_layer(f: "Fields", b: "Blueprint", layers: int) -> int:
    """The second embedding, one slice for every layer (`hidden_size_per_layer_input`), and its projection; returns the slice's width."""
    small = f.maybe("hidden_size_per_layer_input", 0) or 0
    if small:
        b.table("model.embed_tokens_per_layer", f.whole("vocab_size_per_layer_input", 1, 1 << 27), small * layers, "embedding_per_layer")
        b.linear("model.per_layer_model_projection", "other", b.width, small * layers)
        b.norm("model.per_layer_projection_norm", small)
    return small


def _slice(b: "Blueprint", p: str, small: int) -> None:
    if small:
        b.linear(p + "per_layer_input_gate", "other", b.width, small)
        b.linear(p + "per_layer_projection", "other", small, b.width)
        b.norm(p + "post_per_layer_input_norm", b.width)


def gemma3n(f: "Fields", b: "Blueprint") -> None:
    """Gemma 3n: AltUp copies of the stream, LAuReL side paths, every fifth layer full, the last layers without a cache of their own."""
    width, layers = decoder.begin(f, b)
    types, window = decoder.layer_kinds(f, layers, lambda _f, n: kinds.every(n, 5, kinds.FULL, kinds.SLIDING))
    sources, inner = _sources(f, types), f.wholes("intermediate_size", layers, 1) or (f.whole("intermediate_size"),) * layers
    copies, rank, bias = f.whole("altup_num_inputs", 1, 64), f.whole("laurel_rank"), f.flag("attention_bias")
    small = _per_layer(f, b, layers)
    for side in range(copies - 1):
        b.linear(f"model.altup_projections.{side}", "other", width, width)
        b.linear(f"model.altup_unembed_projections.{side}", "other", width, width)
    for index in range(layers):
        b.layer, p = index, f"model.layers.{index}."
        for name in SANDWICH:
            b.norm(p + name, width)
        a = blocks.attention(f, width, types[index], window).replace(shares_cache_of=sources[index])
        blocks.gqa(b, p + "self_attn.", width, a, bias=bias, o_bias=bias, qk_norm="head")
        b.vector(p + "altup.correct_output_scale", "other", width)
        b.linear(p + "altup.correction_coefs", "other", copies, copies)
        b.linear(p + "altup.prediction_coefs", "other", copies, copies * copies)
        b.linear(p + "altup.modality_router", "router", width, copies)
        b.norm(p + "altup.router_norm", width)
        b.linear(p + "laurel.linear_left", "other", width, rank)
        b.linear(p + "laurel.linear_right", "other", rank, width)
        b.norm(p + "laurel.post_laurel_norm", width)
        _slice(b, p, small)
        b.draw(Layer(index=index, attention=a, feed_forward=blocks.gated_mlp(b, p + "mlp.", width, inner[index])))
    if any(source is not None for source in sources):
        b.unusual.append("layers that read another's cache: published files still carry key and value weights for them, which no engine uses")
    decoder.end(b)


def gemma4(f: "Fields", b: "Blueprint") -> None:
    """Gemma 4: full layers with wider heads (`global_head_dim`), keys that serve as values, experts beside the plain block."""
    width, layers = decoder.begin(f, b)
    types, window = decoder.layer_kinds(f, layers, lambda _f, n: kinds.every(n, 6, kinds.FULL, kinds.SLIDING))
    if types and types[-1] != kinds.FULL:
        types = (*types[:-1], kinds.FULL)
        b.unusual.append("the last layer is full whatever layer_types says")
    sources, small = _sources(f, types), _per_layer(f, b, layers)
    plain, bias, merged = f.whole("intermediate_size"), f.flag("attention_bias"), f.flag("attention_k_eq_v")
    double, moe = f.flag("use_double_wide_mlp"), f.flag("enable_moe_block")
    for index in range(layers):
        b.layer, p = index, f"model.layers.{index}."
        for name in (*SANDWICH, *(("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2") if moe else ())):
            b.norm(p + name, width)
        b.vector(p + "layer_scalar", "other", 1, op="buffer")
        a = _gemma4_heads(f, width, types[index], window, index).replace(shares_cache_of=sources[index])
        _gemma4_attention(b, p + "self_attn.", width, a, bias=bias, merged=merged and types[index] == kinds.FULL)
        fed = blocks.gated_mlp(b, p + "mlp.", width, plain * (2 if double and sources[index] is not None else 1))
        _slice(b, p, small)
        b.draw(Layer(index=index, attention=a, feed_forward=_gemma4_experts(f, b, p, width, fed) if moe else fed))
    decoder.end(b)


def _gemma4_heads(f: "Fields", width: int, kind: str, window: int, index: int) -> Attention:
    """One layer's heads: `per_layer_config` where the file has it, else `global_head_dim` and `num_global_key_value_heads` in full layers."""
    a = blocks.attention(f, width, kind, window)
    dim, kv_heads = a.key_dim, a.kv_heads
    table = f.raw("per_layer_config")
    if table is not None:
        if not isinstance(table, dict):
            raise f.bad("per_layer_config", "must be an object")
        found: object = next((table[key] for key in (f"{index:02d}", str(index), index, f"{index:03d}") if key in table), {})
        row: dict[str, object] = found if isinstance(found, dict) else {}
        dim = f.checked("per_layer_config.head_dim", row.get("head_dim", dim), 1, 1 << 20)
        kv_heads = f.checked("per_layer_config.num_key_value_heads", row.get("num_key_value_heads", kv_heads), 1, 1 << 16)
    elif kind == kinds.FULL:
        dim = f.maybe("global_head_dim", 1) or 512
        kv_heads = (f.maybe("num_global_key_value_heads", 1, 1 << 16) if f.flag("attention_k_eq_v") else None) or kv_heads
    f.divides("num_key_value_heads", "num_attention_heads", kv_heads, a.heads)
    return a.replace(key_dim=dim, value_dim=dim, kv_heads=kv_heads)


def _gemma4_attention(b: "Blueprint", p: str, width: int, a: Attention, *, bias: bool, merged: bool) -> None:
    b.linear(p + "q_proj", "q", width, a.heads * a.key_dim, bias=bias)
    b.norm(p + "q_norm", a.key_dim)
    if a.shares_cache_of is None:
        b.linear(p + "k_proj", "k", width, a.kv_heads * a.key_dim, bias=bias)
        b.norm(p + "k_norm", a.key_dim)
        if not merged:
            b.linear(p + "v_proj", "v", width, a.kv_heads * a.value_dim, bias=bias)
    b.linear(p + "o_proj", "o", a.heads * a.value_dim, width, bias=bias)


def _gemma4_experts(f: "Fields", b: "Blueprint", p: str, width: int, fed: FeedForward) -> FeedForward:
    count, used = blocks.experts_of(f, "num_experts", "top_k_experts")
    inner = f.whole("moe_intermediate_size")
    b.linear(p + "router.proj", "router", width, count)
    b.vector(p + "router.scale", "router", width)
    b.vector(p + "router.per_expert_scale", "router", count)
    blocks.stacked(b, p + "experts.gate_up_proj", "expert_gate_up", (width, 2 * inner), count, used)
    blocks.stacked(b, p + "experts.down_proj", "expert_down", (inner, width), count, used)
    return FeedForward(kind="experts", width=inner, experts=count, experts_used=used, shared_width=fed.width)
