"""Reads one training configuration (YAML or JSON) as plain values, bounded; what its keys mean is none of its business.

YAML needs PyYAML (`pip install brim[yaml]`), which is imported only when such a file is read; its safe loader makes no objects.
"""

import os
import stat

from brim.errors import BadHeader, EmptyFile, NotARegularFile, TooLarge, Unreadable, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_BYTES = 1 << 20


def read_document(path: str) -> "dict[str, Any]":
    """The file's mapping. `Unreadable`, `EmptyFile`, `TooLarge` or `BadHeader` names the file; `Usage` where PyYAML is not there."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a FIFO would make us wait for whoever writes to it
            raise NotARegularFile(f"{path}: is no regular file")
        with open(path, "rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as fault:
        raise Unreadable(f"{path}: {getattr(fault, 'strerror', None) or fault}") from None
    if not raw.strip():
        raise EmptyFile(f"{path} is empty")
    if len(raw) > MOST_BYTES:
        raise TooLarge(f"{path} is over 1 MiB, which no training configuration is")
    document = _json(raw) if raw.lstrip()[:1] == b"{" else None
    if document is None:
        document = _yaml(raw, path)
    if not isinstance(document, dict):
        raise BadHeader(f"{path} holds no mapping of keys to values")
    return {str(key): value for key, value in document.items()}


def _json(raw: bytes) -> "Any":
    import json

    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _yaml(raw: bytes, path: str) -> "Any":
    try:
        import yaml
    except ImportError:
        raise Usage(f"{path} is YAML, which needs PyYAML", hint="pip install 'brim[yaml]', or give the same as JSON.") from None
    try:
        return yaml.safe_load(raw)
    except (yaml.YAMLError, RecursionError, ValueError) as fault:
        said = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        raise BadHeader(f"{path} is neither JSON nor YAML: {said}") from None
