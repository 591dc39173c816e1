"""brim doctor: what was asked, what answered, how fast, what is missing and what installs it."""

import platform
import sys

from brim import api
from brim.cli.words import Parser, emit, time


def main(argv: list[str]) -> int:
    """Exit 0 also on a bare machine."""
    parser = Parser("doctor", "What brim sees here, what answered in how many ms, what is missing, and the command that installs it.")
    parser.add_argument("--json", action="store_true", help="print brim.doctor/1")
    parser.add_argument("--deadline", type=time, metavar="TIME", help="how long drivers may take to answer (default 1.6s)")
    asked = parser.parse_args(argv)
    seen = api.probe(deadline_ns=asked.deadline)
    asked_all = (*seen.asked, api.loop())
    facts = (
        ("brim", api.version()),
        ("python", platform.python_version()),
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        *api.settings(),
    )
    if asked.json:
        from brim.reports.documents import doctor

        emit(doctor(asked_all, facts, seen.devices, seen.notes, seen.warnings))
    else:
        from brim.reports.devices import doctor as text

        for warning in seen.warnings:
            print(f"brim: {warning}", file=sys.stderr)
        print(text(asked_all, facts, seen.devices, seen.notes))
    return 0
