"""Asks /proc (and the job's own cgroup, where it has one) who a process is and what its tree holds; gone and unreadable are different answers.

The job is: its leader, the leader's descendants, everybody in the leader's group or session, everybody in the job's own cgroup, and - where we are the subreaper -
our own children that carry the job's mark in their environment (a daemon that left group and session comes back to us as a child).
Not covered: a process that left group, session and cgroup and cleared its environment.
"""

import contextlib
import os
import signal

from brim.facts.process import Identity, Usage
from brim.probes.kept import Kept, field
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from brim.probes.kept import File

MOST_ASKED = 64  # processes of a group whose mapped files are added up at one look
MOST_KEPT = 64  # processes whose stat file stays open
MOST_WATCHED = 16  # processes without a group that are watched one by one between two looks
FEW_FILES = 128  # where we may open no more than these, none is: what a look or a stop opens comes first
FIRST_LOOKS, EVERY = 16, 5  # mapped files of a group are added up at each of the first looks (a load), then at every fifth: they decide nothing


NO_PEAK = Missing(reason="not_supported", detail="this kernel does not tell a group's peak")


class _GroupFiles:
    """The memory files of the job's own cgroup (v1 or v2), kept open."""

    __slots__ = ("by", "mapped", "peak", "prefix", "stat", "used")

    def __init__(self, folder: str) -> None:
        v1 = os.path.exists(f"{folder}/memory.usage_in_bytes")
        self.used = Kept("", f"{folder}/memory.{'usage_in_bytes' if v1 else 'current'}")
        self.stat = Kept("", f"{folder}/memory.stat", size=1 << 14)
        self.peak = Kept("", f"{folder}/memory.{'max_usage_in_bytes' if v1 else 'peak'}")
        self.prefix, self.mapped = (b"total_", b"total_mapped_file") if v1 else (b"", b"file_mapped")
        self.by = f"the working set of the job's own cgroup, mapped files apart ({'v1' if v1 else 'v2'})"

    def sizes(self) -> "tuple[int, int] | None":
        """(held, mapped files) in bytes: usage less the files that reclaim would take first; None where the group does not tell its usage."""
        used = _count(self.used.read())
        if used is None:
            return None
        text = self.stat.read()
        if isinstance(text, Missing):
            return used, 0
        return _split(used, *(field(text, name) for name in self.names))

    @property
    def names(self) -> tuple[bytes, ...]:
        """What `memory.stat` calls the files not used of late, those in use, shared memory, and mapped files."""
        return (*(self.prefix + name for name in (b"inactive_file", b"active_file", b"shmem")), self.mapped)


def _split(used: int, inactive: int, active: int, shared: int, mapped: int) -> tuple[int, int]:
    """(held, mapped files) of a group, from its usage and its files (bytes)."""
    files = max(0, mapped - shared)
    return max(0, used - inactive - min(active, files)), files


def _count(text: "bytes | Missing") -> "int | None":
    try:
        return None if isinstance(text, Missing) else int(text)
    except ValueError:
        return None


