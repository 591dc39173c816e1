"""A JAX loop that can be stopped and gone on with: `brim run -- python examples/jax_loop.py --folder DIR`. One decision over all processes of a multi-host program."""

import argparse
import hashlib
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np

from brim.integrations.callbacks import Loop, jax_agree

parser = argparse.ArgumentParser()
parser.add_argument("--folder", type=pathlib.Path, required=True)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep a step (to have time to stop it)")
asked = parser.parse_args()
asked.folder.mkdir(parents=True, exist_ok=True)
path = asked.folder / "weights.npy"


@jax.jit
def update(weights, key):
    x = jax.random.normal(key, (16, 8))
    return weights - 0.01 * jax.grad(lambda w: ((x @ w - jnp.sin(x.sum(1))) ** 2).mean())(weights)


def save(_step):
    with path.with_suffix(".part").open("wb") as file:
        np.save(file, np.asarray(weights))
    path.with_suffix(".part").replace(path)
    return path


loop = Loop(save=save, path=path, agree=jax_agree)
weights = jnp.asarray(np.load(loop.resume_from)) if loop.resume_from else jnp.zeros(8)
for step in loop.steps(range(loop.start, asked.steps)):
    weights = update(weights, jax.random.key(step))
    if step == loop.start:
        print("first step", step, flush=True)
    time.sleep(asked.pace)
if not loop.stopped:
    digest = hashlib.sha256(np.asarray(weights).tobytes()).hexdigest()
    (asked.folder / "weights.sha256").write_text(digest + "\n")
    print("weights", digest, flush=True)
