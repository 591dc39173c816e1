"""brim run with real processes: exit codes, signals, a budget that is never passed, and a governor that is killed."""

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import jsonschema
import pytest

from brim import launch
from brim.actions import child as child_module
from brim.actions import priority
from brim.actions.child import Child
from brim.facts.extras import Extras
from brim.facts.settings import Limits
from brim.journal import store
from brim.probes.process import ProcessProbe
from brim.reports.schemas import SCHEMAS
from tests.conftest import ROOT

pytestmark = pytest.mark.system
MIB = 1 << 20

# Grows by 2 MiB steps at RATE bytes a second until LIMIT, keeping count of what it has touched in a file; `deaf` ignores SIGTERM.
HOG = """
import mmap, os, signal, sys, time
rate, limit, count_file, deaf = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "deaf"
if deaf: signal.signal(signal.SIGTERM, signal.SIG_IGN)
step, held, began = 2 << 20, [], time.monotonic()
with open(count_file, "w+b") as file:
    file.truncate(8)
    count = mmap.mmap(file.fileno(), 8)
while len(held) * step < limit:
    page = mmap.mmap(-1, step, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, step, 4096): page[at] = 1
    held.append(page)
    count[:8] = (len(held) * step).to_bytes(8, "little")
    time.sleep(max(0, began + len(held) * step / rate - time.monotonic()))
time.sleep(60)
"""


def start(tmp_path, *words: str, group: str | None = None) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-m", "brim", "run", *words]
    if group:
        command = ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=tmp_path, start_new_session=True)


def report(folder) -> dict:
    document = json.loads((folder / "report.json").read_text())
    jsonschema.validate(document, SCHEMAS["run"])
    return document


@pytest.fixture
def memory_group():
    """A memory cgroup (v1) of 1 GiB below our own; a machine that does not allow one skips the test."""
    try:
        with open("/proc/self/cgroup") as file:
            own = next(line.split(":", 2)[2].strip() for line in file if ":memory:" in line)
        path = f"/sys/fs/cgroup/memory{own.rstrip('/')}/brim-test-{os.getpid()}"
        os.mkdir(path)
    except (OSError, StopIteration):
        pytest.skip("no memory cgroup can be made here")
    with open(path + "/memory.limit_in_bytes", "w") as file:
        file.write(str(1 << 30))
    yield path
    for _ in range(50):
        with contextlib.suppress(OSError):
            os.rmdir(path)
            break
        time.sleep(0.1)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("exec no-such-command", 127)])
def test_the_childs_own_code(tmp_path, script: str, code: int) -> None:
    """A child that ends by itself gives its own code, 128+N for a signal; the folder holds every document."""
    child = start(tmp_path, "--run-dir", str(tmp_path / "run"), "--", "/bin/sh", "-c", script)
    child.communicate(timeout=30)
    assert child.returncode == code
    found = report(tmp_path / "run")
    assert (found["exit_code"], found["ended_by"]) == (code, "child")
    assert store.verify(str(tmp_path / "run" / "journal.db"), found["journal_head"], finished=True)[0] >= 5
    for name in ("plan.json", "resume.json", "report.md"):
        assert (tmp_path / "run" / name).stat().st_size > 0


def test_streams_pass_through_and_are_kept(tmp_path) -> None:
    """The child's output is ours, and a copy of it is in the run folder; its input is ours too."""
    command = [sys.executable, "-m", "brim", "run", "--run-dir", str(tmp_path / "run"), "--", "/bin/sh", "-c", "read word; echo out $word; echo err $word >&2"]
    done = subprocess.run(command, input="hello\n", capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=False)
    assert done.stdout == "out hello\n"
    assert "err hello\n" in done.stderr
    assert sorted((tmp_path / "run" / "engine.log").read_text().split("\n")) == ["", "err hello", "out hello"]


def test_many_open_files_do_not_keep_a_job_from_starting(tmp_path) -> None:
    """The pipe that holds the job may get a number of two digits, which dash cannot name: the job starts all the same, and inherits none of our files."""
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]
    try:
        child = Child(
            ["/bin/sh", "-c", "ls /proc/self/fd | tr '\\n' ' '"], ProcessProbe(), env=dict(os.environ), cwd=str(tmp_path), log_path=str(tmp_path / "log")
        )
        child.release()
        assert child.wait(5_000_000_000) == 0
        child.close()
    finally:
        for fd in held:
            os.close(fd)
    assert (tmp_path / "log").read_text().split() == ["0", "1", "2", "3"], "3 is the folder that ls itself reads"


