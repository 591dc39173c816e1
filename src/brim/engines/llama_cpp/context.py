"""What the engine makes of the asked-for context: cells, streams, micro-batch, rows of logits, cache types, and where it differs between builds.

Source: llama.cpp b11434, src/llama-context.cpp `llama_context()` and `sched_reserve`, tools/server/server.cpp (slots), server-context.cpp `server_output_limits`.
Defaults that are not given here are those of common/common.h.
"""

from brim.engines.llama_cpp.hparams import ENCODED, Hparams, Wanting
from brim.facts.dtypes import GGML_BLOCKS
from brim.facts.workload import LlamaWorkload
from brim.units import round_up

# The builds at which an allocation rule changed. Each is the first build that is known to have the new rule; where only an interval is known, its upper end.
PADDING_256 = 6725  # `n_ctx` padded to 256 (PR 16812 and llama-context.cpp, October 2025); before, to 256 with flash attention and to 32 without
SWA_PADDING_256 = 7030  # the sliding window's cache padded to 256 (issue 17037, November 2025)
OUTPUT_CAP = 9967  # `n_outputs_max` caps the logits: in a public log of b9967, not in those up to b9272
F16_COPY = 9300  # f16 copy of a quantised cache inside the compute buffer (PR 23907, May 2026); the pool held the same bytes before
EMBEDDING_INPUT = 7720  # token rows and embedding rows are both built whatever the batch holds (PRs 18550 and 18599, January 2026)
MIXED_INPUT = 11434  # the input stage builds token rows, embedding rows and a mix of both: between b11342 and b11434


class Context:
    """The engine's own numbers for one workload (cparams). Tokens and cells; `tokens` is the width of the reserved graph."""

    __slots__ = (
        "auto_flash",
        "batch",
        "cells",
        "embeddings",
        "flash",
        "fused_indexer",
        "kv_offload",
        "load_mtp",
        "op_offload",
        "outputs",
        "pooling",
        "program",
        "rollback",
        "sequence_tokens",
        "sequences",
        "streams",
        "swa_full",
        "tokens",
        "total_cells",
        "type_k",
        "type_v",
        "ubatch",
        "unified",
        "version",
        "window_cells",
    )  # fmt: skip

    def __init__(self, workload: LlamaWorkload, hp: Hparams, version: int) -> None:
        self.version = version
        self.program = workload.program
        server = workload.program == "llama-server"
        slots, unified = workload.slots, workload.kv_unified
        if slots is None or slots < 0:
            slots, unified = (4, True) if server and unified is None else (1 if slots is None else 4, unified)
        self.sequences = max(1, slots)
        self.unified = bool(unified)
        self.embeddings = bool(workload.embeddings)
        named = dict(enumerate(("none", "mean", "cls", "last", "rank")))
        self.pooling = getattr(workload, "pooling", None) or named.get(int(hp.get("pooling_type", 0)), "none")
        self.rollback = int(getattr(workload, "rollback_rows", None) or 0) if hp.rollback else 0
        self.load_mtp = bool(getattr(workload, "load_mtp", False))
        self.kv_offload = workload.kv_offload is not False
        self.op_offload = workload.op_offload is not False
        self.swa_full = bool(workload.swa_full)
        self.fused_indexer = True
        self._types(workload, hp)
        self._sizes(workload, hp)
        self._outputs(workload, server=server, capped=hp.arch not in ENCODED)
        self.window_cells = self._window(hp)

    def _sizes(self, workload: LlamaWorkload, hp: Hparams) -> None:
        """Cells per stream and the widths of batch and micro-batch."""
        ctx = workload.ctx or hp.context_trained
        if ctx <= 0:
            raise Wanting("the context is empty: the header gives no trained length and none was asked for")
        batch = 2048 if workload.batch is None else workload.batch
        asked = 512 if workload.ubatch is None else workload.ubatch
        self.batch = min(ctx, batch) if hp.causal else batch
        self.ubatch = min(self.batch, asked or batch)
        padding = 256 if self.version >= PADDING_256 or self.flash else 32
        self.total_cells = round_up(ctx, padding)
        if self.unified:
            self.cells, self.streams = self.total_cells, 1
        else:
            self.cells, self.streams = round_up(self.total_cells // self.sequences, padding), self.sequences
            self.total_cells = self.cells * self.sequences
        self.tokens = round_up(min(self.total_cells, self.ubatch), self.sequences)
        self.sequence_tokens = self.tokens // self.sequences

    def _types(self, workload: LlamaWorkload, hp: Hparams) -> None:
        """Cache types and flash attention; combinations that the engine refuses are a `Wanting`."""
        self.type_k = (workload.ctk or "f16").upper()
        self.type_v = (workload.ctv or "f16").upper()
        for name in (self.type_k, self.type_v):
            if name not in GGML_BLOCKS:
                raise Wanting(f"{name.lower()!r} is no cache type that llama.cpp knows")
        asked = (workload.flash_attn or "auto").lower()
        self.auto_flash = asked not in ("on", "off", "1", "0", "true", "false", "enabled", "disabled")
        self.flash = asked not in ("off", "0", "false", "disabled") and hp.arch != "grok"
        quantised = GGML_BLOCKS[self.type_v][0] > 1
        if quantised and not self.flash:
            raise Wanting(f"a {self.type_v.lower()} V cache needs flash attention: llama.cpp refuses this (--flash-attn on)")
        if quantised:
            self.auto_flash = False
        if hp.arch == "plm" and self.flash:
            raise Wanting("llama.cpp b11434 aborts when it lays out PLM's values for flash attention: --flash-attn off")
        if (hp.mla or hp.compressed) and self.type_k != self.type_v:
            raise Wanting("llama.cpp refuses different K and V cache types for a cache that holds keys only")

    def _outputs(self, workload: LlamaWorkload, *, server: bool, capped: bool) -> None:
        """Rows of logits that the graph reserves; models with an encoder know no cap."""
        asked = workload.outputs
        if asked is None and server and not self.embeddings:
            drafted = workload.draft_max or 0 if workload.draft_model else 0
            asked = min(self.batch, self.sequences * (1 + drafted))
        most = asked if asked and capped and self.version >= OUTPUT_CAP else self.batch
        self.outputs = min(self.tokens, most)

    def _window(self, hp: Hparams) -> int:
        """Cells per stream of the sliding window's own cache (`llama_kv_cache_iswa`)."""
        if not hp.window_kind or self.swa_full:
            return self.cells
        wanted = min(self.cells, hp.window * (self.sequences if self.unified else 1) + self.ubatch)
        return round_up(wanted, 256 if self.version >= SWA_PADDING_256 else 32)

    def at(self, cells: int) -> "Context":
        """The same context with caches of another length; all that decides the graph's operations stays."""
        made = object.__new__(Context)
        for name in self.__slots__:
            setattr(made, name, getattr(self, name))
        made.cells = cells
        made.total_cells = cells * self.streams
        if self.window_cells == self.cells:
            made.window_cells = cells
        return made
