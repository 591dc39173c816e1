"""brim runs: the runs in the state folder, and their removal."""

import sys

from brim import verbs
from brim.cli.words import Parser, count, emit, time
from brim.units import format_bytes, format_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(argv: list[str]) -> int:
    """Exit 0. Nothing is removed without --remove, and a run that is not finished never is."""
    parser = Parser("runs", "List the runs in the state folder. With --keep or --older-than: say which ones would be removed, and with --remove remove them.")
    parser.add_argument("--keep", type=count, metavar="N", help="all but the newest N finished runs")
    parser.add_argument("--older-than", type=time, metavar="TIME", help="finished runs that began longer ago than this (30d, 12h)")
    parser.add_argument("--remove", action="store_true", help="really remove them")
    parser.add_argument("--json", action="store_true", help="print brim.runs/1")
    asked = parser.parse_args(argv)
    if asked.keep is None and asked.older_than is None:
        _show(verbs.runs(), as_json=asked.json)
        return 0
    gone = verbs.prune_runs(keep=asked.keep, older_than_ns=asked.older_than, dry=not asked.remove)
    _show(gone, as_json=asked.json)
    freed = format_bytes(sum(row["bytes"] for row in gone))
    print(f"brim: {len(gone)} run(s), {freed}: {'removed' if asked.remove else 'would be removed; --remove does it'}", file=sys.stderr)
    return 0


def _show(rows: "list[dict[str, Any]]", *, as_json: bool) -> None:
    if as_json:
        emit({"schema": "brim.runs/1", "runs": rows})
        return
    for row in rows:
        lasted = "not finished" if row["lasted_ns"] is None else format_ns(row["lasted_ns"])
        ended = "" if row["exit_code"] is None else f"exit {row['exit_code']} by {row['ended_by']}"
        print(f"{row['run']}  {lasted:>14}  {format_bytes(row['bytes']):>10}  {ended:24}  {' '.join(row['command'] or ())[:80]}")
