"""A device that plays back a script of readings; ships for users' tests and rehearsals as well as ours.

A script is one JSON object a line: `{"t": SECONDS, "devices": [rows as in brim.probe/1], "host": {…}}`, each holding until the next; a one-shot command uses the first. A row
needs only its `id`; what it does not give is missing. Where `host` is not given the caller's own host stands. Empty lines and lines that start with # are skipped.
"""

import json
import os
import stat

from brim.errors import Unreadable, Usage
from brim.facts.device import Device, Host, device_from, host_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT = 64 << 20


class Script:
    """The lines of a script in order of time. `at(now_ns)` counts from the first call."""

    def __init__(self, text: str, name: str = "script") -> None:
        self._steps: list[tuple[int, tuple[Device, ...], Host | None]] = []
        self._begun: int | None = None
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip() and not line.lstrip().startswith("#"):
                self._steps.append(_step(line, f"{name}, line {number}"))
        if not self._steps:
            raise Usage(f"{name} holds no reading", hint='One JSON object a line: {"t": 0, "devices": [{"id": "cuda:0", …}], "host": {…}}')
        times = [step[0] for step in self._steps]
        if times != sorted(times):
            raise Usage(f"{name}: the times go backwards", hint="Sort the lines by t.")

    def at(self, now_ns: int) -> "tuple[tuple[Device, ...], Host | None]":
        """The devices and the host that hold now."""
        if self._begun is None:
            self._begun = now_ns
        elapsed = now_ns - self._begun + self._steps[0][0]
        current = self._steps[0]
        for step in self._steps:
            if step[0] > elapsed:
                break
            current = step
        return current[1], current[2]

    @property
    def lasts_ns(self) -> int:
        """The time of the last line after the first."""
        return self._steps[-1][0] - self._steps[0][0]


def reading(line: "str | bytes", where: str) -> "dict[str, Any]":
    """One line's object with its `t`, `devices` and `host` checked; `Usage` names the line and the fault."""
    try:
        entry: Any = json.loads(line)
    except RecursionError:
        raise Usage(f"{where} is no JSON: it is nested too deep", hint="One JSON object a line.") from None
    except ValueError as fault:
        raise Usage(f"{where} is no JSON: {fault}", hint="One JSON object a line.") from None
    if not isinstance(entry, dict):
        raise Usage(f"{where} is no JSON object", hint="One JSON object a line.")
    seconds, rows, host = entry.get("t"), entry.get("devices", []), entry.get("host")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e9:
        raise Usage(f"{where}: t is {str(seconds)[:40]!r}" if "t" in entry else f"{where}: t is missing", hint="t is seconds, not negative.")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows):
        raise Usage(f"{where}: devices must be a list of rows, each with an id", hint='At least {"id": "cuda:0"}.')
    if host is not None and not isinstance(host, dict):
        raise Usage(f"{where}: host must be an object", hint="As in brim probe --json.")
    return entry


def _step(line: str, where: str) -> "tuple[int, tuple[Device, ...], Host | None]":
    entry = reading(line, where)
    seconds, host = entry["t"], entry.get("host")
    devices = tuple(device_from(row) for row in entry.get("devices", []))
    return round(seconds * 1e9), devices, None if host is None else host_from(host)


def content(path: str) -> str:
    """The text of a script, at most `LIMIT` bytes of it. `Unreadable` where it is none or no regular file (a pipe would be waited for)."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unreadable(f"{path}: is no regular file", hint="Readings come from a file.")
        with open(path, "rb") as file:
            return file.read(LIMIT).decode("utf-8-sig")
    except (OSError, ValueError) as fault:
        raise Unreadable(f"{path}: {getattr(fault, 'strerror', None) or fault}") from None


def load(path: str) -> Script:
    """The script in a file; `Unreadable` or `Usage` says what is wrong with it."""
    return Script(content(path), path)
