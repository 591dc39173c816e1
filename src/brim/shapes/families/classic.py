"""Decoders of the LayerNorm years, and those that kept their habits: learned positions, biases everywhere, blocks side by side.

Rules: transformers 5.24, models/<family>/configuration_<family>.py and modeling_<family>.py.
"""

from brim.facts.model import Attention, FeedForward
from brim.shapes import blocks, kinds
from brim.shapes.families import decoder
from brim.shapes.fields import MAX_HEADS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

LN = ("ln_1", "ln_2")


def _plain(heads: int, kv_heads: int, dim: int, window: int = 0) -> Attention:
    return Attention(kind="sliding" if window else "full", heads=heads, kv_heads=kv_heads, key_dim=dim, value_dim=dim, window=window)


def gpt2(f: "Fields", b: "Blueprint") -> None:
    """GPT-2: learned positions, LayerNorm, matrices stored the other way round (Conv1D)."""
    width, layers = decoder.begin(f, b, "")
    b.context = f.whole("max_position_embeddings", 1, 1 << 24)
    inner = f.maybe("n_inner", 1) or 4 * width
    b.table("transformer.wte", b.vocabulary, width)
    b.table("transformer.wpe", b.context, width, "position")
    a = blocks.attention(f, width)

    def matrix(name: str, role: str, inputs: int, outputs: int) -> None:
        b.add(name + ".weight", (outputs, inputs), role, "transposed")
        b.add(name + ".bias", (outputs,), role, "bias")

    def attend(p: str, _index: int) -> Attention:
        matrix(p + "attn.c_attn", "qkv", width, 3 * width)
        matrix(p + "attn.c_proj", "o", width, width)
        return a

    def feed(p: str, _index: int) -> FeedForward:
        matrix(p + "mlp.c_fc", "up", width, inner)
        matrix(p + "mlp.c_proj", "down", inner, width)
        return FeedForward(kind="dense", width=inner, gated=False)

    decoder.stack(b, layers, attend, feed, at="transformer.h.{}.", norms=("ln_1", "ln_2"), norm="layer")
    decoder.end(b, final="transformer.ln_f", norm="layer")


def gpt_bigcode(f: "Fields", b: "Blueprint") -> None:
    """StarCoder 1, SantaCoder: GPT-2 with ordinary matrices and, by `multi_query`, one key/value head."""
    width, layers = decoder.begin(f, b, "transformer.wte")
    b.table("transformer.wpe", f.whole("max_position_embeddings", 1, 1 << 24), width, "position")
    heads, inner = f.whole("num_attention_heads", 1, MAX_HEADS), f.maybe("n_inner", 1) or 4 * width
    f.divides("num_attention_heads", "hidden_size", heads, width)
    a = _plain(heads, 1 if f.flag("multi_query") else heads, width // (heads or 1))
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.fused_qkv(b, p + "attn.", width, a, qkv="c_attn", o="c_proj", bias=True, o_bias=True),
        lambda p, _i: blocks.plain_mlp(b, p + "mlp.", width, inner, names=("c_fc", "c_proj")),
        at="transformer.h.{}.",
        norms=LN,
        norm="layer",
    )
    decoder.end(b, final="transformer.ln_f", norm="layer")


def gptj(f: "Fields", b: "Blueprint") -> None:
    """GPT-J: one norm a layer, a head with a bias."""
    width, layers = decoder.begin(f, b, "transformer.wte")
    inner = f.maybe("n_inner", 1) or 4 * width
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.gqa(b, p + "attn.", width, blocks.attention(f, width), names=names),
        lambda p, _i: blocks.plain_mlp(b, p + "mlp.", width, inner, names=("fc_in", "fc_out")),
        at="transformer.h.{}.",
        norms=LN[:1],
        norm="layer",
    )
    decoder.end(b, final="transformer.ln_f", norm="layer", head_bias=True)


def codegen(f: "Fields", b: "Blueprint") -> None:
    """CodeGen: GPT-J with query, key and value in one matrix."""
    width, layers = decoder.begin(f, b, "transformer.wte")
    inner = f.maybe("n_inner", 1) or 4 * width
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.fused_qkv(b, p + "attn.", width, blocks.attention(f, width), qkv="qkv_proj", o="out_proj"),
        lambda p, _i: blocks.plain_mlp(b, p + "mlp.", width, inner, names=("fc_in", "fc_out")),
        at="transformer.h.{}.",
        norms=LN[:1],
        norm="layer",
    )
    decoder.end(b, final="transformer.ln_f", norm="layer", head_bias=True)


