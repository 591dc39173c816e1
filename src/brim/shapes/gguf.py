"""GGUF metadata and tensor names become a shape: the tensors say what stands in a layer, the keys say how wide; it opens nothing.

Guarantees: a key that cannot be true is a `BadHeader` with file, key and fault; what neither tensors nor keys tell is `Missing`. A layer is what
its tensors make it, so an architecture that brim has never heard of is read as well, but for its window pattern, which llama.cpp keeps in code.
Sources: llama.cpp b11434, src/llama-arch.cpp (keys, tensor names), src/llama-model.cpp `load_hparams`, src/llama-hparams.cpp (`set_swa_pattern`,
`n_embd_r`, `n_embd_s`), and `load_arch_hparams` of src/models/*.cpp for windows and shared caches.
"""

from brim.facts.model import Attention, FeedForward, Layer, Shape, State, Tower
from brim.shapes.fields import MAX_EXPERTS, MAX_HEADS, MAX_LAYERS
from brim.shapes.header import Header
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from brim.facts.model import Tensor

# architecture → (window where the file names none; period of the pattern, 0 where the file must list it; the full layer comes first).
# A window of None: no window in the file, no window. Llama 4 chunks, ModernBERT and Gemma's embedding model look both ways.
WINDOWS: "dict[str, tuple[int | None, int, bool]]" = {
    "afmoe": (None, 4, False),
    "cohere2": (None, 4, False),
    "cohere2moe": (None, 4, True),
    "exaone-moe": (128, 4, False),
    "gemma-embedding": (None, 6, False),
    "gemma2": (4096, 2, False),
    "gemma3": (None, 6, False),
    "gemma3n": (None, 5, False),
    "gemma4": (None, 0, False),
    "gpt-oss": (None, 2, False),
    "granite_swa": (None, 0, False),
    "laguna": (None, 4, True),
    "lfm2": (None, 1 << 16, False),
    "llama4": (8192, 4, False),
    "maple": (None, 0, False),
    "mellum": (None, 4, False),
    "mimo2": (None, 0, False),
    "modern-bert": (None, 3, True),
    "muse-glimmer": (None, 4, False),
    "olmo2": (None, 4, False),
    "plamo3": (None, 8, False),
    "smallthinker": (None, 4, True),
    "spark2_5": (None, 0, False),
    "step35": (None, 0, False),
}
_DELTA = ("qwen3next", "qwen35", "qwen35moe")
_ENCODERS = (
    "bert",
    "modern-bert",
    "nomic-bert",
    "nomic-bert-moe",
    "neo-bert",
    "jina-bert-v2",
    "jina-bert-v3",
    "eurobert",
    "gemma-embedding",
    "t5encoder",
    "dream",
    "llada",
    "llada-moe",
    "rnd1",
)


def shape_of_gguf(keys: "Mapping[str, Any]", tensors: "tuple[Tensor, ...]" = (), source: str = "model.gguf") -> "Shape | Missing":
    """The shape of a GGUF file from its metadata and tensor directory (which a shape file may lack)."""
    h = Header(keys, tensors, source)
    if h.arch == "clip":
        return _clip(h, tensors)
    wanting = [key for key in ("embedding_length", "block_count") if h.raw(key) is None]
    if wanting:
        return Missing(reason="not_supported", detail=f"the header lacks {', '.join(f'{h.arch}.{key}' for key in wanting)}")
    h.width = h.whole("embedding_length", 0, 1)
    h.blocks = h.whole("block_count", 0, 1, MAX_LAYERS)
    draft = h.whole("nextn_predict_layers", 0, 0, MAX_LAYERS)
    if draft > h.blocks:
        raise h.bad("nextn_predict_layers", f"({draft}) is more than block_count ({h.blocks})")
    if not h.blocks:
        raise h.bad("block_count", "is 0")
    unusual: list[str] = []
    if draft == h.blocks:  # a draft model of its own has no other blocks: they are its layers (conversion/gemma.py, Gemma 4's assistant)
        draft = 0
        unusual.append("all of its blocks predict next tokens for another model")
    layers, encoders = _stacks(h, h.blocks - draft, unusual)
    if not any(row.attention or row.state or row.feed_forward for row in (*layers, *encoders)):
        return Missing(reason="not_supported", detail=f"{h.arch}: neither keys nor tensors tell what its layers are made of")
    context = h.whole("context_length", 0, 0, 1 << 40)
    counted = _counts(h, tensors, h.blocks - draft)
    return Shape(
        architecture=str(h.arch),
        vocabulary=_vocabulary(h),
        width=h.width,
        layers=layers,
        encoder_layers=encoders,
        encoder_width=h.width if encoders else 0,
        context_trained=context or Missing(reason="not_supported", detail="the header does not say"),
        tied_embeddings=bool(h.tops) and "output.weight" not in h.tops and "token_embd.weight" in h.tops,
        parameters=counted[0],
        active_parameters=counted[1],
        draft_layers=draft,
        unusual=tuple(unusual),
    )


