"""Asks the kernel which of the instructions that decide an engine's layout of weights this processor has; it chooses no layout.

Files: /proc/cpuinfo (`flags` on x86, `Features` on ARM, `features` on s390; the first processor stands for all). On a Mac with Apple's own chips the answer is known without
asking: all of them have NEON with dot products. Not covered: a program that was built for less, and hosts that mix processors.
"""

import os
import sys

from brim.values import Missing

FIRST = 8192  # bytes: the first processors; the kernel writes no more than is read
LINES = ("flags", "Features", "features")
# our word → the kernel's words that are all needed. ggml builds the AMX code where AVX512-VNNI is there too (ggml-cpu/amx/amx.cpp, b11434)
WORDS = {
    "avx2": ("avx2", "fma", "f16c"), "avx512": ("avx512f",), "amx": ("amx_tile", "amx_int8", "avx512_vnni"), "neon": ("asimd",), "dotprod": ("asimddp",), "i8mm": ("i8mm",),
    "vxe": ("vxe",),
}  # fmt: skip


def instructions(root: str = "") -> "tuple[str, ...] | Missing":
    """Our words for what this processor has, in a fixed order; empty where it has none of them."""
    path = f"{root}/proc/cpuinfo"
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as fault:
        if not root and sys.platform == "darwin" and os.uname().machine == "arm64":
            return ("neon", "dotprod")
        absent = isinstance(fault, FileNotFoundError)
        return Missing(reason="not_supported" if absent else "failed", detail=f"{path} is not here" if absent else f"{path}: {fault.strerror}")
    try:
        text = os.read(file, FIRST).decode("ascii", "replace")
    except OSError as fault:
        return Missing(reason="failed", detail=f"{path}: {fault.strerror}")
    finally:
        os.close(file)
    for line in text.splitlines():
        name, colon, words = line.partition(":")
        if colon and name.strip() in LINES:
            here = set(words.split())
            return tuple(ours for ours, needed in WORDS.items() if here.issuperset(needed))
    return Missing(reason="not_supported", detail=f"{path} names no instructions")
