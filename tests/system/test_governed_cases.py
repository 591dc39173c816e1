"""Oddities of governed runs that real machines showed, each by its number in the table of field cases (docs/evidence/field-cases.md): real processes, the real binding on a stub."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from brim.actions.pause import Brake
from brim.actions.power import AGAIN, PowerCap
from brim.actions.signal import Signaller
from brim.errors import Unreadable
from brim.facts.device import Host, Reading
from brim.facts.settings import Limits
from brim.governor import Ending, Hands
from brim.launch import _finish, _struck
from brim.policy.states import PAUSE, Intent
from brim.probes.process import ProcessProbe, first_is_shell
from brim.stores.files import write_whole
from brim.values import Missing
from tests.fakes import card, tree
from tests.system.test_governor import COOPERATIVE, ENV, alive, brim, intents, lines, python, report, until
from tests.system.test_nvml_rehearsal import intents as recorded
from tests.system.test_nvml_rehearsal import rehearse
from tests.transitions.driver import Drive

pytestmark = pytest.mark.system


def test_33_a_loss_without_a_sign_is_recorded_as_one(tmp_path) -> None:
    """Case 33: XID 79 out of nothing stops the job at once; the fault's record says that it was unpredicted and how old the last checkpoint is, the report says it in words."""
    code, rows, said = rehearse(tmp_path, card(), card(xid=79, xid_count=1))
    assert code == 75, said
    fault = next(body for kind, body in rows if kind == "fault")
    assert (fault["unpredicted"], fault["checkpoint_age_ns"]) == (True, None)
    reason = report(tmp_path / "run")["reason"]
    assert "XID 79; unpredicted loss: nothing announced it, and no checkpoint was acknowledged in" in reason


def test_33_what_was_announced_is_no_unpredicted_loss() -> None:
    """Case 33: with a checkpoint its age and step are said; a card that was hot, or had told of another fault, did announce itself; one that was sick at the start was not lost by this run."""
    drive = Drive().look().answer(step=7).steady(90).look(faults=("xid 79",))
    assert "unpredicted loss: nothing announced it, and the last acknowledged checkpoint (step 7) is 91 s old" in drive.state.halt.why
    for before in ({"temp": 78.0}, {"faults": ("xid 13",)}, {"reasons": ("hw_power_brake",)}):
        drive = Drive().look().steady(3, **before).look(faults=("xid 79",))
        assert drive.state.halt.cause == "fault"
        assert "unpredicted" not in drive.state.halt.why, before
    assert "unpredicted" not in Drive().look(faults=("xid 79",)).state.halt.why


