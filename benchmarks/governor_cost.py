"""What the governor costs while nothing happens, and how fast it reacts when something does. Writes docs/evidence/governor-cost.md.

    python benchmarks/governor_cost.py [--seconds 30] [--trials 20] [--write docs/evidence/governor-cost.md]

Idle: CPU time (utime + stime, and the scheduler's own nanoseconds) of the brim process over a job that sleeps, at 1 Hz, against a Python that only sleeps. Reaction: a job in its own
cgroup touches the page that crosses the floor and waits for the directive (kernel notification → page); and a plain job whose cgroup brim may not make waits for SIGTERM (poll → signal).
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

from cold_start import compile_bytecode

ROOT = pathlib.Path(__file__).parent.parent
LOOKS = {"1s": 1, "100ms": 10}  # polls → looks a second: looks that follow each other closely find their code and data in the caches
BASELINE = "baseline: python, sleep(1) in a loop"
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
# Fills to 8 MiB above the floor, settles, then touches 16 MiB and says how long it took until the directive was there (cooperative) or SIGTERM came (plain).
JOB = """
import ctypes, mmap, os, signal, sys, time
kind, budget, floor = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hit = [0]
signal.signal(signal.SIGTERM, lambda *a: hit.__setitem__(0, time.monotonic_ns()))
if kind == "coop":
    from brim import client, control
    client.phase("loading")
    words = client._words
def held():
    rss = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
    return (int(rss["RssAnon"].split()[0]) + int(rss["RssShmem"].split()[0])) * 1024
own = [line.split(":")[2].strip() for line in open("/proc/self/cgroup") if ":memory:" in line]
group = f"/sys/fs/cgroup/memory{own[0]}" if kind == "coop" and own else ""
def now_held():  # as brim reckons it: the group's working set less mapped files
    if not group: return held()
    stat = dict(line.split() for line in open(group + "/memory.stat"))
    mapped = max(0, int(stat["total_mapped_file"]) - int(stat.get("total_shmem", 0)))
    return int(open(group + "/memory.usage_in_bytes").read()) - int(stat["total_inactive_file"]) - min(int(stat["total_active_file"]), mapped)
whole = mmap.mmap(-1, budget); at = 0
base = ctypes.addressof(ctypes.c_char.from_buffer(whole))
while now_held() < budget - floor - (8 << 20):
    ctypes.memset(base + at, 1, 1 << 20); at += 1 << 20
time.sleep(2.5)
most = at + (40 << 20)
def grow_on():  # a job that grows does not stop at the very page
    global at
    if at < most:
        ctypes.memset(base + at, 1, 1 << 16); at += 1 << 16
    if kind != "coop": return time.sleep(0.0002)
    end = time.monotonic_ns() + 200_000  # it computes: a sleep of its own would be measured, too (milliseconds on a virtual machine that has to be woken)
    while words[control.W_DIRECTIVE] & 255 < client.CHECKPOINT and time.monotonic_ns() < end: pass
before = words[control.W_DIRECTIVE] if kind == "coop" else 0
t0 = 0
while not t0:
    ctypes.memset(base + at, 1, 1 << 18); at += 1 << 18
    if now_held() > budget - floor: t0 = time.monotonic_ns()
if kind == "coop":
    end = t0 + 10**10
    while words[control.W_DIRECTIVE] & 255 < client.CHECKPOINT and time.monotonic_ns() < end: grow_on()
    hit[0] = time.monotonic_ns()
else:
    while not hit[0]: grow_on()
