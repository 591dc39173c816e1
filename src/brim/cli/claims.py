"""brim claims: which sentences a run supports, and what is missing before the others may be said."""

from brim import verbs
from brim.cli.words import Parser, emit
from brim.errors import ClaimNotSupported, Usage
from brim.reports import evidence_documents


def main(argv: list[str]) -> int:
    """Exit 0; 8 where --require names a claim that is not supported; 2 where there is no such run or claim."""
    parser = Parser("claims", "Judge the claims of a profile, or the built-in ones, on the evidence of a run.")
    parser.add_argument("run", metavar="RUN", help="a run folder, or the name of one in the state folder")
    parser.add_argument("--profile", metavar="P", help="judge the claims of this profile (default: the run's own)")
    parser.add_argument("--require", action="append", default=[], metavar="NAME", help="exit 8 unless this claim is allowed; repeatable")
    parser.add_argument("--json", action="store_true", help="print brim.claims/1")
    asked = parser.parse_args(argv)
    document = verbs.claims(asked.run, asked.profile)
    by_name = {one["name"]: one for one in document["claims"]}
    for name in asked.require:
        if name not in by_name:
            raise Usage(f"claims: there is no claim {name!r}", hint=f"Known: {', '.join(by_name)}.")
    if asked.json:
        emit(document)
    else:
        print(evidence_documents.claims_text(document))
        if document["chain_fault"]:
            print(f"the journal does not hold: {document['chain_fault']}")
    refused = [name for name in asked.require if not by_name[name]["allowed"]]
    return ClaimNotSupported.exit_code if refused else 0
