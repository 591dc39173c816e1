"""What an engine said of its own memory when it was asked: one row a device, or why it could not say."""

from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

COPIES = ("CPU_REPACK", "CPU_AARCH64", "CPU_KLEIDIAI", "AMX")  # llama.cpp's buffers of weights in a layout of the CPU's own, by their names since December 2024


class EngineRow(Record):
    """One device as the engine names it (`CUDA0`, `Host`), in whole MiB as it prints them: weights, context (caches and state) and compute buffers.

    `exact` are the same three in bytes, where it was asked in a way that tells bytes.
    """

    device: str
    weights_mib: int
    context_mib: int
    compute_mib: int
    exact: "tuple[int, int, int] | None" = None


class EngineNumbers(Record):
    """The answer of one program. `build` is `Missing` where it does not tell; `rows` are `Missing` with the reason where it gave none.

    `buffers` are (buffer type, bytes of weights) where it tells those; `layouts` the builds whose parameter structs a bare libllama was found to have, `lacking` the fields of the workload that those do not have.
    """

    program: str
    command: tuple[str, ...]
    build: "int | Missing"
    rows: "tuple[EngineRow, ...] | Missing"
    buffers: tuple[tuple[str, int], ...] = ()
    layouts: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()


def copied_bytes(buffers: "Iterable[Mapping[str, Any]]") -> int:
    """Bytes of weights that llama.cpp's log counts twice: in a copy for the CPU, and in the range of the mapped file that they were read from (`{"part", "buffer", "bytes"}` rows).

    Those pages of the file were read once and can be dropped: the job needs one of the two.
    """
    weights = [(str(row.get("buffer")), int(row.get("bytes", 0))) for row in buffers if row.get("part") == "weights"]
    if not any(buffer == "CPU_Mapped" for buffer, _ in weights):
        return 0
    return sum(size for buffer, size in weights if buffer in COPIES)
