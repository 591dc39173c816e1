"""A workload in the words of other programs: TRL arguments, an accelerate command, a DeepSpeed configuration, FSDP settings, torchtune overrides.

What is spelled here is read back by `words.py` to the same workload (a test). Sources as there. A program that cannot say something has no entry.
"""

from brim.engines.train.setting import ADAPTERS, base_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.facts.training import TrainWorkload

_OPTIM = {
    "adamw": "adamw_torch_fused", "adamw_fused": "adamw_torch_fused", "adamw_foreach": "adamw_torch", "adamw_8bit": "adamw_bnb_8bit", "adamw_paged": "paged_adamw_32bit",
    "adamw_paged_8bit": "paged_adamw_8bit", "adamw_4bit": "adamw_torch_4bit", "adafactor": "adafactor", "lion": "lion_32bit", "lion_8bit": "lion_8bit", "sgd": "sgd",
    "rmsprop": "rmsprop", "adagrad": "adagrad",
}  # fmt: skip
_ATTENTION = {"flash": "flash_attention_2", "sdpa": "sdpa", "eager": "eager"}


def trainer_arguments(w: "TrainWorkload") -> "dict[str, Any]":
    """The workload as keys of TRL's SFT arguments; torch dtype words where the weights are not fp32."""
    out: dict[str, Any] = {
        "per_device_train_batch_size": w.batch,
        "gradient_accumulation_steps": w.accumulation,
        "max_length": w.seq,
        "gradient_checkpointing": w.checkpointing != "none",
        "packing": not w.padded,
        "attn_implementation": _ATTENTION[w.attention],
    }
    if w.optimizer in _OPTIM:
        out["optim"] = _OPTIM[w.optimizer]
    if w.precision in ("bf16-autocast", "mixed", "fp8"):
        out["bf16"] = True
    if w.precision == "fp16-autocast":
        out["fp16"] = True
    if w.precision in ("bf16", "fp16"):
        out |= {"dtype": "bfloat16" if w.precision == "bf16" else "float16"}
    if w.loss == "fused":
        out["use_liger_kernel"] = True
    if w.method in ADAPTERS:
        out |= {"use_peft": True, "lora_r": w.lora_rank, "lora_dropout": w.lora_dropout, "lora_target_modules": list(w.targets)}
        out |= {"use_dora": True} if w.method == "dora" else {}
        base = base_of(w)
        out |= {"load_in_4bit": True, "use_bnb_nested_quant": base == "nf4-dq"} if base.startswith(("nf4", "fp4")) else {}
        out |= {"load_in_8bit": True} if base == "int8" else {}
    if w.compiled:
        out["torch_compile"] = True
    return out


def trl(w: "TrainWorkload") -> str:
    """The same as words of a command line."""
    words: list[str] = []
    for key, value in trainer_arguments(w).items():
        if isinstance(value, bool):
            words += [f"--{key}", str(value).lower()]
        else:
            words += [f"--{key}", *(value if isinstance(value, list) else [str(value)])]
    return " ".join(words)


def accelerate_config(w: "TrainWorkload") -> "dict[str, Any]":
    """The workload's ranks and sharding as an accelerate configuration."""
    out: dict[str, Any] = {"distributed_type": "NO", "num_processes": w.ranks, "num_machines": w.nodes}
    out["mixed_precision"] = {"bf16-autocast": "bf16", "mixed": "bf16", "fp16-autocast": "fp16", "fp8": "fp8"}.get(w.precision, "no")
    if w.sharding == "ddp":
        out["distributed_type"] = "MULTI_GPU"
    elif w.sharding.startswith("zero"):
        device = {"none": "none", "nvme": "nvme"}.get(w.offload, "cpu")
        out["distributed_type"] = "DEEPSPEED"
        out["deepspeed_config"] = {
            "zero_stage": int(w.sharding[-1]), "offload_optimizer_device": device, "offload_param_device": "cpu" if w.offload == "all" else "none",
            "gradient_accumulation_steps": w.accumulation,
        }  # fmt: skip
    elif w.sharding.startswith("fsdp"):
        strategy = {"fsdp-grad-op": "SHARD_GRAD_OP", "fsdp-hybrid": "HYBRID_SHARD"}.get(w.sharding, "FULL_SHARD")
        out["distributed_type"] = "FSDP"
        out["fsdp_config"] = {
            "fsdp_version": 2 if w.sharding == "fsdp2" else 1, "fsdp_sharding_strategy": strategy, "fsdp_offload_params": w.offload == "all",
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_activation_checkpointing": False,
        }  # fmt: skip
    return out


