"""Encoder–decoders: T5, BART and its kin, and Whisper; the decoder's layers keep a cache of their own and one over the encoder's output.

Rules: transformers 5.24, models/t5, bart, mbart, pegasus, blenderbot, marian, m2m_100 and whisper.
"""

from brim.facts.model import Attention, FeedForward, Layer
from brim.shapes.fields import MAX_HEADS, MAX_LAYERS
from brim.shapes.heads import architecture_of, labels_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields


def t5(f: "Fields", b: "Blueprint") -> None:
    """T5, Flan-T5, mT5: relative positions in the first layer of each half, gated where `feed_forward_proj` says so."""
    _t5(f, b, everywhere=False)


def umt5(f: "Fields", b: "Blueprint") -> None:
    """UMT5: relative positions in every layer."""
    _t5(f, b, everywhere=True)


def _t5(f: "Fields", b: "Blueprint", *, everywhere: bool) -> None:
    b.width = b.encoder_width = f.whole("d_model")
    b.vocabulary, heads, each = f.whole("vocab_size", 1, 1 << 27), f.whole("num_heads", 1, MAX_HEADS), f.whole("d_kv")
    layers = f.layers("num_layers")
    b.tied = f.flag("tie_word_embeddings")
    a = Attention(kind="full", heads=heads, kv_heads=heads, key_dim=each, value_dim=each)
    top = architecture_of(f.values)
    b.root = "transformer." if top.endswith(("ForSequenceClassification", "ForTokenClassification")) else ""
    b.table("shared", b.vocabulary, b.width)
    _t5_half(f, b, "encoder", layers, a, cross=False, everywhere=everywhere)
    if top.endswith(("EncoderModel", "ForTokenClassification")):
        b.unusual.append("the encoder alone")
        b.root = ""
        if not top.endswith("EncoderModel"):
            b.linear("classifier", "classifier", b.width, labels_of(f), bias=True)
        return
    _t5_half(f, b, "decoder", f.maybe("num_decoder_layers", 1, MAX_LAYERS) or layers, a, cross=True, everywhere=everywhere)
    b.layer, b.root = None, ""
    if not _other_head(f, b, top) and not b.tied and not top.endswith("Model"):
        b.linear("lm_head", "lm_head", b.width, b.vocabulary)


def _other_head(f: "Fields", b: "Blueprint", top: str) -> bool:
    """Draws what a classifier or a question answerer has in place of a language-model head; False where the class is neither."""
    if top.endswith("ForSequenceClassification"):
        b.linear("classification_head.dense", "classifier", b.width, b.width, bias=True)
        b.linear("classification_head.out_proj", "classifier", b.width, labels_of(f), bias=True)
    elif top.endswith("ForQuestionAnswering"):
        b.linear("qa_outputs", "classifier", b.width, 2, bias=True)
    else:
        return False
    return True


def _t5_half(f: "Fields", b: "Blueprint", half: str, layers: int, a: Attention, *, cross: bool, everywhere: bool) -> None:
    width, inner, buckets = b.width, f.whole("d_ff"), f.whole("relative_attention_num_buckets", 1, 1 << 16)
    gated = f.word("feed_forward_proj").startswith("gated")
    b.tower = "text" if cross else "encoder"
    for index in range(layers):
        b.layer, p = index, f"{half}.block.{index}.layer."
        for place, name in ((0, "SelfAttention"), (1, "EncDecAttention")) if cross else ((0, "SelfAttention"),):
            at, role = f"{p}{place}.", "cross_" if place else ""
            for letter in "qkv":
                b.linear(f"{at}{name}.{letter}", role + letter, width, a.heads * a.key_dim)
            b.linear(f"{at}{name}.o", role + "o", a.heads * a.key_dim, width)
            if place == 0 and (index == 0 or everywhere):
                b.table(f"{at}{name}.relative_attention_bias", buckets, a.heads, "position")
            b.norm(f"{at}layer_norm", width)
        at = f"{p}{2 if cross else 1}."
        for name, role in (("wi_0", "gate"), ("wi_1", "up")) if gated else (("wi", "up"),):
            b.linear(f"{at}DenseReluDense.{name}", role, width, inner)
        b.linear(f"{at}DenseReluDense.wo", "down", inner, width)
        b.norm(f"{at}layer_norm", width)
        fed = FeedForward(kind="dense", width=inner, gated=gated)
        layer = Layer(index=index, attention=a, cross=a.replace(kind="cross") if cross else None, feed_forward=fed)
        (b.layers if cross else b.encoder_layers).append(layer)
    b.layer = None
    b.norm(f"{half}.final_layer_norm", width)
    b.tower = "text"


def bart(f: "Fields", b: "Blueprint") -> None:
    """BART: positions start at two, a norm behind each embedding."""
    _bart(f, b, final=False, offset=2)


def mbart(f: "Fields", b: "Blueprint") -> None:
    """mBART: BART with a norm at the end of each half."""
    _bart(f, b, final=True, offset=2)


def pegasus(f: "Fields", b: "Blueprint") -> None:
    """Pegasus and Blenderbot: no norm behind the embeddings, one at the end of each half."""
    _bart(f, b, final=True, first=False)


def blenderbot_small(f: "Fields", b: "Blueprint") -> None:
    """Blenderbot's small form: a norm behind the embeddings, none at the end."""
    _bart(f, b, final=False)


