"""Governor, job or both are killed, stopped or slowed at random moments; the clock jumps; the disk fills; the run folder becomes read-only. Writes docs/evidence/governor-chaos.md.

    python tests/evidence/chaos.py [--runs 500] [--seed 1] [--parallel 4]

After each run: nobody of the job is alive without a record that names it (or, with a dead disk, a line on stderr); the journal verifies; every checkpoint that brim calls acknowledged
is on disk, whole, with that step; and where brim ended by itself its resume document names the last checkpoint that the job had acknowledged.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import datetime
import json
import os
import pathlib
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "src"))

from brim.errors import BrimError  # noqa: E402
from brim.journal import store  # noqa: E402

ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
JOB = """
import os, pathlib, sys, time
kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])
import signal
if kind == "deaf": signal.signal(signal.SIGTERM, signal.SIG_IGN)
if kind == "forks":
    for _ in range(2):
        if os.fork() == 0:
            os.setsid() if _ else None
            time.sleep(20); os._exit(0)
from brim import client
if kind != "coop": client._words = client._page = None
client.phase("training")
for step in range(1, 400):
    time.sleep(0.005)
    if client.step(step) >= client.CHECKPOINT or step % 40 == 0:
        path = folder / "checkpoint"
        path.with_suffix(".part").write_text(f"{step} complete")
        os.replace(path.with_suffix(".part"), path)
        client.checkpointed(path, step)
        if kind == "coop":
            (folder / "acknowledged.part").write_text(str(step))
            os.replace(folder / "acknowledged.part", folder / "acknowledged")
        if client.should_stop():
            sys.exit(0)
"""
# A governor whose wall clock jumps by hours at random: nothing but stamps may depend on it.
JUMPY = """
import random, sys
from brim import api
from brim.clock import SystemClock
from brim.facts.settings import limits
class Jumpy(SystemClock):
    def wall_ns(self): return super().wall_ns() + random.Random().randint(-10**13, 10**13)
bounds = limits(grace_ns=10**9, poll_ns=10**8, checkpoint_every_ns=3 * 10**8)
sys.exit(api.run(sys.argv[2:], bounds, run_dir=sys.argv[1], clock=Jumpy()).exit_code)
"""
EVENTS = (
    "kill governor", "kill job", "kill both", "stop governor a while", "stop job a while", "stop both a while", "slow the governor", "SIGTERM", "SIGTERM twice", "SIGINT then kill", "wall clock jumps",
    "disk fills", "disk fills, then SIGTERM", "folder read-only", "folder read-only, then SIGTERM", "nothing",
)  # fmt: skip


def mounted(folder):
    """A small file system of its own for the run folder; False where none may be made."""
    return subprocess.run(["mount", "-t", "tmpfs", "-o", "size=640k", "brim-chaos", str(folder)], capture_output=True, check=False).returncode == 0


def pids_of(mark):
    """(pid, command line) of everybody whose environment carries the mark."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark.encode() in pathlib.Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                state = pathlib.Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found.append((int(name), pathlib.Path(f"/proc/{name}/cmdline").read_bytes()))
    return found


def one(number, seed):
    """One run; (event, kind of job, list of faults, whether a checkpoint was acknowledged)."""
    chance = random.Random(f"{seed}/{number}")
    event, kind = chance.choice(EVENTS), chance.choice(("coop", "coop", "plain", "deaf", "forks"))
    with tempfile.TemporaryDirectory(prefix="brim-chaos-") as name:
        top = pathlib.Path(name)
        run, mark = top / "run", f"BRIM_CHAOS={seed}-{number}-{os.getpid()}"
        run.mkdir()
        own_disk = ("disk" in event or "folder" in event) and mounted(run)
        if ("disk" in event or "folder" in event) and not own_disk:
            event = "nothing"
        job = [sys.executable, "-S", "-c", JOB, kind, str(top)]
        words = [sys.executable, "-c", JUMPY, str(run), *job]
        if event != "wall clock jumps":
            words = [sys.executable, "-m", "brim", "run", "--run-dir", str(run), "--grace", "1s", "--poll", "100ms", "--checkpoint-every", "300ms", "--", *job]
        key, _, value = mark.partition("=")
        with (top / "stderr").open("wb") as err:
            governor = subprocess.Popen(words, env={**ENV, key: value}, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True)
        try:
            faults = strike(event, governor, mark, run, chance) + look(event, kind, governor, mark, run, top)
        finally:
            for pid, _ in pids_of(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            governor.wait(10)
            if own_disk:
                for _ in range(50):
                    if subprocess.run(["umount", str(run)], capture_output=True, check=False).returncode == 0:
                        break
                    time.sleep(0.05)
            acknowledged = (top / "acknowledged").exists()
        return event, kind, faults, acknowledged


def strike(event, governor, mark, run, chance):
    """Do what the event says, at a random moment."""
    time.sleep(chance.uniform(0.05, 1.6))

    def jobs():
        return [
            pid
            for pid, words in pids_of(mark)
            if b"client.checkpointed" in words and b"brim-hold" not in words and pid != governor.pid and b"-m\0brim" not in words
        ]

    def send(pids, number):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    if event in ("kill governor", "kill both"):
        send([governor.pid], signal.SIGKILL)
    if event in ("kill job", "kill both"):
        send(jobs(), signal.SIGKILL)
    if "a while" in event:
        who = ([governor.pid] if "job" not in event else []) + (jobs() if "governor" not in event else [])
        send(who, signal.SIGSTOP)
        time.sleep(chance.uniform(0.1, 0.8))
        send(who, signal.SIGCONT)
    if event == "slow the governor":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, governor.pid, 19)
    if "disk fills" in event:
        with contextlib.suppress(OSError), (run / "ballast").open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
    if "read-only" in event:
        subprocess.run(["mount", "-o", "remount,ro", str(run)], capture_output=True, check=False)
    if "SIGTERM" in event:
        send([governor.pid], signal.SIGTERM)
    if event == "SIGTERM twice":
        time.sleep(chance.uniform(0.0, 0.3))
        send([governor.pid], signal.SIGTERM)
    if event == "SIGINT then kill":
        send([governor.pid], signal.SIGINT)
        time.sleep(chance.uniform(0.0, 0.5))
        send([governor.pid], signal.SIGKILL)
    return []


