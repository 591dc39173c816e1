"""Dense and expert feed-forward blocks of a replayed graph, in the order in which src/llama-graph.cpp (b11434) builds them: `build_ffn`, `build_moe_ffn`."""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import SIGMOID, SOFTMAX, SOFTMAX_WEIGHT, SQRT_SOFTPLUS, Builder
from brim.engines.llama_cpp.context import EARLY_CHOICE, GATED_UNITS
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.tensor import T

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_CLAMPED = frozenset(("deepseek4", "glm5-next", "hy_v4", "maple"))  # one operation clamps and gates


def _limited(b: Builder, key: str, il: int) -> bool:
    """Whether a layer's gated unit is clamped; deepseek4 files without the key of the shared expert clamp it as the others."""
    limit = b.hp.get(key)
    if limit is None and b.hp.arch in ("deepseek4", "glm5-next"):
        limit = b.hp.get("swiglu_clamp_exp")
    if isinstance(limit, (list, tuple)):
        return il < len(limit) and float(limit[il]) > 1e-6
    return limit is not None and float(limit) > 1e-6


def dense(b: Builder, cur: T, il: int, act: str = "silu", *, suffix: str = "", sequential: bool = False, halves: bool = False, down: bool = True) -> T:
    """A dense block `ffn_up`, `ffn_gate` where the file has one, `ffn_down`. `halves`: up holds gate and up side by side. `suffix` names the shared expert."""
    up = b.layer(il, f"ffn_up{suffix}.weight")
    gate = b.layer(il, f"ffn_gate{suffix}.weight")
    tmp = cur if up is None else b.project(cur, il, f"ffn_up{suffix}")
    if gate is None or halves:
        cur = tmp
    else:
        cur = b.project(tmp if sequential else cur, il, f"ffn_gate{suffix}")
    if halves:
        cur = g.glu_halves(cur, act) if b.context.version >= GATED_UNITS else _halves_apart(cur, act)
    elif gate is not None and not sequential:
        if act == "silu" and _limited(b, "swiglu_clamp_shexp", il):
            if b.hp.arch in _CLAMPED and b.hp.arch != "hy_v4":
                return b.project(g.glu(cur, tmp, "swiglu_clamp"), il, f"ffn_down{suffix}")
            tmp = g.same("CLAMP", tmp)
            cur = g.mul(g.same("CLAMP", g.unary(cur, "silu")), tmp)
        elif b.context.version >= GATED_UNITS:
            cur = g.glu(cur, tmp, act)
        else:
            cur = g.mul(g.unary(cur, act), tmp)
    elif act == "relu_sqr":
        cur = g.same("SQR", g.unary(cur, "relu"))
    else:
        cur = g.unary(cur, act)
        scales = b.layer(il, "ffn.act.scales")
        if scales is not None and act == "gelu":
            cur = g.div(cur, scales)
        if gate is not None and not sequential:
            cur = g.mul(cur, tmp)
    return b.project(cur, il, f"ffn_down{suffix}") if down else cur


def _halves_apart(cur: T, act: str) -> T:
    """Both halves cut out by copies (before `GATED_UNITS`)."""
    half, row = cur.ne[0] // 2, (4 * cur.ne[0],)
    gate = g.cont(g.view(cur, (half, cur.ne[1]), row))
    up = g.cont(g.view(cur, (half, cur.ne[1]), row, 4 * half))
    return g.mul(g.unary(gate, act), up)


def _expert_mm(b: Builder, il: int, name: str, cur: T, ids: T) -> T:
    """One matrix of the chosen experts, with scale and bias."""
    weight = b.need(il, name + ".weight")
    made = g.mul_mat_id(weight, cur, ids)
    scale, bias = b.layer(il, name + ".scale"), b.layer(il, name + ".bias")
    if scale is not None:
        rows = g.get_rows(g.repeat(g.reshape(scale, 1, scale.ne[0], 1), 1, scale.ne[0], cur.ne[2], 1), ids)
        made = g.mul(made, rows)
    return made if bias is None else g.same("ADD_ID", made, bias, ids)


