"""The journal finds every kind of tampering, survives a slow disk, and never loses an acknowledged line."""

import json
import os
import sqlite3
import time

import pytest

from brim.clock import FakeClock
from brim.errors import BrokenJournal, Unreadable
from brim.journal import store


@pytest.fixture
def path(tmp_path):
    where = str(tmp_path / "journal.db")
    journal = store.Journal(where, FakeClock())
    journal.append("begin", {"schema": "brim.journal/1", "brim": "0", "command": ["x"], "cwd": "/", "limits": {}})
    for number in range(5):
        journal.append("sample", {"held_bytes": number, "free_bytes": 9, "level": "run"}, durable=False)
    journal.append("end", {"exit_code": 0, "by": "child"})
    assert journal.close()
    return where


def head(path: str) -> str:
    return store.verify(path, None, finished=True)[1]


TAMPERING = [
    ("body changed", "UPDATE lines SET body = replace(body, '9', '8') WHERE seq = 3"),
    ("kind changed", "UPDATE lines SET kind = 'level' WHERE seq = 3"),
    ("monotonic time changed", "UPDATE lines SET at_ns = at_ns + 1 WHERE seq = 3"),
    ("wall time changed", "UPDATE lines SET wall_ns = wall_ns + 1 WHERE seq = 0"),
    ("hash changed", "UPDATE lines SET hash = randomblob(32) WHERE seq = 3"),
    ("row removed", "DELETE FROM lines WHERE seq = 3"),
    ("first row removed", "DELETE FROM lines WHERE seq = 0"),
    ("tail cut", "DELETE FROM lines WHERE seq >= 4"),
    ("end record removed", "DELETE FROM lines WHERE kind = 'end'"),
    ("everything removed", "DELETE FROM lines"),
    ("row added at the end", "INSERT INTO lines SELECT 7, at_ns, wall_ns, kind, body, hash FROM lines WHERE seq = 6"),
    ("row added before the first", "INSERT INTO lines SELECT -1, at_ns, wall_ns, kind, body, hash FROM lines WHERE seq = 0"),
    (
        "rows swapped",
        "UPDATE lines SET seq = CASE seq WHEN 2 THEN 103 WHEN 3 THEN 2 ELSE seq END WHERE seq IN (2, 3); UPDATE lines SET seq = 3 WHERE seq = 103",
    ),
    ("renumbered", "UPDATE lines SET seq = seq + 1000; UPDATE lines SET seq = seq - 999"),
    ("a table added", "CREATE TABLE extra (x)"),
    ("a view added", "CREATE VIEW extra AS SELECT 1"),
    ("body turned into a blob", "UPDATE lines SET body = CAST(body AS BLOB) WHERE seq = 2"),
    ("a column added", "ALTER TABLE lines ADD COLUMN note TEXT"),
    ("an index added", "CREATE INDEX extra ON lines (kind)"),
    ("body set to null text", "UPDATE lines SET body = '' WHERE seq = 2"),
]


@pytest.mark.parametrize("change", [row[1] for row in TAMPERING], ids=[row[0] for row in TAMPERING])
def test_tampering_is_found(path: str, change: str) -> None:
    """Anything altered, dropped, added or reordered breaks the chain, or parts it from the head in the report."""
    before = head(path)
    connection = sqlite3.connect(path)
    connection.executescript(change)
    connection.close()
    with pytest.raises(BrokenJournal):
        store.verify(path, before, finished=True)


def test_an_untouched_journal_verifies(path: str) -> None:
    """Seven lines, one head, also without a report beside it."""
    assert store.verify(path, head(path), finished=True) == (7, head(path))


def test_a_run_folder_is_never_written_twice(path: str) -> None:
    """A second journal at the same place is refused, and the first is unharmed."""
    before = head(path)
    with pytest.raises(Unreadable, match="already holds a run"):
        store.Journal(path, FakeClock())
    assert head(path) == before


def test_what_is_no_journal_is_said(tmp_path) -> None:
    """A missing file and a file of something else are two different answers."""
    with pytest.raises(Unreadable):
        store.verify(str(tmp_path / "none"), None, finished=False)
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(BrokenJournal):
        store.verify(str(tmp_path / "text"), None, finished=False)


def test_a_stop_does_not_wait_for_the_disk(tmp_path, monkeypatch) -> None:
    """With a writer that is stuck for a second, a record with a 50 ms deadline returns False in well under that second, and is written later."""
    where = str(tmp_path / "journal.db")
    journal = store.Journal(where, FakeClock())
    real = store.link
    monkeypatch.setattr(store, "link", lambda *words: (time.sleep(1), real(*words))[1])
    began = time.monotonic()
    assert journal.append("intent", {"kind": "terminate", "reason": "r"}, deadline_ns=50_000_000) is False
    assert time.monotonic() - began < 0.6
    assert journal.close()
    monkeypatch.undo()
    assert store.verify(where, None, finished=False)[0] == 1


def test_wrong_records_are_our_bug(tmp_path) -> None:
    """An unknown kind, or a body without its fields, never reaches the disk."""
    journal = store.Journal(str(tmp_path / "journal.db"), FakeClock())
    for kind, body in (("nonsense", {}), ("end", {"exit_code": 0})):
        with pytest.raises(ValueError, match=r"unknown record kind|needs"):
            journal.append(kind, body)
    journal.close()
    assert os.path.getsize(tmp_path / "journal.db") > 0


