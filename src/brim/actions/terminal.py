"""A pseudo-terminal in our terminal's place, so that a job's output can be kept while its stdout stays a terminal for it; it decides nothing.

The line discipline changes nothing on the way (no output processing: the real terminal behind it does that once), and the window's size is handed on: at the start, and
with SIGWINCH when a look beside the job's next output finds another one. The job's input, its controlling terminal and its process group stay what they were.
Not covered: a program that switches modes of its *output* (curses) switches those of the pseudo-terminal; so only engines whose log is wanted get one.
"""

import contextlib
import fcntl
import os
import signal
import termios
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

LOOK_EVERY_S = 0.25


class Terminal:
    """One pseudo-terminal in front of our descriptor `fd`. `slave` is the job's end; `master` is ours, to be read like a pipe."""

    def __init__(self, fd: int) -> None:
        """`OSError` where there is no pseudo-terminal to be had."""
        self._fd = fd
        master, self.slave = os.openpty()
        modes = termios.tcgetattr(self.slave)
        modes[1] &= ~termios.OPOST
        modes[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG)
        termios.tcsetattr(self.slave, termios.TCSANOW, modes)
        self.master: BinaryIO = os.fdopen(master, "rb", buffering=0)
        self._size = b""
        self._looked = 0.0
        self.follow(-1)

    def follow(self, pidfd: int) -> None:
        """Hand our window's size on where it has changed (looked at a few times a second at most), and tell the job so."""
        if time.monotonic() - self._looked < LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self._fd, termios.TIOCGWINSZ, bytes(8))
            if size != self._size:
                self._size = size
                fcntl.ioctl(self.master.fileno(), termios.TIOCSWINSZ, size)
                if pidfd >= 0:
                    signal.pidfd_send_signal(pidfd, signal.SIGWINCH)
