"""EAGLE 3 drafts: one decoder layer over a token's embedding and the target's features, and a smaller vocabulary mapped onto the target's.

Source: src/models/eagle3.cpp, llama.cpp b11434. Matrices that the file lacks are the target's: they take no room here, and only their widths are read.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.decoders import rope_factors
from brim.engines.llama_cpp.dflash import scattered
from brim.engines.llama_cpp.feedforward import dense
from brim.engines.llama_cpp.tensor import WEIGHTS, T
from brim.engines.llama_cpp.weights import HOST


def eagle3(b: Builder) -> T:
    """The decoder's graph: logits of every token, whatever is asked for."""
    hp = b.hp
    table = b.weight("token_embd.weight") or g.stored("F16", (hp.width, hp.vocabulary), HOST, WEIGHTS)
    token, features = g.get_rows(table, g.given("I32", b.tokens)), g.given("F32", hp.width, b.tokens)
    b.attend_to()
    normed = b.norm(features, b.need(0, "attn_norm_2.weight"), None, -1)
    residual = normed if hp.get("norm_before_residual") else features
    cur = g.concat(b.normed(token, 0, "attn_norm"), normed, 0)
    head, heads, kv_heads = hp.value, hp.heads[0], hp.kv_heads[0]
    q, k, v = (
        g.reshape(g.mul_mat(b.need(0, f"attn_{name}.weight"), cur), head, count, b.tokens) for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
    )
    factors = rope_factors(b, 0)
    cur = b.attention(0, g.rope(q, b.positions, factors), g.rope(k, b.positions, factors), v, wo="")
    joined = g.add(g.mul_mat(b.need(0, "attn_output.weight"), cur), residual)
    cur = g.add(dense(b, b.normed(joined, 0, "ffn_norm"), 0), joined)
    cur.output = True
    cur = b.norm(cur, b.weight("output_norm.weight"), None, -1)
    output = b.weight("output.weight") or g.stored("F16", (hp.width, hp.vocabulary), b.placement.output, WEIGHTS)
    cur = scattered(b, g.mul_mat(output, cur))
    cur.output = True
    b.expand(cur)
    return cur
