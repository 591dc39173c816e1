"""Polling NVML in this process: support is remembered, a hang costs one deadline, lost cards keep their rows, XIDs arrive once, stale values are said."""

import ctypes
import importlib
import sys

import pytest

from brim.clock import FakeClock, SystemClock
from brim.facts.device import Device, Memory
from brim.probes import nvml_again
from brim.probes.nvml import SLOW_NS, Nvml
from brim.probes.watch import STALE_POLLS, Watch
from tests.fakes import GIB, Stub, build_stub, card


@pytest.fixture
def polled(tmp_path, monkeypatch):
    """The stub, and the real binding with the stub loaded in its place, in this process."""
    pytest.importorskip("pynvml")
    stub = Stub(tmp_path)
    monkeypatch.setenv("NVML_STUB", str(stub.path))
    sys.modules.pop("pynvml", None)
    binding = importlib.import_module("pynvml")
    binding.nvmlLib = ctypes.CDLL(f"{build_stub()}/libnvidia-ml.so.1")
    yield stub, binding
    sys.modules.pop("pynvml", None)


def opened(binding) -> Nvml:
    probe = Nvml(binding, root="/nowhere")
    probe.open()
    return probe


def test_support_is_remembered(polled) -> None:
    """A function that is not supported is asked once; one that failed is asked again and believed when it answers."""
    stub, binding = polled
    stub.write(card(fan=None, **{"err.nvmlDeviceGetPowerUsage": 999}))
    calls = []
    real = binding.nvmlDeviceGetFanSpeed
    binding.nvmlDeviceGetFanSpeed = lambda *args: (calls.append(1), real(*args))[1]
    probe = opened(binding)
    for poll in range(1, 5):
        device = probe.read(poll * SLOW_NS)[0]
        assert device.fan_percent.reason == "not_supported"
        assert device.power_draw_w.reason == "failed"
    assert len(calls) == 1
    stub.write(card(fan=None))
    assert probe.read(9 * SLOW_NS)[0].power_draw_w == 210.0


def test_a_card_is_lost_and_comes_back(polled) -> None:
    """Case 33: Its row stays with its identity, every reading gone, the fault named; the other card reads on; after a reset it is believed again."""
    stub, binding = polled
    stub.write(card(), card(1))
    probe = opened(binding)
    assert [device.state for device in probe.read(1)] == ["ok", "ok"]
    stub.write(card(lost=1), card(1, temp=70))
    gone, other = probe.read(2)
    assert (gone.id, gone.name, gone.uuid, gone.state) == ("cuda:0", "NVIDIA GeForce RTX 3090", "GPU-0a1b2c3d-0000-4000-8000-000000000000", "lost")
    assert {gone.temperature_c.reason, gone.memory.total_bytes.reason, gone.power_draw_w.reason} == {"gone"}
    assert gone.faults[0].startswith("lost: ")
    assert (other.state, other.temperature_c) == ("ok", 70.0)
    stub.write(card(), card(1))
    assert probe.read(3)[0].state == "ok"


def test_xids_are_faults(polled) -> None:
    """Case 33: An XID arrives with its number on its own card, once, and stays as a fault."""
    stub, binding = polled
    stub.write(card(), card(1))
    probe = opened(binding)
    probe.read(1)
    stub.write(card(), card(1, xid=79, xid_count=1))
    one, two = probe.read(2)
    assert (one.faults, two.faults) == ((), ("xid 79",))
    assert probe.read(3)[1].faults == ("xid 79",)


def test_a_hang_costs_one_deadline() -> None:
    """Case 37: One worker, one deadline; while it hangs nobody waits again and no row is lost; when the call returns the source is believed."""
    import _thread

    gate = _thread.allocate_lock()
    row = Device(id="cuda:0", backend="cuda", name="card", memory=Memory(total_bytes=GIB), temperature_c=50.0, sources=("nvml",))
    state = {"hang": False, "calls": 0}

    def reader(_now: int):
        state["calls"] += 1
        if state["hang"]:
            with gate:
                pass
        return (row,)

    clock = SystemClock()
    watch = Watch("nvml", reader, deadline_ns=50_000_000, clock=clock)
    assert watch.read(1).devices[0].temperature_c == 50.0
    gate.acquire()
    state["hang"] = True
    begun = clock.now_ns()
    answers = [watch.read(2), watch.read(3), watch.read(4)]
    assert clock.now_ns() - begun < 150_000_000
    assert state["calls"] == 2
    for answer in answers:
        device = answer.devices[0]
        assert (answer.outcome, device.id, device.name, device.state, device.temperature_c.reason) == ("failed", "cuda:0", "card", "unreachable", "failed")
        assert "telemetry unavailable" in device.temperature_c.detail
    state["hang"] = False
    gate.release()
    clock.sleep_ns(20_000_000)
    assert watch.read(5).outcome == "answered"


