"""brim's numbers beside those of the engine itself: the same workload in the engine's words, both tables, and why they part; a check, never a need.

llama-fit-params knows fewer settings than llama-server (tools/fit-params, common/arg.cpp, b11434): no shared cache for several slots, no rows of logits by slots,
no draft, no projector; and its table leaves out weights that the CPU lays out anew (common/fit.cpp counts host buffer types only). A bare libllama is asked with all of these but
draft, projector and adapters. Neither maps the file. brim therefore prices what the engine will price, and says which settings were left out of the comparison.
"""

from brim.engines.base import Plan
from brim.facts.device import Device
from brim.facts.engine import EngineNumbers
from brim.facts.workload import LlamaWorkload
from brim.units import MIB
from brim.values import Missing, Record

GROUPS = {
    "weights": "weights", "kv_cache": "context", "kv_cache_swa": "context", "recurrent_state": "context", "compute_buffer": "compute",
}  # fmt: skip
# about when the context's parameters of a header stood in llama.cpp: the build that a library with them is priced as
BUILDS = {"b11739": 11549, "llama-cpp-python 0.3.20": 8640, "llama-cpp-python 0.3.26": 9500, "llama-cpp-python 0.3.30": 9880}
LABELS = {"cuda": "CUDA", "rocm": "ROCm", "metal": "MTL", "xpu": "SYCL"}


class Row(Record):
    """One cell of the comparison, in bytes for brim and whole MiB for the engine. `agrees` means equal to the whole MiB that the engine prints, or to the byte where it tells bytes."""

    device: str
    what: str
    brim_bytes: int
    engine_mib: int
    agrees: bool
    engine_bytes: int | None = None


class SecondOpinion(Record):
    """Both tables. `rows` is empty and `why` says so where the engine could not be asked; else `why` are reasons for them to part."""

    command: tuple[str, ...]
    build: "int | Missing"
    rows: tuple[Row, ...]
    why: tuple[str, ...]


def unasked(why: str) -> SecondOpinion:
    """The engine could not be asked, and why."""
    return SecondOpinion(command=(), build=Missing(reason="not_supported", detail=why), rows=(), why=(f"the engine was not asked: {why}",))


def comparable(workload: LlamaWorkload, *, bare: bool = False) -> tuple[LlamaWorkload, tuple[str, ...]]:
    """The workload as llama-fit-params (`bare`: a libllama) can express it, and what that leaves out."""
    left_out = [
        what
        for what, there in (("the draft", workload.draft_model or workload.spec_types), ("the projector", workload.mmproj), ("the adapters", workload.lora))
        if there
    ]
    alone = workload.replace(draft_model=None, spec_types=(), mmproj=None, lora=(), mmap=False)
    if bare:
        return alone, tuple(left_out)
    if (workload.slots or 1) > 1 and workload.kv_unified:
        left_out.append(f"{workload.slots} slots on one shared cache: asked with one slot")
    if workload.outputs is not None:
        left_out.append("rows of logits for the slots only: asked with a whole micro-batch")
    if workload.repack is not False:
        left_out.append("weights that the CPU lays out anew, which its table does not count: asked with -nr")
    slots = 1 if workload.kv_unified else workload.slots
    return alone.replace(
        program="llama-fit-params", slots=slots, kv_unified=False, outputs=None, rollback_rows=0, load_mtp=False, embeddings=False, pooling=None, repack=False,
    ), tuple(left_out)  # fmt: skip


