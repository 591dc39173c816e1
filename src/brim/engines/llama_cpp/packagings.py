"""Reads the command lines of programs that ship llama.cpp under other words, as far as their memory options go.

They are llama-cpp-python's server, KoboldCpp, Ollama and LM Studio. Sources: abetlen/llama-cpp-python llama_cpp/server/settings.py; LostRuins/koboldcpp
koboldcpp.py; ollama/ollama envconfig/config.go and docs/context-length.mdx; lmstudio.ai/docs/cli/load.
Not covered: what these programs decide by looking at the machine; each caveat says so.
"""

from brim.engines.llama_cpp.command import Command, finish
from brim.engines.llama_cpp.settings import APPLY, EXPERTS, Given, Said, shares, whole
from brim.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from brim.engines.llama_cpp.settings import Setter

_FALSE = ("false", "0", "off", "no", "n", "f")
_TRUE = ("true", "1", "on", "yes", "y", "t")
_GGML = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 20: "iq4_nl", 30: "bf16"}
_SPLIT = {0: "none", 1: "layer", 2: "row"}


def read_packaging(name: str, words: "Sequence[str]", environ: "Mapping[str, str]") -> "Command | None":
    """The command of a packaging by its program name; None where the name is none of theirs."""
    words = tuple(words)
    if name.startswith(("python", "uv")) or name == "py":
        module = next((i for i, word in enumerate(words) if word == "-m"), None)
        if module is not None and module + 1 < len(words) and words[module + 1] == "llama_cpp.server":
            return _python_server(words[module + 2 :], environ)
        script = next((i for i, word in enumerate(words) if word.rsplit("/", 1)[-1] == "koboldcpp.py"), None)
        return None if script is None else _koboldcpp(words[script + 1 :], environ)
    if name.startswith("koboldcpp"):
        return _koboldcpp(words, environ)
    if name == "ollama":
        return _ollama(words, environ)
    if name == "lms":
        return _lms(words, environ)
    return None


def _pairs(words: tuple[str, ...], flags: frozenset[str]) -> "list[tuple[str, str | None]]":
    """Words as argparse reads them: `--name value`, `--name=value`, flags without a value, and plain words (named by "")."""
    found: list[tuple[str, str | None]] = []
    i = 0
    while i < len(words):
        name, equals, value = words[i].partition("=")
        if not name.startswith("-") or (name[1:2].isdigit()):
            found.append(("", words[i]))
        elif equals:
            found.append((name, value))
        elif name not in flags and i + 1 < len(words) and (not words[i + 1].startswith("-") or words[i + 1][1:2].isdigit()):
            found.append((name, words[i + 1]))
            i += 1
        else:
            found.append((name, None))
        i += 1
    return found


def _truth(value: "str | None", word: str) -> bool:
    if value is None or value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise Usage(f"{word}: {value!r} is neither true nor false")


def _needs(value: "str | None", word: str) -> str:
    if value is None:
        raise Usage(f"{word} needs a value")
    return value


_PYTHON_INTS = {"n_ctx": "ctx", "n_batch": "batch", "n_ubatch": "ubatch", "n_gpu_layers": "gpu_layers", "main_gpu": "main_gpu", "n_threads": "threads"}
_PYTHON_BOOLS = {"use_mmap": "mmap", "embedding": "embeddings", "offload_kqv": "kv_offload", "swa_full": "swa_full", "kv_unified": "kv_unified"}
# the fields that hold no memory of the engine's; every other word is kept as not priced
_PYTHON_IGNORED = frozenset((
    "model_alias", "use_mlock", "seed", "n_threads_batch", "rope_scaling_type", "rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor",
    "yarn_beta_fast", "yarn_beta_slow", "yarn_orig_ctx", "mul_mat_q", "last_n_tokens_size", "numa", "chat_format", "cache_type", "hf_tokenizer_config_path",
    "hf_pretrained_model_name_or_path", "draft_model_num_pred_tokens", "verbose", "host", "port", "ssl_keyfile", "ssl_certfile", "api_key",
    "interrupt_requests", "disable_ping_events", "root_path",
))  # fmt: skip