def test_a_run_folder_is_used_once(tmp_path) -> None:
    """A second run in the same folder is refused with exit 2, and the first run's journal is unharmed."""
    for expected in (0, 2):
        child = start(tmp_path, "--run-dir", str(tmp_path / "run"), "--", "true")
        child.communicate(timeout=30)
        assert child.returncode == expected
    store.verify(str(tmp_path / "run" / "journal.db"), report(tmp_path / "run")["journal_head"], finished=True)


def test_a_refused_launch_starts_nothing(tmp_path, smollm2) -> None:
    """Exit 3, the command never ran, the report says so; with --force it runs, and the report says that it was forced."""
    words = ("--memory-budget", "100MiB", "--model", smollm2, "--", "touch", str(tmp_path / "ran"))
    child = start(tmp_path, "--run-dir", str(tmp_path / "run"), *words)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 3
    assert "short by" in err
    assert not (tmp_path / "ran").exists()
    assert report(tmp_path / "run")["ended_by"] == "gate"
    child = start(tmp_path, "--force", "--run-dir", str(tmp_path / "forced"), *words)
    child.communicate(timeout=30)
    assert child.returncode == 0
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_are_passed_on_and_waited_for(tmp_path, number: int) -> None:
    """Ctrl-C and its kin reach the job, brim waits for it to tidy up, and ends with 75."""
    script = f"import signal, time, sys\ndef end(*_):\n    time.sleep(0.5); open({str(tmp_path / 'tidy')!r}, 'w').close(); sys.exit(5)\n"
    script += f"signal.signal({int(number)}, end); print('ready', flush=True); time.sleep(60)"
    child = start(tmp_path, "--run-dir", str(tmp_path / "run"), "--", sys.executable, "-c", script)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    child.communicate(timeout=30)
    assert child.returncode == 75
    assert (tmp_path / "tidy").exists()
    assert report(tmp_path / "run")["ended_by"] == "signal"


@pytest.mark.timeout(300)
def test_a_growing_child_is_stopped_before_it_passes_its_budget(tmp_path, memory_group) -> None:
    """Ten of ten: a child that grows by 0.5 GiB/s (half of them deaf to SIGTERM) never holds more than its 512 MiB, and the kernel's OOM killer never acts."""
    budget = 512 * MIB
    for trial in range(10):
        folder, counter = tmp_path / f"run{trial}", tmp_path / f"count{trial}"
        words = ("--run-dir", str(folder), "--memory-budget", str(budget), "--", sys.executable, "-c", HOG, str(0.5 * 2**30), str(900 * MIB), str(counter))
        child = start(tmp_path, *words, "deaf" if trial % 2 else "hears", group=memory_group)
        child.communicate(timeout=60)
        touched = int.from_bytes(counter.read_bytes(), "little")
        found = report(folder)
        assert child.returncode == 75, (trial, found)
        assert touched < budget, (trial, touched / MIB)
        assert found["peak_held_bytes"] < budget
        assert touched > budget // 2, "it was stopped long before the budget: no test of anything"
        lines = [(line.kind, json.loads(line.body)) for line in store.read(str(folder / "journal.db"))]
        kinds = [(kind, body.get("kind")) for kind, body in lines if kind in ("intent", "outcome") and "late" not in body]
        assert kinds[:2] == [("intent", "stop:terminating"), ("outcome", "stop:terminating")], "the record precedes the act"
    with open(memory_group + "/memory.oom_control") as file:
        assert "oom_kill 0" in file.read()


