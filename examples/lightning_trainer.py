"""A tiny Lightning module that is stopped and gone on with by the ready callback: `brim run -- python examples/lightning_trainer.py --folder DIR`.

Lightning starts its DataLoader anew when it resumes in the middle of an epoch: every batch here is the same, so that the weights can be compared (a stateful loader does that for real data).
"""

import argparse
import hashlib
import pathlib
import time

import torch

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

from brim import client
from brim.integrations.callbacks import LightningCallback

parser = argparse.ArgumentParser()
parser.add_argument("--folder", type=pathlib.Path, required=True)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep a step (to have time to stop it)")
asked = parser.parse_args()


class Tiny(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def on_train_start(self):
        print("first step", flush=True)

    def training_step(self, batch, _number):
        time.sleep(asked.pace)
        return (self.layer(batch) - batch.sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


torch.manual_seed(0)
loader = torch.utils.data.DataLoader([torch.full((8,), 0.3) for _ in range(400)], batch_size=4)
model = Tiny()
trainer = pl.Trainer(
    max_steps=asked.steps,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    accelerator="cpu",
    callbacks=[LightningCallback(str(asked.folder))],
)
trainer.fit(model, loader, ckpt_path=client.resume_from() or None)
if trainer.global_step >= asked.steps:
    weights = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()
    (asked.folder / "weights.sha256").write_text(weights + "\n")
    print("weights", weights, flush=True)
