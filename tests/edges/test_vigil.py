"""The loop in C that looks between two glances: it reads what the interpreter would read, keeps what it saw, and ends at once for every reason that it has."""

import contextlib
import ctypes
import itertools
import json
import mmap
import os
import pathlib
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim import control, watching
from brim.facts.settings import SECOND, Limits
from brim.governor.vigils import Vigils, asides
from brim.policy import quiet
from brim.probes import host, process, vigil
from brim.probes.kept import Kept, field, leading, numbers
from brim.probes.vigil import CALL, DUE, FULL, MEMORY, MOVED, ROWS, SAME, TEXT, WOKEN, Sight, Vigil

SOURCE = os.path.join(os.path.dirname(vigil.__file__), "vigil.c")
SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(vigil.__file__))))
MS = 1_000_000
LIBC = ctypes.CDLL(None)


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    """Built from the source as it stands, so that a stale library in the tree is not what is tested."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("vigil") / "libvigil.so"
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(path), SOURCE], check=True)
    found = vigil.library(str(path))
    assert found is not None
    return found


@pytest.fixture
def epoll():
    with select.epoll() as found:
        yield found.fileno()


def soon(ms=2000):
    return time.monotonic_ns() + ms * MS


def text_of(path, text):
    path.write_bytes(text)
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


WORD = st.sampled_from([b"total_cache", b"cache", b"total_shmem", b"file", b"MemAvailable:", b"inactive_file", b"x"])
LINE = st.one_of(
    st.builds(lambda name, count, end: name + b" " + b"%d" % count + end, WORD, st.integers(0, 1 << 50), st.sampled_from([b"", b" kB", b"  "])),
    st.builds(lambda name, spaces, count: name + b" " * spaces + b"%d kB" % count, WORD, st.integers(1, 9), st.integers(0, 1 << 40)),
    st.sampled_from([b"", b"total_cache", b"cacheless 7", b"totally unlike 9"]),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(lines=st.lists(LINE, max_size=8), keys=st.lists(WORD, min_size=1, max_size=3))
def test_it_reads_as_the_interpreter_reads(loop, tmp_path_factory, lines, keys) -> None:
    """Whatever stands in a kernel's file, the number behind a name is the same to both; 0 where it is not there."""
    text = b"\n".join(lines) + b"\n"
    fd = text_of(tmp_path_factory.mktemp("text") / "file", text)
    with select.epoll() as epoll:
        found = Vigil(loop, [Sight(kind=TEXT, fd=fd, numbers=tuple((key + b" ", 1) for key in keys))], epoll=epoll.fileno(), kept=len(keys))
        why, rows = found.keep(0, soon())
    os.close(fd)
    assert why == FULL
    assert {row[2:] for row in rows} == {tuple(field(text, key) for key in keys)}


@pytest.mark.parametrize("text", [b"12345\n", b"0\n", b"9007199254740993", b"  77\n"])
def test_a_file_that_is_one_number(loop, tmp_path, epoll, text) -> None:
    """A group's usage is a bare number; the multiplier counts."""
    fd = text_of(tmp_path / "file", text)
    _, rows = Vigil(loop, [Sight(kind=TEXT, fd=fd, numbers=((b"", 3),))], epoll=epoll, kept=1).keep(0, soon())
    assert rows[0][2] == 3 * leading(text)
    os.close(fd)


def test_a_poll_at_which_all_is_well_is_a_row(loop, tmp_path, epoll) -> None:
    """Rows bear both clocks and the kept numbers, one poll apart, and the beat is that of the last poll; what is not kept is watched all the same."""
    fd, beat, memory = text_of(tmp_path / "file", b"a 5\nb 6\n"), mmap.mmap(-1, 4096), mmap.mmap(-1, 4096)
    sights = [Sight(kind=TEXT, fd=fd, numbers=((b"a ", 1), (b"b ", 1))), Sight(kind=MEMORY, address=vigil.address_of(memory), numbers=((8, 8),))]
    found = Vigil(loop, sights, epoll=epoll, kept=2, beat=vigil.address_of(beat))
    before = time.monotonic_ns(), time.time_ns()
    why, rows = found.keep(20 * MS, soon(130))
    assert why == DUE
    assert 3 <= len(rows) <= 7
    assert all(row[2:] == (5, 6) for row in rows)
    assert all(two[0] - one[0] >= 15 * MS for one, two in itertools.pairwise(rows[:-1]))
    assert before[0] < rows[0][0] == int.from_bytes(beat[:8], sys.byteorder) - (rows[-1][0] - rows[0][0])
    assert 0 <= rows[0][1] - before[1] < SECOND
    os.close(fd)


