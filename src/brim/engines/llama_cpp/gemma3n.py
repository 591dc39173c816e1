"""Gemma 3n: four parallel residual streams, per-layer embeddings, and caches shared by the later layers.

Source: src/models/gemma3n.cpp, llama.cpp b11434; its constants (4 streams, the first one active, 256 values a layer, 10 sparse layers) are the engine's own.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.tensor import T

_STREAMS, _ACTIVE, _EMBEDDED, _SPARSE = 4, 0, 256, 10


def _slice(x: T, index: int) -> T:
    """One stream of a stack."""
    row = 4 * x.ne[0]
    return g.view(x, (x.ne[0], x.ne[1]), (row,), index * row * x.ne[1])


def _magnitude(x: T) -> T:
    return g.same("SQRT", g.sum_rows(g.same("SQR", x)))


def _need(b: Builder, name: str) -> T:
    found = b.weight(name)
    if found is None:
        raise Wanting(f"the file has no {name}")
    return found


def _per_layer_inputs(b: Builder, cur: T) -> T:
    """The 256 values that each token brings to each layer, as {256, tokens, layers}."""
    layers, tokens = b.hp.layers, b.tokens
    picked = g.get_rows(_need(b, "per_layer_token_embd.weight"), g.given("I32", tokens))
    picked = g.scale(g.reshape(picked, _EMBEDDED, layers, tokens))
    b.expand(picked)
    projected = g.scale(g.mul_mat(_need(b, "per_layer_model_proj.weight"), cur))
    projected = b.norm(g.reshape(projected, _EMBEDDED, layers, tokens), b.weight("per_layer_proj_norm.weight"), None, -1)
    joined = g.scale(g.add(projected, picked))
    return g.cont(g.permute(joined, 0, 2, 1, 3))


def _routed(b: Builder, x: T, il: int) -> T:
    router = g.scale(b.normed(x, il, "altup_router_norm"))
    return g.unary(g.mul_mat(b.need(il, "altup_router.weight"), router), "tanh")


def _predict(b: Builder, stack: T, il: int) -> T:
    coefficients = b.mm(b.need(il, "altup_predict_coef.weight"), _routed(b, _slice(stack, _ACTIVE), il))
    coefficients = g.reshape(coefficients, _STREAMS, _STREAMS, b.tokens)
    turned = g.cont(g.permute(stack, 1, 2, 0, 3))
    predicted = g.cont(g.permute(g.mul_mat(turned, coefficients), 0, 2, 1, 3))
    return g.add(predicted, stack)


def _correct(b: Builder, predictions: T, activated: T, il: int) -> T:
    routed = _routed(b, activated, il)
    innovation = g.sub(activated, _slice(predictions, _ACTIVE))
    coefficients = g.scale(b.mm(b.need(il, "altup_correct_coef.weight"), routed))
    coefficients = g.cont(g.transpose(coefficients), 1, b.tokens, _STREAMS)
    innovation = g.repeat(innovation, b.hp.width, b.tokens, _STREAMS, 1)
    return g.add(g.mul(innovation, coefficients), predictions)


def _attention(b: Builder, il: int, cur: T) -> T:
    hp = b.hp
    if hp.cached[il]:
        q, k, v = b.qkv(cur, il, hp.key, hp.heads[0], hp.kv_heads[0])
        q, k, v = b.normed(q, il, "attn_q_norm"), b.normed(k, il, "attn_k_norm"), g.same("RMS_NORM", v)
        return b.attention(il, g.rope(q, b.positions), g.rope(k, b.positions), v)
    if b.layer(il, "attn_qkv.weight") is not None:
        whole = b.mm(b.need(il, "attn_qkv.weight"), cur)
        q = g.cont(g.view(whole, (hp.key * hp.heads[0], b.tokens), (4 * whole.ne[0],)))
    else:
        q = b.mm(b.need(il, "attn_q.weight"), cur)
    q = b.normed(g.reshape(q, hp.key, hp.heads[0], b.tokens), il, "attn_q_norm")
    return b.attention(il, g.rope(q, b.positions), None, None)


def _sparse(x: T) -> T:
    """Activation sparsity of the first layers (`gaussian_topk`)."""
    mean = g.sum_rows(x, "MEAN")
    deviation = g.same("SQRT", g.scale(g.sum_rows(g.same("SQR", g.sub(x, mean)))))
    return g.unary(g.sub(x, g.add(mean, g.scale(deviation))), "relu")


def _feed_forward(b: Builder, il: int, cur: T) -> T:
    up, gate = b.mm(b.need(il, "ffn_up.weight"), cur), b.mm(b.need(il, "ffn_gate.weight"), cur)
    if il < _SPARSE:
        gate = _sparse(gate)
    return b.mm(b.need(il, "ffn_down.weight"), g.mul(up, g.unary(gate, "gelu")))


def _layer(b: Builder, il: int, stack: T, inputs: T) -> T:
    width, tokens = b.hp.width, b.tokens
    predictions = _predict(b, stack, il)
    active = _slice(predictions, _ACTIVE)
    cur = b.normed(active, il, "attn_norm")
    laurel = b.mm(b.need(il, "laurel_r.weight"), b.mm(b.need(il, "laurel_l.weight"), cur))
    laurel = g.add(b.normed(laurel, il, "laurel_post_norm"), cur)
    cur = g.add(b.normed(_attention(b, il, cur), il, "post_attention_norm"), active)
    joined = g.scale(g.add(cur, laurel))
    cur = _feed_forward(b, il, b.normed(joined, il, "ffn_norm"))
    cur = g.add(b.norm(cur, b.layer(il, "post_ffw_norm.weight"), None, -1), joined)
    corrected = _correct(b, predictions, cur, il)
    first = b.mm(b.need(il, "inp_gate.weight"), g.mul(_slice(corrected, _ACTIVE), b.need(il, "altup_correct_scale.weight")))
    first = g.mul(g.unary(first, "gelu"), _slice(inputs, il))
    first = b.normed(b.mm(b.need(il, "proj.weight"), first), il, "post_norm")
    rest = g.view(corrected, (width, tokens, _STREAMS - 1), (4 * width, 4 * width * tokens), 4 * width * tokens)
    return g.concat(_slice(corrected, 0), g.add(rest, first), 2)


def gemma3n(b: Builder) -> T:
    """The whole graph."""
    width, tokens = b.hp.width, b.tokens
    cur = embed(b, scaled_rows=True)
    b.attend_to()
    inputs = _per_layer_inputs(b, cur)
    target = _magnitude(cur)
    added = g.mul_mat(_need(b, "altup_proj.weight"), g.repeat(cur, width, tokens, _STREAMS - 1, 1))
    fresh = _magnitude(added)
    cur = g.concat(cur, g.div(g.mul(added, target), fresh), 2)
    for il in b.walk:
        cur = _layer(b, il, cur, inputs)
    target = _magnitude(_slice(cur, _ACTIVE))
    rest = g.view(cur, (width, tokens, _STREAMS - 1), (4 * width, 4 * width * tokens), 4 * width * tokens)
    merged = g.mul_mat(_need(b, "altup_unembd_proj.weight"), rest)
    fresh = _magnitude(merged)
    merged = g.div(g.mul(merged, target), fresh)
    cur = _slice(cur, 0)
    for index in range(_STREAMS - 1):
        cur = g.add(cur, _slice(merged, index))
    cur = b.pick(g.scale(cur), b.output_ids())
    return b.finish(cur, head=lambda logits: g.scale(g.unary(g.scale(logits), "tanh")))
