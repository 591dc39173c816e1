"""The blocks that most families share: grouped attention, latent attention, feed-forward and experts; each writes its weights and returns its facts.

Names are those of the published checkpoints as transformers 5.24 writes them (its own reverse conversion is the oracle, docs/evidence/shapes.md).
"""

from brim.facts.model import Attention, FeedForward
from brim.shapes.fields import MAX_EXPERTS, MAX_HEADS
from brim.shapes.kinds import attention_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


def heads_of(f: "Fields", width: int, *, strict: bool = True) -> tuple[int, int, int]:
    """Query heads, key/value heads and head width; heads that do not divide are faults of the file (GLM-4.5 rounds down: not `strict`)."""
    heads = f.whole("num_attention_heads", 1, MAX_HEADS)
    kv_heads = f.maybe("num_key_value_heads", 1, MAX_HEADS) or heads
    f.divides("num_key_value_heads", "num_attention_heads", kv_heads, heads)
    head_dim = f.maybe("head_dim", 1)
    if head_dim is None:
        if strict or heads > width:
            f.divides("num_attention_heads", "hidden_size", heads, width)
        head_dim = width // heads if heads else 0
    return heads, kv_heads, head_dim


def attention(f: "Fields", width: int, kind: str = "full_attention", window: int = 0, *, strict: bool = True) -> Attention:
    """Grouped attention as `num_attention_heads`, `num_key_value_heads` and `head_dim` give it."""
    heads, kv_heads, head_dim = heads_of(f, width, strict=strict)
    word, window = attention_kind(kind, window)
    return Attention(kind=word, heads=heads, kv_heads=kv_heads, key_dim=head_dim, value_dim=head_dim, window=window)


def gqa(
    b: "Blueprint",
    p: str,
    width: int,
    a: Attention,
    *,
    bias: bool = False,
    o_bias: bool = False,
    names: tuple[str, str, str, str] = QKVO,
    qk_norm: str = "",
    norm: str = "rms",
    norm_names: tuple[str, str] = ("q_norm", "k_norm"),
    gated: bool = False,
) -> Attention:
    """Four projections under `p`. `qk_norm`: head (one head wide), width (all heads wide), '' for none. `gated` doubles q (Qwen3-Next)."""
    q, k, v, o = names
    queries, keys, values = a.heads * a.key_dim, a.kv_heads * a.key_dim, a.kv_heads * a.value_dim
    b.linear(p + q, "q", width, queries * (2 if gated else 1), bias=bias)
    own = a.shares_cache_of is None
    if own:
        b.linear(p + k, "k", width, keys, bias=bias)
        b.linear(p + v, "v", width, values, bias=bias)
    b.linear(p + o, "o", a.heads * a.value_dim, width, bias=o_bias)
    if qk_norm:
        b.norm(p + norm_names[0], a.key_dim if qk_norm == "head" else queries, norm)
        if own:
            b.norm(p + norm_names[1], a.key_dim if qk_norm == "head" else keys, norm)
    return a


def fused_qkv(b: "Blueprint", p: str, width: int, a: Attention, *, qkv: str, o: str, bias: bool = False, o_bias: bool = False) -> Attention:
    """One matrix for query, key and value, and one for the output."""
    b.linear(p + qkv, "qkv", width, a.heads * a.key_dim + a.kv_heads * (a.key_dim + a.value_dim), bias=bias)
    b.linear(p + o, "o", a.heads * a.value_dim, width, bias=o_bias)
    return a


def latent_dims(f: "Fields", value_dim: int = 0) -> Attention:
    """DeepSeek's latent attention from `kv_lora_rank`, `q_lora_rank`, `qk_nope_head_dim`, `qk_rope_head_dim` and `v_head_dim`."""
    heads = f.whole("num_attention_heads", 1, MAX_HEADS)
    rope = f.whole("qk_rope_head_dim", 1)
    return Attention(
        kind="latent",
        heads=heads,
        kv_heads=heads,
        key_dim=f.whole("qk_nope_head_dim", 1) + rope,
        value_dim=f.maybe("v_head_dim", 1) or value_dim or f.whole("v_head_dim", 1),
        latent_rank=f.whole("kv_lora_rank", 1),
        query_rank=f.maybe("q_lora_rank", 0) or 0,
        rope_dim=rope,
    )


