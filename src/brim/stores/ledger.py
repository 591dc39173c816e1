"""Keeps one JSON object in a file between runs: read whole, changed under a lock, written whole; it does not interpret the object.

A file that is damaged is set aside with the ending `.damaged` and the store begins anew, so that a cut file never stops a run; `load` then gives an empty object.
"""

import contextlib
import json
import os

from brim.stores import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def load(path: str) -> "dict[str, Any]":
    """The object, or an empty one where there is no file or a damaged one."""
    try:
        with open(path, "rb") as file:
            document = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def change(path: str, act: "Callable[[dict[str, Any]], object]") -> "dict[str, Any]":
    """Apply `act` to the object and write it, with no other process between the reading and the writing; `Unreadable` where that cannot be."""
    files.make_folder(os.path.dirname(path))
    with _locked(path + ".lock"):
        document = load(path)
        if not document and os.path.exists(path) and os.path.getsize(path) > 2:
            with contextlib.suppress(OSError):
                os.replace(path, path + ".damaged")
        act(document)
        files.write_whole(path, json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n")
    return document


@contextlib.contextmanager
def _locked(path: str) -> "Any":
    """An advisory lock where the platform has one."""
    try:
        import fcntl
    except ImportError:  # no such lock on Windows: the file is still written whole
        yield
        return
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
