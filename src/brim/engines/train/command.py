"""Reads the command that starts a training run: torchrun, accelerate launch, deepspeed, axolotl train, llamafactory-cli train, tune run, or a script with trainer arguments.

Words in; the files it names, what the launcher itself says, and the script's arguments as a document out. Sources: torch 2.13 `distributed/run.py`, accelerate 1.15
`commands/launch.py`, DeepSpeed 0.17 `launcher/runner.py`, Axolotl 0.12 `cli/main.py`, LLaMA-Factory 0.9 `cli.py`, torchtune 0.6 `_cli/run.py`.
"""

from brim.errors import Usage
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Program → whether its words are the script's from the start. A bare python counts where it hands on trainer arguments.
PROGRAMS = ("torchrun", "accelerate", "deepspeed", "axolotl", "llamafactory-cli", "tune", "trl")
_SCRIPT_WORDS = ("--per_device_train_batch_size", "--model_name_or_path", "--base_model", "--deepspeed", "--gradient_checkpointing", "--micro_batch_size")
_LAUNCH_VALUES = frozenset(
    [
        "--nproc_per_node",
        "--nproc-per-node",
        "--nnodes",
        "--node_rank",
        "--node-rank",
        "--master_addr",
        "--master-addr",
        "--master_port",
        "--master-port",
        "--rdzv_backend",
        "--rdzv-backend",
        "--rdzv_endpoint",
        "--rdzv-endpoint",
        "--rdzv_id",
        "--rdzv-id",
        "--max_restarts",
        "--max-restarts",
        "--num_gpus",
        "--num_nodes",
        "--include",
        "--exclude",
        "--hostfile",
        "-H",
        "-i",
        "-e",
        "--config_file",
        "--num_processes",
        "--num_machines",
        "--mixed_precision",
        "--machine_rank",
        "--main_process_ip",
        "--main_process_port",
        "--zero_stage",
        "--offload_optimizer_device",
        "--offload_param_device",
        "--fsdp_sharding_strategy",
        "--fsdp_version",
        "--fsdp_offload_params",
        "--fsdp_auto_wrap_policy",
        "--fsdp_transformer_layer_cls_to_wrap",
        "--gradient_accumulation_steps",
        "--fsdp_backward_prefetch",
        "--fsdp_state_dict_type",
        "--dynamo_backend",
        "--gpu_ids",
        "--num_cpu_threads_per_process",
        "--deepspeed_config_file",
        "--fsdp_activation_checkpointing",
    ]
)


class Launch(Record):
    """What a command says: `files` to read, in order, what the launcher adds (`document`, in accelerate's words), and the script's own arguments."""

    program: str
    files: tuple[str, ...]
    document: "dict[str, Any]"
    arguments: "dict[str, Any]"


def is_training(command: "Sequence[str]") -> bool:
    """Whether this is a training command: by its program, or a script that hands on trainer arguments."""
    if not command:
        return False
    program = command[0].rsplit("/", 1)[-1]
    if program in PROGRAMS:
        return program not in ("accelerate", "tune", "axolotl", "llamafactory-cli", "trl") or (
            len(command) > 1 and command[1] in ("launch", "run", "train", "sft", "dpo")
        )
    return program.startswith("python") and any(word.split("=", 1)[0] in _SCRIPT_WORDS for word in command)


def read(command: "Sequence[str]") -> Launch:
    """The parts of a training command. `Usage` where a launcher's value is missing."""
    program = command[0].rsplit("/", 1)[-1]
    words = list(command[1:])
    if program in ("axolotl", "llamafactory-cli"):
        return Launch(
            program=program, files=tuple(word for word in words[1:] if word.endswith((".yaml", ".yml", ".json"))), document={}, arguments=pairs(words[1:])
        )
    if program == "tune":
        return _tune(words[1:])
    if program == "trl":
        return _script(program, {}, [], ["script", *words[1:]])
    if program == "accelerate":
        words = words[1:]
    launch: dict[str, Any] = {}
    while program in PROGRAMS and words and words[0].startswith("-"):
        word, equals, value = words.pop(0).partition("=")
        if word in ("-m", "--module"):
            break
        if not equals and word in _LAUNCH_VALUES:
            if not words:
                raise Usage(f"{program} {word}: its value is missing")
            value = words.pop(0)
        launch[word.lstrip("-").replace("-", "_")] = value or True
    if program.startswith("python") and words[:1] == ["-m"]:
        words = words[1:]
    return _script(program, *_launched(program, launch), words)


