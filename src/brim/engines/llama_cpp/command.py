"""Reads the command line of a llama.cpp program, or of a packaging of it, as a workload; pure: the environment is an argument, no path is opened.

Guarantees: the program's own words, short and long, `LLAMA_ARG_*` variables below them, the last one wins, as common/arg.cpp `common_params_parse_ex` (b11434)
reads them; a value is never taken for an option; whole numbers are read as `std::stoi` reads them (`-c 32k` is 32, and a caveat says so). Options that brim
knows to hold no memory are dropped; those that may and are not priced, and those that nobody knows, are kept in `unpriced`. Errors: `Usage`, for a
value that is missing or cannot be read. Not covered: /etc/llama.cpp/config.ini and preset files (a pure room reads no file).
"""

from brim.engines.llama_cpp.defaults import resolve
from brim.engines.llama_cpp.options import Option, options
from brim.engines.llama_cpp.settings import APPLY, UNPRICED, Given, Said
from brim.errors import Usage
from brim.facts.workload import LlamaWorkload
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Command(Record):
    """What a command line asks of llama.cpp.

    `model` is a path, a URL or `hf:org/name[:file or quantisation]`, None where the command names none. `workloads` are resolved (every default filled in);
    llama-bench makes several. `given` is the first workload as the user wrote it. `devices` are the engine's own device names (None: not said; empty: none).
    `visible` are the devices that a `*_VISIBLE_DEVICES` variable in the command leaves (one that was there before is the probe's business). `defaults` are sentences on the defaults that decide memory.
    """

    program: str
    engine: str
    model: str | None
    workloads: tuple[LlamaWorkload, ...]
    given: LlamaWorkload
    devices: tuple[str, ...] | None = None
    visible: tuple[str, ...] | None = None
    local_file: str | None = None
    mmproj_auto: bool = False
    unpriced: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


# Program → the LLAMA_EXAMPLE word whose options it takes (its `common_params_parse` call, b11434). `bench` is llama-batched-bench's word.
PROGRAMS = {
    "llama-server": "server", "llama-cli": "cli", "llama-completion": "completion", "llama-perplexity": "perplexity", "llama-imatrix": "imatrix",
    "llama-embedding": "embedding", "llama-retrieval": "retrieval", "llama-passkey": "passkey", "llama-batched-bench": "bench", "llama-parallel": "parallel",
    "llama-speculative": "speculative", "llama-speculative-simple": "speculative", "llama-lookup": "lookup", "llama-lookahead": "", "llama-mtmd-cli": "mtmd",
    "llama-tts": "tts", "llama-fit-params": "fit_params", "llama-finetune": "finetune", "llama-diffusion-cli": "diffusion",
    "llama-cvector-generator": "cvector_generator",
    "llama-results": "results", "llama-debug": "debug", "llama-eval-callback": "", "llama-save-load-state": "", "llama-batched": "batched", "llama-simple": "",
    "llama-bench": "llama-bench",
}  # fmt: skip
# names that earlier builds gave to the same programs
_ALIASES = {
    "llama-llava-cli": "llama-mtmd-cli", "llama-gemma3-cli": "llama-mtmd-cli", "llama-minicpmv-cli": "llama-mtmd-cli", "llama-qwen2vl-cli": "llama-mtmd-cli",
    "llama-batched-bench-cli": "llama-batched-bench",
}  # fmt: skip
# app/llama.cpp `cmds`, b11434: one binary, the program as its first word
_SUBCOMMANDS = {
    "serve": "llama-server", "server": "llama-server", "cli": "llama-cli", "client": "llama-cli", "completion": "llama-completion",
    "complete": "llama-completion",
    "bench": "llama-bench", "batched-bench": "llama-batched-bench", "fit-params": "llama-fit-params", "perplexity": "llama-perplexity",
}  # fmt: skip
# Names from before June 2024 (llama.cpp PR 7809), taken only where a model of llama.cpp's follows; `main` had llama-completion's meaning.
# llama-sweep-bench is ik_llama.cpp's (examples/sweep-bench), with the common options.
_OLD = {
    "main": "llama-completion", "server": "llama-server", "perplexity": "llama-perplexity", "imatrix": "llama-imatrix", "embedding": "llama-embedding",
    "batched-bench": "llama-batched-bench", "parallel": "llama-parallel", "speculative": "llama-speculative", "lookup": "llama-lookup",
    "lookahead": "llama-lookahead", "llava-cli": "llama-mtmd-cli", "retrieval": "llama-retrieval", "llama-sweep-bench": "llama-completion",
}  # fmt: skip


