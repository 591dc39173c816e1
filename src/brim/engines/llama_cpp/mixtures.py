"""Mixtures of experts whose layers are laid out as no other's: arctic (experts beside a dense block) and grovemoe (a second, smaller set of experts chosen by the first's scores).

Source: src/models/arctic.cpp, grovemoe.cpp, src/llama-graph.cpp `build_moe_ffn`, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.decoders import self_attention
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense, experts
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.styles import Style
from brim.engines.llama_cpp.tensor import T

_PLAIN, _NORMED = Style(), Style(qk_norm="before")


def arctic(b: Builder) -> T:
    """A dense block in the residual stream; the experts read the layer's input, beside attention."""
    cur = embed(b)
    b.attend_to()
    ids = b.output_ids()
    for il in b.walk:
        residual = cur
        cur = self_attention(b, _PLAIN, il, b.normed(cur, il, "attn_norm"))
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        joined = g.add(cur, residual)
        out = g.add(dense(b, b.normed(joined, il, "ffn_norm"), il), joined)
        cur = g.add(experts(b, b.normed(residual, il, "ffn_norm_exps"), il), out)
    return b.finish(cur)


def grovemoe(b: Builder) -> T:
    """Experts, then the adjugate experts on what they gave."""
    each = int(b.hp.get("experts_per_group", 1))
    if each < 2:
        raise Wanting("grovemoe with one expert a group is not modelled")
    cur = embed(b)
    b.attend_to()
    ids = b.output_ids()
    for il in b.walk:
        residual = cur
        cur = self_attention(b, _NORMED, il, b.normed(cur, il, "attn_norm"))
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        joined = g.add(cur, residual)
        normed = b.normed(joined, il, "ffn_norm")
        logits = b.mm(b.need(il, "ffn_gate_inp.weight"), normed)
        cur = experts(b, normed, il, logits=logits, each=1)
        extra = experts(b, cur, il, logits=logits, each=each)
        cur = g.add(g.add(cur, g.scale(extra)), joined)
    return b.finish(cur)
