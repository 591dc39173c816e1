"""Families whose code came with their repositories: older Chinese decoders and their kin, by the names of their published files.

No oracle in transformers; the totals are held against the counts that the hub shows for the published files (tests/unit/test_shapes.py).
"""

from brim.facts.model import Attention
from brim.shapes import blocks
from brim.shapes.families import decoder
from brim.shapes.fields import MAX_HEADS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields


def internlm2(f: "Fields", b: "Blueprint") -> None:
    """InternLM 2 and 2.5: query, key and value in one matrix, `output` for the head."""
    width, layers = decoder.begin(f, b, "model.tok_embeddings")
    inner, bias = f.whole("intermediate_size"), f.flag("bias")
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.fused_qkv(b, p + "attention.", width, blocks.attention(f, width), qkv="wqkv", o="wo", bias=bias, o_bias=bias),
        lambda p, _i: blocks.gated_mlp(b, p + "feed_forward.", width, inner, names=("w1", "w3", "w2")),
        norms=("attention_norm", "ffn_norm"),
    )
    decoder.end(b, head="output")


def baichuan(f: "Fields", b: "Blueprint") -> None:
    """Baichuan 1 and 2: query, key and value packed in `W_pack`."""
    width, layers = decoder.begin(f, b)
    inner = f.whole("intermediate_size")
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.fused_qkv(b, p + "self_attn.", width, blocks.attention(f, width), qkv="W_pack", o="o_proj"),
        lambda p, _i: blocks.gated_mlp(b, p + "mlp.", width, inner),
    )
    decoder.end(b)


def qwen(f: "Fields", b: "Blueprint") -> None:
    """Qwen 1: GPT-2's names, a gated block half as wide as `intermediate_size` says."""
    width, layers = decoder.begin(f, b, "transformer.wte")
    heads, each, inner = f.whole("num_attention_heads", 1, MAX_HEADS), f.whole("kv_channels"), f.whole("intermediate_size", 2) // 2
    a = Attention(kind="full", heads=heads, kv_heads=heads, key_dim=each, value_dim=each)
    bare = f.raw("no_bias") is not False
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.fused_qkv(b, p + "attn.", width, a, qkv="c_attn", o="c_proj", bias=True, o_bias=not bare),
        lambda p, _i: blocks.gated_mlp(b, p + "mlp.", width, inner, names=("w1", "w2", "c_proj"), bias=not bare),
        at="transformer.h.{}.",
        norms=("ln_1", "ln_2"),
    )
    decoder.end(b, final="transformer.ln_f")


def chatglm(f: "Fields", b: "Blueprint") -> None:
    """ChatGLM 2, 3 and GLM-4-9B as first published: fields and names of Megatron."""
    b.width, b.vocabulary, layers = f.whole("hidden_size"), f.whole("padded_vocab_size", 1, 1 << 27), f.layers("num_layers")
    b.context, b.tied, width = f.maybe("seq_length", 1, 1 << 40), f.flag("tie_word_embeddings"), b.width
    heads, each, inner = f.whole("num_attention_heads", 1, MAX_HEADS), f.whole("kv_channels"), f.whole("ffn_hidden_size")
    kv_heads = f.whole("multi_query_group_num", 1, MAX_HEADS) if f.flag("multi_query_attention") else heads
    f.divides("multi_query_group_num", "num_attention_heads", kv_heads, heads)
    bias = f.flag("add_bias_linear")
    a = Attention(kind="full", heads=heads, kv_heads=kv_heads, key_dim=each, value_dim=each)
    b.table("transformer.embedding.word_embeddings", b.vocabulary, width)
    b.vector("transformer.rotary_pos_emb.inv_freq", "position", each // 4, op="buffer")
    names, qkv_bias = ("dense_h_to_4h", "dense_4h_to_h"), bias or f.flag("add_qkv_bias")
    decoder.stack(
        b,
        layers,
        lambda p, _i: blocks.fused_qkv(b, p + "self_attention.", width, a, qkv="query_key_value", o="dense", bias=qkv_bias, o_bias=bias),
        lambda p, _i: blocks.fused_mlp(b, p + "mlp.", width, inner, names=names, bias=bias),
        at="transformer.encoder.layers.{}.",
    )
    decoder.end(b, final="transformer.encoder.final_layernorm", head="transformer.output_layer")
