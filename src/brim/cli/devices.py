"""brim devices: the devices that brim knows by name, for `--device "RTX 3090"`."""

from brim import api
from brim.cli.words import Parser, emit
from brim.errors import NoSuchDevice


def main(argv: list[str]) -> int:
    """Exit 0; 6 where nothing matches the query."""
    parser = Parser("devices", "The devices that brim knows by name: memory as the driver tells it, bandwidth, power, and where each row came from.")
    parser.add_argument("query", nargs="*", metavar="QUERY", help="words that the name must have: 3090, rtx 3090, h100 80gb")
    parser.add_argument("--json", action="store_true", help="print brim.devices/1")
    asked = parser.parse_args(argv)
    query = " ".join(asked.query)
    found = api.catalogue(query)
    if not found:
        near = api.suggest(query)
        raise NoSuchDevice(f"no device is called {query!r}", hint=f"Did you mean {', '.join(near)}?" if near else "`brim devices` lists all.")
    if asked.json:
        from brim.reports.documents import devices

        emit(devices(found))
    else:
        from brim.reports.devices import catalogue

        print(catalogue(found))
    return 0
