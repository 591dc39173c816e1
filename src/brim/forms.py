"""The forms of a model other than GGUF: folders, indexes, safetensors, PyTorch, ONNX, adapters, configs and shape files; loaded where one of them is met.

Guarantees: as in `checkpoint.py`, which tells the form. What a config alone implies and what lies beside it meet here; what they mean is decided in `shapes/` and `packing.py`.
"""

import os

from brim.checkpoint import commonest, open_checkpoint, read
from brim.errors import BadShards, NotACheckpoint, Unreadable, Usage
from brim.facts.model import Checkpoint
from brim.readers.source import FileSource
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.facts.model import Shape, Tensor, Weight
    from brim.seams import Source

_UNKNOWN = Missing(reason="not_supported", detail="no config.json beside the weights, so the layers are not known")


def folder_of(path: str) -> Checkpoint:
    """A folder: an adapter, a sharded or plain safetensors model, PyTorch files, a GGUF, an ONNX file, or a bare config."""
    from brim.readers import folder as rooms

    names = rooms.listing(path)
    if "adapter_config.json" in names:
        return _adapter(path, names)
    for index in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        if index in names:
            with FileSource(rooms.member(path, index)) as source:
                return _index(source, path)
    tensors = rooms.series(names, path)
    if len(tensors) == 1 or (tensors and "-of-" in tensors[0]):
        sources = [FileSource(rooms.member(path, name)) for name in tensors]
        try:
            return safetensors_of(list(sources), path)
        finally:
            for source in sources:
                source.close()
    return _single(path, names, tensors)


def _single(path: str, names: "list[str]", several: "list[str]") -> Checkpoint:
    """The one model file of a folder, where exactly one is a candidate."""
    from brim.readers import folder as rooms

    if "pytorch_model.bin" in names:
        with FileSource(rooms.member(path, "pytorch_model.bin")) as source:
            return read(source, path)
    files = [name for name in names if name.endswith((".gguf", ".onnx")) and "mmproj" not in name.lower()]
    firsts = [name for name in files if "-of-" not in name or "-00001-of-" in name] or files
    candidates = firsts + several
    if len(candidates) == 1:
        return open_checkpoint(rooms.member(path, candidates[0]))
    if candidates:
        raise Usage(
            f"{path}: holds {len(candidates)} models ({', '.join(candidates[:4])}{', …' if len(candidates) > 4 else ''})", hint="Name one of the files."
        )
    if "config.json" in names:
        with FileSource(rooms.member(path, "config.json")) as source:
            return read(source, path)
    raise NotACheckpoint(f"{path}: holds no model that brim knows ({len(names)} files)")


def json_of(source: "Source", folder: "str | None") -> Checkpoint:
    """A JSON file: an index, an adapter's config, a shape file or a Hugging Face config."""
    from brim.readers import shape_file, text

    document = text.read_json(source)
    if isinstance(document, dict):
        if "weight_map" in document:
            return _index(source, folder)
        if "peft_type" in document and folder is not None:
            from brim.readers import folder as rooms

            return _adapter(folder or ".", rooms.listing(folder or "."))
        if shape_file.looks_like(document):
            return _shaped(shape_file.parse(source.name, document))
        if "model_type" in document or "architectures" in document:
            return _config_only(source, document)
    raise NotACheckpoint(f"{source.name}: is JSON, but no index, shape file or model config")


def toml_of(source: "Source") -> Checkpoint:
    """A TOML file: a shape file."""
    from brim.readers import shape_file, text

    document = text.read_toml(source)
    if not shape_file.looks_like(document):
        raise NotACheckpoint(f"{source.name}: is TOML, but no shape file (no [metadata] and no [config])")
    return _shaped(shape_file.parse(source.name, document))


def _index(source: "Source", folder: "str | None") -> Checkpoint:
    """A sharded model, opened from its index: every shard that it names, and none besides."""
    from brim.readers import folder as rooms

    index = rooms.read_index(source)
    if folder is None:
        raise Unreadable(f"{source.name}: the shards that this index names are not at hand")
    place = folder or "."
    names = rooms.listing(place)
    rooms.check_present(index, names)
    rooms.check_extra(index, names)
    shards = [FileSource(rooms.member(place, name)) for name in index.shards]
    try:
        if index.shards[0].endswith(".safetensors"):
            return safetensors_of(list(shards), folder, index)
        return torch_of(list(shards), folder)
    finally:
        for shard in shards:
            shard.close()


