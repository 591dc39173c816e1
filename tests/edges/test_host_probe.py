"""The host probe on recorded trees: cgroup v1 and v2, ancestors, every spelling of "no limit", and files that are missing or denied."""

import os

import pytest

from brim.probes.host import HostProbe
from brim.probes.kept import numbers
from brim.values import Missing

MEMINFO = "MemTotal:       24684000 kB\nMemFree:        1000 kB\nMemAvailable:   23684000 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n"
RAM = 24684000 * 1024
V1 = "9:name=systemd:/\n4:memory:/a/b\n3:cpuset:/\n0::/\n"
V2 = "0::/a/b\n"


def tree(root, files: dict[str, str]) -> HostProbe:
    for name, content in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return HostProbe(str(root))


def v1(group: str, limit: int, usage: int = 0, cache: int = 0) -> dict[str, str]:
    base = f"/sys/fs/cgroup/memory{group}/"
    return {
        base + "memory.limit_in_bytes": f"{limit}\n",
        base + "memory.usage_in_bytes": f"{usage}\n",
        base + "memory.stat": f"cache 5\ntotal_cache {cache}\ntotal_shmem 0\n",
    }


def v2(group: str, limit: str, usage: int = 0, cache: int = 0) -> dict[str, str]:
    base = f"/sys/fs/cgroup{group}/"
    return {base + "memory.max": f"{limit}\n", base + "memory.current": f"{usage}\n", base + "memory.stat": f"anon 5\nfile {cache}\nshmem 0\n"}


