"""Packs old samples of an open journal into blocks and thins blocks that are older still, in one transaction each; the chain over all lines still verifies.

Lossless: a full block holds the text of its sample lines, so a reader puts them back in their places and recomputes the chain. With loss: a thinned block
holds buckets
with minima and maxima, and the hashes that the lines around it follow from (`bridges`). Either way a line in the chain (`packed`, `thinned`) carries the
SHA-256 of the
block's row, so that a block cannot be altered, dropped or added unseen.
"""

from hashlib import sha256

from brim.journal import blocks

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping
    from typing import Any

    Append = Callable[[str, Mapping[str, Any]], None]

LINES = (
    "CREATE TABLE lines (seq INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, wall_ns INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, hash BLOB NOT NULL)"
)
BLOCKS = "CREATE TABLE blocks (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, count INTEGER NOT NULL, form TEXT NOT NULL, body BLOB NOT NULL)"
BLOCK_SAMPLES = 240
THIN_BLOCKS = 15
KEEP_FULL_BLOCKS = 720  # two days at 1 Hz
FULL, THIN = "full", "thin"


def digest(first: int, last: int, count: int, form: str, body: bytes) -> str:
    """The SHA-256 of a block's row, every column with its length in front where it has one."""
    return sha256(f"{first}|{last}|{count}|{len(form)}|{form}|{len(body)}|".encode() + body).hexdigest()


def pack(connection: "sqlite3.Connection", append: "Append") -> bool:
    """Move the oldest `BLOCK_SAMPLES` sample lines into a full block; False where there are not that many. `append` adds a line within the open transaction."""
    rows = connection.execute("SELECT seq, at_ns, wall_ns, body, hash FROM lines WHERE kind = 'sample' ORDER BY seq LIMIT ?", (BLOCK_SAMPLES,)).fetchall()
    if len(rows) < BLOCK_SAMPLES:
        return False
    body = blocks.pack([row[:4] for row in rows])
    first, last, count = rows[0][0], rows[-1][0], len(rows)
    connection.execute("INSERT INTO blocks VALUES (?,?,?,?,?)", (first, last, count, FULL, body))
    connection.execute("DELETE FROM lines WHERE kind = 'sample' AND seq BETWEEN ? AND ?", (first, last))
    append("packed", {"first": first, "last": last, "count": count, "digest": digest(first, last, count, FULL, body)})
    return True


def thin(connection: "sqlite3.Connection", append: "Append", hash_of: "Callable[[bytes, int, int, int, str, str], bytes]", genesis: bytes) -> bool:
    """Turn the oldest full blocks into one thinned block where more than `KEEP_FULL_BLOCKS` are kept; False where there are not. `hash_of` is records.link."""
    if connection.execute("SELECT count(*) FROM blocks WHERE form = 'full'").fetchone()[0] < KEEP_FULL_BLOCKS + THIN_BLOCKS:
        return False
    taken = connection.execute("SELECT first, last, body FROM blocks WHERE form = 'full' ORDER BY first LIMIT ?", (THIN_BLOCKS,)).fetchall()
    samples = [row for _, _, body in taken for row in blocks.unpack(body)]
    first, last = taken[0][0], taken[-1][1]
    before = connection.execute("SELECT hash FROM lines WHERE seq = ?", (first - 1,)).fetchone()
    if before is None and first > 0:
        previous = _bridge_before(connection, first)
    else:
        previous = genesis if before is None else before[0]
    bridges, stay = _bridges(connection, samples, previous, first, last, hash_of)
    body = blocks.pack_thin([{"bridges": bridges, "stay": stay, "after": previous.hex()}, *blocks.thin(samples)])
    connection.execute("DELETE FROM blocks WHERE form = 'full' AND first BETWEEN ? AND ?", (first, last))
    connection.execute("INSERT INTO blocks VALUES (?,?,?,?,?)", (first, last, len(samples), THIN, body))
    append("thinned", {"first": first, "last": last, "count": len(samples), "digest": digest(first, last, len(samples), THIN, body)})
    return True


def _bridge_before(connection: "sqlite3.Connection", first: int) -> bytes:
    """The hash that the line `first` follows from, where the line before it was thinned away: the end bridge of the block before."""
    body = connection.execute("SELECT body FROM blocks WHERE last = ?", (first - 1,)).fetchone()[0]
    return bytes.fromhex(blocks.unpack_thin(body)[0]["bridges"][-1][1])


def _bridges(
    connection: "sqlite3.Connection",
    samples: "list[tuple[int, int, int, str]]",
    previous: bytes,
    first: int,
    last: int,
    hash_of: "Callable[[bytes, int, int, int, str, str], bytes]",
) -> tuple[list[list[object]], list[list[object]]]:
    """([seq, hash before that seq] for every line that stays and follows a sample, then for the line after the block; [seq, hash] of every line that stays).

    The chain is recomputed. The hashes of the lines that stay are kept because nothing that is left follows from them once the samples after them are gone.
    """
    stay = {row[0]: row[1] for row in connection.execute("SELECT seq, hash FROM lines WHERE seq BETWEEN ? AND ?", (first, last))}
    held = {row[0]: row for row in samples}
    bridges: list[list[object]] = []
    for seq in range(first, last + 1):
        if seq in stay:
            if seq - 1 in held:
                bridges.append([seq, previous.hex()])
            previous = stay[seq]
        else:
            _, at_ns, wall_ns, body = held[seq]
            previous = hash_of(previous, seq, at_ns, wall_ns, "sample", body)
    bridges.append([last + 1, previous.hex()])
    return bridges, [[seq, stay[seq].hex()] for seq in sorted(stay)]
