"""What the job holds, from recorded /proc and cgroup files: v1 and v2, trees, signals' dispositions, births."""

import os
import subprocess
import sys

import pytest

from brim.facts.process import Identity
from brim.probes.kept import numbers
from brim.probes.process import ProcessProbe
from brim.values import Missing

MIB = 1 << 20
V1_STAT = f"cache {300 * MIB}\nrss {500 * MIB}\nmapped_file {100 * MIB}\ntotal_cache {300 * MIB}\ntotal_rss {500 * MIB}\ntotal_shmem {20 * MIB}\ntotal_mapped_file {120 * MIB}\ntotal_inactive_file {150 * MIB}\ntotal_active_file {130 * MIB}\n"
V2_STAT = f"anon {500 * MIB}\nfile {300 * MIB}\nshmem {20 * MIB}\nfile_mapped {120 * MIB}\ninactive_file {150 * MIB}\nactive_file {130 * MIB}\n"


@pytest.mark.parametrize(
    ("files", "by", "peak"),
    [
        ({"memory.usage_in_bytes": 800 * MIB, "memory.max_usage_in_bytes": 900 * MIB, "memory.stat": V1_STAT, "cgroup.procs": "7\n8\n"}, "v1", 900 * MIB),
        ({"memory.current": 800 * MIB, "memory.peak": 900 * MIB, "memory.stat": V2_STAT, "cgroup.procs": "7\n8\n"}, "v2", 900 * MIB),
        ({"memory.current": 800 * MIB, "memory.stat": V2_STAT, "cgroup.procs": "7\n8\n"}, "v2", None),
    ],
)
def test_the_working_set_of_the_jobs_own_group(tmp_path, files, by, peak) -> None:
    """Usage less the file cache that can be dropped, less mapped files, which are told apart; v1 and v2 alike; a peak that is not told is missing."""
    for name, content in files.items():
        (tmp_path / name).write_text(f"{content}")
    probe = ProcessProbe(group_dir=str(tmp_path))
    assert probe.files() == []
    found = probe.usage(Identity(pid=7, birth=1))
    assert probe.held(numbers(probe.files())) == found.held_bytes
    assert found.held_bytes == (800 - 150 - 100) * MIB
    assert found.mapped_file_bytes == 100 * MIB
    assert found.processes == 2
    assert by in found.by
    assert found.peak_bytes == peak or (peak is None and isinstance(found.peak_bytes, Missing))


@pytest.mark.parametrize(
    ("name", "text", "kills"),
    [
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", 3),
        ("memory.events", "low 0\nhigh 0\nmax 5\noom 2\noom_kill 2\n", 2),
        ("x", "", None),
    ],
)
def test_the_kernels_own_count_of_kills(tmp_path, name, text, kills) -> None:
    """Case 59: The proof of an OOM kill is the group's own counter, v1 or v2; where there is none nothing is claimed."""
    (tmp_path / name).write_text(text)
    assert ProcessProbe(group_dir=str(tmp_path)).oom_kills() == kills


def process(root, pid, ppid, group=None, session=None, name="x", state="S", birth=100, status=""):
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    fields = [state, ppid, group or pid, session or pid, *[0] * 15, birth, 0, 0]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}\n")
    (folder / "status").write_text(status)


def test_the_tree_is_leader_descendants_group_and_session(tmp_path) -> None:
    """Children of children, a member of the group whose parent is gone, one of the session; no zombies, no strangers, whatever a command is called."""
    process(tmp_path, 10, 1, name="a ) S 1 (")
    process(tmp_path, 11, 10, group=10, session=10)
    process(tmp_path, 12, 11, group=12, session=12)
    process(tmp_path, 13, 1, group=10, session=10)
    process(tmp_path, 14, 1, group=14, session=10)
    process(tmp_path, 15, 10, state="Z")
    process(tmp_path, 99, 1)
    probe = ProcessProbe(str(tmp_path))
    assert probe.tree(10) == [10, 11, 12, 13, 14]
    assert probe.identity(10) == Identity(pid=10, birth=100)
    assert probe.identity(15) is None
    assert probe.identity(1234) is None


def test_groups_that_the_job_made_in_its_group_are_the_job(tmp_path) -> None:
    """A group's list does not hold who is in the groups below it (a container tool, a service manager in the job): they are looked through, also where one vanishes meanwhile."""
    for pid in (10, 11, 12, 13):
        process(tmp_path, pid, 1)
    group = tmp_path / "group"
    for name, members in (("", "10\n"), ("a", "11\n"), ("a/b", "12\n"), ("c", None)):
        (group / name).mkdir(parents=True, exist_ok=True)
        if members:
            (group / name / "cgroup.procs").write_text(members)
    assert ProcessProbe(str(tmp_path), group_dir=str(group)).tree(10) == [10, 11, 12]


