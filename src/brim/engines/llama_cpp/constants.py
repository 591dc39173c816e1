"""What a llama.cpp process holds on a device and never logs, as spans with source and version range; a number without a source does not live here."""

from brim.units import MIB, Span
from brim.values import Record


class Overhead(Record):
    """Bytes on one device that no log line names: driver context, kernel images, handles, the pool's own growth."""

    backend: str
    bytes: Span
    rule: str
    source: str


def _mib(low: int, likely: int, high: int) -> Span:
    return Span(low=low * MIB, likely=likely * MIB, high=high * MIB)


_CUDA = Overhead(
    backend="cuda",
    bytes=_mib(150, 350, 760),
    rule="driver context and kernel images 150–500 MiB by card and driver, cuBLAS workspace 4 MiB (32 MiB from compute capability 9.0), pool and CUDA graphs tens of MiB",
    source="the column `unaccounted` of llama.cpp's own memory table: 749 MiB on an RTX PRO 6000 (ggml-org/llama.cpp issue 27953, September 2026, other users of the card included), "
    "705 to 712 on four of another make where no other user shows, 174 on a GTX 1080 (docs/evidence/llamacpp-fresh-logs.md); "
    "ggml-cuda/common.cuh `cublas_handle`, `ggml_cuda_pool_vmm` (b11434). Measure it on this machine: a governed run replaces it",
)
_ROCM = _CUDA.replace(
    backend="rocm", bytes=_mib(150, 300, 900), rule="HIP context, code objects and hipBLAS workspace: 253 MiB on each of three MI50, 313 on a gfx1100"
)
_VULKAN = Overhead(
    backend="vulkan", bytes=_mib(30, 150, 450), rule="instance, pipelines and staging buffers; 335 and 354 MiB on two RX 9070 XT",
    source="ggml/src/ggml-vulkan/ggml-vulkan.cpp (pipelines are compiled on use); free memory before the load and after, from public logs (docs/evidence/llamacpp-fresh-logs.md)",
)  # fmt: skip
_METAL = Overhead(
    backend="metal", bytes=_mib(20, 60, 200), rule="command queues, pipeline library and residency sets; no public figure by chip",
    source="ggml/src/ggml-metal (pipelines are compiled on use); no measurement is published, so the span is wide",
)  # fmt: skip
_OTHER = _VULKAN.replace(
    backend="other",
    bytes=_mib(30, 200, 900),
    rule="runtime and kernels of this backend; no public figure",
    source="no measurement is published, so the span is wide",
)
OVERHEADS = {"cuda": _CUDA, "rocm": _ROCM, "hip": _ROCM, "vulkan": _VULKAN, "metal": _METAL}

# The largest single allocation that a driver may grant though memory is free (ggml-org/llama.cpp issues 15009, 11598, 12728, 18160, 11332).
LARGEST_ALLOCATION = {"vulkan": (2 << 30, 4 << 30)}


def overhead(backend: str) -> Overhead:
    """The never-logged bytes of a backend."""
    return OVERHEADS.get(backend, _OTHER)
