"""The graph of a context that drafts with a model's own next-token block: token and hidden state joined, one decoder block, the shared head, and the sampler behind it.

Source: `graph_mtp` of src/models/*.cpp, src/llama-graph.cpp `build_sampling`, common/speculative.cpp `common_speculative_impl_draft_mtp`; llama.cpp b11434. An
architecture without a row has no such graph there, or none that is modelled here.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.blocks import SIGMOID, Builder
from brim.engines.llama_cpp.feedforward import dense
from brim.engines.llama_cpp.hparams import Wanting
from brim.engines.llama_cpp.tensor import WEIGHTS, T
from brim.engines.llama_cpp.weights import HOST

_UNSCALED = frozenset(("hy_v3", "step35", "bailingmoe3"))  # their joining matrix is read without its scale
_KEPT = 10  # candidates of the draft's sampler
# architecture → what its block is
BLOCKS = {
    **dict.fromkeys(("glm4moe", "hy_v3", "step35", "mimo2"), "plain"),
    **dict.fromkeys(("qwen35", "qwen35moe", "qwen3next"), "gated"),
    **dict.fromkeys(("deepseek2", "deepseek32", "glm-dsa", "bailingmoe3"), "latent"),
    "nemotron_h_moe": "nemotron",
    "cohere2moe": "side",
    "deepseek4": "streams",
    "qwen4exp": "pools",
    "gemma4-assistant": "assistant",
}


def _joined(b: Builder, il: int, streams: int = 0, kind: str = "RMS_NORM") -> T:
    """The token's embedding and the model's last hidden state, side by side, through one matrix."""
    table = b.layer(il, "nextn.embed_tokens.weight") or b.weight("token_embd.weight")
    if table is None:
        raise Wanting("the file has no token_embd.weight")
    width = b.hp.width
    token = g.get_rows(table, g.given("I32", b.tokens))
    state = g.given("F32", width * max(1, streams), b.tokens)
    if streams:
        state = g.reshape(state, width, streams, b.tokens)
    token = b.normed(token, il, "nextn.enorm", kind)
    if streams:
        token = g.repeat(g.reshape(token, width, 1, b.tokens), width, streams, b.tokens, 1)
    both = g.concat(token, b.normed(state, il, "nextn.hnorm", kind), 0)
    return b.mm(b.need(il, "nextn.eh_proj.weight"), both, None if b.hp.arch in _UNSCALED else b.layer(il, "nextn.eh_proj.scale"))


def _end(b: Builder, il: int, cur: T, ids: "T | None", *, state_first: bool = False, kind: str = "RMS_NORM") -> T:
    """The shared norm and head; the hidden state stays alive for the next step, before the norm or behind it."""
    if state_first:
        assert ids is not None
        cur, ids = b.pick(cur, ids), None
        cur.output = True
    name = f"blk.{il}.nextn.shared_head_norm.weight"
    weight = b.weight(name) or (b.layer(il, "layer_output_norm.weight") if b.hp.arch == "mimo2" else None) or b.weight("output_norm.weight")
    cur = b.norm(cur, weight, None, -1, kind)
    cur.output = cur.output or not state_first
    return _logits(b, il, cur if ids is None else b.pick(cur, ids))


def _logits(b: Builder, il: int, cur: T) -> T:
    own = b.layer(il, "nextn.shared_head_head.weight")
    plain = b.hp.arch in ("step35", "deepseek4")
    plain = plain or (own is None and b.hp.arch == "cohere2moe")
    cur = b.mm(own or b.output_weight(), cur, None if plain else b.layer(il, "nextn.shared_head_head.scale") if own is not None else b.weight("output.scale"))
    if b.hp.arch == "cohere2moe" and b.hp.get("logit_scale"):
        cur = g.scale(cur)
    cur.output = True
    b.expand(cur)
    return cur


def _plain(b: Builder, il: int) -> T:
    from brim.engines.llama_cpp.decoders import feed_forward, self_attention
    from brim.engines.llama_cpp.styles import STYLES

    style = STYLES[b.hp.arch]
    cur = _joined(b, il)
    b.attend_to()
    ids = b.output_ids()
    joined = g.add(self_attention(b, style, il, b.normed(cur, il, "attn_norm")), cur)
    cur = g.add(feed_forward(b, style, il, b.normed(joined, il, style.ffn_norm)), joined)
    return _end(b, il, cur, ids, state_first=b.hp.arch in ("step35", "mimo2"))


def _gated(b: Builder, il: int) -> T:
    from brim.engines.llama_cpp.feedforward import dense, experts, shared
    from brim.engines.llama_cpp.hybrids import gated_attention

    cur = _joined(b, il)
    b.attend_to()
    ids: T | None = b.output_ids()
    out = gated_attention(b, il, b.normed(cur, il, "attn_norm"))
    if b.hp.arch == "qwen3next":
        assert ids is not None
        out, cur, ids = b.pick(out, ids), b.pick(cur, ids), None
    joined = g.add(out, cur)
    cur = b.normed(joined, il, "post_attention_norm")
    if b.layer(il, "ffn_gate_inp.weight") is None:
        made = dense(b, cur, il)
    else:
        made = experts(b, cur, il)
        extra = shared(b, cur, il, gate="sigmoid")
        made = made if extra is None else g.add(made, extra)
    return _end(b, il, g.add(made, joined), ids)


def _latent(b: Builder, il: int) -> T:
    from brim.engines.llama_cpp.kimi import headed
    from brim.engines.llama_cpp.latent import behind, gating, latent_attention

    cur = _joined(b, il)
    b.attend_to(keys_only=True)
    ids = b.output_ids()
    normed = b.normed(cur, il, "attn_norm")
    out = headed(b, il, normed) if b.hp.arch == "bailingmoe3" else latent_attention(b, il, normed)
    return _end(b, il, behind(b, il, out, cur, None, 0, SIGMOID if b.hp.arch == "glm-dsa" and not b.hp.get("expert_gating_func") else gating(b)), ids)


def _nemotron(b: Builder, il: int) -> T:
    from brim.engines.llama_cpp.hybrids import nemotron_experts

    hp = b.hp
    cur = _joined(b, il)
    b.attend_to()
    ids = b.output_ids()
    q, k, v = b.qkv(b.normed(cur, il, "attn_norm"), il, hp.value, hp.heads[il], hp.kv_heads[il])
    joined = b.pick(g.add(b.attention(il, q, k, v), cur), ids)
    made = nemotron_experts(b, b.normed(joined, il, "post_attention_norm"), il)
    return _end(b, il, g.add(made, joined), None, kind="NORM")


def _side(b: Builder, il: int) -> T:
    """Attention and experts read the same input (cohere2moe)."""
    from brim.engines.llama_cpp.decoders import feed_forward, rope_factors
    from brim.engines.llama_cpp.styles import STYLES

    hp = b.hp
    kind = "RMS_NORM" if hp.get("attention.layer_norm_rms_epsilon") else "NORM"
    cur = _joined(b, il, kind=kind)
    b.attend_to()
    ids = b.output_ids()
    normed = b.normed(cur, il, "attn_norm", kind)
    q, k, v = b.qkv(normed, il, hp.value, hp.heads[il], hp.kv_heads[il])
    factors = rope_factors(b, il)
    out = b.attention(il, g.rope(q, b.positions, factors), g.rope(k, b.positions, factors), v)
    made = feed_forward(b, STYLES[hp.arch], il, normed)
    return _end(b, il, g.add(g.add(made, cur), out), ids, kind=kind)


def _streams(b: Builder, il: int) -> T:
    from brim.engines.llama_cpp.deepseek4 import Layers
    from brim.engines.llama_cpp.feedforward import experts, shared

    hp = b.hp
    made = Layers(b, drafting=True)
    streams = _joined(b, il, made.streams)
    ids = b.output_ids()
    cur, after, joins = made.mixed(il, streams, "hc_attn")
    residual = made.spread(il, made.attention(il, b.normed(cur, il, "attn_norm")), streams, after, joins)
    cur, after, joins = made.mixed(il, residual, "hc_ffn")
    cur = b.normed(cur, il, "ffn_norm")
    routed = experts(b, cur, il, gating=int(hp.get("expert_gating_func", 4)), normalise=bool(hp.get("expert_weights_norm", False)))
    extra = shared(b, cur, il)
    streams = made.spread(il, routed if extra is None else g.add(routed, extra), residual, after, joins)
    flat = b.pick(g.reshape(streams, hp.width * made.streams, b.tokens), ids)
    flat.output = True
    return _end(b, il, made.head(g.reshape(flat, hp.width, made.streams, b.outputs)), None)


def _pools(b: Builder, il: int) -> T:
    from brim.engines.llama_cpp import qwen4

    hp, count = b.hp, int(b.hp.get("hyper_connection.count", 0))
    streams = _joined(b, il, count)
    b.recur()
    assert b.state_ids is not None
    b.expand(b.state_ids)
    b.attend_to()
    pools = qwen4.Pools(b, b.attention_input(b.memory.named("indexer"), keys_only=True)) if hp.pool else None
    ids = b.output_ids()
    cur, inject = qwen4.entry(b, il, streams, "hc_attn")
    streams = qwen4.joined(b, il, streams, qwen4.attention(b, il, cur, pools), inject)
    cur, inject = qwen4.entry(b, il, streams, "hc_ffn")
    streams = qwen4.joined(b, il, streams, qwen4.feed(b, il, cur), inject)
    flat = b.pick(g.reshape(streams, hp.width * count, b.tokens), ids)
    whole = flat.src[0]
    whole.output = True
    b.expand(whole)
    cur, _ = qwen4.mixed(b, g.reshape(flat, hp.width, count, b.outputs), f"blk.{il}.nextn.hc_head", il)
    cur.output = True
    cur = b.logits(cur)
    cur.output = True
    b.expand(cur)
    return cur


def _assistant(b: Builder) -> T:
    """Gemma 4's assistant: blocks of its own that look into the target's last two caches; only queries are new (src/models/gemma4-assistant.cpp)."""
    hp = b.hp
    before, after = b.weight("nextn.pre_projection.weight"), b.weight("nextn.post_projection.weight")
    if before is None or after is None:
        raise Wanting("the file has no nextn.pre_projection.weight or nextn.post_projection.weight")
    wide = int(hp.get("embedding_length_out", 0)) or hp.width
    token = g.scale(g.get_rows(g.stored("F16", (wide, hp.vocabulary), HOST, WEIGHTS), g.given("I32", b.tokens)))
    cur = g.mul_mat(before, g.concat(token, g.given("F32", wide, b.tokens), 0))
    b.attend_to()
    ids = b.output_ids()
    for il in range(hp.blocks):
        head = hp.head_key(il)
        q = g.mul_mat(b.need(il, "attn_q.weight"), b.normed(cur, il, "attn_norm"))
        q = b.normed(g.reshape(q, head, hp.heads[il], b.tokens), il, "attn_q_norm")
        q = g.rope(q, b.positions, None if hp.windowed[il] else b.weight("rope_freqs.weight", b.placement.layers[il]))
        out = b.attention(il, q, None, None)
        if il == hp.blocks - 1:
            out, cur = b.pick(out, ids), b.pick(cur, ids)
        joined = g.add(b.normed(out, il, "post_attention_norm"), cur)
        cur = dense(b, b.normed(joined, il, "ffn_norm"), il, "gelu")
        cur = g.add(b.norm(cur, b.need(il, "post_ffw_norm.weight"), None, -1), joined)
        cur = g.mul(cur, b.need(il, "layer_output_scale.weight"))
    cur = b.norm(cur, b.weight("output_norm.weight"), None, -1)
    logits = b.mm(b.output_weight(), cur)
    logits.output = True
    b.expand(logits)
    state = g.mul_mat(after, cur)
    state.output = True
    b.expand(state)
    return logits


def build(b: Builder) -> T:
    """Lay out the graph of the first next-token block; its logits."""
    kind = BLOCKS.get(b.hp.arch)
    if kind is None:
        raise Wanting(f"the graph of the next-token block of architecture {b.hp.arch!r} is not modelled yet")
    il = b.hp.layers
    if kind == "assistant":
        return _assistant(b)
    lay_out = {"plain": _plain, "gated": _gated, "latent": _latent, "nemotron": _nemotron, "side": _side, "streams": _streams, "pools": _pools}[kind]
    return lay_out(b, il)


def sample(b: Builder, logits: T) -> None:
    """The ten best candidates of each row that a slot's sampler sees (`llama_sampler_top_k_backend_apply`), and one more row that no slot uses."""
    more = g.pad(logits, 0, 1)
    count = logits.ne[0]
    each = min(b.sequence_tokens, b.context.sampled)
    live = b.sequences * each
    for row in (*range(live), *(0,) * (b.context.sequences - b.sequences)):  # slots beyond the graph's sequences look at the first row
        flat = g.reshape(g.view(more, (count,), offset=4 * count * row), count)
        best = g.best(flat, _KEPT)
        found = g.get_rows(g.reshape(flat, 1, count), best)
        found.output = best.output = True
        b.expand(found)
        b.expand(best)
