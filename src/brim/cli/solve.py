"""brim solve: the largest workload that fits, and the engine's flags for it."""

import sys

from brim import api
from brim.cli.flags import add_devices, add_workload, workload
from brim.cli.words import Parser, emit, show
from brim.errors import CannotTell, Refused
from brim.gate import DOES_NOT_FIT, FITS
from brim.knobs import NAMES
from brim.reports import solution

EXIT_CODES = {FITS: 0, DOES_NOT_FIT: Refused.exit_code}


def main(argv: list[str]) -> int:
    """Exit 0 where something fits, 3 where nothing does, 4 cannot tell."""
    if any(word == "--train" or word.startswith("--train=") for word in argv):
        from brim.cli.solve_train import main as solve_training

        return solve_training(argv)
    if any(word in ("--train", "--config") or word.startswith(("--train=", "--config=")) for word in argv):
        from brim.cli.solve_train import main as solve_training

        return solve_training(argv)
    parser = Parser("solve", "The largest workload that fits, with the flags for it, what is left, and what each knob costs or saves next.")
    parser.add_argument("model", metavar="MODEL", help="a GGUF file, a folder, a shape file")
    parser.add_argument(
        "--for", dest="wanted", action="append", required=True, metavar="KNOB", help=f"{', '.join(NAMES)}; several in order of preference (repeat, or commas)"
    )
    parser.add_argument("--json", action="store_true", help="print brim.solve/1")
    parser.add_argument("--explain", action="store_true", help="print the rule and the source of each part")
    add_devices(parser)
    add_workload(parser)
    asked = parser.parse_args(argv)
    found = api.solve(asked.model, asked.wanted, workload(asked), device=asked.device or (), reserve=asked.reserve, version=asked.engine_version)
    if asked.json:
        emit(solution.document(found))
    else:
        show(solution.terminal(found, explain=asked.explain))
    sys.stdout.flush()
    return EXIT_CODES.get(found.verdict, CannotTell.exit_code)
