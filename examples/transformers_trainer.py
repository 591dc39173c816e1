"""A tiny Llama under transformers.Trainer that is stopped and gone on with by the ready callback: `brim run -- python examples/transformers_trainer.py --folder DIR`."""

import argparse
import hashlib
import pathlib
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from brim import client
from brim.integrations.callbacks import TransformersCallback

parser = argparse.ArgumentParser()
parser.add_argument("--folder", type=pathlib.Path, required=True)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep a step (to have time to stop it)")
asked = parser.parse_args()


class Pace(TrainerCallback):
    def on_train_begin(self, *_args, **_more):
        print("first step", flush=True)

    def on_step_begin(self, *_args, **_more):
        time.sleep(asked.pace)


torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
model = LlamaForCausalLM(config)
texts = [torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(number)) for number in range(400)]
arguments = TrainingArguments(
    output_dir=str(asked.folder), max_steps=asked.steps, per_device_train_batch_size=4, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True
)
trainer = Trainer(
    model=model, args=arguments, train_dataset=[{"input_ids": text, "labels": text} for text in texts], callbacks=[TransformersCallback(), Pace()]
)
trainer.train(resume_from_checkpoint=client.resume_from() or None)
if trainer.state.global_step >= asked.steps:
    weights = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()
    (asked.folder / "weights.sha256").write_text(weights + "\n")
    print("weights", weights, flush=True)
