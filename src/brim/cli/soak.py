"""brim soak: a governed run of a given length, and what it shows."""

import sys

from brim import api, card_report, verbs
from brim.cli import limits as bounds
from brim.cli.run import add_gate, announce, artifact_of, echo, predict, watchers
from brim.cli.words import Parser, answer, as_json, command_line, split_command, time
from brim.errors import BrimError, Usage
from brim.reports import evidence_documents, text
from brim.units import format_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from brim.facts.profile import Profile
    from brim.facts.settings import Limits

HOUR_NS = 3_600_000_000_000


def _parser() -> Parser:
    parser = Parser(
        "soak",
        "Run a command under the governor for so many hours, end it by checkpoint and stop, and say what that shows. Usage: brim soak --hours H [flags] -- COMMAND…",
    )
    parser.add_argument("--hours", type=float, required=True, metavar="H", help="how long; may be fractional")
    parser.add_argument(
        "--throughput-command", type=command_line, default=(), metavar="CMD", help="a command that prints a number (for a job without brim.client)"
    )
    parser.add_argument("--throughput-every", type=time, default=60_000_000_000, metavar="TIME", help="how often it is run (default: 60s)")
    bounds.add(parser)
    add_gate(parser)
    watchers(parser)
    return parser


def main(argv: list[str]) -> int:
    """Exit 0 when the time was reached; else as `brim run`: the child's own code where it ended before, 75 where it was stopped."""
    own, command = split_command(argv)
    asked = _parser().parse_args(own)
    if not command:
        raise Usage("soak: no command was given", hint="Write it behind --: brim soak --hours 24 -- python serve.py")
    if not 0 < asked.hours < 24 * 366:
        raise Usage(f"soak: --hours {asked.hours:g} is no length of a soak")
    profile = card_report.load_profile(asked.profile) if asked.profile else None
    limits = bounds.read(asked, profile=profile, run_ns=round(asked.hours * HOUR_NS))
    bounds.check_change(limits, command)
    prediction = predict(asked, command, limits)
    echo(limits, prediction, verbose=asked.dry_run)
    if asked.dry_run:
        print("\n".join(text.ladder(limits)), file=sys.stderr)
        return 0
    more = announce(asked)
    more = more.replace(
        watch=_Progress(limits.run_ns, more.watch), throughput=(asked.throughput_command, asked.throughput_every), ends_process=True
    )  # fmt: skip
    result = api.run(
        command, limits, run_dir=asked.run_dir, prediction=prediction, force=asked.force, extras=more, probe=(api.machine(readings=asked.readings) if asked.readings else None), profile=profile,
        artifact=artifact_of(asked, profile, prediction),
    )  # fmt: skip
    print(text.ended(dict(result.report)), file=sys.stderr)
    document, shown = _claims(result.run_dir, profile)
    if asked.json:
        answer(as_json({"schema": "brim.soak/1", "exit_code": result.exit_code, "report": result.report, "claims": document}))
    elif document is not None:
        answer(f"{shown}\n\n{evidence_documents.claims_text(document)}")
    return result.exit_code


def _claims(run_dir: str, profile: "Profile | None") -> "tuple[dict[str, Any] | None, str]":
    """The run's claims and its evidence in words; none, and a word why on stderr, where its folder cannot be read: the job's own code stands all the same."""
    try:
        return verbs.claims(run_dir, profile), evidence_documents.evidence_text(verbs.evidence_of(run_dir))
    except BrimError as fault:
        print(f"brim: no claims: {fault}", file=sys.stderr)
        return None, ""


class _Progress:
    """One line on stderr each hundredth of the time, but not more often than every ten seconds and at least once an hour."""

    def __init__(self, whole_ns: int, then: "Callable[..., None] | None") -> None:
        self._whole, self._then = whole_ns, then
        self._every = min(max(whole_ns // 100, 10_000_000_000), HOUR_NS)
        self._begun = self._next = -1
        self._worst: dict[str, int] = {}

    def __call__(self, limits: "Limits", decision: "Any", look: "Any", now: int) -> None:
        """Take one look of the governor's."""
        if self._begun < 0:
            self._begun, self._next = now, now + self._every
        level = decision.state.level
        self._worst[level] = self._worst.get(level, 0) + 1
        if now >= self._next:
            self._next = now + self._every
            gone = now - self._begun
            looks = ", ".join(f"{name} {count}" for name, count in sorted(self._worst.items()))
            left = format_ns(max(self._whole - gone, 0))
            print(f"brim: soak: {min(gone / self._whole, 1):.0%}, {left} left; level {level}; looks so far: {looks}", file=sys.stderr)
        if self._then is not None:
            self._then(limits, decision, look, now)
