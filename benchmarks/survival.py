"""Who ends with a complete checkpoint? brim, earlyoom, nohang and nobody, side by side, on a job that grows while it saves.

    python benchmarks/survival.py [--trials N] [--rates 0.2,0.5,0.8,0.95,1,2,3] [--tools brim_coop,…] [--write docs/evidence/governor-survival.md]

The cliff is a real v1 memory cgroup of our own (the kernel kills at its limit); every tool has the same gap in MiB between its threshold and the cliff. The system-wide
killers run in a PID namespace of their own, where they see the machine's memory and can signal nothing but the hog. Needs root, cgroup v1 memory, gcc; earlyoom and nohang
are unpacked from Debian's packages (never installed). Peak memory: the cliff, and for nohang a ballast that brings the machine to its highest threshold (50 %).
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
CLIFF, GAP, BASE, SAVE_MS = 2048, 1024, 256, 1000
FLAT_CLIFF, FLAT_BASE = 5376, 4096
TOOLS = ("brim_coop", "brim_plain", "brim_settled", "earlyoom", "nohang", "nobody")
CALM_MIB = 256
SETTLED_S = 6.0  # brim_settled: a plain job that is flat for so long before it grows, so that the forecast may be believed
AHEAD_S, GIVE_S = 1.0, 0.25  # warm pages are given back this much before the hog needs them
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "brim-bench"


def meminfo(key="MemAvailable"):
    """One line of /proc/meminfo in MiB."""
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) // 1024
    raise KeyError(key)


def own_group():
    """The folder of our own v1 memory cgroup; None where there is none that we may make groups in."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if "memory" in names.split(","):
            folder = pathlib.Path("/sys/fs/cgroup/memory" + path.rstrip("/"))
            return folder if os.access(folder, os.W_OK) and (folder / "memory.limit_in_bytes").exists() else None
    return None


@contextlib.contextmanager
def yard(limit_mib):
    """A memory cgroup with a limit, taken away afterwards together with whoever is still in it."""
    parent = own_group()
    assert parent is not None, "no cgroup v1 memory controller here that we may use"
    folder = parent / f"brim-yard-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(limit_mib << 20))
        yield folder
    finally:
        for _ in range(100):
            left = [int(pid) for path in folder.rglob("cgroup.procs") for pid in path.read_text().split()]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.02)
        for path in sorted((path.parent for path in folder.rglob("cgroup.procs")), key=lambda each: -len(each.parts)):
            for _ in range(50):
                with contextlib.suppress(OSError):
                    path.rmdir()
                if not path.exists():
                    break
                time.sleep(0.02)


def oom_kills(folder):
    """How often the kernel killed in this group and those below it."""
    total = 0
    for path in folder.rglob("memory.oom_control"):
        total += next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith("oom_kill "))
    return total


class Hold:
    """A process that holds touched memory: a ballast, or pages that are kept warm for the hog and given back piece by piece.

    Private memory in huge pages, as the hog's own: what is given back is what the hog gets next. A virtual machine hands pages that were free for two seconds to its
    host, and the first touch of such a page takes ten times as long.
    """

    PIECE_MIB = 64
    CODE = (
        "import ctypes,mmap,sys\nn,piece=int(sys.argv[1]),int(sys.argv[2])<<20\nheld=[]\n"
        "for _ in range(n):\n m=mmap.mmap(-1,piece,flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS)\n m.madvise(14)\n"
        " c=ctypes.c_char.from_buffer(m)\n ctypes.memset(ctypes.addressof(c),1,piece)\n del c\n held.append(m)\n"
        "print('held',flush=True)\nfor line in sys.stdin:\n for _ in range(min(int(line),len(held))): held.pop().close()\n"
    )

    def __init__(self, mib):
        pieces = -(-mib // self.PIECE_MIB)
        words = [sys.executable, "-S", "-c", self.CODE, str(pieces), str(self.PIECE_MIB)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def give(self, mib):
        """Give so much back."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{-(-int(mib) // self.PIECE_MIB)}\n")
            self.process.stdin.flush()

    def end(self):
        self.process.kill()
        self.process.communicate()


def build(folder):
    """Compile the hog."""
    binary = pathlib.Path(folder) / "hog"
    subprocess.run(["gcc", "-O2", "-pthread", "-o", str(binary), str(ROOT / "benchmarks" / "hog.c")], check=True)
    return binary


def debian(name, binary):
    """A program from Debian's package, unpacked into our cache; None where it cannot be had."""
    found = CACHE / name / binary
    if found.exists():
        return found
    (CACHE / name).mkdir(parents=True, exist_ok=True)
    got = subprocess.run(["apt-get", "download", name], cwd=CACHE / name, capture_output=True, check=False)
    for package in (CACHE / name).glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(CACHE / name)], check=True)
    return found if got.returncode == 0 and found.exists() else None


