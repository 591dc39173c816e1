"""Following a machine: what is news is told at the next poll, the same by the built loop and by whole looks; a hang, a loss and an event come in time; nothing leaks."""

import ctypes
import functools
import importlib
import itertools
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from brim import following
from brim.clock import FakeClock, SystemClock
from brim.facts.device import Device, Host, Memory, Process, Reading
from brim.facts.moves import moved
from brim.following import MOST_SKIPPED, WORTH, Lookout, follow
from brim.probes import nvml, nvml_sights, vigil
from brim.probes.host import HostProbe
from brim.probes.nvml_cells import IS_LOST, REASON_OF
from brim.probes.watch import STALE_POLLS, NvmlReader, Watch
from brim.values import Missing
from tests.fakes import GIB, MEMINFO, Stub, build_stub, card, tree

POLL = 20_000_000
SOURCE = pathlib.Path(__file__).parent.parent.parent / "src"
ONE = ("0.proc 4000 1073741824",)


@functools.cache
def built():
    """The loop, built for this test run."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler is here to build the loop")
    path = tempfile.mkdtemp(prefix="brim-vigil-") + "/libvigil.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", path, str(SOURCE / "brim/probes/vigil.c")], check=True, capture_output=True)
    found = vigil.library(path)
    assert found is not None
    return found


class Rig:
    """A machine of the stub's cards and a host of files, followed in a thread."""

    def __init__(self, folder, *, loop: bool, deadline_ns: int = 10**9) -> None:
        self.stub, self.clock, self.kept = Stub(folder), SystemClock(), []
        self.host = HostProbe(tree(folder / "root", {"proc/meminfo": MEMINFO}))
        self.meminfo = folder / "root/proc/meminfo"
        self.watch = Watch("nvml", NvmlReader("/nowhere", wake=False), deadline_ns=deadline_ns, clock=self.clock)
        self.deadline, self.loop, self.lookout = deadline_ns, loop, None
        self.told: queue.Queue = queue.Queue()
        self.readings, self.thread, self.ended = None, None, threading.Event()
        self.looks = 0

    def read(self, now_ns: int) -> Reading:
        self.looks += 1
        return Reading(at_ns=now_ns, devices=self.watch.read(now_ns).devices, host=self.host.read())

    def eyes(self):
        if not self.loop:
            return None
        self.lookout = found = Lookout(built(), self.host, self.watch, self.clock, deadline_ns=self.deadline)
        keep = found.keep

        def kept(*args, **more):
            self.kept.append(keep(*args, **more))
            return self.kept[-1]

        found.keep = kept
        return found

    def start(self, *, poll_ns: int = POLL, longest_ns: int = 60 * 10**9) -> Reading:
        def run() -> None:
            for reading in follow(self.read, self.eyes, self.clock, poll_ns=poll_ns, longest_ns=longest_ns):
                self.told.put(reading)
                if self.ended.is_set():
                    return

        self.thread = threading.Thread(target=run)
        self.thread.start()
        return self.told.get(timeout=5)

    def settle(self) -> None:
        """Wait until the loop keeps the eyes open; a change is then its to find."""
        if self.loop:
            for _ in range(6):  # no more where every look is a whole one
                looks = self.looks
                time.sleep(0.15)
                if looks == self.looks:
                    return

    def next(self, seconds: float = 5.0) -> Reading:
        return self.told.get(timeout=seconds)

    def until(self, seen, seconds: float = 5.0) -> Reading:
        """The first reading in which this is seen: what moves in two steps may be told twice."""
        end = time.monotonic() + seconds
        while True:
            reading = self.told.get(timeout=max(0.01, end - time.monotonic()))
            if seen(reading):
                return reading

    def end(self) -> None:
        self.ended.set()
        total = int(MEMINFO.split()[4])
        for step in range(200):
            self.available(total - 5_000_000 * (1 + step % 2))
            self.thread.join(timeout=0.1)
            if not self.thread.is_alive():
                return
        raise AssertionError("it does not end")

    def available(self, kib: int) -> None:
        """MemAvailable, rewritten in place."""
        text = self.meminfo.read_text()
        at = text.index("MemAvailable:") + len("MemAvailable:")
        with open(self.meminfo, "r+") as file:
            file.seek(at)
            file.write(f"{kib:12}")


