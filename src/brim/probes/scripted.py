"""A device that plays back a script of readings; ships for users' tests and rehearsals as well as ours.

A script is one JSON object a line: `{"t": SECONDS, "devices": [rows as in brim.probe/1], "host": {…}}`, each holding until the next; a one-shot command uses the first. A row
needs only its `id`; what it does not give is missing. Where `host` is not given the caller's own host stands. Empty lines and lines that start with # are skipped.
"""

import json

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


def _step(line: str, where: str) -> "tuple[int, tuple[Device, ...], Host | None]":
    try:
        entry: Any = json.loads(line)
    except ValueError as fault:
        raise Usage(f"{where} is no JSON: {fault}", hint="One JSON object a line.") from None
    if not isinstance(entry, dict):
        raise Usage(f"{where} is no JSON object", hint="One JSON object a line.")
    seconds, rows, host = entry.get("t", 0), entry.get("devices", []), entry.get("host")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e9:
        raise Usage(f"{where}: t is {seconds!r}", hint="t is seconds, not negative.")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows):
        raise Usage(f"{where}: devices must be a list of rows, each with an id", hint='At least {"id": "cuda:0"}.')
    if host is not None and not isinstance(host, dict):
        raise Usage(f"{where}: host must be an object", hint="As in brim probe --json.")
    devices = tuple(device_from(row) for row in rows)
    return round(seconds * 1e9), devices, None if host is None else host_from(host)


def load(path: str) -> Script:
    """The script in a file; `Unreadable` or `Usage` says what is wrong with it."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LIMIT)
    except (OSError, UnicodeDecodeError) as fault:
        raise Unreadable(f"{path}: {getattr(fault, 'strerror', None) or fault}") from None
    return Script(text, path)
