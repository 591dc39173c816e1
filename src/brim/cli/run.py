"""brim run: gate, launch and govern a command."""

import os
import sys

from brim import api
from brim.cli.fit import add_workload, workload
from brim.cli.words import Parser, emit, size, split_command, time
from brim.engines.llama_cpp.command import read
from brim.errors import Usage
from brim.facts.settings import limits
from brim.reports import text
from brim.units import format_bytes, format_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from brim.facts.settings import Limits
    from brim.facts.workload import LlamaWorkload
    from brim.prediction import Prediction


def _parser() -> Parser:
    parser = Parser("run", "Start a command only if its model fits, and keep it inside the limits. Usage: brim run [flags] -- COMMAND…")
    parser.add_argument("--model", metavar="MODEL", help="gate the launch by this model's plan")
    parser.add_argument("--memory-budget", type=size, metavar="SIZE", help="what the job may hold on the host")
    parser.add_argument("--floor", type=size, metavar="SIZE", help="stop the job when less than this is free")
    parser.add_argument("--throttle-margin", type=size, metavar="SIZE", help="warn this much above the floor")
    parser.add_argument("--poll", type=time, metavar="TIME", help="longest time between two looks (default 100ms)")
    parser.add_argument("--grace", type=time, metavar="TIME", help="time between SIGTERM and SIGKILL (default 10s)")
    parser.add_argument("--run-dir", metavar="DIR", help="the run folder (default: a new one in the state folder)")
    parser.add_argument("--force", action="store_true", help="start although the gate refuses; the limits stay enforced")
    parser.add_argument("--dry-run", action="store_true", help="print the limits as understood and the gate's answer, start nothing")
    parser.add_argument("--json", action="store_true", help="print brim.run/1 at the end")
    add_workload(parser)
    return parser


def main(argv: list[str]) -> int:
    """Exit with the child's own code, 75 when it was stopped, 3 when it was refused."""
    own, command = split_command(argv)
    asked = _parser().parse_args(own)
    if not command:
        raise Usage("run: no command was given", hint="Write it behind --: brim run --memory-budget 8GiB -- python train.py")
    bounds = limits(
        memory_budget_bytes=asked.memory_budget, floor_bytes=asked.floor, margin_bytes=asked.throttle_margin, poll_ns=asked.poll, grace_ns=asked.grace
    )
    prediction = _predict(asked, command)
    _echo(bounds, prediction)
    if asked.dry_run:
        return 0
    result = api.run(command, bounds, run_dir=asked.run_dir, prediction=prediction, force=asked.force)
    print(text.ended(dict(result.report)), file=sys.stderr)
    if asked.json:
        emit(result.report)
    return result.exit_code


def _predict(asked: "Namespace", command: list[str]) -> "Prediction | None":
    """The plan of the model that `--model` or the command itself names; a memory budget stands in for the device's own budget."""
    named = (asked.model, workload(asked)) if asked.model is not None else _named(command)
    if named is None:
        return None
    environ = dict(os.environ)
    if asked.memory_budget is not None:
        environ["BRIM_DEVICE_BUDGET_BYTES"] = str(asked.memory_budget)
    return api.fit(named[0], named[1], environ=environ)


def _named(command: list[str]) -> "tuple[str, LlamaWorkload] | None":
    """The model and workload of a llama.cpp command line; None for another program's, or one that names no model."""
    try:
        found = read(command, os.environ)
    except Usage as fault:
        print(f"brim: the command is not priced: {fault}", file=sys.stderr)
        return None
    return None if found is None or found.model is None else (found.model, found.workloads[0])


def _echo(bounds: "Limits", prediction: "Prediction | None") -> None:
    """Say the limits as they were understood, before anything starts."""
    for name, origin in bounds.origins:
        value = getattr(bounds, name)
        shown = "not set" if value is None else format_ns(value) if name.endswith("_ns") else format_bytes(value)
        print(f"brim: {name} = {shown} ({origin})", file=sys.stderr)
    if prediction is not None:
        print(f"brim: gate: {prediction.verdict}: {'; '.join(prediction.reasons)}", file=sys.stderr)