def test_the_rows_have_an_end(loop, epoll) -> None:
    """When there is no more room somebody must write them down."""
    why, rows = Vigil(loop, [], epoll=epoll, kept=0).keep(0, soon())
    assert (why, len(rows)) == (FULL, ROWS)


def moves_after(loop, epoll, sight, change, *, band=None, hold=None):
    """Why a vigil over one sight ends when `change` is called 60 ms after it began, and how many polls (10 ms) it saw."""
    found = Vigil(loop, [sight], epoll=epoll, kept=len(sight.numbers))
    if band:
        found.band(0, *band)
    if hold is not None:
        found.hold(0, hold)
    timer = threading.Timer(0.06, change)
    timer.start()
    why, rows = found.keep(10 * MS, soon(3000))
    timer.join()
    return why, len(rows)


def test_a_number_that_leaves_its_band_ends_it(loop, tmp_path, epoll) -> None:
    """Above or below, in a file or in memory; the poll that saw it is no row."""
    path = tmp_path / "file"
    for band, after in (((90, 110), b"n 111\n"), ((90, 110), b"n 89\n"), ((1, 200), b"")):
        fd = text_of(path, b"n 100\n")
        why, count = moves_after(loop, epoll, Sight(kind=TEXT, fd=fd, numbers=((b"n ", 1),)), lambda after=after: path.write_bytes(after), band=band)
        os.close(fd)
        assert why == MOVED
        assert 2 <= count <= 12
    page = mmap.mmap(-1, 4096)
    for size, offset in ((8, 64), (4, 12)):
        sight = Sight(kind=MEMORY, address=vigil.address_of(page), numbers=((offset, size),))
        why, _ = moves_after(loop, epoll, sight, lambda offset=offset: page.__setitem__(offset, 1), band=(0, 0))
        assert why == MOVED


def test_bytes_that_may_not_change(loop, epoll) -> None:
    """One byte is enough; and what is not as it was said to be when it begins ends it at the first poll."""
    page = mmap.mmap(-1, 4096)
    page[100:108] = b"as it is"
    sight = Sight(kind=SAME, address=vigil.address_of(page) + 100, room=8)
    why, count = moves_after(loop, epoll, sight, lambda: page.__setitem__(107, 33), hold=b"as it is")
    assert (why, count > 1) == (MOVED, True)
    assert moves_after(loop, epoll, sight, lambda: None, hold=b"as it is") == (MOVED, 0)


def test_a_call_that_fails_ends_it(loop, tmp_path, epoll) -> None:
    """Anything but 0 is no answer; a file whose descriptor is closed is none either."""
    access, name = ctypes.cast(LIBC.access, ctypes.c_void_p).value, ctypes.create_string_buffer(os.fsencode(tmp_path / "there"))
    (tmp_path / "there").touch()
    sight = Sight(kind=CALL, call=access, arguments=(ctypes.addressof(name), 0), keeps=name)
    why, count = moves_after(loop, epoll, sight, (tmp_path / "there").unlink)
    assert (why, count > 1) == (MOVED, True)
    found = Vigil(loop, [Sight(kind=TEXT, fd=987, numbers=((b"n ", 1),))], epoll=epoll, kept=1)
    assert found.keep(MS, soon()) == (MOVED, [])
    assert found.moved == 0


def test_a_descriptor_ends_it_at_once(loop) -> None:
    """Whatever the epoll waits for: the end of a child, a kernel notice; long before the next poll."""
    reader, writer = os.pipe()
    with select.epoll() as epoll:
        epoll.register(reader, select.EPOLLIN)
        timer = threading.Timer(0.05, os.write, (writer, b"x"))
        timer.start()
        begun = time.monotonic()
        assert Vigil(loop, [], epoll=epoll.fileno(), kept=0).keep(10 * SECOND, soon(60_000)) == (WOKEN, [])
        assert time.monotonic() - begun < 2
    timer.join()
    os.close(reader)
    os.close(writer)


def test_a_signal_ends_it_and_is_handled(loop, epoll) -> None:
    """The interpreter's handlers run as soon as it is back."""
    came = []
    before = signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    found = Vigil(loop, [], epoll=epoll, kept=0)
    why = found.keep(10 * SECOND, soon(2000))[0]
    while why == WOKEN and not came:  # the timer's thread may have taken it
        why = found.keep(10 * MS, soon(100))[0]
    timer.join()
    signal.signal(signal.SIGUSR1, before)
    assert came == [1]