def _vocabulary(h: Header) -> int:
    table = h.tops.get("token_embd.weight")
    if table is not None and len(table.dims) > 1:
        return table.dims[1]
    tokens = h.keys.get("tokenizer.ggml.tokens")
    stepped = h.keys.get("tokenizer.ggml.tokens.length")
    if isinstance(tokens, (list, tuple)):
        return len(tokens)
    return stepped if isinstance(stepped, int) and not isinstance(stepped, bool) else h.whole("vocab_size", 0, 0, 1 << 27)


def _counts(h: Header, tensors: "tuple[Tensor, ...]", layers: int) -> "tuple[int | Missing, int | Missing]":
    """Parameters and those that one token passes, without the layers for multi-token prediction."""
    if not tensors:
        missing = Missing(reason="not_supported", detail="no tensor directory")
        return missing, missing
    late = {id(tensor) for (stack, index), rows in h.parts.items() if stack == "blk." and index >= layers for tensor in rows.values()}
    held = [tensor for tensor in tensors if id(tensor) not in late]
    total, experts = sum(tensor.elements for tensor in held), h.whole("expert_count", 0, 0, MAX_EXPERTS)
    packed = sum(tensor.elements for tensor in held if "_exps." in tensor.name)
    if not packed:
        return total, total
    used = h.whole("expert_used_count", 0, 0, MAX_EXPERTS)
    if not experts or not 0 < used <= experts:
        return total, Missing(reason="not_supported", detail=f"{h.arch}.expert_count and expert_used_count do not tell")
    return total, total - packed + packed * used // experts


def _stacks(h: Header, count: int, unusual: "list[str]") -> "tuple[tuple[Layer, ...], tuple[Layer, ...]]":
    """(layers with a cache, encoder layers)."""
    reader = _Reader(h, count, unusual)
    if h.arch == "t5":
        halves = (h.whole("decoder_block_count", count, 1, MAX_LAYERS), count)
        return tuple(reader.layer("dec.blk.", i) for i in range(halves[0])), tuple(reader.layer("enc.blk.", i) for i in range(halves[1]))
    if h.arch == "t5encoder":
        return (), tuple(reader.layer("enc.blk.", index) for index in range(count))
    rows = tuple(reader.layer("blk.", index) for index in range(count))
    if h.arch in _ENCODERS or (h.raw("attention.causal") is False and h.raw("pooling_type") is not None):
        unusual.append("an encoder: it keeps no cache")
        return (), rows
    return rows, ()