def _listed(folder: str) -> list[int]:
    """Who is in one group, without those in the groups below it."""
    with open(f"{folder}/cgroup.procs", "rb") as file:
        return [int(word) for word in file.read().split()]


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
        self._stats: dict[int, int] = {}  # pid → its open stat file: it is bound to that very process, and reading it again costs a tenth of opening it
        self._members: list[int] | None = None  # who was in the group when `tree` looked last
        self._group: _GroupFiles | None = None
        self._looks = self._touched = 0
        self._statuses: dict[int, Kept] = {}  # without a group: of each process that was of the job at the last look
        self._most = 0 if 0 <= os.sysconf("SC_OPEN_MAX") < FEW_FILES else MOST_WATCHED

    def identity(self, pid: int) -> Identity | None:
        """Say who has this pid now; None for nobody, and for a zombie, which holds nothing and cannot be signalled to any effect."""
        fields = self._stat(pid)
        if fields is None or len(fields) < 20 or fields[0] in ("Z", "X"):
            return None
        return Identity(pid=pid, birth=int(fields[19]))

    def _stat(self, pid: int) -> list[str] | None:
        """Give the fields of /proc/PID/stat behind the command's closing parenthesis (it may itself hold any byte); None where the process is gone."""
        text = self._stat_text(pid)
        return None if text is None else text.rpartition(b")")[2].decode("ascii", "replace").split()

    def _stat_text(self, pid: int) -> "bytes | None":
        """The file of the process that had this pid when it was opened; where that one has gone, of whoever has the pid now."""
        kept = self._stats.get(pid)
        if kept is not None:
            try:
                return os.pread(kept, 4096, 0)
            except OSError:  # ESRCH: that process was reaped
                os.close(self._stats.pop(pid))
        try:
            file = os.open(f"{self._root}/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.pread(file, 4096, 0)
        except OSError:
            return None
        finally:
            os.close(file)

    def _keep(self, pids: list[int]) -> None:
        """Hold the stat files of the job's processes open, and let go of those that are no longer of it."""
        for pid in [pid for pid in self._stats if pid not in pids]:
            os.close(self._stats.pop(pid))
        if self._root:
            return  # a recorded tree: its files may be written anew
        for pid in pids[: MOST_KEPT - len(self._stats)]:
            if pid not in self._stats:
                with contextlib.suppress(OSError):
                    self._stats[pid] = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        """Descriptors go with the probe."""
        for file in self._stats.values():
            os.close(file)
        self._stats.clear()
        for kept in self._statuses.values():
            kept.close()

    def tree(self, leader: int) -> list[int]:
        """Give the pids of the job that are alive (no zombies)."""
        own = self._members = self._in_group()
        if own is not None and (leader in own or not self._alive(leader)):  # a leader that was moved out of its group: the whole machine is looked through
            self._keep(own)
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
            mine = pid in own if own else False
            if mine or pid == leader or int(fields[2]) == leader or int(fields[3]) == leader or (int(fields[1]) == me and self._marked(pid)):
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
            own = _listed(folder)
            if (
                os.stat(folder).st_nlink != 2
            ):  # a folder below it (a file system that does not count them says 1): the job may have made groups of its own in its group
                for path, names, _files in os.walk(folder):
                    for name in names:
                        with contextlib.suppress(OSError, ValueError):
                            own += _listed(f"{path}/{name}")
        except (OSError, ValueError):
            return None
        return own

    def _alive(self, pid: int) -> bool:
        text = self._stat_text(pid)
        state = b"" if text is None else text.rpartition(b")")[2].lstrip()[:1]
        return state not in (b"", b"Z", b"X")

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
        if self._group is None:
            self._group = _GroupFiles(self.group_dir)
        group = self._group
        sizes = group.sizes()
        if sizes is None:
            return None
        held, mapped_files = sizes
        peak = _count(group.peak.read())
        pids = (self._in_group() or []) if self._members is None else self._members
        # A file that another group read first is charged to that group, so the group's own figure can miss all of the weights: what the processes have mapped counts.
        self._looks += 1
        if self._looks <= FIRST_LOOKS or self._looks % EVERY == 0:
            self._touched = sum((self._status(pid) or {}).get("RssFile", 0) for pid in pids[:MOST_ASKED])
        return Usage(
            held_bytes=held,
            mapped_file_bytes=max(mapped_files, self._touched),
            peak_bytes=NO_PEAK if peak is None else peak,
            processes=len(pids),
            by=group.by,
        )

    def files(self) -> "list[File]":
        """The files that tell what the job holds: two of its own cgroup, else one of each process that was of it at the last look; none before that, or where they are many."""
        if self._group is None:
            return (
                [(file, ((b"RssAnon:\t", 1024, 1), (b"RssShmem:\t", 1024, 1))) for file in self._statuses.values()] if len(self._statuses) <= self._most else []
            )
        return [(self._group.used, ((b"", 1, 4),)), (self._group.stat, tuple((name + b" ", 1, 1) for name in self._group.names))]

    @property
    def lists(self) -> bool:
        """Whether what the job holds is a sum over its processes, so that one that is new is not counted before the next look."""
        return self._group is None

    def held(self, numbers: "tuple[int, ...]") -> int:
        """What the job holds (bytes), by the numbers of `files`, as `usage` would say it."""
        return sum(numbers) if self._group is None else _split(*numbers)[0]

    def oom_kills(self) -> "int | None":
        """Give how often the kernel killed in the job's own group; None where that is not told."""
        for name in ("memory.oom_control", "memory.events"):
            if self.group_dir:
                fields = self._fields(f"{self.group_dir}/{name}")
                if "oom_kill" in fields:
                    return fields["oom_kill"]
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
        pids = self.tree(leader.pid)
        for pid in [pid for pid in self._statuses if pid not in pids]:
            self._statuses.pop(pid).close()
        for pid in pids:
            sizes = self._status(pid)
            if sizes is None:
                continue
            count += 1
            if pid not in self._statuses:
                self._statuses[pid] = Kept(self._root, f"/proc/{pid}/status", size=4096)
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
