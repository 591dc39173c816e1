"""Reads and writes shape files (DESIGN.md, section 6): a checkpoint's facts without its weights, as JSON or TOML.

Form: `{"name", "file_type", "metadata": {GGUF key: value}, "tensors": [[name, [dims], type], …], "weights_bytes"}`, or `"config": {HF keys}` in place of `metadata`.
`dims` are in ggml's order. A row may go on with the stored bytes and the logical elements, where these do not follow from type and dims (packed tensors).
Optional: `form` (what it was written from), `role`, `file_bytes`, `quantisation`. Guarantees: `parse(compose(x))` keeps every fact that a plan is priced from.
"""

from brim.errors import BadHeader, BadTensor
from brim.facts.dtypes import GGML_BLOCKS, SAFETENSORS_BITS, packed_bytes
from brim.facts.model import Checkpoint, Tensor
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_TENSORS = 200_000
MAX_DIMS = 64
_MOST = (1 << 63) - 1
_KEPT_STRINGS = 64
_ARCHITECTURE = "general.architecture"
_NAMELESS = ("onnx", "torch", "safetensors", "mlx", "peft")  # forms whose files need not say what they are


def looks_like(document: object) -> bool:
    """Whether a decoded JSON or TOML document is a shape file."""
    return (
        isinstance(document, dict) and (isinstance(document.get("metadata"), dict) or isinstance(document.get("config"), dict)) and "weight_map" not in document
    )


def parse(name: str, document: "dict[str, Any]") -> Checkpoint:
    """The checkpoint that a shape file describes. Raises one `BadCheckpoint` that names the file, the field and the fault."""
    config = document.get("config")
    metadata = config if isinstance(config, dict) else _lengths(document.get("metadata"))
    tensors = _tensors(name, document.get("tensors", []))
    held = sum(tensor.stored_bytes for tensor in tensors)
    weights = _count(name, document, "weights_bytes", held)
    caveats = []
    if tensors and weights != held:
        caveats.append(f"{name}: claims {weights} bytes of weights, its tensors are {held}")
    if not tensors:
        caveats.append(
            f"{name}: has no tensor directory; the weights are {weights} bytes by its own word" if weights else f"{name}: says nothing about its weights"
        )
    architecture = config.get("model_type") if isinstance(config, dict) else metadata.get(_ARCHITECTURE)
    if (not isinstance(architecture, str) or not architecture) and document.get("form") in _NAMELESS:
        architecture = ""
    if not isinstance(architecture, str) or not (architecture or document.get("form") in _NAMELESS):
        raise BadHeader(f"{name}: {'config.model_type' if isinstance(config, dict) else 'metadata.' + _ARCHITECTURE} is missing or no string")
    return Checkpoint(
        form="shape",
        source=name,
        name=_word(document, "name") or _word(metadata, "general.name") or name.rsplit("/", 1)[-1],
        architecture=architecture,
        metadata=metadata,
        tensors=tuple(tensors),
        file_bytes=_count(name, document, "file_bytes", held if tensors else weights),
        shape=Missing(reason="not_supported", detail="layers are not derived yet"),
        role=_word(document, "role") or "model",
        quantisation=_word(document, "quantisation") or _word(document, "file_type"),
        caveats=tuple(caveats),
    )


def compose(checkpoint: Checkpoint) -> "dict[str, Any]":
    """The shape file of a checkpoint as a JSON-able document."""
    words = {key: value for key, value in checkpoint.metadata.items() if _portable(value)}
    hugging = _ARCHITECTURE not in checkpoint.metadata
    if hugging and checkpoint.architecture:
        words.setdefault("model_type", checkpoint.architecture)
    return {
        "name": checkpoint.name,
        "form": checkpoint.form,
        "role": checkpoint.role,
        "file_type": checkpoint.quantisation,
        "config" if hugging else "metadata": words,
        "weights_bytes": sum(tensor.stored_bytes for tensor in checkpoint.tensors),
        "file_bytes": checkpoint.file_bytes,
        "tensors": [_row(tensor) for tensor in checkpoint.tensors],
    }