def gpt_neo(f: "Fields", b: "Blueprint") -> None:
    """GPT-Neo: `attention_types` repeats a pattern of global and local layers."""
    width, layers = decoder.begin(f, b, "transformer.wte")
    b.table("transformer.wpe", f.whole("max_position_embeddings", 1, 1 << 24), width, "position")
    heads, inner = f.whole("num_attention_heads", 1, MAX_HEADS), f.maybe("intermediate_size", 1) or 4 * width
    f.divides("num_attention_heads", "hidden_size", heads, width)
    window, types = f.maybe("window_size", 0, 1 << 30) or 0, _neo_types(f, layers)
    names = ("q_proj", "k_proj", "v_proj", "out_proj")

    def attend(p: str, index: int) -> Attention:
        a = _plain(heads, heads, width // (heads or 1), window if types[index] == "local" else 0)
        return blocks.gqa(b, p + "attn.attention.", width, a, names=names, o_bias=True)

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.plain_mlp(b, p + "mlp.", width, inner, names=("c_fc", "c_proj"))

    decoder.stack(b, layers, attend, feed, at="transformer.h.{}.", norms=LN, norm="layer")
    decoder.end(b, final="transformer.ln_f", norm="layer")


def _neo_types(f: "Fields", layers: int) -> tuple[str, ...]:
    kinds_of: list[str] = []
    given = f.raw("attention_types")
    if given is None:  # transformers 5.24, configuration_gpt_neo.py: the default is twelve such pairs
        given = [[["global", "local"], 12]]
    for item in given if isinstance(given, (list, tuple)) else (given,):
        if not isinstance(item, (list, tuple)) or len(item) != 2 or not isinstance(item[0], (list, tuple)):
            raise f.bad("attention_types", "must be a list of [kinds, times] pairs")
        times = f.checked("attention_types", item[1], 1, 4096)
        if len(item[0]) * times + len(kinds_of) > layers:
            raise f.bad("attention_types", f"gives more entries than the {layers} layers")
        kinds_of.extend([str(kind) for kind in item[0]] * times)
    if len(kinds_of) != layers:
        raise f.bad("attention_types", f"gives {len(kinds_of)} entries for {layers} layers")
    return tuple(kinds_of)


def gpt_neox(f: "Fields", b: "Blueprint") -> None:
    """GPT-NeoX, Pythia."""
    width, layers = decoder.begin(f, b, "gpt_neox.embed_in")
    inner, bias = f.whole("intermediate_size"), f.flag("attention_bias")
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.fused_qkv(b, p + "attention.", width, blocks.attention(f, width), qkv="query_key_value", o="dense", bias=bias, o_bias=bias),
        lambda p, _i: blocks.plain_mlp(b, p + "mlp.", width, inner, names=("dense_h_to_4h", "dense_4h_to_h")),
        at="gpt_neox.layers.{}.",
        norm="layer",
    )
    decoder.end(b, final="gpt_neox.final_layer_norm", norm="layer", head="embed_out")


def bloom(f: "Fields", b: "Blueprint") -> None:
    """BLOOM: a norm behind the embedding."""
    width, layers = decoder.begin(f, b, "transformer.word_embeddings")
    b.norm("transformer.word_embeddings_layernorm", width, "layer")
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.fused_qkv(b, p + "self_attention.", width, blocks.attention(f, width), qkv="query_key_value", o="dense", bias=True, o_bias=True),
        lambda p, _i: blocks.plain_mlp(b, p + "mlp.", width, 4 * width, names=("dense_h_to_4h", "dense_4h_to_h")),
        at="transformer.h.{}.",
        norm="layer",
    )
    decoder.end(b, final="transformer.ln_f", norm="layer")


