"""brim inspect: what is in a model, as text, as JSON, as a shape file; and the shape file prices like the model."""

import json
import os
import pathlib

import jsonschema
import numpy as np
import pytest
from safetensors import numpy as reference_safetensors

from brim import api
from brim.anatomy import picture, role_of
from brim.checkpoint import open_checkpoint
from brim.facts.model import Attention, FeedForward, Layer, Shape, State
from brim.reports.schemas import SCHEMAS
from tests.fuzz import seeds
from tests.gguf_bytes import dense_llama, vocabulary, write_sparse


@pytest.fixture
def small(tmp_path) -> str:
    metadata, tensors = dense_llama(layers=2, width=256, heads=4, kv_heads=2, feed_forward=512, vocab=1000)
    path = str(tmp_path / "small.gguf")
    write_sparse(path, {**metadata, **vocabulary(1000, 900)}, tensors)
    return path


def test_json_follows_its_schema_and_text_says_the_same(brim, small) -> None:
    """brim.inspect/1 validates; sizes by role and by format each add up to the weights; the text names parameters and context."""
    answer = brim("inspect", small, "--json", "--tensors")
    assert answer.returncode == 0
    document = json.loads(answer.stdout)
    jsonschema.validate(document, SCHEMAS["inspect"])
    assert document["form"] == "gguf"
    for slices in (document["by_role"], document["by_format"]):
        assert sum(part["stored_bytes"] for part in slices) == document["weights_bytes"]
        assert sum(part["elements"] for part in slices) == document["parameters"]
    assert sum(row["stored_bytes"] for row in document["tensors"]) == document["weights_bytes"]
    text = brim("inspect", small, "--explain").stdout
    assert f"parameters    {document['parameters']}" in text
    assert "8192 tokens as trained" in text
    assert "tokenizer.ggml.tokens.length = 1000" in text


def test_a_hostile_name_cannot_drive_the_terminal(brim, tmp_path) -> None:
    """Escape sequences out of a file are shown as what they are not: plain marks."""
    (tmp_path / "m.gguf").write_bytes(seeds.gguf({"general.architecture": "llama", "llama.\x1b[31m": "\x1b[31m", "general.name": "a\nb\x07"}))
    text = brim("inspect", "m.gguf", "--explain", "--tensors").stdout
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.splitlines()[0] == "a�b�"
    answer = brim("fit", "m.gguf")
    assert "\x1b" not in answer.stdout + answer.stderr


def priced(model: str) -> dict[str, object]:
    """The parts, workload and largest context of a fit on a device of a given size."""
    answer = api.fit(model, environ={"BRIM_DEVICE_BUDGET_BYTES": str(1 << 40)})
    return {"parts": [(part.name, part.device, part.bytes) for part in answer.plan.parts], "max_ctx": answer.max_ctx, "verdict": answer.verdict}


def test_a_shape_file_prices_like_the_gguf_it_was_written_from(brim, small, smollm2, tmp_path) -> None:
    """`inspect --shape` of a made and of a real GGUF: every part of the plan is equal to the byte."""
    for number, model in enumerate((small, smollm2)):
        path = tmp_path / f"shape{number}.json"
        path.write_text(brim("inspect", model, "--shape").stdout)
        assert priced(str(path)) == priced(model)
        assert priced(model)["verdict"] == "fits"


def models(folder: pathlib.Path) -> list[str]:
    """One model of each form."""
    (folder / "m.onnx").write_bytes(seeds.onnx())
    (folder / "m.pt").write_bytes(seeds.torch_zip())
    (folder / "m.gguf").write_bytes(seeds.gguf())
    place = folder / "st"
    place.mkdir()
    rows = {"model.q.weight": np.zeros((64, 16), np.uint32), "model.q.scales": np.zeros((64, 2), np.float16), "model.q.biases": np.zeros((64, 2), np.float16)}
    reference_safetensors.save_file(rows, place / "model.safetensors", metadata={"format": "mlx"})
    (place / "config.json").write_text(json.dumps({"model_type": "llama", "quantization": {"group_size": 64, "bits": 4}}))
    return [str(folder / name) for name in ("m.onnx", "m.pt", "m.gguf", "st")]


