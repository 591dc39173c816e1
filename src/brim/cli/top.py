"""brim top: look at a run in progress, or at the newest one."""

import os
import sys
import time

from brim import api
from brim.cli.words import Parser, emit
from brim.errors import Unreadable
from brim.reports import live
from brim.resumption import living
from brim.watching import Seen, ask_for_news, look

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EVERY_S = 1.0


def main(argv: list[str]) -> int:
    """Exit 0 when the run has ended or after one look; 2 where there is no such run."""
    parser = Parser("top", "Look at a run: level, memory against its floor, temperature, checkpoint, what was done last. Ctrl-C leaves it running.")
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run's folder or name (default: the newest run)")
    parser.add_argument("--once", action="store_true", help="look once and end")
    parser.add_argument("--json", action="store_true", help="print one brim.top/1 document and end")
    asked = parser.parse_args(argv)
    folder = api.run_folder(asked.run) if asked.run else _newest()
    seen = _news(folder)
    if asked.json:
        emit(_document(folder, seen))
        return 0
    if asked.once or not os.isatty(1):
        print("\n".join(live.screen(_document(folder, seen))))
        return 0
    try:
        _follow(folder, seen)
    except KeyboardInterrupt:
        print()
    return 0


def _news(folder: str) -> Seen:
    """The newest look: where the last sample is older than two polls the governor is asked for those since, and given two polls, five seconds at most, to write them."""
    seen = look(folder)
    poll_ns = int(seen.limits.get("poll_ns", 10**9))
    if time.time_ns() - seen.sample_wall_ns < 2 * poll_ns or not ask_for_news(seen):
        return seen
    for _ in range(20):
        time.sleep(min(poll_ns / 1e10, EVERY_S / 4))
        fresh = look(folder)
        if fresh.sample_wall_ns != seen.sample_wall_ns or fresh.ended:
            return fresh
    return seen


def _document(folder: str, seen: Seen) -> "dict[str, Any]":
    """`brim.top/1`, with the pid of the job where it still runs."""
    pid = living(folder)
    return seen.document() | ({} if pid is None else {"job_pid": pid})


def _follow(folder: str, seen: Seen) -> None:
    """Draw anew each second until the run has ended."""
    drawn = 0
    while True:
        rows = live.screen(_document(folder, seen))
        sys.stdout.write((f"\x1b[{drawn}A" if drawn else "") + "".join(f"\x1b[K{row}\n" for row in rows))
        sys.stdout.flush()
        drawn = len(rows)
        if seen.ended:
            return
        time.sleep(EVERY_S)
        seen = look(folder)
        ask_for_news(seen)


def _newest() -> str:
    runs = os.path.join(api.state_dir(), "runs")
    found = [os.path.join(runs, name) for name in (os.listdir(runs) if os.path.isdir(runs) else ())]
    found = [path for path in found if os.path.exists(os.path.join(path, "journal.db"))]
    if not found:
        raise Unreadable(f"{runs}: no run here", hint="Name a run folder.")
    return max(found, key=lambda path: os.stat(path).st_mtime_ns)