def test_35_a_driver_that_changes_under_a_run_is_lost_telemetry(tmp_path) -> None:
    """Case 35: library and driver no longer match in the middle of a run: telemetry is lost, nobody is stopped, the job ends by itself; a new launch that requires telemetry is refused with the cause."""
    broken = {f"err.{name}": 18 for name in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage")}
    code, rows, said = rehearse(
        tmp_path, card(), card(**broken), job=python("import time; print('ready', flush=True); time.sleep(4)"), flags=("--max-temp", "83")
    )
    assert (code, recorded(rows)) == (0, []), said
    assert any(kind == "level" and body["level"] == "unknown" for kind, body in rows)
    (tmp_path / "again").mkdir()
    code, rows, said = rehearse(tmp_path / "again", card(**broken), flags=("--require-telemetry", "--max-temp", "83"), starts=False)
    assert code == 4, said
    assert "telemetry is required, and cuda:0 does not tell: " in said
    assert "version mismatch" in said


class Cards:  # its methods have the binding's own names
    """The binding's five calls on one card whose limit others may set, too."""

    def __init__(self) -> None:
        self.limit, self.sets, self.refuse = 350_000, [], False
        self.nvmlDeviceGetPowerManagementLimitConstraints = lambda _handle: (100_000, 366_000)
        self.nvmlDeviceGetPowerManagementLimit = lambda _handle: self.limit

        self.nvmlInit = lambda: None
        self.nvmlDeviceGetHandleByIndex = lambda index: index
        self.nvmlDeviceSetPowerManagementLimit = self._set

    def _set(self, _handle: int, milliwatts: int) -> None:
        if self.refuse or not 100_000 <= milliwatts <= 366_000:
            raise RuntimeError("Invalid Argument")
        self.sets.append(milliwatts)
        self.limit = milliwatts


def test_41_a_cap_is_kept_against_others_and_given_back(monkeypatch) -> None:
    """Case 41: what was there is noted first, the cap is clamped to the card's range and read back; a limit that another service resets is set again, five times; at the end the first value is back."""
    library = Cards()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    cap = PowerCap(0, 50)
    assert cap.again(350.0) == ""  # nothing was set yet
    assert cap.apply() == "power limit 100 W (was 350 W, asked 50 W)"
    assert cap.again(350.0) == ""  # a reading from before the cap
    assert cap.again(100.0) == cap.again(Missing(reason="failed", detail="")) == ""
    for _ in range(AGAIN):
        library.limit = 300_000
        assert "something else has set the power limit to 300 W; power limit 100 W" in cap.again(300.0)
    library.limit = 300_000
    assert "left so" in cap.again(300.0)
    assert cap.again(300.0) == ""
    assert cap.restore() == "power limit back at 350 W"
    library.refuse = True
    assert "NOT restored" in cap.restore()


def test_41_a_cap_that_is_reset_during_the_run(tmp_path) -> None:
    """Case 41: while the card is warm the cap is looked at with each reading and set again; the journal shows it, and the value from before is back at the end."""
    warm, other = card(temp=78), card(temp=78, limit=320_000)
    code, rows, said = rehearse(tmp_path, card(temp=60), warm, other, other, other, other, card(temp=85), flags=("--max-temp", "83", "--power-cap", "250"))
    assert code == 75, said
    outcomes = [body["outcome"] for kind, body in rows if kind == "outcome"]
    assert any("something else has set the power limit to 320 W; power limit 250 W" in text for text in outcomes), outcomes
    assert any("power limit back at 350 W" in text for text in outcomes), outcomes


def test_43_what_a_killed_leader_leaves_is_ended_and_looked_for(tmp_path) -> None:
    """Case 43: the main process is killed from outside, its workers (one ignores SIGTERM, one left the session) hold on: all of them are ended, and it is verified that nobody is left."""
    job = (
        "import os,signal,subprocess,sys,time\nstay='import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(99)'\n"
        "one=subprocess.Popen([sys.executable,'-S','-c',stay]); two=subprocess.Popen(['sleep','99'],start_new_session=True)\n"
        "print(one.pid, two.pid, flush=True); time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)"
    )
    run = brim(tmp_path, "--poll", "100ms", "--grace", "1s", "--", *python(job))
    workers = [int(word) for word in run.stdout.readline().split()]
    run.communicate(timeout=30)
    assert run.returncode == 137
    assert not any(alive(pid) for pid in workers)
    assert intents(tmp_path / "run")[-2:] == ["stop:killing", "verify"]
    assert report(tmp_path / "run")["after"] == "the memory came back, no process is left"


class Closed:
    """A book that keeps what the end of a run writes into it."""

    def __init__(self) -> None:
        self.journal, self.rows, self.run_dir = self, [], ""

    def append(self, kind: str, body: "dict[str, object]", **_: object) -> bool:
        self.rows.append((kind, body))
        return True

    def close(self, code: int, by: str, reason: str, ending: Ending) -> "dict[str, object]":
        self.ending = ending
        return {"code": code, "by": by, "reason": reason}


ENDS = [
    ({"status": -9}, 0, 137, "child", "killed (SIGKILL), cause unknown: no kill of the kernel's was counted"),
    ({"status": -9}, None, 137, "child", "killed (SIGKILL), cause unknown: this system has no counter"),
    ({"status": 137}, 0, 137, "child", "cause unknown"),
    ({"status": -9}, 2, 9, "kernel", "the kernel's OOM killer struck in the job's own group (2 time(s)"),
    ({"status": 1}, 0, 1, "child", ""),  # an allocator's own error
    ({"status": 1}, 3, 1, "child", "the kernel's OOM killer struck in the job's own group (3 time(s), by its counter), not at its first process"),
    ({"status": 0}, 3, 0, "child", ""),
    ({"status": -9, "by": "governor", "reason": "memory"}, 0, 75, "governor", "memory"),
]


@pytest.mark.parametrize(("how", "kills", "code", "by", "reason"), ENDS)
def test_59_out_of_memory_is_said_only_with_a_proof(how, kills, code, by, reason) -> None:
    """Case 59: 137 is the kernel's OOM killer only where its counter rose, and the governor's doing only where it has recorded that; else it is "killed, cause unknown"."""
    missing = Missing(reason="failed", detail="")
    given = {"by": "child", "reason": "", "peak_held_bytes": missing, "peak_mapped_bytes": missing, "lowest_free_bytes": missing, "level_ns": {}, "looks": 1}
    result = _finish(Closed(), Ending(**{**given, **how}), kills, "")
    assert (result.exit_code, result.report["by"]) == (code, by)
    assert reason in result.report["reason"]
    assert bool(reason) or not result.report["reason"]


class Host59:
    """A probe whose kernel has counted so many kills around us."""

    def __init__(self, kills: "int | Missing") -> None:
        self.kills = kills

    def read(self, now_ns: int) -> Reading:
        return Reading(at_ns=now_ns, devices=(), host=Host(oom_kills=self.kills))


@pytest.mark.parametrize(
    ("before", "after", "struck"), [(3, 4, 1), (3, 3, 0), (Missing(reason="failed", detail=""), 4, 0), (3, Missing(reason="gone", detail=""), 0)]
)
def test_59_a_kill_of_the_kernels_around_the_job(before, after, struck) -> None:
    """Case 59: where the job has no counter of its own, a rise of the one around it during the run is said as what it is, and the run is not retried unchanged."""
    assert _struck(Host59(after), before, 1) == struck
    missing = Missing(reason="failed", detail="")
    ending = Ending(status=-9, by="child", reason="", peak_held_bytes=missing, peak_mapped_bytes=missing, lowest_free_bytes=missing, level_ns={}, looks=1)
    book = Closed()
    result = _finish(book, ending, None, "", struck)
    assert (result.exit_code, "most likely by the kernel" in result.report["reason"], book.ending.cause) == (137, bool(struck), "kernel" if struck else "")


def test_59_a_kill_from_outside_is_no_memory_failure(tmp_path) -> None:
    """Case 59: a job that somebody kills ends with its own 137 and an unknown cause, and may be resumed unchanged."""
    run = brim(tmp_path, "--", "sh", "-c", "test -e again && exit 0; touch again; kill -KILL $$", cwd=tmp_path)
    run.communicate(timeout=30)
    assert run.returncode == 137
    assert "cause unknown" in report(tmp_path / "run")["reason"]
    again = subprocess.run(
        [sys.executable, "-m", "brim", "resume", str(tmp_path / "run"), "--run-dir", str(tmp_path / "more")], env=ENV, check=False, timeout=30
    )
    assert again.returncode == 0


BUSY = """
import sys, time
from brim import client
client.phase("training")
client.step(1)
print("ready", flush=True)
end = time.monotonic() + 8
while time.monotonic() < end:  # an evaluation, or a first compilation: no step for a long time
    time.sleep(0.01)
    if sys.argv[1] == "looks" and client.directive() >= client.CHECKPOINT:
        client.checkpointed("/dev/null", 1)
        sys.exit(0)
"""


@pytest.mark.parametrize(("how", "answered"), [("looks", (1, 0)), ("steps only", (0, 1))])
def test_61_a_stop_is_heard_outside_of_steps_and_counted(tmp_path, how, answered) -> None:
    """Case 61: a job that looks at `directive()` within an evaluation saves and ends at once; one that looks at step boundaries alone is counted as not acknowledged."""
    run = brim(tmp_path, "--poll", "100ms", "--grace", "1s", "--", *python(BUSY), how)
    assert run.stdout.readline() == "ready\n"
    time.sleep(0.3)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=20)
    assert run.returncode == 75
    found = report(tmp_path / "run")
    assert (found["checkpoints_answered"], found["checkpoints_unanswered"]) == answered
    assert f"Requests to save: {answered[0]} acknowledged, {answered[1]} not" in (tmp_path / "run" / "report.md").read_text()