def test_a_library_that_raises_leaves_its_rows() -> None:
    """Whatever the reader raises is the answer of that look only."""
    row = Device(id="cuda:0", backend="cuda", name="card", memory=Memory(total_bytes=GIB), sources=("nvml",))
    looks = iter([(row,), RuntimeError("broken"), (row,)])

    def reader(_now: int):
        step = next(looks)
        if isinstance(step, Exception):
            raise step
        return step

    watch = Watch("nvml", reader, deadline_ns=10**9, clock=SystemClock())
    assert [watch.read(at).outcome for at in (1, 2, 3)] == ["answered", "failed", "answered"]


@pytest.mark.parametrize(("power", "busy", "stale"), [(200.0, 90.0, True), (200.0, 10.0, False), (None, 90.0, False)])
def test_a_value_that_stands_still_under_load_is_stale(power, busy, stale) -> None:
    """Case 27: The same temperature and power for a minute at load are no reading; an idle card, or a whole degree alone, may well stand still."""
    cells = {} if power is None else {"power_draw_w": power}
    row = Device(id="cuda:0", backend="cuda", name="card", memory=Memory(), temperature_c=48.0, utilisation_percent=busy, sources=("nvml",), **cells)
    watch = Watch("nvml", lambda _now: (row,), deadline_ns=10**9, clock=FakeClock())
    for poll in range(STALE_POLLS - 1):
        assert watch.read(poll).devices[0].state == "ok"
    device = watch.read(STALE_POLLS).devices[0]
    assert (device.state == "stale") is stale
    assert (getattr(device.temperature_c, "reason", "") == "failed") is stale


def test_polling_does_not_hold_the_exit(tmp_path) -> None:
    """A program that polled and is done ends at once, also with a call that hangs in the driver at that moment."""
    import os
    import pathlib
    import subprocess

    stub = Stub(tmp_path)
    stub.write(card())
    code = (
        "import os\nfrom brim.clock import SystemClock\nfrom brim.hardware import Machine\neyes = Machine(environ=os.environ, clock=SystemClock(), deadline_ns=30 * 10**9)\n"
        "for at in range(3):\n    print(eyes.read(at).devices[0].temperature_c)\n"
    )
    source = str(pathlib.Path(__file__).parent.parent.parent / "src")
    environ = {**os.environ, "PYTHONPATH": source, "LD_LIBRARY_PATH": stub.environ["LD_LIBRARY_PATH"], "NVML_STUB": stub.environ["NVML_STUB"]}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.split() == ["61.0"] * 3


def test_a_source_that_failed_is_asked_again() -> None:
    """Through a child, and not more often than every half minute; it is read in this process only after a child has answered."""
    from brim.probes.vendor import Answer
    from brim.probes.watch import after_a_child

    row = Device(id="cuda:0", backend="cuda", name="card", memory=Memory(), sources=("nvml",))
    looks = iter([Answer(source="nvidia", outcome="failed", detail="it crashed"), Answer(source="nvidia", outcome="answered")])
    asked, read = [], []

    def look() -> Answer:
        asked.append(1)
        return next(looks)

    def reader(now: int):
        read.append(now)
        return (row,)

    watch = Watch("nvml", after_a_child(reader, look, every_ns=30), deadline_ns=10**9, clock=SystemClock(), known=(row,))
    states = [watch.read(at).devices[0].state for at in (100, 110, 129, 130, 131)]
    assert states == ["unreachable", "unreachable", "unreachable", "ok", "ok"]
    assert (len(asked), read) == (2, [130, 131])