def test_a_child_that_ends_or_stands_still_is_seen(loop, epoll) -> None:
    """The pid of one that was not waited for yet, and it is left to be waited for; 0 before."""
    for how, change in ((os.WEXITED, signal.SIGKILL), (os.WSTOPPED, signal.SIGSTOP)):
        with subprocess.Popen(["sleep", "30"], process_group=0) as child:
            sight = vigil.child(loop, os.P_PGID, child.pid, how)
            why, count = moves_after(loop, epoll, sight, lambda child=child, change=change: child.send_signal(change), band=(0, 0))
            assert (why, count > 1) == (MOVED, True)
            child.kill()


def test_seldom_is_seldom(loop, tmp_path, epoll) -> None:
    """A sight with `every` is asked at each so manieth poll only."""
    fd = text_of(tmp_path / "file", b"n 1\n")
    found = Vigil(loop, [Sight(kind=TEXT, fd=fd, numbers=((b"n ", 1),), every=7)], epoll=epoll, kept=1)
    found.band(0, 5, 6)
    assert [found.keep(0, soon())[0] for _ in range(2)] == [MOVED, MOVED]
    os.close(fd)
    rows = Vigil(loop, [Sight(kind=TEXT, fd=987, numbers=(), every=7)], epoll=epoll, kept=0).keep(0, soon())[1]
    assert len(rows) == 6


def test_what_is_asked_seldom_has_bands(loop, tmp_path, epoll) -> None:
    """Pressure and the two file systems of this machine are inside their bands, and a floor above what is free ends it."""
    machine = host.HostProbe("/", disk=str(tmp_path))
    machine.read()
    for floor, why in ((1, DUE), (1 << 62, MOVED)):
        bands = quiet.asides(Limits().replace(disk_floor_bytes=floor), ())
        found = asides(loop, machine.asides(), bands, poll_ns=10 * SECOND)
        assert {sight.every for sight, *_ in found} == {1}
        page = None
        keeper = Vigils(loop, epoll=epoll, page=page, asides=[*found, (vigil.child(loop, os.P_PGID, os.getpid(), os.WEXITED), 0, 0, False)])
        keeper.lay_out(machine.files())
        assert keeper.keep(numbers(machine.files()), 1 << 60, b"", poll_ns=5 * MS, until_ns=soon(40))[0] == why
        assert keeper.needs_look == (why == MOVED)


def test_the_jobs_words_end_it_and_its_steps_are_kept(loop, tmp_path, epoll) -> None:
    """Steps and tokens may move and stand in the rows; a phase, a checkpoint, an answer end it, also where they were said before it began."""
    page = control.Page.create(str(tmp_path / "page"), stale_after_ns=SECOND)
    file = tmp_path / "memory"
    file.write_bytes(b"5000\n")
    files = [(Kept("", str(file)), ((b"", 1, 8),))]
    keeper = Vigils(loop, epoll=epoll, page=page, asides=[])
    said = page.said()
    seen = numbers(files)
    keeper.lay_out(files)
    page.words[control.W_STEP], page.words[control.W_TOKENS] = 3, 400
    why, rows = keeper.keep(seen, 8, said, poll_ns=5 * MS, until_ns=soon(40))
    assert why == DUE
    assert {row[2:] for row in rows} == {((5000,), 3, 400)}
    assert page.words[control.W_GOVERNOR_BEAT] == rows[-1][0]
    page.note_checkpoint(step=3, started_ns=1, ended_ns=2, complete=True, request=0, path="/x")
    assert keeper.keep(seen, 8, said, poll_ns=5 * MS, until_ns=soon()) == (MOVED, [])
    assert keeper.keep(seen, 8, page.said(), poll_ns=5 * MS, until_ns=soon(40))[0] == DUE
    page.words[control.W_JOB_PID] = 7
    assert keeper.keep(seen, 8, said, poll_ns=5 * MS, until_ns=soon())[0] == MOVED
    file.write_bytes(b"5009\n")
    assert keeper.keep(seen, 8, page.said(), poll_ns=5 * MS, until_ns=soon()) == (MOVED, [])
    page.close()


SHARE = st.floats(-1, 1)


