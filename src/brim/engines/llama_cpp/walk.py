"""Which layers of a model must be laid out: a run of identical layers repeats the allocator's state, so a few of its periods stand for all.

The high-water mark of best-fit allocation over a periodic graph is reached within the first periods; tests compare with the full walk.
"""

from brim.engines.llama_cpp.hparams import Hparams, block_of
from brim.engines.llama_cpp.weights import HOST, Placement

_LONGEST, _KEPT = 8, 3
_TYPED = ("ffn_up_exps.weight", "ffn_gate_exps.weight", "ffn_up_shexp.weight", "ffn_gate_shexp.weight")


def _signatures(hp: Hparams, placement: Placement) -> "list[int]":
    """One number a layer; equal numbers have the same operations on the same devices."""
    on_card = bool(placement.gpus)
    shared = any("shexp" in name for name in hp.tensors) if on_card else False
    known: dict[tuple[object, ...], int] = {}
    numbers = []
    parts = layer_parts(hp)
    for il in range(hp.depth):
        streamed = on_card and (placement.layers[il] == HOST or placement.overridden)
        if streamed:
            tensors: object = tuple((suffix, dims, dtype, placement.tensors[_named(il, suffix)]) for suffix, dims, dtype in parts[il])
        else:
            tensors = tuple((suffix, dims, dtype if (shared and suffix.endswith(_TYPED)) else "") for suffix, dims, dtype in parts[il])
        key = (
            placement.layers[il],
            hp.windowed[il],
            hp.recurrent[il],
            hp.cached[il],
            hp.indexes[il],
            hp.compressed[il] if hp.compressed else 0,
            hp.heads[il],
            hp.kv_heads[il],
            hp.ff[il],
            hp.experts_used[il],
            hp.trait(il),
            tensors,
        )
        numbers.append(known.setdefault(key, len(known)))
    return numbers


def _named(il: int, suffix: str) -> str:
    """The full name of a block's tensor (see `block_of`)."""
    return f"{suffix[:4]}blk.{il}.{suffix[4:]}" if suffix.startswith(("enc.", "dec.")) else f"blk.{il}.{suffix}"


_PARTS: "list[tuple[Hparams, list[list[tuple[str, tuple[int, ...], str]]]]]" = []


def layer_parts(hp: Hparams) -> "list[list[tuple[str, tuple[int, ...], str]]]":
    """(suffix, dims, type) of each layer's tensors, remembered for the last few models."""
    for known, parts in _PARTS:
        if known is hp:
            return parts
    parts = [[] for _ in range(hp.blocks)]
    for name, (dims, dtype) in hp.tensors.items():
        block = block_of(name)
        if block is not None and block[0] < hp.blocks:
            parts[block[0]].append((block[1], dims, dtype))
    for part in parts:
        part.sort()
    _PARTS.insert(0, (hp, parts))
    del _PARTS[4:]
    return parts


def _stay(repeats: int, kept: int, turn: int) -> int:
    """How many of a run's periods stay: equal to the run modulo `turn`, because a layer's output changes places with its input from layer to layer."""
    return repeats if repeats <= kept else kept + (repeats - kept) % turn


def walk(hp: Hparams, placement: Placement, kept: int = _KEPT) -> "tuple[int, ...]":
    """The layers to lay out, in order: every layer where nothing repeats, else `kept` or a few more periods of each run. The last layer is always there."""
    if hp.arch == "hrm_text":  # a few blocks stand for all its layers, in cycles
        return tuple(range(hp.depth))
    numbers = _signatures(hp, placement)
    count = len(numbers)
    turn = 6 if len(placement.gpus) > 1 else 2
    chosen: list[int] = []
    at = 0
    while at < count:
        best_period, best_saved, best_repeats = 1, 0, 1
        for period in range(1, min(_LONGEST, (count - at) // 2) + 1):
            block = numbers[at : at + period]
            repeats = 1
            while numbers[at + repeats * period : at + (repeats + 1) * period] == block:
                repeats += 1
            saved = (repeats - _stay(repeats, kept, turn)) * period
            if saved > best_saved:
                best_period, best_saved, best_repeats = period, saved, repeats
        if not best_saved:
            chosen.append(at)
            at += 1
            continue
        end = at + best_repeats * best_period
        head = at + (_stay(best_repeats, kept, turn) - 1) * best_period
        chosen.extend(range(at, head))
        chosen.extend(range(end - best_period, end))
        at = end
    if chosen[-1] != count - 1:
        chosen.append(count - 1)
    return tuple(chosen)