def _launched(program: str, launch: "dict[str, Any]") -> "tuple[dict[str, Any], list[str]]":
    """The launcher's words as an accelerate document, and the files that it names."""
    files = [str(launch.pop(name)) for name in ("config_file", "deepspeed_config_file") if name in launch]
    document: dict[str, Any] = {}
    nodes = next((_count(name, launch[name]) for name in ("nnodes", "num_machines", "num_nodes") if name in launch), 1)
    each = launch.get("nproc_per_node", launch.get("num_gpus"))
    if each is not None and str(each).isdecimal():
        document |= {"num_processes": _count("nproc_per_node", each) * nodes, "num_machines": nodes}
    elif "num_processes" in launch:
        document |= {"num_processes": _count("num_processes", launch["num_processes"]), "num_machines": nodes}
    if "mixed_precision" in launch:
        document["mixed_precision"] = launch["mixed_precision"]
    if launch.get("use_deepspeed"):
        keys = ("zero_stage", "offload_optimizer_device", "offload_param_device", "gradient_accumulation_steps")
        document |= {"distributed_type": "DEEPSPEED", "deepspeed_config": {key: launch[key] for key in keys if key in launch}}
    elif launch.get("use_fsdp"):
        document |= {"distributed_type": "FSDP", "fsdp_config": {key: value for key, value in launch.items() if key.startswith("fsdp_")}}
    elif (launch.get("multi_gpu") or program in ("torchrun", "deepspeed")) and document.get("num_processes", 1) > 1:
        document["distributed_type"] = "MULTI_GPU"
    if document:
        document.setdefault("compute_environment", "LOCAL_MACHINE")
    return document, files


def _count(name: str, said: object) -> int:
    """How many processes or machines; of `1:4` (elastic) the most. `Usage` where that is no count."""
    text = str(said).rpartition(":")[2]
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or not int(text):
        raise Usage(f"--{name} {str(said)[:40]!r} is no count")
    return int(text)


def _script(program: str, document: "dict[str, Any]", files: "list[str]", words: "list[str]") -> Launch:
    """The script and its arguments; a configuration file may stand alone behind it."""
    rest = words[1:]
    named = [word for word in rest if word.endswith((".yaml", ".yml")) or (word.endswith(".json") and not rest[max(0, rest.index(word) - 1)].startswith("-"))]
    arguments = pairs(rest)
    for key in ("config", "deepspeed", "deepspeed_config"):
        value = arguments.get(key)
        if isinstance(value, str) and value.endswith((".json", ".yaml", ".yml")):
            named = [word for word in named if word != value] + [value]
            del arguments[key]
    return Launch(program=program, files=(*named, *files), document=document, arguments=arguments)


def _tune(words: "list[str]") -> Launch:
    """`tune run [--nproc_per_node N] RECIPE --config FILE KEY=VALUE …`; dotted keys open inner mappings."""
    document: dict[str, Any] = {}
    files: list[str] = []
    arguments: dict[str, Any] = {}
    words = list(words)
    while words:
        word, equals, value = words.pop(0).partition("=")
        if word.startswith("--"):
            value = value if equals else (words.pop(0) if words and not words[0].startswith("--") else "")
            if word in ("--nproc_per_node", "--nproc-per-node") and value.isdecimal() and len(value) < 12 and int(value) > 1:
                document = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "num_processes": int(value), "fsdp_config": {"fsdp_version": 2}}
            elif word == "--config":
                files.append(value)
        elif equals:
            inner = arguments
            *path, last = word.split(".")
            for step in path:
                inner = inner.setdefault(step, {})
                if not isinstance(inner, dict):
                    raise Usage(f"tune run {word}: {step} is a value and no mapping")
            inner[last] = value
    return Launch(program="tune", files=tuple(files), document=document, arguments=arguments)


def pairs(words: "Sequence[str]") -> "dict[str, Any]":
    """`--key value…`, `--key=value` and bare `--key` as a mapping; several values make a list."""
    out: dict[str, Any] = {}
    key = ""
    for word in words:
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            key = key.replace("-", "_")
            out[key] = value if equals else True
        elif key and word.startswith("-") and not word[1:2].isdigit():
            key = ""
        elif key:
            held = out[key]
            out[key] = word if held is True else [*(held if isinstance(held, list) else [held]), word]
    return out
