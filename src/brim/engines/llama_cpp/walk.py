"""Which layers of a model must be laid out: a run of identical layers repeats the allocator's state, so a few of its periods stand for all.

The high-water mark of best-fit allocation over a periodic graph is reached within the first periods; tests compare with the full walk.
"""

from brim.engines.llama_cpp.hparams import Hparams, Wanting, block_of
from brim.engines.llama_cpp.weights import HOST, Placement

_LONGEST, _KEPT = 8, 3
# every layer is laid out: a few blocks stand for all in cycles, or something of an early layer stays alive through the later ones
_WHOLE = frozenset(("gemma4-assistant", "hrm_text", "rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7", "qwen4exp"))
_TYPED = ("ffn_up_exps.weight", "ffn_gate_exps.weight", "ffn_up_shexp.weight", "ffn_gate_shexp.weight")


def _signatures(hp: Hparams, placement: Placement) -> "list[tuple[object, ...]]":
    """What decides the operations of each layer and their devices; layers that are equal here have the same ones."""
    on_card = bool(placement.gpus)
    shared = any("shexp" in name for name in hp.tensors) if on_card else False
    keys: list[tuple[object, ...]] = []
    parts = layer_parts(hp)
    for il in range(hp.depth):
        streamed = on_card and (placement.layers[il] == HOST or placement.overridden or il in placement.strays)
        if streamed:
            tensors: object = tuple((suffix, dims, dtype, placement.tensors[_named(il, suffix)]) for suffix, dims, dtype in parts[il])
        else:
            tensors = tuple((suffix, dims, dtype if (shared and suffix.endswith(_TYPED)) else "") for suffix, dims, dtype in parts[il])
        keys.append(
            (
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
        )
    return keys


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
    if placement.walked and kept == _KEPT:
        return placement.walked
    if hp.arch in _WHOLE:
        return tuple(range(hp.depth))
    return _chosen(_numbered(_signatures(hp, placement)), len(placement.gpus), kept)


_GRAPHS: "dict[tuple[object, ...], tuple[Hparams, int]]" = {}
_MOST_GRAPHS = 4096
_COUNT = [0]


def graph_of(hp: Hparams, placement: Placement) -> int:
    """A number for what the graph takes from a placement: where two splits leave the same layers to lay out on the same devices, their buffers are the same.

    Meant for one card at most: over several, every layer is laid out.
    """
    if not placement.graph:
        keys = _signatures(hp, placement)
        placement.walked = tuple(range(hp.depth)) if hp.arch in _WHOLE else _chosen(_numbered(keys), len(placement.gpus), _KEPT)
        around = tuple((name, homes) for name, homes in placement.tensors.items() if (block_of(name) or (hp.layers,))[0] >= hp.layers)
        gpus = tuple((device.id, device.backend, device.compute_capability) for device in placement.gpus)
        key = (
            id(hp),
            tuple(keys[il] for il in placement.walked),
            tuple(placement.layers[hp.layers :]),
            placement.output,
            placement.full,
            placement.key[2:],
            around,
            gpus,
        )
        known = _GRAPHS.get(key)
        if known is None or known[0] is not hp:
            if len(_GRAPHS) >= _MOST_GRAPHS:
                _GRAPHS.clear()
            _COUNT[0] += 1  # never used twice, so that a number that was forgotten cannot mean another graph
            known = _GRAPHS[key] = (hp, _COUNT[0])
        placement.graph = known[1]
    return placement.graph


def _numbered(keys: "list[tuple[object, ...]]") -> "list[int]":
    known: dict[tuple[object, ...], int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


def _chosen(numbers: "list[int]", cards: int, kept: int) -> "tuple[int, ...]":
    count = len(numbers)
    if not count:
        raise Wanting("by its header the model has no layer besides those for next tokens")
    turn = 6 if cards > 1 else 2
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
