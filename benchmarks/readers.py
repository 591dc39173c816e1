"""Cold starts over large headers as ratios to a bare `python -c pass` of the same interpreter, in one run, interleaved; with peak memory and the floor of the design.

The floor: a bare start, and a process that does nothing but step over the same vocabulary with the reader's own loop. Nothing is asserted. As in `cold_start.py`, bytecode is
compiled before, and state and cache folders are made for the run: a first look finds an empty cache and fills it, a second look finds what the first one kept.
"""

import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from cold_start import MAKE_LARGE, ROOT, compile_bytecode, once

ROUNDS = 15
WALK = "from brim.readers.gguf import scan\nfrom brim.readers.source import FileSource\nimport sys\nscan(FileSource(sys.argv[1]))"


def make_folder(folder: str) -> None:
    """A llama of 8 B in 30 shards: 700 tensors, holes for data, an index and a config."""
    names, weight_map, total = [f"model.layers.{number // 9}.part{number % 9}.weight" for number in range(700)], {}, 0
    for shard in range(30):
        rows, place, file = {}, 0, f"model-{shard + 1:05d}-of-00030.safetensors"
        for name in names[shard::30]:
            rows[name] = {"dtype": "BF16", "shape": [4096, 1400], "data_offsets": [place, place + 2 * 4096 * 1400]}
            weight_map[name] = file
            place += 2 * 4096 * 1400
        raw = json.dumps(rows).encode()
        path = os.path.join(folder, file)
        pathlib.Path(path).write_bytes(struct.pack("<Q", len(raw)) + raw)
        os.truncate(path, 8 + len(raw) + place)
        total += place
    pathlib.Path(folder, "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    config = {
        "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "max_position_embeddings": 8192, "dtype": "bfloat16", "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    }  # fmt: skip
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))


def main() -> None:
    """Measure and print."""
    compile_bytecode()
    brim = str(pathlib.Path(sys.executable).with_name("brim"))
    command = [brim] if os.path.exists(brim) else [sys.executable, "-m", "brim"]
    with tempfile.TemporaryDirectory() as folder:
        large = os.path.join(folder, "llama-8b-128k-vocabulary.gguf")
        subprocess.run([sys.executable, "-c", MAKE_LARGE, large], check=True, cwd=ROOT)
        shards = os.path.join(folder, "shards")
        os.mkdir(shards)
        make_folder(shards)
        rows = {
            "python -c pass (the baseline)": [sys.executable, "-c", "pass"],
            "floor: only walk the 128k header": [sys.executable, "-c", WALK, large],
            "brim inspect, 128k vocabulary": [*command, "inspect", large],
            "brim fit, 128k vocabulary, --ctx 8192": [*command, "fit", large, "--ctx", "8192"],
            "the same, second look": [*command, "fit", large, "--ctx", "8192"],
            "brim inspect, 700 tensors in 30 shards": [*command, "inspect", shards],
            "brim fit, 700 tensors in 30 shards": [*command, "fit", shards],
        }
        time.sleep(2.5)  # a younger file is not remembered
        os.environ.update(XDG_STATE_HOME=os.path.join(folder, "state"), XDG_CACHE_HOME=os.path.join(folder, "cache"))
        once(rows["the same, second look"])
        taken: dict[str, list[tuple[float, int]]] = {name: [] for name in rows}
        for turn in range(ROUNDS):
            for number, (name, words) in enumerate(rows.items()):
                empty = {} if "second" in name else {"XDG_CACHE_HOME": os.path.join(folder, f"empty-{turn}-{number}")}
                taken[name].append(once(words, **empty))
    base = statistics.median(seconds for seconds, _ in taken["python -c pass (the baseline)"])
    print(f"{'command':42} {'median':>9} {'ratio':>7} {'best':>9} {'peak':>10}")
    for name, pairs in taken.items():
        median = statistics.median(seconds for seconds, _ in pairs)
        print(
            f"{name:42} {median * 1e3:6.1f} ms {median / base:6.2f}× {min(s for s, _ in pairs) * 1e3:6.1f} ms {max(peak for _, peak in pairs) / 2**20:6.1f} MiB"
        )


if __name__ == "__main__":
    main()
