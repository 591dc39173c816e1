"""NVIDIA's own binding against a driven C stub of its library: every cell, every error class, lost cards, MIG, events, support that is remembered."""

import os

import pytest

from brim.clock import SystemClock
from brim.hardware import LOOK_NS, Machine
from brim.probes.ask import ask
from brim.probes.nvml_cells import REASON_OF
from brim.values import Missing
from tests.fakes import GIB, Stub, card

PATIENT = 30_000_000_000  # a loaded machine may take its time to start a child; the tests of the deadline set their own


@pytest.fixture
def stub(tmp_path) -> Stub:
    return Stub(tmp_path)


def look(stub: Stub, root: str = "", **options):
    """One look at everything through the real binding in a child process."""
    (stub.path.parent / "root").mkdir(exist_ok=True)
    options.setdefault("deadline_ns", PATIENT)
    return Machine(environ=stub.environ, clock=SystemClock(), root=root or str(stub.path.parent / "root"), **options).look()


def first(stub: Stub, root: str = ""):
    return look(stub, root).devices[0]


CELLS = [
    ("id", "cuda:0"), ("name", "NVIDIA GeForce RTX 3090"), ("uuid", "GPU-0a1b2c3d-0000-4000-8000-000000000000"), ("pci_bus_id", "0000:01:00.0"), ("driver_version", "560.35.03"),
    ("runtime_version", "12.6"), ("compute_capability", "8.6"), ("temperature_c", 61.0), ("slowdown_temperature_c", 95.0), ("shutdown_temperature_c", 98.0),
    ("max_operating_temperature_c", 93.0), ("power_draw_w", 210.0), ("power_limit_w", 350.0), ("power_enforced_w", 350.0), ("power_min_w", 100.0), ("power_max_w", 366.0),
    ("utilisation_percent", 40.0), ("fan_percent", 45), ("clock_sm_mhz", 1700), ("clock_memory_mhz", 9501), ("throttle_reasons", ()), ("persistence", True), ("state", "ok"),
]  # fmt: skip


def test_every_cell_of_a_healthy_card(stub) -> None:
    """Each cell arrives with its unit; v2 memory tells used, reserved and free apart; what a consumer card lacks is not supported."""
    stub.write(card())
    device = first(stub)
    assert [(name, getattr(device, name)) for name, _value in CELLS] == CELLS
    assert (device.memory.total_bytes, device.memory.used_bytes, device.memory.reserved_bytes) == (24 * GIB, GIB, 300 << 20)
    assert device.memory.free_bytes == 23 * GIB - (300 << 20)
    for name in ("memory_temperature_c", "ecc_uncorrected", "remap_pending", "mig"):
        assert getattr(device, name).reason == "not_supported", name
    assert device.sources == ("nvml",)


ERRORS = [
    (3, "not_supported"),
    (4, "denied"),
    (13, "not_supported"),
    (16, "failed"),
    (999, "failed"),
    (10, "failed"),
    (19, "failed"),
    (21, "not_supported"),
    (6, "gone"),
]
FUNCTIONS = [
    ("nvmlDeviceGetTemperatureV", "temperature_c"), ("nvmlDeviceGetPowerUsage", "power_draw_w"), ("nvmlDeviceGetUtilizationRates", "utilisation_percent"),
    ("nvmlDeviceGetFanSpeed", "fan_percent"), ("nvmlDeviceGetPowerManagementLimit", "power_limit_w"), ("nvmlDeviceGetName", "name"), ("nvmlDeviceGetUUID", "uuid"),
    ("nvmlDeviceGetComputeRunningProcesses_v3", "processes"), ("nvmlDeviceGetCudaComputeCapability", "compute_capability"), ("nvmlDeviceGetPciInfo_v3", "pci_bus_id"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "reason"), ERRORS)
def test_one_bad_cell_costs_one_cell(stub, code, reason) -> None:
    """Whatever one function answers, its own cell says so with the right reason and every other cell stands."""
    for at in range(0, len(FUNCTIONS), 5):
        chosen = FUNCTIONS[at : at + 5]
        stub.write(*(card(number, **{f"err.{function}": code}) for number, (function, _field) in enumerate(chosen)))
        devices = look(stub).devices[: len(chosen)]
        assert len(devices) == len(chosen)
        for device, (function, field) in zip(devices, chosen, strict=True):
            value = getattr(device, field)
            if field == "name":
                assert value.startswith("NVIDIA GPU")
            elif function == "nvmlDeviceGetTemperatureV" and reason == "not_supported":
                assert value == 61.0, "the older call answers where the newer is not supported"
            elif code == 13 and field == "processes":
                assert value.reason == "not_supported"
            else:
                assert isinstance(value, Missing), (function, value)
                assert value.reason == reason, function
            assert device.memory.total_bytes == 24 * GIB
            assert device.power_max_w == 366.0


def test_no_error_of_the_binding_is_unmapped() -> None:
    """Every NVML_ERROR_* that the installed binding knows has a reason of ours."""
    pynvml = pytest.importorskip("pynvml")
    codes = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    assert len(codes) > 25
    assert codes - set(REASON_OF) == set()
    assert set(REASON_OF.values()) <= {"not_supported", "denied", "failed", "gone"}


OLD = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons")


def test_an_older_driver(stub) -> None:
    """Where the newer calls are not in the library the older ones answer, and nothing is lost but what they cannot tell."""
    stub.write(card(reasons=4), lines=tuple(f"absent {name}" for name in OLD))
    device = first(stub)
    assert (device.temperature_c, device.throttle_reasons, device.memory.total_bytes) == (61.0, ("power_cap",), 24 * GIB)
    assert device.memory.reserved_bytes.reason == "not_supported"


