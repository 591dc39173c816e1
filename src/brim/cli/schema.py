"""brim schema: the JSON Schema of a document."""

from brim.cli.words import Parser, emit
from brim.errors import Usage
from brim.reports.schemas import SCHEMAS


def main(argv: list[str]) -> int:
    """Exit 0, or 2 for a name that is not known."""
    parser = Parser("schema", "Print the JSON Schema of one of brim's documents.")
    parser.add_argument("name", metavar="NAME", help=", ".join(SCHEMAS))
    asked = parser.parse_args(argv)
    name = asked.name.removeprefix("brim.").removesuffix("/1")  # a document's own word for itself will do
    if name not in SCHEMAS:
        raise Usage(f"schema: unknown document {asked.name!r}", hint=f"Known: {', '.join(SCHEMAS)}.")
    emit(SCHEMAS[name])
    return 0
