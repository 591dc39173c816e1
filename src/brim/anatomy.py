"""What a checkpoint is made of, for a person: what each tensor is for, sizes by role, the mix of number formats, and a picture of the layers; it opens nothing.

Guarantees: sizes by role and by format each add up to all tensors; the picture says the same layers that the shape holds, in fewer words.
"""

from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from brim.facts.model import Attention, Checkpoint, Layer, Shape, Tensor

ROLES = ("embedding", "attention", "feed_forward", "experts", "state", "norm", "output", "vision", "audio", "adapter", "other")

# the first row that matches decides; a word is looked for between dots, underscores at its ends included
_RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("adapter", ("lora_a", "lora_b", "lora_embedding", "lora_magnitude", "ia3_l", "prompt_embeddings")),
    (
        "vision",
        (
            "v.blk",
            "v.patch",
            "v.pos",
            "v.post",
            "v.pre",
            "mm.",
            "vision_tower",
            "vision_model",
            "visual.",
            "multi_modal_projector",
            "patch_embed",
            "image_newline",
        ),
    ),
    ("audio", ("a.blk", "audio_tower", "audio_model")),
    ("norm", ("norm", "ln_", "layernorm", ".ln")),
    ("experts", ("_exps", "experts.", "block_sparse_moe", "ffn_gate_inp", "shared_expert", "_shexp", "mlp.gate.", "router", "exp_probs")),
    ("state", ("ssm", "mamba", "mixer", "time_mix", "linear_attn", "shortconv", ".conv.", "dt_proj", "x_proj", "a_log", "rwkv")),
    ("attention", ("attn", "attention", "q_proj", "k_proj", "v_proj", "o_proj", "qkv", "rope_freqs", "query", "c_attn", "kv_")),
    (
        "feed_forward",
        (
            "ffn",
            "mlp",
            "feed_forward",
            "gate_proj",
            "up_proj",
            "down_proj",
            "intermediate",
            "fc1",
            "fc2",
            "dense_h",
            "channel_mix",
            "output.dense",
            ".wo.",
            ".wi",
        ),
    ),
    ("embedding", ("embd", "embed", "wte", "wpe", "token_types")),
    ("output", ("lm_head", "output.weight", "output.bias", "cls", "pooler", "score")),
)


class Slice(Record):
    """A part of all tensors: its word, how many tensors, their stored bytes and logical elements."""

    word: str
    tensors: int
    stored_bytes: int
    elements: int


class Anatomy(Record):
    """The answer to "what is in this model?". Bytes are stored bytes; parameters are logical. `picture` is "" where the layers are not known."""

    parameters: "int | Missing"
    active_parameters: "int | Missing"
    weights_bytes: int
    by_role: tuple[Slice, ...]
    by_format: tuple[Slice, ...]
    picture: str
    context_trained: "int | Missing"
    unusual: tuple[str, ...]


def role_of(name: str) -> str:
    """What a tensor is for, by its name in GGUF (`blk.0.attn_q.weight`) or in a published checkpoint (`model.layers.0.self_attn.q_proj.weight`)."""
    low = name.lower()
    for role, words in _RULES:
        if any(word in low for word in words):
            return role
    return "other"


def describe(checkpoint: "Checkpoint") -> Anatomy:
    """Everything that `brim inspect` says about a checkpoint."""
    shape = checkpoint.shape
    known = not isinstance(shape, Missing)
    held = sum(tensor.elements for tensor in checkpoint.tensors)
    nothing = Missing(reason="not_supported", detail="neither tensors nor config tell")
    told: int | Missing = shape.parameters if not isinstance(shape, Missing) else nothing
    active: int | Missing = shape.active_parameters if not isinstance(shape, Missing) else nothing
    parameters = held if held else told
    if isinstance(active, Missing):
        active = _active(checkpoint)
    context = shape.context_trained if not isinstance(shape, Missing) else nothing
    if isinstance(context, Missing):
        context = _context(checkpoint)
    unusual = list(shape.unusual) if not isinstance(shape, Missing) else [f"the layers are not known: {shape.detail}"]
    if held and isinstance(told, int) and told != held:
        unusual.append(f"the tensors hold {held} parameters, the config implies {told}")
    return Anatomy(
        parameters=parameters,
        active_parameters=active,
        weights_bytes=sum(tensor.stored_bytes for tensor in checkpoint.tensors),
        by_role=_slices(checkpoint.tensors, lambda tensor: role_of(tensor.name), ROLES),
        by_format=_slices(checkpoint.tensors, lambda tensor: tensor.dtype, ()),
        picture=picture(shape) if known and not isinstance(shape, Missing) else "",
        context_trained=context,
        unusual=(*unusual, *checkpoint.caveats),
    )


