"""Starts one command in an own process group, held back until somebody has written down who it is; it never decides.

Why held back: between `fork` and the record of the pid the governor may be killed. So the command's process first waits on a pipe, in a shell that
`exec`s the command in its place (same pid, same birth). If the pipe closes without a word, the process ends and the command never ran.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading

from brim.errors import Unreadable
from brim.facts.process import Identity
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import IO, BinaryIO

    from brim.actions.terminal import Terminal
    from brim.seams import ProcessProbe

_HOLD = 'read -r _ <&{fd} || exit 125; exec "$@" {fd}<&-'
_COPY_BYTES = 1 << 16
# What engines write when their load is over: llama-server (tools/server/server.cpp), uvicorn under vLLM and SGLang, Ollama.
READY = (b"server is listening", b"all slots are idle", b"Application startup complete", b"Uvicorn running on", b"The server is fired up", b"Listening on ")
_SET_CHILD_SUBREAPER = 36
OOM_SCORE = 500


class Child:
    """One held or running command."""

    def __init__(
        self, command: "Sequence[str]", probe: "ProcessProbe", *, env: "Mapping[str, str]", cwd: str, log_path: str | None, past_terminal: bool = False
    ) -> None:
        """Start the process, held. With `log_path` its output is copied there as well as to our own streams. A stream that is a terminal stays the job's own and is not
        copied; with `past_terminal` the job gets a pseudo-terminal in its place, and it is.

        `Unreadable` where the working directory or the log cannot be used.
        """
        reader, self._release = os.pipe()
        self._terminals = _terminals() if log_path is not None and past_terminal else {}
        out, err = (self._stream(fd, log_path) for fd in (1, 2))
        self.kept = tuple(fd for fd, stream in ((1, out), (2, err)) if stream is not None)
        try:
            held, move = _shell_fd(reader)
            shell = ["/bin/sh", "-c", _HOLD.format(fd=held), "brim-hold", *command]
            self._process = subprocess.Popen(
                shell, stdout=out, stderr=err, env=dict(env), cwd=cwd, process_group=0, pass_fds=(held,),
                preexec_fn=move,  # noqa: PLW1509 — one system call, see _shell_fd
            )  # fmt: skip
        except OSError as fault:
            os.close(self._release)
            raise Unreadable(f"{fault.filename or cwd}: the command cannot be started there: {fault.strerror}") from None
        finally:
            os.close(reader)
            for slave in {terminal.slave for terminal in self._terminals.values()}:
                os.close(slave)
        self.pid = self._process.pid
        self.identity = probe.identity(self.pid) or Identity(pid=self.pid, birth=Missing(reason="gone", detail="it ended at once"))
        self.pidfd = os.pidfd_open(self.pid)
        self._ready = threading.Event()
        self._known: set[int] = set()
        self._at_terminal = os.isatty(0)
        self._subreaper = _adopt_orphans()
        self._files: list[BinaryIO | IO[bytes]] = []
        self._copiers = self._tee(log_path)

    def _stream(self, fd: int, log_path: str | None) -> int | None:
        """What the job gets for one of our streams: a pipe or a pseudo-terminal where it is to be copied, None for our own."""
        if fd in self._terminals:
            return self._terminals[fd].slave
        return None if log_path is None or os.isatty(fd) else subprocess.PIPE

    def _tee(self, log_path: str | None) -> list[threading.Thread]:
        if log_path is None:
            return []
        log = open(log_path, "ab", buffering=0)  # noqa: SIM115 — closed by close()
        pairs: list[tuple[BinaryIO | IO[bytes], int]] = [
            (stream, fd) for stream, fd in ((self._process.stdout, 1), (self._process.stderr, 2)) if stream is not None
        ]
        pairs += [(terminal.master, fd) for fd, terminal in reversed(self._terminals.items()) if fd == 1 or self._terminals.get(1) is not terminal]
        copiers = [
            threading.Thread(target=_copy, args=(stream, fd, log, self._ready, self._follow), name=f"brim-tee-{fd}", daemon=True) for stream, fd in pairs
        ]
        self._files = [log, *(stream for stream, _ in pairs)]
        for copier in copiers:
            copier.start()
        return copiers

    def _follow(self, fd: int) -> None:
        """Hand a changed window size on to the pseudo-terminal of one of our streams."""
        if fd in self._terminals and self.pidfd >= 0:
            self._terminals[fd].follow(self.pidfd)

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
        if status is None:
            ends = select.poll()  # select() knows no descriptor above 1023
            ends.register(self.pidfd, select.POLLIN)
            if ends.poll(max(0, nanoseconds) / 1e6):
                status = self._process.wait()
        return status

    def poll(self) -> int | None:
        """The exit status (negative: the signal that ended it), or None while it runs."""
        return self._process.poll()

    def offer_to_the_kernel(self) -> bool:
        """Raise the job's `oom_score_adj`, so that the kernel takes it before its guard; False where that is refused."""
        try:
            with open(f"/proc/{self.pid}/oom_score_adj", "w", encoding="ascii") as file:
                file.write(str(OOM_SCORE))
        except OSError:
            return False
        return True

    def is_ready(self) -> bool:
        """Whether the engine has said in its log that it is ready."""
        return self._ready.is_set()

    def attend(self, pids: tuple[int, ...] = ()) -> None:
        """Reap what came back to us as a child (`pids`: who was of the job at the last look), and lend the terminal to a job that wants to read from it."""
        self._known.update(pid for pid in pids if pid != self.pid)
        for pid in list(self._known):
            try:
                done, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                if not os.path.exists(f"/proc/{pid}"):
                    self._known.discard(pid)
                continue
            if done:
                self._known.discard(pid)
        self.tend()

    def tend(self) -> None:
        """What of `attend` cannot wait for a whole look: orphans that came back to us are reaped, and a job that stands still for want of the terminal gets it."""
        if os.getpid() == 1:
            self._reap(os.P_ALL, 0)  # as the first process of a container every orphan is ours
        elif self._subreaper:
            self._reap(os.P_PGID, self.pid)
        self._lend_terminal()

    def waits(self) -> "list[tuple[int, int, int]]":
        """What `tend` looks for, as waitid is asked for it: kind, of whom, how."""
        found = [(os.P_PGID, self.pid, os.WEXITED)] if self._subreaper else []
        return [*found, (os.P_PID, self.pid, os.WSTOPPED)] if self._at_terminal else found

    def _reap(self, kind: int, number: int) -> None:
        """Reap orphans that came back to us, also those that no look ever saw: one that lives on as a zombie keeps its pid, and a system has only so many."""
        while True:
            try:
                found = os.waitid(kind, number, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid == self.pid:
                return
            with contextlib.suppress(ChildProcessError):
                os.waitpid(found.si_pid, os.WNOHANG)

    def _lend_terminal(self) -> None:
        """A job that was stopped for reading from the terminal (SIGTTIN) gets it; from then on Ctrl-C is the job's, as it expects."""
        if not self._at_terminal or self._process.returncode is not None:
            return
        try:
            found = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
            if found is not None and found.si_status in (signal.SIGTTIN, signal.SIGTTOU):
                before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.tcsetpgrp(0, self.pid)
                signal.signal(signal.SIGTTOU, before)
                os.killpg(self.pid, signal.SIGCONT)
            elif found is not None and found.si_status == signal.SIGTSTP and os.tcgetpgrp(0) == self.pid:
                os.kill(os.getpid(), signal.SIGTSTP)  # Ctrl-Z went to the job alone, which has the terminal: the shell behind us must learn of it
        except (OSError, ValueError):
            return

    def close(self) -> None:
        """Collect the output that is still on its way (for a moment: a descendant may hold the pipe open) and give descriptors back."""
        if self._release >= 0:
            os.close(self._release)
            self._release = -1
        for copier in self._copiers:
            copier.join(1.0)
        if not any(copier.is_alive() for copier in self._copiers):  # else a copier still reads: its files end with us
            for file in self._files:
                file.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def _adopt_orphans() -> bool:
    """Become the subreaper of what we start: a daemon that leaves its parents comes back to us as a child. False where the system has no such thing."""
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _shell_fd(reader: int) -> "tuple[int, Callable[[], object] | None]":
    """The number under which the shell finds the pipe, and what moves it there.

    A POSIX shell need not understand descriptors of two digits (dash does not), and we may have many files open. The pipe got the lowest free number, so where
    that has two digits all of 3 to 9 are ours already: in the child, where ours are closed anyway, the pipe takes the place of one of them.
    """
    if reader < 10:
        return reader, None
    return 9, lambda: os.dup2(reader, 9)


def _terminals() -> "dict[int, Terminal]":
    """A pseudo-terminal for each of our output streams that is a terminal, one for both where they are the same; none where none can be made."""
    from brim.actions.terminal import Terminal

    found: dict[int, Terminal] = {}
    for fd in (1, 2):
        if os.isatty(fd):
            same = fd == 2 and 1 in found and os.fstat(1).st_rdev == os.fstat(2).st_rdev
            with contextlib.suppress(OSError):
                found[fd] = found[1] if same else Terminal(fd)
    return found


def _read(stream: "BinaryIO") -> bytes:
    """The next bytes; none at the end, which a pseudo-terminal tells as an input/output error."""
    try:
        return os.read(stream.fileno(), _COPY_BYTES)
    except OSError:
        return b""


def _copy(stream: "BinaryIO", fd: int, log: "BinaryIO", ready: threading.Event, follow: "Callable[[int], None]") -> None:
    """Copy until the stream ends. A full disk must not stop the job: that copy is given up with a word, the other goes on.

    Where our own reader went away (`brim run … | head`) the pipe is closed, so that the job learns of it at its next write, as it does without brim.
    """
    to_reader = to_log = True
    tail = b""
    while data := _read(stream):
        follow(fd)
        if not ready.is_set():
            tail = tail[-128:] + data
            if any(words in tail for words in READY):
                ready.set()
        if to_log and (fault := _write(log.fileno(), data)) is not None:
            to_log = False
            _say(f"the log {log.name}: {fault.strerror}; the job's output is no longer kept there")
        if to_reader and (fault := _write(fd, data)) is not None:
            if isinstance(fault, BrokenPipeError):
                stream.close()
                return
            to_reader = False
            _say(f"{'standard output' if fd == 1 else 'standard error'}: {fault.strerror}; the job's output goes to its log alone")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"brim: {text}\n".encode("utf-8", "backslashreplace"))


def _write(fd: int, data: bytes) -> "OSError | None":
    """All of it, or what stood in the way."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # somebody who shares our terminal (the job, through its stdin) made it non-blocking
            ready = select.poll()
            ready.register(fd, select.POLLOUT)
            ready.poll()
        except OSError as fault:
            return fault
    return None
