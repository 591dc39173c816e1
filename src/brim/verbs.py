"""The verbs of evidence (claims, runs, calibrations, quality gate), wired by default with the real stores, each replaceable by argument."""

import os

from brim import api, dossier, learning
from brim.errors import CannotTell, Unreadable, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from brim.facts.evidence import Evidence
    from brim.facts.profile import Profile

QUALITY_SCHEMA = "brim.quality/1"


def claims(run: str, profile: "str | Profile | None" = None) -> "dict[str, Any]":
    """`brim.claims/1` for a run by folder or name: every claim with allowed or not, the evidence, and what is missing. `Unreadable` where there is no such run."""
    from brim.card_report import load_profile
    from brim.reports import evidence_documents as documents

    held = load_profile(profile) if isinstance(profile, str) else profile
    opened = dossier.open_run(api.run_folder(run))
    return documents.claims(opened.folder, dossier.claims(opened, held), dossier.evidence_of(opened), opened.chain_fault)


def evidence_of(run: str) -> "Evidence":
    """What a run showed, as a value."""
    return dossier.evidence_of(dossier.open_run(api.run_folder(run)))


def finished(run: str) -> bool:
    """Whether the papers of a run say that it has ended."""
    return dossier.finished(api.run_folder(run))


def interrupted(run: str) -> bool:
    """Whether a run's ending was interrupted: its end is in the journal, and no paper says it. `brim report` writes the papers then."""
    return dossier.interrupted(api.run_folder(run)) is not None


def foretold(run: str) -> str:
    """What brim was doing when it was killed and the journal does not hold; empty for a run that ended, or goes on."""
    return dossier.foretold(api.run_folder(run))


def recover(run: str) -> bool:
    """Write the reports of a run whose ending was interrupted from its journal; False where there is nothing to do."""
    return dossier.recover(api.run_folder(run))


def html_of(run: str) -> str:
    """The self-contained HTML page of a run, finished or not."""
    return dossier.page(api.run_folder(run))


def write_html(run: str, out: str | None = None) -> str:
    """Write the HTML page into the run's folder (or to `out`) and return its path."""
    from brim.stores import files

    path = os.path.join(api.run_folder(run), "report.html") if out is None else out
    files.write_whole(path, html_of(run))
    return path


def _message(folder: str) -> bytes:
    """What is signed: the journal's head and the SHA-256 of report.json, each on a line."""
    from hashlib import sha256

    path = os.path.join(folder, "report.json")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as fault:
        raise Unreadable(f"{path}: {fault.strerror or fault}", hint="Only a finished run can be signed.") from None
    return f"brim.signature/1\n{api.report(folder).get('journal_head')}\n{sha256(data).hexdigest()}\n".encode()


def sign_run(run: str, key: str) -> "dict[str, Any]":
    """Verify a finished run, sign its head and report with the user's ed25519 key, and write `signature.json` beside them: `brim.signature/1`."""
    import json

    from brim.stores import files, signature

    folder = api.run_folder(run)
    api.verify(folder)
    public, signed = signature.sign(_message(folder), key)
    document = {"schema": "brim.signature/1", "public_key": public, "signature": signed, "covers": "the journal's head and the SHA-256 of report.json"}
    files.write_whole(os.path.join(folder, "signature.json"), json.dumps(document, indent=2) + "\n")
    return document


def check_signature(run: str, signed_by: str | None = None) -> str | None:
    """The public key (hex) that signed a run, None where it is not signed; `BrokenJournal` where the signature does not hold or is of another key than `signed_by`."""
    from brim.errors import BrokenJournal
    from brim.stores import files, signature

    folder = api.run_folder(run)
    path = os.path.join(folder, "signature.json")
    if not os.path.exists(path):
        if signed_by is not None:
            raise BrokenJournal(f"{folder}: is not signed, and a signature is asked for")
        return None
    document = files.read_json(path)
    if not isinstance(document, dict) or not all(isinstance(document.get(key), str) for key in ("public_key", "signature")):
        raise BrokenJournal(f"{path}: is no signature")
    signature.check(_message(folder), document["public_key"], document["signature"])
    if signed_by is not None and signature.public_key_of(signed_by) != document["public_key"]:
        raise BrokenJournal(f"{path}: was made with another key ({document['public_key'][:16]}…) than the one that is asked for")
    return str(document["public_key"])


def runs() -> "list[dict[str, Any]]":
    """Every run in the state folder, the oldest first: name, folder, command, when it began, how it ended, bytes on disk."""
    return dossier.runs(api.state_dir())