def _slices(tensors: "tuple[Tensor, ...]", key: "Callable[[Tensor], str]", order: "tuple[str, ...]") -> "tuple[Slice, ...]":
    sums: dict[str, list[int]] = {}
    for tensor in tensors:
        row = sums.setdefault(key(tensor), [0, 0, 0])
        row[0] += 1
        row[1] += tensor.stored_bytes
        row[2] += tensor.elements
    made = tuple(Slice(word=word, tensors=row[0], stored_bytes=row[1], elements=row[2]) for word, row in sorted(sums.items(), key=lambda item: -item[1][1]))
    assert sum(part.stored_bytes for part in made) == sum(tensor.stored_bytes for tensor in tensors)
    return tuple(sorted(made, key=lambda part: order.index(part.word))) if order else made


def _active(checkpoint: "Checkpoint") -> "int | Missing":
    """Parameters that one token passes through, from the tensors and the header's own expert counts; all of them where there are no experts."""
    total = sum(tensor.elements for tensor in checkpoint.tensors)
    if not total:
        return Missing(reason="not_supported", detail="the tensors' sizes are not known")
    prefix = checkpoint.architecture
    experts, used = checkpoint.metadata.get(f"{prefix}.expert_count"), checkpoint.metadata.get(f"{prefix}.expert_used_count")
    packed = sum(tensor.elements for tensor in checkpoint.tensors if "_exps" in tensor.name)
    if not packed:
        return (
            total
            if "general.architecture" in checkpoint.metadata or not _sparse(checkpoint)
            else Missing(reason="not_supported", detail="the config does not tell how many experts a token uses")
        )
    if not (isinstance(experts, int) and isinstance(used, int) and 0 < used <= experts):
        return Missing(reason="not_supported", detail=f"{prefix}.expert_count and expert_used_count do not tell")
    return total - packed + packed * used // experts


def _sparse(checkpoint: "Checkpoint") -> bool:
    """Whether any tensor belongs to one of several experts."""
    return any("experts" in tensor.name or "block_sparse_moe" in tensor.name for tensor in checkpoint.tensors)


def _context(checkpoint: "Checkpoint") -> "int | Missing":
    value = checkpoint.metadata.get(f"{checkpoint.architecture}.context_length", checkpoint.metadata.get("max_position_embeddings"))
    return value if isinstance(value, int) else Missing(reason="not_supported", detail="the header does not say")


def picture(shape: "Shape") -> str:
    """The layers in a line: runs of alike layers, and a repeated run of runs once with its count (`5×swa(1024) + 1×full, 8 times`)."""
    words = [word(layer) for layer in shape.layers]
    text = _fold(words)
    if shape.encoder_layers:
        text = (
            f"encoder: {_fold([word(layer) for layer in shape.encoder_layers])}; decoder: {text}"
            if words
            else f"encoder: {_fold([word(layer) for layer in shape.encoder_layers])}"
        )
    return text


def word(layer: "Layer") -> str:
    """One layer in a word: what carries its memory, then `+moe(used/experts)` where its feed-forward is sparse."""
    parts = []
    if layer.attention is not None:
        parts.append(_attention(layer.attention))
    if layer.state is not None:
        parts.append(layer.state.kind)
    if layer.cross is not None:
        parts.append("cross")
    feed = layer.feed_forward
    if feed is not None and feed.experts:
        parts.append(f"moe({feed.experts_used}/{feed.experts})")
    elif feed is not None and not parts:
        parts.append("ffn")
    return "+".join(parts) or "empty"


def _attention(attention: "Attention") -> str:
    name = {"sliding": "swa", "chunked": "chunked", "latent": "mla"}.get(attention.kind, attention.kind)
    text = f"{name}({attention.window})" if attention.window else name
    return text + "→shared" if attention.shares_cache_of is not None else text


def _fold(words: "list[str]") -> str:
    """Runs of alike layers; where a row of runs stands several times in a row, it is said once with its count, the longest stretch first."""
    runs: list[tuple[int, str]] = []
    for item in words:
        if runs and runs[-1][1] == item:
            runs[-1] = (runs[-1][0] + 1, item)
        else:
            runs.append((1, item))
    parts: list[str] = []
    loose: list[tuple[int, str]] = []
    at = 0
    while at < len(runs):
        period, times = _repeat(runs, at)
        if times < 2:
            loose.append(runs[at])
            at += 1
            continue
        if loose:
            parts.append(_say(loose))
            loose = []
        parts.append(f"{_say(runs[at : at + period])}, {times} times")
        at += period * times
    if loose:
        parts.append(_say(loose))
    return ", then ".join(parts)


def _repeat(runs: "list[tuple[int, str]]", at: int) -> tuple[int, int]:
    """(length, times) of the row of runs that, said again and again from `at` on, covers most; times 1 where none is said twice."""
    best = (1, 1)
    for period in range(2, min(16, (len(runs) - at) // 2) + 1):
        times = 1
        while runs[at + times * period : at + (times + 1) * period] == runs[at : at + period]:
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = (period, times)
    return best


def _say(runs: "list[tuple[int, str]]") -> str:
    return " + ".join(f"{times}×{item}" for times, item in runs)