class _Reader:
    """Reads one layer after another; what is alike in all of them is read once."""

    __slots__ = ("ff", "h", "heads", "key", "kv_heads", "near", "sliding", "starts", "told", "unusual", "window")

    def __init__(self, h: Header, count: int, unusual: "list[str]") -> None:
        self.h, self.unusual, self.told = h, unusual, False
        self.heads = h.each("attention.head_count", count, 0, MAX_HEADS)
        self.kv_heads = h.each("attention.head_count_kv", count, 0, MAX_HEADS) if h.raw("attention.head_count_kv") is not None else self.heads
        for heads, kv_heads in zip(self.heads, self.kv_heads, strict=True):
            if kv_heads and heads % kv_heads:
                raise h.bad("attention.head_count_kv", f"({kv_heads}) does not divide attention.head_count ({heads})")
        self.ff = h.each("feed_forward_length", count, 0)
        first = next((heads for heads in self.heads if heads), 0)
        natural = h.width // first if first else 0
        self.key = (h.whole("attention.key_length", natural), h.whole("attention.value_length", natural))
        self.near = (h.whole("attention.key_length_swa", self.key[0]), h.whole("attention.value_length_swa", self.key[1]))
        self.window, self.sliding = _windows(h, count)
        self.starts = count
        if h.arch == "gemma3n":
            self.starts = 20  # src/models/gemma3n.cpp, n_layer_kv_from_start
        elif h.raw("attention.shared_kv_layers") is not None:
            self.starts = count - h.whole("attention.shared_kv_layers", 0, 0, count)

    def layer(self, stack: str, index: int) -> Layer:
        """One layer: attention where there are keys, a state where there is one, cross-attention, and a feed-forward block."""
        h, rows = self.h, self.h.rows(stack, index)
        state = self._state(rows, index)
        a = self._attention(rows, index, state) if not rows or _attends(rows, state) else None
        cross = self._plain(index).replace(kind="cross", window=0) if "cross_attn_q.weight" in rows else None
        return Layer(index=index, attention=a, cross=cross, state=state, feed_forward=_feed(h, rows, index, self.ff[min(index, len(self.ff) - 1)]))

    def _plain(self, index: int) -> Attention:
        at = min(index, len(self.heads) - 1)
        slides = self.sliding[at] if self.sliding else False
        key, value = self.near if slides else self.key
        kind = ("chunked" if self.h.arch == "llama4" else "sliding") if slides else "full"
        return Attention(kind=kind, heads=self.heads[at], kv_heads=self.kv_heads[at], key_dim=key, value_dim=value, window=self.window if slides else 0)

    def _attention(self, rows: "dict[str, Tensor]", index: int, state: "State | None") -> "Attention | None":
        h, a = self.h, self._plain(index)
        if not a.heads or (not rows and (state is not None or not a.kv_heads)):
            return None
        if h.raw("attention.kv_lora_rank") is not None and ("attn_kv_a_mqa.weight" in rows or not rows):
            key, value = h.whole("attention.key_length_mla", a.key_dim), h.whole("attention.value_length_mla", a.value_dim)
            return a.replace(
                kind="latent",
                kv_heads=a.heads,
                key_dim=key,
                value_dim=value,
                latent_rank=h.whole("attention.kv_lora_rank"),
                query_rank=h.whole("attention.q_lora_rank"),
                rope_dim=h.whole("rope.dimension_count"),
                index_heads=h.whole("attention.indexer.head_count") if any(name.startswith("indexer.") for name in rows) else 0,
                index_dim=h.whole("attention.indexer.key_length") if any(name.startswith("indexer.") for name in rows) else 0,
            )
        if index >= self.starts:
            slides = self.sliding[index] if self.sliding else False
            return a.replace(shares_cache_of=max(self.starts - (2 if slides else 1), 0))
        keys = rows.get("attn_k.weight")
        if keys is not None and len(keys.dims) > 1 and keys.dims[1] != a.kv_heads * a.key_dim and not self.told:
            self.told = True
            self.unusual.append(f"{keys.name} is {keys.dims[1]} wide where the header's heads make {a.kv_heads * a.key_dim}")
        return a

    def _state(self, rows: "dict[str, Tensor]", index: int) -> "State | None":
        h = self.h
        wkv, short, kda = h.whole("wkv.head_size"), h.whole("shortconv.l_cache", 0, 0, 1024), h.whole("kda.head_dim")
        inner, kernel = h.whole("ssm.inner_size"), h.whole("ssm.conv_kernel", 0, 0, 1024)
        if not (
            any(name.startswith(("ssm_", "time_mix_", "shortconv.")) for name in rows) if rows else self._without_tensors(index, wkv or short or inner or kda)
        ):
            return None
        if wkv:
            shifts = h.whole("token_shift_count", 2, 0, 16)
            kind = "rwkv7" if str(h.arch).endswith("rwkv7") else "rwkv6"
            return State(kind=kind, conv_elements=shifts * h.width, state_elements=h.width * wkv, inner_width=h.width, heads=h.width // wkv)
        if short:
            return State(kind="short_conv", conv_elements=h.width * (short - 1), state_elements=0, inner_width=h.width)
        heads = max(self.heads, default=0)
        if kda:
            wide = heads * kda
            return State(kind="kda", conv_elements=3 * ((kernel or 4) - 1) * wide, state_elements=kda * kda * heads, inner_width=wide, heads=heads)
        if h.arch == "minimax-01":
            each = h.whole("attention.key_length", 128)
            return State(kind="lightning", conv_elements=0, state_elements=each * each * heads, inner_width=each * heads, heads=heads)
        groups, size, rank = h.whole("ssm.group_count"), h.whole("ssm.state_size"), h.whole("ssm.time_step_rank")
        delta = any(name in rows for name in ("ssm_ba.weight", "ssm_alpha.weight", "ssm_beta.weight")) or h.arch in _DELTA
        kind = "gated_delta_net" if delta else "mamba" if "ssm_x.weight" in rows or not groups else "mamba2"
        conv = max(kernel - 1, 0) * (inner + 2 * groups * size)
        return State(kind=kind, conv_elements=conv, state_elements=size * inner, inner_width=inner, heads=rank if kind != "mamba" else 0)

    def _without_tensors(self, index: int, named: int) -> bool:
        """Whether a layer keeps a state, by the keys alone (`is_recr_impl` in src/models/*.cpp)."""
        h = self.h
        if not named and h.arch != "minimax-01":
            return False
        listed = h.flags("attention.recurrent_layers", len(self.heads))
        if listed is not None:
            return listed[index]
        if h.arch in (*_DELTA, "minimax-01"):
            return (index + 1) % (h.whole("full_attention_interval", 8 if h.arch == "minimax-01" else 4, 1) or 1) != 0
        if h.arch == "falcon-h1":
            return True
        return not self.kv_heads[index] and (not str(h.arch).startswith("nemotron_h") or not self.ff[index])


def _attends(rows: "dict[str, Tensor]", state: "State | None") -> bool:
    """Whether the layer's tensors are those of an attention: keys of its own, or queries alone where the cache is another's."""
    if any(name in rows for name in ("attn_k.weight", "attn_kv_a_mqa.weight", "attn_kv_b.weight", "attn_k_b.weight", "attn_kv.weight")):
        return True
    return state is None and any(name in rows for name in ("attn_qkv.weight", "attn_q.weight", "attn_q_b.weight"))


def _windows(h: Header, count: int) -> "tuple[int, list[bool]]":
    """The window in tokens and which layers have it (`load_swa_pattern`: a list in the file, a period in the file, the architecture's own)."""
    known = WINDOWS.get(str(h.arch))
    given = h.whole("attention.sliding_window", 0, 0, 1 << 31) if h.raw("attention.sliding_window") is not None else None
    window = given if given is not None else (known[0] if known else None)
    if h.arch == "llama4" and window:
        window = 8192  # src/models/llama4.cpp: the chunk is fixed
    if h.arch == "exaone4" and count == 64:  # src/models/exaone4.cpp: only the 32B slides
        window, known = window or 4096, (4096, 4, False)
    listed = h.flags("attention.sliding_window_pattern", count)
    if not window or (known is None and listed is None):
        return 0, []
    if listed is not None:
        return window, listed
    period = h.whole("attention.sliding_window_pattern", known[1] if known else 0, 0, 1 << 16)
    if not period:
        return 0, []
    if known is not None and known[2]:
        return window, [index % period != 0 for index in range(count)]
    return window, [index % period < period - 1 for index in range(count)]


def _feed(h: Header, rows: "dict[str, Tensor]", index: int, width: int) -> "FeedForward | None":
    """The feed-forward block: experts where there are `_exps` tensors, plain where there is a way down, else none."""
    experts = h.whole("expert_count", 0, 0, MAX_EXPERTS)
    if not rows:
        dense = index < h.whole("leading_dense_block_count", 0, 0, MAX_LAYERS)
        if experts and not dense:
            inner = h.whole("expert_feed_forward_length", width)
            return FeedForward(kind="experts", width=inner, experts=experts, experts_used=_used(h, experts), shared_width=_shared(h, rows, inner))
        return FeedForward(kind="dense", width=width) if width else None
    down = rows.get("ffn_down_exps.weight")
    if down is not None:
        gated = any(name in rows for name in ("ffn_gate_exps.weight", "ffn_gate_up_exps.weight"))
        inner = down.dims[0]
        return FeedForward(
            kind="experts", width=inner, gated=gated, experts=experts or down.dims[-1], experts_used=_used(h, experts), shared_width=_shared(h, rows, inner)
        )
    down = rows.get("ffn_down.weight") or rows.get("channel_mix_value.weight") or rows.get("ffn_down.0.weight")
    if down is None:
        return None
    up = rows.get("ffn_up.weight")
    gated = "ffn_gate.weight" in rows or (up is not None and len(up.dims) > 1 and up.dims[1] == 2 * down.dims[0])
    return FeedForward(kind="dense", width=down.dims[0], gated=gated)


def _used(h: Header, experts: int) -> int:
    used = h.whole("expert_used_count", 0, 0, MAX_EXPERTS)
    if used > experts:
        raise h.bad("expert_used_count", f"({used}) is more than expert_count ({experts})")
    return used


def _shared(h: Header, rows: "dict[str, Tensor]", inner: int) -> int:
    down = rows.get("ffn_down_shexp.weight")
    if down is not None:
        return down.dims[0]
    if rows:
        return 0
    return h.whole("expert_shared_feed_forward_length", h.whole("expert_shared_count", 0, 0, 1 << 12) * inner)


def _clip(h: Header, tensors: "tuple[Tensor, ...]") -> Shape:
    """A projector file (mmproj): towers only."""
    towers: dict[str, Tower] = {}
    for kind, stack in (("vision", "v."), ("audio", "a.")):
        count = h.whole(f"{kind}.block_count", 0, 0, MAX_LAYERS)
        held = sum(tensor.elements for tensor in tensors if tensor.name.startswith(stack))
        if not count and not held:
            continue
        heads, width = h.whole(f"{kind}.attention.head_count", 1, 1, MAX_HEADS), h.whole(f"{kind}.embedding_length")
        a = Attention(kind="full", heads=heads, kv_heads=heads, key_dim=width // heads, value_dim=width // heads)
        fed = FeedForward(kind="dense", width=h.whole(f"{kind}.feed_forward_length"), gated=False)
        towers[kind] = Tower(
            kind=kind,
            width=width,
            layers=tuple(Layer(index=index, attention=a, feed_forward=fed) for index in range(count)),
            parameters=held,
            patch=h.whole(f"{kind}.patch_size"),
            image=h.whole(f"{kind}.image_size"),
        )
    total = sum(tensor.elements for tensor in tensors)
    return Shape(
        architecture="clip",
        vocabulary=0,
        width=h.whole("vision.projection_dim") or h.whole("audio.projection_dim"),
        layers=(),
        vision=towers.get("vision"),
        audio=towers.get("audio"),
        parameters=total,
        active_parameters=total,
        unusual=("a projector for a text model, not a model of its own",),
    )