@pytest.mark.system
def test_a_process_of_this_machine(loop, epoll) -> None:
    """The kernel's own text, tabs and all: our own sizes, as a whole look adds them up."""
    probe = process.ProcessProbe()
    leader = probe.identity(os.getpid())
    probe._of_tree(leader)
    files = [(file, asked) for file, asked in probe.files() if file.path == f"/proc/{os.getpid()}/status"]
    assert numbers(files)[0] > 10 << 20
    found = Vigil(loop, [Sight(kind=TEXT, fd=files[0][0].fd, numbers=tuple((key, scale) for key, scale, _ in files[0][1]))], epoll=epoll, kept=2)
    _, rows = found.keep(0, soon())
    assert abs(sum(rows[-1][2:]) - sum(numbers(files))) < 1 << 20
    held = probe._of_tree(leader).held_bytes
    assert abs(probe.held(numbers(probe.files())) - held) < 8 << 20


@settings(max_examples=300, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(0, 1 << 36), min_size=9, max_size=9), shares=st.lists(SHARE, min_size=9, max_size=9), slack=st.integers(0, 1 << 30))
def test_within_their_eighths_numbers_cannot_move_free_memory_by_more_than_the_slack(tmp_path_factory, sizes, shares, slack) -> None:
    """For what the host has available and for what the job holds, each alone: so also for the lower of the two kinds of free memory."""
    machine, job = machine_and_job(tmp_path_factory)
    for probe, told, files in ((machine, machine.available, machine.files()), (job, job.held, job.files())):
        eighths = [width for _, asked in files for _, _, width in asked]
        before = tuple(max(1, size) for size in sizes[: len(eighths)])
        after = tuple(max(1, size + int(share * (slack * width // 8))) for size, share, width in zip(before, shares, eighths, strict=False))
        assert abs(told(after) - told(before)) <= slack, probe


MADE = []


def machine_and_job(tmp_path_factory):
    """A host with two limits above it, and a job in a group of its own, recorded once."""
    if not MADE:
        root = tmp_path_factory.mktemp("root")
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/meminfo").write_text("MemTotal: 68719476736 kB\nMemAvailable: 999 kB\n")
        (root / "proc/self/cgroup").write_text("4:memory:/a/b\n")
        for group, limit in (("a/b", 1 << 35), ("a", 1 << 36)):
            folder = root / "sys/fs/cgroup/memory" / group
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in (("limit_in_bytes", f"{limit}"), ("usage_in_bytes", "5"), ("stat", "total_cache 3\ntotal_shmem 1\n")):
                (folder / f"memory.{name}").write_text(text)
        machine, job = host.HostProbe(str(root)), process.ProcessProbe(group_dir=str(root / "sys/fs/cgroup/memory/a/b"))
        machine.read()
        job._of_group()
        MADE.append((machine, job))
    return MADE[0]


def test_a_library_of_another_layout_is_not_used(tmp_path) -> None:
    """One that is missing, is none, or was built from another version of its source leaves the interpreter to look alone."""
    assert vigil.library(str(tmp_path / "nothing.so")) is None
    assert vigil.library("libc.so.6") is None
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "old.c"
    source.write_text("#include <stdint.h>\nconst int32_t brim_vigil_layout[] = {1, 1, 2, 3};\nint brim_vigil_keep(void *v) { return v != 0; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(tmp_path / "old.so"), str(source)], check=True)
    assert vigil.library(str(tmp_path / "old.so")) is None


def test_a_library_that_was_cut_short_is_not_loaded(loop, tmp_path) -> None:
    """The dynamic linker maps what is not there, and whoever touches it is killed by SIGBUS: wherever the file ends, the interpreter looks alone."""
    whole = pathlib.Path(loop._name).read_bytes()
    for size in (0, 4, 40, 64, 1000, len(whole) // 2, len(whole) - 1):
        (tmp_path / f"{size}.so").write_bytes(whole[:size])
        assert vigil.library(str(tmp_path / f"{size}.so")) is None
    os.mkfifo(tmp_path / "fifo.so")
    assert vigil.library(str(tmp_path / "fifo.so")) is None


def test_a_library_that_lacks_a_function_is_not_used(loop, tmp_path) -> None:
    """Built from an older source of the same layout: what is asked for later must be there now."""
    sizes = ", ".join(map(str, (ctypes.c_int32 * 5).in_dll(loop, "brim_vigil_layout")))
    source = tmp_path / "older.c"
    source.write_text(f"#include <stdint.h>\nconst int32_t brim_vigil_layout[] = {{{sizes}}};\nint brim_vigil_keep(void *v) {{ return v != 0; }}\n")
    subprocess.run([shutil.which("cc") or shutil.which("gcc"), "-shared", "-fPIC", "-o", str(tmp_path / "older.so"), str(source)], check=True)
    assert vigil.library(str(tmp_path / "older.so")) is None


def governed(tmp_path, source, *, poll="200ms", grouped=True):
    """A job under brim with a poll of 200 ms, with a group of its own or where none can be made: its samples and the other lines, each (ns, kind, body)."""
    words = [sys.executable, "-m", "brim", "run", "--run-dir", str(tmp_path / "run"), "--poll", poll, "--", sys.executable, "-c", source]
    if not grouped:
        words = [
            "unshare",
            "-m",
            "sh",
            "-c",
            'for m in memory unified; do mount -o remount,bind,ro /sys/fs/cgroup/$m; done 2>/dev/null; exec "$@"',
            "sh",
            *words,
        ]
    subprocess.run(words, env={**os.environ, "PYTHONPATH": SRC}, check=True, capture_output=True, timeout=60)
    with contextlib.closing(sqlite3.connect(tmp_path / "run" / "journal.db")) as journal:
        return [(at, kind, json.loads(body)) for at, kind, body in journal.execute("SELECT at_ns, kind, body FROM lines ORDER BY seq")]


@pytest.mark.system
@pytest.mark.skipif(vigil.library() is None, reason="the loop is not built in this tree")
@pytest.mark.parametrize("grouped", [True, False])
def test_a_quiet_run_is_sampled_at_each_poll(tmp_path, grouped) -> None:
    """Nothing is left out of the journal: the samples stand one poll apart, mostly glances, in order, with the job's steps as they were then."""
    job = "from brim import client\nimport time\nfor n in range(80):\n    client.step(n)\n    time.sleep(0.1)\n"
    lines = governed(tmp_path, job, grouped=grouped)
    samples = [(at, body) for at, kind, body in lines if kind == "sample"]
    at = [moment for moment, _ in samples]
    assert at == sorted(at)
    gaps = sorted(two - one for one, two in itertools.pairwise(at))
    assert gaps[len(gaps) // 2] < 230 * MS
    assert gaps[-1] < SECOND
    glanced = [body for _, body in samples if "psi_some_avg10" not in body["host"]]
    assert len(glanced) > len(samples) // 2
    steps = [body["job"]["step"] for body in glanced]
    assert steps == sorted(steps)
    assert len(set(steps)) > len(steps) // 2


@pytest.mark.system
@pytest.mark.skipif(vigil.library() is None, reason="the loop is not built in this tree")
def test_what_the_job_says_and_leaves_behind_is_seen_at_the_next_poll(tmp_path, monkeypatch) -> None:
    """A checkpoint in the middle of a vigil stands in the journal within a poll or two; an orphan that ended is not left a zombie."""
    job = (
        "from brim import client\nimport os, time\n"
        "client.step(1)\ntime.sleep(4)\n"
        "if not os.fork():\n    pid = os.fork()\n    if not pid:\n        time.sleep(0.3)\n        os._exit(0)\n    open('pid', 'w').write(str(pid))\n    os._exit(0)\n"
        "os.wait()\ntime.sleep(1.5)\nopen('seen', 'w').write(str(os.path.exists('/proc/' + open('pid').read())))\n"
        "client.checkpointed('/x', step=1, complete=True)\nopen('said', 'w').write(str(time.monotonic_ns()))\ntime.sleep(2)\n"
    )
    monkeypatch.chdir(tmp_path)
    lines = governed(tmp_path, job)
    assert (tmp_path / "seen").read_text() == "False"
    told = [at for at, kind, _ in lines if kind == "checkpoint"]
    assert len(told) == 1
    assert told[0] - int((tmp_path / "said").read_text()) < SECOND


@pytest.mark.system
@pytest.mark.skipif(vigil.library() is None, reason="the loop is not built in this tree")
def test_whoever_looks_is_served_at_the_next_poll(tmp_path) -> None:
    """A quiet run at one look a second writes every two minutes; `brim top` gets what was seen until now within two polls."""
    words = [sys.executable, "-m", "brim", "run", "--run-dir", str(tmp_path / "run"), "--", "sleep", "60"]
    environ = {**os.environ, "PYTHONPATH": SRC}
    with subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        time.sleep(11)

        def newest():
            with contextlib.closing(sqlite3.connect(tmp_path / "run" / "journal.db")) as journal:
                return journal.execute("SELECT max(wall_ns), count(*) FROM lines WHERE kind = 'sample'").fetchone()

        kept = newest()
        assert time.time_ns() - kept[0] > 3 * SECOND
        told = subprocess.run([*words[:3], "top", "--json", str(tmp_path / "run")], env=environ, capture_output=True, text=True, check=True).stdout
        run.send_signal(signal.SIGTERM)
        run.wait(timeout=20)
    assert time.time_ns() - json.loads(told)["sample_wall_ns"] < 3 * SECOND
    assert newest()[1] >= kept[1] + 4


@pytest.mark.system
@pytest.mark.skipif(vigil.library() is None, reason="the loop is not built in this tree")
def test_what_was_seen_before_a_rest_stands_before_it(tmp_path) -> None:
    """Ctrl-Z in a quiet run: the polls until then are written first, so that the journal's stamps go on."""
    words = [sys.executable, "-m", "brim", "run", "--run-dir", str(tmp_path / "run"), "--", "sleep", "60"]
    environ = {**os.environ, "PYTHONPATH": SRC}
    with subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as run:
        time.sleep(5)
        run.send_signal(signal.SIGTSTP)
        time.sleep(1)
        run.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        run.send_signal(signal.SIGTERM)
        run.wait(timeout=20)
    with contextlib.closing(sqlite3.connect(tmp_path / "run" / "journal.db")) as journal:
        lines = [(at, kind) for at, kind in journal.execute("SELECT at_ns, kind FROM lines ORDER BY seq")]
    assert [kind for _, kind in lines].count("intent") >= 2
    assert lines[next(place for place, line in enumerate(lines) if line[1] == "intent") - 1][1] == "sample"
    assert [at for at, _ in lines] == sorted(at for at, _ in lines)


@pytest.mark.parametrize(("age", "served"), [(0, True), (4 * SECOND, True), (6 * SECOND, False)])
def test_only_a_governor_that_beats_is_asked_for_news(tmp_path, age, served) -> None:
    """One that was killed, or stands still, cannot write: whoever looks does not wait for it."""
    page = control.Page.create(str(tmp_path / "page"), stale_after_ns=SECOND)
    page.beat(time.monotonic_ns() - age)
    seen = watching.Seen(
        run="r", sample=None, sample_wall_ns=0, began_wall_ns=0, command=(), limits={"poll_ns": SECOND}, last=(), ended=False, control=page.path
    )
    assert watching.ask_for_news(seen) is served
    assert page.words[control.W_WATCHED] == served
    page.close()


class Ready:
    """A control page, a job's group as two files, an epoll that an event ends, and a request that is ready to be made over 1000 bytes."""

    def __init__(self, loop, folder, *, use=1500, stat="inactive_file 100\nactive_file 300\nshmem 50\nmapped_file 250\n"):
        self.page = control.Page.create(str(folder / "page"), stale_after_ns=SECOND)
        (folder / "use").write_text(f"{use}\n")
        (folder / "stat").write_text(stat)
        names = ("inactive_file", "active_file", "shmem", "mapped_file")
        self.files = [(Kept("", str(folder / "use")), ((b"", 1, 4),)), (Kept("", str(folder / "stat")), tuple((name.encode() + b" ", 1, 1) for name in names))]
        self.numbers = numbers(self.files)
        self.event, self.epoll = os.eventfd(0), select.epoll()
        self.epoll.register(self.event, select.EPOLLIN)
        self.keeper = Vigils(loop, epoll=self.epoll.fileno(), page=self.page, asides=[])
        self.keeper.lay_out(self.files)

    def arm(self, over):
        self.keeper.arm(over, control.STOP, grace_ns=7 * SECOND, text="stop:asked: it holds too much")

    def close(self):
        self.page.close()
        self.epoll.close()
        os.close(self.event)


@pytest.mark.parametrize(("over", "comes"), [(1199, True), (1200, False)])
@pytest.mark.parametrize("quietly", [True, False])
def test_the_request_is_made_when_something_comes_and_the_job_holds_too_much(loop, tmp_path, over, comes, quietly) -> None:
    """From a bare wait and from a vigil: 1500 − 100 − min(300, 250 − 50) = 1200 bytes are held; the page then says what is done, until when, and why, and says it once."""
    ready = Ready(loop, tmp_path)
    ready.page.direct(control.RUN)
    ready.arm(over)
    assert ready.page.foretold() is None
    before = time.monotonic_ns()
    os.eventfd_write(ready.event, 1)

    def wait():
        if not quietly:
            return ready.keeper.wait(time.monotonic_ns(), SECOND)
        return ready.keeper.keep(ready.numbers, 8000, ready.page.said(), poll_ns=SECOND, until_ns=soon())[0] == WOKEN

    assert wait()
    fired = ready.keeper.fired()
    if comes:
        held, at, wall = fired
        assert held == 1200
        assert before < at < time.monotonic_ns()
        assert ready.page.words[control.W_DIRECTIVE] == 2 << 8 | control.STOP
        assert ready.page.words[control.W_DEADLINE] == at + 7 * SECOND
        assert ready.page.foretold() == (at, wall, "stop:asked: it holds too much")
        assert not ready.keeper.armed
    else:
        assert fired is None
        assert ready.page.foretold() is None
        ready.keeper.disarm()
    assert wait()
    assert ready.keeper.fired() is None
    assert ready.page.words[control.W_DIRECTIVE] >> 8 == 1 + comes
    ready.close()


def test_no_request_where_nothing_comes_or_nothing_is_told(loop, tmp_path) -> None:
    """A wait that only runs out makes none, whatever is held; nor does one whose group does not tell what it holds."""
    ready = Ready(loop, tmp_path)
    ready.arm(0)
    assert not ready.keeper.wait(time.monotonic_ns(), 20 * MS)
    assert ready.keeper.fired() is None
    os.ftruncate(os.open(tmp_path / "stat", os.O_WRONLY), 0)
    os.eventfd_write(ready.event, 1)
    assert ready.keeper.wait(time.monotonic_ns(), SECOND)
    assert ready.keeper.fired() is None
    assert ready.page.words[control.W_DIRECTIVE] == 0
    ready.close()


def test_a_vigil_that_sees_it_itself_makes_the_request(loop, tmp_path) -> None:
    """Without any notice of the kernel's: a number that leaves its band at a poll."""
    ready = Ready(loop, tmp_path)
    ready.arm(1000)
    (tmp_path / "use").write_text("9000\n")
    assert ready.keeper.keep(ready.numbers, 80, ready.page.said(), poll_ns=5 * MS, until_ns=soon())[0] == MOVED
    assert ready.keeper.fired()[0] == 9000 - 100 - 200
    ready.close()


JUMP = """
import ctypes, mmap, time
from brim import client, control
client.step(1)
whole = mmap.mmap(-1, 256 << 20)
base = ctypes.addressof(ctypes.c_char.from_buffer(whole))
ctypes.memset(base, 1, 40 << 20)
time.sleep({pause})
at = 40
begun = time.monotonic_ns()
while client._words[control.W_DIRECTIVE] & 255 < {code} and at < 240:
    ctypes.memset(base + (at << 20), 1, 1 << 20); at += 1
    time.sleep(0.002)
open("asked", "w").write(f"{{client._words[control.W_DIRECTIVE] >> 8}} {{time.monotonic_ns()}}")
client.step(2)
client.checkpointed("/x", step=2)
"""


@pytest.mark.system
@pytest.mark.skipif(vigil.library() is None, reason="the loop is not built in this tree")
@pytest.mark.parametrize(("pause", "code"), [(1.5, control.CHECKPOINT), (6, control.CHECKPOINT), (1.5, control.STOP)])
def test_a_job_that_grows_is_asked_as_it_crosses(tmp_path, monkeypatch, pause, code) -> None:
    """Between two looks, and out of a quiet run: the request stands in the journal once, as of when it was made, with its number, and the job's answer is taken for the answer to it."""
    monkeypatch.chdir(tmp_path)
    words = [
        sys.executable,
        "-m",
        "brim",
        "run",
        "--run-dir",
        "run",
        "--memory-budget",
        "cpu=256MiB",
        "--floor",
        "64MiB",
        "--throttle-margin",
        "32MiB",
        "--grace",
        "8s",
        "--",
    ]
    done = subprocess.run(
        [*words, sys.executable, "-c", JUMP.format(pause=pause, code=code)], env={**os.environ, "PYTHONPATH": SRC}, capture_output=True, timeout=60, check=False
    )
    number, at = map(int, (tmp_path / "asked").read_text().split())
    with contextlib.closing(sqlite3.connect("run/journal.db")) as journal:
        lines = [(stamp, kind, json.loads(body)) for stamp, kind, body in journal.execute("SELECT at_ns, kind, body FROM lines ORDER BY seq")]
    asked = [(stamp, body["kind"]) for stamp, kind, body in lines if kind == "intent" and body["kind"].endswith(":asked")]
    kinds = ["checkpoint:asked", "stop:asked"]
    assert [kind for _, kind in asked] == (kinds[:1] if code == control.CHECKPOINT else kinds)
    assert 0 <= at - asked[-1][0] < 500 * MS
    outcomes = [body["outcome"] for _, kind, body in lines if kind == "outcome" and body["kind"].endswith(":asked")]
    assert (
        outcomes
        == [f"request {n} on the control page: {control.NAMES[which]}" for n, which in ((number - 1, control.CHECKPOINT), (number, code))][-len(asked) :]
    )
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (done.returncode, report["checkpoint"]["state"]) == (75 if code == control.STOP else 0, "acknowledged"), done.stderr
    stamps = [stamp for stamp, _, _ in lines]
    assert stamps == sorted(stamps)
    assert subprocess.run([*words[:3], "verify", "run"], env={**os.environ, "PYTHONPATH": SRC}, capture_output=True, check=False).returncode == 0


def test_pages_that_are_cut_short_become_zeros(loop, tmp_path) -> None:
    """In a process of its own: a guarded file that somebody truncates reads as zeros and takes what is written, and it is noted; one that is not guarded ends the process as ever."""
    source = (
        "import mmap, os, sys\nfrom brim.probes import vigil\nloop = vigil.library(sys.argv[1])\n"
        "def mapped(name):\n    f = open(name, 'w+b'); f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); m[:] = b'x' * 8192; return f, m\n"
        "f, m = mapped('page'); g, n = mapped('other')\n"
        "assert vigil.guard(loop, vigil.address_of(m), 8192) and not vigil.is_lost(loop)\n"
        "f.truncate(0)\nassert m[5000:5004] == bytes(4) and vigil.is_lost(loop)\nm[0] = 7\nassert m[0] == 7 and n[0] == 120\n"
        "if sys.argv[2] == 'closed':\n    assert vigil.guard(loop, 0, 0) and not vigil.is_lost(loop)\n"
        "print('alive', flush=True)\ng.truncate(0)\nn[0]\nprint('never')\n"
    )
    for closed in ("open", "closed"):
        done = subprocess.run(
            [sys.executable, "-c", source, loop._name, closed], cwd=tmp_path, env={**os.environ, "PYTHONPATH": SRC}, capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.returncode) == ("alive\n", -signal.SIGBUS), done.stderr


CUT = """
import os, signal, sys, time
from brim import client
client.step(1)
time.sleep({after})
os.truncate(os.environ["BRIM_CONTROL"], 0)
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
open("cut", "w").close()
end = time.monotonic() + 20
while not ended and time.monotonic() < end:
    time.sleep(0.05)
sys.exit(7 if ended else 8)
"""


@pytest.mark.system
@pytest.mark.skipif(vigil.library() is None, reason="the loop is not built in this tree")
@pytest.mark.parametrize("after", [0.5, 4])
def test_a_job_that_cuts_its_page_does_not_take_its_guard_along(tmp_path, monkeypatch, after) -> None:
    """Early and in a quiet run: it is told once, brim goes on, and a stop reaches the job by signal."""
    monkeypatch.chdir(tmp_path)
    words = [sys.executable, "-m", "brim", "run", "--run-dir", "run", "--poll", "200ms", "--grace", "6s", "--", sys.executable, "-c", CUT.format(after=after)]
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": SRC}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        end = time.monotonic() + 20
        while not os.path.exists("cut") and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1)
        assert run.poll() is None
        run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=30) == 75
    with contextlib.closing(sqlite3.connect("run/journal.db")) as journal:
        told = [body for (body,) in journal.execute("SELECT body FROM lines WHERE kind = 'level'") if "cut its control page" in body]
        ended = json.loads(journal.execute("SELECT body FROM lines WHERE kind = 'child_end'").fetchone()[0])
        stamps = [at for (at,) in journal.execute("SELECT at_ns FROM lines ORDER BY seq")]
    assert len(told) == 1
    assert stamps == sorted(stamps)
    assert ended["exit_code"] == 7
