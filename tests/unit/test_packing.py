"""Packed weights are counted as what they stand for, in every layout, and their stored bytes stay as they are."""

import json
import pathlib

import pytest

from brim.facts.dtypes import SAFETENSORS_BITS, packed_bytes
from brim.facts.model import Tensor
from brim.packing import trimmed, unpack
from brim.shapes.config import tensor_table
from brim.shapes.directory import spelled
from brim.shapes.quantised import quantisation_of
from brim.values import Record

GOLDEN = json.loads((pathlib.Path(__file__).parent.parent / "golden" / "packed_layouts.json").read_text())


class Told(Record):
    """Stands for facts.model.Quantisation."""

    method: str
    bits: int = 0
    group: int = 0


def directory(**rows: tuple[str, list[int]]) -> tuple[Tensor, ...]:
    """Tensors from name → (dtype, shape in torch's order); `__` in a name stands for a dot, `____` for itself."""
    made = []
    for name, (dtype, shape) in rows.items():
        elements = 1
        for dim in shape:
            elements *= dim
        stored = packed_bytes(SAFETENSORS_BITS[dtype], elements)
        made.append(
            Tensor(name=name.replace("__", ".").replace("..", "__"), dims=tuple(reversed(shape)), dtype=dtype, offset=0, stored_bytes=stored, elements=elements)
        )
    return tuple(made)