def _python_server(words: tuple[str, ...], environ: "Mapping[str, str]") -> Command:
    """`python -m llama_cpp.server`: every field of ModelSettings is an option and an environment variable of the same name."""
    given = Given("llama-cpp-python")
    for name in (*_PYTHON_INTS, *_PYTHON_BOOLS, *_PYTHON_WORDS, "flash_attn", "logits_all"):
        if name.upper() in environ:
            _python_setting(given, name, environ[name.upper()], name.upper())
    last = ""
    for word, value in _pairs(words, frozenset()):
        if word:
            last = word.lstrip("-").replace("-", "_")
            _python_setting(given, last, value, word)
        elif last == "tensor_split" and _is_number(value):
            given.extend("tensor_split", (float(value or 0),))
        else:
            given.unpriced.append(str(value))
    if given.fields.pop("logits_all", True):
        given.caveats.append(
            "logits_all is on by default in this server: it keeps a row of the vocabulary in float32 for each token of the context in the host's memory "
            "(llama_cpp/llama.py `Llama.scores`), not priced; --logits_all false leaves one batch of rows"
        )
    if given.hf_repo and given.path:
        # Llama.from_pretrained takes a pattern of file names
        given.hf_file, given.path = given.path.strip("*").removesuffix(".gguf").strip("*-._") if "*" in given.path else given.path, None
    return finish(given, "llama-cpp-python", environ)


def _python_setting(given: Given, name: str, value: "str | None", word: str) -> None:
    if name in _PYTHON_INTS:
        number = whole(given, _needs(value, word), word)
        given.fields[_PYTHON_INTS[name]] = -2 if name == "n_gpu_layers" and number < 0 else number
    elif name in _PYTHON_BOOLS:
        given.fields[_PYTHON_BOOLS[name]] = _truth(value, word)
    elif name in _PYTHON_WORDS:
        _PYTHON_WORDS[name](given, Said(word, _needs(value, word)))
    elif name == "flash_attn":
        given.fields["flash_attn"] = "on" if _truth(value, word) else "off"
    elif name == "logits_all":
        given.fields["logits_all"] = _truth(value, word)
    elif name not in _PYTHON_IGNORED:
        given.unpriced.append(f"{word} {value or ''}".strip())


def _ggml_type(field: str) -> "Setter":
    def put(given: Given, said: Said) -> None:
        number = whole(given, said.value, said.word)
        if number not in _GGML:
            raise Usage(f"{said.word}: {number} is no cache type of ggml")
        given.fields[field] = _GGML[number]

    return put


def _split_number(given: Given, said: Said) -> None:
    given.fields["split_mode"] = _SPLIT.get(whole(given, said.value, said.word), "layer")


def _python_split(given: Given, said: Said) -> None:
    given.fields["tensor_split"] = shares(said.value.strip("[] ").replace(" ", ","), said.word)


_PYTHON_WORDS: "dict[str, Setter]" = {
    "model": APPLY["--model"], "hf_model_repo_id": APPLY["--hf-repo"], "type_k": _ggml_type("ctk"), "type_v": _ggml_type("ctv"), "split_mode": _split_number,
    "tensor_split": _python_split, "clip_model_path": APPLY["--mmproj"], "lora_path": APPLY["--lora"],
}  # fmt: skip


# KoboldCpp's words (argparse; several spellings since 1.9x) → what they set
_KOBOLD_FLAGS = frozenset((
    "--flashattention", "--fa", "--noflashattention", "--useswa", "--swa", "--usemmap", "--usemlock", "--lowvram", "--nokvoffload", "--mmprojcpu",
    "--quiet", "--remotetunnel",
    "--multiplayer", "--highpriority", "--skiplauncher", "--launch", "--smartcontext", "--noshift", "--contextshift", "--foreground", "--websearch",
    "--embeddingsgpu",
    "--noavx2", "--nommap", "--failsafe", "--jinja", "--nomodel", "--showgui", "--nocertify", "--usecpu",
))  # fmt: skip
_KOBOLD_IGNORED = frozenset((
    "--port", "--host", "--threads", "-t", "--blasthreads", "--usecublas", "--usecuda", "--usehipblas", "--usevulkan", "--useclblast",
    "--ropeconfig", "--debugmode", "--benchmark", "--preloadstory",
    "--chatcompletionsadapter", "--ssl", "--password", "--adminpassword", "--admindir", "--gendefaults", "--prompt", "--promptlimit", "--onready",
    "--defaultgenamt", "--analyze",
))  # fmt: skip


