"""The host probe on recorded trees: cgroup v1 and v2, ancestors, every spelling of "no limit", and files that are missing or denied."""

import pytest

from brim.probes.host import HostProbe
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
        base + "memory.stat": f"cache 5\ntotal_inactive_file {cache}\n",
    }


def v2(group: str, limit: str, usage: int = 0, cache: int = 0) -> dict[str, str]:
    base = f"/sys/fs/cgroup{group}/"
    return {base + "memory.max": f"{limit}\n", base + "memory.current": f"{usage}\n", base + "memory.stat": f"anon 5\ninactive_file {cache}\n"}


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
    """The tightest limit over the own group and all its ancestors counts; any limit at or above physical RAM is none."""
    host = tree(tmp_path, {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": own, **groups}).read()
    assert host.total_bytes == RAM
    assert host.cgroup_limit_bytes == limit if limit else isinstance(host.cgroup_limit_bytes, Missing)


def test_available_is_the_lower_of_host_and_cgroup(tmp_path) -> None:
    """What is left under the limit counts the working set: usage less the file cache that the kernel can drop."""
    host = tree(tmp_path, {"/proc/meminfo": MEMINFO, "/proc/self/cgroup": V1, **v1("/a/b", 1000, usage=700, cache=300)}).read()
    assert (host.cgroup_working_set_bytes, host.available_bytes) == (400, 600)


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
