"""Writes tests/golden/packed_layouts.json: one small model packed by the libraries themselves, as names, dtypes and shapes, with its parameters before packing.

Needs torch, transformers, safetensors, bitsandbytes, compressed-tensors, hqq, mlx (CPU) and torchao; and, installed without their dependencies, gptqmodel (with pypcre, logbar, tokenicer,
device-smi, datasets, threadpoolctl, defuser), auto-gptq, autoawq, nvidia-modelopt (with pulp, scipy, omegaconf, pydantic), exllamav2 and exllamav3. A library that is missing or fails is named and
left out, and what the file had of it stays. Run: `python tests/evidence/packed_layouts.py`.
Of exllamav2 and exllamav3 the packing in Python runs and their CUDA kernels, which only fill the tensors that it makes, are stood in for; auto-gptq and autoawq run without their packages' other rooms.
"""

import importlib
import importlib.util
import json
import os
import struct
import sys
import tempfile
import types
from importlib.metadata import version
from pathlib import Path
from unittest.mock import MagicMock

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
        ("mxfp4", "mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True}),
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


def each(pack):
    """The tensors of the model with every linear layer given to `pack` (name → tensor), the norm as it is."""
    model, tensors = Model(), {}
    for name in LINEAR:
        tensors |= {f"{name}.{key}": value for key, value in pack(getattr(model, name)).items() if isinstance(value, torch.Tensor)}
    return tensors | {"norm.weight": model.norm.weight.data, "norm.bias": model.norm.bias.data}


def lone(*packages, without=()):
    """Packages whose modules can be imported one by one, without the `__init__` that wants everything; `without` are modules that are stood in for."""
    for name in packages:
        module = types.ModuleType(name)
        module.__path__ = [os.path.join(os.path.dirname(importlib.util.find_spec("safetensors").origin), "..", *name.split("."))]
        sys.modules[name] = module
    for name in without:
        sys.modules[name] = MagicMock()


def grid(old, group, bits, *, by_row=False):
    """Scales and zero points of a linear layer, in one of the two orders that the libraries take."""
    size = (old.out_features, old.in_features // group) if by_row else (old.in_features // group, old.out_features)
    return torch.full(size, 0.01), torch.full(size, float(2 ** (bits - 1)))


def gptqmodel():
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear

    for bits in (2, 3, 4, 5, 6, 8):

        def pack(old, bits=bits):
            words = {"in_features": old.in_features, "out_features": old.out_features, "bias": old.bias is not None}
            new = TorchLinear(bits=bits, group_size=64, sym=True, desc_act=False, pack_dtype=torch.int32, register_buffers=True, **words)
            new.pack_block(old.half(), *grid(old, 64, bits, by_row=True), (torch.arange(old.in_features) // 64).int())
            return new.state_dict()

        config = {"quant_method": "gptq", "bits": bits, "group_size": 64, "desc_act": False}
        keep(f"gptqmodel-{bits}", each(pack), {"quantization_config": config}, "gptqmodel")
    keep("gptqmodel-4-no-config", each(lambda old: pack(old, 4)), {}, "gptqmodel")


def modelopt():
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export.quant_utils import postprocess_state_dict
    from modelopt.torch.export.unified_export_hf import _export_quantized_weight

    for name, algorithm, bits in (
        ("NVFP4_DEFAULT_CFG", "NVFP4", 4),
        ("W4A16_NVFP4_CFG", "W4A16_NVFP4", 4),
        ("MXFP4_DEFAULT_CFG", "MXFP4", 4),
        ("INT4_AWQ_CFG", "W4A16_AWQ", 4),
        ("W4A8_AWQ_BETA_CFG", "W4A8_AWQ", 4),
        ("FP8_DEFAULT_CFG", "FP8", 8),
        ("MXFP8_DEFAULT_CFG", "MXFP8", 8),
        ("INT8_DEFAULT_CFG", "INT8", 8),
    ):
        model = Model().to(torch.bfloat16)

        def run(model):
            model.q(torch.randn(4, 256, dtype=torch.bfloat16))
            model.down(torch.randn(4, 512, dtype=torch.bfloat16))

        mtq.quantize(model, getattr(mtq, name), forward_loop=run)
        for layer in (model.q, model.down):
            _export_quantized_weight(layer, torch.bfloat16)
        kept = postprocess_state_dict(model.state_dict(), 0.0, None)
        config = {"quant_method": "modelopt", "quant_algo": algorithm}
        keep(f"modelopt-{algorithm.lower()}", kept, {"quantization_config": config}, "nvidia-modelopt")
        if bits == 4:
            keep(f"modelopt-{algorithm.lower()}-no-config", kept, {}, "nvidia-modelopt")


def mxfp4():
    """gpt-oss as published: blocks and scales; how many weights they are, transformers' own dequantisation tells."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    tensors, parameters = {"norm.weight": torch.ones(64, dtype=torch.bfloat16)}, 64
    for name, outputs, inputs in (("gate_up_proj", 96, 64), ("down_proj", 64, 96)):
        blocks, scales = torch.zeros(4, outputs, inputs // 32, 16, dtype=torch.uint8), torch.full((4, outputs, inputs // 32), 127, dtype=torch.uint8)
        tensors |= {
            f"mlp.experts.{name}_blocks": blocks,
            f"mlp.experts.{name}_scales": scales,
            f"mlp.experts.{name}_bias": torch.zeros(4, outputs, dtype=torch.bfloat16),
        }
        parameters += convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).numel() + 4 * outputs
    keep("mxfp4-experts", tensors, {"quantization_config": {"quant_method": "mxfp4"}}, "transformers", parameters)


def auto_gptq():
    lone("auto_gptq", "auto_gptq.nn_modules", "auto_gptq.nn_modules.qlinear")
    linear = importlib.import_module("auto_gptq.nn_modules.qlinear.qlinear_cuda_old").QuantLinear
    for bits in (2, 3, 4, 8):

        def pack(old, bits=bits):
            new = linear(bits, 64, old.in_features, old.out_features, old.bias is not None, weight_dtype=torch.float16)
            new.pack(old, *grid(old, 64, bits, by_row=True), None)
            return new.state_dict()

        keep(f"auto-gptq-{bits}", each(pack), {"quantization_config": {"quant_method": "gptq", "bits": bits, "group_size": 64}}, "auto-gptq")


def autoawq():
    lone("awq", "awq.modules", "awq.modules.linear", "awq.utils", without=("triton", "triton.language", "awq.modules.triton", "awq.modules.triton.gemm"))
    for name, form in (("gemm", "WQLinear_GEMM"), ("gemv", "WQLinear_GEMV"), ("gemv_fast", "WQLinear_GEMVFast")):
        linear = getattr(importlib.import_module("awq.modules.linear." + name), form)

        def pack(old, linear=linear, by_row=name != "gemm"):
            scales, zeros = grid(old, 64, 4, by_row=by_row)
            return linear.from_linear(old, 4, 64, scales=scales, zeros=zeros).state_dict()

        config = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": name}
        keep(f"autoawq-{name}", each(pack), {"quantization_config": config}, "autoawq")


def exllamav2():
    """Its own rounding and packing (`AdaptiveGPTQ`), every device the CPU; of the kernels only the filling of tensors is missing."""
    lone("exllamav2", "exllamav2.conversion", without=("exllamav2.ext", "exllamav2.util"))
    room = importlib.import_module("exllamav2.conversion.adaptivegptq")
    real, torch.Tensor.to = torch.Tensor.to, lambda self, *words, **more: self if "cuda" in str(words[:1]) else real(self, *words, **more)
    torch.cuda.synchronize = lambda *_: None
    try:
        for bits, shares in (([4], [1]), ([5, 4], [0.25, 0.75]), ([3, 2], [0.5, 0.5])):

            def pack(old, bits=bits, shares=shares):
                work = room.AdaptiveGPTQ(old)
                work.quant_device, work.weights, work.perm = "cpu", old.weight.data.T.clone().float(), torch.arange(old.in_features)
                work.configure(dict.fromkeys(bits, 32), bits, shares, 4)
                work.quantize_rtn_inplace(keep_qweight=True, apply=True)
                with torch.inference_mode():
                    made = work.pack("l", types.SimpleNamespace(scale_bits=4))
                return {key[2:]: value.clone() for key, value in made.items()}

            config = {"quant_method": "exl2", "bits": sum(b * s for b, s in zip(bits, shares, strict=True))}
            keep(f"exllamav2-{'-'.join(map(str, bits))}", each(pack), {"quantization_config": config}, "exllamav2")
    finally:
        torch.Tensor.to = real


def exllamav3():
    """Its own packing of the trellis and its own module's names; layers are made as wide as it pads them (128), kernels are stood in for."""
    rooms = (
        "exllamav3.ext",
        "triton",
        "triton.language",
        "exllamav3.model.config",
        "exllamav3.util.tensor",
        "exllamav3.util.hadamard",
        "exllamav3.util.progress",
    )
    packages = ("exllamav3", "exllamav3.modules", "exllamav3.modules.quant", "exllamav3.modules.quant.exl3_lib", "exllamav3.model")
    lone(*packages, without=(*rooms, "exllamav3.util.memory", "exllamav3.util"))
    work = importlib.import_module("exllamav3.modules.quant.exl3_lib.quantize")
    linear = importlib.import_module("exllamav3.modules.quant.exl3").LinearEXL3
    for bits, words in ((2, {"mcg": True}), (2.5, {"mul1": True}), (3, {}), (4, {"mcg": True}), (6, {"mul1": True})):
        tensors, parameters = {}, 0
        for name, inputs, outputs in (("q", 256, 128), ("down", 512, 128)):
            trellis = work.pack_trellis(torch.zeros(inputs // 16, outputs // 16, 256, dtype=torch.int16), {"K": bits, **words})
            made = {"suh": torch.ones(inputs).half(), "svh": torch.ones(outputs).half(), "trellis": trellis, **work.codebook_markers(words)}
            tensors |= linear(None, inputs, outputs, **made).get_tensors(name)
            parameters += inputs * outputs
        keep(f"exllamav3-{bits}", tensors, {"quantization_config": {"quant_method": "exl3", "bits": bits}}, "exllamav3", parameters)


before = json.loads(OUT.read_text()) if OUT.exists() else {}
for library in (bitsandbytes, compressed_tensors, hqq, mlx, torchao, gptqmodel, modelopt, mxfp4, auto_gptq, autoawq, exllamav2, exllamav3):
    try:
        library()
    except Exception as fault:
        print(f"{library.__name__}: left out: {type(fault).__name__}: {fault}", file=sys.stderr)
MADE.update({name: row for name, row in before.items() if name not in MADE})
if len(sys.argv) > 1:
    OUT = Path(sys.argv[1])
OUT.write_text(json.dumps(MADE, separators=(",", ":"), sort_keys=True))
print(f"{OUT}: {len(MADE)} layouts")
