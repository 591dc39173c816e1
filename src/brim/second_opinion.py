"""brim's numbers beside those of the engine itself: the same workload in the engine's words, both tables, and why they part; a check, never a need.

llama-fit-params knows fewer settings than llama-server (tools/fit-params, common/arg.cpp, b11434): no shared cache for several slots, no rows of logits by slots,
no draft, no projector. brim therefore prices what that program will price, and says which settings were left out of the comparison.
"""

from brim.engines.base import Plan
from brim.facts.engine import EngineNumbers
from brim.facts.workload import LlamaWorkload
from brim.units import MIB
from brim.values import Missing, Record

GROUPS = {
    "weights": "weights", "kv_cache": "context", "kv_cache_swa": "context", "recurrent_state": "context", "compute_buffer": "compute",
}  # fmt: skip
LABELS = {"cuda": "CUDA", "rocm": "ROCm", "metal": "MTL", "xpu": "SYCL"}


class Row(Record):
    """One cell of the comparison, in bytes for brim and whole MiB for the engine. `agrees` means equal to the whole MiB that the engine prints."""

    device: str
    what: str
    brim_bytes: int
    engine_mib: int
    agrees: bool


class SecondOpinion(Record):
    """Both tables. `rows` is empty and `why` says so where the engine could not be asked; else `why` are reasons for them to part."""

    command: tuple[str, ...]
    build: "int | Missing"
    rows: tuple[Row, ...]
    why: tuple[str, ...]


def unasked(why: str) -> SecondOpinion:
    """The engine could not be asked, and why."""
    return SecondOpinion(command=(), build=Missing(reason="not_supported", detail=why), rows=(), why=(f"the engine was not asked: {why}",))


def comparable(workload: LlamaWorkload) -> tuple[LlamaWorkload, tuple[str, ...]]:
    """The workload as llama-fit-params can express it, and what that leaves out."""
    left_out = []
    if (workload.slots or 1) > 1 and workload.kv_unified:
        left_out.append(f"{workload.slots} slots on one shared cache: asked with one slot")
    if workload.outputs is not None:
        left_out.append("rows of logits for the slots only: asked with a whole micro-batch")
    if workload.draft_model or workload.spec_types:
        left_out.append("the draft")
    if workload.mmproj:
        left_out.append("the projector")
    if workload.lora:
        left_out.append("the adapters")
    slots = 1 if workload.kv_unified else workload.slots
    return workload.replace(
        program="llama-fit-params", slots=slots, kv_unified=False, outputs=None, draft_model=None, spec_types=(), rollback_rows=0, load_mtp=False, mmproj=None,
        lora=(), embeddings=False, pooling=None,
    ), tuple(left_out)  # fmt: skip


def words(workload: LlamaWorkload, model: str) -> tuple[str, ...]:
    """The workload in llama-fit-params' own words."""
    said = ["-m", model, "-c", str(workload.ctx or 0)]
    valued = (
        ("-b", workload.batch), ("-ub", workload.ubatch), ("-np", workload.slots), ("-ctk", workload.ctk), ("-ctv", workload.ctv), ("-fa", workload.flash_attn),
        ("-sm", workload.split_mode), ("-mg", workload.main_gpu),
    )  # fmt: skip
    for flag, value in valued:
        if value is not None:
            said += [flag, str(value)]
    if workload.gpu_layers is not None:
        said += ["-ngl", {-1: "auto"}.get(workload.gpu_layers, "all" if workload.gpu_layers < 0 else str(workload.gpu_layers))]
    if workload.cpu_experts:
        said += ["-ncmoe", str(workload.cpu_experts)]
    for pattern, buffer in workload.override_tensors:
        said += ["-ot", f"{pattern}={buffer}"]
    if workload.tensor_split:
        said += ["-ts", ",".join(f"{share:g}" for share in workload.tensor_split)]
    said += [flag for flag, wanted in (("-nkvo", workload.kv_offload is False), ("--no-op-offload", workload.op_offload is False)) if wanted]
    said += [flag for flag, wanted in (("--swa-full", workload.swa_full), ("-nr", workload.repack is False)) if wanted]
    return tuple(said)


def compare(plan: Plan, numbers: EngineNumbers, left_out: tuple[str, ...]) -> SecondOpinion:
    """Cell by cell, and every reason for a difference that brim knows."""
    if isinstance(numbers.rows, Missing):
        return SecondOpinion(command=numbers.command, build=numbers.build, rows=(), why=(f"the engine gave no table: {numbers.rows.detail}",))
    rows = []
    for theirs in numbers.rows:
        device = _ours(theirs.device, plan)
        for what, mib in (("weights", theirs.weights_mib), ("context", theirs.context_mib), ("compute", theirs.compute_mib)):
            ours = sum(part.bytes.likely for part in plan.parts if part.device == device and GROUPS.get(part.name) == what)
            rows.append(Row(device=device, what=what, brim_bytes=ours, engine_mib=mib, agrees=ours // MIB == mib))
    why = [f"left out on both sides: {item}" for item in left_out]
    why.append("the engine prints whole MiB, rounded down; the output buffer and what is never logged are not in its table")
    priced = plan.engine_version.removeprefix("b")
    if isinstance(numbers.build, int) and str(numbers.build) != priced:
        why.append(f"the engine is build b{numbers.build}, brim priced b{priced}")
    if any(not row.agrees for row in rows):
        why.append("a cell that differs and is explained by none of these is a defect of brim's model or of its facts: please report it with --json")
    return SecondOpinion(command=numbers.command, build=numbers.build, rows=tuple(rows), why=tuple(why))


def _ours(theirs: str, plan: Plan) -> str:
    """The plan's id of a device that the engine names: `Host` is cpu, `CUDA1` the second cuda card."""
    if theirs in ("Host", "CPU"):
        return "cpu"
    ids = sorted({part.device for part in plan.parts})
    for backend, label in LABELS.items():
        if theirs.startswith(label) and theirs[len(label) :].isdigit():
            own = [device for device in ids if device.startswith(backend + ":")]
            number = int(theirs[len(label) :])
            return own[number] if number < len(own) else theirs
    return theirs
