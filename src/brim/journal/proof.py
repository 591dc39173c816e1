"""Recomputes a journal's whole chain and names every line that does not hold; it does not interpret what the lines say.

What is found: a line, a block or any column of either that was altered; lines removed, added, moved or swapped; blocks altered, removed or added; a tail
that was cut (the head
stands in report.json too); an end record that is missing from a finished run; tables, indexes, views or triggers that do not belong. Not found: a journal
rewritten
from its first line together with its report.json, which only a signature shows.
"""

import contextlib
import os
import sqlite3

from brim.errors import BrokenJournal, Unreadable
from brim.journal import blocks, packing
from brim.records import GENESIS, link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MOST_FAULTS = 100
TABLES = {"lines", "blocks"}


class Proof:
    """What a verification found: `count` lines that hold or not, the `head` (hex), the kind of the last line, and every fault in words."""

    __slots__ = ("count", "faults", "head", "last_kind")

    def __init__(self) -> None:
        self.count = 0
        self.head = GENESIS.hex()
        self.last_kind = ""
        self.faults: list[str] = []

    def add(self, fault: str) -> None:
        """One more fault; past a hundred they are only counted off."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(fault)


def opened(path: str) -> sqlite3.Connection:
    """The journal, read-only. `Unreadable` where there is none."""
    if not os.path.isfile(path):
        raise Unreadable(f"{path}: no journal here")
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return sqlite3.connect(f"file:{quoted}?mode=ro", uri=True)


def prove(path: str, expected_head: str | None, *, finished: bool) -> Proof:
    """Recompute everything. `BrokenJournal` only where SQLite cannot read the file at all; everything else is in the proof's faults."""
    proof = Proof()
    try:
        with contextlib.closing(opened(path)) as connection:
            connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
            _objects(connection, proof)
            _integrity(connection, proof)
            bridges = _blocks(connection, proof)
            _chain(connection, proof, bridges)
    except sqlite3.Error as fault:
        raise BrokenJournal(f"{path}: SQLite cannot read it: {fault}") from None
    if expected_head is not None and proof.head != expected_head:
        proof.add(
            f"the journal ends at {proof.head[:16]}…, but report.json says {expected_head[:16]}…: "
            "lines were cut off, added or rewritten, or the report was altered"
        )
    if finished and proof.last_kind != "end":
        proof.add(f"the run is finished, but its end record is missing (the last line is {proof.last_kind or 'none'!r})")
    return proof


def _objects(connection: sqlite3.Connection, proof: Proof) -> None:
    """Only our tables, as we made them: a row in somebody else's table would be under no chain."""
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master").fetchall())
    for name in sorted(set(found) - TABLES):
        proof.add(f"{name!r} stands in the file, where only the tables 'lines' and 'blocks' belong")
    for name in sorted(TABLES - set(found)):
        proof.add(f"the table {name!r} is missing")
    for name, made in (("lines", packing.LINES), ("blocks", packing.BLOCKS)):
        if found.get(name, made) != made:
            proof.add(f"the table {name!r} is not as it was made")


def _integrity(connection: sqlite3.Connection, proof: Proof) -> None:
    first = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if first != "ok":
        proof.add(f"SQLite says that the file is damaged: {first}")


def _blocks(connection: sqlite3.Connection, proof: Proof) -> dict[int, bytes]:
    """Check every block against the line that speaks for it; give the bridges of the thinned ones. Problems are faults of the proof."""
    said = _spoken_for(connection)
    bridges: dict[int, bytes] = {}
    for first, last, count, form, body in connection.execute("SELECT first, last, count, form, body FROM blocks ORDER BY first"):
        wanted = said.pop((first, last), None)
        if wanted is None:
            proof.add(f"block {first}…{last} was added or altered: no line speaks for it")
        elif not isinstance(body, bytes) or packing.digest(first, last, count, form, body) != wanted:
            proof.add(f"block {first}…{last} was altered: its digest is not the one in the chain")
        if form == packing.THIN and isinstance(body, bytes):
            try:
                notes = blocks.unpack_thin(body)[0]
                bridges.update((seq, bytes.fromhex(before)) for seq, before in notes["bridges"])
                _stays(connection, proof, first, last, notes)
            except (ValueError, KeyError, TypeError, IndexError):
                proof.add(f"block {first}…{last} cannot be unpacked")
    for first, last in said:
        proof.add(f"block {first}…{last} is missing")
    return bridges


def _spoken_for(connection: sqlite3.Connection) -> dict[tuple[int, int], str]:
    """(first, last) → digest of every block that ought to stand, as the lines of the chain say; a thinned block replaces the full ones in its span."""
    import json

    said: dict[tuple[int, int], str] = {}
    for kind, body in connection.execute("SELECT kind, body FROM lines WHERE kind IN ('packed', 'thinned') ORDER BY seq"):
        try:
            told = json.loads(body)
            span = (int(told["first"]), int(told["last"]))
        except (ValueError, KeyError, TypeError):
            continue  # the chain names this line
        if kind == "thinned":
            said = {one: digest for one, digest in said.items() if not (span[0] <= one[0] and one[1] <= span[1])}
        said[span] = str(told.get("digest"))
    return said


