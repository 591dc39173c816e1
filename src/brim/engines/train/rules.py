"""The keys of each kind of training file and what each changes in a workload; the other half of `words.py`, which says where they were read.

A rule takes the changes so far and a key's value. Values of the wrong kind raise, and `words.read_config` says which key it was.
"""

from brim.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Changes = dict[str, Any]

OPTIMIZERS = {
    "adamw_torch": "adamw_foreach", "adamw_hf": "adamw", "adamw_torch_fused": "adamw_fused", "adamw_torch_xla": "adamw", "adamw_anyprecision": "adamw",
    "adamw_bnb_8bit": "adamw_8bit", "adamw_8bit": "adamw_8bit", "adamw_torch_8bit": "adamw_8bit", "ao_adamw_8bit": "adamw_8bit", "adamw_torch_4bit": "adamw_4bit",
    "ao_adamw_4bit": "adamw_4bit", "paged_adamw_8bit": "adamw_paged_8bit", "paged_adamw_32bit": "adamw_paged", "paged_adamw": "adamw_paged", "adafactor": "adafactor",
    "lion_32bit": "lion", "lion": "lion", "lion_8bit": "lion_8bit", "paged_lion_8bit": "lion_8bit", "sgd": "sgd", "rmsprop": "rmsprop", "adagrad": "adagrad", "muon": "muon",
    "adamw": "adamw", "adam": "adamw", "pagedadamw8bit": "adamw_paged_8bit", "adamw8bit": "adamw_8bit", "pagedadamw": "adamw_paged",
}  # fmt: skip

SILENT = frozenset(
    [
        "learning_rate",
        "lr",
        "lr_scheduler",
        "lr_scheduler_type",
        "lr_scheduler_kwargs",
        "warmup_steps",
        "warmup_ratio",
        "weight_decay",
        "max_grad_norm",
        "num_train_epochs",
        "num_epochs",
        "epochs",
        "max_steps",
        "max_steps_per_epoch",
        "output_dir",
        "overwrite_output_dir",
        "logging_steps",
        "logging_dir",
        "logging_strategy",
        "logging_first_step",
        "report_to",
        "run_name",
        "seed",
        "data_seed",
        "save_steps",
        "save_total_limit",
        "save_strategy",
        "eval_steps",
        "eval_strategy",
        "evaluation_strategy",
        "dataset",
        "datasets",
        "dataset_name",
        "dataset_dir",
        "dataset_config",
        "dataset_text_field",
        "dataset_prepared_path",
        "template",
        "cutoff",
        "preprocessing_num_workers",
        "overwrite_cache",
        "plot_loss",
        "do_train",
        "do_eval",
        "do_predict",
        "stage",
        "resume_from_checkpoint",
        "resume_from_latest_checkpoint",
        "hub_model_id",
        "push_to_hub",
        "wandb_project",
        "wandb_entity",
        "wandb_watch",
        "wandb_name",
        "wandb_log_model",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "lora_alpha",
        "alpha",
        "val_set_size",
        "val_size",
        "warmup",
        "special_tokens",
        "chat_template",
        "trust_remote_code",
        "tokenizer_type",
        "model_type",
        "shuffle",
        "metric_logger",
        "log_every_n_steps",
        "log_peak_memory_stats",
        "log_level",
        "debug",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "main_training_function",
        "rdzv_backend",
        "same_network",
        "compute_environment",
        "tpu_env",
        "tpu_use_cluster",
        "tpu_use_sudo",
        "downcast_bf16",
        "enable_cpu_affinity",
        "steps_per_print",
        "wall_clock_breakdown",
        "gradient_clipping",
        "scheduler",
        "train_on_inputs",
        "auto_resume_from_checkpoints",
        "strict",
        "local_rank",
        "ddp_timeout",
        "include_num_input_tokens_seen",
        "max_samples",
        "saves_per_epoch",
        "evals_per_epoch",
        "group_by_length",
        "task",
        "task_type",
        "peft_type",
        "lora_modules_to_save_none",
        "tokenizer",
        "checkpointer",
        "profiler",
        "device",
        "hub_strategy",
        "dataset_num_proc",
        "ddp_find_unused_parameters",
        "tf32",
        "loss_scale",
        "torch_compile_backend",
        "main_process_first",
        "base_model_ignore_patterns",
        "bos_token",
        "eos_token",
        "pad_token",
        "xformers_attention_none",
    ]
)


