"""Kinds of tampering × found: every kind is tried at every place of a finished journal with loose lines, full blocks and a thinned block; writes docs/evidence/journal.md.

Run: python tests/evidence/tampering.py. The journal is made from fixed values, so the table is the same on every machine; the cost below it is this machine's.
"""

import datetime
import itertools
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.cli.test_evidence_commands import leaves  # noqa: E402
from tests.edges.test_tamper import altered, faults, rows, written  # noqa: E402

from brim import api  # noqa: E402
from brim.errors import BrimError  # noqa: E402
from brim.facts.settings import limits  # noqa: E402
from brim.records import GENESIS, link  # noqa: E402

COLUMNS = {"lines": ("seq", "at_ns", "wall_ns", "kind", "body", "hash"), "blocks": ("first", "last", "count", "form", "body")}
NUMBERS = ("seq", "at_ns", "wall_ns", "first", "last", "count")


def cases(source: str):
    """(kind of tampering, SQL statements) for every place."""
    import sqlite3

    with sqlite3.connect(source) as connection:
        stored = {row[0]: row for row in connection.execute("SELECT seq, at_ns, wall_ns, kind, body, hash FROM lines")}
    connection.close()
    for table, columns in COLUMNS.items():
        here = rows(source, table)
        for column in columns:
            for row in here:
                change = f"{column} + 100000" if column in NUMBERS else f"CAST({column} || 'x' AS TEXT)"
                yield f"{table}.{column} altered", [(f"UPDATE {table} SET {column} = {change} WHERE rowid = ?", (row,))]
                if column not in ("seq", "first"):
                    yield f"{table}.{column} of another type", [(f"UPDATE {table} SET {column} = x'00' WHERE rowid = ?", (row,))]
        for row in here:
            yield f"row of {table} removed", [(f"DELETE FROM {table} WHERE rowid = ?", (row,))]
    lines = rows(source, "lines")
    for here, there in itertools.pairwise(lines):
        swap = [("UPDATE lines SET seq = -1 WHERE seq = ?", (here,)), ("UPDATE lines SET seq = ? WHERE seq = ?", (here, there))]
        yield "two lines swapped", [*swap, ("UPDATE lines SET seq = ? WHERE seq = -1", (there,))]
    for seq in [-1, *[seq for seq in range(max(lines)) if seq not in lines], max(lines) + 1]:
        yield "line added", [("INSERT INTO lines SELECT ?, at_ns, wall_ns, kind, body, hash FROM lines WHERE seq = 0", (seq,))]
    for seq in lines:
        yield "tail cut", [("DELETE FROM lines WHERE seq >= ?", (seq,))]
        before = GENESIS if seq == 0 else stored[seq - 1][5] if seq - 1 in stored else None
        if before:
            _, at_ns, wall_ns, kind, body, _ = stored[seq]
            forged = link(before, seq, at_ns, wall_ns, kind, body + " ")
            yield "line rewritten with a fitting hash", [("UPDATE lines SET body = body || ' ', hash = ? WHERE seq = ?", (forged, seq))]
    yield "end record removed", [("DELETE FROM lines WHERE kind = 'end'", ())]
    for sql in (
        "CREATE TABLE more (a)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE INDEX more ON lines (kind)",
        "CREATE TRIGGER more AFTER INSERT ON lines BEGIN SELECT 1; END",
    ):
        yield "foreign table, view, index or trigger", [(sql, ())]


def papers(folder: str):
    """(kind of tampering, found) for every value of a real run's report.json and plan.json, altered, removed and added, and for each paper removed."""
    run = os.path.join(folder, "run")
    os.environ["XDG_STATE_HOME"] = folder
    api.run(["sleep", "0.5"], limits(max_temp_c=80.0), run_dir=run)
    for paper in ("report.json", "plan.json"):
        path = pathlib.Path(run, paper)
        text = path.read_text("utf-8")
        whole = json.loads(text)
        for leaf in leaves(whole):
            for change in ("altered", "removed"):
                changed = json.loads(text)
                inner = changed
                for key in leaf[:-1]:
                    inner = inner[key]
                if change == "removed":
                    del inner[leaf[-1]]
                else:
                    inner[leaf[-1]] = 987654 if inner[leaf[-1]] != 987654 else 1
                path.write_text(json.dumps(changed), "utf-8")
                yield f"value of {paper} {change}", refused(run)
        for place in {leaf[:depth] for leaf in leaves(whole) for depth in range(len(leaf))}:
            changed = json.loads(text)
            inner = changed
            for key in place:
                inner = inner[key]
            if isinstance(inner, dict):
                inner["more"] = 1
            else:
                inner.append(1)
            path.write_text(json.dumps(changed), "utf-8")
            yield f"value added to {paper}", refused(run)
        path.unlink()
        yield f"{paper} removed", refused(run)
        path.write_text(text, "utf-8")
        assert not refused(run)


def refused(run: str) -> bool:
    """Whether `brim verify` says that the run does not hold."""
    try:
        api.verify(run)
    except BrimError as fault:
        return fault.exit_code == 7
    return False


def main() -> None:
    tried: dict[str, int] = {}
    found: dict[str, int] = {}
    alone: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        source = os.path.join(folder, "whole.db")
        head = written(source, 95, patch)
        assert faults(source, head) == []
        for kind, statements in cases(source):
            path = altered(source, folder, *statements)
            tried[kind] = tried.get(kind, 0) + 1
            found[kind] = found.get(kind, 0) + bool(faults(path, head))
            alone[kind] = alone.get(kind, 0) + bool(faults(path, None))
        for kind, said in papers(folder):
            tried[kind] = tried.get(kind, 0) + 1
            found[kind] = found.get(kind, 0) + said
            alone[kind] = 0
        kind = "journal_head in report.json altered"
        tried[kind], found[kind], alone[kind] = 64, sum(bool(faults(source, head[:i] + ("0" if head[i] != "0" else "1") + head[i + 1 :])) for i in range(64)), 0
    cost = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "journal.py")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    lines = [
        "# What a journal proves, and what it costs", "",
        f"Made by `python tests/evidence/tampering.py` on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}.", "",
        "One journal of 95 samples and their events, with loose lines, full blocks and a thinned block (block sizes made small), and the papers of a real run. Each kind of tampering is tried at every place where it can be done. "
        "“Alone” is how many are found from `journal.db` by itself, without the head in `report.json`: what is left there is the last line's own hash, and whatever makes a whole and unfinished journal.", "",
        "| kind of tampering | tried | found | alone |", "|---|---:|---:|---:|",
        *(f"| {kind} | {tried[kind]} | {found[kind]}{'' if found[kind] == tried[kind] else ' **missed some**'} | {alone[kind]} |" for kind in tried),
        f"| **all** | **{sum(tried.values())}** | **{sum(found.values())}** | {sum(alone.values())} |", "",
        "Not found by design: a journal rewritten from its first line together with its `report.json`. A signature shows that (`brim verify --signed-by`).", "",
        "## A day at 1 Hz with eight GPUs", "", cost.stdout.strip(), "",
    ]  # fmt: skip
    (ROOT / "docs" / "evidence").mkdir(exist_ok=True)
    (ROOT / "docs" / "evidence" / "journal.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
