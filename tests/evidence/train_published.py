"""Every published training-memory figure beside what the engine says: `python tests/evidence/train_published.py` writes docs/evidence/train-published.md.

What a program does by default (LoRA rank and targets, loss, precision, checkpointing) is a fact about the program, written once per source below; a row's own fields win.
Figures mean different things: allocated and active bytes are compared with the peak moment; reserved bytes with the peak and the allocator's slack; "stated" figures
with everything on the card. A row that leaves out an input that matters is predicted where it can be and counted apart, with the input named.
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

from brim.engines.train import price, survey  # noqa: E402
from brim.engines.train.assumed import dense  # noqa: E402
from brim.engines.train.parallel import deepspeed_estimate, zero_states_bytes  # noqa: E402
from brim.facts.training import TrainWorkload  # noqa: E402
from brim.shapes.config import read  # noqa: E402
from brim.units import GIB  # noqa: E402
from brim.values import Missing  # noqa: E402

UNITS = {"GB": 10**9, "GiB": GIB, "MB": 10**6, "MiB": 1 << 20, "bytes": 1}
_NAMES = (
    ("llama-3.2-1b", ("llama-3.2-1b",)), ("llama-3.2-3b", ("llama 3.2 3b", "llama-3.2-3b")), ("llama-3-8b", ("llama-3-8b", "llama-3.1-8b", "llama 3.1 8b", "llama 3 8b")),
    ("llama-3-70b", ("llama-3.3-70b", "llama 3.1 70b")), ("llama-3-405b", ("llama 3.1 405b",)), ("llama-2-70b", ("llama-2-70b", "llama-2 70b")),
    ("llama-2-7b", ("llama-2-7b", "llama2-7b", "llama 2 7 b", "llama-2 7b")), ("mistral-7b", ("mistral-7b", "mistral 7b")), ("llama-65b", ("llama-65b",)),
    ("gemma2-2b", ("gemma2-2b", "gemma-2-2b")), ("gemma-2b", ("gemma-2b",)), ("gemma-7b", ("gemma-7b",)), ("phi-1.5", ("phi-1.5",)), ("phi-2", ("phi-2",)), ("phi-3-mini", ("phi-3-mini",)),
    ("stablelm-alpha-3b", ("stablelm alpha 3", "stablelm-base-alpha-3b")), ("tiny-llama", ("tiny-llama",)), ("bloomz-7b1", ("bloomz-7b1",)), ("t5-3b", ("t5-3b", "t0_3b")),
    ("gpt2-xl", ("gpt-2 1.5b",)), ("devstral-24b", ("devstral",)), ("qwen3-4b", ("plano-orchestrator-4b",)),
)  # fmt: skip
_CENSUS = {}


def census_of(name):
    """The census of a named model; None where its architecture is not read."""
    if name not in _CENSUS:
        shape, rows = read(MODELS[name])
        _CENSUS[name] = None if isinstance(shape, Missing) else survey(shape, rows)
    return _CENSUS[name]


def model_of(row):
    """The configuration that a row's model means, or None."""
    text = row["model"].lower()
    if "gemma2" in row.get("note", ""):
        return "gemma2-2b"
    return next((key for key, words in _NAMES if any(word in text for word in words)), None)