def _set(field: str, convert: "Callable[[Any], Any]" = int) -> "Callable[[Changes, Any], None]":
    def rule(changes: "Changes", value: "Any") -> None:
        changes[field] = convert(value)

    return rule


def truth(value: "Any") -> bool:
    """Yes and no as these files write them."""
    return value is True or str(value).lower() in ("true", "1", "yes", "auto")


def _when(field: str, word: "Any") -> "Callable[[Changes, Any], None]":
    def rule(changes: "Changes", value: "Any") -> None:
        if truth(value):
            changes[field] = word

    return rule


def _optimizer(changes: "Changes", value: "Any") -> None:
    name = str(value).lower().replace("-", "_")
    if name in OPTIMIZERS:
        changes["optimizer"] = OPTIMIZERS[name]
    else:
        raise Usage(f"optimiser {value!r}: brim knows {', '.join(sorted(OPTIMIZERS))}")


def _checkpointing(changes: "Changes", value: "Any") -> None:
    changes["checkpointing"] = "offloaded" if str(value).lower() == "offload" else "full" if truth(value) else "none"


def _bf16(changes: "Changes", value: "Any") -> None:
    if truth(value) or value == "full":
        changes["precision"] = "bf16-autocast"


def _targets(changes: "Changes", value: "Any") -> None:
    names = value if isinstance(value, (list, tuple)) else str(value).split(",")
    names = [str(name).strip() for name in names]
    changes["targets"] = ("all-linear",) if "all" in names or "all-linear" in names else tuple(names)


def _attention(changes: "Changes", value: "Any") -> None:
    word = str(value).lower()
    changes["attention"] = "eager" if word in ("eager", "disabled") else "flash" if word in ("fa2", "fa3") or "flash" in word else "sdpa"


def _deepspeed_inside(changes: "Changes", value: "Any") -> None:
    if isinstance(value, dict):
        _zero(changes, value.get("zero_optimization") or {})
    else:
        stage = next((digit for digit in "321" if f"zero{digit}" in str(value) or f"z{digit}" in str(value) or f"zero_{digit}" in str(value)), "")
        if stage:
            changes["sharding"] = f"zero{stage}"
            changes["offload"] = (
                "all" if "cpuoffload_all" in str(value) or ("offload" in str(value) and stage == "3") else "optimizer" if "offload" in str(value) else "none"
            )
        else:
            changes["also_unpriced"] = (f"deepspeed ({value}: give that file too)",)


def _torchtune_model(changes: "Changes", value: "Mapping[str, Any]") -> None:
    name = value["_component_"].rsplit(".", 1)[-1]
    changes["model"] = name.removeprefix("qlora_").removeprefix("lora_")
    if name.startswith(("lora_", "qlora_")):
        changes["method"] = "qlora" if name.startswith("qlora_") else "lora"
        changes["lora_rank"] = int(value.get("lora_rank", 8))
        changes["lora_dropout"] = float(value.get("lora_dropout", 0.0))
        modules = [str(module) for module in value.get("lora_attn_modules", [])]
        renamed = {"output_proj": "o"}
        targets = [renamed.get(module, module) for module in modules]
        if value.get("apply_lora_to_mlp"):
            targets += ["gate", "up", "down", "gate_up"]
        changes["targets"] = tuple(targets) or ("all-linear",)
        if value.get("use_dora"):
            changes["method"] = "dora"