@pytest.fixture
def rig(tmp_path, monkeypatch):
    """Makes rigs over the stub, whose real binding is loaded in this process, and ends them."""
    pytest.importorskip("pynvml")
    monkeypatch.setenv("NVML_STUB", str(tmp_path / "nvml.txt"))
    sys.modules.pop("pynvml", None)
    binding = importlib.import_module("pynvml")
    binding.nvmlLib = ctypes.CDLL(f"{build_stub()}/libnvidia-ml.so.1")
    made = []

    def make(*, loop: bool, **more) -> Rig:
        if loop:
            built()
        made.append(Rig(tmp_path, loop=loop, **more))
        return made[-1]

    yield make
    for one in made:
        if one.thread is not None:
            one.end()
    sys.modules.pop("pynvml", None)


ways = pytest.mark.parametrize("loop", [False, True], ids=["whole looks", "the built loop"])

MOVES = [
    ({"used": GIB + (100 << 20)}, (), lambda row: row.memory.used_bytes == GIB + (100 << 20)),
    ({"reserved": 500 << 20}, (), lambda row: row.memory.reserved_bytes == 500 << 20),
    ({"temp": 63}, (), lambda row: row.temperature_c == 63.0),
    ({"temp": 0}, (), lambda row: row.temperature_c.reason == "failed"),
    ({"mem_temp": 68}, (), lambda row: row.memory_temperature_c == 68.0),
    ({"power": 215_100}, (), lambda row: row.power_draw_w == 215.1),
    ({"power": 204_900}, (), lambda row: row.power_draw_w == 204.9),
    ({"util": 46}, (), lambda row: row.utilisation_percent == 46.0),
    ({"reasons": 0x80}, (), lambda row: row.throttle_reasons == ("power_brake",)),
    ({}, ("0.proc 4001 1048576",), lambda row: [entry.pid for entry in row.processes] == [4000, 4001]),
    ({"lost": 1}, (), lambda row: row.state == "lost"),
    ({"err.nvmlDeviceGetMemoryInfo_v2": 4}, (), lambda row: row.memory.free_bytes.reason == "denied"),
    ({"err.nvmlDeviceGetComputeRunningProcesses_v3": 999}, (), lambda row: row.processes.reason == "failed"),
]
STILL = [{"used": GIB + (90 << 20)}, {"temp": 62}, {"temp": 60}, {"mem_temp": 71}, {"power": 215_000}, {"util": 45}, {"fan": 50}]


@ways
def test_each_cell_that_moves_is_told(rig, loop) -> None:
    """Beyond its tolerance each cell, a process that comes and goes, an error and the loss of a card are told, and again when all is as before; within it nothing is."""
    machine = rig(loop=loop)
    healthy = card(mem_temp=70, ecc=0), card(1)
    machine.stub.write(*healthy, lines=ONE)
    assert machine.start().devices[0].temperature_c == 61.0
    for changes, lines, seen in MOVES:
        machine.settle()
        machine.stub.write(card(**{"mem_temp": 70, "ecc": 0, **changes}), card(1), lines=(*ONE, *lines))
        reading = machine.until(lambda reading, seen=seen: seen(reading.devices[0]))
        assert reading.devices[1].state == "ok"
        machine.stub.write(*healthy, lines=ONE)
        back = machine.until(lambda reading: reading.devices[0].temperature_c == 61.0 and reading.devices[0].power_draw_w == 210.0 and len(_pids(reading)) == 1)
        assert back.devices[0].state == "ok"
    assert not loop or sum(1 for polls in machine.kept if polls and polls >= WORTH) >= len(MOVES)
    for changes in STILL:
        machine.settle()
        machine.stub.write(card(**{"mem_temp": 70, "ecc": 0, **changes}), card(1), lines=ONE)
        with pytest.raises(queue.Empty):
            machine.next(0.2)