def falcon(f: "Fields", b: "Blueprint") -> None:
    """Falcon 1: one key/value head by `multi_query`, grouped ones in the new architecture; one or two norms before parallel blocks."""
    width, layers = decoder.begin(f, b, "transformer.word_embeddings")
    heads, bias, new = f.whole("num_attention_heads", 1, MAX_HEADS), f.flag("bias"), f.flag("new_decoder_architecture")
    f.divides("num_attention_heads", "hidden_size", heads, width)
    inner = f.maybe("ffn_hidden_size", 1) or 4 * width
    kv_heads = f.maybe("num_kv_heads", 1, MAX_HEADS) or heads
    if not new:
        kv_heads = 1 if f.flag("multi_query") else heads
    f.divides("num_kv_heads", "num_attention_heads", kv_heads, heads)
    parallel = f.flag("parallel_attn")
    pair = f.maybe("num_ln_in_parallel_attn", 1, 2)
    if pair is None:
        pair = 2 if new else 1
    norms = decoder.NORMS if not parallel else ("ln_attn", "ln_mlp") if new and pair == 2 else ("input_layernorm",)
    a = _plain(heads, kv_heads, width // (heads or 1))
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.fused_qkv(b, p + "self_attention.", width, a, qkv="query_key_value", o="dense", bias=bias, o_bias=bias),
        lambda p, _i: blocks.plain_mlp(b, p + "mlp.", width, inner, bias=bias, names=("dense_h_to_4h", "dense_4h_to_h")),
        at="transformer.h.{}.",
        norms=norms,
        norm="layer",
    )
    decoder.end(b, final="transformer.ln_f", norm="layer")


def refined_web(f: "Fields", b: "Blueprint") -> None:
    """Falcon 40B as first published (`RWForCausalLM` with `n_head_kv`, configuration_RW.py of its repository): the new architecture, which it does not name."""
    f.defaults = {"new_decoder_architecture": True, "parallel_attn": True, "tie_word_embeddings": True}
    falcon(f, b)


def refined_web_model(f: "Fields", b: "Blueprint") -> None:
    """Falcon 7B as first published: one key/value head by `multi_query`."""
    f.defaults = {"tie_word_embeddings": True}
    falcon(f, b)


def mpt(f: "Fields", b: "Blueprint") -> None:
    """MPT: no biases, norms without bias; the attention's own fields stand in `attn_config`."""
    width, layers = decoder.begin(f, b, "transformer.wte")
    heads, ratio = f.whole("num_attention_heads", 1, MAX_HEADS), f.whole("expansion_ratio", 1, 64)
    f.divides("num_attention_heads", "hidden_size", heads, width)
    a = _plain(heads, heads, width // (heads or 1))
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.fused_qkv(b, p + "attn.", width, a, qkv="Wqkv", o="out_proj"),
        lambda p, _i: blocks.plain_mlp(b, p + "ffn.", width, ratio * width, bias=False, names=("up_proj", "down_proj")),
        at="transformer.blocks.{}.",
        norms=("norm_1", "norm_2"),
        norm="bare",
    )
    decoder.end(b, final="transformer.norm_f", norm="bare")


def opt(f: "Fields", b: "Blueprint") -> None:
    """OPT: positions start at two, an embedding may be narrower than the model."""
    width, layers = decoder.begin(f, b, "")
    bias, narrow, inner = f.flag("enable_bias"), f.maybe("word_embed_proj_dim", 1) or width, f.whole("ffn_dim")
    norm = "layer" if f.flag("layer_norm_elementwise_affine") else "none"
    root, names = "model.decoder.", ("q_proj", "k_proj", "v_proj", "out_proj")
    b.table(root + "embed_tokens", b.vocabulary, narrow)
    b.table(root + "embed_positions", f.whole("max_position_embeddings", 1, 1 << 24) + 2, width, "position")
    if narrow != width:
        b.linear(root + "project_in", "other", narrow, width)
        b.linear(root + "project_out", "other", width, narrow)
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.gqa(b, p + "self_attn.", width, blocks.attention(f, width), bias=bias, o_bias=bias, names=names),
        lambda p, _i: blocks.plain_mlp(b, p, width, inner, bias=bias),
        at=root + "layers.{}.",
        norms=("self_attn_layer_norm", "final_layer_norm"),
        norm=norm,
    )
    final = f.flag("do_layer_norm_before") and not f.flag("_remove_final_layer_norm")
    b.layer, b.width = None, width
    if final:
        b.norm(root + "final_layer_norm", width, norm)
    if not b.tied:
        b.linear("lm_head", "lm_head", narrow, b.vocabulary)


