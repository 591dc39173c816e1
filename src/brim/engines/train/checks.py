"""Refuses a training workload that cannot be meant, with one sentence; it prices nothing."""

from brim.errors import Usage
from brim.facts import training

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.training import TrainWorkload

_WORDS = (
    ("method", "--train", training.METHODS),
    ("optimizer", "--optimizer", training.OPTIMIZERS),
    ("precision", "--precision", training.PRECISIONS),
    ("attention", "--attn", training.ATTENTIONS),
    ("checkpointing", "--checkpointing", training.CHECKPOINTINGS),
    ("loss", "--loss", training.LOSSES),
    ("sharding", "--sharding", training.SHARDINGS),
    ("offload", "--offload", training.OFFLOADS),
)
MOST_RANKS = 1 << 20


def check(w: "TrainWorkload") -> None:
    """`Usage` names the flag, the value and what is allowed."""
    for field, flag, allowed in _WORDS:
        value = getattr(w, field)
        if value not in allowed:
            raise Usage(f"{flag} {value}: brim knows {', '.join(allowed)}", hint="A word that is missing here is a defect; please report it.")
    for field, flag in (
        ("batch", "--batch"),
        ("seq", "--seq"),
        ("accumulation", "--accumulation"),
        ("ranks", "--ranks"),
        ("nodes", "--nodes"),
        ("lora_rank", "--lora-rank"),
    ):
        if getattr(w, field) < 1:
            raise Usage(f"{flag} {getattr(w, field)} is not above zero", hint="Give a whole number above zero.")
    for field, flag, least in (("workers", "--workers", 0), ("trainable_layers", "--trainable-layers", 0)):
        if getattr(w, field) < least:
            raise Usage(f"{flag} {getattr(w, field)} is below {least}", hint="Give a whole number.")
    if w.ranks > MOST_RANKS:
        raise Usage(f"--ranks {w.ranks} is more cards than any step shares ({MOST_RANKS})")
    if w.base and w.base not in training.BASES:
        raise Usage(f"--base {w.base}: brim knows {', '.join(training.BASES)}")
    if w.adapter and w.adapter not in ("fp32", "bf16", "fp16"):
        raise Usage(f"--adapter-dtype {w.adapter}: brim knows fp32, bf16, fp16")
    if not 0 <= w.lora_dropout < 1:
        raise Usage(f"--lora-dropout {w.lora_dropout} is outside 0…1")
    if w.sharding != "none" and w.ranks < 2:
        raise Usage(
            f"{w.sharding} shares work between cards, and there is one", hint="Give --device several times, or --ranks N; or leave --zero and --fsdp out."
        )
    if w.ranks % w.nodes:
        raise Usage(f"--ranks {w.ranks} does not divide over --nodes {w.nodes}")
    if w.offload == "all" and not (w.sharding in ("zero3",) or w.sharding.startswith("fsdp") or w.sharding == "none"):
        raise Usage(f"--offload all moves weights to the host, which {w.sharding} cannot", hint="Use --zero 3 or --fsdp, or --offload optimizer.")
    if w.method == "qlora" and w.base in ("fp32", "bf16", "fp16"):
        raise Usage(f"--train qlora means a quantised base, not {w.base}", hint="Use --train lora --base " + w.base + ".")
    if w.fused_backward and w.accumulation > 1:
        raise Usage("an optimiser that steps inside backward cannot accumulate gradients", hint="Use --accumulation 1.")
