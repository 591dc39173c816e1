"""The flags of a llama.cpp workload and of the devices, in the engine's own long words; words in, values out."""

import os

from brim.cli.words import Asked, Parser, WrongWord, count, fraction
from brim.engines.llama_cpp import NEWEST_BUILD
from brim.engines.llama_cpp.defaults import MAX_SEQUENCES
from brim.errors import CannotTell, Unreadable, Usage
from brim.facts.workload import LlamaWorkload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_INT = (1 << 31) - 1  # what llama.cpp's own options hold (std::stoi)


def _build_number(text: str) -> int:
    """`b11434` or `11434`; or a day or month as `2025-06-24` or `2025-06`, which stands for the newest build of then."""
    parts = text.split("-")
    if 2 <= len(parts) <= 3 and all(part.isascii() and part.isdigit() and len(part) <= 4 for part in parts):
        from brim.engines.llama_cpp.builds import build_on

        found = build_on(*(int(part) for part in parts))
        if found is None:
            raise WrongWord(f"{text!r}: no build of llama.cpp is known of then")
        return found
    digits = text.removeprefix("b")
    if not (digits.isascii() and digits.isdigit()) or int(digits) <= 0:
        raise WrongWord(f"{text!r} is no build of llama.cpp: write b{NEWEST_BUILD}")
    return int(digits)


def _whole(text: str) -> int:
    """A whole number, zero included."""
    if not (text.isascii() and text.isdigit()):
        raise WrongWord(f"{text!r} is no whole number")
    if len(text) > 10 or int(text) > _INT:
        raise WrongWord(f"{text} is more than llama.cpp holds ({_INT})")
    return int(text)


def _count(text: str) -> int:
    """A whole number above zero that llama.cpp can hold."""
    number = count(text)
    if number > _INT:
        raise WrongWord(f"{text} is more than llama.cpp holds ({_INT})")
    return number


def _slots(text: str) -> int:
    """Parallel sequences."""
    number = count(text)
    if number > MAX_SEQUENCES:
        raise WrongWord(f"{text} is more than the {MAX_SEQUENCES} sequences that llama.cpp holds")
    return number


def _layers(text: str) -> int:
    """A number of layers, `all` or `auto`."""
    if text in ("all", "auto"):
        return {"all": -2, "auto": -1}[text]
    return -2 if text == "-1" else _whole(text)


def _shares(text: str) -> tuple[float, ...]:
    """`3,1` or `3/1`."""
    try:
        found = tuple(float(part) for part in text.replace("/", ",").split(",") if part.strip())
    except ValueError:
        found = ()
    if not found or any(not 0 <= share < float("inf") for share in found) or not any(found):
        raise WrongWord(f"{text!r} is no list of shares: write 3,1")
    return found


def _override(text: str) -> tuple[tuple[str, str], ...]:
    """`PATTERN=BUFFER`, several by commas, as llama.cpp's -ot."""
    pairs = [item.partition("=") for item in text.split(",") if item]
    if not pairs or any(not equals for _, equals, _ in pairs):
        raise WrongWord(f"{text!r} is no PATTERN=BUFFER")
    from brim.engines.llama_cpp.settings import check_override

    for pattern, _, buffer in pairs:
        check_override("--override-tensor", pattern, buffer)
    return tuple((pattern, buffer) for pattern, _, buffer in pairs)


# what ships llama.cpp under another name has defaults of its own (engines/llama_cpp/defaults.py)
PACKAGINGS = ("llama.cpp", "ollama", "lm-studio", "koboldcpp", "llama-cpp-python")


def add_devices(parser: Parser) -> None:
    """Which devices, and which build of the engine."""
    group = parser.add_argument_group("devices and engine")
    group.add_argument("--engine", metavar="E", default="llama.cpp", help=f"{', '.join(PACKAGINGS)} (default llama.cpp)")
    group.add_argument("--device", action="append", metavar="D", help="cuda:0, cuda:24GiB (hypothetical), cpu:64GiB, a name; repeatable")
    group.add_argument("--reserve", type=fraction, metavar="FRACTION", help="hold back this share of each device (0…1)")
    group.add_argument(
        "--engine-version",
        type=_build_number,
        default=NEWEST_BUILD,
        metavar="bNNNN|YYYY-MM[-DD]",
        help=f"build of llama.cpp, or a day that had it as its newest (default b{NEWEST_BUILD})",
    )