def nohang_conf(folder, soft_mib, hard_mib):
    """nohang's shipped configuration with these thresholds and nothing else that could act."""
    lines = []
    given = {
        "soft_threshold_min_mem": f"{soft_mib} M", "hard_threshold_min_mem": f"{hard_mib} M", "soft_threshold_min_swap": "100 %", "hard_threshold_min_swap": "100 %",
        "warning_threshold_min_mem": "50 %",
    }  # fmt: skip
    for line in (CACHE / "nohang" / "etc/nohang/nohang.conf").read_text().splitlines():
        key = line.split("=")[0].strip()
        lines.append(f"{key} = {given[key]}" if key in given and not line.startswith("#") else line)
    path = pathlib.Path(folder) / "nohang.conf"
    path.write_text("\n".join(lines) + "\n")
    return path


def command(tool, mode, hog, rate, cliff, base, work, group):
    """The whole command of a trial: the hog under one tool, inside the cgroup."""
    job = [
        str(hog),
        mode,
        str(base),
        str(int(rate * 1024)),
        str(cliff + 256),
        str(SAVE_MS),
        str(work),
        *([str(int(SETTLED_S * 1000))] if tool == "brim_settled" and mode != "flat" else []),
    ]
    if tool.startswith("brim"):
        floor = ["--floor", f"{GAP}MiB", "--throttle-margin", "128MiB", "--grace", "10s", "--run-dir", str(work / "run")]
        return ["sh", "-c", 'echo 0 > "$0/cgroup.procs"; exec "$@"', str(group), sys.executable, "-m", "brim", "run", *floor, "--", *job]
    inside = f"(echo 0 > {group}/cgroup.procs; exec {' '.join(job)}) & hog=$!\nwhile [ ! -e {work}/tool ]; do sleep 0.01; done\nsh {work}/tool &\nwait $hog"
    return ["unshare", "-p", "--fork", "--kill-child", "--mount-proc", "sh", "-c", inside]


def tool_line(tool, work, avail, cliff):
    """What starts the killer, with thresholds that leave the same gap: its own at cliff − gap, SIGKILL at the cliff. `avail` in MiB before the hog grows."""
    soft, hard = avail - (cliff - GAP), avail - cliff
    if tool == "earlyoom":
        return f"exec {debian('earlyoom', 'usr/bin/earlyoom')} -M {soft * 1024},{hard * 1024} -r 0 > {work}/tool.log 2>&1"
    if tool == "nohang":
        return f"exec /usr/bin/python3 {debian('nohang', 'usr/sbin/nohang')} -c {nohang_conf(work, soft, hard)} --monitor > {work}/tool.log 2>&1"
    return "true"


