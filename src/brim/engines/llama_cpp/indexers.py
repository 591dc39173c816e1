"""Latent attention over the cells that an indexer chose: deepseek32 and glm-dsa.

Source: src/models/deepseek32.cpp, glm-dsa.cpp, src/llama-graph.cpp `build_attn_inp_k_dsa`, `build_attn` (k_dsa), ggml.c `ggml_lightning_indexer`; llama.cpp b11434.
Beside the cells of the latent keys there is a cache of the indexer's own keys; layers of glm-dsa without an indexer use the choice of the last layer that has one.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import SIGMOID, AttentionInput, Builder
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.latent import behind, latent_attention
from brim.engines.llama_cpp.tensor import T


def chosen(b: Builder, il: int, cur: T, low: T, inp: AttentionInput) -> T:
    """The indices of the cells that a layer attends to: {most, tokens, 1, streams}."""
    assert b.hp.indexer is not None
    heads, size, most = b.hp.indexer
    q = g.reshape(g.mul_mat(b.need(il, "indexer.attn_q_b.weight"), low), size, heads, b.tokens)
    q = g.rope(q, b.positions)
    k = b.norm(g.mul_mat(b.need(il, "indexer.attn_k.weight"), cur), b.layer(il, "indexer.k_norm.weight"), b.layer(il, "indexer.k_norm.bias"), il, "NORM")
    k = g.rope(g.reshape(k, size, 1, b.tokens), b.positions)
    assert inp.rot_k is not None
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
        cells = best
        assert cells is not None
        cur = latent_attention(b, il, cur, low=low, mask=lambda mask, cells=cells: narrowed(mask, cells))  # type: ignore[misc]
        cur = behind(b, il, cur, residual, ids, lead, gating)
    return b.finish(cur)
