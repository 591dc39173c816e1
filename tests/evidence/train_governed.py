"""Real small training runs on this CPU under `brim run`, predicted against measured: `python tests/evidence/train_governed.py --python VENV/bin/python` writes docs/evidence/train-run.md.

The interpreter given needs torch and transformers (it runs train_run.py); brim itself runs in this one. Measured: the peak of anonymous and shared memory of the process tree as
the governor saw it, and the process's own peak resident size.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "src"), str(HERE)]

from brim import api  # noqa: E402
from brim.facts.training import TrainWorkload  # noqa: E402
from brim.units import format_bytes  # noqa: E402

CONFIGS = {
    "smollm2-135m": {"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
                     "num_hidden_layers": 30, "tie_word_embeddings": True, "max_position_embeddings": 8192},
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
}  # fmt: skip
CASES = (
    ("smollm2-135m", 2, 256, "fp32", "none"), ("smollm2-135m", 2, 256, "fp32", "full"), ("smollm2-135m", 4, 256, "fp32", "none"), ("smollm2-135m", 2, 256, "bf16", "none"),
    ("gpt2", 2, 256, "fp32", "none"), ("gpt2", 2, 256, "fp32", "full"),
)  # fmt: skip


def one(python, name, batch, seq, precision, checkpointing, folder):
    """(prediction, measured by the governor, the process's own figures, exit code) of one case."""
    config = os.path.join(folder, f"{name}.json")
    pathlib.Path(config).write_text(json.dumps(CONFIGS[name]))
    plan = api.fit_training(config, TrainWorkload(batch=batch, seq=seq, precision=precision, checkpointing=checkpointing), devices=["cpu:64GiB"]).plan
    run_dir = os.path.join(folder, f"{name}-{batch}-{seq}-{precision}-{checkpointing}")
    words = [
        python,
        str(HERE / "train_run.py"),
        "--config",
        config,
        "--batch",
        str(batch),
        "--seq",
        str(seq),
        "--precision",
        precision,
        "--checkpointing",
        checkpointing,
        "--steps",
        "2",
    ]
    command = [sys.executable, "-m", "brim", "run", "--poll", "200ms", "--run-dir", run_dir, "--", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    report = json.loads(pathlib.Path(run_dir, "report.json").read_text())
    said = next((json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"libraries')), {})
    return plan.on("cpu"), report["peak_held_bytes"], said, done.returncode


def main():
    """Run every case and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    asked = parser.parse_args()
    lines = [
        "# Real training runs on a CPU under `brim run`", "",
        f"Made by `python tests/evidence/train_governed.py` on {datetime.datetime.now(datetime.UTC).date()} ({platform.machine()}, {os.cpu_count()} cores, {platform.system()}); torch seed 7, two steps each.",
        "Predicted: the plan of `brim fit --train full --device cpu:…` (likely, and its span), the process with its libraries included. Measured by the governor: peak of anonymous and shared memory.", "",
        "| model | batch × tokens | precision | checkpointing | predicted | span | governor's peak | error | inside the span | own peak RSS | exit |", "|---|---|---|---|---:|---:|---:|---:|---|---:|---:|",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name, batch, seq, precision, checkpointing in CASES:
            span, held, said, code = one(asked.python, name, batch, seq, precision, checkpointing, folder)
            inside = isinstance(held, int) and span.low <= held <= span.high
            error = f"{span.likely / held - 1:+.1%}" if isinstance(held, int) else ""
            row = [name, f"{batch} × {seq}", precision, checkpointing, format_bytes(span.likely), f"{format_bytes(span.low)} … {format_bytes(span.high)}"]
            row += [
                format_bytes(held) if isinstance(held, int) else str(held),
                error,
                "yes" if inside else "no",
                format_bytes(said.get("peak_rss_bytes", 0)),
                str(code),
            ]
            lines.append("| " + " | ".join(row) + " |")
            print(lines[-1], flush=True)
            (ROOT / "docs" / "evidence" / "train-run.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
