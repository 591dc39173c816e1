"""Starts one command in an own process group, held back until somebody has written down who it is; it never decides.

Why held back: between `fork` and the record of the pid the governor may be killed. So the command's process first waits on a pipe, in a shell that
`exec`s the command in its place (same pid, same birth). If the pipe closes without a word, the process ends and the command never ran.
"""

import os
import select
import subprocess
import threading

from brim.errors import Unreadable
from brim.facts.process import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import BinaryIO

    from brim.seams import ProcessProbe

_HOLD = 'read -r _ <&{fd} || exit 125; exec "$@" {fd}<&-'
_COPY_BYTES = 1 << 16


class Child:
    """One held or running command."""

    def __init__(self, command: "Sequence[str]", probe: "ProcessProbe", *, env: "Mapping[str, str]", cwd: str, log_path: str | None) -> None:
        """Start the process, held. With `log_path` its output is copied there as well as to our own streams, unless those are terminals.

        `Unreadable` where the working directory or the log cannot be used.
        """
        reader, self._release = os.pipe()
        out = None if log_path is None or os.isatty(1) else subprocess.PIPE
        err = None if log_path is None or os.isatty(2) else subprocess.PIPE
        try:
            shell = ["/bin/sh", "-c", _HOLD.format(fd=reader), "brim-hold", *command]
            self._process = subprocess.Popen(shell, stdout=out, stderr=err, env=dict(env), cwd=cwd, process_group=0, pass_fds=(reader,))
        except OSError as fault:
            os.close(self._release)
            raise Unreadable(f"{fault.filename or cwd}: the command cannot be started there: {fault.strerror}") from None
        finally:
            os.close(reader)
        self.pid = self._process.pid
        self.identity = probe.identity(self.pid) or Identity(pid=self.pid, birth=0)
        self._pidfd = os.pidfd_open(self.pid)
        self._copiers = self._tee(log_path)

    def _tee(self, log_path: str | None) -> list[threading.Thread]:
        if log_path is None:
            return []
        log = open(log_path, "ab", buffering=0)  # noqa: SIM115 — closed by the last copier
        pairs = [(stream, fd) for stream, fd in ((self._process.stdout, 1), (self._process.stderr, 2)) if stream is not None]
        copiers = [threading.Thread(target=_copy, args=(stream, fd, log), name=f"brim-tee-{fd}", daemon=True) for stream, fd in pairs]
        for copier in copiers:
            copier.start()
        return copiers

    def release(self) -> None:
        """Let the command begin."""
        try:
            os.write(self._release, b"go\n")
        except BrokenPipeError:
            pass  # it was killed while it was held; wait() tells
        finally:
            os.close(self._release)
            self._release = -1

    def wait(self, nanoseconds: int) -> int | None:
        """Wait at most so long for the end. The exit status (negative: the signal that ended it), or None while it runs."""
        status = self._process.poll()
        if status is None and select.select([self._pidfd], [], [], max(0, nanoseconds) / 1e9)[0]:
            status = self._process.wait()
        return status

    def close(self) -> None:
        """Collect the output that is still on its way (for a moment: a descendant may hold the pipe open) and give descriptors back."""
        if self._release >= 0:
            os.close(self._release)
            self._release = -1
        for copier in self._copiers:
            copier.join(1.0)
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _copy(stream: "BinaryIO", fd: int, log: "BinaryIO") -> None:
    """Copy until the stream ends. A full disk or a closed terminal must not stop the job: that copy is given up, the other goes on."""
    to_terminal = to_log = True
    while data := os.read(stream.fileno(), _COPY_BYTES):
        to_terminal = to_terminal and _write(fd, data)
        to_log = to_log and _write(log.fileno(), data)


def _write(fd: int, data: bytes) -> bool:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        return False
    return True
