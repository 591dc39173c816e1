"""Fuzz one reader with atheris (coverage-guided): `python -m tests.fuzz.run TARGET RUNS [SEED] [FOLDER]`. Findings stop it and leave the bytes in FOLDER."""

import os
import sys

import atheris

with atheris.instrument_imports(include=["brim"]):
    from tests.fuzz import targets
from tests.fuzz.seeds import seeds

LONGEST = {"onnx": 512, "any": 1024, "safetensors": 1024, "shape": 1024}  # every byte of a protobuf can be a field: long inputs only slow the search down


def main() -> None:
    """Start libFuzzer on the target."""
    target, runs = sys.argv[1], int(sys.argv[2])
    seed = sys.argv[3] if len(sys.argv) > 3 else "1"
    folder = sys.argv[4] if len(sys.argv) > 4 else f"/tmp/brim-fuzz/{target}"
    corpus = os.path.join(folder, "corpus")
    os.makedirs(corpus, exist_ok=True)
    for number, data in enumerate(seeds()[target]):
        with open(os.path.join(corpus, f"seed{number}"), "wb") as file:
            file.write(data)
    words = [
        sys.argv[0],
        corpus,
        f"-runs={runs}",
        f"-seed={seed}",
        f"-max_len={LONGEST.get(target, 4096)}",
        "-timeout=10",
        "-rss_limit_mb=1024",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        "-verbosity=1",
    ]
    atheris.Setup(words, lambda data: targets.one(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
