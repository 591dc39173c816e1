"""Runs the oracle of made-up models (llamacpp_reserve.cpp), keeps what it says, or asks again whether it still says so. Run: `python -m tests.evidence.llamacpp_reserve BINARY [--add FILE.json] [--golden FILE] [NAME …]`.

FILE.json maps a name to the header's keys of a new made-up model (and may give its own `runs` and the names `listed` in the header); without names every model that was kept is asked again and compared.
"""

import argparse
import gzip
import json
import subprocess
import tempfile
from pathlib import Path

from tests.gguf_bytes import write_sparse

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "llamacpp_reserved.json.gz"


_LONG = frozenset(("layer_multipliers", "head_offsets", "head_vocab_sizes"))


def _line(key, value):
    """One key in the oracle's words."""
    if isinstance(value, list):
        kind = "B" if isinstance(value[0], bool) else "F" if isinstance(value[0], float) else "Q" if key.rpartition(".")[2] in _LONG else "U"
        return f"{kind} {key} {','.join(str(int(item) if kind == 'B' else item) for item in value)}"
    if isinstance(value, bool):
        return f"b {key} {int(value)}"
    return f"{'u' if isinstance(value, int) else 'f' if isinstance(value, float) else 's'} {key} {value}"


def ask(binary, metadata, runs, nodes=False, listed=(), tensors=None, target=None):
    """Tensors, compute bytes and memory bytes (None where the engine refuses) of every run; with `nodes` the operations of each run, too.

    With `tensors` (name, dims, type) the engine opens a sparse file of them, as it must where it asks the file what is in it; beside a draft lies its `target`.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        given = [*(_line(key, value) for key, value in metadata.items()), *(f"t {item}" for item in listed)]
        if tensors is not None:
            write_sparse(f"{folder}/model.gguf", metadata, tensors)
            given = [f"file {folder}/model.gguf"]
        if target is not None:
            write_sparse(f"{folder}/target.gguf", target["metadata"], target["tensors"])
            given.append(f"target {folder}/target.gguf")
        file.write("\n".join([*given, *("run " + " ".join(map(str, run)) for run in runs), ""]))
        file.flush()
        extra = {"NODES": "1"} if nodes else {}
        if any(key.endswith("nextn_predict_layers") for key in metadata):
            extra["LOAD_MTP"] = "1"  # without a file the engine cannot skip a block
        done = subprocess.run([binary, file.name], check=False, capture_output=True, text=True, env=extra)
    tensors, compute, memory, graphs = [], [], [], []
    for line in done.stdout.splitlines():
        words = line.split()
        if words[0] == "tensor":
            dims = [int(n) for n in words[3:]]
            while len(dims) > 1 and dims[-1] == 1:
                dims.pop()
            tensors.append([words[1], dims, words[2].upper()])
        elif words[0] == "run":
            failed = words[1] == "FAIL"
            compute.append(None if failed else int(words[1]))
            memory.append(None if failed else int(words[2]))
            graphs.append([])
        elif line.startswith("  "):
            graphs[-1].append(line.strip())
    if done.returncode or len(compute) != len(runs):
        raise SystemExit(f"the oracle ended with {done.returncode}: {done.stderr[-2000:]}")
    found = {"tensors": tensors, "reserved": compute, "memory": memory}
    return (found, graphs) if nodes else found


def main():
    words = argparse.ArgumentParser()
    words.add_argument("binary")
    words.add_argument("--add", default="")
    words.add_argument("--golden", default=str(GOLDEN))
    words.add_argument("names", nargs="*")
    given = words.parse_args()
    golden = Path(given.golden)
    kept = json.loads(gzip.decompress(golden.read_bytes())) if golden.exists() else {"build": 11434, "models": {}, "runs": []}
    models = kept["models"]
    if given.add:
        for name, made in json.loads(Path(given.add).read_text()).items():
            runs, listed, tensors, target = made.pop("runs", None), made.pop("listed", []), made.pop("tensors", None), made.pop("target", None)
            found = ask(given.binary, made, runs or kept["runs"], listed=listed, tensors=tensors, target=target)
            models[name] = {
                "metadata": dict(sorted(made.items())),
                **found,
                **({"runs": runs} if runs else {}),
                **({"listed": listed} if listed else {}),
                **({"file": True} if tensors else {}),
                **({"target": target} if target else {}),
            }
            print(name, found["reserved"], found["memory"], flush=True)
        kept["models"] = dict(sorted(models.items()))
        golden.write_bytes(gzip.compress(json.dumps(kept, sort_keys=True).encode(), mtime=0))
        return
    for name in given.names or models:
        found = ask(
            given.binary,
            models[name]["metadata"],
            models[name].get("runs", kept["runs"]),
            listed=models[name].get("listed", ()),
            tensors=models[name]["tensors"] if models[name].get("file") else None,
            target=models[name].get("target"),
        )
        print(name, "as kept" if all(found[key] == models[name][key] for key in ("reserved", "memory")) else f"differs: {found['reserved']} {found['memory']}")


if __name__ == "__main__":
    main()