@pytest.mark.timeout(300)
def test_kill_9_of_the_governor_leaves_a_whole_journal(tmp_path) -> None:
    """Fifty times at random moments: the journal opens and verifies, and a child that lives on stands in it with pid and birth."""
    chance = random.Random(5)
    seen_alive = 0
    began = time.monotonic()
    start(tmp_path, "--run-dir", str(tmp_path / "first"), "--", "true").communicate(timeout=60)
    whole_start = time.monotonic() - began  # a busy machine starts slowly: the moments are spread over one and a half starts, however long one takes
    for trial in range(50):
        folder, mark = tmp_path / f"run{trial}", f"brim-mark-{os.getpid()}-{trial}"
        child = start(tmp_path, "--run-dir", str(folder), "--", sys.executable, "-c", "import time; time.sleep(20)", mark)
        time.sleep(chance.uniform(0.02, 1.5 * whole_start))
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()
        alive = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark in _command(pid) and "brim-hold" not in _command(pid)]
        journal = folder / "journal.db"
        launched = set()
        if journal.exists():
            store.verify(str(journal), None, finished=False)
            launched = {json.loads(line.body)["pid"] for line in store.read(str(journal)) if line.kind == "launched"}
        for pid in alive:
            assert pid in launched, f"trial {trial}: pid {pid} runs without a trace"
            seen_alive += 1
            os.kill(pid, signal.SIGKILL)
    assert seen_alive, "no trial killed the governor while the child ran"


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def test_orphans_that_no_look_saw_are_reaped(tmp_path) -> None:
    """brim is the subreaper of its job: what the job's children leave behind and what ends between two looks does not stay as a zombie; the leader's status is not taken away."""
    before = {pid for pid, _, _ in _children()}  # what other tests have left to this process is not this job's
    child = Child(["sh", "-c", "for i in 1 2 3 4 5; do (true &); done; sleep 0.5; exit 3"], ProcessProbe(), env=dict(os.environ), cwd="/", log_path=None)
    try:
        child.release()
        time.sleep(0.3)
        child.attend()
        left = [pid for pid, parent, state in _children() if parent == os.getpid() and state == "Z" and pid not in before]
        assert not left
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        child.attend()
        assert child.poll() == 3
    finally:
        child.close()


def _children():
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
                yield int(name), int(parent), state


def test_only_our_own_threads_come_first() -> None:
    """The guard's threads are raised and put back; neither those whose commands would inherit it, nor threads of a program that brim is a guest in."""
    told, end, ready = {}, threading.Event(), []

    def live() -> None:
        ready.append(threading.get_native_id())
        end.wait()

    threads = [threading.Thread(target=live, name=name) for name in ("brim-journal", "brim-measure", "brim-notify", "somebody")]
    for thread in threads:
        thread.start()
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    before = priority.come_first()
    try:
        if os.getpriority(os.PRIO_PROCESS, 0) == usual:
            pytest.skip("priorities may not be raised here")
        told = {thread.name: os.getpriority(os.PRIO_PROCESS, thread.native_id) for thread in threads}
    finally:
        priority.step_back(before)
        back = [os.getpriority(os.PRIO_PROCESS, number) for number in (0, threads[0].native_id)]
        end.set()
        for thread in threads:
            thread.join()
    assert told == {"brim-journal": min(usual, -10), "brim-measure": usual, "brim-notify": usual, "somebody": usual}
    assert back == [usual, usual]


def test_a_governor_that_fails_leaves_its_last_looks(tmp_path) -> None:
    """Samples that wait for company are written when the governor itself fails: they tell of what went before. The job is asked to end."""
    seen = []

    def watch(*_: object) -> None:
        seen.append(1)
        if len(seen) == 4:
            raise RuntimeError("a defect")

    with pytest.raises(RuntimeError):
        launch.run(["sleep", "30"], Limits(poll_ns=100_000_000), run_dir=str(tmp_path / "run"), prediction=None, extras=Extras(watch=watch))
    kinds = [line.kind for line in store.read(str(tmp_path / "run" / "journal.db"))]
    assert kinds.count("sample") == 4


def test_samples_of_a_slow_poll_are_written_as_they_come(tmp_path) -> None:
    """Where looks are further apart than two seconds no sample waits for the next one."""
    run = start(tmp_path, "--run-dir", str(tmp_path / "run"), "--poll", "2500ms", "--", "sleep", "6")
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with contextlib.suppress(Exception):
                if sum(line.kind == "sample" for line in store.read(str(tmp_path / "run" / "journal.db"))) >= 2:
                    break
            time.sleep(0.05)
        assert run.poll() is None
        rows = [json.loads(line.body) for line in store.read(str(tmp_path / "run" / "journal.db")) if line.kind == "sample"]
        assert len(rows) == 2
    finally:
        run.terminate()
        run.communicate()


