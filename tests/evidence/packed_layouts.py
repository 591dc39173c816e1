"""Writes tests/golden/packed_layouts.json: one small model packed by the libraries themselves, as names, dtypes and shapes, with its parameters before packing.

Needs torch, safetensors, bitsandbytes, compressed-tensors, hqq, mlx (CPU) and torchao; a library that is missing or fails is named and left out. Run: `python tests/evidence/packed_layouts.py`.
"""

import json
import struct
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

OUT = Path(__file__).resolve().parents[1] / "golden" / "packed_layouts.json"
FOLDER = tempfile.mkdtemp()
MADE: dict[str, object] = {}
LINEAR = ("q", "down")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.down, self.norm = nn.Linear(256, 96, bias=False), nn.Linear(512, 128, bias=True), nn.LayerNorm(256)


PARAMETERS = sum(weight.numel() for weight in Model().parameters())


def keep(name, tensors, config, package, parameters=PARAMETERS, metadata=None):
    """Save through the safetensors library and keep the header."""
    path = f"{FOLDER}/{name}.safetensors"
    if tensors is not None:
        save_file({key: value.contiguous() for key, value in tensors.items() if isinstance(value, torch.Tensor)}, path, metadata=metadata)
    raw = Path(path).read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    words = {key: value for key, value in header.pop("__metadata__", {}).items() if len(value) < 4000}
    rows = {key: [row["dtype"], row["shape"]] for key, row in header.items()}
    MADE[name] = {"made_with": f"{package} {version(package)}", "config": config, "metadata": words, "tensors": rows, "parameters": parameters}


def bitsandbytes():
    import bitsandbytes as bnb

    def packed(make):
        model = Model()
        for name in LINEAR:
            old = getattr(model, name)
            new = make(old)
            new.load_state_dict(old.state_dict())
            setattr(model, name, new.to("cpu"))
            new(torch.zeros(1, old.in_features))
        return model.state_dict()

    for double in (False, True):
        config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": double}
        tensors = packed(
            lambda old, double=double: bnb.nn.Linear4bit(
                old.in_features, old.out_features, bias=old.bias is not None, quant_type="nf4", compress_statistics=double
            )
        )
        keep(f"bitsandbytes-nf4{'-double' if double else ''}", tensors, {"quantization_config": config}, "bitsandbytes")
    tensors = packed(lambda old: bnb.nn.Linear8bitLt(old.in_features, old.out_features, bias=old.bias is not None, has_fp16_weights=False))
    keep("bitsandbytes-int8", tensors, {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}, "bitsandbytes")


def compressed_tensors():
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme, apply_quantization_config

    schemes = (
        ("w4", "pack-quantized", {"num_bits": 4, "group_size": 128, "strategy": "group", "symmetric": True}),
        ("w4a", "pack-quantized", {"num_bits": 4, "group_size": 128, "strategy": "group", "symmetric": False}),
        ("w8", "pack-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": True}),
        ("w8", "int-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": True}),
        ("fp8", "float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}),
        ("nvfp4", "nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}),
    )
    for name, form, words in schemes:
        model = Model()
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**words))
        scheme.format = form
        config = QuantizationConfig(config_groups={"group_0": scheme}, format=form, quantization_status="compressed")
        apply_quantization_config(model, QuantizationConfig(config_groups={"group_0": scheme}, format=form))
        for layer in (model.q, model.down):
            for scale, value in (("weight_scale", 0.01), ("weight_global_scale", 1.0)):
                if hasattr(layer, scale):
                    getattr(layer, scale).data.fill_(value)
        ModelCompressor(quantization_config=config).compress_model(model)
        told = json.loads(config.model_dump_json()) | {"quant_method": "compressed-tensors"}
        keep(f"compressed-tensors-{name}-{form}", model.state_dict(), {"quantization_config": told}, "compressed-tensors")


def hqq():
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    for bits in (8, 4, 3, 2, 1):
        model, tensors = Model(), {}
        for name in LINEAR:
            layer = HQQLinear(getattr(model, name), BaseQuantizeConfig(nbits=bits, group_size=64), compute_dtype=torch.float32, device="cpu")
            for key, value in layer.state_dict().items():
                if isinstance(value, (int, float)):
                    tensors[f"{name}.{key}"] = torch.tensor(value)
                elif isinstance(value, (tuple, list)) and all(isinstance(item, int) for item in value):
                    tensors[f"{name}.{key}"] = torch.tensor(list(value))
                else:
                    tensors[f"{name}.{key}"] = value
        tensors |= {"norm.weight": model.norm.weight.data, "norm.bias": model.norm.bias.data}
        config = {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": bits, "group_size": 64}}}
        keep(f"hqq-{bits}", tensors, {"quantization_config": config}, "hqq")


def mlx():
    import mlx.core as mx
    from mlx import nn as layers
    from mlx.utils import tree_flatten

    for bits, group in ((4, 64), (8, 32), (3, 64), (6, 64), (2, 128)):
        model = layers.Module()
        model.q, model.down, model.norm, model.embed = (
            layers.Linear(256, 96, bias=False),
            layers.Linear(512, 128),
            layers.LayerNorm(256),
            layers.Embedding(64, 128),
        )
        layers.quantize(model, group_size=group, bits=bits)
        name = f"mlx-{bits}-{group}"
        mx.save_safetensors(f"{FOLDER}/{name}.safetensors", dict(tree_flatten(model.parameters())), metadata={"format": "mlx"})
        keep(name, None, {"quantization": {"group_size": group, "bits": bits}}, "mlx", PARAMETERS + 64 * 128)


def torchao():
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_

    for name, config in (
        ("int8", Int8WeightOnlyConfig(version=2)),
        ("float8", Float8WeightOnlyConfig()),
        ("intx4", IntxWeightOnlyConfig(weight_dtype=torch.int4)),
    ):
        model = Model()
        quantize_(model, config)
        tensors, metadata = flatten_tensor_state_dict(model.state_dict())[:2]
        words = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
        keep(f"torchao-{name}", tensors, {"quantization_config": {"quant_method": "torchao"}}, "torchao", metadata=words)


for library in (bitsandbytes, compressed_tensors, hqq, mlx, torchao):
    try:
        library()
    except Exception as fault:
        print(f"{library.__name__}: left out: {type(fault).__name__}: {fault}", file=sys.stderr)
if len(sys.argv) > 1:
    OUT = Path(sys.argv[1])
OUT.write_text(json.dumps(MADE, separators=(",", ":"), sort_keys=True))
print(f"{OUT}: {len(MADE)} layouts")
