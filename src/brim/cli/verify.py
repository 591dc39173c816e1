"""brim verify: prove that a run's journal was not altered."""

from brim import api
from brim.cli.words import Parser, emit
from brim.reports import text


def main(argv: list[str]) -> int:
    """Exit 0 when the chain holds, 7 where it does not."""
    parser = Parser("verify", "Recompute the hash chain of a run's journal.")
    parser.add_argument("run", metavar="RUN", help="a run folder, or the name of one in the state folder")
    parser.add_argument("--json", action="store_true", help="print brim.verify/1")
    asked = parser.parse_args(argv)
    path, lines, head = api.verify(asked.run)
    if asked.json:
        emit({"schema": "brim.verify/1", "journal": path, "lines": lines, "head": head, "intact": True})
    else:
        print(text.verified(path, lines, head))
    return 0
