"""Writes tests/golden/llamacpp_shares.json.gz: what llama.cpp allocates with `--split-mode tensor`, on CPU devices that stand for cards. Run: `python -m tests.evidence.llamacpp_shares PROGRAM`.

PROGRAM is `llamacpp_reserve.cpp` built beside a libllama b11434. Each made-up model is written as a sparse file, its matrices in the kind of the row, and loaded.
"""

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.allocations import GOLDEN as FOLDER
from tests.allocations import made_up
from tests.gguf_bytes import write_sparse
from tests.spread import kinded

from brim.engines.llama_cpp.spread import _REFUSED, _UNREAD

GOLDEN = FOLDER / "llamacpp_shares.json.gz"
_PLAIN = (4096, 2, 0, 512, 1, "f16", "f16", 0, 0)
_QUANTISED = (4096, 1, 0, 512, 1, "q8_0", "q8_0", 0, 0)
_SHARED = (8192, 4, 1, 256, 1, "f16", "f16", 4, 0)
CLOSER = (
    "llama",
    "phimoe",
    "qwen2moe",
    "gpt-oss",
    "qwen35",
    "qwen35moe",
    "gemma4-31b",
    "glm4moe",
    "lfm2moe",
    "mimo2",
    "bloom",
    "stablelm",
    "cohere2",
    "laguna",
    "maple",
)


def rows():
    """(model, shares, run, kind) of every row."""
    seen = set()
    for name, model in made_up().items():
        architecture = model["metadata"]["general.architecture"]
        if architecture in _REFUSED | _UNREAD or (architecture in seen and name not in CLOSER):
            continue
        seen.add(architecture)
        yield name, (3, 1), _PLAIN, "Q8_0"
        if name in CLOSER:
            yield name, (1, 1), _QUANTISED, "Q4_K"
            yield name, (2, 3, 4), _SHARED, "Q8_0"
            yield name, (1, 1, 1, 1), _PLAIN, "Q4_K"


def main() -> None:
    kept, refused = [], []
    for name, shares, run, kind in rows():
        model = made_up()[name]
        with tempfile.TemporaryDirectory() as folder:
            tensors = list({tensor[0]: tuple(tensor) for tensor in model["tensors"]}.values())
            write_sparse(f"{folder}/m.gguf", model["metadata"], kinded(tensors, kind))
            Path(folder, "in.txt").write_text(f"shares {','.join(map(str, shares))}\nfile {folder}/m.gguf\nrun {' '.join(map(str, run))}\n")
            done = subprocess.run([sys.argv[1], f"{folder}/in.txt"], capture_output=True, text=True, check=False)
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith(("run", "device"))]
        row = {"model": name, "shares": shares, "run": run, "kind": kind}
        if done.returncode or len(lines) != 1 + len(shares):
            print(row, "refused:", [line for line in done.stderr.splitlines() if "rror" in line or "ASSERT" in line][:1])
            refused.append(row)
            continue
        devices = [[int(word) for word in line[2:]] for line in lines[1:]]
        kept.append({**row, "devices": devices, "host": int(lines[0][1]) - devices[0][2]})
    GOLDEN.write_bytes(gzip.compress(json.dumps({"build": 11434, "rows": kept, "refused": refused}, separators=(",", ":")).encode(), 9, mtime=0))
    print(len(kept), "kept", len(refused), "refused")


if __name__ == "__main__":
    main()
