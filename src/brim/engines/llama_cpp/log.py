"""Reads the buffers that llama.cpp says it allocated out of its own log; text in, bytes out, no file is opened.

The lines (b11434; see the evidence in docs/first-light.md): `load_tensors: CPU_Mapped model buffer size = 92.10 MiB`, `llama_kv_cache: CPU KV buffer size = …`,
`llama_memory_recurrent: … RS buffer size`, `llama_context: … output buffer size`, `sched_reserve: … compute buffer size`. Sizes have two decimals.
"""

from brim.units import MIB
from brim.values import Record

_MARKS = (
    ("model buffer size", "weights"),
    ("KV buffer size", "kv_cache"),
    ("RS buffer size", "recurrent_state"),
    ("output buffer size", "output_buffer"),
    ("compute buffer size", "compute_buffer"),
)


class Logged(Record):
    """One buffer that the engine reported: the part it belongs to, the engine's name of the buffer type, and its size to the printed digits."""

    part: str
    buffer: str
    bytes: int


def buffers(text: str) -> tuple[Logged, ...]:
    """The buffers of the last load in a log: an engine that measures first (`--fit`) prints some lines twice, with the same buffers."""
    found: dict[tuple[str, str], Logged] = {}
    for line in text.splitlines():
        for mark, part in _MARKS:
            before, sep, after = line.partition(mark)
            if not sep:
                continue
            words, size = before.split(), after.replace("=", " ").split()
            if words and len(size) >= 2 and size[1] == "MiB":
                try:
                    count = round(float(size[0]) * MIB)
                except ValueError:
                    continue
                found[part, words[-1]] = Logged(part=part, buffer=words[-1], bytes=count)
    return tuple(found.values())
