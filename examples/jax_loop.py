"""A JAX loop that can be stopped and gone on with: `brim run -- python examples/jax_loop.py FOLDER`. One decision over all processes of a multi-host program."""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from brim.integrations.callbacks import Loop, jax_agree

folder = pathlib.Path(sys.argv[1])
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 300
folder.mkdir(parents=True, exist_ok=True)
path = folder / "weights.npy"


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
for step in loop.steps(range(loop.start, steps)):
    weights = update(weights, jax.random.key(step))
if not loop.stopped:
    print("weights", np.asarray(weights).tobytes().hex(), flush=True)
