"""Whatever is done to a journal afterwards, `verify` finds it and names it."""

import os
import shutil
import sqlite3
from itertools import pairwise

import pytest

from brim.errors import BrokenJournal
from brim.journal import packing, proof, store

SAMPLE = {"held_bytes": 1, "free_bytes": 2, "level": "run"}


class Clock:
    """A clock that the test moves."""

    at = 0

    def now_ns(self) -> int:
        return self.at

    def wall_ns(self) -> int:
        return 10**18 + self.at

    def sleep_ns(self, nanoseconds: int) -> None:
        self.at += nanoseconds


def written(path: str, samples: int, monkeypatch: pytest.MonkeyPatch, keep: int = 3) -> str:
    """A finished journal with events, loose samples, full blocks and a thinned block; its head."""
    monkeypatch.setattr(packing, "BLOCK_SAMPLES", 10)
    monkeypatch.setattr(packing, "KEEP_FULL_BLOCKS", keep)
    monkeypatch.setattr(packing, "THIN_BLOCKS", 3)
    clock = Clock()
    journal = store.Journal(path, clock)
    journal.append("begin", {"schema": "brim.run/1", "brim": "0", "command": ["true"], "cwd": "/", "limits": {}})
    for index in range(samples):
        clock.at = index * 10**9
        journal.append("sample", SAMPLE | {"held_bytes": index}, durable=False)
        if index % 7 == 0:
            journal.append("level", {"level": "run", "reason": f"look {index}"}, durable=False)
    journal.append("end", {"exit_code": 0, "by": "itself"})
    assert journal.close()
    return journal.head


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(path, head) of a journal that the tests copy."""
    path = str(tmp_path_factory.mktemp("journal") / "journal.db")
    with pytest.MonkeyPatch.context() as patch:
        return path, written(path, 95, patch)


def altered(source: str, folder: object, *statements: "tuple[str, tuple[object, ...]]") -> str:
    path = os.path.join(str(folder), "journal.db")
    shutil.copy(source, path)
    with sqlite3.connect(path, isolation_level=None) as connection:
        for sql, values in statements:
            connection.execute(sql, values)
    connection.close()
    return path


def faults(path: str, head: str | None) -> list[str]:
    try:
        return proof.prove(path, head, finished=True).faults
    except BrokenJournal as fault:
        return [str(fault)]


def rows(path: str, table: str) -> list[int]:
    with sqlite3.connect(path) as connection:
        found = [row[0] for row in connection.execute(f"SELECT rowid FROM {table} ORDER BY rowid")]
    connection.close()
    return found


def test_an_untouched_journal_holds(finished: tuple[str, str]) -> None:
    """No fault is found where nothing was done, and the journal has every form of row: loose lines, full blocks and a thinned one."""
    path, head = finished
    assert faults(path, head) == []
    with sqlite3.connect(path) as connection:
        assert {form for (form,) in connection.execute("SELECT form FROM blocks")} == {"full", "thin"}
        assert connection.execute("SELECT count(*) FROM lines WHERE kind = 'sample'").fetchone()[0] > 0
    connection.close()
    assert len(store.buckets(path)) >= 1


@pytest.mark.parametrize("table", ["lines", "blocks"])
def test_every_column_of_every_row(finished: tuple[str, str], tmp_path: object, table: str) -> None:
    """Any column of any row of any table, changed to another value of its kind or of another kind, is found."""
    source, head = finished
    columns = {"lines": ("seq", "at_ns", "wall_ns", "kind", "body", "hash"), "blocks": ("first", "last", "count", "form", "body")}[table]
    missed = []
    tried = 0
    for row in rows(source, table):
        for column in columns:
            for change in (
                f"{column} + 100000" if column in ("seq", "first", "last", "count", "at_ns", "wall_ns") else f"CAST({column} || 'x' AS TEXT)",
                "x'00'",
                "1.5",
            ):
                if column in ("seq", "first") and not change.startswith(column):
                    continue  # an integer primary key takes nothing else
                path = altered(source, tmp_path, (f"UPDATE {table} SET {column} = {change} WHERE rowid = ?", (row,)))
                tried += 1
                if not faults(path, head):
                    missed.append((row, column, change))
    assert missed == []
    assert tried >= 75


@pytest.mark.parametrize("table", ["lines", "blocks"])
def test_removal_of_any_row(finished: tuple[str, str], tmp_path: object, table: str) -> None:
    """Any row removed is found and named, also without the report's head, but for the last line, whose absence the end record shows."""
    source, _ = finished
    for row in rows(source, table):
        found = faults(altered(source, tmp_path, (f"DELETE FROM {table} WHERE rowid = ?", (row,))), None)
        assert any(str(row) in fault or "end record" in fault for fault in found), (row, found)


