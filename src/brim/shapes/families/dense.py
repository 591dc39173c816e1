"""Decoders in Llama's mould, with one feed-forward block a layer: which biases, norms and windows each family has; no experts here.

Defaults of absent fields: `shapes/defaults.py`. Rules: transformers 5.24, models/<family>/configuration_<family>.py and modeling_<family>.py.
"""

from brim.facts.model import Attention, FeedForward, Layer
from brim.shapes import blocks, kinds
from brim.shapes.families import decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

SANDWICH = (*decoder.NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
AFTER = ("post_attention_layernorm", "post_feedforward_layernorm")


def llama(f: "Fields", b: "Blueprint") -> None:
    """Llama 1 to 3, Granite, Arcee's base, SmolLM, Yi, Vicuna …: one `attention_bias` for all four projections."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias, mlp_bias=f.flag("mlp_bias"))


def biased(f: "Fields", b: "Blueprint") -> None:
    """InternLM 1 and openPangu Embedded: Llama's names, and one `bias` for all four projections (configuration_internlm.py of its repository: true where absent)."""
    bias = f.flag("bias", default=True)
    decoder.simple(f, b, bias=bias, o_bias=bias)


def mistral(f: "Fields", b: "Blueprint") -> None:
    """Mistral: no bias; every layer slides where a window is set."""
    decoder.simple(f, b, rule=kinds.all_sliding)


def qwen2(f: "Fields", b: "Blueprint") -> None:
    """Qwen2 and 2.5: bias on query, key and value, none on the output."""
    decoder.simple(f, b, rule=kinds.tail_sliding, bias=True)


def mimo(f: "Fields", b: "Blueprint") -> None:
    """MiMo 7B: Qwen2, and layers for prediction that read the last state and the next token side by side (modeling_mimo.py of its repository, `MiMoMTPLayers`)."""
    bias = f.flag("attention_bias", default=True)
    decoder.simple(f, b, rule=kinds.tail_sliding, bias=bias)
    count, inner = f.maybe("num_nextn_predict_layers", 0, 64) or 0, f.whole("intermediate_size")
    b.draft_layers, b.tower = count, "draft"
    for index in range(count):
        p = f"model.mtp_layers.{index}."
        for name in (*decoder.NORMS, "token_layernorm", "hidden_layernorm", "final_layernorm"):
            b.norm(p + name, b.width)
        b.linear(p + "input_proj", "other", 2 * b.width, b.width)
        blocks.gqa(b, p + "self_attn.", b.width, blocks.attention(f, b.width), bias=bias)
        blocks.gated_mlp(b, p + "mlp.", b.width, inner)
    b.tower = "text"


def qwen3(f: "Fields", b: "Blueprint") -> None:
    """Qwen3: norms of one head's width on query and key."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, rule=kinds.tail_sliding, bias=bias, o_bias=bias, qk_norm="head")


def qwen3_vl(f: "Fields", b: "Blueprint") -> None:
    """The text half of Qwen3-VL: Qwen3, never sliding."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias, qk_norm="head")


def gemma(f: "Fields", b: "Blueprint") -> None:
    """Gemma 1."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias)


def gemma2(f: "Fields", b: "Blueprint") -> None:
    """Gemma 2: four norms a layer, every second layer full."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, rule=lambda _f, n: kinds.every(n, 2, kinds.FULL, kinds.SLIDING), bias=bias, o_bias=bias, norms=SANDWICH)


def gemma3(f: "Fields", b: "Blueprint") -> None:
    """Gemma 3: norms on query and key; every `sliding_window_pattern`-th (6th) layer full."""
    bias = f.flag("attention_bias")

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        period = f.maybe("sliding_window_pattern", 0, 1 << 16)
        return kinds.every(n, 6 if period is None else period, kinds.FULL, kinds.SLIDING)

    decoder.simple(f, b, rule=rule, bias=bias, o_bias=bias, qk_norm="head", norms=SANDWICH)


def phi3(f: "Fields", b: "Blueprint") -> None:
    """Phi-3 and Phi-4: query, key and value in one matrix, gate and up in one."""
    width, layers = decoder.begin(f, b)
    inner, types = f.whole("intermediate_size"), kinds.all_sliding(f, layers)

    def attend(p: str, index: int) -> Attention:
        a = blocks.attention(f, width, types[index], kinds.window_of(f))
        return blocks.fused_qkv(b, p + "self_attn.", width, a, qkv="qkv_proj", o="o_proj")

    decoder.stack(b, layers, attend, lambda p, _i: blocks.fused_mlp(b, p + "mlp.", width, inner))
    decoder.end(b)


def glm(f: "Fields", b: "Blueprint") -> None:
    """GLM-4-9B (glm): bias on query, key and value; gate and up in one matrix."""
    _glm(f, b, decoder.NORMS)


def glm4(f: "Fields", b: "Blueprint") -> None:
    """GLM-4-0414: as glm with norms behind both blocks too."""
    _glm(f, b, (*decoder.NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"))


def glm4v(f: "Fields", b: "Blueprint") -> None:
    """The text half of GLM-4.1V: glm4 with biases always."""
    _glm(f, b, (*decoder.NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"), always=True)


def _glm(f: "Fields", b: "Blueprint", norms: tuple[str, ...], *, always: bool = False) -> None:
    width, layers = decoder.begin(f, b)
    inner, bias = f.whole("intermediate_size"), always or f.flag("attention_bias")

    def attend(p: str, _index: int) -> Attention:
        return blocks.gqa(b, p + "self_attn.", width, blocks.attention(f, width), bias=bias)

    decoder.stack(b, layers, attend, lambda p, _i: blocks.fused_mlp(b, p + "mlp.", width, inner), norms=norms)
    decoder.end(b)


def olmo(f: "Fields", b: "Blueprint") -> None:
    """OLMo 1: norms without parameters."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias, norm="none")


def olmo2(f: "Fields", b: "Blueprint") -> None:
    """OLMo 2: norms over all heads together, and behind the blocks rather than before."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias, qk_norm="width", norms=AFTER)


def olmo3(f: "Fields", b: "Blueprint") -> None:
    """OLMo 3: OLMo 2 with every fourth layer full and the others sliding."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, rule=_fourth_full, bias=bias, o_bias=bias, qk_norm="width", norms=AFTER)


def _fourth_full(_f: "Fields", n: int) -> tuple[str, ...]:
    return kinds.every(n, 4, kinds.FULL, kinds.SLIDING)


def cohere(f: "Fields", b: "Blueprint") -> None:
    """Command R: one norm without bias a layer, blocks side by side; norms of its own for every head where `use_qk_norm` is set."""
    _cohere(f, b, None, per_head=f.flag("use_qk_norm"))


def cohere2(f: "Fields", b: "Blueprint") -> None:
    """Command R7B and A: as Command R, every `sliding_window_pattern`-th (4th) layer full."""

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        period = f.maybe("sliding_window_pattern", 0, 1 << 16)
        return kinds.every(n, 4 if period is None else period, kinds.FULL, kinds.SLIDING)

    _cohere(f, b, rule, per_head=False)


def _cohere(f: "Fields", b: "Blueprint", rule: "decoder.Rule | None", *, per_head: bool) -> None:
    width, layers = decoder.begin(f, b)
    types, window = decoder.layer_kinds(f, layers, rule)
    inner, bias = f.whole("intermediate_size"), f.flag("attention_bias")

    def attend(p: str, index: int) -> Attention:
        a = blocks.attention(f, width, types[index], window)
        blocks.gqa(b, p + "self_attn.", width, a, bias=bias, o_bias=bias)
        if per_head:
            b.vector(p + "self_attn.q_norm.weight", "norm", a.key_dim, a.heads, op="norm")
            b.vector(p + "self_attn.k_norm.weight", "norm", a.key_dim, a.kv_heads, op="norm")
        return a

    decoder.stack(b, layers, attend, lambda p, _i: blocks.gated_mlp(b, p + "mlp.", width, inner), norms=("input_layernorm",))
    decoder.end(b)


def exaone4(f: "Fields", b: "Blueprint") -> None:
    """EXAONE 4: norms on query and key and behind the blocks; every `sliding_window_pattern`-th layer full where a window is set."""

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        if not kinds.window_of(f):
            return (kinds.FULL,) * n
        return kinds.by_letters(f, n) or kinds.every(n, f.whole("sliding_window_pattern", 0, 1 << 16), kinds.FULL, kinds.SLIDING)

    decoder.simple(f, b, rule=rule, qk_norm="head", norms=AFTER)


def smollm3(f: "Fields", b: "Blueprint") -> None:
    """SmolLM3: layers without rotary positions slide where `use_sliding_window` is set."""

    def rule(f: "Fields", n: int) -> tuple[str, ...]:
        if not f.flag("use_sliding_window") or not kinds.window_of(f):
            return (kinds.FULL,) * n
        rotary = f.wholes("no_rope_layers", n, 0, 1)
        period = f.maybe("no_rope_layer_interval", 1, 1 << 16) or 4
        return tuple(kinds.FULL if (rotary[i] if rotary else (i + 1) % period) else kinds.SLIDING for i in range(n))

    bias = f.flag("attention_bias")
    decoder.simple(f, b, rule=rule, bias=bias, o_bias=bias, mlp_bias=f.flag("mlp_bias"))


def ernie(f: "Fields", b: "Blueprint") -> None:
    """ERNIE 4.5: one `use_bias` for everything."""
    bias = f.flag("use_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias, mlp_bias=bias)


def hunyuan(f: "Fields", b: "Blueprint") -> None:
    """Hunyuan dense: norms on query and key under names of its own."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias, qk_norm="head", norm_names=("query_layernorm", "key_layernorm"))


def seed_oss(f: "Fields", b: "Blueprint") -> None:
    """Seed-OSS: the output's bias has a field of its own."""
    decoder.simple(f, b, bias=f.flag("attention_bias"), o_bias=f.flag("attention_out_bias"), mlp_bias=f.flag("mlp_bias"))


def arcee(f: "Fields", b: "Blueprint") -> None:
    """Arcee (AFM): up and down only."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias, mlp_bias=f.flag("mlp_bias"), mlp_names=("up_proj", "down_proj"))


def nemotron(f: "Fields", b: "Blueprint") -> None:
    """Nemotron 3 and 4, Minitron: LayerNorm, up and down only."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias, mlp_bias=f.flag("mlp_bias"), mlp_names=("up_proj", "down_proj"), norm="layer")


def helium(f: "Fields", b: "Blueprint") -> None:
    """Helium: Llama whose output projection has no bias and always `hidden_size` inputs (modeling_helium.py): other heads than that fills cannot run."""
    decoder.simple(f, b, bias=f.flag("attention_bias"), mlp_bias=f.flag("mlp_bias"))
    b.weights = [row.replace(dims=(b.width, b.width), elements=b.width**2, active=b.width**2) if row.role == "o" else row for row in b.weights]
    a = next(layer.attention for layer in b.layers)
    if a is not None and a.heads * a.value_dim != b.width:
        b.unusual.append("num_attention_heads × head_dim is not hidden_size, which the output projection of this family needs: the model cannot run")


def cwm(f: "Fields", b: "Blueprint") -> None:
    """CWM: every fourth layer, counted from the first, is full."""
    decoder.simple(f, b, rule=_first_full, mlp_bias=f.flag("mlp_bias"))


def vaultgemma(f: "Fields", b: "Blueprint") -> None:
    """VaultGemma: Gemma 2 with norms before the blocks only."""
    bias = f.flag("attention_bias")
    norms = ("input_layernorm", "pre_feedforward_layernorm")
    decoder.simple(f, b, rule=lambda _f, n: kinds.every(n, 2, kinds.FULL, kinds.SLIDING), bias=bias, o_bias=bias, norms=norms)


def apertus(f: "Fields", b: "Blueprint") -> None:
    """Apertus: up and down, with a learned activation (xIELU) in between."""
    width, inner, bias = f.whole("hidden_size"), f.whole("intermediate_size"), f.flag("attention_bias")

    def feed(p: str, _index: int) -> FeedForward:
        for name in ("alpha_p", "alpha_n"):
            b.vector(f"{p}mlp.act_fn.{name}", "other", 1)
        for name in ("beta", "eps"):
            b.vector(f"{p}mlp.act_fn.{name}", "other", op="buffer")
        return blocks.plain_mlp(b, p + "mlp.", width, inner, bias=f.flag("mlp_bias"), names=("up_proj", "down_proj"))

    norms = ("attention_layernorm", "feedforward_layernorm")
    decoder.simple(f, b, bias=bias, o_bias=bias, qk_norm="head", norms=norms, feed=feed)


def bitnet(f: "Fields", b: "Blueprint") -> None:
    """BitNet b1.58: a norm inside each block."""
    width, layers = decoder.begin(f, b)
    inner, bias = f.whole("intermediate_size"), f.flag("attention_bias")

    def attend(p: str, _index: int) -> Attention:
        b.norm(p + "self_attn.attn_sub_norm", width)
        return blocks.gqa(b, p + "self_attn.", width, blocks.attention(f, width), bias=bias, o_bias=bias)

    def feed(p: str, _index: int) -> FeedForward:
        b.norm(p + "mlp.ffn_sub_norm", inner)
        return blocks.gated_mlp(b, p + "mlp.", width, inner)

    decoder.stack(b, layers, attend, feed)
    decoder.end(b)


def latent_dense(f: "Fields", b: "Blueprint") -> None:
    """MiniCPM3 and Youtu: latent attention over plain feed-forward blocks."""
    width, layers = decoder.begin(f, b)
    inner, bias = f.whole("intermediate_size"), f.flag("attention_bias")
    a = blocks.latent_dims(f, value_dim=width // (f.maybe("num_attention_heads", 1) or 1))
    feed_bias = f.flag("mlp_bias")
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.mla(b, p + "self_attn.", width, a, bias=bias),
        lambda p, _i: blocks.gated_mlp(b, p + "mlp.", width, inner, bias=feed_bias),
    )
    decoder.end(b)


def minicpm(f: "Fields", b: "Blueprint") -> None:
    """MiniCPM 1 and 2: Llama's tensors; its own code ties the embedding unless the file says otherwise."""
    decoder.simple(f, b, bias=f.flag("attention_bias"), o_bias=f.flag("attention_bias"), tied=f.raw("tie_word_embeddings") is not False)


def hyperclovax(f: "Fields", b: "Blueprint") -> None:
    """HyperCLOVA X: Llama with norms behind both blocks where `use_post_norm` is set."""
    bias = f.flag("attention_bias")
    norms = (*decoder.NORMS, "post_norm1", "post_norm2") if f.flag("use_post_norm") else decoder.NORMS
    decoder.simple(f, b, bias=bias, o_bias=bias, mlp_bias=f.flag("mlp_bias"), norms=norms)


def granite_swa(f: "Fields", b: "Blueprint") -> None:
    """Granite with sliding layers and sinks; every fourth layer, counted from the first, is full."""
    width, layers = decoder.begin(f, b)
    attend = decoder.grouped(f, b, width, layers, _first_full, bias=f.flag("attention_bias"), o_bias=f.flag("attention_bias"))
    inner, bias = f.whole("intermediate_size"), f.flag("mlp_bias")

    def sunk(p: str, index: int) -> Attention:
        a = attend(p, index)
        b.vector(p + "self_attn.sinks", "other", a.heads)
        return a

    decoder.stack(b, layers, sunk, lambda p, _i: blocks.gated_mlp(b, p + "mlp.", width, inner, bias=bias))
    decoder.end(b)


def _first_full(_f: "Fields", n: int) -> tuple[str, ...]:
    return tuple(kinds.SLIDING if index % 4 else kinds.FULL for index in range(n))


def mllama(f: "Fields", b: "Blueprint") -> None:
    """The text half of Llama 3.2 Vision: in the layers of `cross_attention_layers` the text looks at the picture; eight words more in the embedding.

    The head has no such words, so it is never the embedding again, whatever the file says (modeling_mllama.py ties nothing).
    """
    width, layers = decoder.begin(f, b, "")
    b.tied = False
    b.table("model.embed_tokens", b.vocabulary + 8, width)
    inner = f.whole("intermediate_size")
    crossed = f.indices("cross_attention_layers", layers) if f.has("cross_attention_layers") else frozenset((3, 8, 13, 18, 23, 28, 33, 38))
    a = blocks.attention(f, width)
    for index in range(layers):
        b.layer, p = index, f"model.layers.{index}."
        for name in decoder.NORMS:
            b.norm(p + name, width)
        if index in crossed:
            blocks.gqa(b, p + "cross_attn.", width, a, qk_norm="head")
            b.vector(p + "cross_attn_attn_gate", "other", 1)
            b.vector(p + "cross_attn_mlp_gate", "other", 1)
        else:
            blocks.gqa(b, p + "self_attn.", width, a)
        fed = blocks.gated_mlp(b, p + "mlp.", width, inner)
        b.draw(
            Layer(
                index=index,
                attention=None if index in crossed else a,
                cross=a.replace(kind="cross") if index in crossed else None,
                feed_forward=fed,
            )
        )
    decoder.end(b)
