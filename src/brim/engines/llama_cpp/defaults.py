"""What each llama.cpp program and packaging does where its user says nothing, one row each with its source; and how a program turns that into a context.

Covered: the programs of b11434 and the packagings that ship llama.cpp with other defaults. Not covered: what a packaging decides by looking at the machine
(Ollama's and KoboldCpp's own layer choice); their rows say so.
"""

from brim.engines.llama_cpp.context import AUTO_SLOTS, DRY_LOAD, FLASH_AUTO
from brim.facts.workload import LlamaWorkload
from brim.values import Record

COMMON = "common/common.h `common_params`, b11434"
SERVER = "tools/server/server.cpp `llama_server` and server-context.cpp `server_output_limits`, b11434"
LIBRARY = "src/llama-context.cpp `llama_context_default_params`, b11434"


class Defaults(Record):
    """One row. Tokens; `ctx` 0 is the trained context. `outputs` says how many rows of logits are reserved: `slots`, `batch` or `all` (n_outputs_max 0).

    `slots` -1 is llama-server's auto (4 slots on one shared cache). `gpu_layers` -1 is auto (all, lowered by --fit where that is on).
    """

    source: str
    ctx: int = 0
    batch: int = 2048
    ubatch: int = 512
    slots: int = 1
    kv_unified: bool = False
    outputs: str = "all"
    flash_attn: str = "auto"
    cache_type: str = "f16"
    gpu_layers: int = -1
    swa_full: bool = False
    mmap: bool = True
    fit: bool = True
    embeddings: bool = False
    ctx_checkpoints: int = 0
    cache_ram_mib: int = 0
    draft_max: int = 3
    note: str = ""


ROWS: dict[str, Defaults] = {
    "llama-server": Defaults(source=SERVER, slots=-1, outputs="slots", ctx_checkpoints=32, cache_ram_mib=8192),
    "llama-cli": Defaults(
        source="tools/cli/cli-server.h (runs llama_server in a thread with --parallel 1), b11434", outputs="all", ctx_checkpoints=32, cache_ram_mib=8192,
        note="llama-cli reserves logits for its slots where it runs the server inside (b11434), for a whole micro-batch before that",
    ),
    "llama-completion": Defaults(source=f"{COMMON}; tools/completion/completion.cpp"),
    "llama-fit-params": Defaults(source=f"{COMMON}; tools/fit-params/fit-params.cpp"),
    "llama-bench": Defaults(source="tools/llama-bench/llama-bench.cpp `cmd_params_defaults`, `to_llama_cparams`, b11434", ctx=512, fit=False),
    "llama-batched-bench": Defaults(source="tools/batched-bench/batched-bench.cpp, b11434", fit=False),
    "llama-perplexity": Defaults(source="tools/perplexity/perplexity.cpp `llama_perplexity`, b11434", ctx=512),
    "llama-imatrix": Defaults(source="tools/imatrix/imatrix.cpp `main`, b11434", ctx=512),
    "llama-embedding": Defaults(source="examples/embedding/embedding.cpp `main`, b11434", embeddings=True),
    "llama-retrieval": Defaults(source="examples/retrieval/retrieval.cpp `main`, b11434", embeddings=True),
    "llama-speculative": Defaults(source="examples/speculative/speculative.cpp `main`, b11434", outputs="slots"),
    "llama-speculative-simple": Defaults(source="examples/speculative-simple/speculative-simple.cpp `main`, b11434", outputs="slots"),
    "llama-lookup": Defaults(source="examples/lookup/lookup.cpp `main`, b11434", outputs="slots"),
    "llama-lookahead": Defaults(source="examples/lookahead/lookahead.cpp `main` (W + G + 1 sequences), b11434", slots=31, kv_unified=True),
    "library": Defaults(source=LIBRARY, ctx=512, swa_full=True, fit=False),
    "llama-cpp-python": Defaults(
        source="abetlen/llama-cpp-python llama_cpp/server/settings.py `ModelSettings`; bindings over llama_context_default_params",
        ctx=2048, batch=512, flash_attn="off", gpu_layers=0, swa_full=True, fit=False,
    ),
    "koboldcpp": Defaults(
        source="LostRuins/koboldcpp koboldcpp.py argparse; issue 2235 (the sliding window is off by default)",
        ctx=8192, batch=512, flash_attn="off", swa_full=True, mmap=False, fit=False,
        note="--gpulayers -1 lets KoboldCpp guess the layers; priced as all layers",
    ),
    "ollama": Defaults(
        source="ollama/ollama docs/context-length.mdx and envconfig/config.go; since 2026-05-29 it launches llama-server (PR 16031)",
        ctx=4096, batch=512, slots=1, outputs="slots",
        note="Ollama's context follows the card: 4096 under 24 GiB, 32768 to 48 GiB, 262144 above; OLLAMA_CONTEXT_LENGTH and num_ctx go first",
    ),
    "lm-studio": Defaults(
        source="lmstudio.ai/docs/cli/load (closed engine; context and slots as its documentation gives them)", ctx=4096, batch=512, slots=4, kv_unified=True,
        outputs="slots", note="LM Studio is closed: what its engine reserves beside the flags is not known",
    ),
}  # fmt: skip


