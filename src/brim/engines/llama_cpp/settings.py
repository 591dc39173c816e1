"""What each option of llama.cpp does to a workload: one small setter an option, by its canonical name; it parses values, not command lines.

Source of every rule: the option's handler in common/arg.cpp (b11434).
"""

from brim.engines.llama_cpp.defaults import MAX_SEQUENCES
from brim.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Setter = Callable[["Given", "Said"], None]

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # common/common.h LLM_FFN_EXPS_REGEX, b11434
DENSE = r"\.ffn_(up|down|gate)\."  # common/common.h LLM_FFN_DENSE_REGEX, b11434
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")  # common/arg.cpp kv_cache_types, b11434
# common/speculative.cpp `common_speculative_type_from_name_map`, b11434
SPEC_TYPES = (
    "none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
)  # fmt: skip

# the beginnings of the buffer types' names of all backends (ggml/src/ggml-*/ `get_name`, b11434)
_BUFFERS = (
    "cpu", "cuda", "rocm", "hip", "musa", "vulkan", "sycl", "xpu", "metal", "mtl", "cann", "opencl", "gpuopencl", "rpc", "blas", "kompute", "amx", "htp", "hexagon", "webgpu", "zdnn",
    "openvino", "virtgpu", "zendnn", "repack", "host",
)  # fmt: skip

# Known options that may hold memory and are not priced: they are listed, never dropped
UNPRICED = frozenset((
    "--rpc", "--override-kv", "--control-vector", "--control-vector-scaled", "--lookup-cache-static", "--lookup-cache-dynamic",
    "--backend-sampling", "--ppl-stride", "--grp-attn-n", "--models-dir", "--models-preset", "--docker-repo", "--n-gqa", "--ctx-size-draft",
    "--memory-f32", "--prompt-cache",
))  # fmt: skip


class Said:
    """One option as it was said: the word itself, its value (empty for a flag), and whether it was the positive form."""

    __slots__ = ("positive", "value", "word")

    def __init__(self, word: str, value: str = "", *, positive: bool = True) -> None:
        self.word, self.value, self.positive = word, value, positive


class Given:
    """What a command line has said so far: workload fields by name, the model's names, and what to tell the user."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.fields: dict[str, Any] = {}
        self.path: str | None = None
        self.url = self.hf_repo = self.hf_file = self.docker = ""
        self.draft_hf = ""
        self.no_mmproj = False
        self.devices: tuple[str, ...] | None = None
        self.unpriced: list[str] = []
        self.caveats: list[str] = []

    def model(self) -> str | None:
        """The model by the order of common/arg.cpp `common_models_handler_apply`: repository, then URL, then path."""
        if self.hf_repo:
            return hub_name(self.hf_repo, self.hf_file)
        return self.url or self.path

    def extend(self, field: str, items: "tuple[Any, ...]") -> None:
        """Add to a field that gathers over repetitions."""
        self.fields[field] = (*self.fields.get(field, ()), *items)


def hub_name(repo: str, file: str = "") -> str:
    """`hf:org/name`, with the file or the quantisation tag behind it."""
    return f"hf:{repo}:{file}" if file else f"hf:{repo}"


def whole(given: Given, text: str, word: str) -> int:
    """A whole number as `std::stoi` reads it: leading digits count, the rest is ignored (and said)."""
    bare = text.strip()
    end = 1 if bare[:1] in "+-" and bare else 0
    while end < len(bare) and bare[end].isdigit():
        end += 1
    try:
        value = int(bare[:end])
    except ValueError:
        raise Usage(f"{word}: {text!r} is no whole number", hint="llama.cpp takes plain digits here.") from None
    if not -(1 << 31) <= value < 1 << 31:
        raise Usage(f"{word}: {text[:40]} is more than llama.cpp holds", hint="llama.cpp takes whole numbers of 32 bits here.")
    if end < len(bare):
        given.caveats.append(f"{word} {text}: llama.cpp reads this as {value}")
    return value


def _int(field: str, low: int | None = None) -> "Setter":
    def put(given: Given, said: Said) -> None:
        number = whole(given, said.value, said.word)
        if low is not None and number < low:
            raise Usage(f"{said.word}: {number} is below {low}")
        given.fields[field] = number

    return put


def _flag(field: str, *, value: bool = True) -> "Setter":
    def put(given: Given, said: Said) -> None:
        given.fields[field] = value if said.positive else not value

    return put


def _word(field: str, allowed: tuple[str, ...] = ()) -> "Setter":
    def put(given: Given, said: Said) -> None:
        if allowed and said.value not in allowed:
            raise Usage(f"{said.word}: {said.value!r} is none of {', '.join(allowed)}")
        given.fields[field] = said.value

    return put


def _spec_types(given: Given, said: Said) -> None:
    names = tuple(part for part in said.value.split(",") if part)
    for name in names:
        if name not in SPEC_TYPES:
            raise Usage(f"{said.word}: {name!r} is none of {', '.join(SPEC_TYPES)}")
    given.extend("spec_types", names)


def layers(given: Given, value: str, word: str) -> int:
    """-ngl: `auto` is -1, `all` is -2, else a number."""
    return {"auto": -1, "all": -2}.get(value) or whole(given, value, word)


def _gpu_layers(field: str) -> "Setter":
    def put(given: Given, said: Said) -> None:
        given.fields[field] = layers(given, said.value, said.word)

    return put


def tri_state(value: str, word: str) -> str:
    """on, off or auto, by arg.cpp's `is_truthy`, `is_falsey`, `is_autoy`."""
    if value in ("on", "enabled", "true", "1"):
        return "on"
    if value in ("off", "disabled", "false", "0"):
        return "off"
    if value in ("auto", "-1"):
        return "auto"
    raise Usage(f"{word}: {value!r} is none of on, off, auto")


