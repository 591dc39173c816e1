"""graniteswitch: a model with its adapters built in; a head of its own, behind the last layer, reads which one each token takes.

Source: src/models/granite-switch.cpp, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.decoders import rope_factors
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.tensor import T


def graniteswitch(b: Builder) -> T:
    """The graph: the router's head first, then layers whose every matrix has a chosen pair beside it."""
    hp = b.hp
    table = b.weight("token_embd.weight")
    if table is None:
        raise Wanting("the file has no token_embd.weight")
    cur = g.get_rows(table, g.given("I32", b.tokens))
    if hp.get("embedding_scale"):
        cur = g.scale(cur)
    b.attend_to()
    query, key, value = (g.pad(g.reshape(g.given("F32", b.tokens), 1, 1, b.tokens), hp.value - 1) for _ in range(3))
    found = b.attention(hp.layers, query, key, value, wo="")
    slot = g.cont(g.view(found, (1, b.tokens), g.strides(found)[1:2]))
    chosen = g.cast(g.unary(g.same("CLAMP", g.reshape(slot, b.tokens)), "round"), "I32")
    ids = b.output_ids()
    for il in b.walk:
        before = cur
        cur = _attention(b, il, b.normed(cur, il, "attn_norm"), chosen)
        if il == b.last:
            cur, before = b.pick(cur, ids), b.pick(before, ids)
            chosen = g.reshape(g.get_rows(g.reshape(chosen, 1, b.tokens), ids), b.outputs)
        cur = _feed_forward(b, il, cur, before, chosen)
    return b.finish(cur, head=g.scale)


def _delta(b: Builder, il: int, name: str, cur: T, chosen: T) -> T:
    a, back = b.layer(il, f"{name}.lora_a"), b.layer(il, f"{name}.lora_b")
    if a is None or back is None:
        raise Wanting(f"the file has no blk.{il}.{name}.lora_a or lora_b")
    rows = cur.ne[1]
    ids = g.reshape(chosen, 1, rows)
    out = g.mul_mat_id(back, g.mul_mat_id(a, g.reshape(cur, cur.ne[0], 1, rows), ids), ids)
    return g.reshape(out, out.ne[0], rows)


def _switched(b: Builder, il: int, name: str, cur: T, chosen: T) -> T:
    return g.add(g.mul_mat(b.need(il, f"{name}.weight"), cur), _delta(b, il, name, cur, chosen))


def _attention(b: Builder, il: int, cur: T, chosen: T) -> T:
    hp = b.hp
    head, heads, kv_heads = hp.value, hp.heads[il], hp.kv_heads[il]
    joined = g.mul_mat(b.need(il, "attn_qkv.weight"), cur)
    step, at, parts = g.strides(joined)[1], 0, []
    for wide in (head * heads, head * kv_heads, head * kv_heads):
        parts.append(g.cont(g.view(joined, (wide, b.tokens), (step,), 4 * at)))
        at += wide
    q, k, v = (
        g.reshape(g.add(part, _delta(b, il, name, cur, chosen)), head, count, b.tokens)
        for part, name, count in zip(parts, ("attn_q", "attn_k", "attn_v"), (heads, kv_heads, kv_heads), strict=True)
    )
    if hp.get("rope.scaling.finetuned", True):
        factors = rope_factors(b, il)
        q, k = g.rope(q, b.positions, factors), g.rope(k, b.positions, factors)
    return _switched(b, il, "attn_output", b.attention(il, q, k, v, wo=""), chosen)


def _feed_forward(b: Builder, il: int, cur: T, before: T, chosen: T) -> T:
    scaled = bool(b.hp.get("residual_scale"))
    joined = g.add(g.scale(cur) if scaled else cur, before)
    cur = b.normed(joined, il, "ffn_norm")
    gate, up = (_switched(b, il, name, cur, chosen) for name in ("ffn_gate", "ffn_up"))
    cur = _switched(b, il, "ffn_down", g.mul(g.unary(gate, "silu"), up), chosen)
    return g.add(g.scale(cur) if scaled else cur, joined)
