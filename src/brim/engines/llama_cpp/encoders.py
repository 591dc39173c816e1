"""How much a projector's encoder works with: the image that it is warmed up with, its widest moment, and a span for what that moment leaves out.

Source: tools/mtmd/clip.cpp `load_hparams` (warm-up sizes by projector), `get_dummy_batch`, `build_inp`, `build_vit`, `build_attn`, `build_ffn` and models/qwen2vl.cpp
(window mask), llama.cpp b11434. A transformer over patches holds, beside its inputs, at most: the residual, the normed row, Q, K and V (5 rows); or residual, normed
row, what the allocator leaves between them (half a row) and the feed-forward's hidden rows. Compared with `mtmd_get_memory_usage` of b11434 for eight projectors
(tests/unit/test_llama_companions.py). Not covered: encoders that are no plain transformer (MobileNet, conformers, SAM), whose span is wide and says so.
"""

from brim.facts.model import Checkpoint
from brim.facts.workload import LlamaWorkload
from brim.units import MIB, Span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Tokens a side of the warm-up image by `clip.projector_type`; where a type is not here the whole image of the header is taken.
WARM_UP_SIDE = {
    "phi4": 16, "lfm2": 16, "pixtral": 16, "lightonocr": 16, "kimivl": 16, "gemma4v": 16, "gemma4uv": 16, "minimax_m3": 16, "youtuvl": 16, "paddleocr": 28,
    "muse-glimmer": 32, "hunyuanvl": 32, "qwen2vl_merger": 46, "qwen2.5vl_merger": 46, "qwen3vl_merger": 46, "ling3vl": 46, "dots_ocr": 46, "dots3note_v": 46,
    "mimovl": 46, "glm4v": 46, "glm5v": 46, "exaone4_5": 46, "kimik25": 64,
}  # fmt: skip
# The most tokens that an image may take, where the loader sets a limit
MOST_TOKENS = {
    "lfm2": 256, "pixtral": 1024, "kimivl": 1024, "kimik25": 4096, "gemma4v": 1120, "gemma4uv": 1120, "qwen2vl_merger": 4096, "qwen2.5vl_merger": 4096,
    "qwen3vl_merger": 4096, "ling3vl": 4096, "minimax_m3": 576, "muse-glimmer": 4096, "glm4v": 4096, "hunyuanvl": 16384,
}  # fmt: skip
MERGES = {
    "minicpmv4_6": 4, "gemma3": 4, "qwen2vl_merger": 2, "qwen2.5vl_merger": 2, "qwen3vl_merger": 2, "ling3vl": 2, "minimax_m3": 2, "muse-glimmer": 2, "mimovl": 2,
    "youtuvl": 2, "glm4v": 2, "glm5v": 2, "paddleocr": 2, "hunyuanvl": 2, "exaone4_5": 2,
}  # fmt: skip
WINDOWED = frozenset(("qwen2.5vl_merger",))
PLAIN = frozenset((
    "mlp", "mlp_norm", "ldp", "ldpv2", "resampler", "gemma3", "phi4", "idefics3", "pixtral", "lightonocr", "internvl", "llama4", "qwen2vl_merger", "qwen2.5vl_merger",
    "qwen3vl_merger", "lfm2", "kimivl", "janus_pro", "glm4v", "dots_ocr", "adapter",
))  # fmt: skip


def _number(keys: "Any", name: str, default: int = 0) -> int:
    value = keys.get(name, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def vision(checkpoint: Checkpoint, workload: LlamaWorkload) -> "tuple[Span, str] | None":
    """The vision encoder's compute buffer, and its arithmetic; None where the file has no vision encoder with a width."""
    keys = checkpoint.metadata
    width, feed = _number(keys, "clip.vision.embedding_length"), _number(keys, "clip.vision.feed_forward_length")
    if not width:
        return None
    kind = str(keys.get("clip.vision.projector_type") or keys.get("clip.projector_type") or "")
    patch, image = max(1, _number(keys, "clip.vision.patch_size", 14)), _number(keys, "clip.vision.image_size")
    merge = max(1, _number(keys, "clip.vision.spatial_merge_size") or _number(keys, "clip.vision.projector.scale_factor") or MERGES.get(kind, 1))
    side = WARM_UP_SIDE.get(kind, 0)
    if side and workload.image_max_tokens:
        side = min(side, max(1, int(workload.image_max_tokens**0.5)))
    patches = (side * merge) ** 2 if side else (image // patch) ** 2
    heads = max(1, _number(keys, "clip.vision.attention.head_count"))
    gated = any(".ffn_gate" in tensor.name for tensor in checkpoint.tensors)
    flash = workload.flash_attn != "off"
    likely, rule = _moment(patches, width, feed, heads, patch, gated=gated, flash=flash, windowed=kind in WINDOWED)
    most = max(patches, (workload.image_max_tokens or MOST_TOKENS.get(kind, 0)) * merge * merge)
    largest, _ = _moment(most, width, feed, heads, patch, gated=gated, flash=flash, windowed=kind in WINDOWED)
    low, high = likely * 17 // 20, likely * 3 // 2 + 8 * MIB
    if kind not in PLAIN:
        low, high = likely // 4, 4 * high
        rule += f"; {kind or 'this projector'} is no encoder that these rules were read for"
    if most > patches:
        rule += f"; the largest image ({most} patches) makes it grow to {largest} (--image-max-tokens bounds it)"
    return Span(low=low, likely=likely, high=high), rule


def audio(checkpoint: Checkpoint) -> "tuple[Span, str] | None":
    """The audio encoder's compute buffer: 30 s of sound, 1500 positions after the convolutions (a wide span: convolutions and adapters are left out)."""
    keys = checkpoint.metadata
    width, feed = _number(keys, "clip.audio.embedding_length"), _number(keys, "clip.audio.feed_forward_length")
    if not width:
        return None
    positions, bins = 1500, _number(keys, "clip.audio.num_mel_bins", 128)
    row, hidden = 4 * positions * width, 4 * positions * feed
    likely = 4 * 2 * positions * bins + max(5 * row, 2 * row + hidden)
    convolution = 4 * positions * 2 * 3 * max(bins, width)
    return Span(
        low=likely // 4, likely=likely, high=2 * (likely + convolution)
    ), f"{positions} positions, width {width}, feed-forward {feed}; not compared with a run"


def _moment(patches: int, width: int, feed: int, heads: int, patch: int, *, gated: bool, flash: bool, windowed: bool) -> tuple[int, str]:
    """Inputs and the widest moment, in bytes."""
    row, hidden = 4 * patches * width, 4 * patches * feed
    inputs = 4 * 3 * patches * patch * patch + (6 * patches * patches if windowed else 0)
    attention = 5 * row if flash else 5 * row + 4 * patches * patches * heads
    forward = 3 * row // 2 + 2 * hidden if gated else 5 * row // 2 + hidden
    widest = max(attention, forward)
    what = f"5 rows of {width}" if flash and attention >= forward else f"a score matrix of {heads} heads" if attention >= forward else f"hidden rows of {feed}"
    return inputs + widest, f"{patches} patches of {patch} x {patch}: inputs {inputs} + {what} {widest}"