def _stays(connection: sqlite3.Connection, proof: Proof, first: int, last: int, notes: "dict[str, Any]") -> None:
    """Among the samples that were thinned away, exactly the lines that stayed must stand, each with the hash that it had.

    So must the line that the block follows.
    """
    stay = dict(notes["stay"])
    here = {
        seq: stored.hex() if isinstance(stored, bytes) else ""
        for seq, stored in connection.execute("SELECT seq, hash FROM lines WHERE seq BETWEEN ? AND ?", (first - 1, last))
    }
    before = here.pop(first - 1, None)
    if before is None and first and not connection.execute("SELECT 1 FROM blocks WHERE last = ?", (first - 1,)).fetchone():
        proof.add(f"line {first - 1} is missing")
    if before is not None and before != notes["after"]:
        proof.add(f"line {first - 1} was altered: block {first}…{last} follows from another one")
    for seq in sorted(stay.keys() - here.keys()):
        proof.add(f"line {seq} is missing")
    for seq in sorted(here.keys() - stay.keys()):
        proof.add(f"line {seq} was added in the place of a thinned sample")
    for seq in sorted(seq for seq in stay.keys() & here.keys() if stay[seq] != here[seq]):
        proof.add(f"line {seq} was altered: its hash is not the one that it had when its neighbours were thinned")


def merged(connection: sqlite3.Connection) -> "Iterator[tuple[int, int, int, str, str, bytes | None]]":
    """Every line in order, the ones in full blocks put back in their places (their hash is None: it is recomputed).

    `ValueError` for a block that cannot be unpacked.
    """
    packed = connection.execute("SELECT first, body FROM blocks WHERE form = 'full' ORDER BY first").fetchall
    waiting: list[Any] = []
    pieces = iter(packed())
    piece = next(pieces, None)
    for line in connection.execute("SELECT seq, at_ns, wall_ns, kind, body, hash FROM lines ORDER BY seq"):
        while (waiting and waiting[-1][0] < line[0]) or (not waiting and piece is not None and piece[0] < line[0]):
            if not waiting:
                waiting = [(seq, at_ns, wall_ns, "sample", body, None) for seq, at_ns, wall_ns, body in reversed(blocks.unpack(piece[1]))]  # type: ignore[index]
                piece = next(pieces, None)
                continue
            yield waiting.pop()
        yield line
    yield from reversed(waiting)
    while piece is not None:
        yield from ((seq, at_ns, wall_ns, "sample", body, None) for seq, at_ns, wall_ns, body in blocks.unpack(piece[1]))
        piece = next(pieces, None)


def _chain(connection: sqlite3.Connection, proof: Proof, bridges: dict[int, bytes]) -> None:
    """Follow the chain line by line. After a fault it goes on from the stored hash, so that one altered line is one fault and not all that follow."""
    previous, wanted = GENESIS, 0
    try:
        for seq, at_ns, wall_ns, kind, body, stored in merged(connection):
            if seq in bridges:
                previous, wanted = bridges[seq], seq
            if seq > wanted:
                proof.add(f"line {wanted} is missing" if seq == wanted + 1 else f"lines {wanted}…{seq - 1} are missing")
                proof.count, previous, wanted, proof.last_kind = proof.count + 1, stored or previous, seq + 1, str(kind)
                continue  # what it follows from is gone, so only the next line can be judged
            if seq < wanted:
                proof.add(f"line {seq} stands twice, or out of its place")
            proof.count += 1
            previous = _line(proof, previous, seq, at_ns, wall_ns, kind, body, stored)
            wanted, proof.last_kind = seq + 1, kind
    except ValueError as fault:
        proof.add(f"after line {wanted - 1}: {fault}")
    proof.head = bridges.get(wanted, previous).hex()


def _line(proof: Proof, previous: bytes, seq: int, at_ns: object, wall_ns: object, kind: object, body: object, stored: object) -> bytes:
    """The hash to go on with, after one line was checked."""
    wrong = [
        name
        for name, value, kinds in (
            ("at_ns", at_ns, int),
            ("wall_ns", wall_ns, int),
            ("kind", kind, str),
            ("body", body, str),
            ("hash", stored, (bytes, type(None))),
        )
        if not isinstance(value, kinds)
    ]
    if wrong:
        proof.add(f"line {seq}: {', '.join(wrong)} was altered: it holds a value of another kind")
        return stored if isinstance(stored, bytes) else previous
    try:
        found = link(previous, seq, at_ns, wall_ns, kind, body)  # type: ignore[arg-type]
    except UnicodeEncodeError:
        proof.add(f"line {seq} was altered: its text is no UTF-8")
        return stored if isinstance(stored, bytes) else previous
    if stored is None or found == stored:
        return found
    proof.add(f"line {seq} ({kind}) was altered, added or moved, or the line before it was")
    return stored  # type: ignore[return-value]
