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
from brim.journal import blocks, packing, proof
from brim.records import GENESIS, JOURNAL_VERSION, canonical, check, link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from brim.seams import Clock

APPLICATION_ID = 0x6272696D  # "brim"
COMPANY, COMPANY_NS = 5, 4_000_000_000
MOST_OWED = 1000  # lines that are kept for a disk that is full
_COLUMNS = "seq, at_ns, wall_ns, kind, body, hash"


class Line:
    """One line as it stands in the file."""

    __slots__ = ("at_ns", "body", "hash", "kind", "seq", "wall_ns")

    def __init__(self, seq: int, at_ns: int, wall_ns: int, kind: str, body: str, digest: bytes | None) -> None:
        self.seq, self.at_ns, self.wall_ns, self.kind, self.body, self.hash = seq, at_ns, wall_ns, kind, body, digest


class _Pending:
    """One line on its way to the disk. Only for a durable one does anybody wait."""

    __slots__ = ("at_ns", "body", "done", "durable", "fault", "kind", "synced", "wall_ns")

    def __init__(self, at_ns: int, wall_ns: int, kind: str, body: str, *, durable: bool, synced: bool) -> None:
        self.at_ns, self.wall_ns, self.kind, self.body, self.durable, self.synced = at_ns, wall_ns, kind, body, durable, synced
        self.done = threading.Event() if durable else None
        self.fault: Exception | None = None

    def settle(self, fault: "Exception | None" = None) -> None:
        """It is on disk, or it never will be: whoever waits is let go."""
        self.fault = fault or self.fault
        if self.done is not None:
            self.done.set()


class Journal:
    """The journal of one run, open for appending. It must not exist yet."""

    def __init__(self, path: str, clock: "Clock") -> None:
        if os.path.exists(path):
            raise Unreadable(f"{path}: already holds a run", hint="Give another --run-dir.")
        self.path = path
        self.head = GENESIS.hex()
        self._seq, self._previous, self._unpacked = 0, GENESIS, 0
        self._clock = clock
        self._queue: queue.SimpleQueue[list[_Pending] | None] = queue.SimpleQueue()
        self._held: list[_Pending] = []  # lines that may wait for company
        self._gate = threading.Lock()
        self._ready = threading.Event()
        self._fault: Exception | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._live, name="brim-journal", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._fault is not None:
            raise Unreadable(f"{path}: cannot be written: {self._fault}", hint="Give a writable --run-dir.")

    def append(
        self,
        kind: str,
        body: "Mapping[str, Any]",
        *,
        durable: bool = True,
        synced: bool = True,
        deadline_ns: int | None = None,
        may_wait: bool = False,
        more: bool = False,
        stamp: "tuple[int, int] | None" = None,
    ) -> bool:
        """Add one line. True when it is on disk; False where that was not so within the deadline, or the disk refused it.

        Lines are stamped when they are appended (or bear the `stamp`, (monotonic, wall) ns, of when it was), not when the disk took them. A durable line that is not `synced` is told to be there as soon as it is committed (our own
        death cannot take it away any more, only a power cut within the next moment); the disk is flushed right after. A line that `may_wait` is written together with those
        after it, by fives, and `COMPANY_NS` later at the latest as long as lines come: a commit costs as much as the look that it records. With `more` the next line follows
        at once, and goes with this one. `ValueError` for a body that its kind does not allow.
        """
        check(kind, body)
        at_ns, wall_ns = stamp or (self._clock.now_ns(), self._clock.wall_ns())
        line = _Pending(at_ns, wall_ns, kind, canonical(body), durable=durable, synced=synced)
        with self._gate:
            self._held.append(line)
            if more and not durable:
                return True
            if durable or not may_wait or len(self._held) >= COMPANY or line.at_ns - self._held[0].at_ns >= COMPANY_NS:
                self._hand_over()
        if line.done is None:
            return True
        if self._ended:  # nobody takes it any more; set before the queue is emptied, so that no line waits for ever
            return line.done.is_set() and line.fault is None
        return line.done.wait(None if deadline_ns is None else deadline_ns / 1e9) and line.fault is None

    def _hand_over(self) -> None:
        """Give the writer the lines that waited and the newest, as one transaction."""
        if self._held:
            self._queue.put(self._held)
            self._held = []

    def close(self, deadline_ns: int = 5_000_000_000) -> bool:
        """Write what is waiting and close. False where the disk did not answer within the deadline."""
        with self._gate:
            self._hand_over()
            self._queue.put(None)
        self._thread.join(deadline_ns / 1e9)
        return not self._thread.is_alive()

    def _live(self) -> None:
        """The writing thread. However it ends, whoever waits for a line is let go."""
        try:
            self._write_all()
        finally:
            self._ended = True
            self._ready.set()
            while not self._queue.empty():
                for line in self._queue.get() or ():
                    line.settle(sqlite3.OperationalError("the journal is closed"))

    def _write_all(self) -> None:
        try:
            connection = self._open()
        except Exception as fault:  # noqa: BLE001 — whoever made it is told
            self._fault = fault
            self._ready.set()
            return
        self._ready.set()
        self._connection = connection
        durable: bool | None = None
        owed: list[_Pending] = []  # what a full disk refused and nobody waits for: it comes before the next lines
        while (lines := self._queue.get()) is not None:
            full = lines[-1].durable and lines[-1].synced
            if full is not durable:  # asked for only where it changes
                with contextlib.suppress(sqlite3.Error):
                    connection.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
                    durable = full
            refused = self._try([*owed, *lines])
            if refused is not None and owed and lines[-1].durable and (refused := self._try(lines)) is None:
                owed = []  # there was room for that one alone; stamps do not run backwards
            for line in lines:
                line.settle(refused)
            owed = [] if refused is None else [*owed, *(line for line in lines if not line.durable)][-MOST_OWED:]
            if not lines[-1].synced:
                self._flush()
            if self._unpacked >= 2 * packing.BLOCK_SAMPLES:
                self._pack(lines[-1].at_ns, lines[-1].wall_ns)
        if owed:
            self._try(owed)
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()

    def _flush(self) -> None:
        """What was committed without waiting for the disk goes there now (SQLite's own name for the write-ahead log is the journal's with `-wal`)."""
        with contextlib.suppress(OSError), open(self.path + "-wal", "rb") as file:
            os.fsync(file.fileno())

    def _try(self, lines: "list[_Pending]") -> "Exception | None":
        """Insert them; what refused them, where it is: whoever waits for one must be told, and the next line must be taken."""
        try:
            self._insert_all(lines)
        except Exception as error:  # noqa: BLE001 — whatever it is
            return error
        return None

    def _insert_all(self, lines: "list[_Pending]") -> None:
        """All of them or none: the chain stands where it stood when the disk refuses."""
        before = self._seq, self._previous, self.head, self._unpacked
        alone = len(lines) == 1
        try:
            if not alone:
                self._connection.execute("BEGIN IMMEDIATE")
            for line in lines:
                self._insert(line.at_ns, line.wall_ns, line.kind, line.body)
            if not alone:
                self._connection.execute("COMMIT")
        except Exception:
            if not alone:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            self._seq, self._previous, self.head, self._unpacked = before
            raise

    def _insert(self, at_ns: int, wall_ns: int, kind: str, body: str) -> None:
        """One line into the file; the chain goes on only when it is there."""
        digest = link(self._previous, self._seq, at_ns, wall_ns, kind, body)
        self._connection.execute(f"INSERT INTO lines ({_COLUMNS}) VALUES (?,?,?,?,?,?)", (self._seq, at_ns, wall_ns, kind, body, digest))
        self._seq, self._previous, self.head = self._seq + 1, digest, digest.hex()
        self._unpacked += kind == "sample"

    def _pack(self, at_ns: int, wall_ns: int) -> None:
        """Pack the older samples, and thin where there are days of them; a disk that refuses leaves everything as it was."""
        before = self._seq, self._previous, self.head
        try:
            self._connection.execute("BEGIN IMMEDIATE")

            def append(kind: str, body: "Mapping[str, Any]") -> None:
                self._insert(at_ns, wall_ns, kind, canonical(body))

            packing.pack(self._connection, append)
            packing.thin(self._connection, append, link, GENESIS)
            self._connection.execute("COMMIT")
        except Exception:  # noqa: BLE001 — see _live: the writer goes on
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            self._seq, self._previous, self.head = before
        self._unpacked -= packing.BLOCK_SAMPLES

    def _open(self) -> sqlite3.Connection:
        """Make the journal under another name and rename it when it is whole, so that whoever finds `path` finds one that opens, whenever we were killed."""
        fresh = self.path + ".new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={JOURNAL_VERSION}")
            connection.execute(packing.LINES)
            connection.execute(packing.BLOCKS)
        os.rename(fresh, self.path)  # the last connection's close has folded the WAL into the file
        return sqlite3.connect(self.path, isolation_level=None)


