"""SHA-256 of a file, remembered by path, size, modification time and inode, and computed again on any change; it does not interpret the file."""

import os
from hashlib import sha256

from brim.errors import Unreadable
from brim.stores import ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHUNK = 1 << 20
# A file that changed within this long before it was hashed may change again without a new time stamp (coarse file systems): it is hashed again each time.
SETTLED_NS = 2 * 10**9


def of_file(path: str, store: str | None, now_wall_ns: int) -> str:
    """The file's SHA-256 in hex. `store` is the cache file (None: no cache). `Unreadable` where the file cannot be read or changes while it is read."""
    path = os.path.realpath(path)
    before = _mark(path)
    held = ledger.load(store).get(path) if store else None
    if isinstance(held, dict) and held.get("mark") == before and isinstance(held.get("sha256"), str):
        return str(held["sha256"])
    found = _hashed(path)
    if _mark(path) != before:
        raise Unreadable(f"{path}: changed while it was read", hint="Wait until the export is finished.")
    if store and now_wall_ns - before[1] > SETTLED_NS:
        ledger.change(store, lambda document: document.update({path: {"mark": before, "sha256": found}}))
    return found


def _mark(path: str) -> "list[Any]":
    try:
        found = os.stat(path)
    except OSError as fault:
        raise Unreadable(f"{path}: {fault.strerror or fault}") from None
    return [found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev, found.st_ctime_ns]


def _hashed(path: str) -> str:
    digest = sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except OSError as fault:
        raise Unreadable(f"{path}: {fault.strerror or fault}") from None
    return digest.hexdigest()