def _row(tensor: Tensor) -> "list[Any]":
    row: list[Any] = [tensor.name, list(tensor.dims), tensor.dtype]
    try:
        plain = _measure("", tensor.name, tensor.dims, tensor.dtype) == (tensor.stored_bytes, tensor.elements)
    except BadTensor:
        plain = False
    return row if plain else [*row, tensor.stored_bytes, tensor.elements]


def _portable(value: object) -> bool:
    """Whether JSON and TOML can carry a value: no NaN, no infinity."""
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    if isinstance(value, list):
        return all(_portable(item) for item in value)
    return True


def _tensors(name: str, rows: "Any") -> "list[Tensor]":
    if not isinstance(rows, list) or len(rows) > MAX_TENSORS:
        raise BadHeader(f"{name}: tensors must be a list of at most {MAX_TENSORS} rows")
    made: list[Tensor] = []
    seen: set[str] = set()
    offset = 0
    for number, row in enumerate(rows):
        if not isinstance(row, list) or not 3 <= len(row) <= 5 or not isinstance(row[0], str) or not isinstance(row[1], list) or not isinstance(row[2], str):
            raise BadTensor(f"{name}: tensor {number} must be [name, [dims], type]")
        tensor, dims, dtype = row[0], row[1], row[2]
        if tensor in seen:
            raise BadTensor(f"{name}: tensor {tensor[:200]!r} stands twice")
        seen.add(tensor)
        if len(dims) > MAX_DIMS or not all(type(dim) is int and 0 <= dim <= _MOST for dim in dims):
            raise BadTensor(f"{name}: tensor {tensor[:200]!r} has impossible dimensions {str(dims)[:80]}")
        if len(row) > 3:
            if not all(type(count) is int and 0 <= count <= _MOST for count in row[3:]):
                raise BadTensor(f"{name}: tensor {tensor[:200]!r} has impossible counts {str(row[3:])[:80]}")
            stored, elements = row[3], row[4] if len(row) > 4 else 0
        else:
            stored, elements = _measure(name, tensor, tuple(dims), dtype)
        made.append(Tensor(name=tensor, dims=tuple(dims), dtype=dtype, offset=offset, stored_bytes=stored, elements=elements))
        offset += stored
    return made


def _measure(name: str, tensor: str, dims: "tuple[int, ...]", dtype: str) -> "tuple[int, int]":
    """(stored bytes, elements) from type and dims; ggml's names first, then those of safetensors."""
    elements = 1
    for dim in dims:
        elements *= dim
        if elements > _MOST:
            raise BadTensor(f"{name}: tensor {tensor[:200]!r} has impossible dimensions {list(dims)[:8]}")
    block, size = GGML_BLOCKS.get(dtype, (0, 0))
    if block:
        if (dims[0] if dims else 1) % block:
            raise BadTensor(f"{name}: tensor {tensor[:200]!r}: a row of {dims[0] if dims else 1} is no multiple of the {block}-value blocks of {dtype}")
        return elements // block * size, elements
    bits = SAFETENSORS_BITS.get(dtype)
    if bits is None:
        raise BadTensor(f"{name}: tensor {tensor[:200]!r} has the unknown type {dtype[:40]!r}")
    return packed_bytes(bits, elements), elements


def _lengths(metadata: "Any") -> "dict[str, Any]":
    """Metadata as a reader of the real file would give it: a vocabulary that was written out counts by its length only."""
    if not isinstance(metadata, dict):
        return {}
    return {
        **{key: value for key, value in metadata.items() if not _vocabulary(key, value)},
        **{key + ".length": len(value) for key, value in metadata.items() if _vocabulary(key, value)},
    }


def _vocabulary(key: str, value: object) -> bool:
    return isinstance(value, list) and (key.startswith("tokenizer.") or (len(value) > _KEPT_STRINGS and isinstance(value[0], str)))


def _count(name: str, document: "dict[str, Any]", key: str, default: int) -> int:
    value = document.get(key, default)
    if type(value) is not int or not 0 <= value <= _MOST:
        raise BadHeader(f"{name}: {key} is {str(value)[:40]}, not a number of bytes")
    return value


def _word(document: "dict[str, Any]", key: str) -> str:
    value = document.get(key)
    return value[:200] if isinstance(value, str) else ""