def test_two_rows_swapped(finished: tuple[str, str], tmp_path: object) -> None:
    """Two neighbours that change places are found."""
    source, head = finished
    lines = rows(source, "lines")
    for here, there in pairwise(lines):
        path = altered(
            source, tmp_path,
            ("UPDATE lines SET seq = -1 WHERE seq = ?", (here,)),
            ("UPDATE lines SET seq = ? WHERE seq = ?", (here, there)), ("UPDATE lines SET seq = ? WHERE seq = -1", (there,)),
        )  # fmt: skip
        assert faults(path, head), (here, there)


def test_a_row_added(finished: tuple[str, str], tmp_path: object) -> None:
    """A line added at any free place, in front, in the middle of thinned samples or after the end, is found."""
    source, head = finished
    taken = set(rows(source, "lines"))
    for seq in [-1, *[seq for seq in range(max(taken)) if seq not in taken], max(taken) + 1]:
        path = altered(source, tmp_path, ("INSERT INTO lines SELECT ?, at_ns, wall_ns, kind, body, hash FROM lines WHERE seq = 0", (seq,)))
        assert faults(path, head), seq


def test_whatever_does_not_belong(finished: tuple[str, str], tmp_path: object) -> None:
    """A table, view, index or trigger that is not ours is found."""
    source, head = finished
    for sql in (
        "CREATE TABLE more (a)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE INDEX more ON lines (kind)",
        "CREATE TRIGGER more AFTER INSERT ON lines BEGIN SELECT 1; END",
    ):
        assert any("'more'" in fault for fault in faults(altered(source, tmp_path, (sql, ())), head)), sql


def test_a_cut_tail(finished: tuple[str, str], tmp_path: object) -> None:
    """A tail that was cut shows by the head in report.json and by the missing end record; a changed head in report.json shows too."""
    source, head = finished
    for seq in rows(source, "lines")[-5:]:
        path = altered(source, tmp_path, ("DELETE FROM lines WHERE seq >= ?", (seq,)))
        found = faults(path, head)
        assert any("report.json" in fault for fault in found), found
        assert any("end record" in fault for fault in found), found
    assert any("report.json" in fault for fault in faults(source, "0" * 64))


def test_a_rewritten_line_with_its_hash(finished: tuple[str, str], tmp_path: object) -> None:
    """A line rewritten together with its own hash is found at the next line, or at the head where it is the last."""
    from brim.records import GENESIS, link

    source, head = finished
    before: dict[int, bytes] = {}
    with sqlite3.connect(source) as connection:
        stored = {row[0]: row for row in connection.execute("SELECT seq, at_ns, wall_ns, kind, body, hash FROM lines")}
    connection.close()
    for seq in stored:
        before[seq] = GENESIS if seq == 0 else stored[seq - 1][5] if seq - 1 in stored else b""
    for seq, (_, at_ns, wall_ns, kind, body, _) in stored.items():
        if before[seq]:
            forged = link(before[seq], seq, at_ns, wall_ns, kind, body + " ")
            path = altered(source, tmp_path, ("UPDATE lines SET body = body || ' ', hash = ? WHERE seq = ?", (forged, seq)))
            assert faults(path, head), seq


def test_damage_by_bytes(finished: tuple[str, str], tmp_path: object) -> None:
    """A file with bytes overwritten at sixty places across it is never an unknown error: it holds, or the fault is told."""
    source, head = finished
    with open(source, "rb") as file:
        data = file.read()
    for place in range(0, len(data), max(len(data) // 60, 1)):
        path = os.path.join(str(tmp_path), "journal.db")
        with open(path, "wb") as file:
            file.write(data[:place] + bytes(byte ^ 0x5A for byte in data[place : place + 16]) + data[place + 16 :])
        faults(path, head)


def test_packing_loses_nothing(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packed journal gives back every sample in its place and in order."""
    path = os.path.join(str(tmp_path), "journal.db")
    written(path, 95, monkeypatch, keep=10**6)
    lines = list(store.read(path))
    assert [line.seq for line in lines] == list(range(len(lines)))
    held = [line.body for line in lines if line.kind == "sample"]
    assert len(held) == 95
    assert '"held_bytes":94' in held[-1]


def test_thinning_keeps_extremes(finished: tuple[str, str]) -> None:
    """The buckets of thinned samples hold the least and greatest values that were there, and how many."""
    path, _ = finished
    buckets = store.buckets(path)
    samples = sum(bucket["samples"] for bucket in buckets)
    assert buckets[0]["signals"]["held_bytes"][2] == 0
    assert buckets[-1]["signals"]["held_bytes"][4] == samples - 1