def test_65_a_shell_as_the_first_process_is_said(tmp_path) -> None:
    """Case 65: behind a shell as PID 1 a container's SIGTERM reaches nobody: brim says so and how to start it; started with exec it is the first process itself, hands the signal on, and says nothing."""
    assert [first_is_shell(tree(tmp_path / name, {"proc/1/comm": f"{name}\n"})) for name in ("sh", "bash", "systemd", "tini")] == ["sh", "bash", "", ""]
    assert first_is_shell(str(tmp_path / "nothing")) == ""
    inner = f"{sys.executable} -m brim run --run-dir {tmp_path}/%s --poll 100ms --grace 2s -- sh -c 'echo ready; exec sleep 20'"
    for name, script in (("behind", inner % "behind" + "; true"), ("exec", "exec " + inner % "exec")):
        run = subprocess.Popen(
            ["unshare", "-p", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if run.stdout.readline() != "ready\n":
            run.communicate()
            pytest.skip("no PID namespace can be made here")
        first = int(pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()[0])
        os.kill(first, signal.SIGTERM)
        if name == "exec":
            said = run.communicate(timeout=20)[1]
            assert run.returncode == 75
        else:
            time.sleep(0.5)
            assert alive(first)  # the shell did not care
            run.kill()
            said = run.communicate(timeout=20)[1]
        assert ("the first process here is a shell (sh)" in said) is (name == "behind"), said


def test_67_resume_state_is_whole_whenever_its_writer_is_killed(tmp_path) -> None:
    """Case 67: a writer that is killed at any moment leaves the old document or the new one, never a part; and what it left aside is taken away by the next writer."""
    path = tmp_path / "resume.json"
    code = (
        "import itertools,json,sys\nfrom brim.actions.files import write_atomically\nfrom brim.stores.files import write_whole\n"
        "for n in itertools.count():\n for write in (write_atomically, write_whole):\n  write(sys.argv[1], json.dumps({'step': n, 'path': 'x' * 200_000, 'of': n}))"
    )
    for seed in range(8):
        writer = subprocess.Popen([sys.executable, "-S", "-c", code, str(path)], env=ENV)
        before = path.read_bytes() if path.exists() else b""
        until(lambda before=before: path.exists() and path.read_bytes() != before)
        time.sleep(random.Random(seed).random() / 20)
        writer.kill()
        writer.wait()
        found = json.loads(path.read_text())
        assert found["step"] == found["of"]
    (tmp_path / "resume.json.4194399.tmp").write_text("of a writer that is gone")
    (tmp_path / f"resume.json.{os.getpid()}1.other").write_text("somebody else's")
    write_whole(str(path), "{}")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["resume.json", f"resume.json.{os.getpid()}1.other"]
    with pytest.raises(Unreadable):
        write_whole(str(tmp_path / "no" / "folder"), "")


def test_67_a_checkpoint_that_is_not_complete_is_not_gone_on_from(tmp_path) -> None:
    """Case 67: the job is killed while it writes its second checkpoint: the resume state names the first, which is whole; the half-written one is nobody's."""
    job = (
        "import os,signal,sys,time\nfrom brim import client\nclient.phase('training')\nfor step in (1, 2):\n client.step(step)\n part=f'{sys.argv[1]}/ck{step}.part'\n"
        " open(part,'w').write('whole')\n if step == 2:\n  client.checkpointed(part, 2, complete=False); time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)\n"
        " os.replace(part, part[:-5]); client.checkpointed(part[:-5], step); time.sleep(0.5)"
    )
    run = brim(tmp_path, "--poll", "100ms", "--", *python(job), str(tmp_path))
    run.communicate(timeout=30)
    assert run.returncode == 137
    found = json.loads((tmp_path / "run" / "resume.json").read_text())["checkpoint"]
    assert (found["state"], found["step"], found["path"]) == ("acknowledged", 1, str(tmp_path / "ck1"))


def test_69_a_resumed_job_that_starts_anew_is_an_alarm(tmp_path) -> None:
    """Case 69: a resume says the step that it goes on from; a job that then counts a lower one is told about on stderr and in the journal, one that goes on is not."""
    saved = tmp_path / "saved"
    run = brim(tmp_path, "--poll", "100ms", "--", *python(COOPERATIVE), str(saved))
    assert run.stdout.readline() == "ready\n"
    time.sleep(0.4)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=20)
    step = json.loads((tmp_path / "run" / "resume.json").read_text())["checkpoint"]["step"]
    for name, command in (("well", ()), ("anew", ("--", *python(COOPERATIVE.replace("client.resume_step(1) - 1", "0")), str(saved)))):
        again = subprocess.Popen(
            [sys.executable, "-m", "brim", "resume", str(tmp_path / "run"), "--run-dir", str(tmp_path / name), "--poll", "100ms", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV,
        )  # fmt: skip
        assert again.stdout.readline() == "ready\n"
        time.sleep(0.4)
        again.send_signal(signal.SIGTERM)
        said = again.communicate(timeout=20)[1]
        assert f"going on from step {step}" in said
        assert ("it may have started anew" in said) is (name == "anew"), said
        rows = lines(tmp_path / name)
        assert rows[0][1]["resumed_step"] == step
        assert any("started anew" in body.get("reason", "") for kind, body in rows if kind == "level") is (name == "anew")


def test_71_a_pause_takes_all_ranks_or_none_and_ends_before_a_watchdog(tmp_path) -> None:
    """Case 71: where a job has several processes all of them are stopped and let go together, a cooperative pause is for one alone; and no pause lasts as long as a collective's watchdog (480 s)."""
    assert Limits().pause_max_ns < 480 * 10**9
    leader = subprocess.Popen(["sh", "-c", "sleep 99 & sleep 99 & echo $!; wait; exec sleep 99"], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        leader.stdout.readline()
        probe = ProcessProbe()
        who, signaller = probe.identity(leader.pid), Signaller(probe)
        told = []

        class Page:
            def direct(self, *words: object, **_: object) -> int:
                told.append(words)
                return 1

        hands = Hands(
            who, page=Page(), signaller=signaller, brake=Brake(lambda number: signaller.tree(who, number), None), group=None, notifier=None, checkpoint_signal=0
        )
        ranks = probe.tree(leader.pid)
        assert len(ranks) == 3
        drive = Drive().look()
        look = drive_look(drive, others=2)
        hands.do(Intent(action=PAUSE, why="heat"), look)
        until(lambda: all(state(pid) == "T" for pid in ranks))
        assert not told
        hands.finish()
        until(lambda: all(state(pid) != "T" for pid in ranks))
        hands.do(Intent(action=PAUSE, why="heat"), drive_look(drive, others=0))  # a look from before the ranks were started
        until(lambda: all(state(pid) == "T" for pid in ranks))
        assert not told
        hands.finish()
        for pid in ranks:
            if pid != leader.pid:
                os.kill(pid, signal.SIGKILL)
        until(lambda: probe.tree(leader.pid) == [leader.pid])
        hands.do(Intent(action=PAUSE, why="heat"), drive_look(drive, others=0))
        assert len(told) == 1
    finally:
        os.killpg(leader.pid, signal.SIGKILL)
        leader.communicate()


def state(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def drive_look(drive: Drive, others: int):
    """A look at a job that listens, with so many processes beside its leader."""
    from brim.facts.look import Look

    return Look(reading=Reading(at_ns=drive.now, devices=(), host=Host()), usage=Missing(reason="failed", detail=""), words=drive.words, others=others)
