"""brim fit: whether a model fits, with the arithmetic."""

import sys

from brim import api
from brim.cli.flags import add_devices, add_workload, build, workload
from brim.cli.words import Parser, emit, show, split_command, starts_training
from brim.errors import CannotTell, Refused, Usage
from brim.gate import DOES_NOT_FIT, FITS
from brim.reports import text
from brim.values import plain

__all__ = ["add_workload", "main", "workload"]

EXIT_CODES = {FITS: 0, DOES_NOT_FIT: Refused.exit_code}


def main(argv: list[str]) -> int:
    """Exit 0 fits, 3 does not fit, 4 cannot tell."""
    own, command = split_command(argv)
    if starts_training(command) or any(word in ("--train", "--config") or word.startswith(("--train=", "--config=")) for word in own):
        from brim.cli.fit_train import main as fit_training

        return fit_training(argv)
    parser = Parser("fit", "Whether a model fits these devices, before it runs. brim fit MODEL [flags], or brim fit [flags] -- ENGINE-COMMAND…")
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a GGUF, safetensors, ONNX, PyTorch or shape file, a config.json, a model folder; optional with a command behind --",
    )
    parser.add_argument("--json", action="store_true", help="print brim.fit/1")
    parser.add_argument("--explain", action="store_true", help="print the rule and the source of each part")
    parser.add_argument("--ask-engine", action="store_true", help="ask llama-fit-params too, or a libllama, where one is here, and show its numbers beside")
    add_devices(parser)
    add_workload(parser)
    asked = parser.parse_args(own)
    if asked.model is None and not command:
        raise Usage("fit: a MODEL is needed, or the engine's command behind --", hint="See `brim fit --help`.")
    flags = workload(asked)
    if command and flags != build():
        raise Usage("fit: give the workload in the command behind --, not as flags before it", hint="Flags before the -- are those of devices and output only.")
    answer = api.fit(asked.model, flags, command=command or None, device=asked.device or (), reserve=asked.reserve, version=asked.engine_version)
    opinion = api.ask_engine(answer) if asked.ask_engine else None
    if asked.json:
        from brim.reports import documents

        document = documents.prediction(answer)
        emit(document if opinion is None else {**document, "asked_engine": plain(opinion)})
    else:
        show(text.prediction(answer, explain=asked.explain))
        if opinion is not None:
            from brim.reports.solution import second_opinion

            print("\n".join(second_opinion(opinion)))
    sys.stdout.flush()
    return EXIT_CODES.get(answer.verdict, CannotTell.exit_code)
