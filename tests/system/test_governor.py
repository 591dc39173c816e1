"""The governor's hands on real processes: stops in order, whole trees, daemons, brakes, keepers, kernel notifications; the journal shows what was done."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from brim import control
from brim.actions.group import Group
from brim.actions.keeper import Keeper
from brim.actions.notify import Notifier
from brim.actions.pause import Brake
from brim.actions.signal import Signaller
from brim.facts.process import Identity
from brim.journal import store
from brim.probes.process import ProcessProbe
from brim.probes.wakes import Wakes
from tests.conftest import ROOT

pytestmark = pytest.mark.system
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def brim(tmp_path, *words, name="run", command="run", **popen):
    return subprocess.Popen(
        [sys.executable, "-m", "brim", command, "--run-dir", str(tmp_path / name), *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENV,
        **popen,
    )


def python(code):
    return [sys.executable, "-S", "-c", code]


def lines(folder):
    """The records of a run, without those that say "late" (the same once more: a busy disk took longer than the deadline)."""
    rows = [(line.kind, json.loads(line.body)) for line in store.read(str(folder / "journal.db"))]
    return [(kind, body) for kind, body in rows if "late" not in body]


def intents(folder):
    return [body["kind"] for kind, body in lines(folder) if kind == "intent"]


def report(folder):
    return json.loads((folder / "report.json").read_text())


def until(condition, seconds=15.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


COOPERATIVE = """
import sys, time
from brim import client
client.phase("training")
step = client.resume_step(1) - 1
print("ready", flush=True)
while True:
    step += 1
    time.sleep(0.01)
    if client.step(step, tokens=7) >= client.CHECKPOINT:
        open(sys.argv[1], "w").write(str(step))
        client.checkpointed(sys.argv[1], step)
        if client.should_stop():
            sys.exit(0)
"""


def test_a_job_that_listens_saves_and_ends_without_a_signal(tmp_path) -> None:
    """SIGTERM to brim: the job is asked on the page, acknowledges, ends by itself; 75; resume.json names step and path; `brim resume` goes on one step after."""
    saved = tmp_path / "saved"
    run = brim(tmp_path, "--", *python(COOPERATIVE), str(saved))
    assert run.stdout.readline() == "ready\n"
    time.sleep(0.3)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=20)
    assert run.returncode == 75
    assert intents(tmp_path / "run") == ["stop:asked", "verify"]
    found = json.loads((tmp_path / "run" / "resume.json").read_text())
    assert found["checkpoint"]["state"] == "acknowledged"
    assert found["checkpoint"]["path"] == str(saved)
    assert found["checkpoint"]["step"] == int(saved.read_text())
    assert (found["cause"], found["stopped_by"]) == ("outside", "signal")
    again = subprocess.Popen(
        [sys.executable, "-m", "brim", "resume", str(tmp_path / "run"), "--run-dir", str(tmp_path / "more")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENV,
    )
    assert again.stdout.readline() == "ready\n"
    time.sleep(0.3)
    again.send_signal(signal.SIGINT)
    again.communicate(timeout=20)
    begin = lines(tmp_path / "more")[0][1]
    assert (begin["attempt"], begin["resumed_run"]) == (1, str(tmp_path / "run"))
    assert int(saved.read_text()) > found["checkpoint"]["step"]


def test_every_intent_is_recorded_before_its_outcome(tmp_path) -> None:
    """The journal has each intent, then its outcome; a record precedes the act."""
    run = brim(tmp_path, "--grace", "1s", "--", *python("import signal,time\nsignal.signal(15,signal.SIG_IGN)\nprint('ready',flush=True)\ntime.sleep(60)"))
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=20)
    seen = [(kind, body["kind"]) for kind, body in lines(tmp_path / "run") if kind in ("intent", "outcome")]
    assert seen[:4] == [("intent", "stop:terminating"), ("outcome", "stop:terminating"), ("intent", "stop:killing"), ("outcome", "stop:killing")]
    assert report(tmp_path / "run")["stop_stages"][:2] == ["terminating", "killing"]


def test_the_leader_comes_before_its_workers(tmp_path) -> None:
    """SIGTERM goes to the leader alone; a leader that passes it on is not overtaken, its workers get it once."""
    told = tmp_path / "told"
    worker = f"import signal,time,sys\nsignal.signal(15,lambda *a: (open({str(told)!r},'a').write('x'), time.sleep(0.3), sys.exit(0)))\nprint('ready',flush=True)\ntime.sleep(60)"
    leader = f"import signal,subprocess,sys\nw=subprocess.Popen([sys.executable,'-S','-c',{worker!r}])\nsignal.signal(15,lambda *a: w.terminate())\nw.wait()"
    run = brim(tmp_path, "--", *python(leader))
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=20)
    assert told.read_text() == "x"
    assert intents(tmp_path / "run") == ["stop:terminating", "verify"]


def test_a_pipeline_is_ended_whole(tmp_path) -> None:
    """A shell pipeline: the shell and every stage end, nobody is left."""
    run = brim(tmp_path, "--grace", "2s", "--", "sh", "-c", "sleep 61 | sleep 62 | sleep 63")
    until(lambda: len(_sleepers("61", "62", "63")) == 3)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=20)
    assert run.returncode == 75
    assert _sleepers("61", "62", "63") == []


def _sleepers(*numbers):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sleep") and words[1].decode() in numbers and alive(int(name)):
            found.append(int(name))
    return found


DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(float(sys.argv[2]))
"""


