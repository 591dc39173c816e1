"""brim preflight: which ways to run and to train a model fit a device, each with its arithmetic."""

import os
import sys

from brim import api
from brim.cli.words import Asked, Parser, count, emit, fraction, show
from brim.errors import CannotTell, Refused, Unreadable, Usage
from brim.outlook import ALLOWED, BLOCKED, Compressed, governor_fields
from brim.reports import preflight as report


def parameters(text: str) -> int:
    """A count of parameters: 12000000000, 12e9, 12B."""
    scales = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
    word = text.strip().lower()
    try:
        value = float(word[:-1]) * scales[word[-1]] if word and word[-1] in scales else float(word)
        return int(value)
    except (ValueError, OverflowError):
        raise Usage(f"--params {text}: write 12e9, 12B or a whole number") from None


def _compressed(asked: Asked) -> Compressed | None:
    kept, _, of = (asked.kept or "1/1").partition("/")
    if not (kept.isdecimal() and of.isdecimal()) or not 0 < int(kept) <= int(of):
        raise Usage(f"--kept {asked.kept}: write a share such as 4/8")
    if asked.bits is None:
        if not 0 <= asked.overhead <= 10:
            raise Usage(f"--overhead {asked.overhead:g} is outside 0…10")
        return None
    if not 0 < asked.bits <= 32 or not 0 <= asked.overhead <= 10:
        raise Usage(f"--bits-per-parameter {asked.bits:g} and --overhead {asked.overhead:g} are outside 0…32 and 0…10")
    return Compressed(bits=asked.bits, kept=int(kept), of=int(of), overhead=asked.overhead)


def main(argv: list[str]) -> int:
    """Exit 0 where any way to train or run is allowed, 3 where all are blocked, 4 where none can be told."""
    parser = Parser("preflight", "Which ways to run and train a model fit a device.")
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a folder with a config.json, or such a file")
    parser.add_argument("--params", type=parameters, metavar="N", help="instead of a model: its parameter count (12e9)")
    parser.add_argument("--device", action="append", default=[], metavar="D", help='cuda:24GiB, "RTX 3090"; repeat it for several cards')
    parser.add_argument("--reserve", type=fraction, metavar="FRACTION", help="hold back this share of each device (0…1)")
    parser.add_argument("--batch", type=count, default=1, metavar="N", help="micro-batch (default 1)")
    parser.add_argument("--seq", type=count, default=2048, metavar="N", help="tokens (default 2048)")
    parser.add_argument("--bits-per-parameter", dest="bits", type=float, metavar="B", help="declare a compressed class: bits a kept parameter")
    parser.add_argument("--kept", metavar="N/M", help="parameters that are kept, of how many (default all)")
    parser.add_argument("--overhead", type=float, default=0.0, metavar="SHARE", help="storage overhead of the compressed class (default 0)")
    parser.add_argument("--json", action="store_true", help="print brim.preflight/1")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--out", metavar="FILE", help="write the document (with the fields that the governor report reads) to FILE")
    asked = parser.parse_args(argv)
    table = api.preflight(
        asked.model,
        parameters=asked.params,
        devices=asked.device or None,
        reserve=asked.reserve,
        batch=asked.batch,
        seq=asked.seq,
        compressed=_compressed(asked),
    )
    where = os.path.abspath(asked.out) if asked.out else ""
    document = report.document(table, governor_fields(table, where))
    if asked.out:
        _write(asked.out, document)
    if asked.json:
        emit(document)
    else:
        show(report.markdown(table) if asked.markdown else report.terminal(table))
    sys.stdout.flush()
    verdicts = {way.verdict for way in table.ways}
    return 0 if ALLOWED in verdicts else Refused.exit_code if verdicts == {BLOCKED} else CannotTell.exit_code


def _write(path: str, document: "dict[str, object]") -> None:
    """Written beside and moved into place, so that a reader never sees half of it."""
    import json

    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(f"{path}.new", "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(document, file, ensure_ascii=False, indent=2, sort_keys=True)
            file.write("\n")
        os.replace(f"{path}.new", path)
    except OSError as fault:
        raise Unreadable(f"--out {path}: {fault.strerror or fault}") from None