def test_a_job_of_more_processes_than_we_may_open_is_signalled_whole() -> None:
    """Signals go out a hundred at a time: with 128 descriptors in all, 300 workers get theirs, and not one descriptor is left behind."""
    code = """
import os, resource, signal, subprocess, sys, time
from brim.actions.signal import Signaller
from brim.probes.process import ProcessProbe
leader = subprocess.Popen(["sh", "-c", "i=0; while [ $i -lt 300 ]; do sleep 99 & i=$((i+1)); done; echo up; wait"], stdout=subprocess.PIPE, start_new_session=True)
leader.stdout.readline()
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
probe = ProcessProbe()
who = probe.identity(leader.pid)
before = len(os.listdir("/proc/self/fd"))
try:
    said = Signaller(probe).workers(who, signal.SIGKILL)
finally:
    os.killpg(leader.pid, signal.SIGKILL)
print(said, len(os.listdir("/proc/self/fd")) - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "SIGKILL sent to 300 process(es) 0\n", done


def test_an_end_record_that_cannot_be_written_is_told(tmp_path, capfd) -> None:
    """The run's code stands; a line says that there is no proof."""

    def watch(*_: object) -> None:
        lock = sqlite3.connect(str(tmp_path / "run" / "journal.db"), isolation_level=None)
        lock.execute("CREATE TRIGGER IF NOT EXISTS full BEFORE INSERT ON lines WHEN NEW.kind = 'end' BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        lock.close()

    result = launch.run(["sleep", "0.2"], Limits(poll_ns=100_000_000), run_dir=str(tmp_path / "run"), prediction=None, extras=Extras(watch=watch))
    assert result.exit_code == 0
    assert "the end record could not be written" in capfd.readouterr().err


@pytest.mark.parametrize("when", ["after", "before"])
def test_a_signal_beside_the_job_ends_no_papers(tmp_path, when) -> None:
    """SIGTERM to brim when the job has just ended: the job's own code and all papers. SIGTERM while the job is made ready: it is stopped, with its papers."""
    code = (
        "import os, signal, sys\nfrom brim import book, launch, api\nfrom brim.facts.settings import limits\n"
        "place = (book.Book, 'close') if sys.argv[2] == 'after' else (launch, '_make_wakes')\nreal = getattr(*place)\n"
        "def hurried(*args, **more):\n os.kill(os.getpid(), signal.SIGTERM)\n return real(*args, **more)\n"
        "setattr(*place, hurried)\nsys.exit(api.run(['sh', '-c', 'sleep 1; exit 7'], limits(), run_dir=sys.argv[1]).exit_code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run"), when],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == (7 if when == "after" else 75), done.stderr
    document = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (document["exit_code"], document["ended_by"]) == ((7, "child") if when == "after" else (75, "signal"))
    assert (tmp_path / "run" / "report.html").exists()


def test_a_stream_that_was_made_non_blocking_loses_nothing() -> None:
    """A job may set O_NONBLOCK on the terminal that it shares with us: we wait until it takes more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    data, got = bytes(range(256)) * 2048, bytearray()

    def slowly() -> None:
        while chunk := os.read(reader, 4096):
            got.extend(chunk)

    thread = threading.Thread(target=slowly)
    try:
        assert os.write(writer, b"x" * (1 << 20)) < 1 << 20  # it is full
        threading.Timer(0.1, thread.start).start()
        assert child_module._write(writer, data) is None
    finally:
        os.close(writer)
        thread.join(5)
        os.close(reader)
    assert got.endswith(data)


def test_a_signal_after_the_jobs_end_changes_nothing(tmp_path) -> None:
    """SIGTERM between the last paper and brim's own end: the exit code is the job's."""
    late = "import os, signal\nfrom brim.reports import text\nsaid = text.ended\ndef ended(report):\n    os.kill(os.getpid(), signal.SIGTERM)\n    return said(report)\ntext.ended = ended\n"
    code = f"{late}from brim.cli import main\nraise SystemExit(main(['run', '--run-dir', {str(tmp_path / 'run')!r}, '--', 'sh', '-c', 'exit 5']))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, timeout=60, check=False
        ).returncode
        == 5
    )