def trial(tool, rate, hog, *, flat=False):
    """One trial; a dict of what happened. The caller's environment must let `python -m brim` be found."""
    mode = "flat" if flat else ("coop" if tool == "brim_coop" else "plain")
    cliff, base = (FLAT_CLIFF, FLAT_BASE) if flat else (CLIFF, BASE)
    with tempfile.TemporaryDirectory(prefix="brim-survival-") as name, yard(cliff) as group:
        work = pathlib.Path(name)
        ballast = None
        if tool == "nohang":
            ballast = Hold(max(1, meminfo() - meminfo("MemTotal") // 2 - (cliff - GAP) + 64))
        warm = Hold(cliff + 256)
        environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        with (work / "stderr").open("wb") as err:
            words = command(tool, mode, hog, rate, cliff, base, work, group)
            process = subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True)
        try:
            _until(lambda: (work / "ready").exists() or process.poll() is not None, 20)
            # Who looks at the machine's free memory gets all of what is warm at once, for it must not grow while the hog does; the first two seconds are warm then.
            pieces = tool.startswith("brim") and not flat
            if not pieces:
                warm.give(cliff + 256)
                time.sleep(0.1)
            avail = meminfo()
            if not tool.startswith("brim"):
                (work / "tool").write_text(tool_line(tool, work, avail, cliff))
            time.sleep(0.5 if tool == "nohang" else 0.1)
            settles = tool == "brim_settled" and not flat
            if pieces:
                warm.give(base + (0 if settles else AHEAD_S * rate * 1024))
                time.sleep(0.05)
            (work / "go").touch()
            if settles:
                time.sleep(SETTLED_S - GIVE_S)
                warm.give(AHEAD_S * rate * 1024)
            end = time.monotonic() + 60 + (cliff - base) / 1024 / rate
            while process.poll() is None and time.monotonic() < end:
                time.sleep(GIVE_S if pieces else 0.05)
                if pieces:
                    warm.give(rate * 1024 * GIVE_S)
        finally:
            warm.end()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM if process.poll() is None else 0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if ballast:
                ballast.end()
        found = _outcome(work, group, cliff, flat=flat) | {"tool": tool, "rate": rate, "flat": flat, "exit": process.returncode}
        if tool.startswith("brim") and process.returncode == 9:  # brim takes the job's own group away, and with it the counter that it has read
            found["oom_kills"] = max(found["oom_kills"], 1)
        return found


def _until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)


def _outcome(work, group, cliff, *, flat):
    events = (
        [(line.split()[0], int(line.split()[1]), int(line.split()[2])) for line in (work / "log").read_text().splitlines()] if (work / "log").exists() else []
    )
    first = {}
    for word, at, mib in events:
        first.setdefault(word, (at, mib))
    signal_at = min((first[word] for word in ("asked", "told") if word in first), default=None)
    rate = None
    if "grows" in first:
        first["loaded"] = first["grows"]
    if signal_at and "loaded" in first and signal_at[0] > first["loaded"][0]:
        rate = (signal_at[1] - first["loaded"][1]) / 1024 / ((signal_at[0] - first["loaded"][0]) / 1e9)
    if signal_at and "saved" in first and (rate is None or signal_at[0] - first["loaded"][0] < 200_000_000):
        span = (first["saved"][0] - first["loaded"][0]) / 1e9
        rate = (first["saved"][1] - first["loaded"][1]) / 1024 / span if span > 0 else rate
    saving = None  # pages that the machine has not given out for a while come slowly: what was reached before the signal need not hold after it
    if signal_at and "saved" in first and first["saved"][0] > signal_at[0]:
        saving = (first["saved"][1] - signal_at[1]) / 1024 / ((first["saved"][0] - signal_at[0]) / 1e9)
    load = None
    if "start" in first and "loaded" in first:
        load = (first["loaded"][1] - first["start"][1]) / 1024 / max((first["loaded"][0] - first["start"][0]) / 1e9, 1e-9)
    return {
        "complete": (work / "checkpoint").exists(), "oom_kills": oom_kills(group), "past_mib": None if signal_at is None else signal_at[1] - (cliff - GAP),
        "reached": rate, "saving": saving, "load_rate": load, "alarm": flat and (signal_at is not None or "end" not in first), "stderr": (work / "stderr").read_text(errors="replace")[-2000:],
    }  # fmt: skip


