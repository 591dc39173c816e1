"""What the user asks of the model: context, sequences, batch, parallelism, cache format, offload."""

from brim.values import Record


class LlamaWorkload(Record):
    """A llama.cpp run in its own words (common/arg.cpp, b11434). None means "not given": the engine's default applies, and the plan says which.

    Tokens: `ctx` (0 = as trained), `batch`, `ubatch`. `slots` is --parallel. `gpu_layers` counts the output layer as one. `outputs` is n_outputs_max.
    `override_tensors` are (pattern, buffer type) pairs; `tensor_split` are shares. `program` fixes the defaults (slots, logits rows).
    `gpu_layers` below zero: -1 is auto (all, then --fit may lower it), -2 and less is all. `spec_types` are --spec-type names; `rollback_rows` is n_rs_seq, the extra
    rows of recurrent state that a drafter may need to roll back; `load_mtp` loads the MTP blocks. `scoring` is llama-perplexity's task mode (--hellaswag and the like). `draft_*` are the draft model's own offload and cache types.
    """

    program: str = "llama-server"
    ctx: int | None = None
    batch: int | None = None
    ubatch: int | None = None
    slots: int | None = None
    kv_unified: bool | None = None
    ctk: str | None = None
    ctv: str | None = None
    flash_attn: str | None = None
    gpu_layers: int | None = None
    cpu_experts: int | None = None
    override_tensors: tuple[tuple[str, str], ...] = ()
    swa_full: bool | None = None
    kv_offload: bool | None = None
    op_offload: bool | None = None
    split_mode: str | None = None
    main_gpu: int | None = None
    tensor_split: tuple[float, ...] = ()
    mmap: bool | None = None
    repack: bool | None = None
    outputs: int | None = None
    embeddings: bool | None = None
    mmproj: str | None = None
    draft_model: str | None = None
    draft_max: int | None = None
    lora: tuple[str, ...] = ()
    cache_ram_mib: int | None = None
    ctx_checkpoints: int | None = None
    fit: bool | None = None
    threads: int | None = None
    no_warmup: bool | None = None
    unpriced: tuple[str, ...] = ()
    load_mtp: bool | None = None
    spec_types: tuple[str, ...] = ()
    rollback_rows: int | None = None
    pooling: str | None = None
    attention: str | None = None
    scoring: bool | None = None
    no_host: bool | None = None
    load_mode: str | None = None
    lazy_mode: str | None = None
    ctx_per_slot: int | None = None
    checkpoint_step: int | None = None
    fit_target_mib: tuple[int, ...] = ()
    fit_ctx: int | None = None
    mmproj_offload: bool | None = None
    image_min_tokens: int | None = None
    image_max_tokens: int | None = None
    image_batch_tokens: int | None = None
    draft_ctk: str | None = None
    draft_ctv: str | None = None
    draft_gpu_layers: int | None = None
    draft_cpu_experts: int | None = None
    draft_override_tensors: tuple[tuple[str, str], ...] = ()
