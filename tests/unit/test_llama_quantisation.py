"""The quantiser's table: which type each tensor gets, against tensor tables that llama.cpp's own quantiser wrote (b11434)."""

import json
import os

import pytest

from brim.engines.llama_cpp.quantisation import ALIASES, FILE_TYPES, MIXES, is_quantised, quantise, tensor_types
from brim.facts.dtypes import GGML_BLOCKS, ggml_tensor_bytes
from brim.facts.model import Checkpoint, Tensor
from brim.values import Missing

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "golden", "llama_quantisation.jsonl")


def layers(text: str) -> list[int]:
    """`0-2,7` → [0, 1, 2, 7]."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def unpack(row: dict) -> Checkpoint:
    """One golden row as a checkpoint."""
    tensors = []
    for line in row["tensors"]:
        name, shape, dtype, *where = line.split()
        dims = tuple(int(n) for n in shape.split("x"))
        names = [f"blk.{i}.{name[1:]}" for i in layers(where[0])] if where else [name]
        tensors += [Tensor(name=n, dims=dims, dtype=dtype, offset=0, stored_bytes=ggml_tensor_bytes(dtype, dims), elements=0) for n in names]
    return Checkpoint(
        form="shape", source="golden", name=row["name"], architecture=row["metadata"]["general.architecture"], metadata=row["metadata"], tensors=tuple(tensors),
        file_bytes=sum(t.stored_bytes for t in tensors) + 1000, shape=Missing(reason="not_supported"),
    )  # fmt: skip


with open(GOLDEN, encoding="utf-8") as file:
    ROWS = [json.loads(line) for line in file]
MODELS = {row["name"]: (unpack(row), row) for row in ROWS}


@pytest.mark.parametrize("name", list(MODELS))
def test_the_tensor_table_is_the_quantisers(name: str) -> None:
    """Every tensor of a real table gets the type that llama.cpp's quantiser gave it."""
    checkpoint, row = MODELS[name]
    predicted = tensor_types(checkpoint, row["mix"])
    assert {t.name: predicted[t.name] for t in checkpoint.tensors} == {t.name: t.dtype for t in checkpoint.tensors}


DEVICE_SIZES = [(name, mix, mib) for name, (_, row) in MODELS.items() for mix, mib in row.get("device_mib", {}).items()]


@pytest.mark.parametrize(("name", "mix", "mib"), DEVICE_SIZES)
def test_another_mix_weighs_what_was_measured(name: str, mix: str, mib: float) -> None:
    """From the Q4_K_M table alone: the weights that libllama b11434 put on one card for another mix, to the printed digits (four decimals of a MiB)."""
    tensors = quantise(MODELS[name][0], mix).tensors
    tied = all(t.name != "output.weight" for t in tensors)
    total = 0
    for tensor in tensors:
        block, size = GGML_BLOCKS[tensor.dtype]
        short = -tensor.dims[0] % 512 if block > 1 else 0
        if tensor.name == "per_layer_token_embd.weight" or (tensor.name == "token_embd.weight" and not tied):
            continue  # they stay on the host
        total += (tensor.stored_bytes + short // block * size + 127) // 128 * 128
    assert total / 2**20 == pytest.approx(mib, abs=1e-3)


def test_every_mix_of_llama_quantize_is_known() -> None:
    """Thirty-five mixes and four aliases; each gives every model a table whose rows are whole blocks, and the file types agree."""
    assert len(MIXES) == 35
    assert set(ALIASES.values()) <= set(MIXES)
    assert set(FILE_TYPES.values()) <= set(MIXES)
    for checkpoint, _ in MODELS.values():
        for mix in (*MIXES, *ALIASES):
            if mix == "Q1_0" and any(is_quantised(t, checkpoint.architecture) and t.dims[0] % 128 for t in checkpoint.tensors):
                with pytest.raises(ValueError, match="no fallback"):
                    tensor_types(checkpoint, mix)
                continue
            types = tensor_types(checkpoint, mix)
            assert all(t.dims[0] % GGML_BLOCKS[types[t.name]][0] == 0 for t in checkpoint.tensors)


def test_smaller_mixes_are_smaller() -> None:
    """Within one family the named order is the order of size, and the total is the sum of its tensors."""
    for checkpoint, row in MODELS.values():
        sizes = {mix: quantise(checkpoint, mix).file_bytes for mix in MIXES if mix != "Q1_0"}
        for family in (("F32", "F16", "Q8_0"), ("Q5_K_M", "Q5_K_S"), ("Q4_K_M", "Q4_K_S"), ("Q3_K_L", "Q3_K_M", "Q3_K_S"), ("IQ3_M", "IQ3_S")):
            found = [sizes[mix] for mix in family]
            assert found == sorted(found, reverse=True), (row["name"], family)
        for mix in ("Q4_K_M", "IQ2_M"):
            quantised = quantise(checkpoint, mix)
            assert quantised.file_bytes == sum(t.stored_bytes for t in quantised.tensors) + 1000
            assert quantised.quantisation == mix


KEPT = [
    ("blk.0.attn_norm.weight", (64, 64), False), ("blk.0.attn_q.bias", (64, 64), False), ("blk.0.attn_q.weight", (64,), False),
    ("blk.0.attn_q.weight", (64, 64), True),
    ("blk.0.ffn_gate_inp.weight", (64, 8), False), ("blk.0.ssm_conv1d.weight", (4, 64), False), ("token_embd.weight", (64, 64), True),
    ("output.weight", (64, 64), True),
    ("blk.0.attn_q.weight", (64, 1), False), ("blk.0.time_mix_w1.weight", (64, 64), False), ("position_embd.weight", (64, 64), False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dims", "expected"), KEPT)
def test_what_is_never_quantised(name: str, dims: tuple[int, ...], expected: bool) -> None:
    """Norms, biases, vectors, routers and small recurrent weights keep their type."""
    tensor = Tensor(name=name, dims=dims, dtype="F32", offset=0, stored_bytes=0, elements=0)
    assert is_quantised(tensor, "llama") is expected


def test_an_importance_matrix_changes_what_it_changes() -> None:
    """Q4_0 guards the first eighth of ffn_down only with an importance matrix (llama-quant.cpp)."""
    checkpoint, _ = MODELS["qwen2.5-7b"]
    assert tensor_types(checkpoint, "Q4_0")["blk.0.ffn_down.weight"] == "Q4_0"
    assert tensor_types(checkpoint, "Q4_0", imatrix=True)["blk.0.ffn_down.weight"] == "Q4_1"
    with pytest.raises(KeyError):
        tensor_types(checkpoint, "Q9_Z")