def test_a_leader_that_was_moved_out_of_its_group_is_still_the_job(tmp_path) -> None:
    """A group that no longer holds a leader that lives is not the whole of the job: the tree is looked through as well. When the leader has ended the group's word stands."""
    process(tmp_path, 10, 1)
    process(tmp_path, 11, 10)
    process(tmp_path, 12, 1)
    process(tmp_path, 99, 1)
    (tmp_path / "cgroup.procs").write_text("12\n")
    probe = ProcessProbe(str(tmp_path), group_dir=str(tmp_path))
    assert probe.tree(10) == [10, 11, 12]
    (tmp_path / "proc" / "10" / "stat").unlink()
    assert probe.tree(10) == [12]


@pytest.mark.parametrize(("ignored", "caught", "answer"), [("0", "4000", "caught"), ("4000", "0", "ignored"), ("0", "0", "default"), (None, None, "unknown")])
def test_what_a_signal_does(tmp_path, ignored, caught, answer) -> None:
    """SIGTERM is bit 14 of the masks in /proc/PID/status."""
    status = "" if ignored is None else f"Name:\tx\nSigIgn:\t{ignored:0>16}\nSigCgt:\t{caught:0>16}\n"
    process(tmp_path, 10, 1, status=status)
    assert ProcessProbe(str(tmp_path)).on_signal(10, 15) == answer


def test_the_sum_over_a_tree(tmp_path) -> None:
    """Without a group of its own: anonymous and shared memory of every process, mapped files apart; nobody left is `gone`."""
    process(tmp_path, 10, 1, status="RssAnon:\t1000 kB\nRssFile:\t50 kB\nRssShmem:\t24 kB\nVmHWM:\t2000 kB\n")
    process(tmp_path, 11, 10, status="RssAnon:\t1000 kB\nRssFile:\t50 kB\nRssShmem:\t0 kB\nVmHWM:\t1500 kB\n")
    found = ProcessProbe(str(tmp_path)).usage(Identity(pid=10, birth=100))
    assert (found.held_bytes, found.mapped_file_bytes, found.processes) == (2024 * 1024, 100 * 1024, 2)
    assert ProcessProbe(str(tmp_path)).usage(Identity(pid=77, birth=1)).held_bytes == Missing(reason="gone", detail="process 77 has ended")


def test_a_stat_file_that_is_kept_open_tells_of_its_own_process_only(tmp_path) -> None:
    """The probe reads one descriptor again and again; when that process has been reaped, nobody is there, and identity comes from whoever has the pid then."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    (tmp_path / "cgroup.procs").write_text(f"{child.pid}\n")
    probe = ProcessProbe(group_dir=str(tmp_path))
    try:
        assert probe.tree(child.pid) == [child.pid]
        before = probe.identity(child.pid)
        assert before is not None
        assert before == probe.identity(child.pid) == ProcessProbe().identity(child.pid)
    finally:
        child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert probe.tree(child.pid) == []  # a zombie holds nothing
    child.wait()
    assert probe.identity(child.pid) is None
    assert probe.tree(child.pid) == []


def test_a_job_without_a_group_is_watched_by_its_processes(tmp_path) -> None:
    """Anonymous and shared memory of each process that was of it at the last look, as the look itself adds them up; one that ended is let go, one that goes meanwhile does not answer."""
    sizes = "RssAnon:\t{} kB\nRssFile:\t7 kB\nRssShmem:\t{} kB\nVmHWM:\t9 kB\n"
    process(tmp_path, 7, 1, status=sizes.format(5000, 3))
    process(tmp_path, 8, 7, status=sizes.format(400, 0))
    probe = ProcessProbe(str(tmp_path))
    assert probe.files() == []
    leader = Identity(pid=7, birth=100)
    held = probe.usage(leader).held_bytes
    assert probe.lists
    assert len(probe.files()) == 2
    assert probe.held(numbers(probe.files())) == held == 5403 * 1024
    (tmp_path / "proc/8/stat").unlink()
    assert probe.usage(leader).held_bytes == 5003 * 1024
    assert len(probe.files()) == 1
    (tmp_path / "proc/7/status").write_text("")
    assert numbers(probe.files()) == (0, 0)


def test_where_few_files_may_be_open_none_is_kept_for_each_process(tmp_path, monkeypatch) -> None:
    """What a look or a stop must open comes first: with `ulimit -n 40` a job of sixteen processes is looked at by whole looks alone."""
    process(tmp_path, 7, 1, status="RssAnon:\t5 kB\n")
    for allowed, count in ((40, 0), (1024, 1), (-1, 1)):
        monkeypatch.setattr(os, "sysconf", lambda name, allowed=allowed: {"SC_OPEN_MAX": allowed}[name])
        probe = ProcessProbe(str(tmp_path))
        probe.usage(Identity(pid=7, birth=100))
        assert len(probe.files()) == count