def _pids(reading: Reading) -> list[int]:
    held = reading.devices[0].processes
    return [] if isinstance(held, Missing) else [row.pid for row in held]


@ways
def test_each_error_code_is_told(rig, loop) -> None:
    """A cell that fails with any code of nvml.h is told with its reason, and when it answers again; one that is not supported is remembered."""
    machine = rig(loop=loop)
    machine.stub.write(card())
    machine.start()
    for code, reason in sorted(REASON_OF.items()):
        if reason == "not_supported" or code == IS_LOST:
            continue
        machine.settle()
        machine.stub.write(card(**{"err.nvmlDeviceGetPowerUsage": code}))
        machine.until(lambda reading, reason=reason: getattr(reading.devices[0].power_draw_w, "reason", "") == reason)
        machine.stub.write(card())
        machine.until(lambda reading: reading.devices[0].power_draw_w == 210.0)
    machine.settle()
    machine.stub.write(card(**{"err.nvmlDeviceGetPowerUsage": 3}))
    machine.until(lambda reading: getattr(reading.devices[0].power_draw_w, "reason", "") == "not_supported")
    machine.settle()
    machine.stub.write(card(temp=90))
    assert machine.until(lambda reading: reading.devices[0].temperature_c == 90.0).devices[0].power_draw_w.reason == "not_supported"


_XIDS = itertools.count(1)


@ways
def test_events_and_counted_errors_are_told(rig, loop, monkeypatch) -> None:
    """An XID event is heard once, on its own card, and stays; uncorrected errors are told when they are counted."""
    monkeypatch.setattr(nvml_sights, "ECC_NS", 100_000_000)
    monkeypatch.setattr(nvml, "SLOW_NS", 100_000_000)
    machine = rig(loop=loop)
    count = next(_XIDS)
    machine.stub.write(card(), card(1), card(2, ecc=0, xid=79, xid_count=count - 1))
    machine.start()
    machine.settle()
    machine.stub.write(card(), card(1), card(2, ecc=0, xid=79, xid_count=count))
    assert [row.faults for row in machine.next().devices] == [(), (), ("xid 79",)]
    machine.settle()
    machine.stub.write(card(), card(1), card(2, ecc=3, xid=79, xid_count=count))
    assert machine.until(lambda reading: reading.devices[2].ecc_uncorrected == 3).devices[2].faults == ("xid 79",)


@ways
def test_the_hosts_memory_is_told(rig, loop) -> None:
    """MemAvailable beyond a 256th of the total is news; within it, it is none."""
    machine = rig(loop=loop)
    machine.stub.write(card())
    machine.start()
    machine.settle()
    machine.available(99_600_000)
    with pytest.raises(queue.Empty):
        machine.next(0.3)
    machine.available(99_400_000)
    assert machine.next().host.available_bytes == 99_400_000 * 1024


@ways
def test_a_call_that_hangs_is_told_in_time(rig, loop) -> None:
    """Rows are silenced within the deadline and one poll, the library is not asked again before its call has returned, and is believed then."""
    machine = rig(loop=loop, deadline_ns=200_000_000)
    machine.stub.write(card(), card(1))
    machine.start()
    machine.settle()
    begun = time.monotonic()
    machine.stub.write(card(**{"delay.nvmlDeviceGetPowerUsage": 1500}), card(1))
    reading = machine.next()
    assert time.monotonic() - begun < 0.7
    assert [row.state for row in reading.devices] == ["unreachable"] * 2
    assert "telemetry unavailable" in reading.devices[0].temperature_c.detail
    machine.stub.write(card(), card(1))
    back = machine.next()
    assert 1.2 < time.monotonic() - begun < 3
    assert [row.state for row in back.devices] == ["ok", "ok"]
    machine.settle()
    machine.stub.write(card(temp=70), card(1))
    assert machine.next().devices[0].temperature_c == 70.0


