"""Packs samples into blocks without loss, and thins old blocks with their minima and maxima kept; it does not judge a value.

A full block is the zlib-compressed text of its rows, so that unpacking gives every sample back and its chain can be computed again. A thinned block keeps,
for each
`BUCKET_NS` of time, how many samples there were, the time in each level, and for each numeric value its count, its longest silence, and its least, mean
and greatest.
"""

import json
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Row = tuple[int, int, int, str]

BUCKET_NS = 60 * 10**9
CAP_BYTES = 1 << 26


def pack(rows: "Iterable[Row]") -> bytes:
    """(seq, monotonic ns, wall ns, body text) rows as one blob."""
    return zlib.compress(json.dumps([list(row) for row in rows], ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"), 6)


def unpack(blob: bytes) -> "list[Row]":
    """The rows of a blob of `pack`; `ValueError` where it is none or would unpack to more than 64 MiB."""
    rows = json.loads(_inflate(blob).decode("utf-8", "surrogatepass"))
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 4 for row in rows):
        raise ValueError("no block of samples")
    for seq, mono, wall, body in rows:
        if not (type(seq) is int and type(mono) is int and type(wall) is int and type(body) is str):
            raise ValueError("a sample in the block has a column of the wrong kind")
    return [tuple(row) for row in rows]


def _inflate(blob: bytes) -> bytes:
    if not isinstance(blob, bytes):
        raise ValueError("a block holds text where it must hold bytes")
    machine = zlib.decompressobj()
    try:
        data = machine.decompress(blob, CAP_BYTES)
    except zlib.error as fault:
        raise ValueError(f"no compressed block: {fault}") from None
    if machine.unconsumed_tail or machine.unused_data or not machine.eof:
        raise ValueError("a block that is cut off, too large, or followed by something else")
    return data


def flat(body: object, name: str = "") -> "Iterable[tuple[str, float | None]]":
    """Every number in a decoded sample as (dotted name, value); list items go by their `id`, else by their index; a value that is missing is None.

    Flags and texts are left out.
    """
    if isinstance(body, dict):
        if "missing" in body:
            yield name, None
            return
        for key, item in body.items():
            yield from flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(body, list):
        for index, item in enumerate(body):
            label = item["id"] if isinstance(item, dict) and isinstance(item.get("id"), str) else index
            yield from flat(item, f"{name}.{label}" if name else str(label))
    elif isinstance(body, (int, float)) and not isinstance(body, bool):
        yield name, body


def thin(rows: "Iterable[Row]") -> "list[dict[str, Any]]":
    """Buckets of at most `BUCKET_NS` from rows in order. `signals` maps a name to [count, longest silence in ns, least, mean, greatest]."""
    buckets: list[dict[str, Any]] = []
    last_seen: dict[str, int] = {}
    for _, mono, wall, text in rows:
        body = json.loads(text)
        if not buckets or mono - buckets[-1]["start_ns"] >= BUCKET_NS:
            buckets.append({"start_ns": mono, "start_wall_ns": wall, "samples": 0, "silence_ns": 0, "levels": {}, "signals": {}})
            last_seen = {}
        bucket = buckets[-1]
        bucket["silence_ns"] = max(bucket["silence_ns"], mono - bucket.get("end_ns", mono))
        bucket.update(end_ns=mono, end_wall_ns=wall, samples=bucket["samples"] + 1)
        level = str(body.get("level", "")) if isinstance(body, dict) else ""
        bucket["levels"][level] = bucket["levels"].get(level, 0) + 1
        for name, value in flat(body):
            if value is not None:
                _fold(bucket, name, value, mono, last_seen)
    return buckets


def _fold(bucket: "dict[str, Any]", name: str, value: float, mono: int, last_seen: dict[str, int]) -> None:
    """One value into its bucket."""
    silence = mono - last_seen.get(name, bucket["start_ns"])
    last_seen[name] = mono
    held = bucket["signals"].get(name)
    if held is None:
        bucket["signals"][name] = [1, silence, value, value, value]
        return
    count, longest, low, mean, high = held
    bucket["signals"][name] = [count + 1, max(longest, silence), min(low, value), mean + (value - mean) / (count + 1), max(high, value)]


def pack_thin(buckets: "list[dict[str, Any]]") -> bytes:
    """Buckets as one blob."""
    return zlib.compress(json.dumps(buckets, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"), 9)


def unpack_thin(blob: bytes) -> "list[dict[str, Any]]":
    """The buckets of a blob of `pack_thin`; `ValueError` where it is none."""
    buckets = json.loads(_inflate(blob).decode("utf-8", "surrogatepass"))
    if not isinstance(buckets, list):
        raise ValueError("no thinned block")
    return buckets
