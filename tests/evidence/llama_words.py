"""brim's reading of llama.cpp command lines and of its quantiser beside llama.cpp itself (built from source); writes docs/evidence/llamacpp-words.md.

Run: `python tests/evidence/llama_words.py --build DIR --parser PROGRAM [--shapes DIR] [--lines N] [--seed N]`. DIR holds `bin/libllama.so` and the ggml libraries of a
shared build of b11434; PROGRAM is llama_words.cpp compiled against it (the command is in its first lines). Command lines are random words over all priced options with
good and bad values, underscores, repetitions and `LLAMA_ARG_*` variables. The quantiser is asked with `dry_run` over F16 files whose data is a hole.
"""

import argparse
import collections
import ctypes
import datetime
import json
import os
import platform
import random
import re
import struct
import subprocess
import sys
import tempfile

from brim.engines.llama_cpp.command import PROGRAMS, read
from brim.engines.llama_cpp.defaults import draft_tokens, resolve
from brim.engines.llama_cpp.options import options
from brim.engines.llama_cpp.quantisation import FILE_TYPES, MIXES, is_quantised, tensor_types
from brim.engines.llama_cpp.settings import APPLY
from brim.errors import Usage
from brim.facts.dtypes import ggml_tensor_bytes
from brim.facts.model import Checkpoint, Tensor
from brim.values import Missing

EXAMPLES = [  # `enum llama_example`, common/common.h
    "batched", "debug", "common", "speculative", "completion", "cli", "embedding", "perplexity", "retrieval", "passkey", "imatrix", "bench", "server", "cvector_generator", "export_lora", "mtmd", "lookup", "parallel",
    "tts", "diffusion", "finetune", "fit_params", "results", "export_graph_ops", "download", "tokenize",
]  # fmt: skip
ASKED = (
    "llama-server", "llama-cli", "llama-completion", "llama-perplexity", "llama-embedding", "llama-batched-bench", "llama-speculative", "llama-fit-params",
    "llama-mtmd-cli", "llama-imatrix",
)  # fmt: skip
VALUES = {
    "--ctx-size": ["0", "4096", "32k", "131072", "1e5"], "--kv-unified-per-slot": ["4096"], "--batch-size": ["1", "512", "4096"], "--ubatch-size": ["64", "2048"],
    "--ctx-checkpoints": ["0", "7"], "--checkpoint-min-step": ["0", "100", "-1"], "--cache-ram": ["0", "-1", "1024"],
    "--flash-attn": ["on", "off", "auto", "1", "0", "true", "disabled", "-1", "maybe"], "--cache-type-k": ["f16", "q8_0", "q4_0", "bf16", "q3"],
    "--cache-type-v": ["f16", "q8_0", "iq4_nl"], "--parallel": ["1", "4", "-1", "8x"], "--mmproj": ["p.gguf"], "--image-min-tokens": ["3"], "--image-max-tokens": ["300"],
    "--load-mode": ["auto", "none", "mmap", "mlock", "mmap+mlock", "dio", "x"], "--lazy-mode": ["on", "off", "auto"], "--override-tensor": ["a=CPU", "a=CPU,b=CPU", "x"],
    "--n-cpu-moe": ["3", "-1"], "--n-cpu-ffn": ["2"], "--gpu-layers": ["0", "12", "auto", "all", "-1", "-5", "x"], "--split-mode": ["none", "layer", "row", "tensor", "z"],
    "--tensor-split": ["3,1", "1/2/3", "0.5"], "--main-gpu": ["1"], "--fit": ["on", "off", "auto"], "--fit-target": ["512", "100,200"], "--fit-ctx": ["8192"],
    "--lora": ["a.gguf,b.gguf"], "--lora-scaled": ["a.gguf:0.5", "a.gguf"], "--model": ["m.gguf", "n.gguf"], "--pooling": ["none", "mean", "rank", "q"],
    "--attention": ["causal", "non-causal"], "--spec-draft-model": ["d.gguf"], "--spec-draft-type-k": ["q8_0"], "--spec-draft-type-v": ["f16"],
    "--spec-draft-n-max": ["5", "0", "-2"], "--spec-draft-ngl": ["3", "all"], "--threads": ["4"], "-npl": ["1,2,4", "3"],
    "--spec-type": ["draft-mtp", "ngram-mod", "draft-simple", "ngram-map-k", "ngram-simple,ngram-cache", "none", "wrong"],
}  # fmt: skip