def row(program: str) -> Defaults:
    """The defaults of a program; a llama.cpp program without a row of its own has the common ones."""
    return ROWS.get(program) or Defaults(source=COMMON)


# Tokens that a drafter may put into one batch, by --spec-type (common/speculative.cpp `common_speculative_n_max`, common/common.h; b11434)
_NGRAM_DRAFT = {"ngram-simple": 48, "ngram-map-k": 48, "ngram-map-k4v": 48, "ngram-mod": 64, "ngram-cache": 8}
# drafters that need rows of recurrent state to roll back to (common/common.h `need_n_rs_seq`)
_ROLLBACK = frozenset(("draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"))
MAX_SEQUENCES = 256  # src/llama-cparams.h LLAMA_MAX_SEQ


def draft_tokens(workload: LlamaWorkload) -> int:
    """How many tokens a drafter may add to each sequence's batch; 0 without a speculative type."""
    most = 0
    for kind in workload.spec_types:
        most = max(most, _NGRAM_DRAFT.get(kind, (3 if workload.draft_max is None else workload.draft_max) if kind.startswith("draft-") else 0))
    return most


TRAINED_CONTEXT = DRY_LOAD  # -c 0, the trained context, is the default (PR 16653, 15 December 2025); before, 4096
HOST_CACHES = 6720  # llama-server keeps prompts and checkpoints on the host (PRs 16391 and 16382, October 2025)


def _before(base: Defaults, program: str, version: int) -> Defaults:
    """A row of llama.cpp's own programs as an older build had it (common/common.h of b4435, b5310, b6165 and b9409). A packaging's row is its own."""
    if not program.startswith("llama-") or program == "llama-cpp-python":
        return base
    if version < FLASH_AUTO and base.flash_attn == "auto":
        base = base.replace(flash_attn="off")
    if version < HOST_CACHES:
        base = base.replace(ctx_checkpoints=0, cache_ram_mib=0)
    if version < AUTO_SLOTS and base.slots < 0:
        base = base.replace(slots=1)
    return base.replace(ctx=4096) if version < TRAINED_CONTEXT and not base.ctx else base


