"""How many bits a block of each number format takes, with the source of each row; no tensor is ever touched.

ggml rows: ggml/src/ggml.c `type_traits` and ggml/include/ggml.h `enum ggml_type`, llama.cpp b11434; block structures in ggml/src/ggml-common.h.
"""

# GGUF type number → (name, values a block, bytes a block). Numbers that are not here were removed from ggml (4, 5, 31–33, 36–38) or never given.
GGML_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
    42: ("Q2_0", 64, 18),
}

# name → (values a block, bytes a block)
GGML_BLOCKS: dict[str, tuple[int, int]] = {name: (block, size) for name, block, size in GGML_TYPES.values()}


def ggml_row_bytes(dtype: str, elements: int) -> int:
    """Bytes of one row of `elements` values, as `ggml_row_size` computes it (ggml/src/ggml.c); a row is whole blocks.

    `KeyError` for an unknown type, `ValueError` where the row is no multiple of the block.
    """
    block, size = GGML_BLOCKS[dtype]
    if elements % block:
        raise ValueError(f"a row of {elements} is no multiple of the {block}-value blocks of {dtype}")
    return elements // block * size


def ggml_tensor_bytes(dtype: str, dims: "tuple[int, ...]") -> int:
    """Bytes of a contiguous tensor; `dims[0]` is the row length (ggml's ne0). Errors as `ggml_row_bytes`."""
    rows = 1
    for dim in dims[1:]:
        rows *= dim
    return rows * ggml_row_bytes(dtype, dims[0] if dims else 1)


# safetensors dtype → bits a value. safetensors/src/tensor.rs `Dtype::bitsize`, v0.8.0 (F4 and F6 are packed without gaps; a tensor must end on a whole byte).
SAFETENSORS_BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip

# ONNX TensorProto.DataType number → (brim's name, bits a value). onnx/onnx.proto3, v1.19 (IR version 12); 8 is STRING, which has no fixed width. Two-bit types: v1.20.
ONNX_TYPES: dict[int, tuple[str, int]] = {
    1: ("F32", 32), 2: ("U8", 8), 3: ("I8", 8), 4: ("U16", 16), 5: ("I16", 16), 6: ("I32", 32), 7: ("I64", 64), 9: ("BOOL", 8), 10: ("F16", 16),
    11: ("F64", 64), 12: ("U32", 32), 13: ("U64", 64), 14: ("C64", 64), 15: ("C128", 128), 16: ("BF16", 16), 17: ("F8_E4M3", 8), 18: ("F8_E4M3FNUZ", 8),
    19: ("F8_E5M2", 8), 20: ("F8_E5M2FNUZ", 8), 21: ("U4", 4), 22: ("I4", 4), 23: ("F4", 4), 24: ("F8_E8M0", 8), 25: ("U2", 2), 26: ("I2", 2),
}  # fmt: skip


def packed_bytes(bits: int, elements: int) -> int:
    """Whole bytes that hold `elements` values of `bits` bits each, packed without gaps."""
    return (bits * elements + 7) // 8


# general.file_type → the quantiser's word. include/llama.h `enum llama_ftype`, llama.cpp b11434.
GGUF_FILE_TYPES: dict[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S",
    15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S",
    25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0",
    38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0",
}  # fmt: skip
