"""Asks /proc who a process is and what its tree holds; a process that is gone and one that cannot be read are different answers."""

import os

from brim.facts.process import Identity, Usage
from brim.values import Missing


def _stat_fields(pid: int, root: str) -> list[str] | None:
    """The fields of /proc/PID/stat behind the command's closing parenthesis (which may itself hold any byte); None where the process is gone."""
    try:
        with open(f"{root}/proc/{pid}/stat", "rb") as file:
            return file.read(4096).rpartition(b")")[2].decode("ascii", "replace").split()
    except OSError:
        return None


class ProcessProbe:
    """Looks at processes through /proc. `root` lets a recorded tree stand in."""

    def __init__(self, root: str = "") -> None:
        self._root = root.rstrip("/")

    def identity(self, pid: int) -> Identity | None:
        """Who has this pid now; None for nobody, and for a zombie, which holds nothing and cannot be signalled to any effect."""
        fields = _stat_fields(pid, self._root)
        if fields is None or len(fields) < 20 or fields[0] in ("Z", "X"):
            return None
        return Identity(pid=pid, birth=int(fields[19]))

    def tree(self, leader: int) -> list[int]:
        """The pids of the leader and all its descendants, and of every process in the leader's group or session (they survive its death)."""
        parents: dict[int, list[int]] = {}
        members: list[int] = []
        for name in os.listdir(f"{self._root}/proc"):
            if not name.isdigit():
                continue
            fields = _stat_fields(int(name), self._root)
            if fields is None or len(fields) < 4 or fields[0] in ("Z", "X"):
                continue
            pid = int(name)
            parents.setdefault(int(fields[1]), []).append(pid)
            if pid == leader or int(fields[2]) == leader or int(fields[3]) == leader:
                members.append(pid)
        found: dict[int, None] = {}
        queue = members or [leader]
        while queue:
            pid = queue.pop()
            if pid not in found:
                found[pid] = None
                queue.extend(parents.get(pid, ()))
        return sorted(found)

    def usage(self, leader: Identity) -> Usage:
        """Anonymous and shared memory summed over the tree, mapped files apart. Bytes."""
        held = mapped = peak = count = 0
        for pid in self.tree(leader.pid):
            sizes = self._status(pid)
            if sizes is None:
                continue
            count += 1
            held += sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0)
            mapped += sizes.get("RssFile", 0)
            peak += sizes.get("VmHWM", 0)
        if not count:
            gone = Missing(reason="gone", detail=f"process {leader.pid} has ended")
            return Usage(held_bytes=gone, mapped_file_bytes=gone, peak_bytes=gone, processes=0, by="/proc/PID/status over the process tree")
        return Usage(held_bytes=held, mapped_file_bytes=mapped, peak_bytes=peak, processes=count, by="/proc/PID/status over the process tree")

    def _status(self, pid: int) -> dict[str, int] | None:
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
