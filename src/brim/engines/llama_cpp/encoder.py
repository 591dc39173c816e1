"""Encoders without a cache: the bert family, modern-bert, neo-bert, eurobert and gemma embedding; every token looks at every other of its micro-batch.

Source: src/models/bert.cpp, modern-bert.cpp, neo-bert.cpp, eurobert.cpp, gemma-embedding.cpp and `build_attn_inp_no_cache`, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.context import ENCODED_PLAINLY
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import dense, experts
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.tensor import T

_ROTATED = frozenset(("nomic-bert", "nomic-bert-moe", "jina-bert-v3"))
_PLAIN = frozenset(("bert", "nomic-bert-moe", "jina-bert-v3"))


def _masks(b: Builder) -> "tuple[T, T | None]":
    """One mask over the micro-batch, a second where some layers slide."""
    dtype = "F16" if b.context.flash and b.context.version >= ENCODED_PLAINLY else "F32"
    full = g.given(dtype, b.tokens, b.tokens)
    return full, (g.given(dtype, b.tokens, b.tokens) if b.hp.window_kind else None)


def _attention(b: Builder, il: int, q: T, k: T, v: T, masks: "tuple[T, T | None]") -> T:
    if b.context.version < ENCODED_PLAINLY:
        return b.project(_older(b, q, k, v, masks[0]), il, "attn_output")
    for t in (q, k, v):
        b.expand(t)
    windowed = masks[1] if b.hp.windowed[il] else None
    return b.project(b.attend(q, k, v, windowed or masks[0], il=il), il, "attn_output")


def _older(b: Builder, q: T, k: T, v: T, mask: T) -> T:
    """Attention of earlier builds, never with the flash kernel: packed keys, then values transposed to rows (b4435, llama.cpp: build_bert)."""
    packed = g.cont(g.permute(k, 0, 2, 1, 3))
    scores = g.soft_max(g.mul_mat(packed, g.permute(q, 0, 2, 1, 3)), mask, None)
    values = g.cont(g.transpose(g.reshape(v, v.ne[0] * v.ne[1], v.ne[2])))
    heads = g.mul_mat(g.reshape(values, v.ne[2], v.ne[0], v.ne[1]), scores)
    cur = g.cont(g.permute(heads, 0, 2, 1, 3), heads.ne[0] * heads.ne[2], heads.ne[1])
    b.expand(cur)
    return cur


def _qkv(b: Builder, il: int, cur: T) -> tuple[T, T, T]:
    hp = b.hp
    return b.qkv(cur, il, hp.key, hp.heads[il], hp.kv_heads[il], hp.value)


def _flat_norm(b: Builder, il: int, x: T, name: str) -> T:
    """A norm over the whole width of queries or keys, where the file has one."""
    if b.layer(il, name + ".weight") is None:
        return x
    flat = b.normed(g.reshape(x, x.ne[0] * x.ne[1], x.ne[2]), il, name, "NORM")
    return g.reshape(flat, *x.ne[:3])


def _bert_feed_forward(b: Builder, il: int, cur: T) -> T:
    every = int(b.hp.get("moe_every_n_layers", 0))
    if every and il % every == 1:
        return experts(b, cur, il, "gelu", normalise=False)
    if b.hp.arch in _PLAIN:
        return dense(b, cur, il, "gelu")
    if b.hp.arch == "jina-bert-v2":
        up = b.need(il, "ffn_up.weight")
        return dense(b, cur, il, "gelu", halves=b.layer(il, "ffn_gate.weight") is None and up.ne[1] != b.hp.ff[il])
    return dense(b, cur, il, "silu")


def bert(b: Builder) -> T:
    """The post-norm family."""
    hp = b.hp
    cur = embed(b)
    types, places = b.weight("token_types.weight"), b.weight("position_embd.weight")
    if types is not None:
        cur = g.add(cur, g.view(types, (hp.width,)))
    if hp.arch == "bert" and places is not None:
        cur = g.add(g.get_rows(places, b.positions), cur)
    cur = b.norm(cur, b.weight("token_embd_norm.weight"), b.weight("token_embd_norm.bias"), 0, "NORM")
    masks = _masks(b)
    ids = b.output_ids()
    for il in b.walk:
        residual = cur
        q, k, v = _qkv(b, il, cur)
        q, k = _flat_norm(b, il, q, "attn_q_norm"), _flat_norm(b, il, k, "attn_k_norm")
        if hp.arch in _ROTATED:
            q, k = g.rope(q, b.positions), g.rope(k, b.positions)
        cur = _attention(b, il, q, k, v, masks)
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        cur = b.normed(g.add(cur, residual), il, "attn_output_norm", "NORM")
        if b.layer(il, "attn_norm_2.weight") is not None:
            cur = b.normed(g.add(cur, residual), il, "attn_norm_2", "NORM")
        cur = b.normed(g.add(_bert_feed_forward(b, il, cur), cur), il, "layer_output_norm", "NORM")
    return b.finish_hidden(cur)


def pre_norm(b: Builder) -> T:
    """Encoders with norms before attention and feed-forward, all with rotation."""
    hp = b.hp
    modern, gemma = hp.arch == "modern-bert", hp.arch == "gemma-embedding"
    if hp.get("decision_block_count"):
        raise Wanting("the decision head of a modern-bert is not modelled yet")
    kind = "NORM" if modern else "RMS_NORM"
    cur = embed(b, scaled_rows=gemma)
    if modern:
        cur = b.norm(cur, b.weight("token_embd_norm.weight"), None, 0, "NORM")
    masks = _masks(b)
    ids = b.output_ids()
    act = "silu" if hp.arch == "eurobert" or hp.get("hidden_activation") in ("silu", "swiglu") else "gelu"
    for il in b.walk:
        residual = cur
        normed = cur if b.layer(il, "attn_norm.weight") is None else b.normed(cur, il, "attn_norm", kind)
        q, k, v = _qkv(b, il, normed)
        if gemma:
            q, k = b.normed(q, il, "attn_q_norm"), b.normed(k, il, "attn_k_norm")
        q, k = g.rope(q, b.positions), g.rope(k, b.positions)
        cur = _attention(b, il, g.scale(q) if gemma else q, k, v, masks)
        if il == b.last:
            cur, residual = b.pick(cur, ids), b.pick(residual, ids)
        if gemma:
            cur = b.normed(cur, il, "post_attention_norm")
        joined = g.add(cur, residual)
        halves = b.layer(il, "ffn_gate.weight") is None
        cur = dense(b, b.normed(joined, il, "ffn_norm", kind), il, act, halves=halves)
        if gemma:
            cur = b.norm(cur, b.layer(il, "post_ffw_norm.weight"), None, -1)
        cur = g.add(cur, joined)
    last = "enc.output_norm" if hp.arch == "neo-bert" else "output_norm"
    return b.finish_hidden(b.norm(cur, b.weight(last + ".weight"), b.weight(last + ".bias"), -1, kind))
