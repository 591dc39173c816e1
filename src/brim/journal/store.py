"""Appends one line, flushes it to disk, and can prove that no line was altered; it does not interpret them.

SQLite in WAL mode. Durable lines are committed with `synchronous=FULL` (the WAL is fsynced before `append` returns); samples with `NORMAL`. All writing
is done by one thread, so that a caller with a deadline can go on while a disk hangs.
Not covered: proof of authorship (a chain without a signature proves consistency only).
"""

import contextlib
import os
import queue
import sqlite3
import threading

from brim.errors import BrokenJournal, Unreadable
from brim.records import GENESIS, JOURNAL_VERSION, canonical, check, link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from brim.seams import Clock

APPLICATION_ID = 0x6272696D  # "brim"
_SCHEMA = (
    "CREATE TABLE lines (seq INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, wall_ns INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, hash BLOB NOT NULL)"
)
_COLUMNS = "seq, at_ns, wall_ns, kind, body, hash"


class Line:
    """One line as it stands in the file."""

    __slots__ = ("at_ns", "body", "hash", "kind", "seq", "wall_ns")

    def __init__(self, seq: int, at_ns: int, wall_ns: int, kind: str, body: str, digest: bytes) -> None:
        self.seq, self.at_ns, self.wall_ns, self.kind, self.body, self.hash = seq, at_ns, wall_ns, kind, body, digest


class _Pending:
    """One line on its way to the disk."""

    __slots__ = ("at_ns", "body", "done", "durable", "fault", "kind", "wall_ns")

    def __init__(self, at_ns: int, wall_ns: int, kind: str, body: str, *, durable: bool) -> None:
        self.at_ns, self.wall_ns, self.kind, self.body, self.durable = at_ns, wall_ns, kind, body, durable
        self.done = threading.Event()
        self.fault: Exception | None = None


class Journal:
    """The journal of one run, open for appending. It must not exist yet."""

    def __init__(self, path: str, clock: "Clock") -> None:
        if os.path.exists(path):
            raise Unreadable(f"{path}: already holds a run", hint="Give another --run-dir.")
        self.path = path
        self.head = GENESIS.hex()
        self._clock = clock
        self._queue: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._write_all, name="brim-journal", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._fault is not None:
            raise Unreadable(f"{path}: cannot be written: {self._fault}", hint="Give a writable --run-dir.")

    def append(self, kind: str, body: "Mapping[str, Any]", *, durable: bool = True, deadline_ns: int | None = None) -> bool:
        """Add one line. True when it is on disk; False where that was not so within the deadline, or the disk refused it.

        Lines are stamped when they are appended, not when the disk took them. `ValueError` for a body that its kind does not allow.
        """
        check(kind, body)
        line = _Pending(self._clock.now_ns(), self._clock.wall_ns(), kind, canonical(body), durable=durable)
        self._queue.put(line)
        if not durable:
            return True
        return line.done.wait(None if deadline_ns is None else deadline_ns / 1e9) and line.fault is None

    def close(self, deadline_ns: int = 5_000_000_000) -> bool:
        """Write what is waiting and close. False where the disk did not answer within the deadline."""
        self._queue.put(None)
        self._thread.join(deadline_ns / 1e9)
        return not self._thread.is_alive()

    def _write_all(self) -> None:
        try:
            connection = self._open()
        except (sqlite3.Error, OSError) as fault:
            self._fault = fault
            self._ready.set()
            return
        self._ready.set()
        seq, previous = 0, GENESIS
        while (line := self._queue.get()) is not None:
            digest = link(previous, seq, line.at_ns, line.wall_ns, line.kind, line.body)
            try:
                connection.execute(f"PRAGMA synchronous={'FULL' if line.durable else 'NORMAL'}")
                connection.execute(f"INSERT INTO lines ({_COLUMNS}) VALUES (?,?,?,?,?,?)", (seq, line.at_ns, line.wall_ns, line.kind, line.body, digest))
            except sqlite3.Error as fault:
                line.fault = fault
            else:
                seq, previous = seq + 1, digest
                self.head = digest.hex()
            line.done.set()
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={JOURNAL_VERSION}")
        connection.execute(_SCHEMA)
        return connection


def read(path: str) -> "Iterator[Line]":
    """The lines of a journal in order, without judging them. `Unreadable` where there is none, `BrokenJournal` where SQLite cannot read it."""
    if not os.path.isfile(path):
        raise Unreadable(f"{path}: no journal here")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True)) as connection:
            yield from (Line(*row) for row in connection.execute(f"SELECT {_COLUMNS} FROM lines ORDER BY seq"))
    except sqlite3.Error as fault:
        raise BrokenJournal(f"{path}: SQLite cannot read it: {fault}") from None


def verify(path: str, expected_head: str | None, *, finished: bool) -> tuple[int, str]:
    """Recompute the chain: (number of lines, head). `BrokenJournal` names the first line that is wrong.

    `expected_head` is the head that stands in report.json, None where there is no report. A finished run must end with its end record.
    """
    previous, count, last = GENESIS, 0, ""
    _check_objects(path)
    for line in read(path):
        if (type(line.at_ns), type(line.wall_ns), type(line.kind), type(line.body), type(line.hash)) != (int, int, str, str, bytes):
            raise BrokenJournal(f"{path}: line {line.seq} was altered: a column has another type than it was written with")
        if line.seq != count:
            raise BrokenJournal(f"{path}: line {count} is missing (the next one is {line.seq})")
        if link(previous, line.seq, line.at_ns, line.wall_ns, line.kind, line.body) != line.hash:
            raise BrokenJournal(f"{path}: line {line.seq} ({line.kind}) was altered, or a line before it was removed, added or moved")
        previous, count, last = line.hash, count + 1, line.kind
    head = previous.hex()
    if expected_head is not None and head != expected_head:
        raise BrokenJournal(f"{path}: ends at {head[:16]}…, but report.json says {expected_head[:16]}…: lines were cut off or added at the end")
    if finished and last != "end":
        raise BrokenJournal(f"{path}: the run is finished, but its end record is missing (the last line is {last or 'none'!r})")
    return count, head


def _check_objects(path: str) -> None:
    """The file may hold our one table and nothing else: a row in a table of somebody else's would be under no chain."""
    if not os.path.isfile(path):
        raise Unreadable(f"{path}: no journal here")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True)) as connection:
            objects = list(connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name"))
    except sqlite3.Error as fault:
        raise BrokenJournal(f"{path}: SQLite cannot read it: {fault}") from None
    if objects != [("lines", _SCHEMA)]:
        raise BrokenJournal(f"{path}: holds {', '.join(repr(name) for name, _ in objects) or 'nothing'} where only the table 'lines', as it was made, belongs")


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