def _fsdp(changes: "Changes", value: "Mapping[str, Any]") -> None:
    word = str(value.get("fsdp_sharding_strategy", value.get("fsdp_reshard_after_forward", "FULL_SHARD"))).upper()
    changes["sharding"] = {
        "SHARD_GRAD_OP": "fsdp-grad-op",
        "2": "fsdp-grad-op",
        "FALSE": "fsdp-grad-op",
        "HYBRID_SHARD": "fsdp-hybrid",
        "4": "fsdp-hybrid",
    }.get(word, "fsdp2" if str(value.get("fsdp_version", "1")) == "2" else "fsdp")
    if truth(value.get("fsdp_offload_params", False)):
        changes["offload"] = "all"
    if truth(value.get("fsdp_activation_checkpointing", False)):
        changes["checkpointing"] = "full"


def _accelerate_zero(changes: "Changes", value: "Mapping[str, Any]") -> None:
    changes["sharding"] = f"zero{int(value.get('zero_stage', 2))}"
    if value.get("offload_optimizer_device", "none") not in ("none", None):
        changes["offload"] = "nvme" if value["offload_optimizer_device"] == "nvme" else "optimizer"
    if value.get("offload_param_device", "none") not in ("none", None):
        changes["offload"] = "all"
    if "gradient_accumulation_steps" in value and value["gradient_accumulation_steps"] != "auto":
        changes["accumulation"] = int(value["gradient_accumulation_steps"])


def _zero(changes: "Changes", value: "Mapping[str, Any]") -> None:
    stage = int(value.get("stage", 0))
    changes["sharding"] = f"zero{stage}" if stage else "ddp"
    device = str((value.get("offload_optimizer") or {}).get("device", "none"))
    if device not in ("none", "None"):
        changes["offload"] = "nvme" if device == "nvme" else "optimizer"
    if str((value.get("offload_param") or {}).get("device", "none")) not in ("none", "None"):
        changes["offload"] = "all"
    bucket = value.get("reduce_bucket_size", "auto")
    if bucket != "auto":
        changes["bucket_bytes"] = 2 * int(float(bucket))


