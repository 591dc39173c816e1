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


def simple(
    f: "Fields",
    b: "Blueprint",
    *,
    rule: "Callable[[Fields, int], tuple[str, ...]] | None" = None,
    bias: bool = False,
    o_bias: bool = False,
    qk_norm: str = "",
    mlp_bias: bool = False,
    norms: "Sequence[str]" = NORMS,
    norm: str = "rms",
    final: str = "model.norm",
    head_bias: bool = False,
    attend: "Attend | None" = None,
    feed: "Feed | None" = None,
) -> None:
    """A family in Llama's mould: `rule` gives the kinds of layers where the file has no list of them."""
    width, layers = begin(f, b)
    types = kinds.given(f, layers) or (rule(f, layers) if rule else (kinds.FULL,) * layers)
    window = kinds.window_of(f) if kinds.SLIDING in types else 0
    inner = f.whole("intermediate_size") if feed is None else 0

    def attention(p: str, index: int) -> Attention:
        a = blocks.attention(f, width, types[index], window)
        return blocks.gqa(b, p + "self_attn.", width, a, bias=bias, o_bias=o_bias, qk_norm=qk_norm, norm=norm if norm != "layer" else "bare")

    def dense(p: str, _index: int) -> FeedForward:
        return blocks.gated_mlp(b, p + "mlp.", width, inner, bias=mlp_bias)

    stack(b, layers, attend or attention, feed or dense, norms=norms, norm=norm)
    end(b, final=final, norm=norm, head_bias=head_bias)