def test_bytes_that_are_no_text(tmp_path) -> None:
    """A command line of any bytes is written, proved and read back as it was."""
    where = str(tmp_path / "journal.db")
    journal = store.Journal(where, FakeClock())
    command = ["printf", "a\udcff\\", "\\\udcfe"]
    assert journal.append("begin", {"schema": "brim.journal/1", "brim": "0", "command": command, "cwd": "/", "limits": {}}, deadline_ns=5 * 10**9)
    assert journal.append("end", {"exit_code": 0, "by": "child"}, deadline_ns=5 * 10**9)
    assert journal.close()
    assert store.verify(where, journal.head, finished=True)[0] == 2
    assert json.loads(next(store.read(where)).body)["command"] == command


def test_nobody_waits_for_a_line_that_cannot_be_written(tmp_path, monkeypatch) -> None:
    """Whatever goes wrong in the writer, the one who waits is told, the next line is taken; and a closed journal takes none."""
    journal = store.Journal(str(tmp_path / "journal.db"), FakeClock())
    with monkeypatch.context() as broken:
        broken.setattr(store, "link", lambda *_: 1 / 0)
        assert not journal.append("end", {"exit_code": 0, "by": "child"}, deadline_ns=5 * 10**9)
    assert journal.append("end", {"exit_code": 0, "by": "child"}, deadline_ns=5 * 10**9)
    assert journal.close()
    assert not journal.append("end", {"exit_code": 0, "by": "child"})


def test_a_line_that_may_wait_comes_with_the_next_one(tmp_path) -> None:
    """Quiet samples wait for company, five of them or four seconds; whatever cannot wait takes them along, in order, in one transaction; nothing is left behind at the end."""
    where, clock = str(tmp_path / "journal.db"), FakeClock()
    journal = store.Journal(where, clock)
    journal.append("begin", {"schema": "brim.journal/1", "brim": "0", "command": ["x"], "cwd": "/", "limits": {}})

    def on_disk() -> list[str]:
        return [line.kind for line in store.read(where)]

    for _ in range(3):
        journal.append("sample", {"held_bytes": 1, "free_bytes": 9, "level": "run"}, durable=False, may_wait=True)
        clock.advance(1_000_000_000)
    assert on_disk() == ["begin"]
    assert journal.append("intent", {"kind": "stop", "reason": "r"}, synced=False)
    assert on_disk() == ["begin", "sample", "sample", "sample", "intent"]
    for pace in (100_000_000,) * 5 + (2_000_000_000,) * 3:  # five in half a second; three of which the last is four seconds younger than the first
        journal.append("sample", {"held_bytes": 1, "free_bytes": 9, "level": "run"}, durable=False, may_wait=True)
        clock.advance(pace)
    for _ in range(200):
        if len(on_disk()) == 13:
            break
        time.sleep(0.01)
    assert on_disk()[5:] == ["sample"] * 8
    journal.append("sample", {"held_bytes": 1, "free_bytes": 9, "level": "run"}, durable=False, may_wait=True)
    assert journal.close()
    count, head = store.verify(where, None, finished=False)
    assert (count, head) == (14, journal.head)


def test_a_batch_that_the_disk_refuses_leaves_the_chain_as_it_was(tmp_path) -> None:
    """All lines of a transaction or none: the next line follows from the last one that is there. What nobody waited for (two minutes of polls, a level) comes with it."""
    where = str(tmp_path / "journal.db")
    journal = store.Journal(where, FakeClock())
    journal.append("begin", {"schema": "brim.journal/1", "brim": "0", "command": ["x"], "cwd": "/", "limits": {}})
    lock = sqlite3.connect(where, isolation_level=None)
    lock.execute("CREATE TRIGGER full BEFORE INSERT ON lines WHEN NEW.kind = 'intent' BEGIN SELECT RAISE(ABORT, 'disk full'); END")
    journal.append("sample", {"held_bytes": 1, "free_bytes": 9, "level": "run"}, durable=False, may_wait=True)
    assert not journal.append("intent", {"kind": "stop", "reason": "r"})
    lock.execute("DROP TRIGGER full")
    lock.close()
    assert journal.append("level", {"level": "run", "reason": "r"})
    assert journal.close()
    assert [line.kind for line in store.read(where)] == ["begin", "sample", "level"]
    assert store.verify(where, None, finished=False)[0] == 3


@pytest.mark.parametrize("comes_back", [True, False])
def test_what_a_full_disk_refused_is_written_when_there_is_room(tmp_path, comes_back) -> None:
    """In order, at the next line or at the end; where there is room for an act alone, the act has it."""
    where = str(tmp_path / "journal.db")
    journal = store.Journal(where, FakeClock())
    journal.append("begin", {"schema": "brim.journal/1", "brim": "0", "command": ["x"], "cwd": "/", "limits": {}})
    disk = sqlite3.connect(where, isolation_level=None)
    disk.execute("CREATE TRIGGER full BEFORE INSERT ON lines WHEN NEW.kind = 'sample' BEGIN SELECT RAISE(ABORT, 'disk full'); END")
    for held in range(7):
        journal.append("sample", {"held_bytes": held, "free_bytes": 9, "level": "run"}, durable=False)
    if comes_back:
        while journal._queue.qsize():  # the disk has refused them by now
            time.sleep(0.01)
        disk.execute("DROP TRIGGER full")
    else:
        assert journal.append("intent", {"kind": "stop", "reason": "r"})
    assert journal.close()
    disk.execute("DROP TRIGGER IF EXISTS full")
    disk.close()
    kinds = [line.kind for line in store.read(where)]
    assert kinds == (["begin", *["sample"] * 7] if comes_back else ["begin", "intent"])
    assert store.verify(where, None, finished=False)[0] == len(kinds)