def resolve(workload: LlamaWorkload, version: int = TRAINED_CONTEXT) -> tuple[LlamaWorkload, tuple[str, ...]]:
    """The workload with every default of its program filled in, as build b`version` has them, and one sentence for each default that decides memory.

    `ctx` stays 0 where the trained context is meant. Rules: the sources in `ROWS`, program by program. What the user gave is never changed, except where the
    program itself changes it (llama-perplexity multiplies its context, embeddings lower the batch).
    """
    base = _before(row(workload.program), workload.program, version)
    notes: list[str] = []
    if workload.ctx is None and base.ctx and not row(workload.program).ctx:
        notes.append(f"context: 4096, as builds before b{TRAINED_CONTEXT} take where -c is left out")
    slots, unified = workload.slots, workload.kv_unified
    ctx = base.ctx if workload.ctx is None else workload.ctx
    batch = base.batch if workload.batch is None else workload.batch
    ubatch = base.ubatch if workload.ubatch is None else workload.ubatch
    if slots is None or slots < 0:
        slots = base.slots
        if slots < 0:
            slots, unified = 4, True
            notes.append("slots: llama-server's auto, 4 on one shared cache (--parallel N changes both)")
    unified = base.kv_unified if unified is None else unified
    if workload.ctx_per_slot and workload.ctx is None:
        ctx = slots * workload.ctx_per_slot
    ctx, batch, ubatch, slots, unified = _by_program(workload, ctx, batch, ubatch, slots, unified=unified)
    embeddings = base.embeddings if workload.embeddings is None else workload.embeddings
    if embeddings and workload.program == "llama-server" and batch > ubatch:
        batch = ubatch
        notes.append(f"batch: {ubatch}, because --embeddings needs a whole batch in one micro-batch")
    filled = workload.replace(
        ctx=ctx, batch=batch, ubatch=ubatch, slots=slots, kv_unified=unified, embeddings=embeddings,
        ctk=workload.ctk or base.cache_type, ctv=workload.ctv or base.cache_type,
        flash_attn=workload.flash_attn or base.flash_attn,
        gpu_layers=base.gpu_layers if workload.gpu_layers is None else workload.gpu_layers,
        swa_full=base.swa_full if workload.swa_full is None else workload.swa_full,
        mmap=base.mmap if workload.mmap is None else workload.mmap,
        fit=base.fit if workload.fit is None else workload.fit,
        ctx_checkpoints=base.ctx_checkpoints if workload.ctx_checkpoints is None else workload.ctx_checkpoints,
        cache_ram_mib=base.cache_ram_mib if workload.cache_ram_mib is None else workload.cache_ram_mib,
        rollback_rows=_rollback_rows(workload),
        load_mtp=bool(workload.load_mtp) or "draft-mtp" in workload.spec_types,
    )  # fmt: skip
    if workload.outputs is None:
        filled = filled.replace(outputs=_outputs(filled, base))
    if base.note:
        notes.append(base.note)
    return filled, tuple(notes)


def _by_program(workload: LlamaWorkload, ctx: int, batch: int, ubatch: int, slots: int, *, unified: bool) -> tuple[int, int, int, int, bool]:
    """What some programs do to their own parameters before they make a context: (ctx, batch, ubatch, slots, unified)."""
    program = workload.program
    if program in ("llama-perplexity", "llama-imatrix") and ctx > 0:
        if workload.scoring:
            slots, unified = max(4, slots), True
        else:
            slots = max(1, batch // ctx)
        ctx = slots * ctx
        batch = min(batch, ctx)
    elif program == "llama-embedding":
        if slots == 1:
            slots, unified = MAX_SEQUENCES, True
        batch = max(batch, ctx)
        ubatch = ubatch if workload.attention == "causal" else batch
    elif program == "llama-retrieval":
        ubatch = batch
    return ctx, batch, ubatch, slots, unified


def _rollback_rows(workload: LlamaWorkload) -> int:
    """n_rs_seq: extra rows of recurrent state for each sequence (common/common.h `need_n_rs_seq`, b11434)."""
    if workload.rollback_rows is not None:
        return workload.rollback_rows
    if any(kind in _ROLLBACK for kind in workload.spec_types):
        return 3 if workload.draft_max is None else workload.draft_max
    return 0


def _outputs(workload: LlamaWorkload, base: Defaults) -> int | None:
    """Rows of logits (n_outputs_max); None leaves the library's own rule: a whole batch."""
    if base.outputs != "slots":
        return None
    assert workload.batch is not None
    assert workload.slots is not None
    if workload.embeddings or (workload.pooling is not None and workload.pooling != "none"):
        return workload.batch
    per_sequence = 1 + (workload.draft_max or 3 if workload.program.startswith("llama-spec") else draft_tokens(workload))
    return max(1, min(workload.batch, workload.slots * per_sequence))