REASONS = [(0x1, ("idle",)), (0x4, ("power_cap",)), (0x28, ("hardware_slowdown", "software_thermal")), (0x80, ("power_brake",)), (0x40, ("hardware_thermal",))]


@pytest.mark.parametrize(("bits", "words"), REASONS)
def test_throttle_reasons(stub, bits, words) -> None:
    """The bits of NVML's clock event reasons become words."""
    stub.write(card(reasons=bits))
    assert first(stub).throttle_reasons == words


def test_processes_are_named_and_sorted(stub) -> None:
    """The largest holder first, with the name that /proc gives; pids that cannot be are dropped."""
    me = os.getpid()
    stub.write(card(), lines=(f"0.proc {me} 1073741824", "0.proc 4194999 5", "0.proc 0 7", "0.proc 3999999 6549825126"))
    root = stub.path.parent / "root" / "proc" / str(me)
    root.mkdir(parents=True)
    (root / "comm").write_text("python3\n")
    held = first(stub).processes
    assert [(p.pid, p.used_bytes, p.name) for p in held] == [(3999999, 6549825126, ""), (me, GIB, "python3")]


def test_mig_slices(stub) -> None:
    """A split card shows its slices by their own UUID and memory; CUDA sees one of them, and the rest are named as hidden."""
    parent = card(name="NVIDIA A100-SXM4-40GB", total=40 * GIB, mig=1)
    slices = {}
    for number in range(2):
        slices |= {
            f"m{number}.name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            f"m{number}.uuid": f"MIG-{number}1111111-2222",
            f"m{number}.total": 5 * GIB,
            f"m{number}.parent": 0,
        }
    stub.write(parent, slices)
    stub.path.write_text(stub.path.read_text().replace("count 2", "count 1"))
    reading = look(stub)
    device = reading.devices[0]
    assert (device.id, device.mig, device.uuid, device.memory.total_bytes) == ("cuda:0", "slice", "MIG-01111111-2222", 5 * GIB)
    assert device.parent_uuid == "GPU-0a1b2c3d-0000-4000-8000-000000000000"
    assert any("MIG-11111111-2222" in note for note in reading.notes)
    stub.environ["CUDA_VISIBLE_DEVICES"] = "MIG-1111"
    assert look(stub).devices[0].uuid == "MIG-11111111-2222"


LIBRARY = [
    ("nvmlInitWithFlags", 18, "failed", "do not match"),
    ("nvmlInitWithFlags", 9, "failed", "not loaded"),
    ("nvmlInitWithFlags", 4, "denied", ""),
    ("nvmlDeviceGetCount_v2", 999, "failed", ""),
]


@pytest.mark.parametrize(("function", "code", "reason", "words"), LIBRARY)
def test_the_whole_library_fails(stub, tmp_path, function, code, reason, words) -> None:
    """The source says why; a card that the kernel shows keeps its row, its id and its name, with the reason in every cell."""
    stub.write(card(), lines=(f"err.{function} {code}",))
    information = tmp_path / "root" / "proc" / "driver" / "nvidia" / "gpus" / "0000:01:00.0"
    information.mkdir(parents=True)
    (information / "information").write_text("Model: \t\t NVIDIA GeForce RTX 3090\nIRQ:   \t\t 90\nGPU UUID: \t GPU-0a1b2c3d-0000-4000-8000-000000000000\n")
    reading = look(stub)
    assert [(asked.outcome, words in asked.detail) for asked in reading.asked if asked.source == "nvml"] == [(reason, True)]
    device = reading.devices[0]
    assert (device.id, device.name, device.state, device.pci_bus_id) == ("cuda:0", "NVIDIA GeForce RTX 3090", "unreachable", "0000:01:00.0")
    assert device.temperature_c.reason == reason
    assert device.budget.usable_bytes.reason == reason
    assert "no ceiling enforced" in __import__("brim.budget", fromlist=["sentence"]).sentence(device.budget)


@pytest.mark.parametrize(
    "switch", ["delay.nvmlInitWithFlags 30000", "delay.nvmlDeviceGetTemperatureV 30000", "crash.nvmlInitWithFlags 1", "crash.nvmlDeviceGetName 1"]
)
def test_a_hang_or_a_crash_stays_in_the_child(stub, switch) -> None:
    """A library that hangs for 30 s or crashes: brim answers within two seconds with the reason, and the host's row stands."""
    clock = SystemClock()
    stub.write(card(), lines=(switch if "Init" in switch else f"0.{switch}",))
    begun = clock.now_ns()
    reading = look(stub, deadline_ns=1_000_000_000)
    assert clock.now_ns() - begun < 2_000_000_000
    assert LOOK_NS < 1_700_000_000
    nvml = next(asked for asked in reading.asked if asked.source == "nvml")
    assert nvml.outcome == "failed"
    assert nvml.detail.startswith("telemetry unavailable: ")
    assert ("crashed (signal 6)" if "crash" in switch else "no answer within") in nvml.detail
    assert reading.devices[-1].id == "cpu"


def test_a_lingering_child_is_not_joined_by_another(stub, monkeypatch) -> None:
    """While an earlier look still hangs in the driver the source is not asked again: stuck children do not pile up."""
    import brim.probes.ask as room

    monkeypatch.setitem(room._lingering, "nvidia", os.getpid())
    monkeypatch.setattr(room.os, "waitpid", lambda _pid, _flags: (0, 0))
    stub.write(card())
    answer = ask(["nvidia"], root="", wake=False, environment=stub.environ, deadline_ns=10**9, clock=SystemClock())["nvidia"]
    assert (answer.outcome, "still hangs" in answer.detail) == ("failed", True)