def _beside(folder: "str | None", name: str = "config.json") -> "dict[str, Any]":
    """The config beside the weights, {} where there is none."""
    from brim.readers import folder as rooms

    path = None if folder is None else os.path.join(folder or ".", name)
    if path is None or not os.path.lexists(path):
        return {}
    with FileSource(rooms.member(folder or ".", name)) as source:
        return rooms.read_config(source)


def safetensors_of(sources: "list[Source]", folder: "str | None", index: "Any" = None) -> Checkpoint:
    """One or several safetensors files of one model, with the config beside them; held against the index that named them, where there is one."""
    from brim.packing import trimmed, unpack
    from brim.readers import folder as rooms
    from brim.readers import safetensors
    from brim.shapes.quantised import quantisation_of

    parts = [safetensors.scan(source, number) for number, source in enumerate(sources)]
    notes: list[str] = []
    held = {os.path.basename(part.name): [tensor.name for tensor in part.tensors] for part in parts}
    if index is not None:
        notes = rooms.check_tensors(index, held, sum(tensor.stored_bytes for part in parts for tensor in part.tensors))
    elif len(parts) > 1:
        rooms.check_unique(held, folder or ".")
    config = _beside(folder)
    tensors = tuple(tensor for part in parts for tensor in part.tensors)
    shape, weights = _told(config, parts[0].name) if config else (_UNKNOWN, ())
    tensors, layout, more = unpack(tensors, config, quantisation_of(config, parts[0].name))
    # positions and counters that a module saved beside its weights are no parameters
    tensors = tuple(tensor.replace(elements=0) if tensor.dtype in ("I64", "BOOL") and tensor.elements else tensor for tensor in tensors)
    if weights and not isinstance(shape, Missing):
        from brim.shapes.directory import beside, spelled

        if layout.startswith("exl"):
            tensors = trimmed(tensors, spelled(weights))
        shape = beside(shape, weights, tensors, packed=bool(layout))
    mlx = any(part.metadata.get("format") == "mlx" for part in parts) or layout == "mlx"
    return _joined("mlx" if mlx else "safetensors", parts, config, tensors, shape, layout, (*notes, *more))


def _joined(
    form: str, parts: "list[Any]", config: "dict[str, Any]", tensors: "tuple[Tensor, ...]", shape: "Any", layout: str, notes: "tuple[str, ...]"
) -> Checkpoint:
    """One checkpoint of the scanned files of a model with a Hugging Face config (or none)."""
    architecture = config.get("model_type")
    title = config.get("_name_or_path")
    first = parts[0].name
    parent = os.path.basename(os.path.dirname(os.path.abspath(first)))
    return Checkpoint(
        form=form,
        source=first,
        name=title if isinstance(title, str) and title else parent if config else os.path.basename(first),
        architecture=architecture if isinstance(architecture, str) else "",
        metadata=config,
        tensors=tensors,
        file_bytes=sum(part.file_bytes for part in parts),
        shape=shape,
        role="adapter" if tensors and all("lora_" in tensor.name for tensor in tensors) else "model",
        shards=tuple(part.name for part in parts) if len(parts) > 1 else (),
        quantisation=layout or commonest(tensors),
        caveats=notes,
    )


def torch_of(sources: "list[Source]", folder: "str | None") -> Checkpoint:
    """PyTorch files: storages only; what the parameters are, only a config beside them can say."""
    from brim.readers import torch_zip

    parts = [torch_zip.scan(source, number) for number, source in enumerate(sources)]
    config = _beside(folder)
    tensors = tuple(tensor for part in parts for tensor in part.tensors)
    note = "PyTorch file: sizes of its storages only; names, shapes and types stand in a pickle, which brim does not run"
    return _joined("torch", parts, config, tensors, _shape(config, parts[0].name), "", (note,))