def table(rows):
    """Rows of trials as Markdown, by tool and asked rate."""
    out = [
        "| tool | asked GiB/s | reached GiB/s before the signal (median) | while it saved (median) | trials | ended with a complete checkpoint | kernel OOM kills | MiB past the threshold at the first signal: median (min … max) |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for tool in TOOLS:
        for rate in sorted({row["rate"] for row in rows if not row["flat"]}):
            some = [row for row in rows if row["tool"] == tool and row["rate"] == rate and not row["flat"]]
            if not some:
                continue
            past = [row["past_mib"] for row in some if row["past_mib"] is not None]
            reached = [row["reached"] for row in some if row["reached"] is not None]
            saving = [row["saving"] for row in some if row.get("saving") is not None]
            cells = [
                tool, f"{rate:g}", f"{statistics.median(reached):.2f}" if reached else "–", f"{statistics.median(saving):.2f}" if saving else "–", str(len(some)), f"{sum(row['complete'] for row in some)}/{len(some)}",
                str(sum(row["oom_kills"] for row in some)), f"{statistics.median(past):.0f} ({min(past)} … {max(past)})" if past else "no signal came",
            ]  # fmt: skip
            out.append("| " + " | ".join(cells) + " |")
    flats = [row for row in rows if row["flat"]]
    if flats:
        out += [
            "",
            "A job that loads 4 GiB as fast as it can and then stays flat, 256 MiB above the threshold:",
            "",
            "| tool | trials | load GiB/s (median) | false alarms |",
            "|---|---:|---:|---:|",
        ]
        for tool in TOOLS:
            some = [row for row in flats if row["tool"] == tool]
            if some:
                loads = [row["load_rate"] for row in some if row["load_rate"]]
                out.append(
                    f"| {tool} | {len(some)} | {statistics.median(loads):.2f} | {sum(row['alarm'] for row in some)} |"
                    if loads
                    else f"| {tool} | {len(some)} | – | – |"
                )
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--flat-trials", type=int, default=None)
    parser.add_argument("--rates", default="0.2,0.5,0.8,0.95,1,2,3")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--write")
    parser.add_argument("--rows", help="a JSON-lines file that keeps every trial: rows in it count too, new ones are added")
    asked = parser.parse_args()
    rates, tools = [float(word) for word in asked.rates.split(",")], asked.tools.split(",")
    for name, binary in (("earlyoom", "usr/bin/earlyoom"), ("nohang", "usr/sbin/nohang")):
        if name in tools and debian(name, binary) is None:
            print(f"{name} cannot be had here; left out", file=sys.stderr)
            tools.remove(name)
    rows = [json.loads(line) for line in pathlib.Path(asked.rows).read_text().splitlines()] if asked.rows and pathlib.Path(asked.rows).exists() else []

    def keep(row):
        rows.append(row)
        line = json.dumps({key: value for key, value in row.items() if key != "stderr"})
        print(line, flush=True)
        if asked.rows:
            with pathlib.Path(asked.rows).open("a") as file:
                file.write(line + "\n")

    with tempfile.TemporaryDirectory() as folder:
        hog = build(folder)
        for _ in range(asked.trials):
            for tool in tools:
                for rate in rates:
                    keep(trial(tool, rate, hog))
        for _ in range(asked.trials if asked.flat_trials is None else asked.flat_trials):
            for tool in tools:
                keep(trial(tool, 3, hog, flat=True))
    text = table(rows)
    print(text)
    if asked.write:
        stamp = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        head = f"""# Survival: who ends with a complete checkpoint

Generated by `python benchmarks/survival.py` on {stamp}; {os.cpu_count()} CPUs, {meminfo("MemTotal")} MiB, Linux {platform.release()}, load average {os.getloadavg()[0]:.1f}.
Cliff {CLIFF} MiB (v1 memory cgroup limit), threshold {CLIFF - GAP} MiB, gap {GAP} MiB, a load of {BASE} MiB first; a checkpoint takes {SAVE_MS / 1000:g} s and the job goes on growing while it saves.
So there is time for the checkpoint after the threshold where the rate is at most {GAP / 1024 / (SAVE_MS / 1000):g} GiB/s. A negative number in the last column: the first request came before the threshold (forecast).
earlyoom and nohang: Debian 12's packages, thresholds in MiB with the same gap; they look at the whole machine's MemAvailable.

"""
        pathlib.Path(asked.write).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(asked.write).write_text(head + text + "\n")


if __name__ == "__main__":
    main()