def _grouped(b: Builder, probs: T, experts: int, tokens: int, groups: int, used: int) -> T:
    """Keep only the experts of the best groups (DeepSeek V3)."""
    each = experts // groups
    selection = g.reshape(probs, each, groups, tokens)
    scores = g.top_k(selection, 2)
    scores = g.get_rows(g.reshape(selection, 1, *selection.ne[:3]), scores)
    scores = g.sum_rows(g.reshape(scores, scores.ne[1], scores.ne[2], scores.ne[3]))
    best = g.top_k(g.reshape(scores, scores.ne[1], scores.ne[2]), used)
    kept = g.get_rows(selection, best)
    return g.reshape(g.set_rows(g.same("FILL", selection), kept, best), experts, tokens)


def route(
    b: Builder,
    logits: T,
    il: int,
    *,
    gating: int,
    normalise: bool,
    scaled: bool,
    bias: "T | None",
    raw_selection: bool,
    used: int,
    experts: int,
    chosen: "T | None" = None,
    each: int = 0,
) -> tuple[T, T]:
    """The chosen experts' indices and weights; `chosen` are indices that are known before. `each`: experts of one group of grovemoe, which ranks by a
    sigmoid of its own; above 1 the groups are chosen, not the experts.
    """
    tokens = logits.ne[1]
    if gating == SOFTMAX:
        probs = g.soft_max(logits)
    elif gating == SIGMOID:
        probs = g.unary(logits, "sigmoid")
    elif gating == SOFTMAX_WEIGHT:
        probs = logits
    elif gating == SQRT_SOFTPLUS:
        probs = g.same("SQRT", g.unary(logits, "softplus"))
    else:
        raise Wanting(f"expert gating function {gating} is not modelled")
    selection = probs if bias is None else g.add(probs, bias)
    if raw_selection:
        selection = logits
    if each:
        selection = g.unary(logits, "sigmoid")
    groups = int(b.hp.get("expert_group_count", 0))
    if groups > 1:
        selection = _grouped(b, selection, experts, tokens, groups, int(b.hp.get("expert_group_used_count", 0)))
    if chosen is None:
        chosen = g.top_k(selection, used)
    if each > 1:
        chosen = g.cast(g.scale(g.cast(chosen, "F32")), "I32")
    weights = g.get_rows(g.reshape(probs, 1, experts, tokens), chosen)
    if gating == SOFTMAX_WEIGHT:
        weights = g.reshape(g.soft_max(g.reshape(weights, used, tokens)), 1, used, tokens)
    if normalise:
        weights = g.reshape(weights, used, tokens)
        total = g.sum_rows(weights)
        if b.context.version >= EARLY_CHOICE:
            total = g.same("CLAMP", total)
        weights = g.reshape(g.div(weights, total), 1, used, tokens)
    if scaled:
        weights = g.scale(weights)
    if b.context.version >= EARLY_CHOICE:
        b.expand(weights)
    return chosen, weights