def workload_of(row):
    """(workload, inputs that the row and its source leave out)."""
    source, method = row["source"], str(row.get("method", ""))
    lacks = []
    base = {
        "method": "qlora" if "qlora" in method.lower() else "lora" if "lora" in method.lower() else "full",
        "batch": row.get("micro_batch", 1),
        "seq": row.get("seq_len", 2048),
        "checkpointing": "full" if row.get("gradient_checkpointing") in (True, "full") else "none",
        "optimizer": "adamw_foreach",
        "precision": "bf16",
        "attention": "flash",
    }
    if "micro_batch" not in row or "seq_len" not in row:
        lacks.append("batch and length")
    if source.startswith("LitGPT"):
        base |= {
            "lora_rank": 8,
            "targets": ("q", "v", "qkv"),
            "loss": "chunked",
            "loss_chunks": max(1, base["seq"] // 128),
            "adapter": "bf16" if base["method"] != "full" else "",
            "lora_dropout": 0.05,
        }
        base["base"] = "" if base["method"] == "full" else "nf4-dq" if "dq" in str(row.get("precision")) else "nf4" if base["method"] == "qlora" else "bf16"
        if source == "LitGPT config hub":
            # its recipes for Gemma and Phi-3 adapt every layer and the head with rank 8, all others query and value with rank 32 (config_hub/finetune/*/*.yaml)
            every = any(word in row["note"] for word in ("gemma", "phi-3"))
            base |= {"lora_rank": 8, "targets": ("all-linear", "lm_head")} if every else {"lora_rank": 32}
            lacks.append(
                "the lengths of the samples (at most seq), and the recipe's " + ("cards and optimiser" if base["method"] == "full" else "targets and dropout")
            )
        if "FSDP" in str(row.get("parallelism")):
            base |= {"sharding": "fsdp-grad-op", "ranks": 2, "checkpointing": "full"}
            lacks.append("FSDP's sharding strategy and wrapping")
    elif source == "torchtune README":
        note = row.get("note", "")
        steps = ["baseline", "+ packed", "+ compile", "+ chunked", "+ activation checkpointing", "+ optimizer fused", "+ activation offloading", "+ 8-bit"]
        level = next((i for i, step in enumerate(steps) if note.startswith(step)), 0)
        qlora = note.startswith("on top")
        level = 6 if qlora else level
        base |= {"optimizer": "adamw_fused", "padded": level < 1, "compiled": level >= 2, "loss": "chunked" if level >= 3 else "full", "loss_chunks": 8}
        base |= {"checkpointing": "offloaded" if level >= 6 else "full" if level >= 4 else "none", "fused_backward": level >= 5 and not qlora}
        if level >= 7:
            base["optimizer"] = "adamw_8bit"
        if level < 1:
            lacks.append("the lengths of unpacked samples")
        if qlora:
            base |= {"lora_rank": 8, "targets": ("q", "v", "o")}
            lacks.append("rank and targets")
    elif source.startswith("PEFT method comparison"):
        base |= {
            "optimizer": "adamw_fused",
            "padded": True,
            "lora_rank": 64 if "rank64" in row.get("note", "") else 10 if "rank10" in row["note"] else 32,
            "attention": "sdpa",
        }
        base |= {"targets": ("gate", "up", "down") if "mlp" in row["note"] else ("q", "v"), "adapter": "fp32", "base": "bf16", "precision": "bf16-autocast"}
        if base["method"] == "full":
            base |= {"precision": "bf16", "adapter": "", "base": ""}
        lacks.append("the lengths of the samples in the batch that peaked" + ("; evaluation at batch 50" if "evaluation" in row["meaning"] else ""))
    elif source == "FSDP QLoRA benchmarks":
        base |= {
            "lora_rank": 64,
            "targets": ("all-linear",),
            "base": "nf4" if "qlora" in method else "bf16",
            "adapter": "bf16",
            "ranks": 2,
            "checkpointing": "full",
            "attention": "sdpa",
            "loss": "shifted",
        }
        base["sharding"] = "ddp" if "DDP" in row["parallelism"] else "fsdp"
        base["offload"] = "all" if "offload" in row["parallelism"] else "none"
        base["optimizer"] = "adamw_fused"
    elif source.startswith("LLaMA-Factory wiki"):
        base |= {
            "lora_rank": 8,
            "accumulation": 2,
            "base": "bf16",
            "precision": "bf16-autocast",
            "adapter": "fp32",
            "attention": "eager" if "eager" in row["note"] else "flash",
        }
        base["checkpointing"] = "full"
        lacks += ["what the figure means"] + (["Unsloth's own kernels"] if "Unsloth" in row["note"] else [])
    elif source == "Axolotl example":
        base |= {
            "lora_rank": 32,
            "base": "nf4-dq" if base["method"] == "qlora" else "int8" if "8-bit base" in row.get("note", "") else ("bf16" if base["method"] == "lora" else ""),
        }
        base |= {"precision": "bf16-autocast" if base["method"] != "full" else "bf16", "optimizer": _axolotl_optimizer(row), "loss": "fused"}
        lacks.append("rank, targets, loss kernel and what the figure means")
    elif source == "torchtune tutorials":
        base |= {"lora_rank": 8, "targets": ("q", "v"), "batch": 2, "checkpointing": "full", "base": "bf16" if base["method"] == "lora" else "nf4"}
    elif source == "PEFT README":
        base |= {
            "lora_rank": 8,
            "targets": ("q", "v", "qkv"),
            "base": "fp32" if "T0" in row["model"] else "bf16",
            "precision": "fp32" if "T0" in row["model"] else "bf16",
        }
        base["offload"] = "none"
        lacks.append("precision, and what offloading moved")
    elif source == "LongLoRA table":
        base |= {"lora_rank": 8, "targets": ("q", "k", "v", "o"), "ranks": 8, "sharding": "zero2", "base": "bf16", "adapter": "bf16", "checkpointing": "full"}
        lacks.append("rank, targets and precision")
    else:
        if "8-bit" in method:
            base["base"] = "int8"
        lacks.append("most settings")
    return TrainWorkload(**base), lacks


def _axolotl_optimizer(row):
    word = row.get("optimizer", "")
    return "adamw_4bit" if "4bit" in word else "adamw_8bit" if "8bit" in word else "adamw_fused"


def analytic(row):
    """What a row that is arithmetic itself comes to by our functions, in its own unit; None where it is none."""
    key, p = row["id"], float(row.get("params_b", 0) or 0) * 1e9
    if row["source"] == "ZeRO paper" and "states" in row["method"]:
        return zero_states_bytes(int(p), 0, 1) / 1e9
    if row["source"] == "ZeRO paper":
        return 12 * 1600 * row["micro_batch"] * row["seq_len"] * 48 * 2 / 1e9  # the paper's own rule: 12 × hidden × batch × length × layers elements of 2 bytes
    if row["source"] == "DeepSpeed memory page":
        words = row["parallelism"]
        stage = 2 if "ZeRO-2" in words else 3
        p = 2851e6  # as its example prints it; the largest layer has 32 million
        size = deepspeed_estimate(int(p), 32_000_000, stage, 8, optimizer_on_cpu="optimizer on CPU" in words, parameters_on_cpu="parameters and" in words)
        return size / GIB
    if key == "train-025":
        return 4 + 2 + 8 + 4
    if row["source"].startswith("Ultra-scale"):
        return 34 * row["seq_len"] * 4096 * 32 / GIB  # Korthikanti's rule without scores: 34 × length × width × layers bytes
    return None


def predict(row):
    """(predicted in the row's unit, lacks, comparable) or (None, why, False)."""
    rule = analytic(row)
    if rule is not None:
        return rule, [], "analytic"
    value, unit = row["value"], row.get("unit", "GB")
    if not isinstance(value, (int, float)) or unit not in UNITS:
        return None, ["the figure is a range or a factor"], ""
    guide = any(word in row["source"] for word in ("hardware table", "minimum VRAM", "choosing-method", "context table", "estimator note"))
    name = model_of(row)
    if row["method"] in ("context only",):
        return None, ["driver-level context of an old CUDA"], ""
    if guide:
        if row.get("params_b") and isinstance(row["params_b"], (int, float)) and "context table" not in row["source"] and "any" not in row["model"]:
            return _guide(row), ["batch, length and model: a guide, not a measurement"], "guide"
        return None, ["a guide, not a measurement"], ""
    if name is None or census_of(name) is None:
        return None, ["the model's configuration"], ""
    if row["method"].startswith(("ia3", "osf", "lora-fa", "weights loaded")):
        return None, [f"the method {row['method']} is not priced"], ""
    if row.get("parallelism") and any(word in str(row["parallelism"]) for word in ("TP", "PP", "expert parallel")):
        return None, ["tensor and pipeline parallelism are not priced yet"], ""
    w, lacks = workload_of(row)
    plan = price(census_of(name), w)
    if plan.missing:
        return None, list(plan.missing), ""
    meaning = row["meaning"].lower()
    states = sum(p.bytes.likely for p in plan.parts if p.device == "cuda:0" and p.name in ("weights", "adapter", "optimizer_state", "master_weights"))
    peak = max(plan.workload["moments_bytes"].values())
    slack = sum(p.bytes.likely for p in plan.parts if p.device == "cuda:0" and p.name == "allocator_slack")
    if "initialisation" in meaning or "after load" in meaning:
        size = sum(p.bytes.likely for p in plan.parts if p.device == "cuda:0" and p.name in ("weights", "adapter"))
    elif "cache while" in meaning:
        return None, ["fragmentation is not predicted"], ""
    elif "active" in meaning or "allocated" in meaning:
        size = peak
    elif "reserved" in meaning:
        size = peak + slack if "average" not in meaning else states + (peak - states) // 2
    else:
        size = plan.on("cuda:0").likely
    return size / UNITS[unit], lacks, "measured"


def _guide(row):
    words = row["method"].lower()
    method = "qlora" if "qlora" in words else "lora" if "lora" in words else "full"
    pure = "pure" in words
    w = TrainWorkload(
        method=method,
        precision="bf16" if pure or method != "full" else "bf16-autocast",
        base="" if method == "full" else {"8 bit": "int8"}.get(row.get("precision"), "nf4-dq" if method == "qlora" else "bf16"),
    )
    return price(dense(int(float(row["params_b"]) * 1e9)), w).on("cuda:0").likely / UNITS[row["unit"]]


def table():
    """One line a row: id, source, model, method, published, predicted, error, kind, what is missing."""
    rows = [json.loads(line) for line in (ROOT / "tests" / "golden" / "training_figures.jsonl").read_text().splitlines()]
    out = []
    for row in rows:
        predicted, lacks, kind = predict(row)
        error = None if predicted is None or not isinstance(row["value"], (int, float)) else predicted / row["value"] - 1
        out.append((row, predicted, error, kind, lacks))
    return out


def figures(lines):
    """Counts for the head of the document."""
    exact = [abs(e) for _, _, e, kind, _ in lines if kind == "analytic"]
    whole = [abs(e) for _, _, e, kind, lacks in lines if kind == "measured" and not lacks]
    partial = [abs(e) for _, _, e, kind, lacks in lines if kind == "measured" and lacks]
    return exact, whole, partial


def main():
    """Write the document."""
    lines = table()
    exact, whole, partial = figures(lines)
    head = [
        "# Published training figures beside the prediction", "",
        f"Made by `python tests/evidence/train_published.py` on {datetime.datetime.now(datetime.UTC).date()} ({platform.machine()}, Python {platform.python_version()}); no chance in it.", "",
        f"- {len(lines)} rows; {len(exact)} are arithmetic themselves: worst {max(exact):.1%} (they are printed rounded).",
        f"- {len(whole)} measured rows name every input that matters: {sum(e <= 0.1 for e in whole)} within 10 %, {sum(e > 0.25 for e in whole)} wrong by more than 25 %.",
        f"- {len(partial)} measured rows leave out an input that matters (last column): {sum(e <= 0.1 for e in partial)} within 10 %, {sum(e > 0.25 for e in partial)} wrong by more than 25 %.", "",
        "| id | source | model | method | means | published | predicted | error | missing or not priced |", "|---|---|---|---|---|---:|---:|---:|---|",
    ]  # fmt: skip
    for row, predicted, error, kind, lacks in lines:
        number = "" if predicted is None else f"{predicted:,.2f}"
        off = "" if error is None else f"{error:+.1%}"
        cells = (
            row["id"],
            row["source"],
            row["model"],
            row["method"],
            f"{row['meaning']} ({kind or 'not predicted'})",
            f"{row['value']} {row.get('unit', '')}",
            number,
            off,
            "; ".join(lacks),
        )
        head.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    (ROOT / "docs" / "evidence").mkdir(parents=True, exist_ok=True)
    (ROOT / "docs" / "evidence" / "train-published.md").write_text("\n".join(head) + "\n")
    print("\n".join(head[4:7]))


if __name__ == "__main__":
    main()
