"""brim run on a terminal and as the first process of a container."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

from brim.journal import store
from tests.conftest import ROOT

pytestmark = pytest.mark.system
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "COLUMNS": "100"}


class Terminal:
    """A process on a terminal of its own; what it prints is gathered."""

    def __init__(self, *words, size=(24, 80)):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            termios.tcsetwinsize(0, size)
            os.execvpe(sys.executable, [sys.executable, "-m", "brim", "run", *words], ENV)
        self.text = ""

    def resize(self, lines, columns):
        termios.tcsetwinsize(self.fd, (lines, columns))

    def until(self, word, seconds=20):
        end = time.monotonic() + seconds
        while word not in self.text:
            assert time.monotonic() < end, self.text
            self.read(0.1)

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                self.text += os.read(self.fd, 65536).decode(errors="replace")

    def ended(self, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(self.text)


def test_a_terminal_stays_a_terminal_and_has_a_live_line(tmp_path) -> None:
    """The job's streams are the terminal itself; meanwhile one line shows level, room and floor."""
    job = "import sys,time\nprint('terminals', [sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty()], flush=True)\ntime.sleep(1.5)"
    run = Terminal("--run-dir", str(tmp_path / "run"), "--memory-budget", "cpu=1GiB", "--", sys.executable, "-S", "-c", job)
    run.until("terminals [True, True, True]")
    run.until("free, floor")
    assert run.ended() == 0
    assert "run" in run.text
    assert "\x1b[" in run.text
    assert (tmp_path / "run" / "engine.log").read_text() == ""  # an unknown job has the terminal itself


ENGINE = """
import os, signal, sys, time
signal.signal(signal.SIGWINCH, lambda *_: print("now", tuple(os.get_terminal_size(1)), flush=True))
print("terminals", [sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty()], tuple(os.get_terminal_size(1)), flush=True)
print("\x1b[32mload_tensors:   CPU_Mapped model buffer size =   100.25 MiB\x1b[0m", file=sys.stderr, flush=True)
print("main: server is listening on http://127.0.0.1:1", flush=True)
for _ in range(int(sys.argv[-1])):
    time.sleep(0.1)
    print("tick", flush=True)
sys.exit(3)
"""


def test_an_engine_on_a_terminal_is_on_a_terminal_and_its_log_is_kept(tmp_path, smollm2) -> None:
    """An engine that brim prices sees terminals of the right size (also after a change), every byte comes through as it was, and its log is in the run folder and in the report."""
    server = tmp_path / "llama-server"
    server.write_text(f"#!{sys.executable} -S{ENGINE}")
    server.chmod(0o755)
    run = Terminal("--run-dir", str(tmp_path / "run"), "--poll", "200ms", "--", str(server), "-m", smollm2, "-c", "512", "--port", "30", size=(40, 97))
    run.until("terminals [True, True, True] (97, 40)")
    run.resize(50, 133)
    run.until("now (133, 50)")
    assert run.ended() == 3
    log = (tmp_path / "run" / "engine.log").read_text()
    for text in (run.text, log):
        assert "\x1b[32mload_tensors:   CPU_Mapped model buffer size =   100.25 MiB\x1b[0m" in text
        assert text.count("tick") == 30
    assert "\r" not in log  # the real terminal makes its line ends itself, once
    assert "\r\r\n" not in run.text
    found = json.loads((tmp_path / "run" / "report.json").read_text())
    assert [row["bytes"] for row in found["engine_buffers"]] == [105119744]
    (launched,) = [json.loads(line.body) for line in store.events(str(tmp_path / "run" / "journal.db")) if line.kind == "launched"]
    assert launched["log"] == ["stdout", "stderr"]


def test_ctrl_c_takes_the_checkpoint_path(tmp_path) -> None:
    """Ctrl-C on the terminal reaches brim, not the job directly: the job is asked to save, and the code is 75."""
    job = (
        "import sys,time\nfrom brim import client\nclient.phase('training')\nprint('ready',flush=True)\n"
        "while True:\n time.sleep(0.01)\n if client.step()>=client.CHECKPOINT:\n  client.checkpointed('/dev/null',1)\n  sys.exit(0)"
    )
    run = Terminal("--run-dir", str(tmp_path / "run"), "--", sys.executable, "-S", "-c", job)
    run.until("ready")
    time.sleep(0.3)
    os.write(run.fd, b"\x03")
    assert run.ended() == 75
    assert json.loads((tmp_path / "run" / "resume.json").read_text())["checkpoint"]["state"] == "acknowledged"


