"""Prices one llama.cpp workload: every part by device, from the header's facts alone; no I/O, no clock.

Covered: llama, qwen2 and qwen3 with dense feed-forward blocks and full attention (MHA, GQA) on the CPU. Everything else is named in `Plan.missing`.
"""

from brim.engines.base import Part, Plan
from brim.facts.device import DeviceSpec
from brim.facts.dtypes import GGML_BLOCKS, ggml_row_bytes
from brim.facts.model import Checkpoint
from brim.facts.workload import LlamaWorkload
from brim.units import Span, exactly, round_up
from brim.values import Record

NEWEST_BUILD = 11434
DENSE = ("llama", "qwen2", "qwen3")
CELL_PADDING = 256
_KNOWN_KV = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


class _Dense(Record):
    """The hyper-parameters that a dense model's memory depends on (src/llama-model.cpp `load_hparams`)."""

    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    vocabulary: int
    trained: int


class _Resolved(Record):
    """The workload after llama-server's defaults (common/arg.cpp, common/common.h, tools/server/server.cpp, b11434)."""

    ctx: int
    slots: int
    kv_unified: bool
    batch: int
    ubatch: int
    ctk: str
    ctv: str
    flash_attn: bool
    outputs: int
    cells: int
    streams: int


def price(checkpoint: Checkpoint, workload: LlamaWorkload, devices: tuple[DeviceSpec, ...], *, version: int = NEWEST_BUILD) -> Plan:
    """The plan of `workload` on `devices` (accelerators in llama.cpp's order; the host is always present as `cpu`) for build b`version`.

    What cannot be priced is named in `Plan.missing`, never guessed.
    """
    missing = _unpriced(checkpoint, workload, devices, version)
    facts = None if missing else _facts(checkpoint, missing)
    if facts is None:
        return Plan(engine="llama.cpp", engine_version=f"b{version}", parts=(), workload={}, missing=tuple(missing))
    asked = _resolve(workload, facts)
    parts = (_weights(checkpoint), _kv_cache(facts, asked), _compute(facts, asked), _output(facts, asked))
    shown = {key: getattr(asked, key) for key in asked._fields}
    shown["flash_attn"] = "on" if asked.flash_attn else "off"
    return Plan(engine="llama.cpp", engine_version=f"b{version}", parts=parts, workload={"program": workload.program, **shown}, caveats=_caveats(checkpoint))


def _unpriced(checkpoint: Checkpoint, workload: LlamaWorkload, devices: tuple[DeviceSpec, ...], version: int) -> list[str]:
    """What this room does not price yet, in words."""
    missing = []
    if checkpoint.form not in ("gguf", "shape") or checkpoint.role != "model":
        missing.append(f"a llama.cpp plan of a {checkpoint.role} in {checkpoint.form} form")
    if checkpoint.architecture not in DENSE:
        missing.append(f"the architecture {checkpoint.architecture!r} (priced: {', '.join(DENSE)})")
    for key, what in (("expert_count", "mixture of experts"), ("attention.sliding_window", "sliding-window attention")):
        if checkpoint.metadata.get(f"{checkpoint.architecture}.{key}"):
            missing.append(what)
    if devices:
        missing.append("accelerators (" + ", ".join(device.id for device in devices) + ")")
    if version < NEWEST_BUILD:
        missing.append(f"llama.cpp b{version} (rules are known from b{NEWEST_BUILD})")
    for name in ("mmproj", "draft_model", "lora", "override_tensors"):
        if getattr(workload, name):
            missing.append(f"--{name.replace('_', '-')}")
    for kind in (workload.ctk, workload.ctv):
        if kind is not None and kind not in _KNOWN_KV:
            missing.append(f"the KV type {kind!r}")
    return missing


