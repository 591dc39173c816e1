"""brim solve --train: the largest batch or length, the cheapest method, the lightest sharding or the fewest cards that fit, with other programs' flags for it."""

import sys

from brim import api
from brim.cli.fit_train import add_training, workload
from brim.cli.words import Parser, emit, fraction, show
from brim.errors import CannotTell, Refused, Usage
from brim.facts.training import TrainWorkload
from brim.gate import DOES_NOT_FIT, FITS
from brim.reports import training as report

EXIT_CODES = {FITS: 0, DOES_NOT_FIT: Refused.exit_code}


def main(argv: list[str]) -> int:
    """Exit 0 where something fits, 3 where nothing does, 4 cannot tell."""
    parser = Parser("solve --train", "The largest or cheapest training step that fits, with the flags for accelerate, DeepSpeed, FSDP, TRL and torchtune.")
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a folder with a config.json, or such a file")
    parser.add_argument("--for", dest="wanted", required=True, metavar="KNOB", help="batch, seq, method, zero or gpus")
    parser.add_argument("--json", action="store_true", help="print brim.solve-train/1")
    parser.add_argument("--reserve", type=fraction, metavar="FRACTION", help="hold back this share of each device (0…1)")
    parser.add_argument("--device", action="append", default=[], metavar="D", help='cuda:24GiB, "RTX 3090", a probed id; repeat it for several cards')
    add_training(parser)
    asked = parser.parse_args(argv)
    auto = asked.train == "auto"
    asked.train = None if auto else asked.train
    base, named = api.training_configs(asked.config) if asked.config else (TrainWorkload(), "")
    model = asked.model or named
    if not model:
        raise Usage("solve --train: a MODEL is needed", hint="Give a folder with a config.json.")
    name, found = api.solve_training(model, asked.wanted, workload(asked, base), devices=asked.device or None, reserve=asked.reserve, auto=auto)
    if asked.json:
        emit(report.document(found, name))
    else:
        show(report.terminal(found, name))
    sys.stdout.flush()
    return 0 if found.fits else EXIT_CODES.get(found.gate.verdict, CannotTell.exit_code)
