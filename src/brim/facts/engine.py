"""What an engine said of its own memory when it was asked: one row a device, or why it could not say."""

from brim.values import Missing, Record


class EngineRow(Record):
    """One device as the engine names it (`CUDA0`, `Host`), in whole MiB as it prints them: weights, context (caches and state) and compute buffers."""

    device: str
    weights_mib: int
    context_mib: int
    compute_mib: int


class EngineNumbers(Record):
    """The answer of one program. `build` is `Missing` where it does not tell; `rows` are `Missing` with the reason where it gave none."""

    program: str
    command: tuple[str, ...]
    build: "int | Missing"
    rows: "tuple[EngineRow, ...] | Missing"
