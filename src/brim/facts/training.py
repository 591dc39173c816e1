"""What the user asks of a training step: method, optimiser, precision, batch, length, attention, checkpointing, adapters, data parallelism."""

from brim.values import Record

METHODS = ("full", "lora", "qlora", "dora", "freeze")
PRECISIONS = ("fp32", "bf16-autocast", "fp16-autocast", "bf16", "fp16", "mixed", "fp8")
BASES = ("fp32", "bf16", "fp16", "int8", "nf4", "nf4-dq", "fp4")
ATTENTIONS = ("flash", "sdpa", "eager")
CHECKPOINTINGS = ("none", "full", "selective", "offloaded")
LOSSES = ("full", "shifted", "chunked", "fused")
SHARDINGS = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp-grad-op", "fsdp-hybrid", "fsdp2")
OFFLOADS = ("none", "optimizer", "all", "nvme")
OPTIMIZERS = (
    "adamw", "adamw_foreach", "adamw_fused", "adamw_8bit", "adamw_paged", "adamw_paged_8bit", "adamw_4bit", "adafactor", "lion", "lion_8bit", "sgd", "sgd_momentum",
    "rmsprop", "adagrad", "muon",
)  # fmt: skip


class TrainWorkload(Record):
    """One training step on one rank. Tokens: `seq`. `batch` is the micro-batch of one rank; `accumulation` counts micro-batches a step.

    `precision`: fp32; bf16-autocast and fp16-autocast (fp32 weights under torch.autocast); bf16 and fp16 (everything in it); mixed (16-bit weights with
    an fp32 master copy in the optimiser, as DeepSpeed and Megatron keep); fp8 (bf16-autocast with 8-bit linear inputs). `base` is the format of frozen weights
    under an adapter ("" = the method's default). `targets` are weight roles or names; "all-linear" means every linear layer but the head. `padded` tells whether
    the step sees an attention mask (a padded batch): without one, attention takes the causal fast path. `loss`: full (fp32 logits), shifted (fp32 logits
    and a shifted copy, transformers before 4.45), chunked, fused (logits are never whole). `ranks` share the work by `sharding`; `nodes` matter to hybrid sharding.
    `adapter` is the dtype of adapter weights ("" = fp32 under autocast, else the precision's own).
    """

    method: str = "full"
    batch: int = 1
    seq: int = 2048
    accumulation: int = 1
    optimizer: str = "adamw"
    precision: str = "bf16-autocast"
    base: str = ""
    attention: str = "sdpa"
    padded: bool = False
    checkpointing: str = "full"
    loss: str = "full"
    loss_chunks: int = 8
    lora_rank: int = 16
    lora_dropout: float = 0.0
    targets: tuple[str, ...] = ("all-linear",)
    adapter: str = ""
    trainable_layers: int = 2
    sharding: str = "none"
    ranks: int = 1
    nodes: int = 1
    offload: str = "none"
    compiled: bool = False
    fused_backward: bool = False
    evaluation_batch: int = 0
    bucket_bytes: int = 0
    workers: int = 0
    save_optimizer: bool = True
    unpriced: tuple[str, ...] = ()
