"""A small training loop for `brim run`, on the CPU: GPT-2 or a Llama of SmolLM2's shape with random weights; prints its own peak as JSON at the end.

`python tests/evidence/train_run.py --config FILE --batch 4 --seq 256 --steps 4 --method full --precision fp32`. It needs torch and transformers.
"""

import argparse
import json
import resource
import warnings


def rss():
    with open("/proc/self/status") as file:
        return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file if line.startswith(("VmRSS", "VmHWM", "RssAnon"))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--checkpointing", default="none")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    import torch
    import transformers

    torch.manual_seed(7)
    with open(asked.config) as file:
        raw = json.load(file)
    start = rss()
    config = transformers.AutoConfig.for_model(raw.pop("model_type"), **raw)
    config.use_cache = False
    dtype = torch.bfloat16 if asked.precision == "bf16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    model.train()
    if asked.checkpointing == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=False)
    ids = torch.randint(0, config.vocab_size, (asked.batch, asked.seq))
    losses = []
    for _ in range(asked.steps):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=asked.precision == "bf16-autocast"):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(round(float(loss), 4))
    print(
        json.dumps({"libraries_bytes": start["VmRSS"], "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "losses": losses}),
        flush=True,
    )


if __name__ == "__main__":
    main()
