"""Runs a command that prints a number, again and again, in a thread of its own; it keeps what was printed and judges nothing."""

import contextlib
import re
import subprocess
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
DEADLINE_S = 30.0


class Measure:
    """The last number that the command prints is taken each time; a command that fails or prints none gives nothing. `taken` hands over and forgets."""

    def __init__(self, command: "Sequence[str]", every_ns: int) -> None:
        self._command, self._every_s = list(command), every_ns / 1e9
        self._values: list[float] = []
        self._lock, self._end = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._go, name="brim-measure", daemon=True)
        self._thread.start()

    def taken(self) -> tuple[float, ...]:
        """The numbers since the last call, in order."""
        with self._lock:
            values, self._values = tuple(self._values), []
        return values

    def close(self) -> None:
        """End the thread; a command that hangs is left to its deadline."""
        self._end.set()

    def _go(self) -> None:
        while not self._end.wait(self._every_s):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                done = subprocess.run(self._command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False)
                numbers = _NUMBER.findall(done.stdout) if done.returncode == 0 else []
                if numbers:
                    with self._lock:
                        self._values.append(float(numbers[-1]))