def experts(workload: LlamaWorkload) -> tuple[tuple[str, str], ...]:
    """`--n-cpu-moe` as the overrides that it stands for (common/common.h `llm_ffn_exps_block_regex`, b11434)."""
    count = workload.cpu_experts or 0
    if count >= 1 << 20:
        return ((r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", "CPU"),)
    return tuple((rf"blk\.{il}\.ffn_(up|down|gate|gate_up)_(ch|)exps", "CPU") for il in range(count))


def as_it_was_asked(workload: LlamaWorkload, numbers: EngineNumbers, newest: int) -> "tuple[LlamaWorkload, int, tuple[str, ...]]":
    """(the workload that the engine could be asked, the build to price it as, what else was left out): older structs have fewer fields, and stand for the builds of their time."""
    left_out = {
        "n_outputs_max": "rows of logits for the slots only (this build knows no n_outputs_max)",
        "n_rs_seq": "rows to roll back (this build knows no n_rs_seq)",
    }
    if "n_outputs_max" in numbers.lacking:
        workload = workload.replace(outputs=None)
    if "n_rs_seq" in numbers.lacking:
        workload = workload.replace(rollback_rows=0)
    build = numbers.build if isinstance(numbers.build, int) else BUILDS.get(numbers.layouts[-1], newest) if numbers.layouts else newest
    return workload, build, tuple(left_out.get(name, f"{name} (this build knows none)") for name in numbers.lacking)


def as_it_saw(devices: "tuple[Device, ...]", numbers: EngineNumbers) -> "tuple[tuple[Device, ...], tuple[str, ...] | None]":
    """The devices that the engine used of these, and the instructions that its build uses for weights on the host, by the buffers that it told (None: not known)."""
    alone = not isinstance(numbers.rows, Missing) and all(row.device in ("Host", "CPU") for row in numbers.rows)
    used = tuple(device for device in devices if device.backend == "cpu" or not alone)
    known = next((device.instructions for device in devices if device.backend == "cpu"), None)
    names = {name for name, _ in numbers.buffers}
    if not names or known is None or isinstance(known, Missing):
        return used, None
    if "AMX" in names:
        return used, known
    return used, tuple(word for word in known if word != "amx") if "CPU_REPACK" in names else ()


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


def notes(architecture: str, asked: "tuple[Device, ...]", seen: "tuple[Device, ...]") -> tuple[str, ...]:
    """What else makes the two part: devices that are not here, and architectures whose simulated load counts less than a real one takes."""
    from brim.engines.llama_cpp.hparams import LONE

    said = []
    here = {device.id for device in seen}
    absent = [device.id for device in asked if device.budget.hypothetical or device.id not in here]
    if absent:
        said.append(
            f"the engine was asked about what it sees on this machine ({', '.join(sorted(here)) or 'nothing'}), not about {', '.join(f'the {name} that was given' for name in absent)}; so was brim, for this table"
        )
    if architecture in LONE:
        said.append(f"{architecture} with several slots: a simulated load tells the first of two reservations, a real one takes the second, which brim prices")
    return tuple(said)


def compare(plan: Plan, numbers: EngineNumbers, left_out: tuple[str, ...], known: tuple[str, ...] = ()) -> SecondOpinion:
    """Cell by cell, and every reason for a difference that brim knows; `known` are those of the model and the devices."""
    if isinstance(numbers.rows, Missing):
        return SecondOpinion(command=numbers.command, build=numbers.build, rows=(), why=(f"the engine gave no table: {numbers.rows.detail}",))
    rows = []
    for theirs in numbers.rows:
        device = _ours(theirs.device, plan)
        for i, (what, mib) in enumerate((("weights", theirs.weights_mib), ("context", theirs.context_mib), ("compute", theirs.compute_mib))):
            ours = sum(part.bytes.likely for part in plan.parts if part.device == device and GROUPS.get(part.name) == what)
            exact = None if theirs.exact is None else theirs.exact[i]
            rows.append(
                Row(
                    device=device, what=what, brim_bytes=ours, engine_mib=mib, agrees=ours // MIB == mib if exact is None else ours == exact, engine_bytes=exact
                )
            )
    why = [f"left out on both sides: {item}" for item in left_out]
    why += [*known, *_told(plan, numbers)]
    if any(not row.agrees for row in rows):
        why.append("a cell that differs and is explained by none of these is a defect of brim's model or of its facts: please report it with --json")
    return SecondOpinion(command=numbers.command, build=numbers.build, rows=tuple(rows), why=tuple(why))


def _told(plan: Plan, numbers: EngineNumbers) -> list[str]:
    """What must be known to read the table: units, builds, and how the engine laid out its weights."""
    exact = not isinstance(numbers.rows, Missing) and any(row.exact is not None for row in numbers.rows)
    said = ["to the byte; " if exact else "the engine prints whole MiB, rounded down; "]
    said[0] += "the output buffer and what is never logged are not in its table; the load was simulated, and a mapped file is not part of that"
    priced = plan.engine_version.removeprefix("b")
    if isinstance(numbers.build, int) and str(numbers.build) != priced:
        said.append(f"the engine is build b{numbers.build}, brim priced b{priced}")
    if numbers.layouts:
        about = "" if numbers.layouts[-1] not in BUILDS else " (about when those stood)"
        said.append(
            f"a bare libllama names no build: its parameter structs are those of {' and '.join(dict.fromkeys(numbers.layouts))}, brim priced b{priced}{about}"
        )
    if numbers.buffers:
        said.append("weights lie in " + ", ".join(f"{name} ({size} B)" for name, size in numbers.buffers))
    return said


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
