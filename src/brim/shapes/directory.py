"""A config and the tensor directory beside it, held against each other: what the files hold wins, and every difference is said.

Guarantees: the counts of the answer are those of the directory; a missing, an extra or a differently shaped tensor is a sentence in `unusual`, as is a
head that is stored although tied, or left out although not; layers for multi-token prediction count only where the files carry them.
The experts of a layer may be stored each by itself, stacked, or turned round: as long as they are as many numbers, that is no difference.
Not covered: packed weights are held against the config by their count alone, because packing changes names and dims.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.model import Shape, Tensor, Weight


# Tensors that older versions of transformers saved although they are computed: positions, rotary frequencies, causal masks.
_COMPUTED = ("position_ids", "rotary_emb.inv_freq", "rotary_pos_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias")


def beside(shape: "Shape", weights: "tuple[Weight, ...]", tensors: "tuple[Tensor, ...]", *, packed: bool) -> "Shape":
    """`shape` with the directory's counts, ties and prediction layers, and with what differs. `tensors` carry logical element counts."""
    held = {tensor.name: tensor for tensor in tensors}
    wanted = _as_saved(spelled(weights), held)
    draft = {name for name, row in wanted.items() if row.tower == "draft"}
    notes: list[str] = []
    count = shape.draft_layers if draft & set(held) or packed else 0
    tied = _tied(shape, wanted, held, notes) if not packed else shape.tied_embeddings
    if not packed:
        notes += _differences(wanted, held, draft, tied=tied, known=isinstance(shape.parameters, int))
    total = sum(tensor.elements for tensor in tensors if tensor.name not in draft)
    active = shape.active_parameters
    if isinstance(active, int) and isinstance(shape.parameters, int):
        active += total - shape.parameters
    return shape.replace(
        parameters=total if total else shape.parameters,
        active_parameters=active if total else shape.active_parameters,
        draft_layers=count,
        tied_embeddings=tied,
        unusual=(*shape.unusual, *notes),
    )


def spelled(weights: "tuple[Weight, ...]") -> "dict[str, Weight]":
    """Every tensor by its name, experts spelled out."""
    made: dict[str, Weight] = {}
    for row in weights:
        for number in range(row.copies):
            made[row.name.replace("{}", str(number))] = row
    return made


def _as_saved(wanted: "dict[str, Weight]", held: "dict[str, Tensor]") -> "dict[str, Weight]":
    """`wanted` by the names of transformers 5 where it wrote the files: it leaves out a level of CLIP's and SigLIP's names that older files have."""
    for place in ("vision_tower.", "vision_model."):
        if any(place + "vision_model." in name for name in wanted) and any(place + "embeddings." in name for name in held):
            wanted = {name if name in held else name.replace(place + "vision_model.", place): row for name, row in wanted.items()}
    return wanted


def _tied(shape: "Shape", wanted: "dict[str, Weight]", held: "dict[str, Tensor]", notes: "list[str]") -> bool:
    """Whether embedding and head share one tensor in the files."""
    heads = [name for name in held if name.endswith(("lm_head.weight", "embed_out.weight")) and "shared_head" not in name]
    if shape.tied_embeddings and heads:
        notes.append(f"{heads[0]} is stored although the config ties it to the embedding")
        return True
    lacking = [name for name, row in wanted.items() if row.role == "lm_head" and row.op == "linear" and row.tower != "draft" and name not in held]
    if lacking and not heads:
        notes.append(f"{lacking[0]} is not in the files although the config does not tie it to the embedding")
        return True
    return shape.tied_embeddings


def _alike(wanted: "dict[str, Weight]", held: "dict[str, Tensor]") -> "tuple[str, ...]":
    """The places (`….experts.`) whose tensors are named or shaped otherwise than expected, and hold exactly as many numbers all the same."""
    sums: dict[str, int] = {}
    for sign, rows in ((1, wanted), (-1, held)):
        for name, row in rows.items():
            place, found, _ = name.rpartition(".experts.")
            if found:
                each = row.elements // getattr(row, "copies", 1)
                sums[place + found] = sums.get(place + found, 0) + sign * each
    return tuple(place for place, left in sums.items() if not left)


def _differences(wanted: "dict[str, Weight]", held: "dict[str, Tensor]", draft: "set[str]", *, tied: bool, known: bool = True) -> "list[str]":
    """What differs, in words; where a tower is not `known`, tensors that the config does not imply are its."""
    alike = _alike(wanted, held)
    lacking = [name for name, row in wanted.items() if name not in held and name not in draft and row.op != "buffer" and not (tied and row.role == "lm_head")]
    lacking = [
        name for name in lacking if not name.startswith(alike) and not name.endswith(".embed_positions.weight")
    ]  # some classes compute and do not save them
    more = [name for name in held if name not in wanted and not (tied and name.endswith(("lm_head.weight", "embed_out.weight"))) and not name.startswith(alike)]
    other = [name for name, row in wanted.items() if name in held and held[name].dims != row.dims and not name.startswith(alike)]
    made = []
    if more and not known:
        made.append(f"{len(more)} tensors in the files are no part of the text model: taken for the towers that are not known to brim, first {more[0]}")
        more = []
    computed = [name for name in more if name.endswith(_COMPUTED)]
    more = [name for name in more if not name.endswith(_COMPUTED)]
    if computed:
        made.append(f"{len(computed)} tensors in the files are no weights, first {computed[0]}")
    if lacking:
        made.append(f"{len(lacking)} tensors that the config implies are not in the files, first {lacking[0]}")
    if more:
        made.append(f"{len(more)} tensors in the files are not implied by the config, first {more[0]}")
    if other:
        made.append(f"{len(other)} tensors are shaped differently than the config implies, first {other[0]}: {held[other[0]].dims} for {wanted[other[0]].dims}")
    return made
