"""Decoders that no row of `styles` describes: talkie (a scaled copy of the embedding joins every layer), chameleon (norms of another kind, image tokens silenced), hrm_text (two stacks in cycles).

Source: src/models/talkie.cpp, chameleon.cpp, hrm-text.cpp, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.decoders import self_attention
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense
from brim.engines.llama_cpp.styles import Style
from brim.engines.llama_cpp.tensor import T

_IMAGE_TOKENS = 8196 - 4  # chameleon.cpp: the logits that are silenced


def talkie(b: Builder) -> T:
    """Norms without weights, and the normed embedding added to every layer by a factor of its own."""
    hp = b.hp
    skip = cur = b.norm(embed(b), None, None, -1)
    b.attend_to()
    ids = b.output_ids()
    for il in b.walk:
        residual, joining = cur, skip
        q, k, v = b.qkv(g.same("RMS_NORM", cur), il, hp.key, hp.heads[il], hp.kv_heads[il])
        q = b.normed(g.rope(q, b.positions), il, "attn_q_norm")
        k = g.same("RMS_NORM", g.rope(k, b.positions))
        cur = b.attention(il, q, k, v)
        if il == b.last:
            cur, residual, joining = b.pick(cur, ids), b.pick(residual, ids), b.pick(joining, ids)
        joined = g.add(cur, residual)
        cur = g.add(dense(b, g.same("RMS_NORM", joined), il), joined)
        cur = g.add(cur, g.mul(joining, b.need(il, "layer_output_scale.weight")))
    return b.finish(b.norm(cur, None, None, -1), normed=False, head=g.scale)


def chameleon(b: Builder) -> T:
    """Norms before the blocks or, with `swin_norm`, behind them."""
    behind = bool(b.hp.get("swin_norm", False))
    style = Style(qk_norm="before", qk_kind="NORM")
    cur = embed(b)
    b.attend_to()
    ids = b.output_ids()
    for il in b.walk:
        residual = cur
        cur = self_attention(b, style, il, cur if behind else b.normed(cur, il, "attn_norm"))
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        cur = b.normed(cur, il, "attn_norm") if behind else cur
        joined = g.add(cur, residual)
        cur = dense(b, cur if behind else b.normed(joined, il, "ffn_norm"), il)
        cur = b.normed(cur, il, "ffn_norm") if behind else cur
        cur = g.add(cur, joined)

    def silenced(logits: T) -> T:
        return T("SET", "F32", logits.ne, (logits, g.same("CLAMP", g.leaf("F32", _IMAGE_TOKENS))))

    return b.finish(cur, head=silenced)


def hrm_text(b: Builder) -> T:
    """A low and a high stack that run in turns over the same tokens; each run has cells of its own."""
    hp = b.hp
    stack, high, low = (int(hp.get(f"hrm.{key}", 1)) for key in ("layers_per_stack", "h_cycles", "l_cycles"))
    cur = embed(b)
    b.attend_to()
    ids = b.output_ids()
    state = b.weight("hrm.z_l_init")
    assert state is not None
    for slot in range(high * (low + 1)):
        top = slot % (low + 1) == low
        made = _stack(b, g.add(cur, state), slot * stack, stack if top else 0, stack)
        if top:
            cur = made
        else:
            state = made
    return b.finish(b.pick(cur, ids), normed=False)


def _stack(b: Builder, cur: T, first: int, block: int, count: int) -> T:
    """One run of a stack: `first` is the first of its layers' cells, `block` the first of its blocks in the file."""
    hp = b.hp
    for step in range(count):
        il, bid = first + step, block + step
        normed = g.same("RMS_NORM", cur)
        q, k, v = b.qkv(normed, bid, hp.key, hp.heads[il], hp.kv_heads[il], hp.value)
        out = b.attention(il, g.rope(q, b.positions), g.rope(k, b.positions), v, wo="")
        factor = g.unary(b.mm(b.need(bid, "attn_gate.weight"), normed), "sigmoid")
        joined = g.add(b.mm(b.need(bid, "attn_output.weight"), g.mul(out, factor), b.layer(bid, "attn_output.scale")), cur)
        cur = g.add(dense(b, g.same("RMS_NORM", joined), bid), joined)
    return g.same("RMS_NORM", cur)
