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


# a new load or a new context starts here: an engine that measures first (`--fit`) prints the buffers of the trial, too, and the last ones count
_FRESH = (("loading model tensors", ("weights",)), ("constructing llama_context", ("kv_cache", "recurrent_state", "output_buffer", "compute_buffer")))


def buffers(text: str) -> tuple[Logged, ...]:
    """The buffers of the last load in a log. Lines of one buffer type add up within a load: a sliding window has a cache beside the full one."""
    found: dict[tuple[str, str], Logged] = {}
    started = False
    for line in text.splitlines():
        for mark, parts in _FRESH:
            if mark in line:
                started = True
                found = {key: item for key, item in found.items() if key[0] not in parts}
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
                before_it = found.get((part, words[-1]))
                if started and before_it is not None:
                    count += before_it.bytes
                found[part, words[-1]] = Logged(part=part, buffer=words[-1], bytes=count)
    return tuple(found.values())