def test_a_lost_card_is_kept_an_eye_on(rig) -> None:
    """The loop goes on over the other cards, and hears when the lost one is back."""
    machine = rig(loop=True)
    machine.stub.write(card(), card(1))
    machine.start()
    machine.settle()
    machine.stub.write(card(lost=1), card(1))
    assert [row.state for row in machine.next().devices] == ["lost", "ok"]
    machine.settle()
    machine.stub.write(card(lost=1), card(1, temp=70))
    assert [row.state for row in machine.next().devices] == ["lost", "ok"]
    machine.settle()
    machine.stub.write(card(), card(1, temp=70))
    assert [row.state for row in machine.next().devices] == ["ok", "ok"]
    assert None not in machine.kept


@pytest.mark.parametrize(
    ("name", "field"),
    [("nvmlDeviceGetPowerUsage", "power_draw_w"), ("nvmlDeviceGetTemperatureV", "temperature_c"), ("nvmlDeviceGetUtilizationRates", "utilisation_percent")],
)
def test_a_sensor_that_fails_is_kept_an_eye_on(rig, name, field) -> None:
    """A cell that answers with an error costs no whole looks; another error and the number that comes back are told."""
    machine = rig(loop=True)
    machine.stub.write(card(**{f"err.{name}": 999}), card(1))
    assert getattr(machine.start().devices[0], field).reason == "failed"
    machine.settle()
    machine.stub.write(card(**{f"err.{name}": 4}), card(1))
    assert getattr(machine.next().devices[0], field).reason == "denied"
    machine.settle()
    machine.stub.write(card(), card(1))
    assert isinstance(getattr(machine.next().devices[0], field), float)
    assert None not in machine.kept
    assert sum(1 for polls in machine.kept if polls >= WORTH) >= 2


SLICE = {"m0.parent": 0, "m0.uuid": "MIG-1", "m0.name": "slice", "m0.total": 10 * GIB, "m0.used": GIB, "m0.reserved": 0}
ODD = [
    ({"mig": 1}, tuple(f"{key} {value}" for key, value in SLICE.items()), {}),
    ({"total": None}, (), {}),
    ({}, ("absent nvmlDeviceGetMemoryInfo_v2",), {}),
    ({}, ("absent nvmlDeviceGetTemperatureV", "absent nvmlDeviceGetCurrentClocksEventReasons"), {}),
    ({"power": None, "util": None, "reasons": None}, (), {}),
    ({}, ("0.proc 4000 na",), {}),
    ({"temp": 0}, (), {"temp": 40}),
    ({"err.nvmlDeviceGetMemoryInfo_v2": 999}, (), None),
    ({}, tuple(f"0.proc {4000 + n} 1048576" for n in range(20)), None),
    ({"err.nvmlDeviceGetFieldValues": 999}, (), None),
]


@pytest.mark.parametrize(("odd", "lines", "change"), ODD)
def test_odd_cards_are_followed(rig, odd, lines, change) -> None:
    """Slices, drivers without the newest functions and cells that are not there are the loop's as well (those with None: read whole); what moves is told, and nothing else."""
    machine = rig(loop=True)
    machine.stub.write(card(**odd), card(1), lines=lines)
    machine.start()
    machine.settle()
    while not machine.told.empty():  # what the first look in this process settled
        machine.next()
    machine.stub.write(card(**{**odd, **(change or {"temp": 70})}), card(1), lines=lines)
    assert machine.next(1).devices[0].temperature_c == (change or {"temp": 70}).get("temp", 70)
    with pytest.raises(queue.Empty):
        machine.next(0.1)
    assert (None in machine.kept) is (change is None)


def test_who_follows_hears_now_and_then(rig) -> None:
    """After the longest time a reading comes in any case, with what is asked seldom."""
    machine = rig(loop=True)
    machine.stub.write(card())
    first = machine.start(longest_ns=300_000_000)
    machine.stub.write(card(fan=77))
    assert 0.25 < (machine.next().at_ns - first.at_ns) / 1e9 < 0.6
    assert machine.told.empty()
    assert max(polls for polls in machine.kept if polls is not None) >= WORTH