@pytest.mark.parametrize(
    ("own", "groups", "limit"),
    [
        (V1, v1("/a/b", 1 << 30), 1 << 30),
        (V1, {**v1("/a/b", 9223372036854771712), **v1("/a", 2 << 30)}, 2 << 30),
        (V1, {**v1("/a/b", 3 << 30), **v1("/a", 2 << 30), **v1("", 9223372036854771712)}, 2 << 30),
        (V1, v1("/a/b", 9223372036854771712), None),
        (V1, v1("/a/b", 18446744073709551615), None),
        (V1, v1("/a/b", 9223372036854775807), None),
        (V1, v1("/a/b", RAM), None),
        (V2, v2("/a/b", str(1 << 30)), 1 << 30),
        (V2, {**v2("/a/b", "max"), **v2("/a", str(2 << 30))}, 2 << 30),
        (V2, v2("/a/b", "max"), None),
        (V2, {}, None),
        ("garbage", {}, None),
    ],
)
def test_cgroup_limits(tmp_path, own, groups, limit) -> None:
    """Case 45: The tightest limit over the own group and all its ancestors counts; any limit at or above physical RAM is none."""
    host = tree(tmp_path, {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": own, **groups}).read()
    assert host.total_bytes == RAM
    assert host.cgroup_limit_bytes == limit if limit else isinstance(host.cgroup_limit_bytes, Missing)


def test_a_limit_that_moves_while_we_look(tmp_path) -> None:
    """A limit that is set or raised later counts from the next slow look; one that cannot be read for once stays what it was: room must not open by a failure."""
    base = {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": V2}
    host = tree(tmp_path, {**base, **v2("/a/b", "max", 1 << 20)})
    assert isinstance(host.read().cgroup_limit_bytes, Missing)
    file = tmp_path / "sys/fs/cgroup/a/b/memory.max"
    for text, limit in ((f"{2 << 30}\n", 2 << 30), ("garbage", 2 << 30), ("", 2 << 30), (f"{1 << 30}\n", 1 << 30)):
        file.write_text(text)
        found = host.read()
        assert found.cgroup_limit_bytes == limit
        assert found.available_bytes == limit - (1 << 20)
    file.write_text("max\n")
    assert host.read(slow=False).cgroup_limit_bytes == 1 << 30
    assert isinstance(host.read().cgroup_limit_bytes, Missing)


def test_available_is_the_lower_of_host_and_cgroup(tmp_path) -> None:
    """What is left under the limit counts the working set: usage less the file cache that the kernel can drop (shared memory counts as cache there, and cannot be dropped)."""
    host = tree(tmp_path, {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": V1, **v1("/a/b", 1000, usage=700, cache=300)}).read()
    assert (host.cgroup_working_set_bytes, host.available_bytes) == (400, 600)


WORKING = [(700, 300, 0, 400), (700, 300, 100, 500), (700, 300, 300, 700), (100, 300, 0, 0)]


@pytest.mark.parametrize(("usage", "cache", "shared", "held"), WORKING)
@pytest.mark.parametrize("version", [1, 2])
def test_the_working_set(tmp_path, version, usage, cache, shared, held) -> None:
    """Case 49: usage − file cache + shared memory, in both versions: a data loader that fills /dev/shm counts, a page cache does not (FIELD_CASES 49)."""
    groups = v1("/a/b", 2000, usage, cache) if version == 1 else v2("/a/b", "2000", usage, cache)
    stat = next(name for name in groups if name.endswith("memory.stat"))
    groups[stat] = groups[stat].replace("shmem 0", f"shmem {shared}")
    host = tree(tmp_path, {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": V1 if version == 1 else V2, **groups}).read()
    assert (host.cgroup_usage_bytes, host.cgroup_working_set_bytes, host.available_bytes) == (usage, held, 2000 - held)


def test_the_smallest_room_counts(tmp_path) -> None:
    """The lowest limit names the budget; what is available is the smallest room under any ancestor, which may be another one (FIELD_CASES 47)."""
    groups = {**v2("/a/b", "1000000", usage=100), **v2("/a", "2000000", usage=1900000)}
    host = tree(tmp_path, {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": V2, **groups}).read()
    assert (host.cgroup_limit_bytes, host.cgroup_path, host.available_bytes) == (1000000, "/sys/fs/cgroup/a/b/memory.max", 100000)


@pytest.mark.parametrize(
    ("own", "groups"),
    [
        (V1, v1("/a/b", 1000, usage=700, cache=300)),
        (V1, v1("/a/b", 9223372036854771712)),
        (V2, v2("/a/b", "2000", 900, 100)),
        (V2, v2("/a/b", "max")),
        ("", {}),
    ],
)
def test_a_glance_says_what_a_look_says(tmp_path, own, groups) -> None:
    """What the host has available is the same at a glance: under a limit of either version, and without one; nothing before the first look."""
    probe = tree(tmp_path, {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": own, **groups})
    assert probe.files() == []
    assert probe.read().available_bytes == probe.available(numbers(probe.files()))


def test_events_pressure_and_sensors(tmp_path) -> None:
    """memory.events, PSI of host and group, the hottest CPU and NVMe sensor with its limit; what is absent says so."""
    base = "/sys/fs/cgroup/a/b/"
    psi = "some avg10=1.25 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=1\n"
    files = {
        "/proc/meminfo": MEMINFO, "/proc/self/cgroup": V2, **v2("/a/b", "max"), "/proc/pressure/memory": psi, base + "memory.pressure": psi.replace("1.25", "9.75"),
        base + "memory.events": "low 0\nhigh 3\nmax 4\noom 1\noom_kill 2\n", "/sys/class/hwmon/hwmon0/name": "coretemp\n", "/sys/class/hwmon/hwmon0/temp1_input": "55000\n",
        "/sys/class/hwmon/hwmon0/temp2_input": "61000\n", "/sys/class/hwmon/hwmon0/temp1_crit": "100000\n", "/sys/class/hwmon/hwmon1/name": "nvme\n",
        "/sys/class/hwmon/hwmon1/temp1_input": "41850\n", "/sys/class/hwmon/hwmon1/temp2_input": "0\n",
    }  # fmt: skip
    probe = tree(tmp_path, files)
    host = probe.read()
    aside = probe.asides()  # the same, for whoever looks between two looks
    assert {name: os.pread(fd, 99, 0) for name, (fd, path) in aside.items() if not path} == {
        "psi_full": psi.encode(),
        "heat:0": b"55000\n",
        "heat:1": b"61000\n",
    }
    assert (host.psi_some_avg10, host.psi_full_avg10, host.cgroup_psi_some_avg10) == (1.25, 0.5, 9.75)
    assert dict(host.memory_events) == {"low": 0, "high": 3, "max": 4, "oom": 1, "oom_kill": 2}
    assert (host.oom_kills, host.cgroup_version) == (2, 2)
    assert (host.cpu_temperature_c, host.cpu_critical_temperature_c, host.nvme_temperature_c) == (61.0, 100.0, 41.85)


def test_a_thermal_zone_stands_in(tmp_path) -> None:
    """Without a CPU chip in hwmon the package's thermal zone answers."""
    files = {"/proc/meminfo": MEMINFO, "/sys/class/thermal/thermal_zone3/type": "x86_pkg_temp\n", "/sys/class/thermal/thermal_zone3/temp": "47000\n"}
    assert tree(tmp_path, files).read().cpu_temperature_c == 47.0


def test_a_file_that_is_refused_for_good_is_not_asked_again(tmp_path, monkeypatch) -> None:
    """Case 57: PSI that is there and answers EOPNOTSUPP is asked once (FIELD_CASES 57); a file that is gone for the moment is looked for again."""
    import errno

    from brim.probes.kept import Kept

    (tmp_path / "memory").write_text("some avg10=0.00 ")
    file, calls = Kept(str(tmp_path), "/memory"), []

    def refuse(*_args):
        calls.append(1)
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "pread", refuse)
    for _ in range(100):
        assert file.read().reason == "not_supported"
    assert len(calls) == 1
    monkeypatch.undo()
    later = Kept(str(tmp_path), "/later")
    assert later.read().reason == "not_supported"
    (tmp_path / "later").write_text("5\n")
    assert [later.read() for _ in range(Kept.AGAIN + 1)][-1] == b"5\n"


def test_totals_are_read_again(tmp_path) -> None:
    """Case 55: Swap that is added after the start is seen (FIELD_CASES 55), through the file that was opened first."""
    probe = tree(tmp_path, {"/proc/meminfo": MEMINFO})
    assert probe.read().swap_total_bytes == 0
    (tmp_path / "proc/meminfo").write_text(MEMINFO.replace("SwapTotal:             0 kB", "SwapTotal:       8388608 kB"))
    assert probe.read().swap_total_bytes == 8 << 30


def test_no_descriptor_is_lost() -> None:
    """Five hundred looks and a close leave as many open files as before."""
    import os

    before = len(os.listdir("/proc/self/fd"))
    probe = HostProbe()
    for _ in range(500):
        probe.read()
    assert len(os.listdir("/proc/self/fd")) < before + 40
    probe.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_nothing_readable_is_missing_and_never_zero(tmp_path) -> None:
    """An empty tree answers with reasons; broken lines count as absent."""
    host = tree(tmp_path, {}).read()
    assert isinstance(host.total_bytes, Missing)
    assert host.total_bytes.reason == "not_supported"
    odd = tree(tmp_path, {"/proc/meminfo": "MemTotal: many kB\n"}).read()
    assert isinstance(odd.total_bytes, Missing)
    assert odd.total_bytes.reason == "failed"


def test_this_machine_answers() -> None:
    """On the machine that runs the tests, the real files give a real total."""
    host = HostProbe().read()
    assert isinstance(host.total_bytes, int)
    assert isinstance(host.available_bytes, int)
    assert 0 < host.available_bytes <= host.total_bytes


def test_a_thousand_looks_keep_no_files() -> None:
    """The library may be asked again and again in one process: what a look opened goes with it."""
    import gc
    import os

    import brim

    brim.probe()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        brim.probe()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(
    ("line", "available"),
    [("MemAvailable: x kB", "failed"), ("MemAvailable: -5 kB", "failed"), ("MemAvailable:", "failed"), ("MemAvailable: 0 kB", 0), ("", "not_supported")],
)
def test_what_is_no_number_is_missing_and_never_zero(tmp_path, line, available) -> None:
    """A word where MemAvailable should be is no zero, which would stop every job; a real zero is one."""
    seen = tree(tmp_path, {"/proc/meminfo": f"MemTotal: 1000 kB\n{line}\nShmem: 1 kB\n"}).read()
    assert (seen.available_bytes if isinstance(seen.available_bytes, int) else seen.available_bytes.reason) == available


@pytest.mark.parametrize("word", ["nan", "-1", "1e9", "x", ""])
def test_pressure_that_cannot_be_is_missing(tmp_path, word) -> None:
    """Case 57: a share of time is between 0 and 100; anything else is a reading that failed."""
    lines = f"some avg10={word} avg60=0.00 avg300=0.00 total=0\nfull avg10=1.50 avg60=0.00 avg300=0.00 total=0\n"
    seen = tree(tmp_path, {"/proc/meminfo": "MemTotal: 1000 kB\n", "/proc/pressure/memory": lines}).read()
    assert (seen.psi_some_avg10.reason, seen.psi_full_avg10) == ("failed", 1.5)


def test_a_limit_that_is_lowered_is_seen_at_a_glance(tmp_path) -> None:
    """Between two looks the limits are among the numbers, and may not move at all; lifted, or unreadable as a number, the one of the last look holds until the next."""
    probe = tree(tmp_path, {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": V2, **v2("/a/b", "2000", 900, 100)})
    assert probe.read().available_bytes == probe.available(numbers(probe.files())) == 1200
    assert [widths for _, widths in probe.files()][-1] == ((b"", 1, 0),)
    (tmp_path / "sys/fs/cgroup/a/b/memory.max").write_text("1500\n")
    assert probe.available(numbers(probe.files())) == 700
    (tmp_path / "sys/fs/cgroup/a/b/memory.max").write_text("max\n")
    assert probe.available(numbers(probe.files())) == 1200


def test_the_group_is_looked_for_when_it_is_asked_for(tmp_path) -> None:
    """A process that was moved to another group meanwhile: seen at a look that asks anew, not before."""
    probe = tree(tmp_path, {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": V2, **v2("/a/b", "2000", 900, 100), **v2("/c", "700", 100, 0)})
    assert probe.read().cgroup_limit_bytes == 2000
    (tmp_path / "proc/self/cgroup").write_text("0::/c\n")
    assert probe.read().cgroup_limit_bytes == 2000
    assert probe.read(anew=True).cgroup_limit_bytes == 700