def read(path: str) -> "Iterator[Line]":
    """The lines of a journal in order, packed samples put back in their places, without judging them; thinned samples are told by `buckets`.

    `Unreadable` where there is none, `BrokenJournal` where SQLite cannot read it.
    """
    try:
        with contextlib.closing(proof.opened(path)) as connection:
            yield from (Line(*row) for row in proof.merged(connection))
    except (sqlite3.Error, ValueError) as fault:
        raise BrokenJournal(f"{path}: cannot be read: {fault}") from None


def events(path: str) -> "list[Line]":
    """Every line that is no sample, in order; a day of samples costs it nothing."""
    try:
        with contextlib.closing(proof.opened(path)) as connection:
            return [Line(*row) for row in connection.execute(f"SELECT {_COLUMNS} FROM lines WHERE kind <> 'sample' ORDER BY seq")]
    except sqlite3.Error as fault:
        raise BrokenJournal(f"{path}: SQLite cannot read it: {fault}") from None


def samples(path: str) -> "Iterator[Line]":
    """The samples in order, packed ones put back; not judged. `BrokenJournal` where they cannot be read."""
    return (line for line in read(path) if line.kind == "sample")


def buckets(path: str) -> "list[dict[str, Any]]":
    """The buckets of the thinned samples in order (see blocks.py); none in a run of less than two days."""
    try:
        with contextlib.closing(proof.opened(path)) as connection:
            rows = connection.execute("SELECT body FROM blocks WHERE form = ? ORDER BY first", (packing.THIN,)).fetchall()
        return [bucket for (body,) in rows for bucket in blocks.unpack_thin(body)[1:]]
    except (sqlite3.Error, ValueError) as fault:
        raise BrokenJournal(f"{path}: cannot be read: {fault}") from None


def verify(path: str, expected_head: str | None, *, finished: bool) -> tuple[int, str]:
    """Recompute the chain: (number of lines, head). `BrokenJournal` names what does not hold, the first fault first.

    `expected_head` is the head that stands in report.json, None where there is no report. A finished run must end with its end record.
    """
    found = proof.prove(path, expected_head, finished=finished)
    if found.faults:
        more = f" (and {len(found.faults) - 1} more)" if len(found.faults) > 1 else ""
        raise BrokenJournal(f"{path}: {found.faults[0]}{more}")
    return found.count, found.head
