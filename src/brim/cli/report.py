"""brim report: the report of a run."""

import sys

from brim import api, verbs
from brim.cli.words import Parser, emit
from brim.reports import markdown


def main(argv: list[str]) -> int:
    """Exit 0, or 2 where there is no report."""
    parser = Parser("report", "The report of a run: prediction beside measurement, limits, how it ended.")
    parser.add_argument("run", metavar="RUN", help="a run folder, or the name of one in the state folder")
    parser.add_argument("--json", action="store_true", help="print brim.run/1")
    parser.add_argument("--markdown", action="store_true", help="print Markdown (the default)")
    parser.add_argument("--html", action="store_true", help="write report.html into the run folder and print its path; works for an unfinished run too")
    parser.add_argument("--out", metavar="FILE", help="with --html: write it there instead (- for stdout)")
    asked = parser.parse_args(argv)
    if asked.html:
        if asked.out == "-":
            sys.stdout.write(verbs.html_of(asked.run))
        else:
            print(verbs.write_html(asked.run, asked.out))
        return 0
    if verbs.recover(asked.run):
        print("brim: the ending of this run was interrupted before its report was written; it is written now, from the journal", file=sys.stderr)
    found = api.report(asked.run)
    if asked.json:
        emit(found)
    else:
        print(markdown.run(found))
    return 0