# flag → (workload field, type or action, metavar, help)
_NUMBERS = (
    ("--ctx", "ctx", _count, "context in tokens over all slots (default: as trained)"),
    ("--ctx-per-slot", "ctx_per_slot", _count, "context of each slot; the total is slots times this"),
    ("--slots", "slots", _slots, "parallel sequences (default: 4 that share one cache)"),
    ("--batch", "batch", _count, "logical batch (default 2048)"),
    ("--ubatch", "ubatch", _count, "micro-batch (default 512)"),
    ("--cpu-experts", "cpu_experts", _whole, "layers whose experts stay on the host (-ncmoe)"),
    ("--outputs", "outputs", _count, "rows of logits reserved (default: what llama-server reserves)"),
    ("--main-gpu", "main_gpu", _whole, "the card for --split-mode none"),
    ("--draft-max", "draft_max", _whole, "tokens drafted at once (default 3)"),
    ("--cache-ram", "cache_ram_mib", _whole, "MiB of host memory for saved prompts (default 8192)"),
    ("--ctx-checkpoints", "ctx_checkpoints", _whole, "context checkpoints a slot (default 32)"),
    ("--image-max-tokens", "image_max_tokens", _count, "largest image, in tokens"),
)
_WORDS = (
    ("--ctk", "ctk", "K cache type (default f16)"),
    ("--ctv", "ctv", "V cache type (default f16)"),
    ("--mmproj", "mmproj", "projector file"),
    ("--draft-model", "draft_model", "draft model file"),
    ("--program", "program", "whose defaults apply: llama-server (default), llama-cli, llama-bench, …"),
)
_SWITCHES = (
    ("--kv-unified", "kv_unified", True, "slots share one cache"),
    ("--swa-full", "swa_full", True, "sliding windows keep the full context"),
    ("--no-kv-offload", "kv_offload", False, "the cache stays on the host"),
    ("--no-op-offload", "op_offload", False, "host weights are not copied to a card for large batches"),
    ("--no-mmap", "mmap", False, "weights are read, not mapped"),
    ("--no-repack", "repack", False, "weights are not repacked for the CPU"),
    ("--no-mmproj-offload", "mmproj_offload", False, "the projector stays on the host"),
    ("--embeddings", "embeddings", True, "an embedding server"),
)


def add_workload(parser: Parser) -> None:
    """The flags of a llama.cpp workload, in its own words."""
    group = parser.add_argument_group("workload (llama.cpp's words; defaults are llama-server's)")
    for flag, field, kind, what in _NUMBERS:
        group.add_argument(flag, dest=field, type=kind, metavar="N", help=what)
    for flag, field, what in _WORDS:
        group.add_argument(flag, dest=field, metavar="WORD", help=what)
    for flag, field, value, what in _SWITCHES:
        group.add_argument(flag, dest=field, action="store_const", const=value, help=what)
    group.add_argument("--flash-attn", dest="flash_attn", choices=("on", "off", "auto"), help="flash attention (default auto)")
    group.add_argument(
        "--gpu-layers", dest="gpu_layers", type=_layers, metavar="N", help="layers on the cards, the output layer counts as one; all (default), auto"
    )
    group.add_argument("--split-mode", dest="split_mode", choices=("none", "layer", "row", "tensor"), help="how several cards share the model (default layer)")
    group.add_argument("--tensor-split", dest="tensor_split", type=_shares, metavar="A,B", help="shares of the layers by card")
    group.add_argument("--override-tensor", dest="override_tensors", type=_override, metavar="P=BUF", help="put tensors that match P on BUF (-ot)")
    group.add_argument("--lora", action="append", metavar="FILE", help="an adapter; repeatable")
    group.add_argument("--spec-type", dest="spec_types", action="append", metavar="TYPE", help="draft-simple, draft-mtp, ngram-mod, …; repeatable")


_TUPLES = ("tensor_split", "override_tensors", "lora", "spec_types")


def build(**fields: object) -> LlamaWorkload:
    """A workload with `fields` set and everything else left to the engine."""
    return LlamaWorkload(**fields)  # type: ignore[arg-type]


def workload(asked: Asked) -> LlamaWorkload:
    """The workload that these flags describe."""
    names = [row[1] for row in (*_NUMBERS, *_WORDS, *_SWITCHES)] + ["flash_attn", "gpu_layers", "split_mode", *_TUPLES]
    given = {name: value for name in names if (value := getattr(asked, name)) is not None}
    for name in _TUPLES:
        if name in given:
            given[name] = tuple(given[name])
    engine = getattr(asked, "engine", "llama.cpp")  # brim run has no --engine: its command says it
    if engine not in PACKAGINGS:
        raise CannotTell(f"the engine {engine!r} is not priced", hint=f"Priced: {', '.join(PACKAGINGS)}; training: --train.")
    if engine != "llama.cpp":
        given.setdefault("program", engine)
    program = given.get("program")
    if program is not None:
        from brim.engines.llama_cpp.command import PROGRAMS
        from brim.engines.llama_cpp.defaults import ROWS

        if program not in PROGRAMS and program not in ROWS:
            raise Usage(f"--program {program!r}: no program of llama.cpp", hint=f"Known: {', '.join(sorted({*PROGRAMS, *ROWS}))}.")
    _check_words(given)
    _check_companions(given)
    return build(**given)


def _check_companions(given: "dict[str, Any]") -> None:
    """The files beside the model are there, unless they are named by a hub or a URL."""
    for flag, paths in (("--draft-model", (given.get("draft_model"),)), ("--mmproj", (given.get("mmproj"),)), ("--lora", given.get("lora", ()))):
        for path in paths:
            if path is not None and not path.startswith(("hf:", "ollama:", "http://", "https://")) and not os.path.exists(path):
                raise Unreadable(f"{flag} {path}: no such file")


def _check_words(given: "dict[str, Any]") -> None:
    """The words that llama.cpp has a list of."""
    if not given.keys() & {"ctk", "ctv", "spec_types"}:
        return
    from brim.engines.llama_cpp.settings import CACHE_TYPES, SPEC_TYPES

    for flag, words, known in (
        ("--ctk", (given.get("ctk", "f16"),), CACHE_TYPES), ("--ctv", (given.get("ctv", "f16"),), CACHE_TYPES), ("--spec-type", given.get("spec_types", ()), SPEC_TYPES),
    ):  # fmt: skip
        for word in words:
            if word not in known:
                raise Usage(f"{flag} {word!r}: none of {', '.join(known)}")
