"""brim calibration: what this machine has taught, and the means to look at it, forget it and carry it elsewhere."""

import json
import sys

from brim import verbs
from brim.cli.words import Parser, emit
from brim.errors import Unreadable, Usage
from brim.units import format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(argv: list[str]) -> int:
    """Exit 0; 2 for a file that is missing or holds no calibration."""
    parser = Parser("calibration", "What governed runs on this machine have taught about fixed overheads and compute buffers.")
    parser.add_argument("action", choices=("list", "show", "forget", "export", "import"), help="what to do")
    parser.add_argument("what", nargs="?", metavar="WORD|FILE", help="show, forget: part of a key, or a run; import: a file; export: a file (default: stdout)")
    parser.add_argument("--all", action="store_true", help="forget: everything")
    parser.add_argument("--json", action="store_true", help="print brim.calibration/1")
    asked = parser.parse_args(argv)
    if asked.action == "forget":
        if asked.what is None and not asked.all:
            raise Usage("calibration forget: name a part of a key or a run, or give --all")
        print(f"forgot {verbs.forget_calibration(None if asked.all else asked.what)} observation(s)", file=sys.stderr)
        return 0
    if asked.action == "import":
        if asked.what is None:
            raise Usage("calibration import: name a file")
        print(f"took in {verbs.import_calibration(_decoded(asked.what))} observation(s)", file=sys.stderr)
        return 0
    document = verbs.calibrations(asked.what if asked.action == "show" else None)
    if asked.action == "export":
        _export(document, asked.what)
    elif asked.json:
        emit(document)
    else:
        _table(document, full=asked.action == "show")
    return 0


def _decoded(path: str) -> object:
    try:
        with open(path, "rb") as file:
            return json.load(file)
    except RecursionError:
        raise Unreadable(f"{path}: lists within lists, too deep to read") from None
    except (OSError, ValueError) as fault:
        raise Unreadable(f"{path}: {getattr(fault, 'strerror', None) or fault}") from None


def _export(document: "dict[str, Any]", path: str | None) -> None:
    if path is None:
        emit(document)
        return
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(document, file, indent=2, ensure_ascii=False)
    except OSError as fault:
        raise Unreadable(f"{path}: {fault.strerror}") from None


def _table(document: "dict[str, Any]", *, full: bool) -> None:
    if not document["summary"]:
        print("nothing was learnt yet: run a model that brim can price under `brim run`")
    for row in document["summary"]:
        span = row["residual_bytes"]
        said = "no usable run" if span is None else f"{_signed(span['likely'])} ({_signed(span['low'])} … {_signed(span['high'])})"
        print(f"{row['key']}: {row['part']}: {said}, {row['runs']} run(s), newest {str(row['newest'])[:10]}")
        for left in row["left_out"]:
            print(f"    left out: {left}")
    if full:
        for one in document["observations"]:
            print(
                f"    {one['at'][:19]} {one['run']}: {one['part']} predicted {format_bytes(one['predicted_bytes'])}, measured {format_bytes(one['measured_bytes'])}"
            )


def _signed(count: int) -> str:
    return ("+" if count >= 0 else "") + format_bytes(count)