def onnx_of(source: "Source", folder: "str | None") -> Checkpoint:
    """An ONNX graph and the files of external data beside it."""
    from brim.errors import Truncated
    from brim.readers import folder as rooms
    from brim.readers import onnx

    part = onnx.scan(source)
    sizes = [source.size]
    for name, claimed in part.external.items():
        if folder is None:
            raise Unreadable(f"{source.name}: its external data {name!r} is not at hand")
        with FileSource(rooms.within(folder or ".", name)) as data:
            if claimed > data.size:
                raise Truncated(f"{source.name}: its tensors claim {claimed} bytes of {name!r}, which has {data.size}")
            sizes.append(data.size)
    config = _beside(folder)
    architecture = config.get("model_type")
    return Checkpoint(
        form="onnx",
        source=source.name,
        name=os.path.basename(source.name),
        architecture=architecture if isinstance(architecture, str) else "",
        metadata=config,
        tensors=tuple(part.tensors),
        file_bytes=sum(sizes),
        shape=_shape(config, source.name),
        shards=(source.name, *part.external) if part.external else (),
        quantisation=commonest(tuple(part.tensors)),
        caveats=(f"ONNX graph of {part.nodes} nodes, written by {part.producer or 'an unnamed program'}, IR version {part.ir_version}",),
    )


def _adapter(path: str, names: "list[str]") -> Checkpoint:
    """A PEFT adapter: its own tensors, and the words of adapter_config.json."""
    from brim.readers import folder as rooms
    from brim.readers import safetensors, torch_zip

    config = _beside(path, "adapter_config.json")
    files = [name for name in ("adapter_model.safetensors", "adapter_model.bin") if name in names]
    if not files:
        raise BadShards(f"{path}: has an adapter_config.json, but no adapter_model.safetensors or .bin")
    with FileSource(rooms.member(path, files[0])) as source:
        head = source.read(0, min(source.size, 4))
        if files[0].endswith(".bin") and head[:1] == b"\x80":
            raise torch_zip.refuse_pickle(source.name)
        part: Any = torch_zip.scan(source) if head == b"PK\3\4" else safetensors.scan(source)
    base = config.get("base_model_name_or_path")
    kind = config.get("peft_type")
    checkpoint = _joined("peft", [part], config, tuple(part.tensors), Missing(reason="not_supported", detail="an adapter has no layers of its own"), "", ())
    return checkpoint.replace(
        role=str(kind).lower() if isinstance(kind, str) else "adapter",
        name=os.path.basename(os.path.abspath(path)),
        caveats=(f"adapter of {base}" if isinstance(base, str) else "adapter of an unnamed model",),
    )


def _config_only(source: "Source", config: "dict[str, Any]") -> Checkpoint:
    """A config without weights: the tensors are those that it implies, in its own number format."""
    shape, tensors, notes = _implied(config, source.name)
    name = config.get("_name_or_path")
    kind = config.get("model_type")
    return Checkpoint(
        form="config",
        source=source.name,
        name=name if isinstance(name, str) and name else os.path.basename(os.path.dirname(os.path.abspath(source.name))),
        architecture=kind if isinstance(kind, str) else "",
        metadata=config,
        tensors=tensors,
        file_bytes=sum(tensor.stored_bytes for tensor in tensors),
        shape=shape,
        quantisation=commonest(tensors),
        caveats=notes,
    )


def _shaped(checkpoint: Checkpoint) -> Checkpoint:
    """A shape file with its layers, where it carries a Hugging Face config; GGUF metadata goes the way of a GGUF file."""
    if "general.architecture" in checkpoint.metadata:
        return checkpoint if checkpoint.tensors else _listed(checkpoint)
    config = dict(checkpoint.metadata)
    if checkpoint.tensors or checkpoint.form != "shape":
        return checkpoint.replace(shape=_shape(config, checkpoint.source))
    shape, tensors, notes = _implied(config, checkpoint.source)
    if checkpoint.file_bytes or not tensors:
        return checkpoint.replace(shape=shape)
    return checkpoint.replace(shape=shape, tensors=tensors, file_bytes=sum(tensor.stored_bytes for tensor in tensors), caveats=notes)