def _flash(given: Given, said: Said) -> None:
    given.fields["flash_attn"] = tri_state(said.value, said.word)


def _fit(given: Given, said: Said) -> None:
    state = tri_state(said.value, said.word)
    if state == "auto":
        raise Usage(f"{said.word}: {said.value!r} is none of on, off")
    given.fields["fit"] = state == "on"


def shares(value: str, word: str) -> tuple[float, ...]:
    """-ts: proportions, split by commas or slashes."""
    try:
        found = tuple(float(part) for part in value.replace("/", ",").split(",") if part.strip())
    except ValueError:
        raise Usage(f"{word}: {value!r} is no list of proportions") from None
    if any(not 0 <= share < float("inf") for share in found):
        raise Usage(f"{word}: {value!r} is no list of proportions")
    return found


def _tensor_split(given: Given, said: Said) -> None:
    given.fields["tensor_split"] = shares(said.value, said.word)


def _fit_target(given: Given, said: Said) -> None:
    given.fields["fit_target_mib"] = tuple(whole(given, part, said.word) for part in said.value.replace("/", ",").split(",") if part)


def overrides(value: str, word: str, separator: str = ",") -> tuple[tuple[str, str], ...]:
    """-ot: pattern=buffer type, several by commas (arg.cpp `parse_tensor_buffer_overrides` splits at every comma, inside a pattern too)."""
    found = []
    for item in value.split(separator):
        if not item:
            continue
        pattern, equals, buffer = item.partition("=")
        if not equals:
            raise Usage(f"{word}: {item!r} is no PATTERN=BUFFER")
        check_override(word, pattern, buffer)
        found.append((pattern, buffer))
    return tuple(found)


def check_override(word: str, pattern: str, buffer: str) -> None:
    """`Usage` for a pattern that is no regular expression, or a buffer that no backend of llama.cpp has."""
    import re

    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as fault:
        raise Usage(f"{word}: {pattern[:200]!r} is no regular expression: {fault}") from None
    if not buffer.lower().startswith(_BUFFERS):
        raise Usage(f"{word}: {buffer[:200]!r} is no buffer type", hint="CPU, CUDA0, CUDA_Host, ROCm0, Vulkan0, SYCL0, Metal, ….")


def _override(field: str) -> "Setter":
    def put(given: Given, said: Said) -> None:
        given.extend(field, overrides(said.value, said.word))

    return put


def _cpu_moe(field: str) -> "Setter":
    def put(given: Given, said: Said) -> None:
        given.extend(field, ((EXPERTS, "CPU"),))

    return put


def _most(field: str) -> "Setter":
    """Said twice, the larger counts: each time adds overrides for its first N layers."""

    def put(given: Given, said: Said) -> None:
        before = given.fields.get(field, 0)
        _int(field, 0)(given, said)
        given.fields[field] = max(before, given.fields[field])

    return put


def _cpu_ffn(given: Given, said: Said) -> None:
    count = whole(given, said.value, said.word)
    given.extend("override_tensors", tuple((rf"blk\.{i}{DENSE}", "CPU") for i in range(min(count, 4096))))


def _devices(given: Given, said: Said) -> None:
    names = tuple(part for part in said.value.split(",") if part)
    if not names:
        raise Usage(f"{said.word}: no device named")
    given.devices = () if names == ("none",) else names