@pytest.mark.parametrize("lines", [(), ("absent nvmlDeviceGetTemperatureV",)])
def test_values_that_stand_still_under_load_are_stale(rig, lines) -> None:
    """The loop's polls count as looks do, also where the driver has older functions."""
    machine = rig(loop=True)
    machine.stub.write(card(util=90), lines=lines)
    machine.start(poll_ns=2_000_000, longest_ns=400_000_000)
    reading = machine.until(lambda reading: reading.devices[0].state == "stale")
    assert machine.looks < STALE_POLLS // 2
    assert "stale" in reading.devices[0].warnings[0]


def test_nothing_leaks(rig) -> None:
    """Some thousand polls, and followers that come and go, leave neither a file open nor a thread."""
    machine = rig(loop=True)
    machine.stub.write(*(card(n) for n in range(8)))
    machine.start(poll_ns=1_000_000, longest_ns=100_000_000)
    machine.until(lambda _reading: True)
    files, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    for _ in range(20):
        machine.next()
    assert sum(polls or 0 for polls in machine.kept) > 1000
    assert (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))) == (files, threads)
    machine.end()
    machine.thread = None
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        some = follow(machine.read, machine.eyes, machine.clock, poll_ns=1_000_000, longest_ns=5_000_000)
        assert len([next(some) for _ in range(4)]) == 4
        some.close()
    assert len(os.listdir("/proc/self/fd")) == files
    assert len(os.listdir("/proc/self/task")) == threads - 1


class Vain:
    """A lookout that comes back at each poll, as over cards at work."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.tries = clock, []

    def keep(self, _told, poll_ns, _until_ns, *, anew) -> int:
        self.clock.sleep_ns(poll_ns)
        self.tries.append(anew)
        return 0

    def close(self) -> None:
        pass


def test_cards_at_work_are_looked_at_whole() -> None:
    """Where each try is in vain there are ever fewer of them, and a look at each poll as ever."""
    clock, looks = FakeClock(), []
    vain = Vain(clock)

    def read(now_ns: int) -> Reading:
        looks.append(now_ns)
        return Reading(at_ns=now_ns, devices=(), host=Host(total_bytes=GIB, available_bytes=len(looks) * GIB // 8))

    readings = list(itertools.islice(follow(read, lambda: vain, clock, poll_ns=10**9, longest_ns=60 * 10**9), 400))
    assert [one.at_ns for one in readings] == looks
    assert looks[1:] == [at * 10**9 for at in range(len(looks) - 1)]
    assert len(vain.tries) < 400 / MOST_SKIPPED + 8


UNKNOWN = Missing(reason="failed", detail="one")
ROW = Device(
    id="cuda:0", backend="cuda", name="card", memory=Memory(total_bytes=256 * GIB, used_bytes=GIB, free_bytes=9 * GIB, available_bytes=9 * GIB), temperature_c=50.0,
    power_draw_w=100.0, utilisation_percent=10.0, throttle_reasons=(), processes=(Process(pid=7, used_bytes=GIB),),
)  # fmt: skip
NEWS = [
    (ROW.replace(temperature_c=51.0), False), (ROW.replace(temperature_c=51.1), True), (ROW.replace(temperature_c=UNKNOWN), True), (ROW.replace(power_draw_w=105.0), False),
    (ROW.replace(power_draw_w=94.9), True), (ROW.replace(utilisation_percent=15.0), False), (ROW.replace(utilisation_percent=4.0), True), (ROW.replace(state="stale"), True),
    (ROW.replace(throttle_reasons=("idle",)), True), (ROW.replace(faults=("xid 79",)), True), (ROW.replace(processes=()), True), (ROW.replace(processes=UNKNOWN), True),
    (ROW.replace(processes=(Process(pid=7, used_bytes=2 * GIB),)), False), (ROW.replace(processes=(Process(pid=7, used_bytes=2 * GIB + 1),)), True),
    (ROW.replace(processes=(Process(pid=7, used_bytes=UNKNOWN),)), True), (ROW.replace(processes=(Process(pid=7, used_bytes=GIB, name="x"),)), False),
    (ROW.replace(memory=ROW.memory.replace(used_bytes=2 * GIB)), False), (ROW.replace(memory=ROW.memory.replace(used_bytes=2 * GIB + 1)), True),
    (ROW.replace(memory=ROW.memory.replace(free_bytes=UNKNOWN)), True), (ROW.replace(memory=ROW.memory.replace(total_bytes=255 * GIB)), True), (ROW.replace(fan_percent=50.0), False),
    (ROW.replace(uuid="GPU-2"), True),
]  # fmt: skip


@pytest.mark.parametrize(("after", "news"), NEWS)
def test_what_is_news(after, news) -> None:
    """Each tolerance at its edge, and everything that is news at once."""
    host = Host(total_bytes=GIB, available_bytes=GIB // 2)
    assert moved(Reading(at_ns=0, devices=(ROW,), host=host), Reading(at_ns=1, devices=(after,), host=host)) is news


def test_what_is_news_of_the_host() -> None:
    """Memory and swap beyond a 256th of the total; words that tell why something is missing may change; a device more or less is news."""
    host = Host(total_bytes=256, available_bytes=100, swap_free_bytes=9)
    before = Reading(at_ns=0, devices=(ROW,), host=host)
    for changes, news in (
        ({"available_bytes": 101}, False),
        ({"available_bytes": 98}, True),
        ({"swap_free_bytes": 7}, True),
        ({"psi_full_avg10": 50.0}, False),
    ):
        assert moved(before, before.replace(host=host.replace(**changes))) is news, changes
    silent = before.replace(devices=(ROW.replace(temperature_c=UNKNOWN),))
    assert not moved(silent, silent.replace(devices=(ROW.replace(temperature_c=UNKNOWN.replace(detail="two")),)))
    assert moved(silent, silent.replace(devices=(ROW.replace(temperature_c=Missing(reason="gone", detail="one")),)))
    assert moved(before, before.replace(devices=()))


FOLLOWING = """
import os, sys, time
from brim import following
from brim.clock import SystemClock
from brim.hardware import Machine
from brim.probes import vigil
loop = vigil.library(sys.argv[1])
vigil.library = lambda: loop
for reading in Machine(environ=os.environ, clock=SystemClock(), deadline_ns=30 * 10**9).follow():
    print(time.monotonic(), *(device.state for device in reading.devices if device.backend == "cuda"), flush=True)
