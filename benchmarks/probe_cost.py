"""What looking costs: a cold `brim probe`, one poll of eight stubbed GPUs, and a minute of polling at 1 Hz, beside what people use today, in one run.

The GPUs are the driven stub of `tests/fakes` (its calls are cheaper than a driver's, its values stand still: these are the tools' own costs). CPU is from /proc/PID/stat of the whole
process tree (user + system, children that ended included); RSS is the largest seen. Tools that are not installed here are named as such. Nothing is asserted.

    python benchmarks/probe_cost.py [--seconds 60] [--with-tools DIR] [--write docs/evidence/probe-cost.md]

DIR may hold `bin/gpustat`, `bin/nvitop` and `earlyoom` (Debian's package, unpacked).
"""

import argparse
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.cold_start import compile_bytecode  # noqa: E402 - the path is set first
from tests.fakes import Stub, card  # noqa: E402

from brim.probes.vigil import library as built  # noqa: E402

TICK = os.sysconf("SC_CLK_TCK")
POLL = """
import os, sys, time
from brim.clock import SystemClock
from brim.hardware import Machine
clock = SystemClock()
eyes = Machine(environ=os.environ, clock=clock)
began, poll = clock.now_ns(), 0
while True:
    eyes.read(clock.now_ns())
    poll += 1
    clock.sleep_ns(max(0, began + poll * 1_000_000_000 - clock.now_ns()))
"""
FOLLOW = """
import os
from brim.clock import SystemClock
from brim.hardware import Machine
for reading in Machine(environ=os.environ, clock=SystemClock()).follow():
    pass
"""
SLEEPER = "#include <time.h>\nint main(void) { for (;;) { struct timespec second = {1, 0}; nanosleep(&second, 0); } }\n"
ONCE = """
import ctypes, statistics, sys, time
from brim.probes.nvml import Nvml
from brim.hardware import Machine
from brim.clock import SystemClock
import os
eyes = Machine(environ=os.environ, clock=SystemClock())
for at in range(3):
    eyes.read(at)
took = []
for at in range(2000):
    begun = time.process_time_ns()
    eyes.read(at * 1_000_000_000)
    took.append(time.process_time_ns() - begun)
probe = Nvml(); probe.open(); probe.read(1)
bare = []
for at in range(2000):
    begun = time.process_time_ns()
    probe.read(at * 1_000_000_000)
    bare.append(time.process_time_ns() - begun)
print(statistics.mean(took) / 1e6, statistics.mean(bare) / 1e6)
"""
SMI = 'echo "0, NVIDIA GeForce RTX 3090, 24576, 1024, 61, 210.5"\n'


LINES: list[str] = []
WORDS = """
`brim follow` is `Machine.follow` (`brim probe --watch`): every card and the host's memory are asked at each poll, and a reading is made when one of them moved by more than its tolerance (`docs/probes.md`) and each minute; the loop that asks is C.
`brim Machine.read` makes a whole reading in Python at each poll, with every cell, whatever moved. The stub's values stand still: over cards at work, `follow` reads at each poll as `Machine.read` does, and costs what it costs.
CPU is by the scheduler's own count, except where processes are started per poll (ticks). A program that has slept for a second finds its code and data out of the processor's caches: the rows of C and Python that only sleep are what that costs here.
"""


def say(line: str) -> None:
    """Print a line and keep it for the written table."""
    print(line)
    LINES.extend(line.split("\n"))


def tree(pid: int) -> list[int]:
    """The process and its living descendants."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
            except OSError:
                continue
    found, queue = [], [pid]
    while queue:
        one = queue.pop()
        found.append(one)
        queue += parents.get(one, [])
    return found


def spent(pid: int) -> tuple[float, int]:
    """(CPU seconds of the tree with ended children, resident bytes of the tree)."""
    ticks = resident = 0
    for one in tree(pid):
        try:
            with open(f"/proc/{one}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            with open(f"/proc/{one}/statm") as file:
                resident += int(file.read().split()[1]) * 4096
        except OSError:
            continue
        ticks += sum(int(fields[at]) for at in (11, 12, 13, 14))
    return ticks / TICK, resident


def schedstat(pid: int) -> float:
    """CPU seconds of one process and its threads, from the scheduler (finer than ticks)."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[0])
    except OSError:
        pass
    return total / 1e9


def cold(commands: dict[str, list[str]], environ: dict[str, str], rounds: int) -> None:
    """Medians of whole processes, interleaved."""
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            taken[name].append(time.perf_counter() - begun)
    base = statistics.median(next(iter(taken.values())))
    say(f"\n{'cold start, no GPU':44} {'median':>10} {'ratio':>7}")
    for name, seconds in taken.items():
        say(f"{name:44} {statistics.median(seconds) * 1e3:7.1f} ms {statistics.median(seconds) / base:7.2f}")


def _held(value: float, bar: float) -> str:
    return "within" if value <= bar else "BEYOND"


