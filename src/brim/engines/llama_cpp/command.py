"""Reads the model out of a llama.cpp command line, so that `brim run -- llama-server -m …` is gated by it; words in, facts out.

First form: `-m`, `-c`, `-np`, `-b`, `-ub`, `-ctk`, `-ctv`, `-fa`, `-kvu` of llama.cpp's programs (common/arg.cpp, b11434). An option that is not known makes the
answer None: a plan for another command line than the user's would be a guess.
"""

from brim.facts.workload import LlamaWorkload

PROGRAMS = ("llama-server", "llama-cli", "llama-completion")
_VALUES = {
    "-m": "model", "--model": "model", "-c": "ctx", "--ctx-size": "ctx", "-np": "slots", "--parallel": "slots", "-b": "batch", "--batch-size": "batch",
    "-ub": "ubatch", "--ubatch-size": "ubatch", "-ctk": "ctk", "--cache-type-k": "ctk", "-ctv": "ctv", "--cache-type-v": "ctv",
    "-fa": "flash_attn", "--flash-attn": "flash_attn", "--host": "", "--port": "", "-t": "", "--threads": "", "-p": "", "--prompt": "", "-n": "", "--predict": "",
}  # fmt: skip
_NUMBERS = ("ctx", "slots", "batch", "ubatch")


def understand(command: list[str]) -> tuple[str, LlamaWorkload] | None:
    """(model path, workload) of a llama.cpp command line, or None where it is another program's or holds a word that is not understood."""
    program = command[0].rsplit("/", 1)[-1] if command else ""
    if program not in PROGRAMS:
        return None
    found: dict[str, str] = {}
    words = iter(command[1:])
    for word in words:
        if word in ("-kvu", "--kv-unified"):
            found["kv_unified"] = "1"
            continue
        value = next(words, None)
        if word not in _VALUES or value is None:
            return None
        if _VALUES[word]:
            found[_VALUES[word]] = value
    if "model" not in found or any(name in found and not found[name].isdigit() for name in _NUMBERS):
        return None
    numbers = {name: int(found[name]) if name in found else None for name in _NUMBERS}
    return found["model"], LlamaWorkload(
        program=program,
        kv_unified=True if "kv_unified" in found else None,
        ctk=found.get("ctk"),
        ctv=found.get("ctv"),
        flash_attn=found.get("flash_attn"),
        ctx=numbers["ctx"],
        slots=numbers["slots"],
        batch=numbers["batch"],
        ubatch=numbers["ubatch"],
    )