def phi(f: "Fields", b: "Blueprint") -> None:
    """Phi 1, 1.5 and 2: one norm before parallel blocks, biases everywhere, a head with a bias."""
    width, layers = decoder.begin(f, b)
    inner, names = f.whole("intermediate_size"), ("q_proj", "k_proj", "v_proj", "dense")
    norms = f.flag("qk_layernorm")

    def attend(p: str, _index: int) -> Attention:
        a = blocks.gqa(b, p + "self_attn.", width, blocks.attention(f, width), bias=True, o_bias=True, names=names)
        for name in ("q_layernorm", "k_layernorm") if norms else ():
            b.norm(f"{p}self_attn.{name}", a.key_dim, "layer")
        return a

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.plain_mlp(b, p + "mlp.", width, inner)

    decoder.stack(b, layers, attend, feed, norms=("input_layernorm",), norm="layer")
    decoder.end(b, final="model.final_layernorm", norm="layer", head_bias=True)


def persimmon(f: "Fields", b: "Blueprint") -> None:
    """Persimmon (and the text half of Fuyu)."""
    width, layers = decoder.begin(f, b)
    inner, norms = f.whole("intermediate_size"), f.flag("qk_layernorm")
    heads = f.whole("num_attention_heads", 1, MAX_HEADS)
    f.divides("num_attention_heads", "hidden_size", heads, width)
    a = _plain(heads, heads, width // (heads or 1))

    def attend(p: str, _index: int) -> Attention:
        for name in ("q_layernorm", "k_layernorm") if norms else ():
            b.norm(f"{p}self_attn.{name}", a.key_dim, "layer")
        return blocks.fused_qkv(b, p + "self_attn.", width, a, qkv="query_key_value", o="dense", bias=True, o_bias=True)

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.plain_mlp(b, p + "mlp.", width, inner, names=("dense_h_to_4h", "dense_4h_to_h"))

    decoder.stack(b, layers, attend, feed, norm="layer")
    decoder.end(b, final="model.final_layernorm", norm="layer")


def starcoder2(f: "Fields", b: "Blueprint") -> None:
    """StarCoder 2: LayerNorm, up and down, one `use_bias` for all; every layer slides where a window is set."""
    bias = f.flag("use_bias")
    decoder.simple(f, b, rule=kinds.all_sliding, bias=bias, o_bias=bias, mlp_bias=bias, mlp_names=("c_fc", "c_proj"), norm="layer")


def stablelm(f: "Fields", b: "Blueprint") -> None:
    """StableLM 2: LayerNorm; a norm for every single head where `qk_layernorm` is set; one norm a layer where blocks are parallel."""
    width, layers = decoder.begin(f, b)
    inner, bias, norms = f.whole("intermediate_size"), f.flag("use_qkv_bias"), f.flag("qk_layernorm")

    def attend(p: str, _index: int) -> Attention:
        a = blocks.gqa(b, p + "self_attn.", width, blocks.attention(f, width), bias=bias)
        for name, count in (("q_layernorm", a.heads), ("k_layernorm", a.kv_heads)) if norms else ():
            for head in range(count):
                b.norm(f"{p}self_attn.{name}.norms.{head}", a.key_dim, "bare")
        return a

    def feed(p: str, _index: int) -> FeedForward:
        return blocks.gated_mlp(b, p + "mlp.", width, inner)

    decoder.stack(b, layers, attend, feed, norms=decoder.NORMS[: 1 if f.flag("use_parallel_residual") else 2], norm="layer")
    decoder.end(b, norm="layer")


def jais2(f: "Fields", b: "Blueprint") -> None:
    """Jais 2: LayerNorm, biases, up and down only."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias, mlp_bias=f.flag("mlp_bias"), mlp_names=("up_proj", "down_proj"), norm="layer")


def nanochat(f: "Fields", b: "Blueprint") -> None:
    """nanochat: norms without parameters, up and down only."""
    bias = f.flag("attention_bias")
    decoder.simple(f, b, bias=bias, o_bias=bias, mlp_names=("fc1", "fc2"), norm="none")


def exaone(f: "Fields", b: "Blueprint") -> None:
    """EXAONE 3 and 3.5: Llama's blocks under GPT-2's names."""
    width, layers = decoder.begin(f, b, "transformer.wte")
    inner, bias, names = f.whole("intermediate_size"), f.flag("attention_bias"), ("q_proj", "k_proj", "v_proj", "out_proj")
    feed_bias = f.flag("mlp_bias")
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.gqa(b, p + "attn.attention.", width, blocks.attention(f, width), names=names, bias=bias, o_bias=bias),
        lambda p, _i: blocks.gated_mlp(b, p + "mlp.", width, inner, names=("c_fc_0", "c_fc_1", "c_proj"), bias=feed_bias),
        at="transformer.h.{}.",
        norms=LN,
    )
    decoder.end(b, final="transformer.ln_f")