def lines(count: int, seed: int) -> list[tuple[str, list[str], dict[str, str]]]:
    """Random (program, words, variables) over the priced options."""
    chance = random.Random(seed)
    words, rows = options()
    spellings: dict[str, list[str]] = {}
    for word, option in words.items():
        spellings.setdefault(option.name, []).append(word)
    flags = [row for row in rows if not row.old and row.kind in "fb" and row.name in APPLY and not row.name.endswith(("-default", "-spec"))]
    known = [row for row in rows if not row.old and row.name in VALUES] + [
        row for row in flags if row.name not in ("--help", "--version", "--list-devices", "--cache-list")
    ]
    made = []
    for _ in range(count):
        program = chance.choice(ASKED)
        said, variables = ["-m", "base.gguf"], {}
        for _ in range(chance.randint(1, 7)):
            row = chance.choice(known)
            if row.programs and PROGRAMS[program] not in row.programs and chance.random() < 0.9:
                continue
            word = chance.choice(spellings[row.name])
            said.append("--" + word[2:].replace("-", "_") if word.startswith("--") and chance.random() < 0.1 else word)
            if row.kind not in "fb":
                said.append(chance.choice(VALUES[row.name]))
        for row in chance.sample([row for row in known if row.env and row.name != "--model"], chance.choice((0, 0, 1, 2, 3))):
            if row.negated and chance.random() < 0.3:
                variables[row.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")] = chance.choice(["1", "0", "x"])
            else:
                variables[row.env] = chance.choice(["1", "0"]) if row.kind in "fb" else chance.choice(VALUES[row.name])
        made.append((program, [*said, "-mm", "p.gguf"] if program == "llama-mtmd-cli" else said, variables))
    return made


def ours(program: str, said: list[str], variables: dict[str, str]) -> "tuple[dict, bool] | None":
    """The fields as brim reads them with the parser's own defaults, and whether brim says that the program would end; None where brim refuses."""
    try:
        command = read([program, *said], variables)
    except Usage:
        return None
    assert command is not None
    held = command.given
    ends = any(word in line for line in command.caveats for word in ("would end", "refuses", "removed", "no option"))

    def or_else(value, other):
        return other if value is None else value

    found = {
        "ctx": or_else(held.ctx, 0), "batch": or_else(held.batch, 2048), "ubatch": or_else(held.ubatch, 512), "ctk": held.ctk or "f16", "ctv": held.ctv or "f16",
        "flash": {"on": 1, "off": 0, "auto": -1}[held.flash_attn or "auto"], "ngl": or_else(held.gpu_layers, -1), "swa_full": int(bool(held.swa_full)),
        "no_kvo": int(held.kv_offload is False), "no_opo": int(held.op_offload is False), "no_extra": int(held.repack is False), "no_host": int(bool(held.no_host)),
        "mg": or_else(held.main_gpu, 0), "fit": int(held.fit is not False), "ctxcp": or_else(held.ctx_checkpoints, 32), "cram": or_else(held.cache_ram_mib, 8192),
        "per_slot": or_else(held.ctx_per_slot, 0), "cms": or_else(held.checkpoint_step, 8192), "emb": int(bool(held.embeddings)), "nmax": or_else(held.draft_max, 3),
        "dngl": or_else(held.draft_gpu_layers, -1), "dctk": held.draft_ctk or "f16", "dctv": held.draft_ctv or "f16", "model": command.local_file or "",
        "md": held.draft_model or "", "warmup": int(not held.no_warmup), "imin": or_else(held.image_min_tokens, -1), "imax": or_else(held.image_max_tokens, -1),
        "kv_unified": int(bool(held.kv_unified)), "spec_n": draft_tokens(held), "rs": resolve(held)[0].rollback_rows, "lora": list(held.lora),
        "mmgpu": int(held.mmproj_offload is not False),
    }  # fmt: skip
    if program != "llama-batched-bench":
        found["slots"] = or_else(held.slots, -1 if program == "llama-server" else 1)
    return found, ends


def parser_table(parser: str, count: int, seed: int) -> list[str]:
    """The comparison of the two readings, field by field."""
    cases = lines(count, seed)
    asked = "".join(
        "\x1f".join([str(EXAMPLES.index(PROGRAMS[program])), str(len(variables)), *(f"{k}={v}" for k, v in variables.items()), *said]) + "\n"
        for program, said, variables in cases
    )
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run([parser], input=asked, capture_output=True, text=True, env={"PATH": "/usr/bin", "HOME": home}, check=True)
    tally: collections.Counter[str] = collections.Counter()
    differing: list[str] = []
    for case, answer in zip(cases, done.stdout.splitlines(), strict=True):
        theirs, mine = json.loads(answer), ours(*case)
        if not theirs["ok"]:
            tally["refused by both" if mine is None else "refused by llama.cpp, brim says that it would end" if mine[1] else "refused by llama.cpp only"] += 1
            if mine is not None and not mine[1]:
                differing.append(f"llama.cpp refuses: {' '.join((case[0], *case[1]))} {case[2]}")
        elif mine is None:
            tally["refused by brim only"] += 1
            differing.append(f"brim refuses: {' '.join((case[0], *case[1]))} {case[2]}")
        else:
            wrong = [f"{key}: {theirs[key]} / {value}" for key, value in mine[0].items() if theirs[key] != value]
            tally["differs" if wrong else "all fields equal"] += 1
            if wrong:
                differing.append(f"{'; '.join(wrong)} (llama.cpp / brim): {' '.join((case[0], *case[1]))} {case[2]}")
    rows = [f"| {what} | {number} |" for what, number in sorted(tally.items())]
    return ["| outcome | command lines |", "|---|---:|", *rows, "", *(f"- `{line}`" for line in differing[:40])]


class _Params(ctypes.Structure):
    """include/llama.h `llama_model_quantize_params`, b11434."""

    _fields_ = [
        ("nthread", ctypes.c_int32), ("ftype", ctypes.c_int32), ("output", ctypes.c_int32), ("embedding", ctypes.c_int32), ("allow", ctypes.c_bool),
        ("quantise_output", ctypes.c_bool), ("copy", ctypes.c_bool), ("pure", ctypes.c_bool), ("keep_split", ctypes.c_bool), ("dry", ctypes.c_bool),
        ("imatrix", ctypes.c_void_p), ("overrides", ctypes.c_void_p), ("types", ctypes.c_void_p), ("prune", ctypes.c_void_p), ("most", ctypes.c_size_t),
    ]  # fmt: skip


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    kind, code = ("B", 7) if isinstance(value[0], bool) else ("f", 6) if isinstance(value[0], float) else ("i", 5)
    return struct.pack("<IIQ", 9, code, len(value)) + struct.pack(f"<{len(value)}{kind}", *value)


def hollow(path: str, checkpoint: Checkpoint) -> None:
    """A GGUF with this header whose data is a hole."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(checkpoint.tensors), len(checkpoint.metadata))
    head += b"".join(_text(key) + _value(value) for key, value in checkpoint.metadata.items())
    offset = 0
    for tensor in checkpoint.tensors:
        code = {"F32": 0, "F16": 1}[tensor.dtype]
        head += _text(tensor.name) + struct.pack(f"<I{len(tensor.dims)}QIQ", len(tensor.dims), *tensor.dims, code, offset)
        offset += -(-tensor.stored_bytes // 32) * 32
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32))
        file.truncate(file.tell() + offset)


def f16(path: str) -> Checkpoint:
    """A shape file as the F16 file that it was made from."""
    with open(path, encoding="utf-8") as file:
        shape = json.load(file)
    arch = shape["metadata"]["general.architecture"]
    tensors = []
    for name, dims, dtype in shape["tensors"]:
        raw = Tensor(name=name, dims=tuple(dims), dtype=dtype, offset=0, stored_bytes=0, elements=0)
        plain = "F16" if is_quantised(raw, arch) else "F32"
        tensors.append(raw.replace(dtype=plain, stored_bytes=ggml_tensor_bytes(plain, raw.dims)))
    return Checkpoint(
        form="gguf", source=path, name=shape["name"], architecture=arch, metadata=shape["metadata"], tensors=tuple(tensors), file_bytes=0, shape=Missing(reason="not_supported")
    )  # fmt: skip


def quantiser_table(build: str, shapes: str) -> list[str]:
    """Every mix of every shape: tensors whose type the quantiser and brim give alike."""
    for name in ("libggml-base.so", "libggml-cpu.so", "libggml.so"):
        ctypes.CDLL(os.path.join(build, "bin", name), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(os.path.join(build, "bin", "libllama.so"))
    library.llama_model_quantize_default_params.restype = _Params
    library.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Params)]
    log: list[str] = []
    say = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda _level, text, _data: log.append(text.decode(errors="replace")))
    library.llama_log_set(say, None)
    library.llama_backend_init()
    numbers = {mix: number for number, mix in FILE_TYPES.items()}
    rows = ["| shape | mixes | tensors | mixes that cannot be made | tensors that differ |", "|---|---:|---:|---:|---:|"]
    for name in sorted(os.listdir(shapes)):
        checkpoint = f16(os.path.join(shapes, name))
        tensors = wrong = impossible = 0
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            hollow(path, checkpoint)
            for mix in MIXES:
                params = library.llama_model_quantize_default_params()
                params.ftype, params.dry, params.nthread = numbers[mix], True, 1
                log.clear()
                failed = library.llama_model_quantize(path.encode(), b"/dev/null", ctypes.byref(params))
                try:
                    wanted = tensor_types(checkpoint, mix)
                except ValueError:
                    impossible += 1
                    wrong += 0 if failed else 1
                    continue
                found = {}
                for match in re.finditer(r"\]\s+(\S+)\s+- \[[^\]]*\], type =\s*(\S+), size =[^\n]*?MiB(?:[^\n]*?->[^\n]*\((\S+)\))?", "".join(log)):
                    found[match.group(1)] = (match.group(3) or match.group(2)).upper()
                tensors += len(wanted)
                wrong += sum(found.get(tensor) != dtype for tensor, dtype in wanted.items())
        rows.append(f"| {checkpoint.name} | {len(MIXES)} | {tensors} | {impossible} | {wrong} |")
    return rows


def main() -> None:
    """Write the table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--build", required=True)
    asked.add_argument("--parser", required=True)
    asked.add_argument("--shapes", default="../shared/evidence/shapes")
    asked.add_argument("--lines", type=int, default=20000)
    asked.add_argument("--seed", type=int, default=11434)
    asked.add_argument("--out", default="docs/evidence/llamacpp-words.md")
    given = asked.parse_args()
    text = [
        "# Command lines and quantisation mixes beside llama.cpp itself", "",
        f"Made by `tests/evidence/llama_words.py` with seed {given.seed} on {datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}, {platform.machine()}, against llama.cpp b11434",
        "built from source: its own `common_params_parse`, and its own quantiser in a dry run over F16 files whose data is a hole.", "",
        "## Command lines", "", *parser_table(given.parser, given.lines, given.seed), "", "## Quantisation mixes", "", *quantiser_table(given.build, given.shapes), "",
    ]  # fmt: skip
    with open(given.out, "w", encoding="utf-8") as file:
        file.write("\n".join(text))
    print(f"wrote {given.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
