"""Writes one whole file so that a reader sees the old one or the new one, never a part; it does not interpret what it writes."""

import contextlib
import os

from brim.errors import Unreadable


def write_whole(path: str, text: str) -> None:
    """UTF-8 text into `path`: a temporary file beside it, flushed to disk, then renamed over it. `Unreadable` names the path and the fault."""
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        with open(beside, "wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as fault:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise Unreadable(f"{path}: {fault.strerror or fault}") from None
    with contextlib.suppress(OSError):
        _sweep(path)


def _sweep(path: str) -> None:
    """Take away what writers of this file left beside it when they were killed."""
    folder, name = os.path.split(path)
    for entry in os.listdir(folder or "."):
        pid = entry[len(name) + 1 : -4]
        if entry.startswith(f"{name}.") and entry.endswith(".tmp") and pid.isdecimal() and os.path.exists("/proc/self") and not os.path.exists(f"/proc/{pid}"):
            os.unlink(os.path.join(folder, entry))


def make_folder(path: str) -> None:
    """The folder with its parents; `Unreadable` where it cannot be made."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as fault:
        raise Unreadable(f"{path}: {fault.strerror or fault}") from None


def read_json(path: str, cap_bytes: int = 1 << 24) -> object:
    """The decoded JSON of one file of at most `cap_bytes`; `Unreadable` where it is missing or is no JSON."""
    import json

    try:
        with open(path, "rb") as file:
            data = file.read(cap_bytes + 1)
    except OSError as fault:
        raise Unreadable(f"{path}: {fault.strerror or fault}") from None
    if len(data) > cap_bytes:
        raise Unreadable(f"{path}: more than {cap_bytes} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as fault:
        raise Unreadable(f"{path}: no JSON: {fault}", hint="Give a JSON file.") from None