def _facts(checkpoint: Checkpoint, missing: list[str]) -> _Dense | None:
    """The hyper-parameters, or None with what is wanting appended to `missing`."""

    def number(key: str, default: int | None = None) -> int:
        value = checkpoint.metadata.get(f"{checkpoint.architecture}.{key}", default)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        missing.append(f"the metadata key {checkpoint.architecture}.{key}" + (f" (it is {value!r})" if value is not None else ""))
        return 1

    heads, width = number("attention.head_count"), number("embedding_length")
    embedding = next((tensor for tensor in checkpoint.tensors if tensor.name == "token_embd.weight"), None)
    vocabulary = embedding.dims[-1] if embedding is not None else number("vocab_size", checkpoint.metadata.get("tokenizer.ggml.tokens.length"))
    facts = _Dense(
        layers=number("block_count"),
        width=width,
        feed_forward=number("feed_forward_length"),
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        key_dim=number("attention.key_length", max(1, width // heads)),
        value_dim=number("attention.value_length", max(1, width // heads)),
        vocabulary=vocabulary,
        trained=number("context_length"),
    )
    if not checkpoint.tensors:
        missing.append("the tensor directory")
    return None if missing else facts


def _resolve(workload: LlamaWorkload, facts: _Dense) -> _Resolved:
    """Fill in what was not given, and round as src/llama-context.cpp `llama_context::llama_context` does (b11434)."""
    server = workload.program == "llama-server"
    slots = workload.slots if workload.slots is not None and workload.slots > 0 else (4 if server else 1)
    unified = workload.kv_unified if workload.kv_unified is not None else (server and (workload.slots is None or workload.slots < 1))
    ctx = round_up(workload.ctx or facts.trained, CELL_PADDING)
    cells = ctx if unified else round_up(ctx // slots, CELL_PADDING)
    if not unified:
        ctx = cells * slots
    batch = min(workload.batch or 2048, ctx)
    ubatch = min(workload.ubatch or 512, batch)
    ctk, ctv = workload.ctk or "f16", workload.ctv or "f16"
    quantised = GGML_BLOCKS[ctv.upper()][0] > 1
    # auto: the CPU backend has a flash-attention kernel for every head size; a quantised V cache needs it.
    flash = quantised or workload.flash_attn != "off"
    outputs = workload.outputs if workload.outputs else (slots if server else batch)
    return _Resolved(
        ctx=ctx, slots=slots, kv_unified=unified, batch=batch, ubatch=ubatch, ctk=ctk, ctv=ctv, flash_attn=flash,
        outputs=min(outputs, ubatch), cells=cells, streams=1 if unified else slots,
    )  # fmt: skip


def _weights(checkpoint: Checkpoint) -> Part:
    stored = sum(tensor.stored_bytes for tensor in checkpoint.tensors)
    rule = f"the stored bytes of all {len(checkpoint.tensors)} tensors = {stored}"
    return Part(name="weights", device="cpu", bytes=exactly(stored), rule=rule, source="the file's tensor directory; src/llama-model.cpp load_tensors, b11434")


def _kv_cache(facts: _Dense, asked: _Resolved) -> Part:
    row_k = ggml_row_bytes(asked.ctk.upper(), facts.kv_heads * facts.key_dim)
    row_v = ggml_row_bytes(asked.ctv.upper(), facts.kv_heads * facts.value_dim)
    size = asked.streams * asked.cells * facts.layers * (row_k + row_v)
    rule = (
        f"{asked.streams} stream(s) × {asked.cells} cells × {facts.layers} layers × ({row_k} B K row: {facts.kv_heads}×{facts.key_dim} {asked.ctk}"
        f" + {row_v} B V row: {facts.kv_heads}×{facts.value_dim} {asked.ctv}) = {size}"
    )
    return Part(name="kv_cache", device="cpu", bytes=exactly(size), rule=rule, source="src/llama-kv-cache.cpp llama_kv_cache(), b11434")


def _compute(facts: _Dense, asked: _Resolved) -> Part:
    """The closed form of the CPU graph's high-water mark: inputs + mask + five rows of embeddings + the worst moment."""
    tokens = round_up(min(asked.ctx, asked.ubatch), asked.streams)
    embeddings = 4 * facts.width * tokens
    query = 4 * facts.heads * facts.key_dim * tokens
    mask = (2 if asked.flash_attn else 4) * asked.cells * tokens
    value_rows = 8 * tokens if asked.flash_attn else 8 * tokens * facts.kv_heads * facts.value_dim
    inputs = (4 + 4 + 8 + 4 + 8) * tokens + 4 * asked.outputs + value_rows
    moments = {"feed-forward 3 × 4 × n_ff × tokens": 12 * facts.feed_forward * tokens}
    logits = 4 * facts.vocabulary * asked.outputs
    if logits > mask:
        moments["logits 4 × n_vocab × outputs"] = logits
    if asked.flash_attn:
        moments["attention result 4 × heads × value dim × tokens"] = 4 * facts.heads * facts.value_dim * tokens
    else:
        moments["attention scores 4 × cells × heads × tokens + Q"] = 4 * asked.cells * facts.heads * tokens + query + (query if query > embeddings else 0)
    rotation = sum(4 * 64 * 64 for kind in (asked.ctk, asked.ctv) if GGML_BLOCKS[kind.upper()][0] > 1)
    worst = max(moments, key=lambda name: moments[name])
    size = inputs + rotation + mask + 5 * embeddings + moments[worst]
    rule = f"inputs {inputs + rotation} + mask {mask} + 5 × embeddings {embeddings} + worst moment: {worst} = {moments[worst]}; together {size}"
    # LLAMACPP_FORMULAS' CPU rows: median error 0.01 %, the worst dense row 2.4 %; the span says so until the graph itself is replayed.
    span = Span(low=size - size // 100, likely=size, high=size + size // 40)
    return Part(name="compute_buffer", device="cpu", bytes=span, rule=rule, source="closed form of src/llama-graph.cpp and ggml/src/ggml-alloc.c, b11434")


def _output(facts: _Dense, asked: _Resolved) -> Part:
    size = 4 * facts.vocabulary * asked.slots
    rule = f"4 B × {facts.vocabulary} vocabulary × {asked.slots} sequence(s) = {size}"
    return Part(name="output_buffer", device="cpu", bytes=exactly(size), rule=rule, source="src/llama-context.cpp output_reserve, b11434")


def _caveats(checkpoint: Checkpoint) -> tuple[str, ...]:
    repackable = {"Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "Q2_K", "IQ4_NL", "MXFP4"} & {
        tensor.dtype for tensor in checkpoint.tensors if tensor.name.startswith("blk.")
    }
    if not repackable:
        return ()
    kinds = ", ".join(sorted(repackable))
    return (f"On processors with the right instructions llama.cpp keeps a repacked copy of {kinds} weights beside the mapped file; it is not priced here.",)
