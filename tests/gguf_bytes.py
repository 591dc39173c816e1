"""GGUF files made to measure, for tests and benchmarks: real headers, and holes where the weights would be."""

import os
import struct

from brim.facts.dtypes import GGML_TYPES, ggml_tensor_bytes

CODES = {name: code for code, (name, _, _) in GGML_TYPES.items()}
Tensors = list[tuple[str, list[int], str]]


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(item: object) -> bytes:
    """One metadata value with its type tag in front."""
    if isinstance(item, bool):
        return struct.pack("<IB", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item) if 0 <= item < 2**32 else struct.pack("<Iq", 11, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    assert isinstance(item, list)
    assert item
    if isinstance(item[0], str):
        return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(text, item))
    if isinstance(item[0], bool):
        return struct.pack("<IIQ", 9, 7, len(item)) + bytes(item)
    if isinstance(item[0], float):
        return struct.pack("<IIQ", 9, 6, len(item)) + struct.pack(f"<{len(item)}f", *item)
    return struct.pack("<IIQ", 9, 5, len(item)) + struct.pack(f"<{len(item)}i", *item)


def header(metadata: dict[str, object], tensors: Tensors, *, version: int = 3, alignment: int = 32) -> tuple[bytes, int]:
    """(header padded to the alignment, bytes of tensor data behind it)."""
    rows, offset = [], 0
    for name, dims, kind in tensors:
        rows.append(text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims) + struct.pack("<IQ", CODES[kind], offset))
        offset += -(-ggml_tensor_bytes(kind, tuple(dims)) // alignment) * alignment
    raw = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    raw += b"".join(text(key) + value(item) for key, item in metadata.items()) + b"".join(rows)
    return raw.ljust(-(-len(raw) // alignment) * alignment, b"\0"), offset


def write_sparse(path: str, metadata: dict[str, object], tensors: Tensors) -> int:
    """Write a file of true logical size whose tensor data is a hole; returns that size."""
    raw, data = header(metadata, tensors)
    with open(path, "wb") as file:
        file.write(raw)
    os.truncate(path, len(raw) + data)
    return len(raw) + data


def vocabulary(tokens: int, merges: int) -> dict[str, object]:
    """A synthetic BPE vocabulary of a given size."""
    names = [f"tok{i:06x}" for i in range(tokens)]
    pairs = [f"{names[i % tokens]} {names[(i * 7 + 1) % tokens]}" for i in range(merges)]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": names, "tokenizer.ggml.token_type": [1] * tokens, "tokenizer.ggml.merges": pairs}


def dense_llama(
    *, layers: int, width: int, heads: int, kv_heads: int, feed_forward: int, vocab: int, context: int = 8192, kind: str = "Q8_0"
) -> tuple[dict[str, object], Tensors]:
    """(metadata, tensors) of a llama of this shape with a separate output matrix."""
    metadata: dict[str, object] = {
        "general.architecture": "llama", "general.name": "made to measure", "llama.block_count": layers, "llama.context_length": context,
        "llama.embedding_length": width, "llama.feed_forward_length": feed_forward, "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads, "llama.vocab_size": vocab, "llama.rope.dimension_count": width // heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "none",
    }  # fmt: skip
    head = width // heads
    tensors = [("token_embd.weight", [width, vocab], kind), ("output_norm.weight", [width], "F32"), ("output.weight", [width, vocab], kind)]
    for i in range(layers):
        block = f"blk.{i}."
        tensors += [
            (block + "attn_norm.weight", [width], "F32"), (block + "attn_q.weight", [width, width], kind),
            (block + "attn_k.weight", [width, kv_heads * head], kind), (block + "attn_v.weight", [width, kv_heads * head], kind),
            (block + "attn_output.weight", [width, width], kind), (block + "ffn_norm.weight", [width], "F32"),
            (block + "ffn_gate.weight", [width, feed_forward], kind), (block + "ffn_up.weight", [width, feed_forward], kind),
            (block + "ffn_down.weight", [feed_forward, width], kind),
        ]  # fmt: skip
    return metadata, tensors
