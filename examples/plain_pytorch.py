"""A tiny PyTorch model on the CPU that can be stopped at any step and gone on with, bit for bit.

    brim run --memory-budget 2GiB -- python examples/plain_pytorch.py --folder /tmp/tiny --steps 400
    # Ctrl-C, or the governor stops it; then
    brim resume RUN

At the end it prints a checksum of its weights: the same for one uninterrupted run and for one that was stopped and resumed. Under torchrun every rank takes part.
"""

import argparse
import hashlib
import os
import pathlib
import time

import torch

from brim.integrations.callbacks import Loop


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep a step (to have time to stop it)")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(7)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    if ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    path = asked.folder / "checkpoint.pt"

    def save(step):
        if rank == 0:
            torch.save({"step": step, "model": model.state_dict(), "optimiser": optimiser.state_dict()}, path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
        if ranks > 1:
            torch.distributed.barrier()
        return path

    loop = Loop(save=save, path=path)
    if loop.resume_from:
        state = torch.load(loop.resume_from, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        assert state["step"] + 1 == loop.start
    for step in loop.steps(range(loop.start, asked.steps)):
        generator = torch.Generator().manual_seed(step * ranks + rank)  # the data of a step depends on its number alone
        batch = torch.randn(16, 32, generator=generator)
        loss = (model(batch) - batch.sum(1, keepdim=True).sin()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step == loop.start:
            print("first step", step, flush=True)
        time.sleep(asked.pace)
    if not loop.stopped and rank == 0:
        weights = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()
        (asked.folder / "weights.sha256").write_text(weights + "\n")
        print("weights", weights, flush=True)
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