def test_a_daemon_stays_the_job(tmp_path) -> None:
    """A job that double-forks and leaves group and session is found, governed on and stopped; the run lasts as long as it does."""
    run = brim(tmp_path, "--grace", "2s", "--", *python(DAEMON), str(tmp_path / "pid"), "60")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    time.sleep(0.3)
    assert run.poll() is None
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=20)
    assert run.returncode == 75
    assert not alive(pid)


def test_a_daemon_that_ends_ends_the_run(tmp_path) -> None:
    """The leader's code is the run's, once the daemon has ended too."""
    began = time.monotonic()
    run = brim(tmp_path, "--", *python(DAEMON), str(tmp_path / "pid"), "1")
    run.communicate(timeout=20)
    assert run.returncode == 0
    assert time.monotonic() - began >= 1


def test_what_a_failed_leader_leaves_is_swept_up(tmp_path) -> None:
    """A leader that fails while its children live on: they are ended, with a record, and the code stays the leader's."""
    run = brim(tmp_path, "--grace", "2s", "--", "sh", "-c", "sleep 64 & exit 3")
    run.communicate(timeout=20)
    assert run.returncode == 3
    assert _sleepers("64") == []
    assert "stop:terminating" in intents(tmp_path / "run") or "stop:workers" in intents(tmp_path / "run")


def test_a_second_request_hurries(tmp_path) -> None:
    """The first SIGTERM lets the job save, the second does not wait for it."""
    slow = "import sys,time\nfrom brim import client\nclient.phase('training')\nprint('ready',flush=True)\nwhile True: client.step(); time.sleep(0.01)"
    run = brim(tmp_path, "--grace", "30s", "--", *python(slow))
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGTERM)
    until(lambda: "stop:asked" in intents(tmp_path / "run"))
    began = time.monotonic()
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert intents(tmp_path / "run")[:2] == ["stop:asked", "stop:terminating"]


def test_the_checkpoint_signal_goes_to_those_who_catch_it(tmp_path) -> None:
    """SIGUSR1 reaches the trainer, not the shell around it, which it would kill."""
    trainer = f"import signal,time\nsignal.signal(10,lambda *a: open({str(tmp_path / 'saved')!r},'w').close())\nprint('ready',flush=True)\ntime.sleep(60)"
    (tmp_path / "trainer.py").write_text(trainer)
    run = brim(tmp_path, "--grace", "1s", "--checkpoint-signal", "USR1", "--", "sh", "-c", f"{sys.executable} -S {tmp_path / 'trainer.py'}; true")
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=20)
    assert (tmp_path / "saved").exists()
    assert intents(tmp_path / "run")[0] == "stop:signalled"
    assert json.loads((tmp_path / "run" / "resume.json").read_text())["checkpoint"]["state"] == "signalled"