def mla(b: "Blueprint", p: str, width: int, a: Attention, *, bias: bool = False) -> Attention:
    """Latent attention as DeepSeek v2 and v3 write it: compressed queries (where there is a query rank), compressed keys and values."""
    if a.query_rank:
        b.linear(p + "q_a_proj", "q_a", width, a.query_rank, bias=bias)
        b.norm(p + "q_a_layernorm", a.query_rank)
        b.linear(p + "q_b_proj", "q_b", a.query_rank, a.heads * a.key_dim)
    else:
        b.linear(p + "q_proj", "q", width, a.heads * a.key_dim)
    b.linear(p + "kv_a_proj_with_mqa", "kv_a", width, a.latent_rank + a.rope_dim, bias=bias)
    b.norm(p + "kv_a_layernorm", a.latent_rank)
    b.linear(p + "kv_b_proj", "kv_b", a.latent_rank, a.heads * (a.key_dim - a.rope_dim + a.value_dim))
    b.linear(p + "o_proj", "o", a.heads * a.value_dim, width, bias=bias)
    return a


def gated_mlp(b: "Blueprint", p: str, width: int, inner: int, *, bias: bool = False, names: tuple[str, str, str] = MLP, role: str = "") -> FeedForward:
    """Gate, up and down. `role` is put before each role (`shared_`)."""
    b.linear(p + names[0], role + "gate", width, inner, bias=bias)
    b.linear(p + names[1], role + "up", width, inner, bias=bias)
    b.linear(p + names[2], role + "down", inner, width, bias=bias)
    return FeedForward(kind="dense", width=inner)


def plain_mlp(b: "Blueprint", p: str, width: int, inner: int, *, bias: bool = True, names: tuple[str, str] = ("fc1", "fc2"), role: str = "") -> FeedForward:
    """Up and down, no gate."""
    b.linear(p + names[0], role + "up", width, inner, bias=bias)
    b.linear(p + names[1], role + "down", inner, width, bias=bias)
    return FeedForward(kind="dense", width=inner, gated=False)


def fused_mlp(b: "Blueprint", p: str, width: int, inner: int, *, names: tuple[str, str] = ("gate_up_proj", "down_proj"), bias: bool = False) -> FeedForward:
    """Gate and up in one matrix, and down."""
    b.linear(p + names[0], "gate_up", width, 2 * inner, bias=bias)
    b.linear(p + names[1], "down", inner, width, bias=bias)
    return FeedForward(kind="dense", width=inner)


def experts_of(f: "Fields", total: str, used: str, *, optional: bool = False) -> tuple[int, int]:
    """How many experts there are and how many a token uses; more used than there are is a fault.

    A family of experts whose file names none is not silently dense: the field is wanting, unless none is a choice (`optional`).
    """
    count = (f.maybe(total, 0, MAX_EXPERTS) or 0) if optional else f.whole(total, 1, MAX_EXPERTS)
    active = f.whole(used, 1, MAX_EXPERTS) if count else 0
    if active > count:
        raise f.bad(used, f"({active}) is more than {total} ({count})")
    return count, active


def experts(
    b: "Blueprint",
    p: str,
    width: int,
    inner: int,
    count: int,
    used: int,
    *,
    at: str = "experts.{}.",
    names: tuple[str, str, str] = MLP,
    router: str = "gate",
    router_bias: str = "",
    gated: bool = True,
) -> FeedForward:
    """A router and `count` separate experts, of which a token passes `used`. `router_bias` names a saved correction that is no parameter."""
    b.linear(p + router, "router", width, count)
    if router_bias:
        b.add(p + router_bias, (count,), "router", "buffer")
    where = p + at
    if gated:
        b.linear(where + names[0], "expert_gate", width, inner, copies=count, used=used)
    b.linear(where + names[1], "expert_up", width, inner, copies=count, used=used)
    b.linear(where + names[2], "expert_down", inner, width, copies=count, used=used)
    return FeedForward(kind="experts", width=inner, gated=gated, experts=count, experts_used=used)


