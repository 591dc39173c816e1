"""Reads llama-bench's command line: its own parser, lists and ranges of values, one workload for each combination it will run.

Source: tools/llama-bench/llama-bench.cpp `parse_cmd_params`, `parse_int_range`, `get_cmd_params_instances`, `to_llama_cparams` (b11434). Each test opens a
context of n_prompt + n_gen + n_depth tokens, one sequence, a whole batch of logits, and no full-size sliding-window cache.
"""

from brim.engines.llama_cpp.command import Command, finish
from brim.engines.llama_cpp.settings import CACHE_TYPES, Given, overrides, shares, tri_state
from brim.errors import Usage
from brim.facts.workload import LlamaWorkload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

MOST_WORKLOADS = 4096  # a sweep above this is cut, and the cut is said

# canonical name → (workload field, how one item of a list is read)
_WORDS = {
    "-m": "model", "--model": "model", "-hf": "hf", "-hfr": "hf", "--hf-repo": "hf", "-hff": "hf_file", "--hf-file": "hf_file", "-p": "n_prompt",
    "--n-prompt": "n_prompt",
    "-n": "n_gen", "--n-gen": "n_gen", "-pg": "n_pg", "-d": "n_depth", "--n-depth": "n_depth", "-b": "batch", "--batch-size": "batch", "-ub": "ubatch",
    "--ubatch-size": "ubatch", "-ctk": "ctk", "--cache-type-k": "ctk", "-ctv": "ctv", "--cache-type-v": "ctv", "-t": "threads", "--threads": "threads",
    "-ngl": "gpu_layers", "--n-gpu-layers": "gpu_layers", "-ncmoe": "cpu_experts", "--n-cpu-moe": "cpu_experts", "-sm": "split_mode",
    "--split-mode": "split_mode",
    "-mg": "main_gpu", "--main-gpu": "main_gpu", "-nkvo": "no_kv_offload", "--no-kv-offload": "no_kv_offload", "-fa": "flash_attn",
    "--flash-attn": "flash_attn",
    "-dev": "device", "--device": "device", "-lm": "load_mode", "--load-mode": "load_mode", "-mmp": "mmap", "--mmap": "mmap", "-lzm": "lazy_mode",
    "--lazy-mode": "lazy_mode", "-embd": "embeddings", "--embeddings": "embeddings", "-ts": "tensor_split", "--tensor-split": "tensor_split",
    "-ot": "override_tensors", "--override-tensor": "override_tensors", "-nopo": "no_op_offload", "--no-op-offload": "no_op_offload", "--no-host": "no_host",
    "--repack": "repack", "-fitt": "fit_target", "--fit-target": "fit_target", "-fitc": "fit_ctx", "--fit-ctx": "fit_ctx", "-dio": "dio", "--direct-io": "dio",
}  # fmt: skip
_VALUELESS = frozenset(("-h", "--help", "--version", "--list-devices", "-v", "--verbose", "--progress", "--no-warmup", "--offline"))
_ONE_VALUE = frozenset((
    "--numa", "-r", "--repetitions", "--prio", "--delay", "-o", "--output", "-oe", "--output-err", "-C", "--cpu-mask", "--cpu-strict", "--poll",
    "-hft", "--hf-token",
))  # fmt: skip


def int_range(text: str, word: str) -> list[int]:
    """Read `512`, `1,2`, `128-512`, `128-512+128`, `1-64*2`, in any list; `Usage` for anything else, a step that does not grow included."""
    values: list[int] = []
    for item in text.split(","):
        sign, body = ("-", item[1:]) if item.startswith("-") else ("", item)
        first, dash, rest = body.partition("-")
        operator = next((mark for mark in "+*" if mark in rest), "")
        last, _, step = rest.partition(operator) if operator else (rest, "", "1")
        try:
            low, high, by = int(sign + first), int(last) if dash else int(sign + first), int(step)
        except ValueError:
            raise Usage(f"{word}: {text!r} is no number, list or range (first-last+step, first-last*mult)") from None
        while low <= high:
            values.append(low)
            following = low * by if operator == "*" else low + by
            if following <= low or len(values) > MOST_WORKLOADS:
                raise Usage(f"{word}: {text!r} is no range that ends")
            low = following
    return values


def _switches(text: str, word: str) -> list[bool]:
    found = []
    for item in text.split(","):
        if item not in ("0", "1", "on", "off", "true", "false"):
            raise Usage(f"{word}: {item!r} is none of 0, 1")
        found.append(item in ("1", "on", "true"))
    return found


def _types(text: str, word: str) -> list[str]:
    found = text.split(",")
    for item in found:
        if item not in CACHE_TYPES or item == "f32":
            raise Usage(f"{word}: {item!r} is no cache type of llama-bench")
    return found


def _pairs(text: str, word: str) -> list[int]:
    """-pg PP,TG: the tokens of one context."""
    try:
        prompt, generated = (int(part) for part in text.split(","))
    except ValueError:
        raise Usage(f"{word}: {text!r} is no PP,TG pair") from None
    return [prompt + generated]


