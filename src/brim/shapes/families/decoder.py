"""The frame that decoder-only families share: embedding, numbered layers, a final norm and a head; what stands in a layer is the family's affair."""

from brim.facts.model import Attention, FeedForward, Layer
from brim.shapes import blocks, kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

    Attend = Callable[[str, int], Attention]
    Feed = Callable[[str, int], FeedForward]
    Rule = Callable[[Fields, int], tuple[str, ...]]

NORMS = ("input_layernorm", "post_attention_layernorm")


def begin(f: "Fields", b: "Blueprint", embed: str = "model.embed_tokens") -> tuple[int, int]:
    """Vocabulary, width and number of layers of a text model are read and the embedding is written; returns (width, layers)."""
    b.width, b.vocabulary, layers = f.whole("hidden_size"), f.whole("vocab_size", 1, 1 << 27), f.layers()
    b.context = f.maybe("max_position_embeddings", 1, 1 << 40)
    b.tied = f.flag("tie_word_embeddings")
    b.layer = None
    if embed:
        b.table(embed, b.vocabulary, b.width)
    return b.width, layers


def end(b: "Blueprint", *, final: str = "model.norm", norm: str = "rms", head: str = "lm_head", head_bias: bool = False) -> None:
    """The final norm, and the head where it is not the embedding again (a head's bias stays even then)."""
    b.layer = None
    if final:
        b.norm(final, b.width, norm)
    if not head:
        return
    if not b.tied:
        b.linear(head, "lm_head", b.width, b.vocabulary, bias=head_bias)
    elif head_bias:
        b.add(head + ".bias", (b.vocabulary,), "lm_head", "bias")


def stack(
    b: "Blueprint",
    layers: int,
    attend: "Attend",
    feed: "Feed",
    *,
    at: str = "model.layers.{}.",
    norms: "Sequence[str]" = NORMS,
    norm: str = "rms",
) -> None:
    """`layers` alike layers: attention, feed-forward and the norms beside them."""
    for index in range(layers):
        b.layer, p = index, at.format(index)
        for name in norms:
            b.norm(p + name, b.width, norm)
        attended = attend(p, index)
        b.draw(Layer(index=index, attention=attended, feed_forward=feed(p, index)))


ATTENTION_ONLY = frozenset((kinds.FULL, kinds.SLIDING, kinds.CHUNKED))


def layer_kinds(f: "Fields", layers: int, rule: "Rule | None", window: str = "sliding_window") -> tuple[tuple[str, ...], int]:
    """The kind of each layer (the file's list, else the family's rule, else full) and the window that the sliding ones have."""
    types = kinds.given(f, layers, ATTENTION_ONLY) or (rule(f, layers) if rule else (kinds.FULL,) * layers)
    return types, kinds.window_of(f, window) if kinds.SLIDING in types else 0


def simple(
    f: "Fields",
    b: "Blueprint",
    *,
    rule: "Rule | None" = None,
    bias: bool = False,
    o_bias: bool = False,
    names: tuple[str, str, str, str] = blocks.QKVO,
    qk_norm: str = "",
    norm_names: tuple[str, str] = ("q_norm", "k_norm"),
    mlp_bias: bool = False,
    mlp_names: tuple[str, ...] = blocks.MLP,
    norms: "Sequence[str]" = NORMS,
    norm: str = "rms",
    final: str = "model.norm",
    head_bias: bool = False,
    feed: "Feed | None" = None,
    tied: bool | None = None,
) -> None:
    """A family in Llama's mould: `rule` gives the kinds of layers where the file has no list of them; two `mlp_names` mean no gate."""
    width, layers = begin(f, b)
    b.tied = b.tied if tied is None else tied
    types, window = layer_kinds(f, layers, rule)
    inner = f.whole("intermediate_size") if feed is None else 0

    def attend(p: str, index: int) -> Attention:
        a = blocks.attention(f, width, types[index], window)
        small = "bare" if norm == "layer" else norm
        return blocks.gqa(b, p + "self_attn.", width, a, bias=bias, o_bias=o_bias, names=names, qk_norm=qk_norm, norm=small, norm_names=norm_names)

    def dense(p: str, _index: int) -> FeedForward:
        if len(mlp_names) == 2:
            return blocks.plain_mlp(b, p + "mlp.", width, inner, bias=mlp_bias, names=(mlp_names[0], mlp_names[1]))
        return blocks.gated_mlp(b, p + "mlp.", width, inner, bias=mlp_bias, names=(mlp_names[0], mlp_names[1], mlp_names[2]))

    stack(b, layers, attend, feed or dense, norms=norms, norm=norm)
    end(b, final=final, norm=norm, head_bias=head_bias)


def grouped(
    f: "Fields",
    b: "Blueprint",
    width: int,
    layers: int,
    rule: "Rule | None" = None,
    *,
    bias: bool = False,
    o_bias: bool = False,
    qk_norm: str = "",
    strict: bool = True,
) -> "Attend":
    """Grouped attention for every layer, with the kinds and the window that the file or `rule` gives."""
    types, window = layer_kinds(f, layers, rule)

    def attend(p: str, index: int) -> Attention:
        a = blocks.attention(f, width, types[index], window, strict=strict)
        return blocks.gqa(b, p + "self_attn.", width, a, bias=bias, o_bias=o_bias, qk_norm=qk_norm)

    return attend
