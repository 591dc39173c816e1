"""The ways to make a step smaller, in order of what they cost: time first, then fidelity; and the flags of other programs that say the same.

`cheapest` asks a predicate about each way and keeps those that fit. Nothing here prices anything itself.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from brim.facts.training import TrainWorkload

    Way = tuple[str, str, dict[str, object]]

# (what a person reads, our flags, changes), from what costs only time to what changes the result most. A way that changes nothing is skipped.
LADDER: "tuple[Way, ...]" = (
    ("the same with full activation checkpointing", "--checkpointing full", {"checkpointing": "full"}),
    ("a fused kernel for the loss", "--loss fused", {"loss": "fused"}),
    ("a micro-batch of 1", "--batch 1", {"batch": 1}),
    ("ZeRO-2 over the same cards", "--zero 2", {"sharding": "zero2"}),
    ("ZeRO-3 over the same cards", "--zero 3", {"sharding": "zero3"}),
    ("optimiser state on the host", "--offload optimizer", {"offload": "optimizer"}),
    ("ZeRO-3 with everything on the host", "--zero 3 --offload all", {"sharding": "zero3", "offload": "all"}),
    ("8-bit Adam", "--optimizer adamw_8bit", {"optimizer": "adamw_8bit"}),
    ("pure bf16 with 8-bit Adam", "--precision bf16 --optimizer adamw_8bit", {"precision": "bf16", "optimizer": "adamw_8bit"}),
    ("pure bf16 with Adafactor", "--precision bf16 --optimizer adafactor", {"precision": "bf16", "optimizer": "adafactor"}),
    ("LoRA on a 16-bit base", "--train lora --base bf16", {"method": "lora", "base": "bf16"}),
    ("LoRA on an 8-bit base", "--train lora --base int8", {"method": "lora", "base": "int8"}),
    ("QLoRA on a 4-bit base", "--train qlora", {"method": "qlora", "base": ""}),
)
_NEEDS_RANKS = ("zero2", "zero3")


def ways(w: "TrainWorkload") -> "list[Way]":
    """The rungs that change this workload, each on top of full checkpointing and a micro-batch of its own."""
    out = []
    adapters = w.method in ("lora", "qlora", "dora")
    for says, flags, changes in LADDER:
        if changes.get("sharding") in _NEEDS_RANKS and w.ranks < 2:
            continue
        if adapters and (changes.get("method") == "lora" or "optimizer" in changes or changes.get("offload") == "optimizer"):
            continue
        if all(getattr(w, key) == value for key, value in changes.items()):
            continue
        out.append((says, flags, changes))
    return out


def cheapest(w: "TrainWorkload", fits: "Callable[[TrainWorkload], bool]") -> "list[tuple[str, str]]":
    """(sentence, flags) of every rung that fits, alone first, then on top of full checkpointing."""
    found: list[tuple[str, str]] = []
    for says, flags, changes in ways(w):
        alone = w.replace(**changes)
        if fits(alone):
            found.append((says, flags))
        elif w.checkpointing != "full" and fits(alone.replace(checkpointing="full")):
            found.append((f"{says} and full activation checkpointing", f"{flags} --checkpointing full"))
    return found
