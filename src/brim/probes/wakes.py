"""Waits for whatever comes first: the end of the job, a signal to us, a kernel notice about memory, or the time; it only says which.

Kernel notices, each asked for once and left out where the kernel refuses: a usage threshold of a v1 memory cgroup (eventfd, `cgroup.event_control`), a PSI
trigger (windows are multiples of 2 s: shorter ones need CAP_SYS_RESOURCE), `memory.events` of a v2 group (inotify). A notice is a reason to look, never a reading.
"""

import contextlib
import os
import select

_IN_MODIFY = 2
# Closer than this a threshold is not set anew: polling is as good.
LEAST_ROOM = 1 << 20
MOST_AT_ONCE = 32


class Wakes:
    """File descriptors that end a wait early, each with its name."""

    def __init__(self) -> None:
        self._poll = select.epoll()  # a wait that only runs out touches none of the descriptors, unlike poll
        self._names: dict[int, tuple[str, str]] = {}
        self._kept: list[int] = []
        self._thresholds: dict[str, tuple[str, int, int]] = {}
        self.refused: list[str] = []

    def fileno(self) -> int:
        """The epoll itself: it is ready when something has come that `wait` would tell."""
        return self._poll.fileno()

    def watch(self, fd: int, name: str, *, drain: str = "") -> None:
        """End waits when `fd` is readable; `drain` says how it is emptied (`read`, else not at all)."""
        self._names[fd] = (name, drain)
        self._poll.register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:
        """Stop watching a descriptor that belongs to somebody else."""
        if self._names.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def threshold(self, group_dir: str, level_bytes: int) -> bool:
        """Ask a v1 memory group for a notice when its usage crosses `level_bytes`; False where that is refused."""
        try:
            usage = os.open(f"{group_dir}/memory.usage_in_bytes", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as fault:
            return self._no(f"{group_dir}: {fault.strerror}")
        event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            control = os.open(f"{group_dir}/cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(control, f"{event} {usage} {max(level_bytes, 0)}".encode())
            finally:
                os.close(control)
        except OSError as fault:
            os.close(event)
            os.close(usage)
            return self._no(f"{group_dir}/cgroup.event_control: {fault.strerror}")
        self._kept += [event, usage]
        self._thresholds[f"threshold {level_bytes}"] = (group_dir, event, usage)
        self.watch(event, f"threshold {level_bytes}", drain="read")
        return True

    def again(self, name: str, room_bytes: int) -> None:
        """A threshold was crossed and there is still room: ask anew, that much above what the group uses now (its use counts file cache that the kernel can drop)."""
        found = self._thresholds.pop(name, None)
        if found is None:
            return
        group_dir, event, usage = found
        try:
            now = int(os.pread(usage, 64, 0))
        except (OSError, ValueError):
            now = -1
        self.forget(event)
        for fd in (event, usage):
            self._kept.remove(fd)
            os.close(fd)
        if now >= 0:
            self.threshold(group_dir, now + max(room_bytes, LEAST_ROOM))

    def pressure(self, path: str, *, stall_us: int = 150_000, window_us: int = 2_000_000, kind: str = "some") -> bool:
        """Ask for a notice when tasks wait for memory for `stall_us` of `window_us`; False where that is refused."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as fault:
            return self._no(f"{path}: {fault.strerror}")
        try:
            os.write(fd, f"{kind} {stall_us} {window_us}\0".encode())
        except OSError as fault:
            os.close(fd)
            return self._no(f"{path}: {fault.strerror}")
        self._kept.append(fd)
        self._names[fd] = ("pressure", "")
        self._poll.register(fd, select.EPOLLPRI)
        return True

    def events(self, path: str) -> bool:
        """Ask for a notice when a v2 group's `memory.events` changes; False where that is refused."""
        if not os.path.exists(path):
            return self._no(f"{path}: not there")
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if fd < 0 or libc.inotify_add_watch(fd, os.fsencode(path), _IN_MODIFY) < 0:
            return self._no(f"{path}: inotify refused ({os.strerror(ctypes.get_errno())})")
        self._kept.append(fd)
        self.watch(fd, "memory.events", drain="read")
        return True

    def _no(self, why: str) -> bool:
        self.refused.append(why)
        return False

    def wait(self, nanoseconds: int) -> tuple[str, ...]:
        """Wait at most so long; the names of what came (none: the time is over)."""
        found = []
        for fd, event in self._poll.poll(max(0, nanoseconds) / 1e9, MOST_AT_ONCE):
            name, drain = self._names.get(fd, ("", ""))
            if drain:
                with contextlib.suppress(OSError):
                    os.read(fd, 4096)
            if name == "pressure" and event & select.EPOLLERR:
                self._poll.unregister(fd)
                continue
            found.append(name)
        return tuple(name for name in found if name)

    def close(self) -> None:
        """Give back what was asked for here."""
        for fd in self._kept:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._kept.clear()
        self._poll.close()