def _load_mode(given: Given, said: Said) -> None:
    if said.value not in ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio"):
        raise Usage(f"{said.word}: {said.value!r} is none of auto, none, mmap, mlock, mmap+mlock, dio")
    given.fields["load_mode"] = said.value
    given.fields["mmap"] = said.value in ("auto", "mmap", "mmap+mlock")


def _old_load(mode: str) -> "Setter":
    def put(given: Given, said: Said) -> None:
        before = given.fields.get("load_mode", "auto")
        if mode == "mlock" and before in ("auto", "mmap"):
            _load_mode(given, Said(said.word, "mmap+mlock"))
        else:
            _load_mode(given, Said(said.word, mode))

    return put


def _lora(given: Given, said: Said) -> None:
    given.extend("lora", tuple(part.strip() for part in said.value.split(",") if part.strip()))


def _lora_scaled(given: Given, said: Said) -> None:
    for item in said.value.split(","):
        name, colon, scale = item.rpartition(":")
        if not colon or not name or not scale:
            raise Usage(f"{said.word}: {item!r} is no FILE:SCALE")
        given.extend("lora", (name,))


def _model(given: Given, said: Said) -> None:
    given.path = said.value


def _named(attribute: str) -> "Setter":
    def put(given: Given, said: Said) -> None:
        setattr(given, attribute, said.value)

    return put


def _draft_hub(given: Given, said: Said) -> None:
    given.draft_hf = said.value
    given.fields["draft_model"] = hub_name(said.value, given.fields.get("draft_model", ""))


def _draft_model(given: Given, said: Said) -> None:
    given.fields["draft_model"] = hub_name(given.draft_hf, said.value) if given.draft_hf else said.value


def _mmproj_auto(given: Given, said: Said) -> None:
    given.no_mmproj = not said.positive
    if not said.positive:
        given.fields.pop("mmproj", None)


def _mmproj_device(given: Given, said: Said) -> None:
    given.fields["mmproj_offload"] = said.value != "none"


def _embedding(given: Given, said: Said) -> None:
    given.fields["embeddings"] = True
    if "rerank" in said.word.lower():
        given.fields["pooling"] = "rank"


def _removed_draft(given: Given, said: Said) -> None:
    given.caveats.append(f"{said.word}: removed, b11434 ends at it; read as --spec-draft-n-max")
    _int("draft_max", 0)(given, said)


def _parallel_list(given: Given, said: Said) -> None:
    most = max((whole(given, part, said.word) for part in said.value.split(",") if part), default=1)
    given.fields["slots"] = max(most, given.fields.get("slots", 1))


def _parallel(given: Given, said: Said) -> None:
    if given.program != "llama-batched-bench":  # it takes its sequences from -npl alone
        number = whole(given, said.value, said.word)
        if number == 0 and given.program == "llama-server":
            raise Usage(f"{said.word}: 0 slots")
        if number > MAX_SEQUENCES:
            raise Usage(f"{said.word}: {number} is more than the {MAX_SEQUENCES} sequences that llama.cpp holds")
        given.fields["slots"] = number or 1  # `llama_context()` takes at least one sequence


def _preset(repo: str, file: str = "", draft: str = "", **fields: int) -> "Setter":
    def put(given: Given, said: Said) -> None:
        given.hf_repo, given.hf_file = repo, file
        given.fields.update(fields)
        if draft:
            given.fields["draft_model"] = draft

    return put


def _scoring(given: Given, said: Said) -> None:
    given.fields["scoring"] = True


def _no_model(given: Given, said: Said) -> None:
    given.caveats.append(f"{said.word}: the program prints or connects and loads no model")


def _fim(name: str, draft: str = "") -> "Setter":
    return _preset(f"ggml-org/{name}-GGUF", f"{name.lower()}.gguf", draft, batch=1024, ubatch=1024, ctx=0)


_QWEN_DRAFT = "hf:ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF:qwen2.5-coder-0.5b-q8_0.gguf"

