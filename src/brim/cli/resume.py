"""brim resume: go on with a run that was stopped."""

import os
import sys

from brim import again, api
from brim.cli import limits as bounds
from brim.cli.run import announce, watchers
from brim.cli.words import Parser, answer, as_json, count, split_command, time
from brim.reports import text
from brim.resumption import resume


def _parser() -> Parser:
    parser = Parser("resume", "Go on with a stopped run: same command, environment and limits, from its last acknowledged checkpoint.")
    parser.add_argument("run", metavar="RUN", help="the run's folder, or its name in the state folder")
    parser.add_argument("--retries", type=count, default=1, metavar="N", help="how often to try in all, each from the newest checkpoint (default: 1)")
    parser.add_argument(
        "--backoff",
        type=time,
        default=again.BACKOFF_NS,
        metavar="TIME",
        help="wait this long before the second try, then twice as long each time (default: 5s)",
    )
    parser.add_argument("--from-start", action="store_true", help="leave the checkpoint out")
    bounds.add(parser)
    watchers(parser)
    return parser


def main(argv: list[str]) -> int:
    """Exit as `brim run` does; 3 where a memory failure would be retried unchanged, 2 where there is nothing to go on with."""
    own, command = split_command(argv)
    asked = _parser().parse_args(own)
    result = resume(
        asked.run,
        tuple(command),
        overrides=bounds.given(asked, os.environ)[0],
        on_oom=asked.on_oom or "",
        from_start=asked.from_start,
        retries=asked.retries,
        backoff_ns=asked.backoff,
        run_dir=asked.run_dir,
        force=asked.force,
        extras=announce(asked),
        probe=(api.machine(readings=asked.readings) if asked.readings else None),
        readings=asked.readings or "",
    )
    print(text.ended(dict(result.report)), file=sys.stderr)
    if asked.json:
        answer(as_json(result.report))
    return result.exit_code
