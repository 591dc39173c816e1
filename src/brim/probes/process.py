"""Asks /proc (and the job's own cgroup, where it has one) who a process is and what its tree holds; gone and unreadable are different answers.

The job is: its leader, the leader's descendants, everybody in the leader's group or session, everybody in the job's own cgroup, and - where we are the subreaper -
our own children that carry the job's mark in their environment (a daemon that left group and session comes back to us as a child).
Not covered: a process that left group, session and cgroup and cleared its environment.
"""

import os
import signal

from brim.facts.process import Identity, Usage
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ASKED = 64  # processes of a group whose mapped files are added up at one look


SHELLS = ("sh", "dash", "bash", "ash", "zsh", "ksh", "fish", "busybox")


def first_is_shell(root: str = "") -> str:
    """The name of the first process (PID 1) where that is a shell, else nothing: a shell that waits for a command hands no signal on to it."""
    try:
        with open(f"{root}/proc/1/comm", "rb") as file:
            name = file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return name if name in SHELLS else ""


class ProcessProbe:
    """Looks at processes through /proc. `root` lets a recorded tree stand in; `group_dir` and `kill_dir` are the job's own cgroup folders, `mark` the job's mark."""

    def __init__(self, root: str = "", *, group_dir: str = "", procs_dir: str = "", mark: str = "") -> None:
        self._root, self.group_dir, self.procs_dir = root.rstrip("/"), group_dir, procs_dir
        self._mark = os.fsencode(mark)
        self._strangers: set[int] = set()

    def identity(self, pid: int) -> Identity | None:
        """Say who has this pid now; None for nobody, and for a zombie, which holds nothing and cannot be signalled to any effect."""
        fields = self._stat(pid)
        if fields is None or len(fields) < 20 or fields[0] in ("Z", "X"):
            return None
        return Identity(pid=pid, birth=int(fields[19]))

    def _stat(self, pid: int) -> list[str] | None:
        """Give the fields of /proc/PID/stat behind the command's closing parenthesis (it may itself hold any byte); None where the process is gone."""
        try:
            with open(f"{self._root}/proc/{pid}/stat", "rb") as file:
                return file.read(4096).rpartition(b")")[2].decode("ascii", "replace").split()
        except OSError:
            return None

    def tree(self, leader: int) -> list[int]:
        """Give the pids of the job that are alive (no zombies)."""
        own = self._in_group()
        if own is not None:
            return sorted(pid for pid in own if self._alive(pid))
        parents: dict[int, list[int]] = {}
        members: list[int] = []
        me = os.getpid()
        for name in os.listdir(f"{self._root}/proc"):
            if not name.isdigit():
                continue
            pid, fields = int(name), self._stat(int(name))
            if fields is None or len(fields) < 4 or fields[0] in ("Z", "X"):
                continue
            parents.setdefault(int(fields[1]), []).append(pid)
            if pid == leader or int(fields[2]) == leader or int(fields[3]) == leader or (int(fields[1]) == me and self._marked(pid)):
                members.append(pid)
        found: dict[int, None] = {}
        queue = members or ([leader] if self._alive(leader) else [])
        while queue:
            pid = queue.pop()
            if pid not in found:
                found[pid] = None
                queue.extend(parents.get(pid, ()))
        return sorted(found)

    def _in_group(self) -> "list[int] | None":
        """Who is in the job's own cgroup; None where it has none."""
        folder = self.procs_dir or self.group_dir
        if not folder:
            return None
        try:
            with open(f"{folder}/cgroup.procs", "rb") as file:
                return [int(word) for word in file.read().split()]
        except (OSError, ValueError):
            return None

    def _alive(self, pid: int) -> bool:
        fields = self._stat(pid)
        return fields is not None and bool(fields) and fields[0] not in ("Z", "X")

    def _marked(self, pid: int) -> bool:
        """Does this child of ours carry the job's mark? What does not is asked once only (its environment does not change by itself)."""
        if not self._mark or pid in self._strangers:
            return False
        try:
            with open(f"{self._root}/proc/{pid}/environ", "rb") as file:
                if self._mark in file.read(1 << 18).split(b"\0"):
                    return True
        except OSError:
            return False
        self._strangers.add(pid)
        return False

    def on_signal(self, pid: int, number: int) -> str:
        """Say what a signal does to a process: `caught`, `ignored`, `default`; `unknown` where that cannot be read."""
        try:
            with open(f"{self._root}/proc/{pid}/status", "rb") as file:
                text = file.read(8192)
        except OSError:
            return "unknown"
        masks = {}
        for line in text.split(b"\n"):
            key, _, value = line.partition(b":")
            if key in (b"SigIgn", b"SigCgt"):
                masks[key] = int(value, 16) >> (signal.Signals(number).value - 1) & 1
        if len(masks) < 2:
            return "unknown"
        return "caught" if masks[b"SigCgt"] else "ignored" if masks[b"SigIgn"] else "default"

    def usage(self, leader: Identity) -> Usage:
        """Say what the job holds: the working set of its own cgroup less the files it has mapped, else anonymous and shared memory over its tree. Bytes."""
        return self._of_group() or self._of_tree(leader)

    def _of_group(self) -> "Usage | None":
        """Ask the job's own memory cgroup (v1 or v2); None where it has none or it does not answer."""
        if not self.group_dir:
            return None
        v1 = os.path.exists(f"{self.group_dir}/memory.usage_in_bytes")
        used = self._number(f"{self.group_dir}/memory.usage_in_bytes" if v1 else f"{self.group_dir}/memory.current")
        if used is None:
            return None
        stat = self._fields(f"{self.group_dir}/memory.stat")
        dropped = stat.get("total_inactive_file", stat.get("inactive_file", 0))
        mapped = stat.get("total_mapped_file", stat.get("file_mapped", 0))
        shared = stat.get("total_shmem", stat.get("shmem", 0))
        active = stat.get("total_active_file", stat.get("active_file", 0))
        mapped_files = max(0, mapped - shared)
        peak = self._number(f"{self.group_dir}/memory.max_usage_in_bytes" if v1 else f"{self.group_dir}/memory.peak")
        pids = self._in_group() or []
        # A file that another group read first is charged to that group, so the group's own figure can miss all of the weights: what the processes have mapped counts.
        touched = sum((self._status(pid) or {}).get("RssFile", 0) for pid in pids[:MOST_ASKED])
        return Usage(
            held_bytes=max(0, used - dropped - min(active, mapped_files)),
            mapped_file_bytes=max(mapped_files, touched),
            peak_bytes=Missing(reason="not_supported", detail="this kernel does not tell a group's peak") if peak is None else peak,
            processes=len(pids),
            by=f"the working set of the job's own cgroup, mapped files apart ({'v1' if v1 else 'v2'})",
        )

    def oom_kills(self) -> "int | None":
        """Give how often the kernel killed in the job's own group; None where that is not told."""
        for name in ("memory.oom_control", "memory.events"):
            if self.group_dir:
                fields = self._fields(f"{self.group_dir}/{name}")
                if "oom_kill" in fields:
                    return fields["oom_kill"]
        return None

    def _number(self, path: str) -> "int | None":
        try:
            with open(path, "rb") as file:
                return int(file.read(64))
        except (OSError, ValueError):
            return None

    @staticmethod
    def _fields(path: str) -> dict[str, int]:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                rows = [line.split() for line in file.read(1 << 16).splitlines()]
        except OSError:
            return {}
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}

    def _of_tree(self, leader: Identity) -> Usage:
        """Sum over the tree. Shared pages are counted once for each process that maps them, which errs to the safe side."""
        held = mapped = peak = count = 0
        for pid in self.tree(leader.pid):
            sizes = self._status(pid)
            if sizes is None:
                continue
            count += 1
            held += sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0)
            mapped += sizes.get("RssFile", 0)
            peak += sizes.get("VmHWM", 0)
        by = "/proc/PID/status over the process tree"
        if not count:
            gone = Missing(reason="gone", detail=f"process {leader.pid} has ended")
            return Usage(held_bytes=gone, mapped_file_bytes=gone, peak_bytes=gone, processes=0, by=by)
        return Usage(held_bytes=held, mapped_file_bytes=mapped, peak_bytes=peak, processes=count, by=by)

    def _status(self, pid: int) -> "Mapping[str, int] | None":
        try:
            with open(f"{self._root}/proc/{pid}/status", "rb") as file:
                text = file.read(8192)
        except OSError:
            return None
        sizes = {}
        for line in text.split(b"\n"):
            if line.endswith(b" kB"):
                key, _, rest = line.partition(b":")
                sizes[key.decode("ascii", "replace")] = int(rest[:-3]) * 1024
        return sizes
