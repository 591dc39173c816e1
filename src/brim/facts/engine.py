"""What an engine said of its own memory when it was asked: one row a device, or why it could not say."""

from brim.values import Missing, Record


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

    `buffers` are (buffer type, bytes of weights) where it tells those; `layouts` the builds whose parameter structs a bare libllama was found to have.
    """

    program: str
    command: tuple[str, ...]
    build: "int | Missing"
    rows: "tuple[EngineRow, ...] | Missing"
    buffers: tuple[tuple[str, int], ...] = ()
    layouts: tuple[str, ...] = ()
