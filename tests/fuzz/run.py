"""Fuzz one reader with atheris (coverage-guided): `python -m tests.fuzz.run TARGET RUNS [SEED]`. Adds one line to docs/evidence/readers-fuzz.jsonl; findings are left in the folder it names."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEDGER = ROOT / "docs" / "evidence" / "readers-fuzz.jsonl"
LONGEST = {"onnx": 512, "any": 1024, "safetensors": 1024, "shape": 1024}  # every byte of a protobuf can be a field: long inputs only slow the search down


def fuzz(target: str, words: list[str]) -> None:
    """The child: libFuzzer on the target; it never returns."""
    import atheris

    with atheris.instrument_imports(include=["brim"]):
        from tests.fuzz import targets
    atheris.Setup(words, lambda data: targets.one(target, data))
    atheris.Fuzz()


def main() -> int:
    """Run the child to its end, write down what it did."""
    from tests.fuzz.seeds import seeds

    target, runs, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "1"
    longest = LONGEST.get(target, 4096)
    folder = tempfile.mkdtemp(prefix=f"brim-fuzz-{target}-")
    corpus = os.path.join(folder, "corpus")
    os.mkdir(corpus)
    for number, data in enumerate(seeds()[target]):
        Path(corpus, f"seed{number}").write_bytes(data)
    words = [
        corpus,
        f"-runs={runs}",
        f"-seed={seed}",
        f"-max_len={longest}",
        "-timeout=10",
        "-rss_limit_mb=1024",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        "-verbosity=1",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.run", "--child", target, *words], capture_output=True, text=True, cwd=ROOT, check=False, errors="replace"
    )
    executions = re.findall(r"number_of_executed_units:\s*(\d+)", done.stderr)
    edges = re.findall(r"cov: (\d+)", done.stderr)
    findings = [name for name in os.listdir(folder) if name != "corpus"]
    row = {
        "target": target, "executions": int(executions[-1]) if executions else 0, "seed": int(seed), "max_len": longest, "edges": int(edges[-1]) if edges else 0,
        "findings": len(findings), "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }  # fmt: skip
    with LEDGER.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(row, *findings, f"(in {folder})" if findings else "")
    if findings or done.returncode or not executions:
        print(done.stderr[-3000:])
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        fuzz(sys.argv[2], [sys.argv[0], *sys.argv[3:]])
    else:
        sys.exit(main())
