"""Decoders with latent attention (MLA), absorbed or expanded by the file's tensors: deepseek2 and its relatives, MiniCPM 3 and PLM.

Source: src/models/deepseek2.cpp, minicpm3.cpp, plm.cpp, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import SOFTMAX, Builder
from brim.engines.llama_cpp.context import ROPE_PART
from brim.engines.llama_cpp.decoders import rope_factors
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense, experts, shared
from brim.engines.llama_cpp.tensor import T

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def _queries(b: Builder, il: int, cur: T, head: int, low: "T | None") -> T:
    """Full-rank or low-rank queries as {head width, heads, tokens}; `low` are the low-rank ones where they are there already."""
    if low is not None:
        q = g.mul_mat(b.need(il, "attn_q_b.weight"), low)
    elif b.layer(il, "attn_q.weight") is not None:
        q = g.mul_mat(b.need(il, "attn_q.weight"), cur)
    else:
        q = b.normed(g.mul_mat(b.need(il, "attn_q_a.weight"), cur), il, "attn_q_a_norm")
        q = g.mul_mat(b.need(il, "attn_q_b.weight"), q)
    return g.reshape(q, head, b.hp.heads[il], b.tokens)


def latent_attention(
    b: Builder,
    il: int,
    cur: T,
    temperature: "T | None" = None,
    *,
    low: "T | None" = None,
    mask: "Callable[[T], T] | None" = None,
    wo: str = "attn_output",
    factors: "T | None" = None,
    sinks: "T | None" = None,
) -> T:
    """One attention block over latent keys, absorbed where the file has the split matrices. Layers of dots3note that slide have widths of their own."""
    hp, tokens = b.hp, b.tokens
    heads = hp.heads[il]
    head_k, head_v = hp.mla or (hp.key, hp.value)
    rope_dim, rank = hp.rot, int(hp.get("attention.kv_lora_rank", 0))
    if hp.windowed[il] and hp.get("attention.kv_lora_rank_swa"):
        head_k, rank = int(hp.get("attention.key_length_mla_swa", 0)), int(hp.get("attention.kv_lora_rank_swa"))
    nope = head_k - rope_dim
    q = _queries(b, il, cur, head_k, low)
    joint = g.mul_mat(b.need(il, "attn_kv_a_mqa.weight"), cur)
    row = 4 * (rank + rope_dim)
    latent = g.view(joint, (rank, tokens), (row,))
    k_pe = g.view(joint, (rope_dim, 1, tokens), (row, row), 4 * rank)
    if b.layer(il, "attn_k_norm.weight") is not None:
        k_pe = b.normed(k_pe, il, "attn_k_norm")
    k_pe = g.rope(k_pe, b.positions, factors)
    latent = b.normed(latent, il, "attn_kv_a_norm")
    if hp.mla:
        nb = g.strides(q)
        q_nope = g.view(q, (nope, heads, tokens), nb[1:3])
        q_pe = g.rope(g.view(q, (rope_dim, heads, tokens), nb[1:3], 4 * nope), b.positions)
        absorbed = g.permute(g.mul_mat(b.need(il, "attn_k_b.weight"), g.permute(q_nope, 0, 2, 1, 3)), 0, 2, 1, 3)
        queries = g.concat(absorbed, q_pe, 0)
        latent = g.reshape(latent, rank, 1, tokens)
        keys = g.concat(latent, k_pe, 0)
        if temperature is not None:
            queries = g.mul(queries, temperature)
        return b.attention(il, queries, keys, latent, v_mla=b.need(il, "attn_v_b.weight"), values=rank, mask=mask, wo=wo, sinks=sinks)
    kv = g.mul_mat(b.need(il, "attn_kv_b.weight"), latent)
    each = 4 * (nope + head_v)
    k_nope = g.view(kv, (nope, heads, tokens), (each, each * heads))
    values = g.cont(g.view(kv, (head_v, heads, tokens), (each, each * heads), 4 * nope))
    queries = g.rope(q, b.positions, factors) if b.context.version >= ROPE_PART else _joined(b, q, nope, factors)
    keys = g.concat(k_nope, g.repeat(k_pe, rope_dim, heads, tokens, 1), 0)
    if temperature is not None:
        queries = g.mul(queries, temperature)
    return b.attention(il, queries, keys, values)


def _joined(b: Builder, q: T, nope: int, factors: "T | None") -> T:
    """Queries put together from their still and their turned part (before `ROPE_PART`)."""
    nb, (width, heads) = g.strides(q), q.ne[:2]
    turned = g.rope(g.view(q, (width - nope, heads, b.tokens), nb[1:3], 4 * nope), b.positions, factors)
    return g.concat(g.view(q, (nope, heads, b.tokens), nb[1:3]), turned, 0)


def deepseek2(b: Builder) -> T:
    """DeepSeek V2, V3 and relatives: latent attention, leading dense layers, experts with a shared expert."""
    hp = b.hp
    cur = embed(b)
    temperature = g.given("F32", 1, 1, b.tokens) if hp.get("attention.temperature_scale") else None
    b.attend_to(keys_only=bool(hp.mla))
    ids = b.output_ids()
    lead = int(hp.get("leading_dense_block_count", 0))
    chosen_by = gating(b)
    for il in b.walk:
        residual = cur
        cur = latent_attention(b, il, b.normed(cur, il, "attn_norm"), temperature)
        cur = behind(b, il, cur, residual, ids, lead, chosen_by)
    return b.finish(cur)


def behind(b: Builder, il: int, cur: T, residual: T, ids: "T | None", lead: int, scored_by: int, *, normalise: "bool | None" = None) -> T:
    """What follows attention in a layer: the residual, a dense block in the leading layers, experts with a shared expert in the others. Without `ids` all rows stay."""
    if il == b.last and ids is not None:
        cur, residual = b.pick(cur, ids), b.pick(residual, ids)
    joined = g.add(cur, residual)
    cur = b.normed(joined, il, "ffn_norm")
    if il < lead:
        cur = dense(b, cur, il)
    else:
        normed = cur
        asked = bool(b.hp.get("expert_weights_norm", False)) if normalise is None else normalise
        cur = experts(b, normed, il, gating=scored_by, normalise=asked)
        extra = shared(b, normed, il)
        cur = cur if extra is None else g.add(cur, extra)
    return g.add(cur, joined)


def gating(b: Builder) -> int:
    """How experts are scored. Files from before the key: softmax, but sigmoid for the GLM 4.7 lite shape."""
    stated = int(b.hp.get("expert_gating_func", 0))
    if stated:
        return stated
    return 2 if b.hp.layers in (47, 48) and b.hp.vocabulary == 154880 else SOFTMAX


def minicpm3(b: Builder) -> T:
    """MiniCPM 3 and PLM: latent attention kept expanded in the cache, a dense block in every layer; the former scales both branches and what the logits are made of."""
    scaled = b.hp.arch == "minicpm3"
    cur = embed(b)
    if scaled:
        cur = g.scale(cur)
    b.attend_to()
    ids = b.output_ids()
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        cur = latent_attention(b, il, cur, factors=rope_factors(b, il) if scaled else None)
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        joined = g.add(g.scale(cur) if scaled else cur, residual)
        cur = dense(b, b.normed(joined, il, "ffn_norm"), il, "silu" if scaled else "relu_sqr")
        cur = g.add(g.scale(cur) if scaled else cur, joined)
    cur = b.hidden = b.norm(cur, b.weight("output_norm.weight"), None, -1)
    cur.output = True
    cur = b.logits(g.scale(cur) if scaled else cur)
    cur.output = True
    b.expand(cur)
    return cur