def test_a_job_that_reads_gets_the_terminal(tmp_path) -> None:
    """A job in the background of a terminal that reads from it is lent the terminal instead of hanging."""
    run = Terminal("--run-dir", str(tmp_path / "run"), "--poll", "200ms", "--", "sh", "-c", "echo ask; read word; echo got $word")
    run.until("ask")
    time.sleep(0.6)
    os.write(run.fd, b"hello\n")
    run.until("got hello")
    assert run.ended() == 0


def test_as_the_first_process_it_reaps_and_forwards(tmp_path) -> None:
    """Case 65: In a PID namespace of its own: orphans do not pile up as zombies, SIGTERM takes the checkpoint path, the code comes out."""
    script = "for i in 1 2 3 4 5; do (sleep 0.1 &) ; done; sleep 1; ps -e -o stat= | grep -c Z; exec sleep 30"
    words = [sys.executable, "-m", "brim", "run", "--run-dir", str(tmp_path / "run"), "--poll", "100ms", "--grace", "2s", "--", "sh", "-c", script]
    run = subprocess.Popen(
        ["unshare", "-p", "--fork", "--kill-child", "--mount-proc", *words], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    zombies = run.stdout.readline().strip()
    if zombies == "":
        run.communicate()
        pytest.skip("no PID namespace can be made here")
    assert zombies == "0"
    with open(f"/proc/{run.pid}/task/{run.pid}/children") as file:
        inner = int(file.read().split()[0])
    os.kill(inner, signal.SIGTERM)
    run.communicate(timeout=30)
    assert run.returncode == 75


def test_ctrl_z_rests_the_job_with_its_guard(tmp_path) -> None:
    """Ctrl-Z stops the job first, then brim; when brim is continued the job goes on, and both are in the journal. A job without its guard does not run on."""
    run = Terminal("--run-dir", str(tmp_path / "run"), "--poll", "200ms", "--", sys.executable, "-S", "-c", TICKS, str(tmp_path / "ticks"))
    run.until("tick 3")
    os.write(run.fd, b"\x1a")
    until_state(run.pid, "T")
    before = (tmp_path / "ticks").stat().st_size
    time.sleep(0.4)
    assert (tmp_path / "ticks").stat().st_size == before
    os.kill(run.pid, signal.SIGCONT)
    assert run.ended() == 0
    outcomes = [json.loads(line.body)["outcome"] for line in store.events(str(tmp_path / "run" / "journal.db")) if line.kind == "outcome"]
    assert any("SIGSTOP" in outcome or "frozen" in outcome for outcome in outcomes), outcomes


def test_ctrl_z_in_a_job_that_has_the_terminal_reaches_brim(tmp_path) -> None:
    """Where the terminal is the job's, Ctrl-Z stops the job alone: brim then stops, too, so that the shell behind it can go on; continued, both do."""
    job = "import time\nprint('asks', flush=True)\nprint('got', input(), flush=True)\nfor i in range(20): time.sleep(0.05)\nprint('bye', flush=True)"
    run = Terminal("--run-dir", str(tmp_path / "run"), "--poll", "200ms", "--", sys.executable, "-S", "-c", job)
    run.until("asks")
    time.sleep(0.5)  # the terminal is lent at the next look
    os.write(run.fd, b"line\n")
    run.until("got line")
    os.write(run.fd, b"\x1a")
    until_state(run.pid, "T")
    os.kill(run.pid, signal.SIGCONT)
    run.until("bye")
    assert run.ended() == 0


TICKS = """
import sys, time
with open(sys.argv[1], "w", buffering=1) as file:
    for index in range(30):
        print("tick", index, flush=True)
        print(index, file=file)
        time.sleep(0.05)
"""


def until_state(pid, state, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == state:
                return
        time.sleep(0.02)
    raise AssertionError(f"{pid} is not in state {state}")