def _koboldcpp(words: tuple[str, ...], environ: "Mapping[str, str]") -> Command:
    given = Given("koboldcpp")
    pairs = _pairs(words, _KOBOLD_FLAGS)
    for position, (word, value) in enumerate(pairs):
        if not word:
            follows = pairs[position - 1][0] if position else ""
            if given.path is None and (value or "").lower().endswith((".gguf", ".bin")):
                given.path = value
            elif follows in ("--usecublas", "--usecuda", "--usehipblas") and value == "lowvram":
                given.fields["kv_offload"] = False
            elif position and "tensor_split" in given.fields and _is_number(value):
                given.extend("tensor_split", (float(value or 0),))
        else:
            _kobold_setting(given, word, value)
    if given.fields.get("flash_attn", "off") == "off" and given.fields.get("ctv", "f16") != "f16":
        given.fields["ctv"] = "f16"
        given.caveats.append("--quantkv without --flashattention: only K is quantised")
    return finish(given, "koboldcpp", environ)


def _is_number(value: "str | None") -> bool:
    return bool(value) and (value or "").replace(".", "", 1).isdigit()


def _kobold_setting(given: Given, word: str, value: "str | None") -> None:
    if word in _KOBOLD_VALUES:
        _KOBOLD_VALUES[word](given, Said(word, _needs(value, word)))
    elif word in _KOBOLD_SWITCHES:
        field, setting = _KOBOLD_SWITCHES[word]
        given.fields[field] = setting
    elif word == "--moecpu":
        if value is None:
            given.extend("override_tensors", ((EXPERTS, "CPU"),))
        else:
            given.fields["cpu_experts"] = whole(given, value, word)
    elif word not in _KOBOLD_FLAGS and word not in _KOBOLD_IGNORED:
        given.unpriced.append(f"{word} {value or ''}".strip())


def _kobold_batch(given: Given, said: Said) -> None:
    given.fields["batch"] = given.fields["ubatch"] = max(1, whole(given, said.value, said.word))


def _kobold_cache(given: Given, said: Said) -> None:
    kind = {"0": "f16", "1": "q8_0", "2": "q4_0", "3": "bf16"}.get(said.value, said.value if said.value in _GGML.values() else None)
    if kind is None:
        raise Usage(f"{said.word}: {said.value!r} is none of 0 (f16), 1 (q8_0), 2 (q4_0)")
    given.fields["ctk"] = given.fields["ctv"] = kind


def _kobold_draft(given: Given, said: Said) -> None:
    given.fields.update(draft_model=said.value, spec_types=("draft-simple",))


_KOBOLD_SWITCHES: "dict[str, tuple[str, object]]" = {
    "--flashattention": ("flash_attn", "on"), "--fa": ("flash_attn", "on"), "--noflashattention": ("flash_attn", "off"), "--useswa": ("swa_full", False),
    "--swa": ("swa_full", False), "--usemmap": ("mmap", True), "--lowvram": ("kv_offload", False), "--nokvoffload": ("kv_offload", False),
    "--mmprojcpu": ("mmproj_offload", False), "--usecpu": ("gpu_layers", 0),
}  # fmt: skip
_KOBOLD_VALUES: "dict[str, Setter]" = {
    **dict.fromkeys(("--model", "-m"), APPLY["--model"]),
    **dict.fromkeys(("--contextsize", "--ctx-size", "-c"), APPLY["--ctx-size"]),
    **dict.fromkeys(("--blasbatchsize", "--batchsize", "--batch-size", "-b"), _kobold_batch),
    **dict.fromkeys(("--gpulayers", "--gpu-layers", "--n-gpu-layers", "-ngl"), APPLY["--gpu-layers"]),
    **dict.fromkeys(("--tensor_split", "--tensorsplit", "--tensor-split", "-ts"), APPLY["--tensor-split"]),
    **dict.fromkeys(("--overridetensors", "--override-tensor", "-ot"), APPLY["--override-tensor"]),
    "--quantkv": _kobold_cache, "--mmproj": APPLY["--mmproj"], "--lora": APPLY["--lora"], "--draftmodel": _kobold_draft, "--maingpu": APPLY["--main-gpu"],
    "--draftamount": APPLY["--spec-draft-n-max"], "--draftgpulayers": APPLY["--spec-draft-ngl"], "--parallelrequests": APPLY["--parallel"],
}  # fmt: skip


