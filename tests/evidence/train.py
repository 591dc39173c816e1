"""Writes the training tables of the docs from golden figures and the engine: `python tests/evidence/train.py`.

- docs/evidence/train-oracle.md: the engine beside PyTorch (tests/golden/train.jsonl, made by train_oracle.py), by architecture and setting, failing rows included;
- docs/evidence/train-preflight.md: the preflight of 12e9 parameters on an RTX 3090, of an 8B on one H100 and of a 70B on eight;
- docs/evidence/train-others.md: beside accelerate's and DeepSpeed's estimators on the same models (tests/golden/train_others.jsonl, made by train_others.py).
"""

import datetime
import json
import pathlib
import platform
import sys

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "src"), str(HERE)]

from train_models import MODELS  # noqa: E402

from brim import api  # noqa: E402
from brim.engines.train import price, survey  # noqa: E402
from brim.engines.train.assumed import dense  # noqa: E402
from brim.facts.training import TrainWorkload  # noqa: E402
from brim.outlook import preflight  # noqa: E402
from brim.reports.preflight import markdown  # noqa: E402
from brim.shapes.config import read  # noqa: E402
from brim.units import format_bytes  # noqa: E402

BARS = {"parameters": 0.0, "optimizer_state": 0.0, "saved": 0.05, "peak_forward": 0.05, "peak_backward": 0.05, "peak_step": 0.05}


def stamp(made_by):
    """How and when a document was made."""
    return f"Made by `python {made_by}` on {datetime.datetime.now(datetime.UTC).date()} ({platform.machine()}, Python {platform.python_version()}); no chance in it."


def write(name, lines):
    """One document under docs/evidence."""
    (ROOT / "docs" / "evidence").mkdir(parents=True, exist_ok=True)
    (ROOT / "docs" / "evidence" / name).write_text("\n".join(lines) + "\n")


def workload_of(row):
    """The workload of a golden row."""
    lora = row["method"] in ("lora", "dora")
    return TrainWorkload(
        method=row["method"], batch=row["batch"], seq=row["seq"], optimizer=row["optimizer"], precision=row["precision"], attention=row["attention"],
        base=(row.get("base") or ("fp32" if row["precision"] == "fp32" else "bf16")) if lora else "", padded=row["mask"] == "made", checkpointing=row["checkpointing"],
        lora_rank=row["rank"] or 16, adapter=row.get("adapter", ""), lora_dropout=row.get("dropout", 0.0), accumulation=row.get("accumulation", 1),
        trainable_layers=row.get("trainable_layers", 2),
    )  # fmt: skip


def errors(row, configs):
    """What is compared → error as a share."""
    layers = {"mpt": "n_layers", "gpt2": "n_layer", "bloom": "n_layer", "gptj": "n_layer", "gpt_bigcode": "n_layer"}.get(row["family"], "num_hidden_layers")
    config = {**configs[row["family"]], **row.get("config", {}), layers: row["layers"]}
    plan = price(survey(*read(config), config), workload_of(row), "cpu")
    parts = {part.name: part.bytes.likely for part in plan.parts}
    moments = plan.workload["moments_bytes"]
    said = {
        "parameters": parts["weights"] + parts.get("adapter", 0), "optimizer_state": parts.get("optimizer_state", 0), "saved": plan.workload["saved_activation_bytes"],
        "peak_forward": moments["forward"], "peak_backward": max(moments["forward"], moments["backward"]), "peak_step": max(moments.values()),
    }  # fmt: skip
    return {key: said[key] / row[key] - 1 if row[key] else 0.0 for key in said if key in row}


