"""brim profiles: the profiles that can be had by name."""

from brim import card_report
from brim.cli.words import Parser, emit
from brim.values import plain


def main(argv: list[str]) -> int:
    """Exit 0; 2 where a profile that was named does not hold."""
    parser = Parser("profiles", "List the profiles that --profile accepts by name; with a name or a path, show one as it was understood.")
    parser.add_argument("profile", nargs="?", metavar="P", help="a name or a path")
    parser.add_argument("--json", action="store_true", help="print brim.profiles/1")
    asked = parser.parse_args(argv)
    if asked.profile is not None:
        shown = card_report.load_profile(asked.profile)
        document = {"schema": "brim.profile/1", **{key: plain(getattr(shown, key)) for key in shown._fields}}
        if asked.json:
            emit(document)
            return 0
        print(f"{shown.name} ({shown.source})\n{shown.description}")
        for section in ("hardware", "model", "limits", "watchdog", "runtime_profile", "quality"):
            for key, value in getattr(shown, section).items():
                print(f"  {section}.{key} = {value}")
        print(f"  claims = {', '.join(rule.name for rule in shown.claims) or 'the built-in ones'}")
        return 0
    rows = card_report.profiles()
    if asked.json:
        emit({"schema": "brim.profiles/1", "profiles": rows})
        return 0
    for row in rows:
        print(f"{row['name']:20} {row['origin']:9} {row['fault'] or row['description']}")
    return 0
