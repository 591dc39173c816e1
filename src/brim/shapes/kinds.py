"""Which kind of layer stands where, from the config's own fields; a list in the file beats every rule of the family."""

from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.fields import Fields

FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"
LINEAR = "linear_attention"

INDEXED = "indexed_attention"
CONV = "conv"
HYBRID = "hybrid"

# The words that transformers 5.24 allows in `layer_types`, and the older ones that it renames (configuration_utils.py,
# ALLOWED_ATTN_LAYER_TYPES and _LEGACY_LAYER_TYPE_REMAP). A family that meets a word it has no block for refuses it by name.
_KNOWN = frozenset((FULL, SLIDING, CHUNKED, LINEAR, INDEXED, CONV, HYBRID, "moe", "mlp"))
_OLDER = {"mamba": LINEAR, "attention": FULL, "deepseek_sparse_attention": INDEXED, "local_attention": CHUNKED}
_ATTENTION = {SLIDING: "sliding", CHUNKED: "chunked"}


def given(f: "Fields", layers: int, known: "frozenset[str]" = _KNOWN, name: str = "layer_types") -> "tuple[str, ...] | None":
    """`layer_types` as the file has it, checked for length and words, older words renamed; None where absent."""
    kinds = f.words(name, layers)
    if kinds is None:
        return None
    renamed = tuple(_OLDER.get(kind, kind) for kind in kinds)
    for kind in renamed:
        if kind not in known:
            raise f.bad(name, f"holds the word {kind[:60]!r}, which does not belong to this family")
    return renamed


def every(layers: int, period: int, odd: str, common: str) -> tuple[str, ...]:
    """`common` layers with each `period`-th (counted from 1) `odd`; a period of 0 makes all of them `odd`."""
    return tuple(odd if not period or (index + 1) % period == 0 else common for index in range(layers))


def by_letters(f: "Fields", layers: int, name: str = "sliding_window_pattern") -> "tuple[str, ...] | None":
    """A pattern in letters that repeats over the layers (`LLLG`: L slides, G is full), None where the field is no word."""
    pattern = f.raw(name)
    if not isinstance(pattern, str):
        return None
    if not 1 <= len(pattern) <= layers or set(pattern) - set("LG"):
        raise f.bad(name, "must be a word of the letters L and G, or a number")
    return tuple(SLIDING if pattern[index % len(pattern)] == "L" else FULL for index in range(layers))


def window_of(f: "Fields", name: str = "sliding_window") -> int:
    """The sliding window in tokens, 0 where the config has none (null, -1 and 0 all mean none)."""
    value = f.maybe(name, -1, 1 << 30)
    return value if value is not None and value > 0 else 0


def all_sliding(f: "Fields", layers: int) -> tuple[str, ...]:
    """Every layer slides where a window is set (Mistral, Mixtral, Phi-3, Starcoder2)."""
    return ((SLIDING if window_of(f) else FULL),) * layers


def tail_sliding(f: "Fields", layers: int) -> tuple[str, ...]:
    """Qwen2 and Qwen3: the layers from `max_window_layers` on slide, where `use_sliding_window` is set."""
    if not f.flag("use_sliding_window") or not window_of(f):
        return (FULL,) * layers
    first = f.maybe("max_window_layers", 0, 1 << 20) or 0
    return tuple(SLIDING if index >= first else FULL for index in range(layers))


def attention_kind(kind: str, window: int) -> tuple[str, int]:
    """The word and the window of `facts.model.Attention` for a word of `layer_types`; sliding without a window is full."""
    word = _ATTENTION.get(kind, "full")
    return (word, window) if word != "full" and window else ("full", 0)


def not_told(architecture: str, missing: "list[str]") -> Missing:
    """The answer for an architecture that brim does not know."""
    names = ", ".join(missing) if missing else "none of the usual ones"
    return Missing(reason="not_supported", detail=f"architecture {architecture!r} is not known to brim; fields that are missing: {names}")