def oracle_table():
    """The engine beside PyTorch, worst error by architecture; then every row outside its bar."""
    lines = (ROOT / "tests" / "golden" / "train.jsonl").read_text().splitlines()
    head, rows = json.loads(lines[0]), [json.loads(line) for line in lines[1:]]
    worst, failing, counts = {}, [], {}
    for row in rows:
        found = errors(row, head["configs"])
        counts[row["family"]] = counts.get(row["family"], 0) + 1
        for key, error in found.items():
            if abs(error) > abs(worst.get((row["family"], key), 0.0)):
                worst[(row["family"], key)] = error
        if any(abs(error) > BARS[key] for key, error in found.items()):
            failing.append((row, found))
    out = ["# The training engine beside PyTorch", "", stamp("tests/evidence/train.py"), "", f"Oracle: {head['versions']}, `{head['made_by']}`: FakeTensorMode on the CPU, two whole steps, MemTracker, saved-tensor hooks.",
           f"{len(rows)} rows of {len(counts)} architectures. The grid is 17 architectures × full and LoRA × checkpointing on and off × fp32, bf16 and bf16 autocast × two lengths, then optimisers, eager attention, no mask, dropout, DoRA, freezing, accumulation, and further architectures at one length.",
           f"Bars: parameters and optimiser state exact; kept activations and peaks within 5 %. Rows outside a bar: {len(failing)}.", "", "Worst error by architecture:", "",
           "| architecture | rows | parameters | optimiser state | kept activations | peak forward | peak backward | peak of the step |", "|---|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for family, count in counts.items():
        cells = [f"{worst.get((family, key), 0.0):+.2%}" for key in BARS]
        out.append(f"| {family} | {count} | " + " | ".join(cells) + " |")
    out += ["", "Rows outside a bar:", "", *([f"- {row}: {found}" for row, found in failing] or ["none"])]
    write("train-oracle.md", out)
    print(f"oracle: {len(rows)} rows, {len(failing)} outside a bar")


def preflight_tables():
    """Three preflights that people ask for."""
    out = ["<!-- " + stamp("tests/evidence/train.py") + " -->", ""]
    for census, words, name in (
        (dense(12_000_000_000), ("RTX 3090",), "a dense model of 12 billion parameters"),
        (survey(*read(MODELS["llama-3-8b"])), ("H100 SXM5 80GB",), "Llama 3 8B"),
        (survey(*read(MODELS["llama-3-70b"])), ("H100 SXM5 80GB",) * 8, "Llama 3 70B"),
    ):
        devices, _ = api.devices(words)
        out += [markdown(preflight(census, devices, name=name, assumed=name.startswith("a dense"))), ""]
    write("train-preflight.md", out)


def others_table():
    """Beside other estimators."""
    path = ROOT / "tests" / "golden" / "train_others.jsonl"
    if not path.exists():
        return
    out = ["# Beside other estimators", "", stamp("tests/evidence/train.py"), "", "Truth: PyTorch's MemTracker peak over a whole second step in fake mode (bf16, micro-batch 1, 2048 tokens, full checkpointing, for-loop AdamW on the CPU).",
           "accelerate prints one number for training with Adam and knows neither the method nor the batch; DeepSpeed's functions print model states alone, on each of 8 cards, and count frozen weights.", "",
           "| model | method | PyTorch | brim | error | accelerate (bf16 / fp32) | error (bf16) | DeepSpeed ZeRO-2 / ZeRO-3 a card | brim ZeRO-2 / ZeRO-3 a card |", "|---|---|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for line in path.read_text().splitlines():
        row = json.loads(line)
        census = survey(*read(MODELS[row["model"]]))
        w = TrainWorkload(
            method=row["method"],
            precision="bf16",
            base="bf16" if row["method"] == "lora" else "",
            checkpointing="full",
            attention=row["attention"],
            padded=row["attention"] == "eager",
        )
        ours = max(price(census, w, "cpu").workload["moments_bytes"].values())
        says, zero = row["accelerate"], row["deepspeed"]
        shared = [price(census, TrainWorkload(method=row["method"], precision="mixed" if row["method"] == "full" else "bf16", base="bf16" if row["method"] == "lora" else "",
                        sharding=s, ranks=8)).on("cuda:0").likely for s in ("zero2", "zero3")]  # fmt: skip
        out.append(
            f"| {row['model']} | {row['method']} | {format_bytes(row['torch_peak'])} | {format_bytes(ours)} | {ours / row['torch_peak'] - 1:+.1%} "
            f"| {format_bytes(says['bfloat16'])} / {format_bytes(says['float32'])} | {says['bfloat16'] / row['torch_peak'] - 1:+.0%} "
            f"| {format_bytes(zero['zero2'])} / {format_bytes(zero['zero3'])} ({zero['by']}) | {format_bytes(shared[0])} / {format_bytes(shared[1])} |"
        )
    write("train-others.md", out)


if __name__ == "__main__":
    oracle_table()
    preflight_tables()
    others_table()
