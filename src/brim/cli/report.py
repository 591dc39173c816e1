"""brim report: the report of a run."""

from brim import api
from brim.cli.words import Parser, emit
from brim.reports import markdown


def main(argv: list[str]) -> int:
    """Exit 0, or 2 where there is no report."""
    parser = Parser("report", "The report of a run: prediction beside measurement, limits, how it ended.")
    parser.add_argument("run", metavar="RUN", help="a run folder, or the name of one in the state folder")
    parser.add_argument("--json", action="store_true", help="print brim.run/1")
    asked = parser.parse_args(argv)
    found = api.report(asked.run)
    if asked.json:
        emit(found)
    else:
        print(markdown.run(found))
    return 0
