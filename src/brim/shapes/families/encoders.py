"""Encoders without a cache: BERT and its kin, as bare model, with a masked-language head or a classifier, as `architectures` says.

Rules: transformers 5.24, models/<family>/modeling_<family>.py. No architecture in the file means the masked-language model.
"""

from brim.facts.model import Attention, FeedForward, Layer
from brim.shapes import kinds
from brim.shapes.families import decoder
from brim.shapes.fields import MAX_HEADS, MAX_LAYERS
from brim.shapes.heads import architecture_of, labels_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

_BERT = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
_MPNET = ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o")
_DEBERTA = ("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj", "attention.output.dense")
_DISTIL = ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin")


def _what(f: "Fields") -> str:
    """What stands on top: model, masked, sequence, token, question, choice, next or pretraining."""
    name = architecture_of(f.values)
    if not name:
        return "masked"
    for ending, word in (
        ("ForSequenceClassification", "sequence"),
        ("ForTokenClassification", "token"),
        ("ForQuestionAnswering", "question"),
        ("ForMultipleChoice", "choice"),
        ("ForNextSentencePrediction", "next"),
        ("ForPreTraining", "pretraining"),
        ("Model", "bare"),
    ):
        if name.endswith(ending) and not name.endswith("LMHeadModel"):
            return word
    return "masked"


def _open(f: "Fields", b: "Blueprint", root: str) -> tuple[str, str, int, int, Attention]:
    """What stands on top, the root, width, layers and attention; the bare model is saved without its root."""
    top = _what(f)
    width, layers = decoder.begin(f, b, "")
    b.tied, b.encoder_width = f.flag("tie_word_embeddings"), width
    heads = f.whole("num_attention_heads", 1, MAX_HEADS)
    f.divides("num_attention_heads", "hidden_size", heads, width)
    each = width // (heads or 1)
    b.unusual.append("an encoder: it keeps no cache")
    return top, "" if top == "bare" else root, width, layers, Attention(kind="full", heads=heads, kv_heads=heads, key_dim=each, value_dim=each)


def _layer(
    b: "Blueprint", p: str, index: int, width: int, inner: int, a: Attention, names: tuple[str, ...], norms: tuple[str, str], feeds: tuple[str, str]
) -> None:
    """One BERT layer: four projections with bias, up and down with bias, a LayerNorm behind each half."""
    b.layer = index
    for name, role in zip(names, ("q", "k", "v", "o"), strict=True):
        b.linear(p + name, role, width, width, bias=True)
    b.norm(p + norms[0], width, "layer")
    b.linear(p + feeds[0], "up", width, inner, bias=True)
    b.linear(p + feeds[1], "down", inner, width, bias=True)
    b.norm(p + norms[1], width, "layer")
    b.encoder_layers.append(Layer(index=index, attention=a, feed_forward=FeedForward(kind="dense", width=inner, gated=False)))


def _masked(b: "Blueprint", width: int, dense: str, norm: str, decoder_bias: str, decoder_name: str) -> None:
    b.linear(dense, "other", width, width, bias=True)
    b.norm(norm, width, "layer")
    b.add(decoder_bias, (b.vocabulary,), "lm_head", "bias")
    if not b.tied:
        b.linear(decoder_name, "lm_head", width, b.vocabulary, bias=decoder_bias != decoder_name + ".bias")


def _classify(b: "Blueprint", f: "Fields", width: int, top: str, *, deep: bool) -> None:
    """The classifier; `deep` has a layer before it (RoBERTa, MPNet)."""
    if top == "question":
        b.linear("qa_outputs", "classifier", width, 2, bias=True)
    elif top == "choice":
        b.linear("classifier", "classifier", width, 1, bias=True)
    elif top == "token" or not deep:
        b.linear("classifier", "classifier", width, labels_of(f), bias=True)
    else:
        b.linear("classifier.dense", "classifier", width, width, bias=True)
        b.linear("classifier.out_proj", "classifier", width, labels_of(f), bias=True)


