"""Small good files of every form, made from fixed numbers: where fuzzers start, and what the hostile corpus spoils."""

import io
import json
import struct
import zipfile


def text(words: str, order: str = "<") -> bytes:
    """A GGUF string."""
    raw = words.encode()
    return struct.pack(order + "Q", len(raw)) + raw


def value(item: object, order: str = "<") -> bytes:
    """A GGUF value with its type tag."""
    if isinstance(item, bool):
        return struct.pack(order + "I?", 7, item)
    if isinstance(item, int):
        return struct.pack(order + "II", 4, item)
    if isinstance(item, float):
        return struct.pack(order + "If", 6, item)
    if isinstance(item, str):
        return struct.pack(order + "I", 8) + text(item, order)
    assert isinstance(item, list)
    if item and isinstance(item[0], str):
        return struct.pack(order + "IIQ", 9, 8, len(item)) + b"".join(text(word, order) for word in item)
    return struct.pack(f"{order}IIQ{len(item)}i", 9, 5, len(item), *item)


PAIRS = {
    "general.architecture": "llama",
    "general.name": "small",
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.rope.freq_base": 10000.0,
    "llama.use": True,
    "llama.attention.head_count_kv": [1, 2, 3],
    "tokenizer.ggml.tokens": ["<s>", "a", "", "bcd"],
}
ROWS = [("token_embd.weight", (32, 4), 0, 512), ("blk.0.attn_q.weight", (32, 32), 8, 1088), ("output_norm.weight", (32,), 0, 128)]


def gguf(
    pairs: dict[str, object] | None = None,
    rows: list[tuple[str, tuple[int, ...], int, int]] | None = None,
    *,
    order: str = "<",
    version: int = 3,
    alignment: int = 32,
    offsets: list[int] | None = None,
) -> bytes:
    """A GGUF file. `rows` are (name, dims, type number, bytes)."""
    pairs, rows = PAIRS if pairs is None else pairs, ROWS if rows is None else rows
    head = b"GGUF" + struct.pack(order + "IQQ", version, len(rows), len(pairs))
    head += b"".join(text(key, order) + value(item, order) for key, item in pairs.items())
    place, places = 0, []
    for _, _, _, size in rows:
        places.append(place)
        place += -(-size // alignment) * alignment
    for number, (name, dims, code, _) in enumerate(rows):
        offset = places[number] if offsets is None else offsets[number]
        head += text(name, order) + struct.pack(f"{order}I{len(dims)}Q", len(dims), *dims) + struct.pack(order + "IQ", code, offset)
    return head + bytes(-len(head) % alignment) + bytes(place)


def safetensors(header: object = None, data: bytes | None = None) -> bytes:
    """A safetensors file; the default has two tensors of different dtypes."""
    if header is None:
        header = {
            "__metadata__": {"format": "pt"},
            "model.embed.weight": {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]},
            "model.q.weight": {"dtype": "F4", "shape": [4, 2], "data_offsets": [32, 36]},
        }
        data = bytes(36)
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + (data or b"")


def varint(number: int) -> bytes:
    """A protobuf varint."""
    made = b""
    while number > 0x7F:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


def field(number: int, body: bytes | int) -> bytes:
    """A protobuf field: a varint for a number, length-delimited for bytes."""
    if isinstance(body, int):
        return varint(number << 3) + varint(body)
    return varint(number << 3 | 2) + varint(len(body)) + body


def onnx_tensor(name: str, dims: tuple[int, ...], code: int, raw: bytes | None = None, **outside: str) -> bytes:
    """A TensorProto."""
    made = b"".join(field(1, dim) for dim in dims) + field(2, code) + field(8, name.encode())
    if raw is not None:
        made += field(9, raw)
    for key, words in outside.items():
        made += field(13, field(1, key.encode()) + field(2, words.encode()))
    return made + (field(14, 1) if outside else b"")


def onnx(*tensors: bytes, nodes: bytes = b"") -> bytes:
    """A ModelProto with these initialisers."""
    if not tensors:
        tensors = (onnx_tensor("w", (4, 2), 1, bytes(32)), onnx_tensor("b", (3,), 21, bytes(2)))
        nodes = field(
            1,
            field(1, b"x")
            + field(1, b"w")
            + field(4, b"MatMulNBits")
            + field(5, field(1, b"K") + field(3, 8))
            + field(5, field(1, b"t") + field(5, onnx_tensor("c", (1,), 7, bytes(8)))),
        )
    graph = nodes + field(2, b"g") + b"".join(field(5, tensor) for tensor in tensors)
    return field(1, 10) + field(2, b"test") + field(7, graph)


def torch_zip(records: dict[str, bytes] | None = None, method: int = zipfile.ZIP_STORED) -> bytes:
    """A PyTorch archive."""
    held = (
        {"archive/data.pkl": b"\x80\2}.", "archive/byteorder": b"little", "archive/data/0": bytes(64), "archive/data/1": bytes(16), "archive/version": b"3\n"}
        if records is None
        else records
    )
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", method) as archive:
        for name, data in held.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return memory.getvalue()


def torch_zip64() -> bytes:
    """A PyTorch archive whose directory uses the 64-bit records, as files above 4 GiB do."""
    limit, zipfile.ZIP64_LIMIT = zipfile.ZIP64_LIMIT, 1
    try:
        return torch_zip()
    finally:
        zipfile.ZIP64_LIMIT = limit


INDEX = {
    "metadata": {"total_size": 36},
    "weight_map": {"model.embed.weight": "model-00001-of-00002.safetensors", "model.q.weight": "model-00002-of-00002.safetensors"},
}
SHAPE = {
    "name": "small",
    "file_type": "Q4_K_M",
    "metadata": {"general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 64},
    "tensors": [["token_embd.weight", [256, 4], "Q4_K"], ["packed", [4], "U8", 4, 8]],
    "weights_bytes": 580,
}
TOML = 'name = "small"\nfile_type = "F16"\ntensors = [["token_embd.weight", [32, 4], "F16"]]\n[metadata]\n"general.architecture" = "llama"\n"llama.context_length" = 64\n'


def seeds() -> dict[str, list[bytes]]:
    """Good files by fuzz target."""
    index, shape = json.dumps(INDEX).encode(), json.dumps(SHAPE).encode()
    made = {
        "gguf": [
            gguf(),
            gguf(order=">"),
            gguf(version=2),
            gguf({"general.architecture": "llama", "general.alignment": 64}, ROWS, alignment=64),
            gguf({"general.architecture": "llama", "tokenizer.ggml.tokens": [f"t{number}" * (number % 4) for number in range(80)]}),
        ],
        "safetensors": [safetensors()],
        "onnx": [onnx()],
        "torch": [torch_zip(), torch_zip64()],
        "index": [index],
        "shape": [shape, json.dumps({"config": {"model_type": "llama", "hidden_size": 8}, "weights_bytes": 12}).encode()],
        "toml": [TOML.encode()],
    }
    made["any"] = [seed for held in made.values() for seed in held]
    return made
