"""What llama-server's host memory may grow by after the start: saved prompts (--cache-ram) and context checkpoints; upper bounds, never part of the start-up plan.

Sources: common/common.h `cache_ram_mib`, `n_ctx_checkpoints`, tools/server/server-task.cpp `server_prompt_cache`, server-context.cpp `create_checkpoint`, src/llama-kv-cache-iswa.cpp
and llama-memory-hybrid.cpp `state_write` (LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: the window's cells and the recurrent state only); llama.cpp b11434.
"""

from brim.engines.base import Part, Plan
from brim.engines.llama_cpp.defaults import row
from brim.facts.workload import LlamaWorkload
from brim.units import MIB, Span, format_bytes


def growth(plan: Plan, workload: LlamaWorkload) -> tuple[Part, ...]:
    """Parts from nothing to their limit, on the host. `workload` is resolved. Nothing for programs that keep no prompts."""
    if row(workload.program).cache_ram_mib == 0 and not workload.cache_ram_mib:
        return ()
    parts = []
    limit = workload.cache_ram_mib or 0
    if limit > 0:
        parts.append(
            Part(
                name="prompt_cache", device="cpu", bytes=Span(low=0, likely=0, high=limit * MIB), source="common/common.h `cache_ram_mib`, llama.cpp b11434",
                rule=f"saved prompts, filled as used: 0 to --cache-ram {limit} MiB (0 turns it off)",
            )
        )  # fmt: skip
    each, what = _checkpoint(plan, workload)
    count = (workload.ctx_checkpoints or 0) * (workload.slots or 1)
    if each and count > 0:
        parts.append(
            Part(
                name="context_checkpoints", device="cpu", bytes=Span(low=0, likely=0, high=each * count),
                source="tools/server/server-context.cpp `create_checkpoint`, llama.cpp b11434",
                rule=f"0 to {workload.ctx_checkpoints} checkpoints x {workload.slots} slots x {each} bytes ({what}): --ctx-checkpoints",
            )
        )  # fmt: skip
    return tuple(parts)


def _checkpoint(plan: Plan, workload: LlamaWorkload) -> tuple[int, str]:
    """The most that one checkpoint of one slot holds, and of what: its share of the window's cache and of the recurrent state."""
    slots = workload.slots or 1
    window = sum(part.bytes.likely for part in plan.parts if part.name == "kv_cache_swa")
    state = sum(part.bytes.likely for part in plan.parts if part.name == "recurrent_state") // (slots * (1 + (workload.rollback_rows or 0)))
    if workload.swa_full:
        window = 0
    elif not workload.kv_unified:
        window //= slots
    what = " and ".join(word for word, held in (("the window's cells", window), ("one recurrent state", state)) if held)
    return window + state, what


def warnings(plan: Plan, parts: tuple[Part, ...], usable: "int | None") -> tuple[str, ...]:
    """What must be said of the growth, first where it would pass the host's budget."""
    if not parts:
        return ()
    most = sum(part.bytes.high for part in parts)
    names = ", ".join(f"{part.name} up to {format_bytes(part.bytes.high)}" for part in parts)
    said = f"the host's memory grows while it serves: {names}; not in the plan above"
    held = plan.on("cpu").high
    if usable is None or held + most <= usable:
        return (said,)
    room = max(0, usable - held) // MIB
    keep = f"keep --cache-ram between 0 and {room}" if room else "give --cache-ram 0"  # below 0 it has no limit (common/arg.cpp, b11434)
    return (f"{said}; with all of it the host's budget would be passed by {format_bytes(held + most - usable)}: {keep}",)
