"""brim quality: evaluate an exported file against a baseline, and bind the verdict to exactly that file."""

from brim import verbs
from brim.cli.words import Parser, emit, split_command
from brim.errors import Refused, Usage


def main(argv: list[str]) -> int:
    """Exit 0 when the gate passes, 3 when it does not, 4 when the evaluation gives no number, 2 for a file or word that does not hold."""
    parser = Parser("quality", "Run an evaluation, read its number, and pass or refuse exactly this file. Usage: brim quality [flags] -- COMMAND…")
    parser.add_argument("--artifact", required=True, metavar="FILE", help="the exported file; the command finds its path in BRIM_ARTIFACT")
    parser.add_argument("--baseline", metavar="FILE|NUMBER", help="what it is compared with: a number, or a file that holds the metric")
    parser.add_argument("--metric", default="", metavar="NAME", help="the number's name in the output (JSON, or `name: number`)")
    parser.add_argument("--max-drop", metavar="X", help="how much worse it may be: 0.02, or 2%%")
    parser.add_argument("--pattern", metavar="REGEX", help="read the number by this expression's first group instead")
    parser.add_argument("--lower-is-better", action="store_true", help="for losses and perplexities")
    parser.add_argument("--json", action="store_true", help="print brim.quality/1")
    own, command = split_command(argv)
    asked = parser.parse_args(own)
    if not command:
        return _stored(asked.artifact, asked.metric, as_json=asked.json)
    if asked.baseline is None or asked.max_drop is None or not asked.metric:
        raise Usage("quality: --baseline, --metric and --max-drop are needed to judge an evaluation")
    document = verbs.quality_gate(
        asked.artifact, command, baseline=asked.baseline, metric=asked.metric, max_drop=asked.max_drop, pattern=asked.pattern,
        lower_is_better=asked.lower_is_better,
    )  # fmt: skip
    if asked.json:
        emit(document)
    else:
        print(f"{'passed' if document['passed'] else 'refused'}: {document['reason']}\nSHA-256 {document['sha256']}  {document['artifact']}")
    return 0 if document["passed"] else Refused.exit_code


def _stored(artifact: str, metric: str, *, as_json: bool) -> int:
    """Without a command: what is known about this file."""
    passed, why, digest = verbs.quality_of(artifact, metric)
    if as_json:
        emit({"schema": "brim.quality/1", "artifact": artifact, "sha256": digest, "passed": passed, "reason": why})
    else:
        print(f"{'passed' if passed else 'open'}: {why}\nSHA-256 {digest}  {artifact}")
    return 0 if passed else Refused.exit_code