def look(event, kind, governor, mark, run, top):
    """What is wrong after the storm, in words."""
    faults = []
    try:
        governor.wait(40)
    except subprocess.TimeoutExpired:
        return [f"the governor did not end ({event})"]
    said = (top / "stderr").read_text(errors="replace")
    ended = governor.returncode >= 0
    if "read-only" in event:
        subprocess.run(["mount", "-o", "remount,rw", str(run)], capture_output=True, check=False)
    with contextlib.suppress(OSError):
        (run / "ballast").unlink()
    launched = []
    journal = run / "journal.db"
    if journal.exists():
        report = run / "report.json"
        head = json.loads(report.read_text())["journal_head"] if report.exists() and report.stat().st_size else None
        try:
            store.verify(str(journal), head, finished=False)
            launched = [json.loads(line.body) for line in store.read(str(journal)) if line.kind in ("launched", "checkpoint")]
        except BrimError as fault:
            if not ("holds nothing" in str(fault) or "readonly" in str(fault)):
                faults.append(f"the journal does not verify: {fault}")
    time.sleep(0.05)
    alive = [
        pid
        for pid, words in pids_of(mark)
        if b"client.checkpointed" in words and b"brim-hold" not in words and b"-m\0brim" not in words and b"Jumpy" not in words
    ]
    if alive and ended:
        faults.append(f"{len(alive)} process(es) outlive a governor that ended by itself with {governor.returncode}")
    named = [entry["pid"] for entry in launched if "pid" in entry]
    if alive and not ended and not (set(alive) & set(named)) and not named:
        faults.append(f"orphans {alive} without a record")
    faults += checkpoints(kind, run, top, launched, said, ended=ended)
    if "Traceback" in said and "KeyboardInterrupt" not in said:  # (a Python job that is interrupted says so itself)
        faults.append("a traceback: " + said[-300:])
    return faults


def checkpoints(kind, run, top, launched, said, *, ended):
    """What brim calls acknowledged must be there; what the job had acknowledged must be named where brim ended by itself."""
    faults = []
    on_disk = (top / "checkpoint").read_text().split() if (top / "checkpoint").exists() else ["0", "complete"]
    if len(on_disk) != 2 or on_disk[1] != "complete":
        faults.append(f"the checkpoint on disk is not whole: {on_disk}")
    told = [entry["step"] for entry in launched if "step" in entry]
    with contextlib.suppress(OSError, ValueError):
        told.append(json.loads((run / "resume.json").read_text())["checkpoint"].get("step", 0))
    if told and max(told) > int(on_disk[0]):
        faults.append(f"step {max(told)} is called acknowledged, step {on_disk[0]} is on disk")
    acknowledged = int((top / "acknowledged").read_text()) if (top / "acknowledged").exists() else 0
    excused = "could not be written" in said or "did not take" in said
    if kind == "coop" and ended and not excused and acknowledged and (not told or max(told) < acknowledged):
        faults.append(f"the job acknowledged step {acknowledged}, brim names {max(told, default=None)}")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--write", default=str(ROOT / "docs/evidence/governor-chaos.md"))
    asked = parser.parse_args()
    rows, bad, saved = collections.Counter(), [], collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(asked.parallel) as pool:
        for number, (event, kind, faults, acknowledged) in enumerate(pool.map(lambda number: one(number, asked.seed), range(asked.runs))):
            rows[event, kind] += 1
            saved[event] += acknowledged
            bad += [(number, event, kind, fault) for fault in faults]
            if faults:
                print(number, event, kind, faults, flush=True)
    stamp = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    kinds = ("coop", "plain", "deaf", "forks")
    lines = [
        "# Chaos: what is left when everything goes wrong", "",
        f"Generated by `python tests/evidence/chaos.py --runs {asked.runs} --seed {asked.seed}` on {stamp}; {os.cpu_count()} CPUs, Linux {platform.release()}.", "",
        "Each run: a job (cooperative, plain, deaf to SIGTERM, or one that forks and leaves its session) under brim, and one event at a random moment. Looked for afterwards: an orphan that no record names, a journal that does",
        "not verify, a checkpoint that brim calls acknowledged and that is not there, one that was acknowledged and is not named, a traceback, a governor that does not end.", "",
        "| event | " + " | ".join(kinds) + " | runs | with an acknowledged checkpoint | faults |", "|---|" + "---:|" * (len(kinds) + 3),
    ]  # fmt: skip
    for event in EVENTS:
        counts = [rows[event, kind] for kind in kinds]
        if sum(counts):
            lines.append(
                f"| {event} | " + " | ".join(map(str, counts)) + f" | {sum(counts)} | {saved[event]} | {sum(1 for entry in bad if entry[1] == event)} |"
            )
    lines += [f"| **all** | | | | | {sum(rows.values())} | {sum(saved.values())} | {len(bad)} |", ""]
    lines += [f"- run {number}, {event}, {kind}: {fault}" for number, event, kind, fault in bad]
    pathlib.Path(asked.write).write_text("\n".join(lines).rstrip() + "\n")
    print("\n".join(lines))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
