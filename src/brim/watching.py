"""Looks at a run from outside through its journal: the newest sample, the last things done, whether it has ended; it changes nothing and needs no governor's help.

A governor that finds nothing near writes every two minutes; it can be asked to write at its next poll.
"""

import contextlib
import json
import os
import sqlite3
import time

from brim import control
from brim.errors import BrokenJournal, Unreadable
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAST = 8
BEATS_NS = 2_000_000_000
_TOLD = ("level", "intent", "outcome", "checkpoint", "fault", "child_end", "end")


class Seen(Record):
    """One look at a run's journal. `sample` is the newest; `last` are the newest records of things done, oldest first; `ages` in wall-clock nanoseconds."""

    run: str
    sample: "dict[str, Any] | None"
    sample_wall_ns: int
    began_wall_ns: int
    command: tuple[str, ...]
    limits: "dict[str, Any]"
    last: "tuple[tuple[int, str, dict[str, Any]], ...]"
    ended: bool
    control: str = ""

    def document(self) -> "dict[str, Any]":
        """`brim.top/1`."""
        return {
            "schema": "brim.top/1",
            "run": self.run,
            "command": list(self.command),
            "began_wall_ns": self.began_wall_ns,
            "sample_wall_ns": self.sample_wall_ns,
            "sample": self.sample,
            "limits": self.limits,
            "last": [{"wall_ns": wall, "kind": kind, "body": body} for wall, kind, body in self.last],
            "ended": self.ended,
        }


def _short(body: "dict[str, Any]") -> "dict[str, Any]":
    """A record without the whole report that an end record holds."""
    return {key: value for key, value in body.items() if key != "report"}


def ask_for_news(seen: Seen) -> bool:
    """Ask the governor of a run, over its control page, to write down at its next poll what it keeps for company; False where nobody is there to be asked."""
    if seen.ended or not seen.control:
        return False
    try:
        page = control.Page(seen.control)
    except (OSError, ValueError):  # put away, or somebody else's
        return False
    # One that was killed or stands still beats no more; its first beat comes with the first look.
    lives = time.monotonic_ns() - page.words[control.W_GOVERNOR_BEAT] < 3 * int(seen.limits.get("poll_ns", 10**9)) + BEATS_NS
    if lives:
        page.words[control.W_WATCHED] = (page.words[control.W_WATCHED] + 1) & control.U64
    page.close()
    return lives


def look(folder: str) -> Seen:
    """Look once. `Unreadable` where there is no journal, `BrokenJournal` where SQLite cannot read it."""
    path = os.path.join(folder, "journal.db")
    if not os.path.isfile(path):
        raise Unreadable(f"{path}: no journal here", hint="Name a run folder (brim runs lists them).")
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quoted}?mode=ro", uri=True, timeout=2.0)) as connection:
            first = connection.execute("SELECT wall_ns, body FROM lines WHERE kind = 'begin' ORDER BY seq LIMIT 1").fetchone()
            sample = connection.execute("SELECT wall_ns, body FROM lines WHERE kind = 'sample' ORDER BY seq DESC LIMIT 1").fetchone()
            launched = connection.execute("SELECT body FROM lines WHERE kind = 'launched' ORDER BY seq DESC LIMIT 1").fetchone()
            marks = ",".join("?" * len(_TOLD))
            rows = connection.execute(f"SELECT wall_ns, kind, body FROM lines WHERE kind IN ({marks}) ORDER BY seq DESC LIMIT {LAST}", _TOLD).fetchall()
    except sqlite3.Error as fault:
        raise BrokenJournal(f"{path}: SQLite cannot read it: {fault}") from None
    begun = json.loads(first[1]) if first else {}
    last = tuple((int(wall), str(kind), _short(json.loads(body))) for wall, kind, body in reversed(rows))
    return Seen(
        run=os.path.abspath(folder),
        sample=json.loads(sample[1]) if sample else None,
        sample_wall_ns=int(sample[0]) if sample else 0,
        began_wall_ns=int(first[0]) if first else 0,
        command=tuple(begun.get("command", ())),
        limits=begun.get("limits", {}),
        last=last,
        ended=any(kind == "end" for _, kind, _ in last),
        control=str(json.loads(launched[0]).get("control", "")) if launched else "",
    )
