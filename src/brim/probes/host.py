"""Asks /proc, sysfs and the cgroup file systems about the host and translates their errors; unsupported, denied, failed and gone are four different answers.

Covered: RAM and swap (totals are read again at each look, since swap may be added); cgroup v1 and v2 of our own group and all its ancestors: the lowest limit, the
smallest room, working set = usage − file cache + shared memory; `memory.events`; PSI of the host and of the group; disk and /dev/shm; temperatures of CPU and NVMe.
Files are opened once and read again with pread, which costs a fifth of opening them. `root` is where the file system hangs, so that a recorded tree can stand in for
the machine. Where there is no /proc (macOS, Windows), psutil answers for RAM and swap. Not covered: statvfs on a dead network mount blocks; give a local `disk`.
"""

import os

from brim.facts.device import Host
from brim.probes.hwmon import Heat
from brim.probes.kept import Kept, field
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from brim.probes.kept import File

# v1 writes "no limit" as LONG_MAX rounded down to a page, older kernels 2^63−1 or 2^64−1, v2 `max`: any limit at or above physical RAM is none.
NO_LIMIT = 1 << 60
UNLIMITED = Missing(reason="not_supported", detail="no memory cgroup limits this process")


class _Group:
    """One memory cgroup on our way to the root: its files, kept open."""

    __slots__ = ("ceiling", "events", "limit", "path", "pressure", "stat", "usage", "version")

    def __init__(self, root: str, base: str, path: str, version: int) -> None:
        self.path, self.version = path or "/", version
        self.ceiling: int | Missing | None = None  # the limit as it was read last: limits move seldom
        names = ("memory.max", "memory.current", "memory.events") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control")
        self.limit, self.usage, self.events = (Kept(root, f"{base}{path}/{name}") for name in names)
        self.stat = Kept(root, f"{base}{path}/memory.stat")
        self.pressure = Kept(root, f"{base}{path}/memory.pressure")

    def limit_bytes(self) -> "int | Missing":
        text = self.limit.read()
        if isinstance(text, Missing):
            return text
        word = text.strip()
        if word == b"max":
            return NO_LIMIT
        return int(word) if word.isdigit() else Missing(reason="failed", detail=f"{self.limit.path} says {word[:40]!r}")

    def working_set(self) -> "tuple[int | Missing, int | Missing]":
        """(usage, usage − file cache + shared memory): what reclaim cannot give back. tmpfs pages count as cache and cannot be dropped, so they are put back."""
        text = self.usage.read()
        usage: int | Missing = (
            text
            if isinstance(text, Missing)
            else int(text)
            if text.strip().isdigit()
            else Missing(reason="failed", detail=f"{self.usage.path} says {text[:40]!r}")
        )
        if isinstance(usage, Missing):
            return usage, usage
        stat = self.stat.read()
        if isinstance(stat, Missing):  # nothing may be subtracted that was not told: errs to the safe side
            return usage, usage
        cache, shared = self.names
        return usage, _pinned(usage, field(stat, cache), field(stat, shared))

    @property
    def names(self) -> tuple[bytes, bytes]:
        """What `memory.stat` calls file cache and shared memory."""
        return (b"total_cache", b"total_shmem") if self.version == 1 else (b"file", b"shmem")

    def close(self) -> None:
        for file in (self.limit, self.usage, self.events, self.stat, self.pressure):
            file.close()