def bert(f: "Fields", b: "Blueprint") -> None:
    """BERT: a pooler stands on the bare model and under a sequence classifier."""
    top, root, width, layers, a = _open(f, b, "bert.")
    _bert_body(f, b, root, width, layers, a)
    b.layer = None
    if top in ("bare", "sequence", "pretraining", "choice", "next"):
        b.linear(root + "pooler.dense", "other", width, width, bias=True)
    if top in ("masked", "pretraining"):
        at = "cls.predictions."
        _masked(b, width, at + "transform.dense", at + "transform.LayerNorm", at + "bias", at + "decoder")
        if top == "pretraining":
            b.linear("cls.seq_relationship", "classifier", width, 2, bias=True)
    elif top == "next":
        b.linear("cls.seq_relationship", "classifier", width, 2, bias=True)
    elif top != "bare":
        _classify(b, f, width, top, deep=False)


def roberta(f: "Fields", b: "Blueprint") -> None:
    """RoBERTa, XLM-RoBERTa, CamemBERT: BERT's body under another root, a deeper classifier."""
    top, root, width, layers, a = _open(f, b, "roberta.")
    _bert_body(f, b, root, width, layers, a)
    b.layer = None
    if top in ("bare", "choice"):
        b.linear(root + "pooler.dense", "other", width, width, bias=True)
    if top in ("masked", "pretraining"):
        _masked(b, width, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder")
    elif top != "bare":
        _classify(b, f, width, top, deep=True)


def _bert_body(f: "Fields", b: "Blueprint", root: str, width: int, layers: int, a: Attention) -> None:
    at, inner = root + "embeddings.", f.whole("intermediate_size")
    _tables(f, b, at, width)
    b.norm(at + "LayerNorm", width, "layer")
    _bert_layers(b, root, width, inner, layers, a)


def _tables(f: "Fields", b: "Blueprint", at: str, width: int) -> None:
    b.table(at + "word_embeddings", b.vocabulary, width)
    b.table(at + "position_embeddings", f.whole("max_position_embeddings", 1, 1 << 24), width, "position")
    b.table(at + "token_type_embeddings", f.whole("type_vocab_size", 1, 1 << 16), width)


def _bert_layers(b: "Blueprint", root: str, width: int, inner: int, layers: int, a: Attention) -> None:
    for index in range(layers):
        p = f"{root}encoder.layer.{index}."
        norms = ("attention.output.LayerNorm", "output.LayerNorm")
        _layer(b, p, index, width, inner, a, _BERT, norms, ("intermediate.dense", "output.dense"))
    b.layer = None


def mpnet(f: "Fields", b: "Blueprint") -> None:
    """MPNet: relative positions shared by all layers, no token types."""
    top, root, width, layers, a = _open(f, b, "mpnet.")
    at, inner = root + "embeddings.", f.whole("intermediate_size")
    b.table(at + "word_embeddings", b.vocabulary, width)
    b.table(at + "position_embeddings", f.whole("max_position_embeddings", 1, 1 << 24), width, "position")
    b.norm(at + "LayerNorm", width, "layer")
    b.table(root + "encoder.relative_attention_bias", f.whole("relative_attention_num_buckets", 1, 1 << 16), a.heads, "position")
    for index in range(layers):
        p = f"{root}encoder.layer.{index}."
        _layer(b, p, index, width, inner, a, _MPNET, ("attention.LayerNorm", "output.LayerNorm"), ("intermediate.dense", "output.dense"))
    b.layer = None
    if top in ("bare", "choice"):
        b.linear(root + "pooler.dense", "other", width, width, bias=True)
    if top in ("masked", "pretraining"):
        _masked(b, width, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder")
    elif top != "bare":
        _classify(b, f, width, top, deep=True)


def distilbert(f: "Fields", b: "Blueprint") -> None:
    """DistilBERT: names of its own, no pooler, no token types."""
    top, root, width, layers, a = _open(f, b, "distilbert.")
    at, inner = root + "embeddings.", f.whole("hidden_dim")
    b.table(at + "word_embeddings", b.vocabulary, width)
    b.table(at + "position_embeddings", f.whole("max_position_embeddings", 1, 1 << 24), width, "position")
    b.norm(at + "LayerNorm", width, "layer")
    for index in range(layers):
        p = f"{root}transformer.layer.{index}."
        _layer(b, p, index, width, inner, a, _DISTIL, ("sa_layer_norm", "output_layer_norm"), ("ffn.lin1", "ffn.lin2"))
    b.layer = None
    if top in ("masked", "pretraining"):
        _masked(b, width, "vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector")
    elif top != "bare":
        if top in ("sequence", "choice"):
            b.linear("pre_classifier", "classifier", width, width, bias=True)
        _classify(b, f, width, top, deep=False)


def modernbert(f: "Fields", b: "Blueprint") -> None:
    """ModernBERT: every `global_attn_every_n_layers`-th layer (counted from the first) full, the others see `local_attention` tokens."""
    top, root, width, layers, a = _open(f, b, "model.")
    period = f.maybe("global_attn_every_n_layers", 1, 1 << 16) or 3
    types = kinds.given(f, layers) or tuple(kinds.SLIDING if index % period else kinds.FULL for index in range(layers))
    inner, window, bias, feed_bias = f.whole("intermediate_size"), f.whole("local_attention", 1, 1 << 30), f.flag("attention_bias"), f.flag("mlp_bias")
    norm = "layer" if f.flag("norm_bias") else "bare"
    b.table(root + "embeddings.tok_embeddings", b.vocabulary, width)
    b.norm(root + "embeddings.norm", width, norm)
    for index in range(layers):
        b.layer, p = index, f"{root}layers.{index}."
        if index:
            b.norm(p + "attn_norm", width, norm)
        b.linear(p + "attn.Wqkv", "qkv", width, 3 * width, bias=bias)
        b.linear(p + "attn.Wo", "o", width, width, bias=bias)
        b.norm(p + "mlp_norm", width, norm)
        b.linear(p + "mlp.Wi", "gate_up", width, 2 * inner, bias=feed_bias)
        b.linear(p + "mlp.Wo", "down", inner, width, bias=feed_bias)
        near = a.replace(kind="sliding", window=window) if types[index] == kinds.SLIDING else a
        b.encoder_layers.append(Layer(index=index, attention=near, feed_forward=FeedForward(kind="dense", width=inner)))
    b.layer = None
    b.norm(root + "final_norm", width, norm)
    if top == "bare":
        return
    b.linear("head.dense", "other", width, width, bias=f.flag("classifier_bias"))
    b.norm("head.norm", width, norm)
    if top == "masked":
        if not b.tied:
            b.linear("decoder", "lm_head", width, b.vocabulary)
        if f.flag("decoder_bias"):
            b.add("decoder.bias", (b.vocabulary,), "lm_head", "bias")
    else:
        b.linear("classifier", "classifier", width, {"question": 2, "choice": 1}.get(top) or labels_of(f), bias=True)


def nomic_bert(f: "Fields", b: "Blueprint") -> None:
    """Nomic Embed: rotary positions, gated blocks without bias; its own config writes GPT-2's field names (`n_embd`, `n_layer`, `n_inner`)."""
    top = _what(f)
    b.width = b.encoder_width = width = f.maybe("n_embd", 1) or f.whole("hidden_size")
    layers, heads = f.maybe("n_layer", 1, MAX_LAYERS) or f.layers(), f.maybe("n_head", 1, MAX_HEADS) or f.whole("num_attention_heads", 1, MAX_HEADS)
    inner, b.vocabulary = f.maybe("n_inner", 1) or f.whole("intermediate_size"), f.whole("vocab_size", 1, 1 << 27)
    b.context, b.tied = f.maybe("n_positions", 1, 1 << 40) or f.maybe("max_position_embeddings", 1, 1 << 40), f.raw("tie_word_embeddings") is not False
    f.divides("num_attention_heads", "hidden_size", heads, width)
    each = (None if f.has("n_embd") else f.maybe("head_dim", 1)) or width // (heads or 1)
    a = Attention(kind="full", heads=heads, kv_heads=heads, key_dim=each, value_dim=each)
    root, bias, feed_bias = "" if top == "bare" else "nomic_bert.", f.flag("qkv_proj_bias"), f.flag("mlp_fc1_bias")
    b.unusual.append("an encoder: it keeps no cache")
    b.table(root + "embeddings.word_embeddings", b.vocabulary, width)
    b.table(root + "embeddings.token_type_embeddings", f.whole("type_vocab_size", 1, 1 << 16), width)
    b.norm(root + "emb_ln", width, "layer")
    for index in range(layers):
        b.layer, p = index, f"{root}encoder.layers.{index}."
        b.linear(p + "attn.Wqkv", "qkv", width, 3 * heads * each, bias=bias)
        b.linear(p + "attn.out_proj", "o", heads * each, width, bias=bias)
        b.linear(p + "mlp.fc11", "up", width, inner, bias=feed_bias)
        b.linear(p + "mlp.fc12", "gate", width, inner, bias=feed_bias)
        b.linear(p + "mlp.fc2", "down", inner, width, bias=feed_bias)
        b.norm(p + "norm1", width, "layer")
        b.norm(p + "norm2", width, "layer")
        b.encoder_layers.append(Layer(index=index, attention=a, feed_forward=FeedForward(kind="dense", width=inner)))
    b.layer = None
    if top in ("masked", "pretraining"):
        at = "cls.predictions."
        _masked(b, width, at + "transform.dense", at + "transform.layer_norm", at + "bias", at + "decoder")
    elif top != "bare":
        if top == "sequence":
            b.linear(root + "pooler.dense", "other", width, width, bias=True)
        _classify(b, f, width, top, deep=False)


def electra(f: "Fields", b: "Blueprint") -> None:
    """ELECTRA: BERT's layers over a narrower embedding; the generator has a masked-language head, the discriminator one number a token."""
    top, root, width, layers, a = _open(f, b, "electra.")
    at, inner, narrow = root + "embeddings.", f.whole("intermediate_size"), f.whole("embedding_size")
    _tables(f, b, at, narrow)
    b.norm(at + "LayerNorm", narrow, "layer")
    if narrow != width:
        b.linear(root + "embeddings_project", "other", narrow, width, bias=True)
    _bert_layers(b, root, width, inner, layers, a)
    if top == "pretraining":
        b.linear("discriminator_predictions.dense", "other", width, width, bias=True)
        b.linear("discriminator_predictions.dense_prediction", "classifier", width, 1, bias=True)
    elif top == "masked":
        b.linear("generator_predictions.dense", "other", width, narrow, bias=True)
        b.norm("generator_predictions.LayerNorm", narrow, "layer")
        b.add("generator_lm_head.bias", (b.vocabulary,), "lm_head", "bias")
        if not b.tied:
            b.linear("generator_lm_head", "lm_head", narrow, b.vocabulary)
    elif top != "bare":
        if top == "choice" and f.flag("summary_use_proj"):
            b.linear("sequence_summary.summary", "other", width, width, bias=True)
        _classify(b, f, width, top, deep=True)


def albert(f: "Fields", b: "Blueprint") -> None:
    """ALBERT: a few groups of weights that all layers share, over a narrower embedding."""
    top, root, width, layers, a = _open(f, b, "albert.")
    at, inner, narrow = root + "embeddings.", f.whole("intermediate_size"), f.whole("embedding_size")
    _tables(f, b, at, narrow)
    b.norm(at + "LayerNorm", narrow, "layer")
    b.linear(root + "encoder.embedding_hidden_mapping_in", "other", narrow, width, bias=True)
    for group in range(f.whole("num_hidden_groups", 1, MAX_LAYERS)):
        for part in range(f.whole("inner_group_num", 1, MAX_LAYERS)):
            p = f"{root}encoder.albert_layer_groups.{group}.albert_layers.{part}."
            b.norm(p + "full_layer_layer_norm", width, "layer")
            for name, role in (("query", "q"), ("key", "k"), ("value", "v"), ("dense", "o")):
                b.linear(f"{p}attention.{name}", role, width, width, bias=True)
            b.norm(p + "attention.LayerNorm", width, "layer")
            b.linear(p + "ffn", "up", width, inner, bias=True)
            b.linear(p + "ffn_output", "down", inner, width, bias=True)
    fed = FeedForward(kind="dense", width=inner, gated=False)
    b.encoder_layers += [Layer(index=index, attention=a, feed_forward=fed) for index in range(layers)]
    b.unusual.append(f"{layers} layers share the weights of {f.whole('num_hidden_groups', 1, MAX_LAYERS)}")
    if top in ("bare", "sequence", "pretraining", "choice"):
        b.linear(root + "pooler", "other", width, width, bias=True)
    if top in ("masked", "pretraining"):
        b.linear("predictions.dense", "other", width, narrow, bias=True)
        b.norm("predictions.LayerNorm", narrow, "layer")
        b.add("predictions.bias", (b.vocabulary,), "lm_head", "bias")
        if not b.tied:
            b.linear("predictions.decoder", "lm_head", narrow, b.vocabulary, bias=True)
        if top == "pretraining":
            b.linear("sop_classifier.classifier", "classifier", width, labels_of(f), bias=True)
    elif top != "bare":
        _classify(b, f, width, top, deep=False)


def deberta(f: "Fields", b: "Blueprint") -> None:
    """DeBERTa v2 and v3: relative positions shared by all layers where `relative_attention` is set, a convolution where `conv_kernel_size` is."""
    top, root, width, layers, a = _open(f, b, "deberta.")
    at, inner = root + "embeddings.", f.whole("intermediate_size")
    narrow = f.maybe("embedding_size", 1) or width
    b.table(at + "word_embeddings", b.vocabulary, narrow)
    if f.raw("position_biased_input") is not False:
        b.table(at + "position_embeddings", f.whole("max_position_embeddings", 1, 1 << 24), narrow, "position")
    if f.maybe("type_vocab_size", 0, 1 << 16):
        b.table(at + "token_type_embeddings", f.whole("type_vocab_size", 1, 1 << 16), narrow)
    if narrow != width:
        b.linear(at + "embed_proj", "other", narrow, width)
    b.norm(at + "LayerNorm", width, "layer")
    relative = f.flag("relative_attention")
    own = relative and not f.flag("share_att_key")
    kinds_of = f.raw("pos_att_type") or ()
    for index in range(layers):
        p = f"{root}encoder.layer.{index}."
        norms = ("attention.output.LayerNorm", "output.LayerNorm")
        _layer(b, p, index, width, inner, a, _DEBERTA, norms, ("intermediate.dense", "output.dense"))
        for word, name in (("c2p", "pos_key_proj"), ("p2c", "pos_query_proj")) if own else ():
            if word in kinds_of:
                b.linear(f"{p}attention.self.{name}", "position", width, width, bias=True)
    b.layer = None
    if relative:
        buckets, far = f.maybe("position_buckets", -1, 1 << 24) or -1, f.maybe("max_relative_positions", -1, 1 << 24) or -1
        rows = buckets if buckets > 0 else far if far > 0 else f.whole("max_position_embeddings", 1, 1 << 24)
        b.table(root + "encoder.rel_embeddings", 2 * rows, width, "position")
    if "layer_norm" in f.word("norm_rel_ebd").lower():
        b.norm(root + "encoder.LayerNorm", width, "layer")
    kernel = f.maybe("conv_kernel_size", 0, 1 << 12) or 0
    if kernel:
        b.conv(root + "encoder.conv.conv", "conv", kernel, width // (f.maybe("conv_groups", 1, 1 << 16) or 1), width, bias=width)
        b.norm(root + "encoder.conv.LayerNorm", width, "layer")
    if top in ("sequence", "choice"):
        pooled = f.maybe("pooler_hidden_size", 1) or width
        b.linear("pooler.dense", "other", pooled, pooled, bias=True)
    if top in ("masked", "pretraining"):
        if narrow != width or f.raw("legacy") is False:
            f.wanting.append("legacy (true) and embedding_size (the same as hidden_size): another masked-language head")
        p = "cls.predictions."
        _masked(b, width, p + "transform.dense", p + "transform.LayerNorm", p + "bias", p + "decoder")
    elif top != "bare":
        _classify(b, f, width, top, deep=False)
