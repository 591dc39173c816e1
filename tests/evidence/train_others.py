"""brim beside accelerate's and DeepSpeed's estimators and PyTorch itself, on the same models: `python tests/evidence/train_others.py` (needs torch, transformers, accelerate,
peft; deepspeed where it can be imported, else its published formula) writes tests/golden/train_others.jsonl, which `tests/evidence/train.py` tables.

accelerate: `accelerate.utils.calculate_maximum_sizes` and `estimate_training_usage` as its `estimate-memory` command prints them (Adam). DeepSpeed: the model-states functions of
`runtime/zero`, one node of 8. The truth is MemTracker's peak over a second step in fake mode: bf16, micro-batch 1, 2048 tokens, full checkpointing.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent.parent / "src"), str(HERE)]

import train_oracle as oracle  # noqa: E402
from train_models import MODELS  # noqa: E402

CHOSEN = ("llama-3.2-1b", "gemma-2b", "gemma2-2b", "phi-1.5", "qwen3-4b")


def accelerate_says(config):
    """Bytes that `accelerate estimate-memory` prints for training with Adam, by dtype."""
    import torch
    from accelerate.utils import calculate_maximum_sizes

    with torch.device("meta"):
        model = oracle.build(config, torch.float32, "eager")
    total, largest = calculate_maximum_sizes(model)
    return {
        "float32": total * 4,
        "bfloat16": total // 2 * 4,
        "inference_bf16": total // 2,
        "largest_layer": largest[0] if isinstance(largest, tuple) else largest,
    }


def deepspeed_says(parameters, largest):
    """Bytes for one card of 8 by its estimators; (ZeRO-2, ZeRO-3), and where the function came from."""
    try:
        from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as three
        from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as two

        return {
            "zero2": two(parameters, 8, 1, cpu_offload=False)[1],
            "zero3": three(parameters, largest, 8, 1, cpu_offload=False, cpu_offload_params=False, zero_init=True)[1],
            "by": "deepspeed",
        }
    except ImportError:
        from brim.engines.train.parallel import deepspeed_estimate

        return {"zero2": deepspeed_estimate(parameters, largest, 2, 8), "zero3": deepspeed_estimate(parameters, largest, 3, 8), "by": "its published formula"}


def main():
    """One JSON line a model and method."""
    oracle.hooks_on_frozen()
    path = HERE.parent / "golden" / "train_others.jsonl"
    done = {json.loads(line)["model"] + json.loads(line)["method"] for line in path.read_text().splitlines()} if path.exists() else set()
    out = open(path, "a")  # noqa: SIM115 - rows are added one by one, since each takes minutes
    for name in CHOSEN:
        config = dict(MODELS[name])
        says = accelerate_says(config)
        for method in ("full", "lora"):
            if name + method in done:
                continue
            case = {
                "family": name,
                "config": config,
                **oracle.BASE,
                "method": method,
                "rank": 16 if method == "lora" else 0,
                "checkpointing": "full",
                "batch": 1,
                "seq": 2048,
                "mask": "none",
            }
            if config["model_type"] in oracle.EAGER_ONLY:
                case |= {"attention": "eager", "mask": "made"}
            row = oracle.measure(case)
            parameters = row["parameters"] // 2
            line = {"model": name, "method": method, "attention": case["attention"], "parameters": parameters, "torch_peak": row["peak_step"], "accelerate": says,
                    "deepspeed": deepspeed_says(parameters, says["largest_layer"] // 4)}  # fmt: skip
            out.write(json.dumps(line) + "\n")
            out.flush()
            print(name, method, row["peak_step"] / 1e9, file=sys.stderr)


if __name__ == "__main__":
    main()