def read(words: "Sequence[str]", environ: "Mapping[str, str]") -> "Command | None":
    """The command as llama.cpp or a packaging of it would take it; None where the program is none of theirs. `Usage` for a value that cannot be read."""
    outer = environ
    words = tuple(words)
    if words and program_name(words[0]) not in PROGRAMS:
        from brim.engines.llama_cpp.wrappers import unwrap

        words, environ = unwrap(words, environ)
    found = _read(words, environ) if words else None
    if found is None:
        return None
    said = next((environ[key] for key in _VISIBLE if environ.get(key) != outer.get(key) and key in environ), None)
    return found if said is None else found.replace(visible=tuple(part.strip() for part in said.split(",") if part.strip()))


def _read(words: tuple[str, ...], environ: "Mapping[str, str]") -> "Command | None":
    name = program_name(words[0])
    rest = words[1:]
    if name == "llama" and rest and rest[0] in _SUBCOMMANDS:
        name, rest = _SUBCOMMANDS[rest[0]], rest[1:]
    name = _ALIASES.get(name, name)
    if name == "llama-bench":
        from brim.engines.llama_cpp.bench import read_bench

        return read_bench(rest, environ)
    if name in PROGRAMS:
        return read_program(name, rest, environ)
    if name in _OLD and any(word.lower().endswith(".gguf") for word in rest):
        found = read_program(_OLD[name], rest, environ)
        return found.replace(caveats=(f"{name}: read as {_OLD[name]} of b11434, whose defaults may differ", *found.caveats))
    from brim.engines.llama_cpp.packagings import read_packaging

    return read_packaging(name, rest, environ)


def program_name(word: str) -> str:
    """`/opt/llama.cpp/build/bin/llama-server.exe` → `llama-server`; a backend at the end of the name (`llama-server-cuda`) is dropped."""
    name = word.replace("\\", "/").rsplit("/", 1)[-1]
    if name.lower().endswith(".exe"):
        name = name[:-4]
    for backend in ("-cuda", "-vulkan", "-rocm", "-hip", "-metal", "-cpu", "-sycl"):
        if name.endswith(backend) and name[: -len(backend)] in PROGRAMS:
            return name[: -len(backend)]
    return name


def read_program(program: str, words: "Sequence[str]", environ: "Mapping[str, str]") -> Command:
    """One of llama.cpp's own programs (not llama-bench, which has a parser of its own)."""
    given = Given(program)
    for option in options()[1]:
        _apply_environment(given, option, environ)
    _apply_words(given, tuple(words))
    return finish(given, "llama.cpp", environ)


def _apply_environment(given: Given, option: Option, environ: "Mapping[str, str]") -> None:
    """arg.cpp `get_value_from_env`: the `LLAMA_ARG_NO_…` form of a switch wins by being there, whatever its value."""
    if not option.env:
        return
    value = environ.get(option.env)
    if option.negated and option.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_") in environ:
        value = "0"
    if value is None or (option.programs and PROGRAMS[given.program] not in option.programs):
        return
    if option.kind == "f":
        if value.lower() in ("on", "enabled", "true", "1"):
            _set(given, option, "", positive=True, word=option.env)
    elif option.kind == "b":
        if value.lower() not in ("on", "enabled", "true", "1", "off", "disabled", "false", "0"):
            raise Usage(f"{option.env}={value}: llama.cpp takes on or off here")
        _set(given, option, "", positive=value.lower() in ("on", "enabled", "true", "1"), word=option.env)
    else:
        _set(given, option, value, positive=True, word=option.env)


