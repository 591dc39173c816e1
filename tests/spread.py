"""Loads of llama.cpp b11434 with `--split-mode tensor`, as cases: a model, shares, and the bytes that the engine gave each device (`tests/evidence/llamacpp_shares.py`)."""

import gzip
import json

from brim.engines.llama_cpp import price
from brim.facts.device import DeviceSpec
from brim.facts.dtypes import ggml_tensor_bytes
from brim.facts.workload import LlamaWorkload
from tests.allocations import GOLDEN, PARTS, checkpoint_of

FOUND = json.loads(gzip.decompress((GOLDEN / "llamacpp_shares.json.gz").read_bytes()))
UNREAD_CACHE = ("llama-embed",)  # its graph never reads its cache, and the oracle counts caches by what the graph reads


def _asked(row):
    ctx, slots, unified, ubatch, flash, ctk, ctv, outputs, _ = row["run"]
    return LlamaWorkload(
        program="llama-fit-params", ctx=ctx, batch=2048, ubatch=ubatch, slots=slots, kv_unified=bool(unified), ctk=ctk, ctv=ctv, flash_attn="on" if flash else "off", outputs=outputs or None,
        split_mode="tensor", tensor_split=tuple(map(float, row["shares"])), mmap=False,
    )  # fmt: skip


def plan_of(row):
    """The plan on CPU devices, which the oracle took for cards."""
    made = checkpoint_of("models", row["model"])
    kinds = {name: kind for name, _, kind in kinded([(t.name, t.dims, t.dtype) for t in made.tensors], row["kind"])}
    tensors = tuple(t.replace(dtype=kinds[t.name], stored_bytes=ggml_tensor_bytes(kinds[t.name], t.dims)) for t in made.tensors)
    cards = tuple(DeviceSpec(id=f"cpu:{index}", backend="vulkan", total_bytes=1 << 40, free_bytes=1 << 40) for index in range(len(row["shares"])))
    return price(made.replace(tensors=tensors), _asked(row), cards), cards


def held(row, plan, cards):
    """Weights, caches and compute buffer of each card, and the compute buffer of the host."""
    each = [[sum(part.bytes.likely for part in plan.parts if part.device == card.id and part.name in names) for names in PARTS.values()] for card in cards]
    if row["model"] in UNREAD_CACHE:
        each = [[weights, 0, compute] for weights, _, compute in each]
    return each, sum(part.bytes.likely for part in plan.parts if part.device == "cpu" and part.name == "compute_buffer")


def kinded(tensors, kind):
    """The tensors with matrices of another type where their rows allow it."""
    whole = {"F32": 1, "Q8_0": 32, "Q4_K": 256}[kind]

    def fits(name, dims):
        return len(dims) > 1 and dims[0] % whole == 0 and not name.endswith(".bias") and "norm" not in name and "ssm_conv" not in name

    return [(name, dims, kind if fits(name, dims) else was) for name, dims, was in tensors]