TRAINER: "dict[str, Callable[[Changes, Any], None]]" = {
    "per_device_train_batch_size": _set("batch"),
    "per_device_eval_batch_size": _set("evaluation_batch"),
    "gradient_accumulation_steps": _set("accumulation"),
    "gradient_checkpointing": _checkpointing,
    "gradient_checkpointing_kwargs": lambda c, v: None,
    "optim": _optimizer,
    "bf16": _bf16,
    "fp16": _when("precision", "fp16-autocast"),
    "torch_compile": _when("compiled", True),  # noqa: FBT003
    "dataloader_num_workers": _set("workers"),
    "max_seq_length": _set("seq"),
    "max_length": _set("seq"),
    "packing": lambda c, v: c.update(padded=not truth(v)),
    "padding_free": lambda c, v: c.update(padded=not truth(v)),
    "model_name_or_path": _set("model", str),
    "use_peft": _when("method", "lora"),
    "lora_r": _set("lora_rank"),
    "lora_rank": _set("lora_rank"),
    "lora_dropout": _set("lora_dropout", float),
    "lora_target_modules": _targets,
    "lora_target": _targets,
    "load_in_4bit": lambda c, v: c.update(base="nf4") if truth(v) else None,
    "load_in_8bit": lambda c, v: c.update(base="int8") if truth(v) else None,
    "use_bnb_nested_quant": lambda c, v: c.update(nested=truth(v)),
    "use_dora": _when("method", "dora"),
    "attn_implementation": _attention,
    "use_liger_kernel": _when("loss", "fused"),
    "dtype": lambda c, v: c.update(weights=str(v)),
    "torch_dtype": lambda c, v: c.update(weights=str(v)),
    "deepspeed": _deepspeed_inside,
    "eval_accumulation_steps": lambda c, v: None,
}
AXOLOTL = {
    **TRAINER,
    "base_model": _set("model", str),
    "adapter": lambda c, v: c.update(method=str(v).lower()) if v else None,
    "sequence_len": _set("seq"),
    "micro_batch_size": _set("batch"),
    "eval_batch_size": _set("evaluation_batch"),
    "optimizer": _optimizer,
    "sample_packing": lambda c, v: c.update(padded=not truth(v)),
    "pad_to_sequence_len": lambda c, v: None,
    "flash_attention": _when("attention", "flash"),
    "sdp_attention": _when("attention", "sdpa"),
    "eager_attention": _when("attention", "eager"),
    "lora_target_linear": lambda c, v: c.update(targets=("all-linear",)) if truth(v) else None,
    "peft_use_dora": _when("method", "dora"),
    "bfloat16": lambda c, v: c.update(precision="bf16") if truth(v) else None,
    "float16": lambda c, v: c.update(precision="fp16") if truth(v) else None,
    "liger_fused_linear_cross_entropy": _when("loss", "fused"),
    "cut_cross_entropy": _when("loss", "fused"),
    "chunked_cross_entropy": _when("loss", "chunked"),
}
LLAMAFACTORY = {
    **TRAINER,
    "finetuning_type": lambda c, v: c.update(method=str(v).lower()),
    "cutoff_len": _set("seq"),
    "quantization_bit": lambda c, v: c.update(base={4: "nf4-dq", 8: "int8"}[int(v)]),
    "double_quantization": lambda c, v: c.update(nested=truth(v)),
    "flash_attn": _attention,
    "pure_bf16": lambda c, v: c.update(precision="bf16") if truth(v) else None,
    "freeze_trainable_layers": _set("trainable_layers"),
    "disable_gradient_checkpointing": lambda c, v: c.update(checkpointing="none") if truth(v) else None,
    "enable_liger_kernel": _when("loss", "fused"),
    "use_unsloth": lambda c, v: c.update(also_unpriced=("use_unsloth",)) if truth(v) else None,
}
TORCHTUNE: "dict[str, Callable[[Changes, Any], None]]" = {
    "model": _torchtune_model,
    "batch_size": _set("batch"),
    "gradient_accumulation_steps": _set("accumulation"),
    "optimizer": lambda c, v: _optimizer(c, v["_component_"].rsplit(".", 1)[-1]),
    "optimizer_in_bwd": _when("fused_backward", True),  # noqa: FBT003
    "enable_activation_checkpointing": lambda c, v: c.update(checkpointing="full" if truth(v) else "none"),
    "enable_activation_offloading": _when("checkpointing", "offloaded"),
    "compile": _when("compiled", True),  # noqa: FBT003
    "dtype": lambda c, v: c.update(precision={"bf16": "bf16", "fp32": "fp32", "fp16": "fp16"}[str(v)]),
    "loss": lambda c, v: c.update(loss="chunked" if "hunk" in str(v) else "fused" if "Linear" in str(v) else "full"),
    "fsdp_cpu_offload": _when("offload", "all"),
}
ACCELERATE: "dict[str, Callable[[Changes, Any], None]]" = {
    "mixed_precision": lambda c, v: c.update(precision={"no": "fp32", "bf16": "bf16-autocast", "fp16": "fp16-autocast", "fp8": "fp8"}[str(v).lower()]),
    "num_processes": _set("ranks"),
    "num_machines": _set("nodes"),
    "distributed_type": lambda c, v: c.update(sharding={"MULTI_GPU": "ddp", "FSDP": "fsdp", "DEEPSPEED": "zero2", "NO": "none"}[str(v).upper()]),
    "fsdp_config": _fsdp,
    "deepspeed_config": _accelerate_zero,
    "dynamo_config": lambda c, v: None,
    "gradient_accumulation_steps": _set("accumulation"),
}
DEEPSPEED: "dict[str, Callable[[Changes, Any], None]]" = {
    "train_micro_batch_size_per_gpu": _set("batch"),
    "gradient_accumulation_steps": _set("accumulation"),
    "bf16": lambda c, v: c.update(precision="mixed") if truth(v.get("enabled", False)) else None,
    "fp16": lambda c, v: c.update(precision="mixed") if truth(v.get("enabled", False)) else None,
    "optimizer": lambda c, v: _optimizer(c, v["type"]),
    "zero_optimization": _zero,
    "train_batch_size": lambda c, v: None,
    "activation_checkpointing": lambda c, v: None,
}