def test_a_library_that_crashed_first_is_believed_later(tmp_path, monkeypatch) -> None:
    """The whole machine: the first look crashes in its child, the card keeps its row; half a minute later it answers, and is read."""
    import os

    import brim.hardware

    room = sys.modules["brim.hardware"]
    assert callable(brim.machine), "the verb stays the verb"
    monkeypatch.setattr(room, "AGAIN_NS", 10)
    stub = Stub(tmp_path)
    stub.write(card(), lines=("crash.nvmlInitWithFlags 1",))
    information = tmp_path / "root/proc/driver/nvidia/gpus/0000:01:00.0"
    information.mkdir(parents=True)
    (information / "information").write_text("Model: NVIDIA GeForce RTX 3090\n")
    monkeypatch.setenv("NVML_STUB", str(stub.path))
    sys.modules.pop("pynvml", None)
    binding = importlib.import_module("pynvml")
    binding.nvmlLib = ctypes.CDLL(f"{build_stub()}/libnvidia-ml.so.1")
    eyes = room.Machine(environ={**os.environ, **stub.environ}, clock=SystemClock(), root=str(tmp_path / "root"), deadline_ns=30 * 10**9)
    assert eyes.read(1).devices[0].state == "unreachable"
    stub.write(card())
    monkeypatch.setattr(room, "POLL_NS", 30 * 10**9)
    eyes._watches = None
    eyes._watch()
    assert eyes.read(2).devices[0].temperature_c == 61.0
    sys.modules.pop("pynvml", None)


def test_polling_leaks_nothing(polled) -> None:
    """Two thousand looks at a card whose readings move leave no file open, and less than a mebibyte more in memory."""
    import os

    stub, binding = polled
    stub.write(card())
    probe = opened(binding)

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    for at in range(300):
        probe.read(at)
    files, before = len(os.listdir("/proc/self/fd")), resident()
    for at in range(2000):
        if at % 100 == 0:
            stub.write(card(temp=40 + at // 100), lines=(f"0.proc {4000 + at} 1073741824",))
        assert probe.read(at * SLOW_NS // 4)[0].state == "ok"
    assert len(os.listdir("/proc/self/fd")) == files
    assert resident() - before < 1 << 20


MOVES = [
    ({"used": 2 * GIB}, (), lambda row: row.memory.used_bytes == 2 * GIB),
    ({"reserved": 301 << 20}, (), lambda row: row.memory.reserved_bytes == 301 << 20),
    ({"temp": 62}, (), lambda row: row.temperature_c == 62.0),
    ({"mem_temp": 71}, (), lambda row: row.memory_temperature_c == 71.0),
    ({"power": 211_000}, (), lambda row: row.power_draw_w == 211.0),
    ({"util": 41}, (), lambda row: row.utilisation_percent == 41.0),
    ({"reasons": 0x80}, (), lambda row: row.throttle_reasons == ("power_brake",)),
    ({}, ("0.proc 4001 1073741824",), lambda row: [entry.pid for entry in row.processes] == [4000, 4001]),
    ({"err.nvmlDeviceGetPowerUsage": 999}, (), lambda row: row.power_draw_w.reason == "failed"),
    ({"err.nvmlDeviceGetMemoryInfo_v2": 4}, (), lambda row: row.memory.free_bytes.reason == "denied"),
    ({"lost": 1}, (), lambda row: row.state == "lost"),
]


@pytest.mark.parametrize(("changes", "lines", "seen"), MOVES)
def test_a_card_that_stood_still_is_seen_to_move(polled, changes, lines, seen) -> None:
    """Each cell, an error of each kind and the loss of the card are seen at the very next look, also where the card was asked straight before; and what comes back is seen, too."""
    stub, binding = polled
    first = ("0.proc 4000 1073741824",)
    stub.write(card(mem_temp=70), lines=first)
    probe = opened(binding)
    rows = [probe.read(poll)[0] for poll in (1, 2, 3, 4)]
    assert rows[1] is rows[3]
    assert probe.cards[0].again is not None
    stub.write(card(**{"mem_temp": 70, **changes}), lines=(*first, *lines))
    assert seen(probe.read(5)[0])
    stub.write(card(mem_temp=70), lines=first)
    assert probe.read(6)[0] == rows[3]
    assert probe.read(7)[0].state == "ok"


def test_a_binding_that_finds_its_functions_otherwise_is_asked_whole(polled, monkeypatch) -> None:
    """Where the library's functions cannot be had, or a driver lists more processes than fit, every look is a whole one and sees the same."""
    stub, binding = polled
    stub.write(card(), lines=tuple(f"0.proc {4000 + n} 1048576" for n in range(20)))
    probe = opened(binding)
    rows = [probe.read(poll)[0] for poll in (1, 2, 3)]
    assert probe.cards[0].again is None
    assert rows[1] is rows[2]
    assert len(rows[2].processes) == 20
    stub.write(card(temp=64))

    def gone(_binding: object, _name: str) -> None:
        raise AttributeError

    monkeypatch.setattr(nvml_again, "function", gone)
    other = opened(binding)
    assert [other.read(poll)[0].temperature_c for poll in (4, 5, 6)] == [64.0] * 3
    assert other.cards[0].again is None
