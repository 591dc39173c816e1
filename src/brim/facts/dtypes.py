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