APPLY: "dict[str, Setter]" = {
    "--ctx-size": _int("ctx", 0), "--kv-unified-per-slot": _int("ctx_per_slot"), "--batch-size": _int("batch"), "--ubatch-size": _int("ubatch"),
    "--swa-full": _flag("swa_full"), "--ctx-checkpoints": _int("ctx_checkpoints"), "--checkpoint-min-step": _int("checkpoint_step", 0),
    "--cache-ram": _int("cache_ram_mib"), "--kv-unified": _flag("kv_unified"), "--flash-attn": _flash, "--kv-offload": _flag("kv_offload"),
    "--repack": _flag("repack"), "--no-host": _flag("no_host"), "--cache-type-k": _word("ctk", CACHE_TYPES), "--cache-type-v": _word("ctv", CACHE_TYPES),
    "--parallel": _parallel, "-npl": _parallel_list, "--mmproj": _word("mmproj"), "--mmproj-url": _word("mmproj"), "--mmproj-auto": _mmproj_auto,
    "--mmproj-offload": _flag("mmproj_offload"), "--mmproj-device": _mmproj_device, "--image-min-tokens": _int("image_min_tokens"),
    "--image-max-tokens": _int("image_max_tokens"), "--mtmd-batch-max-tokens": _int("image_batch_tokens"), "--load-mode": _load_mode,
    "--lazy-mode": _word("lazy_mode", ("on", "auto", "off")), "--no-mmap": _old_load("none"), "--mmap": _old_load("mmap"), "--mlock": _old_load("mlock"),
    "--direct-io": _old_load("dio"), "--device": _devices, "--override-tensor": _override("override_tensors"), "--cpu-moe": _cpu_moe("override_tensors"),
    "--n-cpu-moe": _most("cpu_experts"), "--n-cpu-ffn": _cpu_ffn, "--gpu-layers": _gpu_layers("gpu_layers"),
    "--split-mode": _word("split_mode", ("none", "layer", "row", "tensor")), "--tensor-split": _tensor_split, "--main-gpu": _int("main_gpu"), "--fit": _fit,
    "--fit-target": _fit_target, "--fit-ctx": _int("fit_ctx"), "--op-offload": _flag("op_offload"), "-nopo": _flag("op_offload", value=False),
    "--lora": _lora, "--lora-scaled": _lora_scaled, "--model": _model, "--model-url": _named("url"), "--docker-repo": _named("docker"),
    "--hf-repo": _named("hf_repo"), "--hf-file": _named("hf_file"), "--embedding": _embedding, "--rerank": _embedding,
    "--pooling": _word("pooling", ("none", "mean", "cls", "last", "rank")), "--attention": _word("attention", ("causal", "non-causal")),
    "--spec-draft-hf": _draft_hub, "--spec-draft-model": _draft_model, "--spec-draft-type-k": _word("draft_ctk", CACHE_TYPES),
    "--spec-draft-type-v": _word("draft_ctv", CACHE_TYPES), "--spec-draft-override-tensor": _override("draft_override_tensors"),
    "--spec-draft-cpu-moe": _cpu_moe("draft_override_tensors"), "--spec-draft-n-cpu-moe": _most("draft_cpu_experts"),
    "--spec-draft-n-max": _int("draft_max", 0),
    "--spec-draft-ngl": _gpu_layers("draft_gpu_layers"), "--spec-type": _spec_types, "--draft": _removed_draft,
    "--nextn": _flag("load_mtp"),
    "--warmup": _flag("no_warmup", value=False), "--threads": _int("threads"), "--hellaswag": _scoring, "--winogrande": _scoring, "--multiple-choice": _scoring,
    "--help": _no_model, "--version": _no_model, "--list-devices": _no_model, "--server-base": _no_model, "--cache-list": _no_model,
    "--spec-default": lambda given, _said: given.extend("spec_types", ("ngram-mod",)),
    "--embd-gemma-default": _preset(
        "ggml-org/embeddinggemma-300M-qat-q4_0-GGUF", "embeddinggemma-300M-qat-Q4_0.gguf", ubatch=2048, batch=2048, slots=32, ctx=65536, embeddings=True
    ),
    "--fim-qwen-1.5b-default": _fim("Qwen2.5-Coder-1.5B-Q8_0"), "--fim-qwen-3b-default": _fim("Qwen2.5-Coder-3B-Q8_0"),
    "--fim-qwen-7b-default": _fim("Qwen2.5-Coder-7B-Q8_0"), "--fim-qwen-7b-spec": _fim("Qwen2.5-Coder-7B-Q8_0", _QWEN_DRAFT),
    "--fim-qwen-14b-spec": _fim("Qwen2.5-Coder-14B-Q8_0", _QWEN_DRAFT), "--fim-qwen-30b-default": _fim("Qwen3-Coder-30B-A3B-Instruct-Q8_0"),
    "--gpt-oss-20b-default": _preset("ggml-org/gpt-oss-20b-GGUF", "gpt-oss-20b-mxfp4.gguf", ubatch=2048, batch=32768, slots=2, ctx=262144),
    "--gpt-oss-120b-default": _preset("ggml-org/gpt-oss-120b-GGUF", ubatch=2048, batch=32768, slots=2, ctx=262144),
    "--vision-gemma-4b-default": _preset("ggml-org/gemma-3-4b-it-qat-GGUF", ctx=0),
    "--vision-gemma-12b-default": _preset("ggml-org/gemma-3-12b-it-qat-GGUF", ctx=0),
}  # fmt: skip
