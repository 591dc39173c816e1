"""Asks /proc and the cgroup file systems about host memory and translates their errors; unsupported, denied and failed are three different answers.

Covered: MemTotal and MemAvailable; cgroup v1 and v2 limits of our own group and all its ancestors, and their working set (usage − inactive file cache).
`root` is the file system root, so that a recorded tree can stand in for the machine.
"""

import os

from brim.facts.device import Host
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# v1 writes "no limit" as LONG_MAX rounded down to a page, older kernels as 2^63−1 or 2^64−1: any limit at or above physical RAM is none.
_NO_LIMIT = 1 << 60


class HostProbe:
    """One look at the host's memory. Missing files become `Missing` values; nothing here raises for them."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")
        self._groups: list[tuple[str, str, str]] | None = None

    def read(self) -> Host:
        """The host now, in bytes."""
        info = self._meminfo()
        total = info.get("MemTotal", Missing(reason="failed", detail="/proc/meminfo has no MemTotal"))
        available = info.get("MemAvailable", Missing(reason="not_supported", detail="/proc/meminfo has no MemAvailable"))
        limit, usage, working, path = self._cgroup(total)
        if isinstance(limit, int) and isinstance(working, int):
            room = max(0, limit - working)
            available = room if isinstance(available, Missing) else min(available, room)
        return Host(
            total_bytes=total,
            available_bytes=available,
            swap_total_bytes=info.get("SwapTotal", Missing(reason="not_supported", detail="/proc/meminfo has no SwapTotal")),
            swap_free_bytes=info.get("SwapFree", Missing(reason="not_supported", detail="/proc/meminfo has no SwapFree")),
            cgroup_limit_bytes=limit,
            cgroup_usage_bytes=usage,
            cgroup_working_set_bytes=working,
            cgroup_path=path,
        )

    def _text(self, path: str) -> "str | Missing":
        try:
            with open(self._root + path, encoding="ascii", errors="replace") as file:
                return file.read(1 << 16)
        except FileNotFoundError:
            return Missing(reason="not_supported", detail=f"{path} does not exist")
        except PermissionError:
            return Missing(reason="denied", detail=f"{path} may not be read")
        except OSError as fault:
            return Missing(reason="failed", detail=f"{path}: {fault.strerror}")

    def _number(self, path: str) -> "int | Missing":
        text = self._text(path)
        if isinstance(text, Missing):
            return text
        word = text.strip()
        if word == "max":
            return 1 << 63
        return int(word) if word.isdigit() else Missing(reason="failed", detail=f"{path} says {word[:40]!r}")

    def _meminfo(self) -> "dict[str, int | Missing]":
        text = self._text("/proc/meminfo")
        if isinstance(text, Missing):
            return dict.fromkeys(("MemTotal", "MemAvailable", "SwapTotal", "SwapFree"), text)
        found: dict[str, int | Missing] = {}
        for line in text.splitlines():
            key, _, rest = line.partition(":")
            words = rest.split()
            if words and words[0].isdigit():
                found[key] = int(words[0]) * 1024
        return found

    def _memory_groups(self) -> "list[tuple[str, str, str]]":
        """(limit file, usage file, stat file) of our own memory cgroup and each ancestor, nearest first."""
        if self._groups is None:
            mine = self._text("/proc/self/cgroup")
            self._groups = [] if isinstance(mine, Missing) else list(self._find_groups(mine))
        return self._groups

    def _find_groups(self, mine: str) -> "Iterator[tuple[str, str, str]]":
        for line in mine.splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if "memory" in controllers.split(","):
                for group in _ancestors(path):
                    base = "/sys/fs/cgroup/memory" + group
                    yield base + "/memory.limit_in_bytes", base + "/memory.usage_in_bytes", base + "/memory.stat"
            elif number == "0" and not controllers:
                for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                    for group in _ancestors(path):
                        base = mount + group
                        yield base + "/memory.max", base + "/memory.current", base + "/memory.stat"

    def _cgroup(self, total: "int | Missing") -> "tuple[int | Missing, int | Missing, int | Missing, str | Missing]":
        """The tightest limit over the own group and its ancestors, with that group's usage and working set."""
        none = Missing(reason="not_supported", detail="no memory cgroup limits this process")
        ceiling = total if isinstance(total, int) else _NO_LIMIT
        best: tuple[int, str, str, str] | None = None
        for limit_file, usage_file, stat_file in self._memory_groups():
            limit = self._number(limit_file)
            if isinstance(limit, int) and limit < ceiling and (best is None or limit < best[0]):
                best = (limit, limit_file, usage_file, stat_file)
        if best is None:
            return none, none, none, none
        usage = self._number(best[2])
        working = usage if isinstance(usage, Missing) else max(0, usage - self._inactive_file(best[3]))
        return best[0], usage, working, best[1]

    def _inactive_file(self, path: str) -> int:
        """File cache that the kernel can drop (v1 `total_inactive_file`, v2 `inactive_file`); 0 where it is not told, which errs to the safe side."""
        text = self._text(path)
        if isinstance(text, Missing):
            return 0
        values = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        word = values.get("total_inactive_file", values.get("inactive_file", "0")).strip()
        return int(word) if word.isdigit() else 0


def _ancestors(path: str) -> "Iterator[str]":
    """`/a/b` → `/a/b`, `/a`, `` (the root of the mount)."""
    path = path.rstrip("/")
    while path:
        yield path
        path = os.path.dirname(path).rstrip("/")
    yield ""
