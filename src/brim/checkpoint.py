"""Opens whatever people call a model: recognises the form by its content, hands it to the one reader that knows it, and joins what belongs together.

Guarantees: the form is told by bytes, never by the name alone; only headers are read; every fault is one named refusal.
Where headers say which layers there are, the pure rooms in `shapes/` and `packing.py` turn them into a shape and logical counts; this room decides nothing about models.
"""

import os

from brim.errors import BadShards, NotACheckpoint
from brim.facts.dtypes import GGUF_FILE_TYPES
from brim.facts.model import Checkpoint
from brim.readers import gguf
from brim.readers.source import FileSource
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.model import Tensor
    from brim.seams import Source


def open_checkpoint(path: str, memory: str | None = None) -> Checkpoint:
    """The checkpoint at `path`: a file or a folder in any form that brim reads. Raises `Unreadable` or one `BadCheckpoint`.

    `memory` is a folder where the reader may keep where a long vocabulary ends (`readers/kept.py`); None: nothing is kept.
    """
    if os.path.isdir(path):
        from brim import forms

        return forms.folder_of(path)
    with FileSource(path) as source:
        return read(source, os.path.dirname(path), memory)


def read(source: "Source", folder: "str | None" = None, memory: "str | None" = None) -> Checkpoint:
    """The checkpoint that starts in `source`. `folder` is where its companions lie (other shards, a config); None: there are none to be had."""
    head = source.read(0, min(source.size, 512))
    if head[:4] == gguf.MAGIC:
        return _gguf(source, folder, memory)
    from brim import forms
    from brim.readers import onnx, safetensors, torch_zip

    if head[:4] == b"PK\3\4":
        return forms.torch_of([source], folder)
    if head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5":
        raise torch_zip.refuse_pickle(source.name)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] == b"{" and not safetensors.looks_like(head, source.size):
        return forms.json_of(source, folder)
    if safetensors.looks_like(head, source.size) or source.name.endswith(".safetensors"):
        return forms.safetensors_of([source], folder)
    if onnx.looks_like(head) or source.name.endswith(".onnx"):
        return forms.onnx_of(source, folder)
    if source.name.endswith(".toml"):
        return forms.toml_of(source)
    raise NotACheckpoint(f"{source.name}: is no checkpoint that brim knows (it starts with {head[:8]!r})")


def _remembered(source: "Source", memory: "str | None") -> gguf.Part:
    """One GGUF file, its vocabulary passed over by what is remembered of it. A memory that makes the reader stumble is not believed."""
    if memory is None or not isinstance(source, FileSource):
        return gguf.scan(source)
    from brim.errors import BadCheckpoint
    from brim.readers.kept import Memory

    kept = Memory(memory)
    known = kept.recall(source)
    try:
        part = gguf.scan(source, known=known)
    except BadCheckpoint:
        if not known:
            raise
        part = gguf.scan(source)
    if part.ends:
        kept.keep(source, part.ends)
    return part


def _gguf(source: "Source", folder: "str | None", memory: "str | None" = None) -> Checkpoint:
    """One GGUF file, or all shards of the split that it belongs to."""
    part = _remembered(source, memory)
    parts = [part]
    if part.split_count > 1:
        names = gguf.shard_names(source.name, part.split_no, part.split_count)
        missing = [name for name in names if folder is None or not os.path.lexists(name)]
        if missing:
            raise BadShards(
                f"{source.name}: {len(missing)} of {len(names)} shards are missing, first {os.path.basename(missing[0])!r}",
                hint="Fetch all shards of the split.",
            )
        parts = []
        for number, name in enumerate(names):
            with FileSource(name) as shard:
                parts.append(gguf.scan(shard, number))
    checkpoint = gguf.join(parts)
    kind = checkpoint.metadata.get("general.file_type")
    word = GGUF_FILE_TYPES.get(kind, "") if isinstance(kind, int) else ""
    return checkpoint.replace(quantisation=word or commonest(checkpoint.tensors))


def layered(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with its layers. Those of a GGUF are read here, on demand: llama.cpp prices a file without them, and starts faster for it."""
    if (
        not isinstance(checkpoint.shape, Missing)
        or checkpoint.role not in ("model", "mmproj")
        or not isinstance(checkpoint.metadata.get("general.architecture"), str)
    ):
        return checkpoint
    from brim.shapes.gguf import shape_of_gguf

    return checkpoint.replace(shape=shape_of_gguf(checkpoint.metadata, checkpoint.tensors, checkpoint.source))


def converted(checkpoint: Checkpoint) -> "tuple[Checkpoint, tuple[str, ...]]":
    """(checkpoint, notes) as llama.cpp would read it: a model in Hugging Face form becomes the GGUF that llama.cpp's converter would write, unquantised.

    A GGUF, a packed model and a family whose conversion is not known come back as they are.
    """
    if "general.architecture" in checkpoint.metadata or isinstance(checkpoint.shape, Missing):
        return checkpoint, ()
    packed = checkpoint.shape.quantisation
    if packed is not None and packed.method != "mxfp4":  # the converter keeps MXFP4 as it is
        return checkpoint, ()
    from brim.shapes.config import read as read_config
    from brim.shapes.converted import as_gguf

    dtype = commonest(checkpoint.tensors)
    dtype = dtype if dtype in ("BF16", "F16", "F32") else "BF16"
    shape, weights = read_config(dict(checkpoint.metadata), checkpoint.source)
    made = as_gguf(shape, weights, dtype) if not isinstance(shape, Missing) else shape
    if isinstance(made, Missing):
        return checkpoint, ()
    keys, tensors = made
    size = sum(tensor.stored_bytes for tensor in tensors)
    note = f"{checkpoint.source}: priced as the GGUF that llama.cpp's converter would write of it, in {dtype}; `brim solve --for quant` tells which mix fits"
    whole = checkpoint.replace(architecture=keys["general.architecture"], metadata=keys, tensors=tensors, file_bytes=size, quantisation=dtype)
    return _mixed(whole, checkpoint) or (whole, (note,))


def _mixed(whole: Checkpoint, asked: Checkpoint) -> "tuple[Checkpoint, tuple[str, ...]] | None":
    """A converted shape file in the mix that its `file_type` names; None where it names none that llama-quantize makes."""
    from brim.engines.llama_cpp.quantisation import ALIASES, MIXES, quantise

    mix = ALIASES.get(asked.quantisation, asked.quantisation)
    if asked.form != "shape" or mix not in MIXES or mix in ("F32", "F16", "BF16"):
        return None
    try:
        made = quantise(whole, mix)
    except ValueError:
        return None
    return made, (f"{asked.source}: priced as the GGUF that llama.cpp's converter and llama-quantize would write of it, in {mix}: {made.file_bytes} bytes",)


def commonest(tensors: "tuple[Tensor, ...]") -> str:
    """The number format that holds most bytes."""
    sums: dict[str, int] = {}
    for tensor in tensors:
        sums[tensor.dtype] = sums.get(tensor.dtype, 0) + tensor.stored_bytes
    return max(sums, key=lambda dtype: sums[dtype]) if sums else ""