def experts(
    b: Builder,
    cur: T,
    il: int,
    act: str = "silu",
    *,
    gating: int = SOFTMAX,
    normalise: bool = True,
    logits: "T | None" = None,
    weigh_first: bool = False,
    known: "T | None" = None,
    each: int = 0,
    unit: "Callable[[T, T], T] | None" = None,
) -> T:
    """Route, run the chosen experts, weigh and sum them (`build_moe_ffn`). `known`: indices of experts that no score decides; `each` above 1:
    grovemoe's adjugate experts, one for so many; `unit`: a gated unit of its own.
    """
    hp = b.hp
    width, tokens = cur.ne[0], cur.ne[1]
    used, count = hp.experts_used[il], hp.experts
    if logits is None:
        logits = g.mul_mat(b.need(il, "ffn_gate_inp.weight"), cur)
    gate_bias = b.layer(il, "ffn_gate_inp.bias")
    if gate_bias is not None:
        logits = g.add(logits, gate_bias)
    scale = float(hp.get("expert_weights_scale", 0.0))
    chosen, weights = route(b, logits, il, gating=gating, normalise=normalise, scaled=scale not in (0.0, 1.0), bias=None if known else b.layer(il, "exp_probs_b.bias") or b.layer(il, "exp_probs_b.weight") or b.layer(il, "exp_probs_b"),
                            raw_selection=weigh_first, used=used, experts=count, chosen=known, each=each)  # fmt: skip
    cur = g.reshape(cur, width, 1, tokens)
    if weigh_first:
        cur = g.mul(g.repeat(cur, width, used, tokens, 1), weights)
    suffix = "_chexps" if each > 1 else "_exps"
    cur = _activated(b, cur, il, act, chosen, suffix, unit)
    out = _expert_mm(b, il, "ffn_down" + suffix, cur, chosen)
    if not weigh_first:
        out = g.mul(out, weights)
    return _summed(b, out, width, tokens, used)


def _activated(b: Builder, cur: T, il: int, act: str, chosen: T, suffix: str, unit: "Callable[[T, T], T] | None" = None) -> T:
    """Gate and up of the chosen experts, one fused matrix or two, and the activation."""
    joint = b.layer(il, "ffn_gate_up_exps.weight")
    if joint is not None:
        both = _expert_mm(b, il, "ffn_gate_up_exps", cur, chosen)
        half = both.ne[0] // 2
        nb = g.strides(both)
        gate = g.view(both, (half, both.ne[1], both.ne[2]), (nb[1], nb[2]))
        return g.glu(gate, g.view(both, (half, both.ne[1], both.ne[2]), (nb[1], nb[2]), half * 4), act)
    up = _expert_mm(b, il, "ffn_up" + suffix, cur, chosen)
    if b.layer(il, f"ffn_gate{suffix}.weight") is None:
        if act == "relu_sqr":
            return g.same("SQR", g.unary(up, "relu"))
        return g.unary(up, act)
    gate = _expert_mm(b, il, "ffn_gate" + suffix, cur, chosen)
    if unit is not None:
        return unit(gate, up)
    if act == "silu" and _limited(b, "swiglu_clamp_exp", il):
        if b.hp.arch in _CLAMPED:
            return g.glu(gate, up, "swiglu_clamp")
        up = g.same("CLAMP", up)
        return g.mul(g.same("CLAMP", g.unary(gate, "silu")), up)
    return g.glu(gate, up, act) if b.context.version >= GATED_UNITS else g.mul(g.unary(gate, act), up)


def _summed(b: Builder, out: T, width: int, tokens: int, used: int) -> T:
    """The sum over a token's experts: views first, then the additions."""
    nb = g.strides(out)
    early = b.context.version >= EARLY_CHOICE
    views = [g.view(out, (width, tokens), (nb[2],), index * nb[1]) for index in range(used)]
    for part in (out, *views) if early else ():
        b.expand(part)
    total = views[0]
    for part in views[1:]:
        total = g.add(total, part)
        if early:
            b.expand(total)
    return g.cont(total) if used == 1 else total


def shared(b: Builder, cur: T, il: int, act: str = "silu", *, gate: str = "") -> "T | None":
    """The shared expert, with its sigmoid gate where the architecture has one; None where the file has none."""
    if b.layer(il, "ffn_up_shexp.weight") is None:
        return None
    joint = b.layer(il, "ffn_gate_shexp.weight") is None and b.hp.arch == "granite_swa"
    out = dense(b, cur, il, "swiglu" if joint else act, suffix="_shexp", halves=joint)
    if gate:
        raw = g.mul_mat(b.need(il, "ffn_gate_inp_shexp.weight"), cur)
        factor = g.unary(raw, gate)
        out = g.mul(out, g.div(factor, raw) if gate == "silu" else factor)
    return out
