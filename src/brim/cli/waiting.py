"""The flag that waits for memory which others hold, shared by the commands that start a job."""

from brim.cli.words import Parser, time

FOR_EVER_NS = 10 * 365 * 86400 * 10**9


def add(parser: Parser) -> None:
    """`--wait [TIME]`: without a time, without end."""
    text = "where it fits, but not now: wait for the memory to come back (without TIME: without end)"
    parser.add_argument("--wait", nargs="?", type=time, const=FOR_EVER_NS, metavar="TIME", help=text)