# how each field's list is read
_READ: "dict[str, Callable[[str, str], list[Any]]]" = {
    "n_prompt": int_range, "n_gen": int_range, "n_depth": int_range, "batch": int_range, "ubatch": int_range, "threads": int_range, "gpu_layers": int_range,
    "cpu_experts": int_range, "main_gpu": int_range, "n_pg": _pairs, "ctk": _types, "ctv": _types, "no_kv_offload": _switches, "mmap": _switches,
    "dio": _switches,
    "embeddings": _switches, "no_op_offload": _switches, "no_host": _switches, "repack": _switches,
    "flash_attn": lambda text, word: [tri_state(item, word) for item in text.split(",")],
    "tensor_split": lambda text, word: [shares(item, word) for item in text.split(",")],
    "override_tensors": lambda text, word: [overrides(group, word, ";") for group in text.split(",")],
    "fit_target": int_range, "fit_ctx": int_range,
}  # fmt: skip


def read_bench(words: "Sequence[str]", environ: "Mapping[str, str]") -> Command:
    """The command of a llama-bench line; `workloads` holds each combination once. `Usage` for a value that llama-bench would refuse."""
    given = Given("llama-bench")
    lists: dict[str, list[Any]] = {}
    i = 0
    while i < len(words):
        word = "--" + words[i][2:].replace("_", "-") if words[i].startswith("--") else words[i]
        if word in _VALUELESS:
            i += 1
        elif word in _ONE_VALUE:
            i += 2
        elif word in _WORDS:
            if i + 1 >= len(words):
                raise Usage(f"{word} needs a value")
            _collect(given, lists, _WORDS[word], words[i + 1], word)
            i += 2
        else:
            given.unpriced.append(words[i])
            given.caveats.append(f"{words[i]}: no option of llama-bench at b11434; not priced")
            i += 1
            while i < len(words) and not words[i].startswith("-"):
                given.unpriced[-1] += f" {words[i]}"
                i += 1
    return finish(given, "llama.cpp", environ, _combinations(given, lists))


def _collect(given: Given, lists: "dict[str, list[Any]]", field: str, text: str, word: str) -> None:
    if field == "model":
        models = text.split(",")
        if given.path is not None or len(models) > 1:
            given.caveats.append(f"{word}: several models; each runs alone, and only the first is priced")
        given.path = given.path or models[0]
    elif field == "hf":
        given.hf_repo = text.partition(",")[0]
    elif field == "hf_file":
        given.hf_file = text.partition(",")[0]
    elif field == "device":
        names = tuple(part for part in text.partition(",")[0].split("/") if part)
        given.devices = None if names == ("auto",) else () if names == ("none",) else names
    else:
        read = _READ.get(field)
        lists.setdefault(field, []).extend(read(text, word) if read else text.split(","))


def _contexts(lists: "dict[str, list[Any]]") -> list[int]:
    """n_prompt + n_gen + n_depth of every test that runs, largest first, each once."""
    alone = [n for field, default in (("n_prompt", 512), ("n_gen", 128)) for n in lists.get(field, [default]) if n > 0] + [
        n for n in lists.get("n_pg", []) if n > 0
    ]
    return sorted({n + depth for n in alone for depth in lists.get("n_depth", [0])}, reverse=True)


def _combinations(given: Given, lists: "dict[str, list[Any]]") -> tuple[LlamaWorkload, ...]:
    renamed = {"no_kv_offload": ("kv_offload", True), "no_op_offload": ("op_offload", True)}
    axes: list[tuple[str, list[Any]]] = [("ctx", _contexts(lists) or [512])]
    for field, values in lists.items():
        if field in ("n_prompt", "n_gen", "n_pg", "n_depth", "threads", "fit_target", "fit_ctx"):
            continue
        name, inverted = renamed.get(field, (field, False))
        if field == "dio":
            name, inverted = "mmap", True
        axes.append((name, list(dict.fromkeys((not value) if inverted else value for value in values))))
    combinations: list[dict[str, Any]] = [{}]
    for name, values in axes:
        combinations = [{**one, name: value} for one in combinations for value in values]
        if len(combinations) > MOST_WORKLOADS:
            given.caveats.append(f"more than {MOST_WORKLOADS} combinations; the first {MOST_WORKLOADS} are priced")
            combinations = combinations[:MOST_WORKLOADS]
    fit = "fit_target" in lists or "fit_ctx" in lists
    if fit:
        given.caveats.append("-fitt/-fitc: llama-bench lowers layers and context to what is free when it starts")
    return tuple(LlamaWorkload(program="llama-bench", fit=fit, unpriced=tuple(given.unpriced), **{**one, **_load(one)}) for one in combinations)


def _load(one: "dict[str, Any]") -> "dict[str, Any]":
    """--load-mode says whether the file is mapped."""
    return {"mmap": one["load_mode"] in ("auto", "mmap", "mmap+mlock")} if "load_mode" in one else {}
