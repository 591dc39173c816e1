"""Latent attention over the cells that an indexer chose: deepseek32, glm-dsa, dots3note and hy_v4.

Source: src/models/deepseek32.cpp, glm-dsa.cpp, dots3note.cpp, hy-v4.cpp, src/llama-graph.cpp `build_attn_inp_k_dsa`, `build_attn` (k_dsa), ggml.c `ggml_lightning_indexer`; llama.cpp b11434.
Beside the cells of the latent keys there is a cache of the indexer's own keys; layers of glm-dsa without an indexer use the choice of the last layer that has one.
"""

from functools import partial

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import SIGMOID, AttentionInput, Builder
from brim.engines.llama_cpp.context import GLM_INDEXER
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense, experts, shared
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.kimi import headed
from brim.engines.llama_cpp.latent import behind, deepseek2, latent_attention
from brim.engines.llama_cpp.tensor import T


def chosen(b: Builder, il: int, cur: T, low: T, inp: AttentionInput) -> T:
    """The indices of the cells that a layer attends to: {most, tokens, 1, streams}."""
    assert b.hp.indexer is not None
    heads, size, most = b.hp.indexer
    q = g.reshape(g.mul_mat(b.need(il, "indexer.attn_q_b.weight"), low), size, heads, b.tokens)
    q = g.rope(q, b.positions)
    k = b.norm(g.mul_mat(b.need(il, "indexer.attn_k.weight"), cur), b.layer(il, "indexer.k_norm.weight"), b.layer(il, "indexer.k_norm.bias"), il, "NORM")
    k = g.rope(g.reshape(k, size, 1, b.tokens), b.positions)
    if inp.rot_k is not None:
        q, k = g.mul_mat(inp.rot_k, q), g.mul_mat(inp.rot_k, k)
    b.expand(b.cache_keys(k, inp.k_ids, il, inp.cache))
    weights = g.mul_mat(b.need(il, "indexer.proj.weight"), cur)
    cells, streams = inp.cache.cells, inp.cache.streams
    k = b.cached_keys(il, inp.cache, joined=True)
    nb, each = g.strides(q), b.tokens // streams
    q = g.view(q, (size, heads, each, streams), (nb[1], nb[2], nb[3] // streams))
    nb = g.strides(weights)
    weights = g.scale(g.view(weights, (heads, each, 1, streams), (nb[1], nb[2] // streams, nb[3] // streams)))
    score = scores(b, il, q, k, weights, inp.mask)
    return g.cont(g.best(score, min(cells, most)))


def scores(b: Builder, il: int, q: T, k: T, weights: T, mask: T) -> T:
    """One score for each token and cell, by the fused operation or by its parts."""
    if b.context.fused_indexer:
        made = T("LIGHTNING_INDEXER", "F32", (k.ne[2], q.ne[2], 1, q.ne[3]), (q, k, weights, mask))
        made.home = b.placement.layers[il]
        return made
    product = g.mul_mat(g.permute(k, 0, 2, 1, 3), g.permute(q, 0, 2, 1, 3))
    score = g.mul(g.unary(g.cont(g.permute(product, 2, 1, 0, 3)), "relu"), weights)
    return g.add(g.cont(g.permute(g.sum_rows(score), 2, 1, 0, 3)), mask)


def narrowed(mask: T, best: T, zero: str = "F32") -> T:
    """The mask of a cache with all but the chosen cells taken out (`build_attn` of `llm_graph_input_attn_k_dsa`)."""
    every = g.same("FILL", mask)
    nb, ne = g.strides(every), every.ne
    every = g.view(every, (1, ne[0], ne[1], ne[3]), nb[:3])
    steps = g.strides(best)
    ids = g.view(best, (best.ne[0], best.ne[1], best.ne[3], 1), (steps[1], steps[2], best.ne[3] * steps[3]))
    zeros = g.same("FILL", g.leaf(zero, 1, ids.ne[0], ids.ne[1], ids.ne[2]))
    kept = g.set_rows(every, zeros, ids)
    nb = g.strides(kept)
    return g.add(g.view(kept, (kept.ne[1], kept.ne[2], 1, kept.ne[3]), (nb[2], nb[3], nb[3])), mask)


def sparse(b: Builder) -> T:
    """The whole graph of deepseek32 and glm-dsa."""
    if b.hp.arch == "glm-dsa" and b.context.version < GLM_INDEXER:
        return deepseek2(b)
    hp = b.hp
    cur = embed(b)
    b.attend_to(keys_only=True)
    inp = b.attention_input(b.memory.named("indexer"), keys_only=True, half=b.context.fused_indexer)
    ids = b.output_ids()
    lead = int(hp.get("leading_dense_block_count", 0))
    gating = int(hp.get("expert_gating_func", 0)) or SIGMOID
    best: T | None = None
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        low = b.normed(g.mul_mat(b.need(il, "attn_q_a.weight"), cur), il, "attn_q_a_norm")
        if hp.indexes[il]:
            best = chosen(b, il, cur, low, inp)
        assert best is not None
        cur = latent_attention(b, il, cur, low=low, mask=partial(narrowed, best=best))
        cur = behind(b, il, cur, residual, ids, lead, gating)
    return b.finish(cur)


def dots3note(b: Builder) -> T:
    """Sliding layers with latent keys of their own widths, full layers over chosen cells; each head gated by one factor."""
    hp = b.hp
    cur = embed(b)
    b.attend_to(keys_only=True)
    inp = b.attention_input(b.memory.named("indexer"), keys_only=True, half=b.context.fused_indexer)
    ids = b.output_ids()
    lead, gating = int(hp.get("leading_dense_block_count", 0)), int(hp.get("expert_gating_func", 0))
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        low = b.normed(g.mul_mat(b.need(il, "attn_q_a.weight"), cur), il, "attn_q_a_norm")
        best = None if hp.windowed[il] else chosen(b, il, cur, low, inp)
        cur = headed(b, il, cur, low=low, mask=None if best is None else partial(narrowed, best=best), packed=False)
        cur = behind(b, il, cur, residual, ids, lead, gating)
    return b.finish(cur)


def _reduced(x: T, weights: T) -> T:
    """The streams weighed and summed, by way of f32 copies (`hy_v4_hc_reduce`)."""
    whole = g.cast(x, "F32")
    steps, wide = g.strides(whole), g.strides(weights)[1]
    total: T | None = None
    for stream in range(x.ne[1]):
        part = g.mul(g.view(whole, (x.ne[0], x.ne[2]), (steps[2],), stream * steps[1]), g.view(weights, (1, x.ne[2]), (wide,), 4 * stream))
        total = part if total is None else g.add(total, part)
    assert total is not None
    return g.cast(total, x.type)


def _entered(b: Builder, il: int, x: T, name: str) -> "tuple[T, T]":
    """What a block reads of the streams, and the weights by which its result goes back."""
    count, tokens = x.ne[1], x.ne[2]
    mixes = g.mul_mat(b.need(il, f"{name}_fn.weight"), g.same("RMS_NORM", g.reshape(x, count * x.ne[0], tokens)))
    scale, base, row = b.need(il, f"{name}_scale.weight"), b.need(il, f"{name}_base.weight"), g.strides(mixes)[1]

    def affine(at: int) -> T:
        part = g.mul(g.view(mixes, (count, tokens), (row,), 4 * count * at), g.view(scale, (1,), offset=4 * at))
        return g.scale(g.unary(g.add(part, g.view(base, (count,), offset=4 * count * at)), "sigmoid"))

    before, after = affine(0), g.scale(affine(1))
    return _reduced(x, before), after


def _returned(cur: T, residual: T, after: T) -> T:
    """A block's result added to each stream by its weight."""
    x, weights, whole = g.cast(cur, "F32"), g.cast(after, "F32"), g.cast(residual, "F32")
    steps, wide, width, tokens = g.strides(whole), g.strides(weights)[1], cur.ne[0], cur.ne[1]
    out: T | None = None
    for stream in range(residual.ne[1]):
        own = g.view(whole, (width, tokens), (steps[2],), stream * steps[1])
        part = g.add(own, g.mul(x, g.view(weights, (1, tokens), (wide,), 4 * stream)))
        part = g.reshape(part, width, 1, tokens)
        out = part if out is None else g.concat(out, part, 1)
    assert out is not None
    return g.cast(out, residual.type)


def hy_v4(b: Builder) -> T:
    """Residual streams, latent attention with sinks and a gate, over chosen cells where the model has indexers."""
    hp = b.hp
    count = int(hp.get("hyper_connection.count", 0))
    cur = embed(b)
    b.attend_to(keys_only=True)
    inp = b.attention_input(b.memory.named("indexer"), keys_only=True, half=b.context.fused_indexer) if hp.indexer is not None else None
    ids = b.output_ids()
    lead = int(hp.get("leading_dense_block_count", 0))
    best: T | None = None
    streams = g.repeat(g.reshape(cur, hp.width, 1, b.tokens), hp.width, count, b.tokens, 1)
    for il in b.walk:
        cur, after = _entered(b, il, streams, "hc_attn")
        cur = b.normed(cur, il, "attn_norm")
        low = b.normed(g.mul_mat(b.need(il, "attn_q_a.weight"), cur), il, "attn_q_a_norm")
        if inp is not None and hp.indexes[il]:
            best = chosen(b, il, cur, low, inp)
        mask = None if best is None else partial(narrowed, best=best)
        out = latent_attention(b, il, cur, low=low, mask=mask, wo="", sinks=b.layer(il, "attn_sinks.weight"))
        out = g.mul(out, g.unary(g.mul_mat(b.need(il, "attn_gate.weight"), cur), "sigmoid"))
        streams = _returned(b.mm(b.need(il, "attn_output.weight"), out), streams, after)
        cur, after = _entered(b, il, streams, "hc_ffn")
        cur = b.normed(cur, il, "ffn_norm")
        if il < lead:
            cur = dense(b, cur, il)
        else:
            gating, normalise = int(hp.get("expert_gating_func", 0)), bool(hp.get("expert_weights_norm", False))
            routed, extra = experts(b, cur, il, gating=gating, normalise=normalise), shared(b, cur, il)
            cur = routed if extra is None else g.add(routed, extra)
        streams = _returned(cur, streams, after)
    flat = b.pick(g.reshape(streams, hp.width * count, b.tokens), ids)
    streams = g.reshape(flat, hp.width, count, b.outputs)
    parts = [b.weight(f"output_hc_{name}.weight") for name in ("fn", "scale", "base")]
    if parts[0] is None or parts[1] is None or parts[2] is None:
        raise Wanting("the file has no output_hc_fn.weight, output_hc_scale.weight or output_hc_base.weight")
    mixes = g.mul_mat(parts[0], g.same("RMS_NORM", g.reshape(streams, count * hp.width, b.outputs)))
    weights = g.scale(g.unary(g.add(g.mul(mixes, parts[1]), parts[2]), "sigmoid"))
    return b.finish(_reduced(streams, weights))