def accelerate(w: "TrainWorkload") -> str:
    """An `accelerate launch` command line."""
    config = accelerate_config(w)
    words = ["accelerate", "launch", "--num_processes", str(w.ranks), "--num_machines", str(w.nodes), "--mixed_precision", config["mixed_precision"]]
    if "deepspeed_config" in config:
        zero = config["deepspeed_config"]
        words += ["--use_deepspeed", "--zero_stage", str(zero["zero_stage"]), "--offload_optimizer_device", zero["offload_optimizer_device"]]
        words += ["--offload_param_device", zero["offload_param_device"], "--gradient_accumulation_steps", str(w.accumulation)]
    elif "fsdp_config" in config:
        fsdp = config["fsdp_config"]
        words += ["--use_fsdp", "--fsdp_sharding_strategy", fsdp["fsdp_sharding_strategy"], "--fsdp_version", str(fsdp["fsdp_version"])]
        words += ["--fsdp_offload_params", "true" if fsdp["fsdp_offload_params"] else "false", "--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"]
    elif w.ranks > 1:
        words.append("--multi_gpu")
    return " ".join(words)


def deepspeed_config(w: "TrainWorkload") -> "dict[str, Any]":
    """The workload as a DeepSpeed configuration; empty where it is not DeepSpeed's."""
    if not w.sharding.startswith("zero"):
        return {}
    zero: dict[str, Any] = {"stage": int(w.sharding[-1])}
    if w.offload != "none":
        zero["offload_optimizer"] = {"device": "nvme" if w.offload == "nvme" else "cpu", "pin_memory": True}
    if w.offload == "all":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if w.bucket_bytes:
        zero["reduce_bucket_size"] = w.bucket_bytes // 2
    return {
        "train_micro_batch_size_per_gpu": w.batch, "gradient_accumulation_steps": w.accumulation, "bf16": {"enabled": w.precision in ("bf16-autocast", "mixed", "bf16")},
        "zero_optimization": zero,
    }  # fmt: skip


def torchtune(w: "TrainWorkload") -> str:
    """Overrides of a torchtune recipe (`tune run RECIPE --config C KEY=VALUE …`)."""
    words = [f"batch_size={w.batch}", f"gradient_accumulation_steps={w.accumulation}", f"tokenizer.max_seq_len={w.seq}", f"dataset.packed={not w.padded}"]
    words += [f"enable_activation_checkpointing={w.checkpointing != 'none'}", f"dtype={'fp32' if w.precision == 'fp32' else 'bf16'}", f"compile={w.compiled}"]
    if w.checkpointing == "offloaded":
        words.append("enable_activation_offloading=True")
    if w.optimizer in ("adamw_8bit", "adamw_paged_8bit"):
        words.append(
            "optimizer._component_=bitsandbytes.optim.PagedAdamW8bit" if "paged" in w.optimizer else "optimizer._component_=bitsandbytes.optim.AdamW8bit"
        )
    if w.fused_backward:
        words.append("optimizer_in_bwd=True")
    if w.method in ADAPTERS:
        words.append(f"model.lora_rank={w.lora_rank}")
    return " ".join(words)


def ours(w: "TrainWorkload") -> str:
    """The flags of `brim fit` for this workload; defaults are left out."""
    words = ["--train", w.method, "--batch", str(w.batch), "--seq", str(w.seq)]
    plain = (
        ("accumulation", 1),
        ("optimizer", "adamw"),
        ("precision", "bf16-autocast"),
        ("base", ""),
        ("checkpointing", "full"),
        ("loss", "full"),
        ("offload", "none"),
    )
    for field, default in plain:
        if getattr(w, field) != default:
            words += [f"--{field}", str(getattr(w, field))]
    if w.attention != "sdpa":
        words += ["--attn", w.attention]
    if w.padded:
        words.append("--padded")
    if w.method in ADAPTERS:
        words += ["--lora-rank", str(w.lora_rank)]
    if w.sharding.startswith("zero"):
        words += ["--zero", w.sharding[-1]]
    elif w.sharding.startswith("fsdp"):
        words += ["--fsdp", {"fsdp": "full", "fsdp-grad-op": "grad-op", "fsdp-hybrid": "hybrid", "fsdp2": "2"}[w.sharding]]
    return " ".join(words)


def spell(w: "TrainWorkload") -> "dict[str, Any]":
    """Every program's words for this workload."""
    out: dict[str, Any] = {"brim": ours(w), "trl": trl(w), "accelerate": accelerate(w), "torchtune": torchtune(w)}
    if w.sharding.startswith("zero"):
        out["deepspeed"] = deepspeed_config(w)
    if w.sharding.startswith("fsdp"):
        out["fsdp"] = accelerate_config(w)["fsdp_config"]
    return out