def test_a_governor_that_is_killed_takes_the_job_along_if_asked(tmp_path) -> None:
    """--die-with-me: after SIGKILL of brim the job ends, and stderr says so; without it the job goes on and can see it."""
    run = brim(tmp_path, "--die-with-me", "--grace", "1s", "--", "sh", "-c", "sleep 65; true")
    until(lambda: _sleepers("65"))
    time.sleep(0.2)
    run.kill()
    _, said = run.communicate(timeout=20)
    until(lambda: not _sleepers("65"), 10)
    assert "--die-with-me" in said
    run = brim(tmp_path, "--", "sleep", "66", name="second", start_new_session=True)
    until(lambda: _sleepers("66"))
    run.kill()
    run.stdout.close()
    run.stderr.close()
    run.wait()
    time.sleep(0.3)
    left = _sleepers("66")
    assert left
    launched = next(body for kind, body in lines(tmp_path / "second") if kind == "launched")
    assert launched["pid"] == left[0]
    os.kill(left[0], signal.SIGKILL)


def ended(run) -> None:
    """The run ends well; its pipes are read."""
    run.communicate(timeout=20)
    assert run.returncode == 0


def test_what_a_killed_governor_was_doing_is_told(tmp_path) -> None:
    """An act that was foretold on the control page and is in no journal is told by `brim verify`; the page stays while it tells something, and goes when it does not."""
    run = brim(tmp_path, "--", "sleep", "67", start_new_session=True)
    until(lambda: _sleepers("67"))
    time.sleep(0.2)
    run.kill()
    run.stdout.close()
    run.stderr.close()
    run.wait()
    os.kill(_sleepers("67")[0], signal.SIGKILL)
    path = next(body for kind, body in lines(tmp_path / "run") if kind == "launched")["control"]
    page = control.Page(path)
    page.foretell(1, 2, "stop:terminating: memory is\x1b short\n")
    ended(brim(tmp_path, "--", "true", name="other"))
    said = subprocess.run([sys.executable, "-m", "brim", "verify", str(tmp_path / "run")], env=ENV, capture_output=True, text=True, check=True).stdout
    assert "brim was killed while it did this" in said
    assert "stop:terminating: memory is� short" in said
    page.told()
    page.close()
    ended(brim(tmp_path, "--", "true", name="third"))
    assert not os.path.exists(path)
    document = subprocess.run(
        [sys.executable, "-m", "brim", "verify", "--json", str(tmp_path / "run")], env=ENV, capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(document)["foretold"] == ""


@pytest.fixture
def sleeper():
    child = subprocess.Popen(["sleep", "30"], process_group=0)
    probe = ProcessProbe()
    yield child, probe, probe.identity(child.pid)
    child.kill()
    child.wait()


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_somebody_else_is_never_signalled(sleeper) -> None:
    """Another birth, pid 0 and 1, a process that has gone: refused or told in words, and nothing is sent."""
    child, probe, who = sleeper
    signaller = Signaller(probe)
    assert "another process" in signaller.tree(who.replace(birth=who.birth + 1), signal.SIGKILL)
    assert "another process" in signaller.leader(who.replace(birth=who.birth + 1), signal.SIGKILL)
    assert "never signalled" in signaller.tree(Identity(pid=1, birth=0), signal.SIGTERM)
    assert "never signalled" in signaller.leader(Identity(pid=0, birth=0), signal.SIGTERM)
    assert child.poll() is None
    child.kill()
    child.wait()
    assert signaller.leader(who, signal.SIGTERM) == "already gone"


def test_the_brake_stops_and_lets_go(sleeper) -> None:
    """Pause stops the process, slow lets it run for a share of the time, release always lets it go."""
    child, probe, who = sleeper
    brake = Brake(lambda number: Signaller(probe).tree(who, number), None)
    brake.pause()
    until(lambda: state(child.pid) == "T")
    brake.release()
    until(lambda: state(child.pid) == "S")
    brake.slow(500)
    seen = set()
    end = time.monotonic() + 2
    while time.monotonic() < end and not ("T" in seen and seen & {"S", "R"}):
        seen.add(state(child.pid))
        time.sleep(0.01)
    assert "T" in seen
    assert seen & {"S", "R"}, "asleep, or just woken: it was let go in between"
    brake.release()
    until(lambda: state(child.pid) == "S")


def test_an_own_cgroup_tells_and_kills(sleeper) -> None:
    """Where a group can be made: it holds the process, tells its memory, kills at once and can be taken away."""
    child, _, who = sleeper
    group = Group(f"brim-test-{os.getpid()}")
    if not group.made:
        pytest.skip(f"no cgroup can be made here: {group.refused}")
    assert group.add(child.pid) == ""
    assert child.pid in group.pids()
    probe = ProcessProbe(group_dir=group.memory_dir, procs_dir=group.kill_dir)
    assert probe.tree(child.pid) == [child.pid]
    if group.memory_dir:
        assert "cgroup" in probe.usage(who).by
        assert probe.oom_kills() == 0
    if group.kill_dir:
        assert group.freeze(frozen=True)
        assert group.freeze(frozen=False)
        assert group.kill()
    else:
        child.kill()
    child.wait(5)
    assert group.remove() == ""


def test_the_kernel_wakes_us_at_a_threshold(tmp_path) -> None:
    """A v1 threshold ends the wait as memory passes it, long before the time is over."""
    group = Group(f"brim-test-w{os.getpid()}")
    wakes = Wakes()
    try:
        if not group.memory_dir or not wakes.threshold(group.memory_dir, 64 << 20):
            pytest.skip("no v1 memory thresholds here")
        child = subprocess.Popen(python("import sys\nsys.stdin.readline()\nb=bytearray(200<<20)\nsys.stdin.readline()"), stdin=subprocess.PIPE)
        group.add(child.pid)
        child.stdin.write(b"\n")
        child.stdin.flush()
        began = time.monotonic()
        assert [name.split()[0] for name in wakes.wait(10_000_000_000)] == ["threshold"]
        assert time.monotonic() - began < 5
        child.stdin.close()
        child.wait(5)
    finally:
        wakes.close()
        group.remove()


def test_a_wait_is_ended_by_time_and_refusals_are_kept() -> None:
    """Nothing comes: the time is over. What the kernel refuses is left out and said."""
    wakes = Wakes()
    assert wakes.wait(10_000_000) == ()
    assert not wakes.threshold("/nowhere", 1)
    assert not wakes.pressure("/proc/self/nothing")
    assert not wakes.events("/nowhere/memory.events")
    assert len(wakes.refused) == 3
    wakes.close()


def test_the_keeper_ends_a_job_whose_governor_is_gone(sleeper) -> None:
    """Silence and the end of the pipe: the job is ended; a word on it: the keeper goes, the job stays."""
    child, _, who = sleeper
    keeper = Keeper(child.pid, who.birth, grace_ns=10**9)
    keeper.close()
    assert child.poll() is None
    keeper = Keeper(child.pid, who.birth, grace_ns=10**9)
    os.close(keeper._writer)
    child.wait(10)
    keeper._process.wait(10)


def test_the_keeper_spares_a_stranger(sleeper) -> None:
    """A pid whose birth is another's gets no SIGTERM from the keeper."""
    child, _, who = sleeper
    other = subprocess.Popen(["sleep", "30"])
    keeper = Keeper(other.pid, who.birth + 1, grace_ns=1)
    os.close(keeper._writer)
    keeper._process.wait(10)
    assert child.poll() is None
    assert other.poll() is None
    other.kill()
    other.wait()


def test_notices_reach_a_command_and_a_webhook(tmp_path) -> None:
    """The command gets the notice as its last argument; the webhook gets it as JSON; a failure of either is said once and stops nothing."""
    import http.server
    import threading

    got = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    said = []
    script = tmp_path / "hook.sh"
    script.write_text(f'#!/bin/sh\necho "$1 $BRIM_LEVEL" >> {tmp_path / "notes"}\n')
    script.chmod(0o755)
    notifier = Notifier(say=said.append, command=(str(script),), webhook=f"http://127.0.0.1:{server.server_port}/x", run="/r", environ=dict(os.environ))
    notifier.tell("memory is short", "throttle")
    until(lambda: got and said and (tmp_path / "notes").exists() and (tmp_path / "notes").read_text().endswith("\n"))
    assert got == [{"text": "memory is short", "level": "throttle", "run": "/r"}]
    assert (tmp_path / "notes").read_text() == "memory is short throttle\n"
    server.shutdown()
    server.server_close()
    broken = Notifier(say=said.append, command=("/no/such/program",))
    broken.tell("one", "run")
    broken.tell("two", "run")
    until(lambda: any("notices:" in text for text in said) and "two" in said)
    assert [text for text in said if not text.startswith("notices:")][:2] == ["memory is short", "one"]
    stuck = threading.Event()
    deaf = Notifier(say=lambda _text: stuck.wait())
    began = time.monotonic()
    for _ in range(5000):
        deaf.tell("nobody reads this", "run")
    assert time.monotonic() - began < 1
    stuck.set()
    deaf.close()
