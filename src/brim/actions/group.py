"""Makes the job a cgroup of its own where that is allowed (v1 memory, v2 for kill and freeze), and undoes it; it never decides and sets no limit.

Guarantees: nothing but groups that it made is ever changed; whatever is refused (no permission, no mount, read-only) leaves that part out and says so. No
limit is set: the kernel kills at a limit, and a killed job saves nothing. Not covered: moving processes that are already in another group of their own making.
"""

import contextlib
import os
import time


class Group:
    """The job's own cgroups: `memory_dir` tells its memory (v1 or v2), `kill_dir` has `cgroup.kill` and `cgroup.freeze`; empty where not had."""

    def __init__(self, name: str, root: str = "") -> None:
        self._root, self.memory_dir, self.kill_dir = root.rstrip("/"), "", ""
        self.refused: list[str] = []
        self._made: list[str] = []
        for kind, parent in self._parents():
            path = f"{parent}/{name}"
            _sweep(parent)
            try:
                os.mkdir(path)
            except OSError as fault:
                self.refused.append(f"{path}: {fault.strerror}")
                continue
            self._made.append(path)
            if kind == "memory" or (kind == "unified" and not self.memory_dir and os.path.exists(f"{path}/memory.current")):
                self.memory_dir = path
            if kind == "unified" and os.path.exists(f"{path}/cgroup.kill"):
                self.kill_dir = path

    def _parents(self) -> "list[tuple[str, str]]":
        """(kind, folder) of our own groups: the v1 memory controller, the v2 tree."""
        try:
            with open(f"{self._root}/proc/self/cgroup", encoding="ascii", errors="replace") as file:
                lines = file.read(1 << 16).splitlines()
        except OSError as fault:
            self.refused.append(f"/proc/self/cgroup: {fault.strerror}")
            return []
        found = []
        for line in lines:
            number, _, rest = line.partition(":")
            names, _, path = rest.partition(":")
            base = f"{self._root}/sys/fs/cgroup"
            if "memory" in names.split(","):
                found.append(("memory", f"{base}/memory{path.rstrip('/')}"))
            elif number == "0" and not names:
                mount = f"{base}/unified" if os.path.isdir(f"{base}/unified") else base
                found.append(("unified", f"{mount}{path.rstrip('/')}"))
        return found

    @property
    def made(self) -> tuple[str, ...]:
        """Give the folders of the groups that were made."""
        return tuple(self._made)

    def add(self, pid: int) -> str:
        """Move a process (and what it will fork) into the groups; what was refused in words, else empty. A group that took nobody is given up."""
        refused = []
        for path in list(self._made):
            try:
                with open(f"{path}/cgroup.procs", "w", encoding="ascii") as file:
                    file.write(str(pid))
            except OSError as fault:
                refused.append(f"{path}: {fault.strerror}")
                self._forget(path)
        return "; ".join(refused)

    def _forget(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(path)
        self._made.remove(path)
        self.memory_dir = "" if self.memory_dir == path else self.memory_dir
        self.kill_dir = "" if self.kill_dir == path else self.kill_dir

    def pids(self) -> "list[int] | None":
        """Give who is in the group now; None where there is no group to ask."""
        for path in self._made:
            try:
                with open(f"{path}/cgroup.procs", encoding="ascii") as file:
                    return [int(word) for word in file.read().split()]
            except (OSError, ValueError):
                continue
        return None

    def kill(self) -> bool:
        """SIGKILL for everybody in the group at once (v2); False where that cannot be done."""
        return bool(self.kill_dir) and _write(f"{self.kill_dir}/cgroup.kill", "1")

    def freeze(self, *, frozen: bool) -> bool:
        """Freeze or thaw everybody in the group (v2); False where that cannot be done."""
        return bool(self.kill_dir) and _write(f"{self.kill_dir}/cgroup.freeze", "1" if frozen else "0")

    def remove(self) -> str:
        """Take the groups away; what remained in words (a group whose processes live on stays with them)."""
        left = []
        for path in list(self._made):
            for _ in range(20):
                try:
                    os.rmdir(path)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)
            else:
                left.append(path)
        self._made = left
        return ", ".join(left)


def _sweep(parent: str) -> None:
    """Take away empty groups of governors that were killed (`brim-PID-…` whose PID is gone); one that still holds a process cannot be removed, and stays."""
    with contextlib.suppress(OSError):
        for entry in os.listdir(parent):
            words = entry.split("-")
            if len(words) == 3 and words[0] == "brim" and words[1].isdigit() and not os.path.exists(f"/proc/{words[1]}"):
                with contextlib.suppress(OSError):
                    os.rmdir(f"{parent}/{entry}")


def _write(path: str, text: str) -> bool:
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    except OSError:
        return False
    return True