class HostProbe:
    """The host, looked at again and again. Missing files become `Missing` values; nothing here raises for them."""

    def __init__(self, root: str = "/", *, disk: str = "") -> None:
        self._root = root.rstrip("/")
        self._disk = disk
        self._meminfo = Kept(self._root, "/proc/meminfo", size=2048)
        self._psi = Kept(self._root, "/proc/pressure/memory")
        self._vmstat = Kept(self._root, "/proc/vmstat", size=1 << 16)
        self._heat = Heat(self._root)
        self._groups: list[_Group] | None = None
        self._slow: dict[str, Any] = {}

    def read(self, *, slow: bool = True, anew: bool = False) -> Host:
        """The host now. `slow=False` gives disk, temperatures, limits and event counters as they were at the last slow look (for polls in between); with `anew` it is also
        looked which group we are in.
        """
        slow = slow or not self._slow
        info = self._memory()
        total, available = info["total_bytes"], info["available_bytes"]
        cells: dict[str, Any] = {**info, **self._cgroup(total, available, slow=slow, anew=anew)}
        cells["psi_some_avg10"], cells["psi_full_avg10"] = pressure(self._psi)
        if slow:
            self._slow = self._seldom()
        return Host(**cells, **self._slow)

    def files(self) -> "list[File]":
        """The files that tell what the host has available; none before the first look. They are the same until the next one."""
        if self._groups is None:
            return []
        found: list[File] = [(self._meminfo, ((b"MemAvailable:", 1024, 8),))]
        for group, _limit in self._limiting():
            cache, shared = group.names
            found += [(group.usage, ((b"", 1, 4),)), (group.stat, ((cache + b" ", 1, 2), (shared + b" ", 1, 2))), (group.limit, ((b"", 1, 0),))]
        return found

    def available(self, numbers: "tuple[int, ...]") -> "int | None":
        """What the host has available (bytes), by the numbers of `files`, as `read` would say it: MemAvailable, and no more than the room under any limit; None where it has none."""
        available, at = numbers[0], 1
        for _group, before in self._limiting():
            usage, cache, shared, limit = numbers[at : at + 4]
            available, at = min(available, max(0, (limit or before) - _pinned(usage, cache, shared))), at + 4
        return available if numbers[0] else None

    def _limiting(self) -> "list[tuple[_Group, int]]":
        return [(group, group.ceiling) for group in self._groups or () if isinstance(group.ceiling, int) and group.ceiling < NO_LIMIT]

    def asides(self) -> "dict[str, tuple[int, str]]":
        """What is asked seldom beside memory, for whoever looks between two looks: by name an open file (PSI), or -1 and the path of a file system."""
        found: dict[str, tuple[int, str]] = {}
        if self._psi.fd >= 0:
            found["psi_full"] = self._psi.fd, ""
        if self._disk or not self._root:
            found["disk"] = -1, self._disk or os.getcwd()
        if os.path.isdir(shm := f"{self._root}/dev/shm"):  # noqa: S108 - asked, not written
            found["shm"] = -1, shm
        for number, fd in enumerate(self._heat.fds()):
            found[f"heat:{number}"] = fd, ""
        return found

    def _seldom(self) -> "dict[str, Any]":
        """What moves slowly, or is asked for by nobody in a hurry."""
        cells: dict[str, Any] = {}
        own = self._groups[0] if self._groups else None
        kills: int | Missing = UNLIMITED
        if own is not None:
            cells["memory_events"] = events = _events(own)
            kills = events if isinstance(events, Missing) else dict(events).get("oom_kill", UNLIMITED)
        if isinstance(kills, Missing):
            text = self._vmstat.read()
            kills = text if isinstance(text, Missing) else field(text, b"oom_kill")
        cells["oom_kills"] = kills
        cells["disk_free_bytes"] = self._free(self._disk or os.getcwd()) if self._disk or not self._root else UNLIMITED.replace(detail="no disk was named")
        cells["shm_free_bytes"] = self._free(f"{self._root}/dev/shm")  # noqa: S108 - the size of the file system is asked, nothing is put there
        cells.update(self._heat.read())
        return cells

    def _memory(self) -> "dict[str, int | Missing]":
        text = self._meminfo.read()
        if isinstance(text, Missing):
            return _psutil() if not self._root and text.reason == "not_supported" else dict.fromkeys(_MEMORY, text)
        found: dict[str, int | Missing] = {}
        for ours, name in _MEMORY.items():
            there = text.startswith(name) or b"\n" + name in text
            value = field(text, name)
            if not there:
                found[ours] = Missing(reason="not_supported", detail=f"/proc/meminfo has no {name.decode()}")
            elif not value and (ours == "total_bytes" or text.partition(name)[2].split()[:1] != [b"0"]):
                found[ours] = Missing(reason="failed", detail=f"{name[:-1].decode()} in /proc/meminfo is no number")
            else:
                found[ours] = value * 1024
        return found

    def _cgroup(self, total: "int | Missing", available: "int | Missing", *, slow: bool, anew: bool) -> "dict[str, Any]":
        """The lowest limit over our group and its ancestors, the smallest room under any of them, and our own group's pressure."""
        if self._groups is None or anew:
            for group in self._groups or ():
                group.close()
            self._groups = list(self._find())
        ceiling = total if isinstance(total, int) else NO_LIMIT
        tight: tuple[int, _Group, int | Missing, int | Missing] | None = None
        for group in self._groups:
            if slow or group.ceiling is None:
                now = group.limit_bytes()
                if group.ceiling is None or not isinstance(now, Missing):  # a limit that was there and cannot be read for once is not lifted
                    group.ceiling = now
            limit = group.ceiling
            if isinstance(limit, Missing) or limit >= ceiling:
                continue
            usage, held = group.working_set()
            if isinstance(held, int):
                room = max(0, limit - held)
                available = room if isinstance(available, Missing) else min(available, room)
            if tight is None or limit < tight[0]:
                tight = (limit, group, usage, held)
        cells: dict[str, Any] = {"available_bytes": available}
        own = self._groups[0] if self._groups else None
        if own is not None:
            cells["cgroup_version"] = own.version
            cells["cgroup_psi_some_avg10"], cells["cgroup_psi_full_avg10"] = pressure(own.pressure)
        if tight is None:
            return {**cells, **dict.fromkeys(("cgroup_limit_bytes", "cgroup_usage_bytes", "cgroup_working_set_bytes", "cgroup_path"), UNLIMITED)}
        limit, group, usage, held = tight
        return {**cells, "cgroup_limit_bytes": limit, "cgroup_usage_bytes": usage, "cgroup_working_set_bytes": held, "cgroup_path": group.limit.path}

    def _find(self) -> "Iterator[_Group]":
        """Our memory cgroup and each ancestor, nearest first. In a container whose /proc shows the host's path, only the root of the mount is there."""
        text = Kept(self._root, "/proc/self/cgroup").once()
        if isinstance(text, Missing):
            return
        lines = [line.split(":", 2) for line in text.decode("utf-8", "replace").splitlines() if line.count(":") >= 2]
        for _number, controllers, path in lines:
            if "memory" in controllers.split(","):
                yield from self._chain("/sys/fs/cgroup/memory", path, 1)
                return
        for number, controllers, path in lines:
            if number == "0" and not controllers:
                for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                    yield from self._chain(mount, path, 2)

    def _chain(self, base: str, path: str, version: int) -> "Iterator[_Group]":
        path = path.rstrip("/")
        name = "memory.current" if version == 2 else "memory.limit_in_bytes"
        while True:
            if os.path.exists(f"{self._root}{base}{path}/{name}"):
                yield _Group(self._root, base, path, version)
            if not path:
                return
            path = os.path.dirname(path).rstrip("/")

    def _free(self, path: str) -> "int | Missing":
        try:
            there = os.statvfs(path)
        except FileNotFoundError:
            return Missing(reason="not_supported", detail=f"{path} is not here")
        except (OSError, AttributeError) as fault:
            return Missing(reason="failed", detail=f"{path}: {fault}")
        return there.f_bavail * there.f_frsize

    def close(self) -> None:
        """Let every file go."""
        for file in (self._meminfo, self._psi, self._vmstat):
            file.close()
        for group in self._groups or ():
            group.close()
        self._groups = None
        self._heat.close()