open(sys.argv[4], "w").write(str((hit[0] - t0) / 1e6))
"""


WORK = "end = time.monotonic() + 2.5\nwhile time.monotonic() < end: pass"
BUSY = [sys.executable, "-S", "-c", "while True: pass"]


def cpu_ns(pid):
    """User and system time of a process so far, by the scheduler (nanoseconds, all its threads)."""
    return sum(int((pathlib.Path(f"/proc/{pid}/task") / task / "schedstat").read_text().split()[0]) for task in os.listdir(f"/proc/{pid}/task"))


def rss_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def idle(seconds, job, polls):
    """(percent of a core, RSS in MiB) of brim over `job`, and of a Python that sleeps a second at a time beside it."""
    with tempfile.TemporaryDirectory() as folder:
        rows = {}
        words = {
            f"brim run --poll {poll}": [sys.executable, "-m", "brim", "run", "--run-dir", f"{folder}/{poll}", "--poll", poll, "--", *job] for poll in polls
        } | {
            BASELINE: [sys.executable, "-S", "-c", "import time\nwhile True: time.sleep(1)"],
        }
        running = {name: subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for name, command in words.items()}
        time.sleep(8)
        began, spent = time.monotonic(), {name: cpu_ns(process.pid) for name, process in running.items()}
        time.sleep(seconds)  # all at once, so that what the machine does to one it does to the other
        for name, process in running.items():
            rows[name] = ((cpu_ns(process.pid) - spent[name]) / 1e9 / (time.monotonic() - began) * 100, rss_mib(process.pid))
        for process in running.values():
            process.terminate()
            process.wait(30)
        return rows


def react(kind, trials, poll, source=JOB):
    """Milliseconds of each trial; a shell around brim takes its right to make cgroups away for the plain one."""
    found = []
    for _ in range(trials):
        with tempfile.TemporaryDirectory() as folder:
            budget, floor = 256 << 20, 64 << 20
            run = [
                sys.executable,
                "-m",
                "brim",
                "run",
                "--run-dir",
                f"{folder}/run",
                "--poll",
                poll,
                "--memory-budget",
                f"cpu={budget}",
                "--floor",
                str(floor),
                "--throttle-margin",
                "1",
                "--grace",
                "3s",
            ]
            job = [sys.executable, "-S", "-c", source, kind, str(budget), str(floor), f"{folder}/took"]
            words = [*run, "--", *job]
            if kind == "plain":
                hide = 'for m in memory unified; do mount -o remount,bind,ro /sys/fs/cgroup/$m; done; exec "$@"'
                words = ["unshare", "-m", "sh", "-c", hide, "sh", *words]
            subprocess.run(words, env=ENV, capture_output=True, timeout=60, check=False)
            path = pathlib.Path(folder) / "took"
            if path.exists():
                found.append(float(path.read_text()))
            else:
                report = pathlib.Path(folder) / "run" / "report.json"
                print("no figure:", json.loads(report.read_text())["reason"] if report.exists() else "no report", file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--write")
    asked = parser.parse_args()
    compile_bytecode()
    stamp = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        "# What the governor costs and how fast it is", "",
        f"Generated by `python benchmarks/governor_cost.py --seconds {asked.seconds} --trials {asked.trials}` on {stamp}; {os.cpu_count()} CPUs, Linux {platform.release()}, load average {os.getloadavg()[0]:.1f}.", "",
        "| beside | idle | % of a core | × baseline | ms of CPU a second | RSS MiB | wanted |", "|---|---|---:|---:|---:|---:|---|",
    ]  # fmt: skip
    for what, job, polls in (("a job that sleeps", ["sleep", "3600"], LOOKS), ("a job that computes", BUSY, ["1s"])):
        found = idle(asked.seconds, job, polls)
        base = found[BASELINE][0]
        lines += [
            f"| {what} | {name} | {percent:.3f} | {percent / base:.1f} | {percent * 10:.2f} | {rss:.1f} | {'≤ 0.1 %, ≤ 30 MiB' if name.endswith('1s') else '–'} |"
            for name, (percent, rss) in found.items()
        ]
    lines += ["", "| reaction | trials | median ms | 90 % | worst | wanted |", "|---|---:|---:|---:|---:|---|"]
    for name, kind, poll, wanted, source in (
        ("kernel notification → directive on the page, the job slept before", "coop", "1s", "median ≤ 5 ms", JOB),
        ("the same, the job computed before", "coop", "1s", "median ≤ 5 ms", JOB.replace("time.sleep(2.5)", WORK)),
        ("poll → signal, no cgroup of its own, poll 200 ms", "plain", "200ms", "≤ poll + 10 ms", JOB),
    ):
        found = sorted(react(kind, asked.trials, poll, source))
        if found:
            lines.append(f"| {name} | {len(found)} | {statistics.median(found):.1f} | {found[int(len(found) * 0.9)]:.1f} | {found[-1]:.1f} | {wanted} |")
        else:
            lines.append(f"| {name} | 0 | – | – | – | {wanted} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.write:
        pathlib.Path(asked.write).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(asked.write).write_text(text)


if __name__ == "__main__":
    main()
