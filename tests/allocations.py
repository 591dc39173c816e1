"""Measured memory of llama.cpp b11434, as cases: a checkpoint, a workload, devices, and the bytes that the engine itself gave out.

Golden files, facts only. `llamacpp_allocations.json.gz`: 1070 runs of 16 public models on the CPU and on one or two CUDA devices (`--set` names in `set`), read from the engine's own
memory table. `llamacpp_reserved.json.gz`: made-up small shapes of many more architectures, reserved by libllama on the CPU with `tests/evidence/llamacpp_reserve.cpp`; further `llamacpp_reserved_*.json.gz` hold more of the same.
"""

import gzip
import json
import math
from functools import cache
from pathlib import Path

from brim.facts.device import DeviceSpec
from brim.facts.dtypes import ggml_tensor_bytes
from brim.facts.model import Checkpoint, Tensor
from brim.facts.workload import LlamaWorkload
from brim.values import Missing

GOLDEN = Path(__file__).parent / "golden"
MIB = 1 << 20
PARTS = {"weights": ("weights",), "context": ("kv_cache", "kv_cache_swa", "recurrent_state"), "compute": ("compute_buffer",)}


@cache
def _load(name):
    return json.loads(gzip.decompress((GOLDEN / name).read_bytes()))


def tensors_of(kind, name):
    """Metadata and tensors (name, dims, type) of a shape, as a file would hold them."""
    found = _load("llamacpp_allocations.json.gz")["shapes"][name] if kind == "shapes" else made_up()[name]
    return found["metadata"], found["tensors"]


def drafting():
    """(model, checkpoint, workload, rows sampled a slot, compute bytes, memory bytes) of every made-up context of next-token blocks or of EAGLE 3, DFlash and DSpark drafts, before and with the draft's sampler."""
    for name, model in _load("llamacpp_drafting.json.gz")["models"].items():
        made = _checkpoint(name, model["metadata"], model["tensors"])
        for run, compute, memory in zip(model["runs"], model["reserved"], model["memory"], strict=True):
            ctx, slots, unified, ubatch, flash, ctk, ctv, outputs, _, _, _, kind = run
            asked = LlamaWorkload(
                program="llama-server", ctx=ctx, batch=2048, ubatch=ubatch, slots=slots, kv_unified=bool(unified), ctk=ctk, ctv=ctv, flash_attn="on" if flash else "off", outputs=outputs,
            )  # fmt: skip
            yield name, made, asked, (0, 0, 1, 1, outputs // slots)[kind], compute, memory


@cache
def made_up():
    """Every made-up model by name, with the runs of its file where it has none of its own."""
    models = {}
    for path in sorted(GOLDEN.glob("llamacpp_reserved*.json.gz")):
        found = _load(path.name)
        models.update({name: {"runs": found["runs"], **model} for name, model in found["models"].items()})
    return models


@cache
def checkpoint_of(kind, name):
    """The checkpoint of a shape (`kind` is `shapes`) or of a made-up model (`models`)."""
    return _checkpoint(name, *tensors_of(kind, name))


def _checkpoint(name, metadata, listed):
    tensors, offset = [], 0
    for tensor, dims, dtype in listed:
        size = ggml_tensor_bytes(dtype, tuple(dims))
        tensors.append(Tensor(name=tensor, dims=tuple(dims), dtype=dtype, offset=offset, stored_bytes=size, elements=math.prod(dims)))
        offset += -(-size // 32) * 32
    architecture = metadata["general.architecture"]
    shape = Missing(reason="not_supported")
    return Checkpoint(form="gguf", source=name, name=name, architecture=architecture, metadata=metadata, tensors=tuple(tensors), file_bytes=offset, shape=shape)  # fmt: skip


def rows():
    """The measured runs, in order."""
    return _load("llamacpp_allocations.json.gz")["rows"]


def devices_of(row):
    """The accelerators of a run: MiB in all, compute capability, MiB in use."""
    if row["gpus"] == "none":
        return ()
    specs = (map(int, card.split(":")) for card in row["gpus"].split(","))
    return tuple(
        DeviceSpec(id=f"cuda:{index}", backend="cuda", total_bytes=total * MIB, free_bytes=(total - used) * MIB, compute_capability=capability)
        for index, (total, capability, used) in enumerate(specs)
    )


def workload_of(row):
    """The settings of a run."""
    return LlamaWorkload(
        program="llama-fit-params", ctx=row["ctx"], batch=row["batch"], ubatch=row["ubatch"], slots=row["parallel"], kv_unified=row.get("kv_unified", False), ctk=row["ctk"], ctv=row["ctv"],
        flash_attn=row["fa"], gpu_layers=row.get("ngl"), cpu_experts=row.get("ncmoe"), swa_full=row.get("swa_full", False), kv_offload=not row.get("no_kv_offload", False),
        op_offload=not row.get("no_op_offload", False), outputs=row.get("outputs"), mmap=False,
    )  # fmt: skip


def measured(row):
    """MiB by device and kind; pinned host buffers count for the host."""
    out = {}
    for name, figures in row["measured"].items():
        device = "cpu" if name in ("CPU", "CUDA_Host") else f"cuda:{name[4:]}"
        held = out.setdefault(device, dict.fromkeys(PARTS, 0.0))
        for kind, figure in zip(PARTS, figures, strict=True):
            held[kind] += figure
    return out


def priced(plan, device, kind, edge="likely"):
    """MiB of a plan on a device."""
    return sum(getattr(part.bytes, edge) for part in plan.parts if part.device == device and part.name in PARTS[kind]) / MIB


def reserved():
    """(model, checkpoint, workload, compute bytes, memory bytes) of every made-up run that the engine could reserve."""
    for name, model in made_up().items():
        made = checkpoint_of("models", name)
        for run, compute, memory in zip(model["runs"], model["reserved"], model["memory"], strict=True):
            if compute is not None:
                ctx, slots, unified, ubatch, flash, ctk, ctv, outputs, embeddings, swa_full, rollback = (*run, 0, 0)[:11]
                yield (
                    name,
                    made,
                    LlamaWorkload(
                        program="llama-fit-params", ctx=ctx, batch=2048, ubatch=ubatch, slots=slots, kv_unified=bool(unified), ctk=ctk, ctv=ctv, flash_attn="on" if flash else "off",
                        outputs=outputs or None, embeddings=bool(embeddings), swa_full=bool(swa_full), rollback_rows=rollback or None,
                    ),
                    compute,
                    memory,
                )  # fmt: skip