def _pinned(usage: int, cache: int, shared: int) -> int:
    """A group's use that reclaim cannot give back (bytes)."""
    return max(0, usage - max(0, cache - shared))


_MEMORY = {
    "total_bytes": b"MemTotal:",
    "available_bytes": b"MemAvailable:",
    "shared_bytes": b"Shmem:",
    "swap_total_bytes": b"SwapTotal:",
    "swap_free_bytes": b"SwapFree:",
}


def _events(group: _Group) -> "tuple[tuple[str, int], ...] | Missing":
    """The counters of memory.events (v2) or oom_control (v1), in the kernel's order."""
    text = group.events.read()
    if isinstance(text, Missing):
        return text
    pairs = [line.split() for line in text.decode("ascii", "replace").splitlines()]
    return tuple((pair[0], int(pair[1])) for pair in pairs if len(pair) == 2 and pair[1].isdigit())


def pressure(file: Kept) -> "tuple[float | Missing, float | Missing]":
    """(some, full) avg10 in %, or why there is none; a kernel with psi=0 answers EOPNOTSUPP once and is not asked again."""
    text = file.read()
    if isinstance(text, Missing):
        return text, text
    values: list[float | Missing] = []
    why = Missing(reason="failed", detail=f"{file.path} reads {text[:40]!r}")
    for word in (b"some avg10=", b"full avg10="):
        at = text.find(word)
        try:
            share = float(text[at + len(word) : text.index(b" ", at + len(word))]) if at >= 0 else -1.0
        except ValueError:
            values.append(why)
            continue
        if at < 0:
            values.append(Missing(reason="not_supported", detail=f"{file.path} has no {word[:4].decode()} line"))
        else:
            values.append(share if 0 <= share <= 100 else why)
    return values[0], values[1]


def _psutil() -> "dict[str, int | Missing]":
    """RAM and swap where there is no /proc."""
    try:
        import psutil

        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    except Exception as fault:  # noqa: BLE001 - psutil raises its own family and OSError alike
        return dict.fromkeys(_MEMORY, Missing(reason="failed", detail=f"psutil: {fault}"))
    shared = getattr(memory, "shared", None)
    return {
        "total_bytes": int(memory.total),
        "available_bytes": int(memory.available),
        "shared_bytes": Missing(reason="not_supported", detail="this system does not tell shared memory") if shared is None else int(shared),
        "swap_total_bytes": int(swap.total),
        "swap_free_bytes": int(swap.free),
    }