def marian(f: "Fields", b: "Blueprint") -> None:
    """Marian (OPUS-MT): no norms but those in the layers; each half may have embeddings of its own, with vocabularies of their own."""
    shared, words = f.raw("share_encoder_decoder_embeddings") is not False, f.whole("vocab_size", 1, 1 << 27)
    spoken = f.maybe("decoder_vocab_size", 0, 1 << 27) or words
    if shared and spoken != words:
        f.wanting.append("decoder_vocab_size (the same as vocab_size where embeddings are shared)")
    _bart(f, b, final=False, first=False, shared=shared, spoken=spoken)


def m2m(f: "Fields", b: "Blueprint") -> None:
    """M2M-100 and NLLB: positions are computed and not saved, a norm at the end of each half, no bias on the logits."""
    _bart(f, b, final=True, first=False, positions=False)


def _bart(
    f: "Fields", b: "Blueprint", *, final: bool, first: bool = True, offset: int = 0, positions: bool = True, shared: bool = True, spoken: int = 0
) -> None:
    """`spoken`: the decoder's vocabulary where it is not the encoder's, which is also the logits'."""
    b.width = b.encoder_width = width = f.whole("d_model")
    heard, b.tied = f.whole("vocab_size", 1, 1 << 27), f.flag("tie_word_embeddings")
    b.vocabulary = spoken or heard
    b.context = f.whole("max_position_embeddings", 1, 1 << 24)
    top = architecture_of(f.values)
    bare = top.endswith("Model") and not top.endswith("MTModel")  # MarianMTModel has a head
    b.root = "" if bare else "model."
    if shared:
        b.table("shared", b.vocabulary, width)
    for half in ("encoder", "decoder"):
        b.layer, b.tower = None, "encoder" if half == "encoder" else "text"
        if not (b.tied and shared):
            b.table(half + ".embed_tokens", heard if half == "encoder" else b.vocabulary, width)
        if positions:
            b.table(half + ".embed_positions", b.context + offset, width, "position")
        if first:
            b.norm(half + ".layernorm_embedding", width, "layer")
        if final:
            b.norm(half + ".layer_norm", width, "layer")
        _bart_layers(f, b, half, width, k_bias=True)
    b.root, b.layer = "", None
    if not bare and not _other_head(f, b, architecture_of(f.values)):
        if positions:
            b.add("final_logits_bias", (b.vocabulary, 1), "lm_head", "buffer")
        if not b.tied:
            b.linear("lm_head", "lm_head", width, b.vocabulary)


def _bart_layers(f: "Fields", b: "Blueprint", half: str, width: int, *, k_bias: bool) -> None:
    heads, inner = f.whole(f"{half}_attention_heads", 1, MAX_HEADS), f.whole(f"{half}_ffn_dim")
    f.divides(f"{half}_attention_heads", "d_model", heads, width)
    each, cross = width // (heads or 1), half == "decoder"
    a = Attention(kind="full", heads=heads, kv_heads=heads, key_dim=each, value_dim=each)
    for index in range(f.layers(f"{half}_layers")):
        b.layer, p = index, f"{half}.layers.{index}."
        for name in ("self_attn", "encoder_attn") if cross else ("self_attn",):
            role = "cross_" if name == "encoder_attn" else ""
            b.linear(f"{p}{name}.k_proj", role + "k", width, width, bias=k_bias)
            for letter, part in (("v", "v_proj"), ("q", "q_proj"), ("o", "out_proj")):
                b.linear(f"{p}{name}.{part}", role + letter, width, width, bias=True)
            b.norm(f"{p}{name}_layer_norm", width, "layer")
        b.linear(p + "fc1", "up", width, inner, bias=True)
        b.linear(p + "fc2", "down", inner, width, bias=True)
        b.norm(p + "final_layer_norm", width, "layer")
        fed = FeedForward(kind="dense", width=inner, gated=False)
        layer = Layer(index=index, attention=a, cross=a.replace(kind="cross") if cross else None, feed_forward=fed)
        (b.layers if cross else b.encoder_layers).append(layer)


def whisper(f: "Fields", b: "Blueprint") -> None:
    """Whisper: two convolutions and fixed positions before the encoder, keys without bias."""
    b.width = b.encoder_width = width = f.whole("d_model")
    b.vocabulary, b.tied = f.whole("vocab_size", 1, 1 << 27), f.flag("tie_word_embeddings")
    bare = architecture_of(f.values).endswith("Model")
    b.root = "" if bare else "model."
    b.tower = "encoder"
    b.conv("encoder.conv1", "conv", 3, f.whole("num_mel_bins", 1, 1 << 16), width, bias=width)
    b.conv("encoder.conv2", "conv", 3, width, width, bias=width)
    b.table("encoder.embed_positions", f.whole("max_source_positions", 1, 1 << 24), width, "position")
    _bart_layers(f, b, "encoder", width, k_bias=False)
    b.layer = None
    b.norm("encoder.layer_norm", width, "layer")
    b.tower, b.context = "text", f.whole("max_target_positions", 1, 1 << 24)
    b.table("decoder.embed_tokens", b.vocabulary, width)
    b.table("decoder.embed_positions", b.context, width, "position")
    _bart_layers(f, b, "decoder", width, k_bias=False)
    b.layer = None
    b.norm("decoder.layer_norm", width, "layer")
    b.root = ""
    if not b.tied and not bare:
        b.linear("proj_out", "lm_head", width, b.vocabulary)
