"""Reads the training files that people have as a workload: transformers and TRL arguments, Axolotl, LLaMA-Factory and torchtune recipes, accelerate and DeepSpeed files.

A decoded document in; a workload, the model's name and the keys that were not priced out. Sources: transformers 5.24 `training_args.py`, TRL 0.24 `ModelConfig`,
Axolotl 0.12 `utils/schemas`, LLaMA-Factory 0.9 `hparams`, torchtune 0.6 recipes, accelerate 1.15 `commands/config`, DeepSpeed 0.17 `runtime/config.py`.
Keys that cannot change memory (rates, paths, logging) are known and silent; every other key that is not priced is listed.
"""

from brim.engines.train.rules import ACCELERATE, AXOLOTL, DEEPSPEED, LLAMAFACTORY, SILENT, TORCHTUNE, TRAINER
from brim.errors import Usage
from brim.facts.training import TrainWorkload
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Changes = dict[str, Any]


class Read(Record):
    """What a training file says: its kind, the changes to a workload, the model it names ('' where none), and keys that were not priced."""

    kind: str
    changes: "dict[str, Any]"
    model: str
    unpriced: tuple[str, ...]


def kind_of(document: "Mapping[str, Any]") -> str:
    """Whose file this is, by keys that only that program has."""
    if "zero_optimization" in document or "train_micro_batch_size_per_gpu" in document:
        return "deepspeed"
    if "distributed_type" in document or "compute_environment" in document:
        return "accelerate"
    if isinstance(document.get("model"), dict) and "_component_" in document["model"]:
        return "torchtune"
    if "base_model" in document:
        return "axolotl"
    if "finetuning_type" in document or "quantization_bit" in document or "cutoff_len" in document:
        return "llamafactory"
    if any(key in document for key in ("per_device_train_batch_size", "model_name_or_path", "gradient_checkpointing", "use_peft", "optim")):
        return "transformers"
    raise Usage(
        "this file is no training configuration that brim knows",
        hint="Known: transformers/TRL arguments, Axolotl, LLaMA-Factory, torchtune, accelerate, DeepSpeed.",
    )


def known(document: "Mapping[str, Any]") -> bool:
    """Whether this is a training file that brim knows."""
    try:
        return bool(kind_of(document))
    except Usage:
        return False


def read_config(document: "Mapping[str, Any]") -> Read:
    """The workload that a decoded file describes. `Usage` names a key whose value cannot be meant."""
    kind = kind_of(document)
    changes: Changes = {}
    unpriced: list[str] = []
    rules, finish = _KINDS[kind]
    for key, value in document.items():
        rule = rules.get(key)
        if rule is not None:
            if value is not None and value != "auto":
                try:
                    rule(changes, value)
                except (TypeError, ValueError, OverflowError, AttributeError, KeyError):
                    raise Usage(f"{kind} key {key}: {repr(value)[:80]} cannot be meant") from None
        elif key not in SILENT and value not in (None, False, "", [], {}):
            unpriced.append(key)
    finish(changes, document)
    model = str(changes.pop("model", ""))
    return Read(kind=kind, changes=changes, model=model, unpriced=(*unpriced, *changes.pop("also_unpriced", ())))


def _finish_trainer(changes: "Changes", document: "Mapping[str, Any]") -> None:
    """What several keys say together: a quantised base makes LoRA QLoRA; without 16-bit flags the trainer runs in fp32; no checkpointing unless asked."""
    nested, weights = changes.pop("nested", None), changes.pop("weights", "")
    if changes.get("base") in ("nf4", "nf4-dq") and nested is not None:
        changes["base"] = "nf4-dq" if nested else "nf4"
    if changes.get("method") == "lora" and changes.get("base"):
        changes["method"] = "qlora" if changes["base"] != "int8" else "lora"
    if changes.get("method") not in (None, "full", "lora", "qlora", "dora", "freeze"):
        raise Usage(f"the training method {changes['method']!r} is not priced", hint="brim prices full, lora, qlora, dora and freeze.")
    changes.setdefault("precision", "fp32")
    if str(weights).replace("torch.", "") in ("bfloat16", "bf16", "float16", "fp16") and changes.get("method", "full") == "full":
        changes["precision"] = "bf16" if "bf" in str(weights) else "fp16"
    changes.setdefault("checkpointing", "none")
    changes.setdefault("padded", True)
    changes.setdefault("optimizer", "adamw_fused")
    if "targets" not in changes and changes.get("method", "full") in ("lora", "qlora", "dora"):
        changes["targets"] = ("q", "v", "qkv")  # peft's default for most architectures: query and value
    if "deepspeed" not in document:
        changes.pop("bucket_bytes", None)


def _finish_axolotl(changes: "Changes", document: "Mapping[str, Any]") -> None:
    if str(document.get("bf16", "")).lower() in ("auto", "true") and changes.get("method", "full") == "full" and "precision" not in changes:
        changes["precision"] = "bf16-autocast"
    if document.get("load_in_4bit") and changes.get("method") in ("qlora", "lora"):
        changes["method"], changes["base"] = "qlora", "nf4-dq"
    changes.setdefault("lora_rank", 16)
    _finish_trainer(changes, document)
    if "micro_batch_size" not in document:
        changes.setdefault("batch", 1)


def _finish_llamafactory(changes: "Changes", document: "Mapping[str, Any]") -> None:
    changes.setdefault("method", "lora")
    changes.setdefault("lora_rank", 8)
    changes.setdefault("checkpointing", "full")  # LLaMA-Factory turns it on unless it is disabled
    if changes["method"] in ("lora", "dora"):
        changes.setdefault("targets", ("all-linear",))
    _finish_trainer(changes, document)


def _finish_torchtune(changes: "Changes", document: "Mapping[str, Any]") -> None:
    changes.setdefault("precision", "bf16")
    changes.setdefault("checkpointing", "none")
    tokenizer = document.get("tokenizer")
    if isinstance(tokenizer, dict) and tokenizer.get("max_seq_len"):
        changes["seq"] = int(tokenizer["max_seq_len"])
    dataset = document.get("dataset")
    changes["padded"] = not (isinstance(dataset, dict) and dataset.get("packed"))
    if changes.get("checkpointing") == "offloaded" and not document.get("enable_activation_checkpointing"):
        changes["checkpointing"] = "none"


def _finish_nothing(changes: "Changes", document: "Mapping[str, Any]") -> None:
    if changes.get("sharding") == "ddp" and changes.get("ranks", 2) < 2:
        changes["sharding"] = "none"


_KINDS = {
    "transformers": (TRAINER, _finish_trainer),
    "axolotl": (AXOLOTL, _finish_axolotl),
    "llamafactory": (LLAMAFACTORY, _finish_llamafactory),
    "torchtune": (TORCHTUNE, _finish_torchtune),
    "accelerate": (ACCELERATE, _finish_nothing),
    "deepspeed": (DEEPSPEED, _finish_nothing),
}


def combine(files: "tuple[Read, ...]", base: TrainWorkload) -> "tuple[TrainWorkload, str]":
    """One workload from several files (a trainer's and an accelerate or DeepSpeed one), later ones winning; and the model they name."""
    changes: Changes = {}
    model = ""
    unpriced: list[str] = []
    for one in files:
        changes.update(one.changes)
        model = one.model or model
        unpriced.extend(f"{one.kind} key {key}" for key in one.unpriced)
    return base.replace(**changes, unpriced=(*base.unpriced, *unpriced)), model
