"""What the user asks of the model: context, sequences, batch, parallelism, cache format, offload."""

from brim.values import Record


class LlamaWorkload(Record):
    """A llama.cpp run in its own words (common/arg.cpp, b11434). None means "not given": the engine's default applies, and the plan says which.

    Tokens: `ctx` (0 = as trained), `batch`, `ubatch`. `slots` is --parallel. `gpu_layers` counts the output layer as one. `outputs` is n_outputs_max.
    `override_tensors` are (pattern, buffer type) pairs; `tensor_split` are shares. `programs` fix the defaults (slots, logits rows).
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