def stacked(b: "Blueprint", name: str, role: str, dims: tuple[int, ...], count: int, used: int) -> None:
    """The experts of a layer in one tensor called exactly `name`; `dims` is one expert's share, a token passes `used` of `count`."""
    each = 1
    for size in dims:
        each *= size
    b.add(name, (*dims, count), role, "experts")
    b.weights[-1] = b.weights[-1].replace(active=each * used)


def stacked_experts(
    b: "Blueprint", p: str, width: int, inner: int, count: int, used: int, *, at: str = "experts.", router: str = "gate", router_bias: str = ""
) -> FeedForward:
    """A router and all experts of a layer in two tensors, as transformers 5 holds them: gate and up together, inputs innermost."""
    b.linear(p + router, "router", width, count)
    if router_bias:
        b.add(p + router_bias, (count,), "router", "buffer")
    stacked(b, p + at + "gate_up_proj", "expert_gate_up", (width, 2 * inner), count, used)
    stacked(b, p + at + "down_proj", "expert_down", (inner, width), count, used)
    return FeedForward(kind="experts", width=inner, experts=count, experts_used=used)


def sparse_layers(f: "Fields", layers: int, step: str = "decoder_sparse_step") -> tuple[bool, ...]:
    """Qwen's rule: experts in each `decoder_sparse_step`-th layer that is not among `mlp_only_layers`."""
    period, dense = f.maybe(step, 1, 1 << 16) or 1, f.indices("mlp_only_layers", layers)
    count = f.maybe("num_experts", 0, 1 << 16) or 0
    return tuple(bool(count) and index not in dense and (index + 1) % period == 0 for index in range(layers))


def qwen_feed(f: "Fields", b: "Blueprint", width: int, layers: int, *, shared: bool) -> "Callable[[str, int], FeedForward]":
    """Qwen's feed-forward: experts in sparse layers, beside them (where `shared`) one gated shared expert; plain blocks in the others."""
    sparse = sparse_layers(f, layers)
    count, used = experts_of(f, "num_experts", "num_experts_per_tok", optional=not any(sparse))
    inner = f.whole("moe_intermediate_size") if any(sparse) else 0
    both = f.whole("shared_expert_intermediate_size", 0) if shared and any(sparse) else 0
    plain = f.whole("intermediate_size") if not all(sparse) else 0

    def feed(p: str, index: int) -> FeedForward:
        if not sparse[index]:
            return gated_mlp(b, p + "mlp.", width, plain)
        fed = experts(b, p + "mlp.", width, inner, count, used)
        if not shared:
            return fed
        gated_mlp(b, p + "mlp.shared_expert.", width, both, role="shared_")
        b.linear(p + "mlp.shared_expert_gate", "router", width, 1)
        return fed.replace(shared_width=both)

    return feed


def granite_feed(b: "Blueprint", p: str, width: int, inner: int, shared: int, count: int, used: int) -> FeedForward:
    """Granite's feed-forward: stacked experts where there are any, and a shared block where it has a width."""
    fed = FeedForward(kind="dense", width=shared)
    if count:
        at = p + "block_sparse_moe."
        b.linear(at + "router.layer", "router", width, count)
        stacked(b, at + "input_linear.weight", "expert_gate_up", (width, 2 * inner), count, used)
        stacked(b, at + "output_linear.weight", "expert_down", (inner, width), count, used)
        fed = FeedForward(kind="experts", width=inner, experts=count, experts_used=used, shared_width=shared)
    if shared:
        b.linear(p + "shared_mlp.input_linear", "shared_gate_up" if count else "gate_up", width, 2 * shared)
        b.linear(p + "shared_mlp.output_linear", "shared_down" if count else "down", shared, width)
    return fed