"""


@pytest.mark.slow
def test_a_hang_of_half_a_minute_and_the_exit(tmp_path) -> None:
    """The whole machine at a poll a second: that it stood still itself is no news; the reading with silenced rows comes within two seconds of the driver's first hang, and the program ends at
    once when it is told to."""
    stub = Stub(tmp_path)
    stub.write(card(), card(1))
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "LD_LIBRARY_PATH": stub.environ["LD_LIBRARY_PATH"], "NVML_STUB": stub.environ["NVML_STUB"]}
    with subprocess.Popen([sys.executable, "-c", FOLLOWING, built()._name], env=environ, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline().split()[1:] == ["ok", "ok"]
        time.sleep(2)
        child.send_signal(signal.SIGSTOP)
        time.sleep(3)
        child.send_signal(signal.SIGCONT)
        time.sleep(1)
        begun = time.monotonic()
        stub.write(card(**{"delay.nvmlDeviceGetUtilizationRates": 30_000}), card(1))
        line = child.stdout.readline().split()
        while line[1:] == ["ok", "ok"]:
            line = child.stdout.readline().split()
        assert line[1:] == ["unreachable"] * 2
        assert 0 < float(line[0]) - begun < 2.2  # the wait for the poll, its deadline, and what a busy machine takes
        child.terminate()
        child.wait(timeout=2)


def test_without_the_loop_every_look_is_whole(monkeypatch, tmp_path) -> None:
    """Where it was not built nothing is missed: there is no lookout."""
    monkeypatch.setattr(following.vigil, "library", lambda: None)
    host = HostProbe(tree(tmp_path, {"proc/meminfo": MEMINFO}))
    host.read()
    assert following.lookout(host, None, SystemClock(), deadline_ns=1) is None