def prune_runs(*, keep: int | None = None, older_than_ns: int | None = None, now_wall_ns: int | None = None, dry: bool = False) -> "list[dict[str, Any]]":
    """Remove finished runs from the state folder and return them: all but the newest `keep`, or those that began longer ago than `older_than_ns`, or both at once.

    A run that is not finished is never removed. With `dry` nothing is removed.
    """
    from brim.clock import SystemClock

    if keep is None and older_than_ns is None:
        raise Usage("say which runs to remove", hint="Give how many to keep, or how old they must be.")
    now = SystemClock().wall_ns() if now_wall_ns is None else now_wall_ns
    finished = [row for row in runs() if row["began_wall_ns"] is not None]
    chosen = finished[: max(len(finished) - keep, 0)] if keep is not None else finished
    if older_than_ns is not None:
        chosen = [row for row in chosen if now - int(row["began_wall_ns"]) > older_than_ns]
    for row in () if dry else chosen:
        dossier.remove(row["folder"])
    return chosen


def calibrations(word: str | None = None) -> "dict[str, Any]":
    """`brim.calibration/1`: the observations in the store whose key or run contains `word` (None: all), and what they say together."""
    from brim.calibration import key_text, summary
    from brim.values import plain

    held = [one for one in learning.observations() if word is None or word in key_text(one.key) or word == one.run]
    return {"schema": learning.SCHEMA, "observations": [plain(one) for one in held], "summary": summary(held)}


def forget_calibration(word: str | None = None) -> int:
    """Remove the observations whose key or run contains `word` (None: all of them); the number removed."""
    return learning.forget(word)


def import_calibration(document: object) -> int:
    """Add the observations of a `brim.calibration/1` document; the number that was new."""
    return learning.take_in(document)


def quality_store() -> str:
    """Where verdicts are kept."""
    return os.path.join(api.state_dir(), "quality.json")


def digest_of(path: str, now_wall_ns: int | None = None) -> str:
    """The SHA-256 of a file, from the cache where path, size, times and inode are unchanged."""
    from brim.clock import SystemClock
    from brim.stores import digest

    return digest.of_file(path, os.path.join(api.state_dir(), "digests.json"), SystemClock().wall_ns() if now_wall_ns is None else now_wall_ns)


def quality_gate(
    artifact: str,
    command: "Sequence[str]",
    *,
    baseline: "str | float",
    metric: str,
    max_drop: str,
    pattern: str | None = None,
    lower_is_better: bool = False,
    environ: "dict[str, str] | None" = None,
) -> "dict[str, Any]":
    """Run an evaluation of `artifact`, read its number, judge it, and bind the verdict to the file's SHA-256: `brim.quality/1`.

    The command finds the file's path in `BRIM_ARTIFACT`; its output goes to stderr as it comes. `baseline` is a number, or a file that holds one under the
    metric's name. `CannotTell` where the command fails, prints no number, or the file changes meanwhile: then no verdict is kept, and an older one stands.
    """
    from brim import quality
    from brim.actions.evaluate import evaluate
    from brim.clock import SystemClock
    from brim.stores import ledger
    from brim.values import plain

    drop, relative = quality.parse_drop(max_drop)
    rule = quality.Rule(metric=metric, max_drop=drop, relative=relative, lower_is_better=lower_is_better)
    against = _baseline(baseline, metric, pattern)
    clock = SystemClock()
    before = digest_of(artifact)
    status, output = evaluate(command, {**(os.environ if environ is None else environ), "BRIM_ARTIFACT": os.path.abspath(artifact)})
    if status:
        raise CannotTell(f"the evaluation ended with code {status}, so there is no verdict", hint="Its own output stands above.")
    verdict = quality.judge(rule, quality.number_in(output, metric, pattern), against)
    if digest_of(artifact) != before:
        raise CannotTell(f"{artifact}: changed while it was evaluated, so there is no verdict", hint="Run the gate again when the export is finished.")
    document = {
        "schema": QUALITY_SCHEMA, "artifact": os.path.abspath(artifact), "sha256": before, "metric": metric, "at_wall_ns": clock.wall_ns(),
        "command": list(command), **{key: plain(getattr(verdict, key)) for key in verdict._fields},
    }  # fmt: skip
    ledger.change(quality_store(), lambda held: held.update({before: document}))
    return document


def _baseline(given: "str | float", metric: str, pattern: str | None) -> float:
    """A number, or the number under the metric's name in a file."""
    from brim import quality

    try:
        value = float(given)
    except ValueError:
        try:
            with open(str(given), encoding="utf-8", errors="replace") as file:
                return quality.number_in(file.read(1 << 24), metric, pattern)
        except OSError as fault:
            raise Unreadable(f"{given}: is neither a number nor a readable file ({fault.strerror or fault})") from None
    if not abs(value) < float("inf"):
        raise Usage(f"the baseline {given!r} is no finite number")
    return value


def quality_of(artifact: str, metric: str = "") -> "tuple[bool, str, str]":
    """(passed, why, SHA-256) of one artifact as the store knows it now."""
    from brim import quality
    from brim.stores import ledger

    digest = digest_of(artifact)
    passed, why = quality.state_of(ledger.load(quality_store()), digest, metric)
    return passed, why, digest