def _apply_words(given: Given, words: tuple[str, ...]) -> None:
    by_word = options()[0]
    i = 0
    while i < len(words):
        word = words[i]
        name = "--" + word[2:].replace("_", "-") if word.startswith("--") else word
        if name not in by_word and name.startswith("--") and "=" in name:
            name, joined = word.split("=", 1)
            name = "--" + name[2:].replace("_", "-")
            if name in by_word:
                given.caveats.append(f"{word}: llama.cpp takes {name} and its value as two words and ends at this one")
                words = (*words[:i], name, joined, *words[i + 1 :])
        option = by_word.get(name)
        if option is None:
            i = _keep_unknown(given, words, i)
            continue
        i = _take(given, option, name, words, i)


def _take(given: Given, option: Option, name: str, words: tuple[str, ...], i: int) -> int:
    """Apply the known option at `i`; the index behind it and its values."""
    example = PROGRAMS[given.program]
    if option.programs and example and example not in option.programs:
        given.caveats.append(f"{name}: {given.program} (b11434) does not know this option and would end")
    if option.old:
        given.caveats.append(f"{name}: a spelling of earlier builds, b11434 refuses it (--no-mmap and --mlock are --load-mode now)")
    if option.kind in ("f", "b"):
        _set(given, option, "", positive=name not in option.negated, word=name)
        return i + 1
    if option.name == "--flash-attn" and (i + 1 == len(words) or (words[i + 1].startswith("-") and words[i + 1] != "-1")):
        given.caveats.append("-fa without a value: builds since August 2025 take on, off or auto; read as on")
        _set(given, option, "on", positive=True, word=name)
        return i + 1
    count = 2 if option.kind == "w" else 1
    if i + count >= len(words):
        raise Usage(f"{name} needs a value", hint="Give the command as the engine would take it.")
    _set(given, option, words[i + 1], positive=True, word=name)
    return i + 1 + count


def _keep_unknown(given: Given, words: tuple[str, ...], i: int) -> int:
    """Keep what nobody knows: the option and the plain words behind it, which may be its values."""
    end = i + 1
    if words[i].startswith("-"):
        while end < len(words) and not words[end].startswith("-"):
            end += 1
    given.unpriced.append(" ".join(words[i:end]))
    given.caveats.append(f"{words[i]}: no option of {given.program} at b11434; not priced")
    return end


def _set(given: Given, option: Option, value: str, *, positive: bool, word: str) -> None:
    apply = APPLY.get(option.name)
    if apply is not None:
        apply(given, Said(word, value, positive=positive))
    elif option.kind == "r":
        given.caveats.append(f"{word}: removed, b11434 ends at it")
    elif option.name in UNPRICED:
        given.unpriced.append(f"{word} {value}".strip())


_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")


def finish(given: Given, engine: str, environ: "Mapping[str, str]", variants: "tuple[LlamaWorkload, ...]" = ()) -> Command:
    """The command of what was given: defaults filled in, the model named, the devices kept apart."""
    asked = LlamaWorkload(program=given.program, **given.fields, unpriced=tuple(given.unpriced))
    resolved = [resolve(one) for one in (variants or (asked,))]
    auto = bool(given.hf_repo) and not given.no_mmproj and asked.mmproj is None and PROGRAMS.get(given.program) in ("server", "cli", "mtmd")
    caveats = list(dict.fromkeys(given.caveats))
    if auto:
        caveats.append("-hf also loads the projector that its repository ships, if there is one; give --mmproj to price it or --no-mmproj to leave it out")
    return Command(
        program=given.program, engine=engine, model=given.model(), workloads=tuple(dict.fromkeys(one for one, _ in resolved)), given=asked,
        devices=given.devices, local_file=given.path, mmproj_auto=auto,
        unpriced=tuple(dict.fromkeys(given.unpriced)), defaults=tuple(dict.fromkeys(note for _, notes in resolved for note in notes)),
        caveats=tuple(caveats),
    )  # fmt: skip