def minute(commands: dict[str, list[str]], environ: dict[str, str], seconds: float) -> None:
    """All tools at once, each polling at 1 Hz; CPU over the time after a start of 3 s."""
    running = {}
    for name, command in commands.items():
        try:
            running[name] = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as fault:
            say(f"{name}: not here ({fault.strerror})")
    time.sleep(3)
    first = {name: (spent(child.pid)[0], schedstat(child.pid)) for name, child in running.items()}
    begun, peak = time.perf_counter(), dict.fromkeys(running, 0)
    while time.perf_counter() - begun < seconds:
        time.sleep(min(5.0, seconds))
        for name, child in running.items():
            peak[name] = max(peak[name], spent(child.pid)[1])
    took = time.perf_counter() - begun
    say(f"\n{f'{took:.0f} s of polling at 1 Hz':44} {'CPU of a core':>14} {'RSS':>14} {'ratio':>7}")
    base = 0.0
    bars: list[str] = []
    for name, child in running.items():
        if child.poll() is not None:
            say(f"{name:44} ended with {child.returncode}")
            continue
        whole, fine = spent(child.pid)[0] - first[name][0], schedstat(child.pid) - first[name][1]
        share = (whole if "process per poll" in name else fine) / took * 100
        base = base or share
        say(f"{name:44} {share:12.3f} % {peak[name] / (1 << 20):10.1f} MiB {share / base if base else 0:6.1f}×")
        if name.startswith("brim") and "process per poll" not in name:
            bars.append(f"{name}: {_held(share, 0.1)} 0.1 % of a core, {_held(peak[name], 30 << 20)} 30 MiB")
    say("\nthe bar of each\n" + "\n".join(bars))
    for child in running.values():
        try:
            os.killpg(child.pid, 15)
            child.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            child.kill()


def sleeper(folder: str) -> list[str]:
    """A C program that only sleeps, a second at a time: the floor of the machine. Nothing where no compiler is here."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        say("no C compiler is here: without the row of a program that only sleeps, and without brim's own loop")
        return []
    source, program = pathlib.Path(folder) / "sleeper.c", str(pathlib.Path(folder) / "sleeper")
    source.write_text(SLEEPER)
    subprocess.run([compiler, "-O2", "-o", program, str(source)], check=True)
    return [program]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--with-tools", default="")
    parser.add_argument("--write", default="")
    asked = parser.parse_args()
    compile_bytecode()
    python = sys.executable
    bare = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "NVML_STUB")} | {"PYTHONPATH": str(ROOT / "src")}
    cold({"python -c pass (the baseline)": [python, "-c", "pass"], "python -c 'import argparse, json'": [python, "-c", "import argparse, json"],
          "brim probe": [python, "-m", "brim", "probe"], "brim probe --json": [python, "-m", "brim", "probe", "--json"]}, bare, asked.rounds)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        stub = Stub(pathlib.Path(folder))
        stub.write(
            *(card(n, name="NVIDIA A100-SXM4-80GB", ecc=0, remap_pending=0, remap_failed=0, mig=0, mem_temp=70, fan=None) for n in range(8)),
            lines=tuple(f"{n}.proc {4000 + n} 1073741824" for n in range(8)),
        )
        script = pathlib.Path(folder) / "nvidia-smi"
        script.write_text("#!/bin/sh\n" + SMI)
        script.chmod(0o755)
        tools = asked.with_tools
        environ = bare | {
            "LD_LIBRARY_PATH": stub.environ["LD_LIBRARY_PATH"],
            "NVML_STUB": stub.environ["NVML_STUB"],
            "NVML_STUB_TTL_MS": "3600000",  # it reads its file once: that is not what the tools do
            "PATH": f"{folder}:{os.environ['PATH']}",
            "TERM": "xterm",
        }
        machine, library = subprocess.run([python, "-c", ONCE], env=environ, capture_output=True, text=True, check=True).stdout.split()
        say(
            f"\none poll of 8 stubbed GPUs, in process: {float(library):.3f} ms CPU by the NVML room, {float(machine):.3f} ms with host, thread, pools and budgets"
        )
        spawn = "while :; do nvidia-smi --query-gpu=index,name,memory.total,memory.used,temperature.gpu,power.draw --format=csv,noheader,nounits >/dev/null; sleep 1; done"
        commands = {
            "python, sleep(1) in a loop (the baseline)": [python, "-S", "-c", "import time\nwhile True: time.sleep(1)"],
            "C, nanosleep(1 s) in a loop (the floor)": sleeper(folder),
            "brim follow (8 GPUs, host memory)": [python, "-c", FOLLOW],
            "brim Machine.read each second": [python, "-c", POLL],
            "nvidia-smi (a shell script), process per poll": ["/bin/sh", "-c", spawn],
            "brim probe, process per poll": ["/bin/sh", "-c", f"while :; do {python} -m brim probe >/dev/null; sleep 1; done"],
        }
        if tools:
            commands["gpustat -i 1"] = [f"{tools}/bin/python", "-m", "gpustat", "-i", "1", "--no-color"]
            commands["nvitop ResourceMetricCollector, 1 s"] = [
                f"{tools}/bin/python", "-c", "import time\nfrom nvitop import Device, ResourceMetricCollector\nc = ResourceMetricCollector(Device.all(), interval=1.0)\nc.activate('a')\nwhile True:\n  c.collect()\n  time.sleep(1)"
            ]  # fmt: skip
            commands["earlyoom (host memory only)"] = [f"{tools}/earlyoom", "-r", "0", "-m", "1", "--dryrun"]
        if not built():
            say("brim's loop was not built here: `brim follow` is polled by the interpreter")
        minute({name: command for name, command in commands.items() if command}, environ, asked.seconds)
    if asked.write:
        load = os.getloadavg()[0]
        stamp = time.strftime("%d %b %Y", time.gmtime())
        title = f"# What looking costs\n\nWritten by `benchmarks/probe_cost.py` on {stamp}: {os.cpu_count()} CPUs, {platform.system()} {platform.release()}, Python {platform.python_version()}, load {load:.1f}.\n"
        pathlib.Path(asked.write).write_text(title + "\n```\n" + "\n".join(LINES).strip("\n") + "\n```\n" + WORDS)


if __name__ == "__main__":
    main()
