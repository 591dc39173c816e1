"""DFlash and DSpark drafts: a few decoder layers over a block of tokens, keys and values of the target's features in the cache, and DSpark's heads behind the logits.

Source: src/models/dflash.cpp, llama.cpp b11434. Not modelled: convolutions with a selector (DFlash 2) and stages of DeepSeek V4.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.feedforward import dense
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.tensor import WEIGHTS, T
from brim.engines.llama_cpp.weights import HOST


def dflash(b: Builder) -> T:
    """The decoder's graph of tokens; every token has a row of logits."""
    hp = b.hp
    if b.weight("selector_hidden.weight") is not None:
        raise Wanting("DFlash 2 drafts (convolutions and a selector) are not modelled yet")
    table = b.weight("token_embd.weight") or g.stored("F16", (hp.width, hp.vocabulary), HOST, WEIGHTS)
    b.attend_to()
    tokens = g.given("I32", b.tokens)
    cur = g.get_rows(table, tokens)
    if hp.get("embedding_scale"):
        cur = g.scale(cur)
    act = "gelu" if "gelu" in str(hp.get("hidden_activation", "")) else "silu"
    for il in b.walk:
        cur = _layer(b, il, cur, act)
    cur = b.norm(cur, b.weight("output_norm.weight"), None, -1)
    b.hidden = cur
    cur.output = True
    output = (
        b.weight("output.weight")
        or b.weight("token_embd.weight", b.placement.output)
        or g.stored("F16", (hp.width, hp.vocabulary), b.placement.output, WEIGHTS)
    )
    logits = scattered(b, b.mm(output, cur, b.weight("output.scale")))
    b.expand(logits)
    logits = _markov(b, logits, tokens)
    logits.output = True
    b.expand(logits)
    return logits


def scattered(b: Builder, cur: T) -> T:
    """Rows over the draft's vocabulary set into rows over the target's, where the file maps one onto the other."""
    mapped = b.weight("d2t")
    if mapped is None:
        return cur
    few, rows = cur.ne[0], cur.ne[1]
    every = g.same("FILL", g.leaf("F32", 1, b.hp.vocabulary, rows))
    cur = g.set_rows(every, g.reshape(cur, 1, few, rows), g.reshape(mapped, few, 1, 1))
    return g.reshape(cur, b.hp.vocabulary, rows)


def _layer(b: Builder, il: int, before: T, act: str) -> T:
    hp = b.hp
    cur = b.normed(before, il, "attn_norm")
    q, k = (b.project(cur, il, name) for name in ("attn_q", "attn_k"))
    shared = b.layer(il, "attn_v.weight") is None
    v = k if shared else b.project(cur, il, "attn_v")
    head, heads, kv_heads = hp.value, hp.heads[il], hp.kv_heads[il]
    q, k, v = g.reshape(q, head, heads, b.tokens), g.reshape(k, head, kv_heads, b.tokens), g.reshape(v, head, kv_heads, b.tokens)
    q, k = b.normed(q, il, "attn_q_norm"), b.normed(k, il, "attn_k_norm")
    if shared:
        v = g.same("RMS_NORM", v)
    factors = None if any(hp.get("rope.dimension_sections") or ()) else b.weight("rope_freqs.weight", b.placement.layers[0])
    q, k = g.rope(q, b.positions, factors), g.rope(k, b.positions, factors)
    cur = b.attention(il, q, k, v, sinks=b.layer(il, "attn_sinks.weight"))
    if hp.get("attention.value_scale"):
        cur = g.scale(cur)
    if b.layer(il, "post_attention_norm.weight") is not None:
        cur = b.normed(cur, il, "post_attention_norm")
    joined = g.add(cur, before)
    cur = dense(b, b.normed(joined, il, "ffn_norm"), il, act)
    if b.layer(il, "post_ffw_norm.weight") is not None:
        cur = b.normed(cur, il, "post_ffw_norm")
    cur = g.add(cur, joined)
    scale = b.layer(il, "layer_output_scale.weight")
    return cur if scale is None else g.mul(cur, scale)


def _markov(b: Builder, base: T, tokens: T) -> T:
    """DSpark's heads (`build_dspark_markov_head`): each position's logits shifted by the token before it, and a confidence; blocks longer than trained for pass through."""
    table = b.weight("markov_w1.weight")
    if table is None:
        return base
    wide, blocks = base.ne[0], b.sequences
    long = b.tokens // blocks
    if long > b.hp.need("block_size"):
        return base
    judge, bias_of = b.weight("conf_proj.weight"), b.weight("conf_proj.bias")
    w2, w2_scale = b.weight("markov_w2.weight"), b.weight("markov_w2.scale")
    assert w2 is not None
    assert b.hidden is not None
    row = 4 * wide
    prev = g.cont(g.view(tokens, (1, blocks), (4 * long,)), blocks)
    rows: T | None = None
    sure: T | None = None
    first = int(not b.hp.get("sample_from_anchor", True))
    if first:
        rows = g.cont(g.view(base, (wide, blocks), (long * row,)))
        if judge is not None:
            sure = g.unary(g.cont(g.view(base, (1, blocks), (long * row,))), "sigmoid")
    for at in range(first, long):
        came = g.get_rows(table, prev)
        shift = scattered(b, b.mm(w2, came, w2_scale))
        col = g.add(g.view(base, (wide, blocks), (long * row,), at * row), shift)
        rows = col if rows is None else g.concat(rows, col, 1)
        if judge is not None:
            width = b.hidden.ne[0]
            seen = g.view(b.hidden, (width, blocks), (4 * width * long,), 4 * width * at)
            found = g.mul_mat(judge, g.concat(g.cont(seen), came, 0))
            found = g.unary(found if bias_of is None else g.add(found, bias_of), "sigmoid")
            sure = found if sure is None else g.concat(sure, found, 1)
        if at + 1 < long:
            prev = T("ARGMAX", "I32", (blocks, 1, 1, 1), (col,))
    assert rows is not None
    out = g.reshape(g.cont(g.permute(g.reshape(rows, wide, blocks, long), 0, 2, 1, 3)), wide, b.tokens)
    if sure is not None:
        sure = g.reshape(g.cont(g.permute(g.reshape(sure, 1, blocks, long), 0, 2, 1, 3)), 1, b.tokens)
        sure = g.repeat(sure, b.hidden.ne[0], b.tokens)
        sure.output = True
        b.expand(sure)
    return out
