"""brim run: gate, launch and govern a command."""

import os
import sys

from brim import api, card_report
from brim.cli import limits as bounds
from brim.cli import live, waiting
from brim.cli.fit import add_workload, workload
from brim.cli.words import Asked, Parser, answer, as_json, command_line, split_command, starts_training, web_address
from brim.errors import BrimError, CannotTell, Usage
from brim.facts.extras import Extras
from brim.reports import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.profile import Profile
    from brim.facts.settings import Limits
    from brim.prediction import Prediction


def _parser() -> Parser:
    parser = Parser("run", "Start a command only if its model fits, and keep it inside the limits. Usage: brim run [flags] -- COMMAND…")
    bounds.add(parser)
    add_gate(parser)
    watchers(parser)
    return parser


def add_gate(parser: Parser) -> None:
    """Add the flags of the gate, which the commands that start a job anew share: the model, the profile, the exported file."""
    parser.add_argument("--model", metavar="MODEL", help="gate the launch by this model's plan")
    parser.add_argument("--profile", metavar="P", help="limits, gates and claims of this profile (a name from `brim profiles`, or a path)")
    parser.add_argument(
        "--artifact", metavar="FILE", help="the exported file that the profile's quality gate is about (default: the model, or the profile's own)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the limits as understood and the gate's answer, start nothing")
    add_workload(parser)


def watchers(parser: Parser) -> None:
    """Add the flags that say where a run is kept and who is told of it."""
    parser.add_argument(
        "--notify-command",
        type=command_line,
        default=(),
        metavar="CMD",
        help="run this for every notice, the notice as its last argument (a word, or a quoted command line)",
    )
    parser.add_argument("--notify-webhook", type=web_address, metavar="URL", help="POST every notice there as JSON")
    parser.add_argument("--run-dir", metavar="DIR", help="the run folder (default: a new one in the state folder)")
    parser.add_argument("--readings", metavar="FILE", help="a script of readings in place of the probes (a rehearsal; also BRIM_READINGS)")
    waiting.add(parser)
    parser.add_argument("--force", action="store_true", help="start although the gate refuses; the limits stay enforced")
    parser.add_argument("--json", action="store_true", help="print brim.run/1 at the end")


def main(argv: list[str]) -> int:
    """Exit with the child's own code, 75 when it was stopped, 3 when it was refused."""
    own, command = split_command(argv)
    if not command and not {"-h", "--help"} & set(own):  # before anything else is said of words that may be the command
        raise Usage("run: no command was given", hint="Write it behind --: brim run --memory-budget 8GiB -- python train.py")
    asked = _parser().parse_args(own)
    profile = card_report.load_profile(asked.profile) if asked.profile else None
    limits = bounds.read(asked, profile=profile)
    bounds.check_change(limits, command)
    prediction = predict(asked, command, limits)
    echo(limits, prediction, verbose=asked.dry_run)
    if asked.dry_run:
        print("\n".join(text.ladder(limits)), file=sys.stderr)
        return 0
    eyes = api.machine(readings=asked.readings) if asked.readings else None
    result = api.run(
        command, limits, run_dir=asked.run_dir, prediction=prediction, force=asked.force, probe=eyes, extras=announce(asked).replace(ends_process=True), profile=profile,
        artifact=artifact_of(asked, profile, prediction),
    )  # fmt: skip
    print(text.ended(dict(result.report)), file=sys.stderr)
    if asked.json:
        answer(as_json(result.report))
    return result.exit_code


def artifact_of(asked: Asked, profile: "Profile | None", prediction: "Prediction | None") -> str:
    """The file that a quality gate is about: as given, as the profile says, else the model that is run."""
    if asked.artifact:
        return str(asked.artifact)
    if profile is not None and profile.quality.get("artifact"):
        return str(profile.quality["artifact"])
    return "" if prediction is None or not os.path.isfile(prediction.checkpoint.source) else prediction.checkpoint.source


def announce(asked: Asked) -> Extras:
    """Where notices go, and the live line where stderr is a terminal."""
    line = live.Line() if os.isatty(2) and not asked.json else None
    return Extras(
        notify_command=asked.notify_command,
        webhook=asked.notify_webhook or "",
        watch=line.show if line else None,
        say=line.say if line else live.plain,
        wait_ns=getattr(asked, "wait", None),
    )


def predict(asked: Asked, command: list[str], limits: "Limits") -> "Prediction | None":
    """The plan of the model that `--model` or the command itself names; a memory budget stands in for the device's own budget. None where there is nothing to price."""
    if starts_training(command):
        return _training(asked.model, command)
    environ = dict(os.environ)
    budget = limits.budget("") or limits.budget("cpu")
    if budget is not None:
        environ["BRIM_DEVICE_BUDGET_BYTES"] = str(budget)
    if getattr(asked, "readings", None):
        environ["BRIM_READINGS"] = asked.readings
    if asked.model is not None:
        return api.fit(asked.model, workload(asked), device=limits.devices, environ=environ)
    try:
        return api.fit(command=command, device=limits.devices, environ=environ)
    except (CannotTell, Usage) as fault:
        print(f"brim: not priced: {fault}", file=sys.stderr)
        return None


def _training(model: str | None, command: list[str]) -> "Prediction | None":
    """The plan of a training command whose configuration and model can be read; None, with a word why, where not."""
    try:
        found = api.training_command(command)
        if found is None or not (model or found[1]):
            print("brim: the command is not priced: it names no training file and model that brim can read", file=sys.stderr)
            return None
        return api.fit_training(model or found[1], found[0])
    except BrimError as fault:
        print(f"brim: the command is not priced: {fault}", file=sys.stderr)
        return None


def echo(limits: "Limits", prediction: "Prediction | None", *, verbose: bool) -> None:
    """Say the limits as they were understood, before anything starts: those that were set and the main ones, all of them in a dry run."""
    for name, origin in limits.origins:
        if verbose or origin != "default" or name in ("floor_bytes", "throttle_margin_bytes", "poll_ns", "grace_ns"):
            print(f"brim: {name} = {_effective(limits, name)} ({origin})", file=sys.stderr)
    if prediction is not None:
        print(f"brim: gate: {prediction.verdict}: {'; '.join(prediction.reasons)}", file=sys.stderr)


def _effective(limits: "Limits", name: str) -> str:
    """One limit as it holds: the default throttle margin is smaller under a memory budget."""
    margins = dict.fromkeys(limits.margin(device) for device, _ in limits.memory_budgets)
    if name != "throttle_margin_bytes" or set(margins) <= {limits.throttle_margin_bytes}:
        return text.limit(name, getattr(limits, name))
    return ", ".join(f"{text.limit(name, limits.margin(device))}{f' on {device}' if device else ''}" for device, _ in limits.memory_budgets)
