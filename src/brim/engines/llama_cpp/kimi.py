"""Delta attention with a gate for every channel, latent attention in between, experts behind leading dense layers: Kimi Linear, Kimi K3, Bailing MoE 3.

Source: src/models/kimi-linear.cpp, kimi-k3.cpp, bailingmoe3.cpp and delta-net-base.cpp, llama.cpp b11434.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.ends import embed
from brim.engines.llama_cpp.feedforward import experts
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.hybrids import l2
from brim.engines.llama_cpp.latent import behind, latent_attention
from brim.engines.llama_cpp.recurrent import delta_rule, rows, ssm_conv
from brim.engines.llama_cpp.tensor import T

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def _convolved(b: Builder, il: int, states: T, which: int, x: T, kernel: str) -> T:
    """One of queries, keys and values through its short convolution; its state is a third of the layer's."""
    st, ns, store = b.sequence_tokens, b.sequences, b.store("r", il)
    each = b.hp.rows_r // 3
    inner = x.ne[0]
    steps = each // inner
    row, whole = 4 * steps, 4 * b.hp.rows_r
    kept = g.view(states, (steps, inner, ns), (row, whole), 4 * which * each)
    joined = g.concat(kept, g.transpose(g.reshape(x, inner, st, ns)), 0)
    nb = g.strides(joined)
    for slot in range(b.context.rollback + 1):
        last = g.view(joined, (steps, inner, ns), nb[1:3], max(0, st - slot) * nb[0])
        b.expand(g.cpy(last, g.view(store, (steps, inner, ns), (row, whole), 4 * which * each)))
    made = ssm_conv(joined, g.reshape(b.need(il, kernel), steps + 1, inner))
    made = g.unary(g.reshape(made, inner, b.tokens), "silu")
    heads = b.hp.heads[0]
    return g.reshape(made, inner // heads, heads, st, ns)


def delta_attention(b: Builder, il: int, cur: T) -> T:
    """A layer of delta attention: three short convolutions, the fused recurrence, a gated norm."""
    hp, st, ns, tokens = b.hp, b.sequence_tokens, b.sequences, b.tokens
    heads, head = hp.heads[0], int(hp.get("kda.head_dim", 0))
    inner = heads * head
    states = rows(b, b.store("r", il), hp.rows_r)
    if b.layer(il, "attn_qkv.weight") is not None:
        whole = g.mul_mat(b.need(il, "attn_qkv.weight"), cur)
        inputs = [g.cont(g.view(whole, (inner, tokens), (4 * whole.ne[0],), 4 * inner * part)) for part in range(3)]
        q, k, v = (_convolved(b, il, states, part, inputs[part], f"ssm_conv1d_{letter}.weight") for part, letter in enumerate("qkv"))
    else:
        q, k, v = (
            _convolved(b, il, states, part, g.mul_mat(b.need(il, f"attn_{letter}.weight"), cur), f"ssm_conv1d_{letter}.weight")
            for part, letter in enumerate("qkv")
        )
    decay = _decay(b, il, cur)
    beta = g.unary(g.reshape(g.mul_mat(b.need(il, "ssm_beta.weight"), cur), 1, heads, st, ns), "sigmoid")
    flat = g.reshape(g.reshape(cur, cur.ne[0], st, ns), cur.ne[0], tokens)
    state = g.reshape(rows(b, b.store("s", il), hp.rows_s), head, head, heads, ns)
    out = g.cont(delta_rule(b, il, l2(b, q), l2(b, k), v, decay, beta, state))
    if b.layer(il, "ssm_g.weight") is not None:
        gate = g.mul_mat(b.need(il, "ssm_g.weight"), flat)
    else:
        gate = g.mul_mat(b.need(il, "ssm_g_a.weight"), flat)
        gate = gate if b.layer(il, "ssm_g_b.weight") is None else g.mul_mat(b.need(il, "ssm_g_b.weight"), gate)
    gate = g.unary(g.reshape(gate, head, heads, tokens), "sigmoid")
    normed = b.normed(g.reshape(out, head, heads, tokens), il, "ssm_norm")
    return g.mul_mat(b.need(il, "attn_output.weight"), g.cont(g.mul(normed, gate), inner, tokens))


def _decay(b: Builder, il: int, cur: T) -> T:
    """How fast each channel forgets: by softplus, or within a bound by sigmoid where the header gives one."""
    hp, heads, head = b.hp, b.hp.heads[0], int(b.hp.get("kda.head_dim", 0))
    decay = g.mul_mat(b.need(il, "ssm_f_a.weight"), cur)
    if b.layer(il, "ssm_f_b.weight") is not None:
        decay = g.mul_mat(b.need(il, "ssm_f_b.weight"), decay)
    decay = g.add(decay, b.need(il, "ssm_dt.bias"))
    a = g.reshape(b.need(il, "ssm_a"), 1, heads, 1)
    if hp.get("kda.gate_lower_bound") is None or hp.arch == "kimi-linear":
        decay = g.mul(g.reshape(g.unary(decay, "softplus"), head, heads, b.tokens), a)
    else:
        decay = g.mul(g.reshape(decay, head, heads, b.tokens), a)
        decay = g.scale(g.unary(decay if hp.arch == "bailingmoe3" else g.scale(decay), "sigmoid"))
    return g.reshape(decay, head, heads, b.sequence_tokens, b.sequences)


def _latent_attention(b: Builder, il: int, cur: T, wo: str = "attn_output") -> T:
    """Latent attention without rotation."""
    hp, tokens, heads = b.hp, b.tokens, b.hp.heads[0]
    head_k, head_v = hp.mla or (hp.key, hp.value)
    rank, turned = int(hp.get("attention.kv_lora_rank", 0)), hp.rot
    nope = head_k - turned
    if b.layer(il, "attn_q_a.weight") is not None:
        q = b.normed(g.mul_mat(b.need(il, "attn_q_a.weight"), cur), il, "attn_q_a_norm")
        q = g.mul_mat(b.need(il, "attn_q_b.weight"), q)
    else:
        q = g.mul_mat(b.need(il, "attn_q.weight"), cur)
    joint = g.mul_mat(b.need(il, "attn_kv_a_mqa.weight"), cur)
    row = 4 * (rank + turned)
    latent = b.normed(g.view(joint, (rank, tokens), (row,)), il, "attn_kv_a_norm")
    k_pe = g.view(joint, (turned, 1, tokens), (row, row), 4 * rank)
    if b.layer(il, "attn_k_b.weight") is not None:
        each = (4 * head_k, 4 * head_k * heads)
        absorbed = g.mul_mat(b.need(il, "attn_k_b.weight"), g.permute(g.view(q, (nope, heads, tokens), each), 0, 2, 1, 3))
        queries = g.concat(g.permute(absorbed, 0, 2, 1, 3), g.view(q, (turned, heads, tokens), each, 4 * nope), 0)
        latent = g.reshape(latent, rank, 1, tokens)
        return b.attention(il, queries, g.concat(latent, k_pe, 0), latent, wo=wo, v_mla=b.need(il, "attn_v_b.weight"), values=rank)
    kv = g.mul_mat(b.need(il, "attn_kv_b.weight"), latent)
    wide = 4 * (nope + head_v)
    values = g.cont(g.view(kv, (head_v, heads, tokens), (wide, wide * heads), 4 * nope))
    keys = g.concat(g.repeat(k_pe, turned, heads, tokens, 1), g.view(kv, (nope, heads, tokens), (wide, wide * heads)), 0)
    return b.attention(il, g.reshape(q, head_k, heads, tokens), keys, values, wo=wo)


def kimi_linear(b: Builder) -> T:
    """The whole graph."""
    hp = b.hp
    cur = embed(b)
    b.recur()
    b.attend_to(keys_only=bool(hp.mla))
    ids = b.output_ids()
    lead = int(hp.get("leading_dense_block_count", 0))
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        cur = delta_attention(b, il, cur) if hp.recurrent[il] else _latent_attention(b, il, cur)
        cur = behind(b, il, cur, residual, ids, lead, int(hp.get("expert_gating_func", 1)), normalise=True)
    return b.finish(cur)


def bailingmoe3(b: Builder) -> T:
    """Delta attention bounded below, latent attention with rotation and a gate for every head."""
    hp = b.hp
    cur = embed(b)
    b.recur()
    b.attend_to(keys_only=True)
    ids = b.output_ids()
    lead, gating = int(hp.get("leading_dense_block_count", 0)), int(hp.get("expert_gating_func", 2))
    for il in b.walk:
        residual = cur
        cur = b.normed(cur, il, "attn_norm")
        if hp.recurrent[il]:
            cur = delta_attention(b, il, cur)
        else:
            cur = headed(b, il, cur)
        cur = behind(b, il, cur, residual, None, lead, gating)
    cur = b.norm(cur, b.weight("output_norm.weight"), None, -1)
    cur.output = True
    cur = b.pick(cur, ids)
    cur.output = True
    return b.finish(cur, normed=False)


def headed(b: Builder, il: int, cur: T, *, low: "T | None" = None, mask: "Callable[[T], T] | None" = None, packed: bool = True) -> T:
    """Latent attention whose heads are gated by one factor each; `packed` copies the product before the output matrix."""
    out = latent_attention(b, il, cur, low=low, mask=mask, wo="")
    width, heads = out.ne[0] // b.hp.heads[il], b.hp.heads[il]
    gate = g.unary(g.reshape(b.mm(b.need(il, "attn_gate.weight"), cur, None if packed else b.layer(il, "attn_gate.scale")), 1, heads, b.tokens), "sigmoid")
    out = g.mul(g.reshape(out, width, heads, b.tokens), gate)
    if packed:
        return g.mul_mat(b.need(il, "attn_output.weight"), g.cont(out, width * heads, b.tokens))
    return b.mm(b.need(il, "attn_output.weight"), g.reshape(out, width * heads, b.tokens), b.layer(il, "attn_output.scale"))


class _Residuals:
    """What Kimi K3 keeps of earlier layers: a growing stack that each block's input is mixed with (`res_push`, `res_mix`)."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.stack: T | None = None
        self.size = int(b.hp.get("attn_res.block_size", 0))

    def keep(self, cur: T) -> None:
        """One more layer's input."""
        more = g.reshape(cur, self.b.hp.width, 1, self.b.tokens)
        self.stack = more if self.stack is None else g.concat(self.stack, more, 1)

    def mixed(self, cur: T, weight: "T | None") -> T:
        """The input of a block."""
        if not self.size or self.stack is None:
            return cur
        if weight is None:
            raise Wanting("the file lacks a score of the residual streams (attn_res_score, ffn_res_score or output_res_score)")
        count, tokens = self.stack.ne[1], self.b.tokens
        kept = g.reshape(g.sum_rows(g.mul(g.same("RMS_NORM", self.stack), weight)), count, tokens)
        own = g.sum_rows(g.mul(g.same("RMS_NORM", cur), weight))
        shares = g.soft_max(g.concat(kept, own, 0))
        row = g.strides(shares)[1]
        theirs, mine = g.cont(g.view(shares, (count, tokens), (row,))), g.cont(g.view(shares, (1, tokens), (row,), 4 * count))
        return g.add(T("DSV4_HC_PRE", "F32", (cur.ne[0], tokens, 1, 1), (self.stack, theirs)), g.mul(cur, mine))


def _situ(b: Builder, gate: T, up: T) -> T:
    """The bounded gated unit of Kimi K3 (`kimi_k3_situ`)."""
    act = g.mul(g.scale(g.unary(g.scale(gate), "tanh")), g.unary(gate, "sigmoid"))
    if float(b.hp.get("activation.situ_linear_beta", 0.0)) > 0:
        up = g.scale(g.unary(g.scale(up), "tanh"))
    return g.mul(act, up)


def _dense(b: Builder, il: int, cur: T, suffix: str = "") -> T:
    gate = g.mul_mat(b.need(il, f"ffn_gate{suffix}.weight"), cur)
    up = g.mul_mat(b.need(il, f"ffn_up{suffix}.weight"), cur)
    return g.mul_mat(b.need(il, f"ffn_down{suffix}.weight"), _situ(b, gate, up))


def _narrow_experts(b: Builder, il: int, cur: T) -> T:
    """Experts in a narrower space, and a shared one in the full (`build_latent_moe`)."""
    down, up = b.layer(il, "ffn_routed_down.weight"), b.layer(il, "ffn_routed_up.weight")
    narrow = cur if down is None else g.mul_mat(down, cur)
    logits = g.mul_mat(b.need(il, "ffn_gate_inp.weight"), cur)
    normalise = bool(b.hp.get("expert_weights_norm", False))
    out = experts(
        b, narrow, il, "situ", gating=int(b.hp.get("expert_gating_func", 2)), normalise=normalise, logits=logits, unit=lambda gate, up: _situ(b, gate, up)
    )
    if b.layer(il, "ffn_routed_norm.weight") is not None:
        out = b.normed(out, il, "ffn_routed_norm")
    if up is not None:
        out = g.mul_mat(up, out)
    return out if b.layer(il, "ffn_gate_shexp.weight") is None else g.add(out, _dense(b, il, cur, "_shexp"))


def kimi_k3(b: Builder) -> T:
    """The whole graph: earlier layers mixed into every block's input, gated attention, experts in a narrower space."""
    hp = b.hp
    cur = embed(b)
    b.recur()
    b.attend_to(keys_only=bool(hp.mla))
    ids = b.output_ids()
    lead = int(hp.get("leading_dense_block_count", 0))
    kept = _Residuals(b)
    for il in b.walk:
        total = cur
        cur = kept.mixed(total, b.layer(il, "attn_res_score.weight"))
        banked = bool(kept.size) and il % kept.size == 0
        if banked:
            kept.keep(total)
        cur = b.normed(cur, il, "attn_norm")
        b.expand(cur)
        if hp.recurrent[il]:
            cur = delta_attention(b, il, cur)
        else:
            out, gate = _latent_attention(b, il, cur, wo=""), b.layer(il, "attn_gate.weight")
            out = out if gate is None else g.mul(out, g.unary(g.mul_mat(gate, cur), "sigmoid"))
            cur = g.mul_mat(b.need(il, "attn_output.weight"), out)
        total = cur if banked else g.add(total, cur)
        cur = b.normed(kept.mixed(total, b.layer(il, "ffn_res_score.weight")), il, "ffn_norm")
        cur = g.add(total, _dense(b, il, cur) if il < lead else _narrow_experts(b, il, cur))
    cur = kept.mixed(cur, b.weight("output_res_score.weight"))
    return b.finish(b.pick(cur, ids))