def test_a_shape_file_keeps_the_facts_of_every_form(tmp_path) -> None:
    """Tensors with their stored bytes and logical counts, architecture and sizes survive the round trip, packed ones included."""
    for number, model in enumerate(models(tmp_path)):
        original = open_checkpoint(model)
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(api.shape_file(model)))
        again = open_checkpoint(str(path))
        assert [(t.name, t.dims, t.dtype, t.stored_bytes, t.elements) for t in again.tensors] == [
            (t.name, t.dims, t.dtype, t.stored_bytes, t.elements) for t in original.tensors
        ], model
        assert (again.file_bytes, again.quantisation, again.role) == (original.file_bytes, original.quantisation, original.role)
        assert api.shape_file(str(path))["tensors"] == api.shape_file(model)["tensors"]


def layer(index: int, **parts: object) -> Layer:
    return Layer(index=index, **parts)


def attention(kind: str = "full", window: int = 0, shared: int | None = None) -> Attention:
    return Attention(kind=kind, heads=8, kv_heads=2, key_dim=64, value_dim=64, window=window, shares_cache_of=shared)


MOE = FeedForward(kind="experts", width=64, experts=128, experts_used=8)
DENSE = FeedForward(kind="dense", width=64)
FULL, SWA, MAMBA = {"attention": attention()}, {"attention": attention("sliding", 1024)}, {"state": State(kind="mamba2", conv_elements=1, state_elements=1)}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([FULL] * 32, "32×full"),
        (([SWA] * 5 + [FULL]) * 8, "5×swa(1024) + 1×full, 8 times"),
        (([SWA] * 5 + [FULL]) * 5 + [SWA] * 4, "5×swa(1024) + 1×full, 5 times, then 4×swa(1024)"),
        ([SWA, FULL] * 12, "1×swa(1024) + 1×full, 12 times"),
        ([{**FULL, "feed_forward": DENSE}] + [{**FULL, "feed_forward": MOE}] * 26, "1×full + 26×full+moe(8/128)"),
        ([FULL] + [SWA, FULL] * 4, "1×full + 1×swa(1024), 4 times, then 1×full"),
        ([MAMBA] * 3 + [FULL], "3×mamba2 + 1×full"),
        (([MAMBA] * 2 + [FULL]) * 3 + [MAMBA, FULL] * 3 + [MAMBA], "2×mamba2 + 1×full, 3 times, then 1×mamba2 + 1×full, 3 times, then 1×mamba2"),
        ([{"attention": attention("latent")}] * 2, "2×mla"),
        ([FULL] * 2 + [{"attention": attention(shared=1)}] * 2, "2×full + 2×full→shared"),
        ([{"feed_forward": DENSE}], "1×ffn"),
        ([], ""),
    ],
)
def test_the_picture_of_the_layers(parts, words: str) -> None:
    """Runs of alike layers, and a repeated run once with its count."""
    shape = Shape(architecture="made", vocabulary=1, width=1, layers=tuple(layer(index, **part) for index, part in enumerate(parts)))
    assert picture(shape) == words


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("token_embd.weight", "embedding"), ("model.embed_tokens.weight", "embedding"), ("output.weight", "output"), ("lm_head.weight", "output"),
        ("output_norm.weight", "norm"), ("blk.3.attn_q.weight", "attention"), ("blk.3.attn_q_norm.weight", "norm"), ("model.layers.0.self_attn.o_proj.weight", "attention"),
        ("blk.0.ffn_down.weight", "feed_forward"), ("model.layers.0.mlp.gate_proj.weight", "feed_forward"), ("blk.0.ffn_down_exps.weight", "experts"),
        ("model.layers.0.mlp.experts.3.up_proj.weight", "experts"), ("blk.0.ssm_conv1d.weight", "state"), ("v.blk.0.attn_q.weight", "vision"),
        ("base_model.model.q_proj.lora_A.weight", "adapter"), ("something", "other"),
    ],
)  # fmt: skip
def test_roles_by_name(name: str, role: str) -> None:
    """The same tensor has the same role under its GGUF name and its published one."""
    assert role_of(name) == role


def test_the_spare_shapes_of_the_evidence_add_up() -> None:
    """Every shape file at hand: brim's own arithmetic gives the weights_bytes that llama.cpp's quantiser wrote down."""
    folder = pathlib.Path(__file__).parents[3] / "shared" / "evidence" / "shapes"
    if not folder.is_dir():
        pytest.skip("the evidence folder is not beside this checkout")
    for name in sorted(os.listdir(folder)):
        checkpoint = open_checkpoint(str(folder / name))
        assert sum(t.stored_bytes for t in checkpoint.tensors) == json.loads((folder / name).read_text())["weights_bytes"]
        assert checkpoint.caveats == ()