def ollama_context(environ: "Mapping[str, str]") -> int:
    """OLLAMA_CONTEXT_LENGTH, else 0: Ollama then takes 4096, 32768 or 262144 by the card's memory (docs/context-length.mdx)."""
    text = environ.get("OLLAMA_CONTEXT_LENGTH", "").strip("\"' ")
    return int(text) if text.isdecimal() and len(text) < 12 else 0


def _ollama(words: tuple[str, ...], environ: "Mapping[str, str]") -> "Command | None":
    """`ollama run NAME`: the name, and what the server's variables say; `ollama serve` names no model."""
    if not words or words[0] not in ("run", "serve", "launch"):
        return None
    given = Given("ollama")
    plain = [value for word, value in _pairs(words[1:], frozenset(("--verbose", "--insecure", "--nowordwrap", "--hidethinking"))) if not word]
    if words[0] == "run" and plain:
        given.path = f"ollama:{plain[0]}"
    fields: dict[str, Any] = given.fields
    if ollama_context(environ):
        fields["ctx"] = ollama_context(environ)
    slots = environ.get("OLLAMA_NUM_PARALLEL", "").strip("\"' ")
    if slots.isdecimal() and len(slots) < 12 and int(slots) > 0:
        fields["slots"] = int(slots)
        # num_ctx is each request's: the runner gets slots × num_ctx (ollama/ollama docs/faq, "concurrent requests")
        if "ctx" not in fields:
            given.caveats.append("OLLAMA_NUM_PARALLEL without OLLAMA_CONTEXT_LENGTH: priced with 4096 tokens a slot; a card of 24 GiB or more gets more")
        fields["ctx"] = fields.get("ctx", 4096) * int(slots)
    kind = environ.get("OLLAMA_KV_CACHE_TYPE", "").strip("\"' ").lower()
    if kind in ("f16", "q8_0", "q4_0"):
        fields["ctk"] = fields["ctv"] = kind
    attention = environ.get("OLLAMA_FLASH_ATTENTION", "").strip("\"' ").lower()
    if attention in _TRUE or attention in _FALSE:
        fields["flash_attn"] = "on" if attention in _TRUE else "off"
    if fields.get("flash_attn") == "off" and fields.get("ctk", "f16") != "f16":
        del fields["ctk"], fields["ctv"]
        given.caveats.append("OLLAMA_KV_CACHE_TYPE: Ollama keeps f16 where flash attention is off (llm/server.go)")
    elif "flash_attn" not in fields and fields.get("ctk", "f16") != "f16":
        given.caveats.append("OLLAMA_KV_CACHE_TYPE without OLLAMA_FLASH_ATTENTION=1: Ollama keeps f16 where it does not turn flash attention on by itself")
    if words[0] != "run":
        given.caveats.append("ollama serve loads no model by itself; name one: brim fit ollama:NAME, or -- ollama run NAME")
    given.caveats.append("a Modelfile's num_ctx, num_batch and num_gpu go before these variables; the variables are those of the server, not of this shell")
    return finish(given, "ollama", environ)


def _lms(words: tuple[str, ...], environ: "Mapping[str, str]") -> "Command | None":
    """`lms load KEY --gpu max|off|0-1 --context-length N --parallel N`."""
    if not words or words[0] != "load":
        return None
    given = Given("lm-studio")
    for word, value in _pairs(words[1:], frozenset(("-y", "--yes", "--exact", "--estimate-only"))):
        if not word:
            given.path = given.path or value
        elif word in ("--context-length", "-c"):
            given.fields["ctx"] = whole(given, _needs(value, word), word)
        elif word == "--parallel":
            given.fields["slots"] = whole(given, _needs(value, word), word)
        elif word == "--gpu":
            _lms_gpu(given, _needs(value, word))
        elif word not in ("--ttl", "--identifier", "--host", "--port", "-y", "--yes", "--exact", "--estimate-only"):
            given.unpriced.append(f"{word} {value or ''}".strip())
    given.caveats.append("LM Studio is closed: its engine's own reserves are not known, and a key is only found where it is a path")
    return finish(given, "lm-studio", environ)


def _lms_gpu(given: Given, value: str) -> None:
    if value in ("off", "max"):
        given.fields["gpu_layers"] = 0 if value == "off" else -2
    elif _is_number(value):
        given.unpriced.append(f"--gpu {value}")
        given.caveats.append(f"--gpu {value}: the share of layers needs the model's layer count; give --gpu-layers to brim fit instead")
    else:
        raise Usage(f"--gpu: {value!r} is none of off, max, 0-1")
