"""Tells people: the terminal, a command or a webhook of theirs; no notice ever holds a run up, and it never decides.

Guarantees: the terminal has a thread of its own, so a pipe that nobody reads holds nothing up; a command and a webhook run in another, one at a time, at most 64 waiting; a failure is said once on stderr. The command gets the
notice as its last argument and as `BRIM_NOTICE`; the webhook gets `{"text": …, "level": …, "run": …}` by POST.
"""

import contextlib
import os
import queue
import subprocess
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEPT = 64
TIMEOUT_S = 10.0


class Notifier:
    """Where notices go. `say` writes the terminal's line; `started` is told the pid of each command (they are no part of the job)."""

    def __init__(
        self, *, say: "Callable[[str], None]", command: "tuple[str, ...]" = (), webhook: str = "", run: str = "", environ: "Mapping[str, str] | None" = None
    ) -> None:
        self._say, self._command, self._webhook, self._run = say, command, webhook, run
        self._environ = dict(environ or {})
        self._queue: queue.Queue[tuple[str, str]] = queue.Queue(KEPT)
        self._lines: queue.Queue[str | None] = queue.Queue(16 * KEPT)
        self._talker = threading.Thread(target=self._talk, name="brim-say", daemon=True)
        self._talker.start()
        self._told_fault = False
        self.pids: set[int] = set()
        if command or webhook:
            threading.Thread(target=self._deliver, name="brim-notify", daemon=True).start()

    def tell(self, text: str, level: str) -> None:
        """Say it on the terminal, and hand it to the command and the webhook; returns at once, whatever they do."""
        with contextlib.suppress(queue.Full):  # a terminal that nobody reads loses its lines, not the job
            self._lines.put_nowait(text)
        if not (self._command or self._webhook):
            return
        try:
            self._queue.put_nowait((text, level))
        except queue.Full:
            self._fault("more notices than can be delivered; some were dropped")

    def _talk(self) -> None:
        while (text := self._lines.get()) is not None:
            self._say(text)

    def close(self) -> None:
        """Give the last lines a moment to be written."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._talker.join(1.0)

    def _fault(self, text: str) -> None:
        if not self._told_fault:
            self._told_fault = True
            self._say(f"notices: {text}")

    def _deliver(self) -> None:
        while True:
            text, level = self._queue.get()
            try:
                if self._command:
                    self._start(text, level)
                if self._webhook:
                    self._post(text, level)
            except (OSError, subprocess.SubprocessError, ValueError) as fault:
                self._fault(f"{type(fault).__name__}: {fault}")

    def _start(self, text: str, level: str) -> None:
        env = {**self._environ, "BRIM_NOTICE": text, "BRIM_LEVEL": level}
        with subprocess.Popen([*self._command, text], env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True) as child:
            self.pids.add(child.pid)
            try:
                child.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                raise

    def _post(self, text: str, level: str) -> None:
        import json
        from urllib.parse import urlsplit
        from urllib.request import Request, urlopen

        if urlsplit(self._webhook).scheme not in ("http", "https"):
            raise ValueError(f"{self._webhook!r} is no http(s) address")
        body = json.dumps({"text": text, "level": level, "run": self._run}).encode()
        request = Request(self._webhook, data=body, headers={"Content-Type": "application/json"})  # noqa: S310 - the scheme was looked at
        with urlopen(request, timeout=TIMEOUT_S):  # noqa: S310
            pass


def to_stderr(text: str) -> None:
    """Write one line to standard error in one piece; a closed terminal stops nothing."""
    with contextlib.suppress(OSError):
        os.write(2, f"brim: {text}\n".encode(errors="replace"))
