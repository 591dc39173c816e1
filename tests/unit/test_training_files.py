"""Training files that people have: what each key becomes, what is listed as not priced, and hostile ones."""

import pytest

from brim.engines.train.words import combine, kind_of, read_config
from brim.errors import BadHeader, EmptyFile, Usage
from brim.facts.training import TrainWorkload
from brim.readers.training_config import read_document

AXOLOTL = {
    "base_model": "NousResearch/Meta-Llama-3-8B", "load_in_4bit": True, "adapter": "qlora", "lora_r": 32, "lora_alpha": 16, "lora_dropout": 0.05, "lora_target_linear": True,
    "sequence_len": 4096, "sample_packing": True, "pad_to_sequence_len": True, "gradient_accumulation_steps": 4, "micro_batch_size": 2, "optimizer": "paged_adamw_32bit",
    "bf16": "auto", "gradient_checkpointing": True, "flash_attention": True, "num_epochs": 4, "relora_steps": 50,
}  # fmt: skip
TABLE = [
    (AXOLOTL, "axolotl", {"method": "qlora", "base": "nf4-dq", "lora_rank": 32, "seq": 4096, "batch": 2, "accumulation": 4, "optimizer": "adamw_paged", "checkpointing": "full",
                          "attention": "flash", "padded": False, "targets": ("all-linear",)}, ("relora_steps",)),
    ({"model_name_or_path": "gpt2", "per_device_train_batch_size": 8, "fp16": True, "optim": "adamw_torch", "learning_rate": 1e-4}, "transformers",
     {"batch": 8, "precision": "fp16-autocast", "optimizer": "adamw_foreach", "checkpointing": "none", "padded": True}, ()),
    ({"per_device_train_batch_size": 2, "bf16": True, "use_peft": True, "lora_r": 64, "lora_target_modules": ["q_proj", "v_proj"], "load_in_4bit": True,
      "use_bnb_nested_quant": True, "max_length": 1024, "gradient_checkpointing": True}, "transformers",
     {"method": "qlora", "base": "nf4-dq", "lora_rank": 64, "targets": ("q_proj", "v_proj"), "seq": 1024, "checkpointing": "full"}, ()),
    ({"model_name_or_path": "meta-llama/Llama-3-8B", "stage": "sft", "do_train": True, "finetuning_type": "lora", "lora_rank": 8, "lora_target": "all", "cutoff_len": 2048,
      "per_device_train_batch_size": 1, "bf16": True}, "llamafactory", {"method": "lora", "targets": ("all-linear",), "seq": 2048, "checkpointing": "full"}, ()),
    ({"model": {"_component_": "torchtune.models.llama3_1.lora_llama3_1_8b", "lora_attn_modules": ["q_proj", "v_proj", "output_proj"], "apply_lora_to_mlp": True, "lora_rank": 8},
      "batch_size": 2, "dtype": "bf16", "enable_activation_checkpointing": True, "compile": False, "tokenizer": {"max_seq_len": 4096}, "dataset": {"packed": True},
      "optimizer": {"_component_": "torch.optim.AdamW", "fused": True}, "loss": {"_component_": "torchtune.modules.loss.LinearCrossEntropyLoss"}}, "torchtune",
     {"method": "lora", "lora_rank": 8, "batch": 2, "precision": "bf16", "checkpointing": "full", "seq": 4096, "padded": False, "loss": "fused"}, ()),
    ({"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 8, "num_machines": 1,
      "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_offload_params": True, "fsdp_activation_checkpointing": True}}, "accelerate",
     {"sharding": "fsdp", "offload": "all", "ranks": 8, "nodes": 1, "precision": "bf16-autocast", "checkpointing": "full"}, ()),
    ({"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": True}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 5e8},
      "zero_allow_untested_optimizer": True}, "deepspeed", {"sharding": "zero3", "offload": "optimizer", "precision": "mixed", "bucket_bytes": 10**9},
     ("zero_allow_untested_optimizer",)),
]  # fmt: skip


@pytest.mark.parametrize(("document", "kind", "expected", "unpriced"), TABLE, ids=[row[1] + str(i) for i, row in enumerate(TABLE)])
def test_known_keys_become_the_workload_and_unknown_ones_are_listed(document, kind, expected, unpriced):
    """Each known key has its effect; every other key that could cost memory is named."""
    assert kind_of(document) == kind
    read = read_config(document)
    assert {key: read.changes[key] for key in expected} == expected
    assert read.unpriced == unpriced


def test_a_trainer_file_and_a_deepspeed_file_make_one_workload():
    """The later file wins where both speak; what neither prices is carried into the plan."""
    workload, model = combine((read_config(AXOLOTL), read_config(TABLE[6][0])), TrainWorkload(ranks=8))
    assert (workload.sharding, workload.offload, workload.batch, model) == ("zero3", "optimizer", 2, "NousResearch/Meta-Llama-3-8B")
    assert workload.unpriced == ("axolotl key relora_steps", "deepspeed key zero_allow_untested_optimizer")


@pytest.mark.parametrize(
    "document",
    [
        {}, {"hello": 1}, {**AXOLOTL, "micro_batch_size": "many"}, {**AXOLOTL, "optimizer": "adamm"}, {**AXOLOTL, "adapter": "prefix"},
        {"zero_optimization": 3}, {"model": {"_component_": 7}}, {"distributed_type": "WHAT"}, {"finetuning_type": "lora", "quantization_bit": 3},
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_meant_is_one_sentence(document):
    """`Usage`, whatever the values are."""
    with pytest.raises(Usage) as fault:
        read_config(document)
    assert "\n" not in str(fault.value)


def test_files_are_read_with_suspicion(tmp_path):
    """Empty, broken, list-shaped and object-making YAML each have their error; anchors and JSON are read."""
    pytest.importorskip("yaml")
    for text, error in (
        ("", EmptyFile),
        ("a: [", BadHeader),
        ("- 1\n- 2\n", BadHeader),
        ("!!python/object/apply:os.system ['true']\n", BadHeader),
        ("{" * 2000, BadHeader),
    ):
        path = tmp_path / "file.yaml"
        path.write_text(text)
        with pytest.raises(error):
            read_document(str(path))
    good = tmp_path / "good.yaml"
    good.write_text("base_model: x\nmicro_batch_size: 3\n")
    assert read_document(str(good)) == {"base_model": "x", "micro_batch_size": 3}