def _listed(checkpoint: Checkpoint) -> Checkpoint:
    """A shape file without a directory gets the one that its header and `file_type` imply; of several, that whose bytes are nearest to `weights_bytes`."""
    from itertools import product

    from brim.engines.llama_cpp.quantisation import fused, quantise
    from brim.implied import variants

    wanted = checkpoint.file_bytes
    best: Checkpoint | None = None
    mixes = [checkpoint.quantisation or "F16", *(["MXFP4_MOE"] if checkpoint.architecture == "gpt-oss" and wanted else [])]  # gpt-oss was trained in MXFP4
    helped = (None, True) if wanted else (None,)  # an importance matrix changes some mixes; only the file's size tells
    bare = [checkpoint.replace(tensors=tensors, file_bytes=0, caveats=()) for tensors in variants(checkpoint.metadata)]
    eras = (False, True) if wanted and bare and fused(bare[0]) else (False,)  # so does the time when a file was made
    for plain, mix, imatrix, older in product(bare, mixes, helped, eras):
        try:
            made = quantise(plain, mix, imatrix=imatrix, older=older)
        except (KeyError, ValueError):
            return checkpoint
        if best is None or (wanted and _off(made.file_bytes, wanted) < _off(best.file_bytes, wanted)):
            best = made
    if best is None:
        return checkpoint
    note = f"{checkpoint.source}: lists no tensors; taken from its header as {best.quantisation}: {best.file_bytes} bytes"
    if wanted and wanted != best.file_bytes:
        note += f", its own word is {wanted}"
    return best.replace(file_bytes=wanted or best.file_bytes, caveats=(note,))


def _off(size: int, wanted: int) -> int:
    """How far a size is from the one that is told: to the byte, or else by no less than a file's header, which a told size may hold."""
    return abs(size - wanted) and max(abs(size - wanted), 1 << 14)


def _shape(config: "dict[str, Any]", name: str) -> "Shape | Missing":
    """The layers that a config tells."""
    if not config:
        return _UNKNOWN
    return _told(config, name)[0]


def _told(config: "dict[str, Any]", name: str) -> "tuple[Shape | Missing, tuple[Weight, ...]]":
    """(shape, weights) of a config."""
    from brim.shapes.config import read as read_config

    return read_config(config, name)


def _implied(config: "dict[str, Any]", name: str) -> "tuple[Shape | Missing, tuple[Tensor, ...], tuple[str, ...]]":
    """(shape, the tensors that a config implies, notes). Unpacked weights in the config's own number format."""
    from brim.facts.dtypes import SAFETENSORS_BITS
    from brim.facts.model import Tensor

    shape, weights = _told(config, name)
    if isinstance(shape, Missing):
        return shape, (), (f"{name}: no weights beside this config, and its layers are not known",)
    dtype = _FORMATS.get(str(config.get("dtype") or config.get("torch_dtype") or _inner(config).get("torch_dtype") or _inner(config).get("dtype")), "")
    notes = [f"{name}: no weights beside this config; sizes are those that it implies, in {dtype or 'BF16'}"]
    if not dtype:
        notes.append(f"{name}: the config names no number format; BF16 taken")
    if shape.quantisation is not None:
        notes.append(f"{name}: the config declares packed weights ({shape.quantisation.method}); sizes here are before packing")
    size = SAFETENSORS_BITS[dtype or "BF16"] // 8
    tensors: list[Tensor] = []
    offset = 0
    if shape.draft_layers:
        notes.append(f"{name}: layers for multi-token prediction ({shape.draft_layers}) that published files may carry are not counted")
    for weight in weights:
        if weight.tower == "draft":
            continue
        names = [weight.name] if weight.copies == 1 else [weight.name.replace("{}", str(number)) for number in range(weight.copies)]
        each = weight.elements // weight.copies
        for one in names:
            tensors.append(Tensor(name=one, dims=weight.dims, dtype=dtype or "BF16", offset=offset, stored_bytes=each * size, elements=each))
            offset += each * size
    return shape, tuple(tensors), tuple(notes)


_FORMATS = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float64": "F64",
    "torch.float32": "F32",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "fp16": "F16",
    "bf16": "BF16",
}


def _inner(config: "dict[str, Any]") -> "dict[str, Any]":
    text = config.get("text_config")
    return text if isinstance(text, dict) else {}
