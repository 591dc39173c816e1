"""What `brim inspect` prints, as text and as `brim.inspect/1`: values in, characters out; no number is computed here but shares of given ones."""

from brim.reports.text import clean, size, table
from brim.units import format_bytes
from brim.values import Missing, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.anatomy import Anatomy, Slice
    from brim.facts.model import Checkpoint, Tensor

_LONGEST = 160


def text(checkpoint: "Checkpoint", anatomy: "Anatomy", *, tensors: bool, explain: bool) -> str:
    """The answer to "what is in this model?" for a person."""
    rows = [
        ("architecture", checkpoint.architecture or "not told"),
        (
            "form",
            checkpoint.form
            + (f", {len(checkpoint.shards)} shards" if checkpoint.shards else "")
            + (f", {checkpoint.role}" if checkpoint.role != "model" else ""),
        ),
        ("parameters", _count(anatomy.parameters) + _active(anatomy)),
        ("layers", anatomy.picture or "not known"),
        ("context", f"{anatomy.context_trained} tokens as trained" if isinstance(anatomy.context_trained, int) else "not told"),
        ("quantisation", checkpoint.quantisation or "none"),
        ("weights", f"{size(anatomy.weights_bytes)} in {len(checkpoint.tensors)} tensors; files {size(checkpoint.file_bytes)}"),
    ]
    width = max(len(key) for key, _ in rows)
    lines = [clean(checkpoint.name), *(f"  {key.ljust(width)}  {clean(value)}" for key, value in rows)]
    for title, slices in (("by role", anatomy.by_role), ("by format", anatomy.by_format)):
        if slices:
            lines.extend(["", *_slices(title, slices, anatomy.weights_bytes)])
    if anatomy.unusual:
        lines.extend(["", "unusual", *(f"  {clean(note)}" for note in anatomy.unusual)])
    if explain:
        lines.extend(["", *_explained(checkpoint)])
    if tensors:
        lines.extend(["", *_tensors(checkpoint.tensors)])
    return "\n".join(lines)


def _count(value: "int | Missing") -> str:
    if isinstance(value, Missing):
        return f"unknown ({value.detail})"
    short = f" ({value / 1e9:.2f} B)" if value >= 10**9 else f" ({value / 1e6:.1f} M)" if value >= 10**6 else ""
    return f"{value}{short}"


def _active(anatomy: "Anatomy") -> str:
    if isinstance(anatomy.active_parameters, Missing) or anatomy.active_parameters == anatomy.parameters:
        return ""
    return f", active {_count(anatomy.active_parameters)}"


def _slices(title: str, slices: "tuple[Slice, ...]", whole: int) -> list[str]:
    rows: list[tuple[str, ...]] = [(title, "tensors", "bytes", "size", "share", "parameters")]
    for part in slices:
        share = f"{100 * part.stored_bytes / whole:.1f} %" if whole else "-"
        rows.append((part.word, str(part.tensors), str(part.stored_bytes), format_bytes(part.stored_bytes), share, str(part.elements)))
    return table(rows, right=(1, 2, 3, 4, 5))


def _explained(checkpoint: "Checkpoint") -> list[str]:
    lines = ["where from", f"  header read from {clean(checkpoint.source)}"]
    lines.extend(f"  shard {number}: {clean(name)}" for number, name in enumerate(checkpoint.shards))
    lines.append("  parameters: logical elements of the tensor directory; sizes: bytes that the files hold for each tensor")
    shape = checkpoint.shape
    lines.append(
        f"  layers: {clean(shape.detail)}" if isinstance(shape, Missing) else "  layers: derived from the metadata below and checked against the tensors' names"
    )
    lines.append("metadata")
    for key, value in checkpoint.metadata.items():
        words = str(value)
        lines.append(f"  {clean(key)} = {clean(words[:_LONGEST])}{' …' if len(words) > _LONGEST else ''}")
    return lines


def _tensors(tensors: "tuple[Tensor, ...]") -> list[str]:
    rows: list[tuple[str, ...]] = [("tensor", "type", "dims", "bytes", "parameters", "shard")]
    for tensor in tensors:
        rows.append(
            (clean(tensor.name), tensor.dtype, " × ".join(map(str, tensor.dims)) or "-", str(tensor.stored_bytes), str(tensor.elements), str(tensor.shard))
        )
    return table(rows, right=(3, 4, 5))


def document(checkpoint: "Checkpoint", anatomy: "Anatomy", *, tensors: bool) -> "dict[str, Any]":
    """`brim.inspect/1`."""
    made = {
        "schema": "brim.inspect/1",
        "name": checkpoint.name,
        "form": checkpoint.form,
        "role": checkpoint.role,
        "architecture": checkpoint.architecture,
        "source": checkpoint.source,
        "shards": list(checkpoint.shards),
        "file_bytes": checkpoint.file_bytes,
        "weights_bytes": anatomy.weights_bytes,
        "tensor_count": len(checkpoint.tensors),
        "quantisation": checkpoint.quantisation,
        "parameters": plain(anatomy.parameters),
        "active_parameters": plain(anatomy.active_parameters),
        "context_trained": plain(anatomy.context_trained),
        "layers": anatomy.picture,
        "shape": plain(checkpoint.shape),
        "by_role": plain(anatomy.by_role),
        "by_format": plain(anatomy.by_format),
        "unusual": list(anatomy.unusual),
    }
    if tensors:
        made["tensors"] = plain(checkpoint.tensors)
    return made
