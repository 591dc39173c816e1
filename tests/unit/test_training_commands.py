"""Training command lines: what each launcher's words become; other programs' commands are left alone."""

import json

import pytest

from brim.engines.train.command import is_training, pairs
from brim.engines.train.words import read_config
from brim.errors import Usage
from brim.facts.training import TrainWorkload
from brim.training import read_command

TRAINER = "--model_name_or_path meta/llama --per_device_train_batch_size 4 --max_length 1024 --bf16 --gradient_checkpointing true --use_peft --lora_r 8 --lora_target_modules q_proj v_proj"


@pytest.fixture
def files(tmp_path):
    """A DeepSpeed file, an accelerate file and an Axolotl file, as JSON."""
    written = {}
    for name, document in (
        ("ds", {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}),
        (
            "acc",
            {
                "compute_environment": "LOCAL_MACHINE",
                "distributed_type": "FSDP",
                "num_processes": 4,
                "mixed_precision": "bf16",
                "fsdp_config": {"fsdp_version": 2},
            },
        ),
        (
            "axo",
            {
                "base_model": "org/model",
                "adapter": "qlora",
                "load_in_4bit": True,
                "sequence_len": 2048,
                "micro_batch_size": 2,
                "bf16": True,
                "gradient_checkpointing": True,
            },
        ),
        ("tune", {"model": {"_component_": "torchtune.models.llama3_2.llama3_2_3b"}, "batch_size": 2, "dtype": "bf16", "tokenizer": {"max_seq_len": 512}}),
    ):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document))
        written[name] = str(path)
    return written


TABLE = [
    ("torchrun --nproc_per_node 8 train.py {t} --deepspeed {ds}", {"sharding": "zero3", "ranks": 8, "batch": 4, "method": "lora", "precision": "mixed"}, "meta/llama"),
    ("accelerate launch --config_file {acc} train.py {t}", {"sharding": "fsdp2", "ranks": 4, "batch": 4, "seq": 1024, "targets": ("q_proj", "v_proj")}, "meta/llama"),
    ("accelerate launch --num_processes 2 --mixed_precision bf16 --use_deepspeed --zero_stage 2 --offload_optimizer_device cpu train.py {t}",
     {"sharding": "zero2", "ranks": 2, "offload": "optimizer", "checkpointing": "full"}, "meta/llama"),
    ("accelerate launch -m axolotl.cli.train {axo}", {"method": "qlora", "batch": 2, "seq": 2048, "sharding": "none"}, "org/model"),
    ("deepspeed --num_gpus=2 train.py {t} --deepspeed {ds}", {"sharding": "zero3", "ranks": 2}, "meta/llama"),
    ("axolotl train {axo}", {"method": "qlora", "seq": 2048}, "org/model"),
    ("tune run --nproc_per_node 2 full_finetune_distributed --config {tune} batch_size=8 tokenizer.max_seq_len=4096", {"batch": 8, "seq": 4096, "sharding": "fsdp2", "ranks": 2}, "llama3_2_3b"),
    ("python train.py {t}", {"batch": 4, "lora_rank": 8, "padded": True}, "meta/llama"),
    ("/usr/bin/python3 -u train.py --per_device_train_batch_size=2 --optim adafactor", {"batch": 2, "optimizer": "adafactor", "precision": "fp32"}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected", "model"), TABLE, ids=[row[0].split()[0] + str(i) for i, row in enumerate(TABLE)])
def test_a_training_command_becomes_its_workload(files, line, expected, model):
    """Launcher words, files and script arguments are put together; the file named last wins."""
    found = read_command(line.format(t=TRAINER, **files).split())
    assert found is not None
    workload, named = found
    assert {key: getattr(workload, key) for key in expected} == expected
    assert named == model


@pytest.mark.parametrize("line", ["python serve.py --port 80", "llama-server -m x.gguf", "accelerate env", "tune ls", "python", "make test", "torchrun"])
def test_other_commands_are_left_alone(line):
    """Not a training command, or one that names nothing that brim knows."""
    assert read_command(line.split()) is None


def test_pairs_of_words():
    """Values, equals signs, several values, bare flags and negative numbers."""
    assert pairs(["--a", "1", "--b=2", "--c", "--d", "x", "y", "--e", "-3", "loose"]) == {"a": "1", "b": "2", "c": True, "d": ["x", "y"], "e": ["-3", "loose"]}
    assert is_training(["torchrun", "x.py"])
    assert not is_training([])


def test_a_workload_is_never_shared_over_one_card(files):
    """A DeepSpeed file with one process is one rank without sharding."""
    found = read_command(f"python train.py {TRAINER} --deepspeed {files['ds']}".split())
    assert found is not None
    assert (found[0].sharding, found[0].ranks) == ("none", 1)
    assert isinstance(found[0], TrainWorkload)


@pytest.mark.parametrize("word", ["--nnodes", "--num_machines", "--num_processes", "--nproc_per_node"])
@pytest.mark.parametrize("said", ["x", "0", "-1", "nan", "1e999", "²", "1.5", "\x1b[2J", "9" * 5000])
def test_a_count_of_processes_that_is_none(word: str, said: str) -> None:
    """One sentence with the flag (a word is fine for --nproc_per_node: gpu, auto)."""
    line = ["torchrun", word, said, "train.py", *TRAINER.split()]
    if word == "--nproc_per_node" and not (said == "0" or said.startswith("9")):
        assert read_command(line) is not None
        return
    with pytest.raises(Usage, match=f"{word} .* is no count"):
        read_command(line)


def test_elastic_machines_count_at_their_most() -> None:
    """`--nnodes 1:4` may grow to four."""
    found = read_command(["torchrun", "--nnodes", "1:4", "--nproc_per_node", "2", "train.py", *TRAINER.split()])
    assert found is not None
    assert (found[0].ranks, found[0].nodes) == (8, 4)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "²", [], "9" * 5000])
def test_a_number_of_a_file_that_is_none(value: object) -> None:
    """The key and what it says, never a crash."""
    with pytest.raises(Usage, match="per_device_train_batch_size"):
        read_config({"per_device_train_batch_size": value})
