"""brim governor-report: whether a profile's runtime may start on the card, as one JSON and one Markdown file."""

import os

from brim import card_report
from brim.cli.words import Parser, WrongWord, emit
from brim.units import GIB, parse_size


def _gigabytes(text: str) -> float:
    """GB (2^30 bytes): a bare number is GB here, as in the report; with a unit it is a size."""
    try:
        value = float(text)
    except ValueError:
        try:
            value = parse_size(text) / GIB
        except ValueError as fault:
            raise WrongWord(f"{fault}; a bare number is GB") from None
    if not 0 <= value < 1 << 20:
        raise WrongWord(f"{text!r} is no amount of free VRAM in GB (MiB / 1024)")
    return value


def _celsius(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise WrongWord(f"{text!r} is no temperature in °C") from None
    if not -273.15 <= value <= 1000:
        raise WrongWord(f"{text!r} is no temperature in °C")
    return value


def main(argv: list[str]) -> int:
    """Exit 0 when the report is written, whatever it says; 2 for a profile, preflight or readings file that is missing or does not hold."""
    parser = Parser("governor-report", "Write the governor report of a profile: telemetry, preflight, limits and the decision, as JSON and Markdown.")
    parser.add_argument("--profile", default="rtx3090-12b", metavar="P", help="a profile's name or path (default: rtx3090-12b)")
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder for the two files; made with its parents")
    parser.add_argument("--preflight", metavar="FILE", help="a preflight file (default: computed from the profile and written to DIR/preflight)")
    parser.add_argument("--readings", metavar="FILE", help="take the first line of this script of readings as telemetry instead of asking the cards")
    parser.add_argument("--max-temp", type=_celsius, metavar="C", help="override the profile's maximum temperature")
    parser.add_argument("--min-free-vram", type=_gigabytes, metavar="GB", help="override the required free VRAM (GB = MiB / 1024; 8GiB works too)")
    parser.add_argument("--json", action="store_true", help="print the document too")
    asked = parser.parse_args(argv)
    document = card_report.governor_report(
        asked.profile,
        asked.out,
        preflight=asked.preflight,
        readings=asked.readings or os.environ.get("BRIM_READINGS") or None,
        max_temp=asked.max_temp,
        min_free_vram=asked.min_free_vram,
    )
    if asked.json:
        emit(document)
    else:
        decision = document["decision"]
        print(f"{decision['risk_level']}: {decision['reason']}")
        print(f"compressed run allowed: {str(decision['run_12b_compressed_on_3090_allowed']).lower()}")
        print(document["json_path"])
        print(document["markdown_path"])
    return 0
