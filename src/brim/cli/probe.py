"""brim probe: devices, budgets, readings, and where each came from."""

import sys

from brim import api
from brim.cli.words import Parser, emit, fraction
from brim.reports import documents, text


def main(argv: list[str]) -> int:
    """Exit 0 also where values are missing: nothing missing ever drops a row."""
    parser = Parser("probe", "What devices are here, what a plan may spend on each, and where each number came from.")
    parser.add_argument("--json", action="store_true", help="print brim.probe/1")
    parser.add_argument("--reserve", type=fraction, metavar="FRACTION", help="hold back this share of each device (0…1; default 0.2 for the host)")
    asked = parser.parse_args(argv)
    seen = api.probe(reserve=asked.reserve)
    for warning in seen.warnings:
        print(f"brim: {warning}", file=sys.stderr)
    if asked.json:
        emit(documents.probe(seen.devices, seen.host, seen.warnings))
    else:
        print(text.probe(seen.devices))
    return 0
