"""brim verify: prove that a run's journal was not altered."""

from brim import api, verbs
from brim.cli.words import Parser, emit
from brim.reports import text


def main(argv: list[str]) -> int:
    """Exit 0 when the chain holds, 7 where it does not."""
    parser = Parser("verify", "Recompute the hash chain of a run's journal.")
    parser.add_argument("run", metavar="RUN", help="a run folder, or the name of one in the state folder")
    parser.add_argument("--json", action="store_true", help="print brim.verify/1")
    parser.add_argument("--sign", metavar="KEY", help="sign the head and the report with this ed25519 private key (needs brim[sign])")
    parser.add_argument("--signed-by", metavar="KEY", help="demand a signature by this public key (a file, or 64 hex digits)")
    asked = parser.parse_args(argv)
    path, lines, head = api.verify(asked.run)
    over, cut = verbs.finished(asked.run), verbs.interrupted(asked.run)
    begun = verbs.foretold(asked.run)
    if asked.sign is not None:
        verbs.sign_run(asked.run, asked.sign)
    signer = verbs.check_signature(asked.run, asked.signed_by)
    if asked.json:
        emit(
            {
                "schema": "brim.verify/1",
                "journal": path,
                "lines": lines,
                "head": head,
                "intact": True,
                "finished": over,
                "interrupted": cut,
                "foretold": begun,
                "signed_by": signer,
            }
        )
    else:
        print(text.verified(path, lines, head, signer, finished=over, interrupted=cut, foretold=begun))
    return 0
