"""The lines our journal may contain, versioned and frozen; it can validate a line but cannot read a file.

One line is (seq, at_ns, wall_ns, kind, body) and its hash: SHA-256 over the hash of the line before and the canonical form of the line itself. The first
line's predecessor is `GENESIS`. Canonical means JSON with sorted keys, no white space, UTF-8.
"""

from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

JOURNAL_VERSION = 1
GENESIS = sha256(b"brim.journal/1").digest()

# kind → fields that a body of this kind must have
KINDS: "dict[str, tuple[str, ...]]" = {
    "begin": ("schema", "brim", "command", "cwd", "limits"),
    "gate": ("verdict", "reasons"),
    "admission": ("admitted", "reasons", "waited_ns"),
    "launch": ("command",),
    "launched": ("pid", "birth"),
    "sample": ("held_bytes", "free_bytes", "level"),
    "level": ("level", "reason"),
    "intent": ("kind", "reason"),
    "outcome": ("kind", "outcome"),
    "checkpoint": ("step", "path", "complete"),
    "fault": ("device", "reason"),
    "evaluated": ("count",),
    "child_end": ("exit_code", "by"),
    "profile": ("name", "source", "actions"),
    "quality": ("passed", "reason", "event"),
    "throughput": ("value",),
    "packed": ("first", "last", "count", "digest"),
    "thinned": ("first", "last", "count", "digest"),
    "end": ("exit_code", "by"),
}


def check(kind: str, body: "Mapping[str, Any]") -> None:
    """`ValueError` where the kind is unknown or a field is wanting: a defect of ours, found when the line is written, not when it is read."""
    if kind not in KINDS:
        raise ValueError(f"unknown record kind {kind!r}")
    for field in KINDS[kind]:
        if field not in body:
            raise ValueError(f"a {kind!r} record needs {field!r}")


def canonical(body: "Mapping[str, Any]") -> str:
    """The one text that stands for this body. Bytes of a command that are no UTF-8 (lone surrogates in Python) stand as JSON's own escapes and come back as they were."""
    import json

    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


# What is written into a report after the end record: the chain's head, and what a profile adds from the lines of the chain.
LATER = ("journal_head", "profile", "watchdog")


def report_digest(report: "Mapping[str, Any]") -> str:
    """SHA-256 (hex) of a report's canonical form without what is written `LATER`; the same for the report as it was made and as it is read back."""
    import json

    as_read = json.loads(canonical(report))
    return sha256(canonical({key: value for key, value in as_read.items() if key not in LATER}).encode()).hexdigest()


def link(previous: bytes, seq: int, at_ns: int, wall_ns: int, kind: str, body: str) -> bytes:
    """The hash of one line. Lengths stand before texts, so that no two different lines have the same bytes."""
    digest = sha256(previous)
    digest.update(f"{seq}|{at_ns}|{wall_ns}|{len(kind)}|{kind}|{len(body.encode())}|{body}".encode())
    return digest.digest()
