"""What the fuzzers throw bytes at: one function a form, which may only return or raise a `BadCheckpoint` (or `Unreadable` for a companion that is not at hand)."""

from brim.anatomy import describe
from brim.checkpoint import read
from brim.errors import BadCheckpoint, Unreadable
from brim.facts.model import Checkpoint
from brim.packing import unpack
from brim.readers import folder, gguf, onnx, safetensors, shape_file, text, torch_zip
from brim.readers.source import MemorySource

REFUSALS = (BadCheckpoint, Unreadable)


def _gguf(data: bytes) -> None:
    checkpoint = gguf.read(MemorySource("f.gguf", data))
    _whole(checkpoint, len(data))


def _safetensors(data: bytes) -> None:
    part = safetensors.scan(MemorySource("f.safetensors", data))
    assert sum(tensor.stored_bytes for tensor in part.tensors) <= len(data)
    unpack(tuple(part.tensors), {})


def _onnx(data: bytes) -> None:
    part = onnx.scan(MemorySource("f.onnx", data))
    assert sum(tensor.stored_bytes for tensor in part.tensors if tensor.shard == 0) <= len(data) * 33


def _torch(data: bytes) -> None:
    part = torch_zip.scan(MemorySource("f.pt", data))
    assert sum(tensor.stored_bytes for tensor in part.tensors) <= len(data)


def _index(data: bytes) -> None:
    index = folder.read_index(MemorySource("i.json", data))
    assert all(folder.plain_name(name) for name in index.shards)


def _shape(data: bytes) -> None:
    document = text.read_json(MemorySource("s.json", data))
    if shape_file.looks_like(document):
        checkpoint = shape_file.parse("s.json", document)
        describe(checkpoint)
        assert shape_file.parse("s.json", shape_file.compose(checkpoint)).tensors == checkpoint.tensors


def _toml(data: bytes) -> None:
    document = text.read_toml(MemorySource("s.toml", data))
    if shape_file.looks_like(document):
        describe(shape_file.parse("s.toml", document))


def _any(data: bytes) -> None:
    if data:
        describe(read(MemorySource("model", data)))


def _whole(checkpoint: Checkpoint, size: int) -> None:
    assert sum(tensor.stored_bytes for tensor in checkpoint.tensors) <= size
    describe(checkpoint)


TARGETS = {"gguf": _gguf, "safetensors": _safetensors, "onnx": _onnx, "torch": _torch, "index": _index, "shape": _shape, "toml": _toml, "any": _any}


def one(target: str, data: bytes) -> bool:
    """True where the reader took the bytes, False where it refused them; anything else is a finding."""
    try:
        TARGETS[target](data)
    except REFUSALS:
        return False
    return True