IN, OUT, GROUP = 256, 96, 64
GROUPS = IN // GROUP
LAYOUTS = [
    ("gptq 4 bit", Told(method="gptq", bits=4), "gptq",
     {"l__qweight": ("I32", [IN // 8, OUT]), "l__qzeros": ("I32", [GROUPS, OUT // 8]), "l__scales": ("F16", [GROUPS, OUT]), "l__g_idx": ("I32", [IN])}),
    ("gptq 3 bit", Told(method="gptq", bits=3), "gptq",
     {"l__qweight": ("I32", [IN * 3 // 32, OUT]), "l__qzeros": ("I32", [GROUPS, OUT * 3 // 32]), "l__scales": ("F16", [GROUPS, OUT]), "l__g_idx": ("I32", [IN])}),
    ("gptq 8 bit, config lost", None, "gptq",
     {"l__qweight": ("I32", [IN // 4, OUT]), "l__qzeros": ("I32", [GROUPS, OUT // 4]), "l__scales": ("F16", [GROUPS, OUT]), "l__g_idx": ("I32", [IN])}),
    ("awq", Told(method="awq", bits=4, group=GROUP), "awq",
     {"l__qweight": ("I32", [IN, OUT // 8]), "l__qzeros": ("I32", [GROUPS, OUT // 8]), "l__scales": ("F16", [GROUPS, OUT])}),
    ("bitsandbytes nf4", Told(method="bitsandbytes", bits=4), "bitsandbytes-4bit",
     {"l__weight": ("U8", [IN * OUT // 2, 1]), "l__weight__absmax": ("U8", [IN * OUT // 64]), "l__weight__quant_map": ("F32", [16]),
      "l__weight__nested_absmax": ("F32", [2]), "l__weight__nested_quant_map": ("F32", [256]), "l__weight__quant_state__bitsandbytes____nf4": ("U8", [90])}),
    ("bitsandbytes nf4 stored as bf16", Told(method="bitsandbytes", bits=4), "bitsandbytes-4bit",
     {"l__weight": ("BF16", [IN * OUT // 4, 1]), "l__weight__absmax": ("F32", [IN * OUT // 64]), "l__weight__quant_map": ("F32", [16])}),
    ("bitsandbytes int8", Told(method="bitsandbytes", bits=8), "bitsandbytes-int8",
     {"l__weight": ("I8", [OUT, IN]), "l__SCB": ("F32", [OUT]), "l__weight_format": ("U8", [])}),
    ("compressed-tensors, packed", Told(method="compressed-tensors", bits=4), "compressed-tensors",
     {"l__weight_packed": ("I32", [OUT, IN // 8]), "l__weight_scale": ("BF16", [OUT, GROUPS]), "l__weight_shape": ("I64", [2]), "l__weight_g_idx": ("I32", [IN])}),
    ("compressed-tensors, nvfp4", Told(method="compressed-tensors", bits=4), "nvfp4",
     {"l__weight_packed": ("U8", [OUT, IN // 2]), "l__weight_scale": ("F8_E4M3", [OUT, IN // 16]), "l__weight_global_scale": ("F32", [1]), "l__input_global_scale": ("F32", [1])}),
    ("compressed-tensors, fp8", Told(method="compressed-tensors", bits=8), "fp8", {"l__weight": ("F8_E4M3", [OUT, IN]), "l__weight_scale": ("BF16", [OUT, 1])}),
    ("fp8, blocks", Told(method="fp8", bits=8), "fp8", {"l__weight": ("F8_E4M3", [OUT, IN]), "l__weight_scale_inv": ("F32", [1, 2])}),
    ("mxfp4 of gpt-oss", Told(method="mxfp4", bits=4, group=32), "mxfp4",
     {"e__gate_up_proj_blocks": ("U8", [4, OUT // 4, IN // 32, 16]), "e__gate_up_proj_scales": ("U8", [4, OUT // 4, IN // 32])}),
    ("nvfp4 of modelopt", Told(method="modelopt", bits=4), "nvfp4",
     {"l__weight": ("U8", [OUT, IN // 2]), "l__weight_scale": ("F8_E4M3", [OUT, IN // 16]), "l__weight_scale_2": ("F32", []), "l__input_scale": ("F32", [])}),
    ("hqq 4 bit", Told(method="hqq", bits=4, group=64), "hqq",
     {"l__W_q": ("U8", [IN * OUT // 2 // 64, 64]), "l__scale": ("F16", [IN * OUT // 64, 1]), "l__zero": ("F16", [IN * OUT // 64, 1]), "l__shape": ("I64", [2]), "l__nbits": ("I64", [])}),
    ("exl2", Told(method="exl2", bits=4), "exl2",
     {"l__q_weight": ("I32", [37, OUT]), "l__q_scale": ("I32", [GROUPS, OUT // 8]), "l__q_scale_max": ("F16", [GROUPS]), "l__q_groups": ("I16", [2 * GROUPS]),
      "l__q_invperm": ("I16", [IN])}),
    ("exl3 at 3 bits", Told(method="exl3", bits=3), "exl3",
     {"l__trellis": ("I16", [IN // 16, OUT // 16, 48]), "l__suh": ("F16", [IN]), "l__svh": ("F16", [OUT]), "l__mcg": ("I32", [])}),
    ("torchao int8", Told(method="torchao", bits=8), "torchao", {"l___weight_qdata": ("I8", [OUT, IN]), "l___weight_scale": ("F32", [OUT, 1])}),
    ("torchao int4", Told(method="torchao", bits=4), "torchao",
     {"l___weight_qdata": ("U8", [OUT, IN // 2]), "l___weight_scale": ("BF16", [GROUPS, OUT]), "l___weight_zero_point": ("BF16", [GROUPS, OUT])}),
    ("mlx 4 bit", Told(method="mlx", bits=4, group=GROUP), "mlx",
     {"l__weight": ("U32", [OUT, IN // 8]), "l__scales": ("F16", [OUT, GROUPS]), "l__biases": ("F16", [OUT, GROUPS])}),
    ("mlx 6 bit", Told(method="mlx", bits=6, group=GROUP), "mlx",
     {"l__weight": ("U32", [OUT, IN * 6 // 32]), "l__scales": ("F16", [OUT, GROUPS]), "l__biases": ("F16", [OUT, GROUPS])}),
]  # fmt: skip


@pytest.mark.parametrize(("told", "layout", "rows"), [row[1:] for row in LAYOUTS], ids=[row[0] for row in LAYOUTS])
def test_a_packed_linear_layer_has_its_logical_parameters(told, layout: str, rows) -> None:
    """256 × 96 weights are 24576 parameters however they are packed; a norm beside them counts as itself; no byte changes."""
    stored = directory(**rows, norm__weight=("BF16", [IN]))
    made, found, notes = unpack(stored, {}, told)
    assert sum(t.elements for t in made) == IN * OUT + IN
    assert [(t.name, t.stored_bytes, t.dtype) for t in made] == [(t.name, t.stored_bytes, t.dtype) for t in stored]
    assert (found, notes) == (layout, ())


def test_what_nobody_tells_is_counted_as_stored_and_said() -> None:
    """Packed words without bits anywhere: no guess, a note."""
    made, found, notes = unpack(directory(l__weight_packed=("I32", [OUT, 32])), {}, None)
    assert sum(t.elements for t in made) == OUT * 32
    assert found == "compressed-tensors"
    assert "how many bits" in notes[0]


def test_a_model_that_is_not_packed_is_left_alone() -> None:
    """Names that only look like scales mean nothing without a packed weight beside them."""
    stored = directory(l__weight=("BF16", [OUT, IN]), norm__scale=("BF16", [IN]), a__shape=("I64", [2]), layer__scales=("F32", [4]))
    assert unpack(stored, {}, None) == (stored, "", ())


def test_mlx_modules_may_have_their_own_width() -> None:
    """The config's row for a module overrides the width of the rest."""
    stored = directory(l__weight=("U32", [OUT, IN // 4]), l__scales=("F16", [OUT, IN // 32]), l__biases=("F16", [OUT, IN // 32]))
    made, _, _ = unpack(stored, {"quantization": {"bits": 4, "group_size": 64, "l": {"bits": 8, "group_size": 32}}}, Told(method="mlx", bits=4, group=64))
    assert sum(t.elements for t in made) == IN * OUT


@pytest.mark.parametrize("name", GOLDEN)
def test_files_that_the_libraries_themselves_wrote_count_as_the_model_that_was_packed(name: str) -> None:
    """Headers written by twelve packing libraries (tests/evidence/packed_layouts.py): parameters as before packing, not one stored byte changed."""
    row = GOLDEN[name]
    stored = directory(**{key.replace("__", "____").replace(".", "__"): tuple(value) for key, value in row["tensors"].items()})
    made, layout, notes = unpack(stored, row["config"], quantisation_of(row["config"], name))
    assert sum(t.elements for t in made) == row["parameters"]
    assert [t.stored_bytes for t in made] == [t.stored_bytes for t in stored]
    assert layout
    assert notes == ()


def test_padding_is_no_parameter() -> None:
    """EXL2 pads outputs to 32 and EXL3 both sides to 128: where the config says how wide a weight is, that counts; another weight's width does not."""
    weights = spelled(tensor_table({**LLAMA, "vocab_size": 1000}))
    for stored in (
        directory(lm_head__q_weight=("I32", [32, 1024]), lm_head__q_invperm=("I32", [256])),
        directory(lm_head__trellis=("I16", [16, 64, 48])),
    ):
        made, _, _ = unpack(stored, {}, None)
        assert made[0].elements == 256 * 1024
        assert trimmed(made, weights)[0].elements == 256 * 1000
        assert trimmed(made, spelled(tensor_table({**LLAMA, "vocab_size": 800})))[0].elements == 256 * 1024


LLAMA = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4}


@pytest.mark.parametrize(
    ("algorithm", "bits"), [("NVFP4", 4), ("W4A16_AWQ", 4), ("W4A8_AWQ", 4), ("W4A16_NVFP4", 4), ("MXFP4", 4), ("FP8", 8), ("FP8_PER_CHANNEL", 8), ("INT8", 8)]
)
def test_modelopt_says_its_bits_by_its_algorithm(algorithm: str, bits: int) -> None:
    """`quant_algo` alone tells how wide a weight is."""
    found = quantisation_of({"quantization_config": {"quant_method": "modelopt", "quant_algo": algorithm}}, "config.json")
    assert found is not None
    assert found.bits == bits
