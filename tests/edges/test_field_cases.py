"""Oddities that real machines showed, each as a test named by its number in the list of field cases (docs/probes.md): what was read, and what brim makes of it."""

import json
import os
import struct

import pytest

from brim.budget import sentence
from brim.clock import SystemClock
from brim.facts.device import Device, Host, Memory, Process, Reading
from brim.hardware import Machine
from brim.masks import masked
from brim.pool import settle, settle_device
from brim.probes import amd, intel, smi, tegra
from brim.values import Missing
from brim.visible import visible_devices, visible_environment
from tests.fakes import GIB, MEMINFO, Stub, card, tree
from tests.fakes import smi as fake_smi

AVAILABLE = 100000000 * 1024
TOTAL = 131072000 * 1024
NOT_SUPPORTED = Missing(reason="not_supported", detail="Not Supported")


@pytest.fixture
def stub(tmp_path) -> Stub:
    return Stub(tmp_path)


@pytest.fixture
def root(tmp_path) -> str:
    """A machine with 125 GiB of RAM, of which 95 are available, and nothing else."""
    return tree(tmp_path / "root", {"proc/meminfo": MEMINFO})


def look(environ, root: str, **options) -> Reading:
    options.setdefault("deadline_ns", 30_000_000_000)  # a loaded machine may take its time; the tests of the deadline set their own
    return Machine(environ=environ, clock=SystemClock(), root=root, **options).look()


GB10 = {"name": "NVIDIA GB10", "total": None, "used": None, "reserved": None, "cc": 121, "fan": None, "slowdown": None, "shutdown": None, "gpu_max": None}


def test_01_gb10_memory_is_not_supported(stub, root) -> None:
    """Case 1: Both memory calls answer NOT_SUPPORTED: the row stays, the device is unified, its budget is what the host has available, used is the sum over its processes."""
    stub.write(card(**GB10), lines=("0.proc 4000 2147483648", "0.proc 4001 1073741824"))
    device = look(stub.environ, root).devices[0]
    assert (device.unified, device.name, device.temperature_c, device.power_draw_w) == (True, "NVIDIA GB10", 61.0, 210.0)
    assert "GB10" in device.unified_because
    assert isinstance(device.memory.total_bytes, Missing)
    assert (device.memory.available_bytes, device.memory.used_bytes) == (AVAILABLE, 3 * GIB)
    assert (device.budget.total_bytes, device.budget.usable_bytes) == (AVAILABLE, AVAILABLE - AVAILABLE // 10)
    assert "one pool with the host" in sentence(device.budget)


def test_01_gb10_by_nvidia_smi(tmp_path, root) -> None:
    """Case 1: The same part by nvidia-smi, which prints [N/A] for its memory."""
    row = "0, NVIDIA GB10, GPU-1, 0000000F:01:00.0, 580.95, [N/A], [N/A], [N/A], [N/A], 44, [N/A], 5.00, [N/A], [N/A], [N/A], [N/A], [N/A], 0, [N/A], 208, [N/A], 0x1, [N/A], [N/A], Enabled, 12.1"
    device = look(fake_smi(tmp_path, f"echo '{row}'\n"), root).devices[0]
    assert (device.unified, device.temperature_c, device.memory.available_bytes, device.state) == (True, 44.0, AVAILABLE, "ok")


def test_03_the_total_of_a_unified_device_is_no_budget(stub, root) -> None:
    """Case 3: A part that gives all of RAM as its total is still budgeted by what is available now, and the pool is counted once: the host's own row shows the same bytes."""
    stub.write(card(**{**GB10, "total": TOTAL, "used": 0, "reserved": 0}))
    device, host = look(stub.environ, root).devices
    assert device.budget.total_bytes == AVAILABLE < TOTAL
    assert host.memory.available_bytes == device.memory.available_bytes


@pytest.mark.parametrize(
    ("device", "unified"),
    [
        (Device(id="cuda:0", backend="cuda", name="NVIDIA GB10", memory=Memory(total_bytes=NOT_SUPPORTED), soc="the driver calls it NVIDIA GB10"), True),
        (Device(id="cuda:0", backend="cuda", name="NVIDIA RTX A2000", memory=Memory(total_bytes=NOT_SUPPORTED)), False),
        (
            Device(id="cuda:0", backend="cuda", name="NVIDIA GB10", memory=Memory(total_bytes=Missing(reason="gone", detail="lost")), soc="x", state="lost"),
            False,
        ),
        (Device(id="cuda:0", backend="cuda", name="NVIDIA GB10", memory=Memory(total_bytes=Missing(reason="denied", detail="no")), soc="x"), False),
        (Device(id="cuda:0", backend="cuda", name="A100 MIG", memory=Memory(total_bytes=NOT_SUPPORTED), soc="x", mig="slice"), False),
    ],
)
def test_05_not_supported_alone_is_not_unified(device, unified) -> None:
    """Case 5: Only "not supported" on a part that is known to be integrated means one pool; a lost card, a denied call, a MIG slice or an ordinary card does not."""
    settled = settle_device(device, Host(total_bytes=TOTAL, available_bytes=AVAILABLE))
    assert settled.unified is unified
    assert isinstance(settled.budget.usable_bytes, int) is unified
    assert ("no ceiling enforced" in sentence(settled.budget)) is not unified


def test_07_jetson_says_success_and_zeros(stub, tmp_path) -> None:
    """Case 7: NVML succeeds with zeros and garbage pids: temperature and load come from the kernel, zeros are no totals, pids that are not alive here are dropped."""
    me = os.getpid()
    files = {
        "proc/meminfo": MEMINFO, "proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0", "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
        "sys/class/thermal/thermal_zone1/type": "gpu-thermal\n", "sys/class/thermal/thermal_zone1/temp": "48250\n", "sys/devices/platform/17000000.gpu/load": "730\n",
        f"proc/{me}/comm": "python3\n",
    }  # fmt: skip
    root = tree(tmp_path / "root", files)
    stub.write(
        card(name="Orin (nvgpu)", total=0, used=0, reserved=0, temp=0, util=0),
        lines=("0.proc 0 5", "0.proc 4194400 9", "0.proc 1935 7", f"0.proc {me} 5368709120"),
    )
    devices = look(stub.environ, root).devices
    assert [device.id for device in devices] == ["cuda:0", "cpu"]
    device = devices[0]
    assert (device.unified, device.temperature_c, device.utilisation_percent) == (True, 48.25, 73.0)
    assert [process.pid for process in device.processes] == [me]
    assert device.budget.total_bytes == AVAILABLE
    alone = tegra.look(root)[0]
    assert (alone.name, alone.temperature_c) == ("NVIDIA Jetson AGX Orin Developer Kit", 48.25)


ODD = [4294967295, 65535, 255]


@pytest.mark.parametrize("odd", ODD)
def test_09_a_number_of_all_ones_is_no_reading(stub, root, odd) -> None:
    """Case 9: all ones in 8, 16 or 32 bits where a sensor has nothing to say is no temperature, power or load: it stops nobody, and the card's other cells stand."""
    stub.write(
        card(temp=odd, mem_temp=odd, power=odd * 1000, limit=odd * 1000, max=odd * 1000, util=odd, slowdown=odd, shutdown=odd, fan=odd if odd > 255 else None)
    )
    device = look(stub.environ, root).devices[0]
    cells = (device.temperature_c, device.memory_temperature_c, device.slowdown_temperature_c, device.shutdown_temperature_c, device.utilisation_percent)
    assert {cell.reason for cell in cells} == {"failed"}
    assert odd == 255 or {cell.reason for cell in (device.power_draw_w, device.power_limit_w, device.power_max_w)} == {"failed"}
    assert not isinstance(device.fan_percent, int)
    assert (device.state, device.memory.total_bytes, device.power_min_w) == ("ok", 24 * GIB, 100.0)


@pytest.mark.parametrize("word", ["-1", "nan", "inf", "1e400", "18446744073709551615", "17592186044415", "[Unknown Error]"])
def test_09_an_impossible_word_of_nvidia_smi_is_no_number(word) -> None:
    """Case 9: whatever nvidia-smi prints in a column, it is a number that can be, or missing; the row stands and no budget is made of it."""
    columns = (
        "index",
        "name",
        "total",
        "used",
        "free",
        "temperature_c",
        "power_draw_w",
        "utilisation_percent",
        "fan_percent",
        "clock_sm_mhz",
        "ecc_uncorrected",
    )
    (row,) = smi.parse(", ".join(["0", "RTX", *[word] * 9]), columns)
    device = settle_device(row, Host(total_bytes=TOTAL, available_bytes=AVAILABLE))
    cells = [device.memory.total_bytes, device.memory.free_bytes, device.memory.used_bytes, *(getattr(device, name) for name in columns[5:])]
    assert all(isinstance(cell, Missing) for cell in cells), cells
    assert isinstance(device.budget.usable_bytes, Missing)


def test_09_wsl_all_ones_per_process(stub, root) -> None:
    """Case 9: The sentinel of all ones is not sixteen exbibytes: attribution is missing with its reason, the card's own total stands."""
    stub.write(card(), lines=("0.proc 1234 na",))
    device = look(stub.environ, root).devices[0]
    assert device.processes[0].used_bytes.reason == "not_supported"
    assert (device.memory.total_bytes, device.memory.used_bytes) == (24 * GIB, GIB)


def test_11_the_library_itself_crashes(stub, root) -> None:
    """Case 11: A segfault inside libnvidia-ml is "telemetry unavailable"; brim lives and the host's row stands."""
    stub.write(card(), lines=("crash.nvmlInitWithFlags 1",))
    reading = look(stub.environ, root)
    assert "telemetry unavailable: the library crashed" in next(asked.detail for asked in reading.asked if asked.source == "nvml")
    assert reading.devices[-1].budget.usable_bytes == TOTAL - TOTAL // 5


def test_13_dedicated_memory_is_the_ceiling(stub, root) -> None:
    """Case 13: A driver that would spill into system memory changes nothing: the budget never counts more than the card's own free memory."""
    stub.write(card(total=16 * GIB, used=0, reserved=0))
    budget = look(stub.environ, root).devices[0].budget
    assert budget.total_bytes == 16 * GIB
    assert budget.ever_bytes < 16 * GIB


def test_15_mig_parent_is_denied(stub, root) -> None:
    """Case 15: No permission on the parent's memory: the slice answers with its own; the parent's cell says denied, not zero."""
    slices = {"m0.name": "NVIDIA H100 MIG 1g.10gb", "m0.uuid": "MIG-5a5a", "m0.total": 10 * GIB, "m0.parent": 0}
    stub.write(card(name="NVIDIA H100 80GB HBM3", mig=1, **{"err.nvmlDeviceGetMemoryInfo_v2": 4, "err.nvmlDeviceGetMemoryInfo": 4}), slices)
    stub.path.write_text(stub.path.read_text().replace("count 2", "count 1"))
    devices = look(stub.environ, root).devices
    assert (devices[0].uuid, devices[0].memory.total_bytes) == ("MIG-5a5a", 10 * GIB)
    alone = look({**stub.environ, "CUDA_VISIBLE_DEVICES": "GPU-0a1b"}, root).devices[0]
    assert (alone.mig, alone.memory.total_bytes.reason) == ("enabled", "denied")


CARDS = tuple(
    Device(
        id=f"cuda:{n}",
        backend="cuda",
        name="NVIDIA RTX A6000",
        memory=Memory(),
        index=n,
        physical_index=n,
        uuid=f"GPU-{n}{n}aa-bb",
        pci_bus_id=f"0000:0{n}:00.0",
    )
    for n in range(3)
)
LISTS = [
    (None, [0, 1, 2]), ("", []), ("0", [0]), ("2,1", [2, 1]), ("0,2,-1,1", [0, 2]), ("0,foo,1", [0]), ("foo", []), ("7", []), ("0,0", []), (" 1 , 0 ", [1, 0]), ("1gpu2,2ampere", [1, 2]),
    ("GPU-11aa-bb", [1]), ("GPU-2", [2]), ("GPU-", []), ("GPU-22aa-bb,GPU-0", [2, 0]), ("GPU-11,0", [1]), ("0,GPU-11", [0]), ("MIG-1234", []), ("0-2", [0]), ("-1", []), ("0,,1", [0]), ("NoDevFiles", []),
]  # fmt: skip


@pytest.mark.parametrize(("listed", "order"), LISTS)
def test_17_every_form_of_cuda_visible_devices(listed, order) -> None:
    """Case 17: Ordinals, full and short UUIDs, MIG ids; an entry that is not valid hides the rest, as CUDA does; nothing raises."""
    shown, notes = visible_devices(CARDS, listed)
    assert [device.physical_index for device in shown] == order
    assert [device.id for device in shown] == [f"cuda:{n}" for n in range(len(order))]
    assert bool(notes) is (len(order) < 3)


def test_17_a_prefix_of_two_uuids_names_none() -> None:
    """Case 17: A short UUID must be unique."""
    twins = tuple(card.replace(uuid=f"GPU-aa{n}") for n, card in enumerate(CARDS))
    assert visible_devices(twins, "GPU-aa")[0] == ()


def test_19_the_visible_ordinal_is_not_the_physical_one(stub, root) -> None:
    """Case 19: With CUDA_VISIBLE_DEVICES=1, cuda:0 is the second card, and its numbers are the second card's."""
    stub.write(card(temp=40), card(1, temp=70, used=5 * GIB))
    device = look({**stub.environ, "CUDA_VISIBLE_DEVICES": "1"}, root).devices[0]
    assert (device.id, device.physical_index, device.pci_bus_id, device.temperature_c) == ("cuda:0", 1, "0000:02:00.0", 70.0)


AMD = tuple(
    Device(id=f"rocm:{n}", backend="rocm", name="MI210", memory=Memory(), index=n, physical_index=n, uuid=f"GPU-{n}abc", pci_bus_id=f"0000:0{n}:00.0")
    for n in range(3)
)
XPU = tuple(device.replace(id=f"xpu:{n}", backend="xpu") for n, device in enumerate(AMD))
MASKS = [
    ({}, [0, 1, 2]), ({"ROCR_VISIBLE_DEVICES": "2,0"}, [2, 0]), ({"ROCR_VISIBLE_DEVICES": "GPU-1ABC"}, [1]), ({"HIP_VISIBLE_DEVICES": "1"}, [1]),
    ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [2]), ({"CUDA_VISIBLE_DEVICES": "1"}, [1]), ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, [0]),
    ({"HIP_VISIBLE_DEVICES": ""}, []), ({"HIP_VISIBLE_DEVICES": "-1"}, []), ({"ROCR_VISIBLE_DEVICES": "0,7,1"}, [0]), ({"HIP_VISIBLE_DEVICES": "GPU-1abc"}, []), ({"ZE_AFFINITY_MASK": "1"}, [0, 1, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "order"), MASKS)
def test_19_the_same_for_amd(environ, order) -> None:
    """Case 19: ROCm's and HIP's lists, one within the other, renumber the cards; what a governed job is given shows exactly its card, whatever list the user had."""
    shown, notes = masked(AMD, environ)
    assert [device.physical_index for device in shown] == order
    assert [device.id for device in shown] == [f"rocm:{n}" for n in range(len(order))]
    assert bool(notes) is (len(order) < 3)
    own = visible_environment(shown[-1:])
    if shown:
        assert own == {"ROCR_VISIBLE_DEVICES": f"GPU-{order[-1]}abc", "HIP_VISIBLE_DEVICES": "0"}
        assert [device.physical_index for device in masked(AMD, {**environ, **own})[0]] == order[-1:]


def test_19_the_same_for_intel_and_beside_nvidia() -> None:
    """Case 19: Level Zero's mask, also with tiles; CUDA's list is about NVIDIA's card where there is one."""
    for mask, order in (("1", [1]), ("2.0,2.1,0", [2, 0]), ("", [0, 1, 2]), ("x", [])):
        assert [device.physical_index for device in masked(XPU, {"ZE_AFFINITY_MASK": mask})[0]] == order
    assert masked((*AMD, CARDS[0]), {"CUDA_VISIBLE_DEVICES": "0"})[0] == (*AMD, CARDS[0])


def test_19_amd_on_the_machine(tmp_path) -> None:
    """Case 19: `brim probe` with HIP_VISIBLE_DEVICES=1 shows the second card as rocm:0, and says what is hidden."""
    files = {"proc/meminfo": MEMINFO}
    for n, bus in ((0, "03"), (1, "83")):
        base = f"sys/class/drm/card{n}/device/"
        files |= {
            base + "vendor": "0x1002\n",
            base + "uevent": f"PCI_SLOT_NAME=0000:{bus}:00.0\n",
            base + "mem_info_vram_total": f"{(n + 1) * GIB}\n",
            base + "mem_info_vram_used": "0\n",
        }
    reading = look({"HIP_VISIBLE_DEVICES": "1", "PATH": "/usr/bin:/bin"}, tree(tmp_path, files))
    assert [(device.id, device.memory.total_bytes) for device in reading.devices][:1] == [("rocm:0", 2 * GIB)]
    assert len(reading.devices) == 2
    assert "hidden by HIP_VISIBLE_DEVICES=1" in reading.notes[0]


def test_19_amd_cards_are_numbered_as_kfd_numbers_them(tmp_path) -> None:
    """Case 19: rocm:0 is KFD's first GPU node, whatever number the display driver gave the card; a card that KFD does not list comes last."""
    files, kfd = {"proc/meminfo": MEMINFO}, "sys/class/kfd/kfd/topology/nodes/"
    for n, bus in ((0, "03"), (1, "83"), (2, "c3")):
        base = f"sys/class/drm/card{n}/device/"
        files |= {base + "vendor": "0x1002\n", base + "uevent": f"PCI_SLOT_NAME=0001:{bus}:00.0\n", base + "mem_info_vram_total": f"{(n + 1) * GIB}\n"}
    files |= {kfd + "0/properties": "cpu_cores_count 64\nsimd_count 0\nlocation_id 0\n"}
    files |= {kfd + f"{n}/properties": f"simd_count 416\nlocation_id {bus << 8}\ndomain 1\n" for n, bus in ((10, 0x83), (9, 0xC3))}
    found = amd.look(tree(tmp_path, files), library=False)
    assert [(device.id, device.pci_bus_id) for device in found] == [("rocm:0", "0001:c3:00.0"), ("rocm:1", "0001:83:00.0"), ("rocm:2", "0001:03:00.0")]


def test_21_a_sleeping_laptop_card_is_not_woken(stub, tmp_path) -> None:
    """Case 21: runtime_status says suspended: the library is not even loaded, the row says asleep; it is woken only where it was named."""
    base = "sys/bus/pci/devices/0000:01:00.0/"
    files = {
        "proc/meminfo": MEMINFO,
        base + "vendor": "0x10de\n",
        base + "class": "0x030000\n",
        base + "device": "0x24dd\n",
        base + "power/runtime_status": "suspended\n",
    }
    root = tree(tmp_path / "root", files)
    stub.write(card(), lines=("crash.nvmlInitWithFlags 1",))
    device = look(stub.environ, root).devices[0]
    assert (device.state, device.pci_bus_id, device.temperature_c.reason) == ("asleep", "0000:01:00.0", "not_supported")
    stub.write(card())
    assert look(stub.environ, root, wake=True).devices[0].state == "ok"


def test_23_a_fan_and_a_power_meter_in_error(stub, tmp_path, root) -> None:
    """Case 23: ERR! and N/A on one of two cards: a warning on that card only, and the row stands."""
    stub.write(card(**{"err.nvmlDeviceGetFanSpeed": 999, "err.nvmlDeviceGetPowerUsage": 999}), card(1))
    bad, good = look(stub.environ, root).devices[:2]
    assert "fan" in bad.warnings[0]
    assert (bad.fan_percent.reason, good.warnings) == ("failed", ())
    rows = smi.parse("0, A, ERR!, [Unknown Error]\n1, B, 30, 120.5\n", ("index", "name", "fan_percent", "power_draw_w"))
    assert [(row.fan_percent if isinstance(row.fan_percent, float) else row.fan_percent.reason) for row in rows] == ["failed", 30.0]


def test_25_memory_temperature_is_unknown_and_not_cool(stub, root) -> None:
    """Case 25: A consumer card has no memory sensor in NVML: missing with a reason; a card that has one gives it."""
    stub.write(card(), card(1, mem_temp=84))
    consumer, other = look(stub.environ, root).devices[:2]
    assert (consumer.memory_temperature_c.reason, other.memory_temperature_c) == ("not_supported", 84.0)


def test_29_the_drivers_own_share_is_taken_off(stub, root) -> None:
    """Case 29: What the driver keeps is in neither free nor the ceiling that the device could ever give."""
    stub.write(card(total=24 * GIB, used=0, reserved=630 << 20))
    device = look(stub.environ, root).devices[0]
    left = 24 * GIB - (630 << 20)
    assert (device.budget.total_bytes, device.budget.ever_bytes) == (left, left - left // 10)


def test_31_host_pids_in_a_container(stub, root) -> None:
    """Case 31: Pids of another namespace have no name here: who it is stays unknown, what is held stands."""
    stub.write(card(), lines=("0.proc 3999999 1073741824",))
    process = look(stub.environ, root).devices[0].processes[0]
    assert (process.pid, process.name, process.used_bytes) == (3999999, "", GIB)


def test_35_driver_and_library_do_not_match(stub, tmp_path, root) -> None:
    """Case 35: By the library and by nvidia-smi (exit 18): telemetry is lost for a named cause, the budget is unknown and enforces nothing, the card keeps its row."""
    tree(tmp_path / "root", {"proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: NVIDIA A100\nGPU UUID: GPU-77\n"})
    stub.write(card(), lines=("err.nvmlInitWithFlags 18",))
    reading = look(stub.environ, root)
    assert (reading.devices[0].state, reading.devices[0].name, reading.devices[0].uuid) == ("unreachable", "NVIDIA A100", "GPU-77")
    assert "do not match" in sentence(reading.devices[0].budget)
    environ = fake_smi(tmp_path, "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18\n")
    answer = smi.look(environment=environ, deadline_ns=3 * 10**10, clock=SystemClock())
    assert (answer.outcome, answer.code, "do not match" in answer.detail) == ("failed", 18, True)


@pytest.mark.parametrize("how", ["library", "nvidia-smi"])
def test_37_a_call_never_returns(stub, tmp_path, root, how) -> None:
    """Case 37: Behind a deadline in a process of its own, never joined: the answer comes within two seconds and says so."""
    clock = SystemClock()
    stub.write(card(), lines=("0.delay.nvmlDeviceGetMemoryInfo_v2 30000",))
    environ = stub.environ if how == "library" else fake_smi(tmp_path, "exec sleep 30\n")
    begun = clock.now_ns()
    reading = look(environ, root, deadline_ns=1_000_000_000)
    assert clock.now_ns() - begun < 2_000_000_000
    assert any("did not answer" in asked.detail or "no answer within" in asked.detail for asked in reading.asked)


SICK = [({"ecc": 3}, "uncorrected"), ({"remap_pending": 1, "remap_failed": 0}, "reset"), ({"remap_pending": 0, "remap_failed": 1}, "isolate")]


@pytest.mark.parametrize(("cells", "word"), SICK)
def test_39_a_card_with_memory_errors_is_not_healthy(stub, root, cells, word) -> None:
    """Case 39: Uncorrected errors and pending or failed row remapping are faults of that card, each with what to do; a healthy one has none."""
    stub.write(card(name="NVIDIA A100-SXM4-80GB", **cells), card(1, name="NVIDIA A100-SXM4-80GB", ecc=0, remap_pending=0, remap_failed=0))
    sick, well = look(stub.environ, root).devices[:2]
    assert word in " ".join(sick.faults)
    assert well.faults == ()


def test_41_power_limits_are_read_with_their_default_and_range(stub, root) -> None:
    """Case 41: Limit, enforced limit, default and range are apart, so that a limit can be checked after it was set and put back."""
    stub.write(card(limit=250_000, enforced=240_000))
    device = look(stub.environ, root).devices[0]
    assert (device.power_limit_w, device.power_enforced_w, device.power_default_w, device.power_min_w, device.power_max_w) == (
        250.0,
        240.0,
        350.0,
        100.0,
        366.0,
    )


def test_51_an_apu_has_one_pool(tmp_path) -> None:
    """Case 51: A carve-out of 512 MiB beside 110 GiB of GTT: GTT is the pool, bounded by what the host has available, never both added."""
    base = "sys/class/drm/card0/device/"
    metrics = struct.pack("<HBB", 264, 3, 0) + bytes(260)
    files = {
        "proc/meminfo": MEMINFO, base + "vendor": "0x1002\n", base + "device": "0x1586\n", base + "revision": "0xc1\n", base + "uevent": "PCI_SLOT_NAME=0000:c5:00.0\n",
        base + "mem_info_vram_total": f"{512 << 20}\n", base + "mem_info_vram_used": f"{150 << 20}\n", base + "mem_info_gtt_total": f"{110 * GIB}\n",
        base + "mem_info_gtt_used": f"{2 * GIB}\n", base + "gpu_busy_percent": "3\n", base + "gpu_metrics": metrics, base + "hwmon/hwmon4/temp1_input": "51000\n",
        base + "hwmon/hwmon4/temp1_label": "edge\n", base + "hwmon/hwmon4/power1_input": "9000000\n", "usr/share/libdrm/amdgpu.ids": "1586,\tC1,\tAMD Radeon 8060S Graphics\n",
    }  # fmt: skip
    device = look({}, tree(tmp_path, files)).devices[0]
    assert (device.id, device.name, device.unified, device.temperature_c, device.power_draw_w) == ("rocm:0", "AMD Radeon 8060S Graphics", True, 51.0, 9.0)
    assert device.memory.carve_out_bytes == 512 << 20
    assert device.memory.available_bytes == min(108 * GIB, AVAILABLE) == device.budget.total_bytes
    assert device.budget.ever_bytes <= 110 * GIB
    assert "GTT" in device.budget.source


def test_51_a_board_keeps_its_vram(tmp_path) -> None:
    """Case 51: A board has GTT too; its own VRAM is what counts, and its free memory is total less used."""
    base = "sys/class/drm/card1/device/"
    files = {
        "proc/meminfo": MEMINFO, base + "vendor": "0x1002\n", base + "device": "0x744c\n", base + "mem_info_vram_total": "25753026560\n", base + "mem_info_vram_used": "753026560\n",
        base + "mem_info_gtt_total": f"{60 * GIB}\n", base + "mem_info_gtt_used": "0\n", base + "gpu_metrics": struct.pack("<HBB", 120, 1, 3), base + "hwmon/hwmon2/temp2_input": "66000\n",
        base + "hwmon/hwmon2/temp2_label": "junction\n", base + "hwmon/hwmon2/temp2_crit": "110000\n", base + "hwmon/hwmon2/temp3_input": "72000\n",
        base + "hwmon/hwmon2/temp3_label": "mem\n", base + "hwmon/hwmon2/power1_average": "212000000\n", base + "hwmon/hwmon2/power1_cap": "339000000\n",
        base + "hwmon/hwmon2/pwm1": "102\n",
    }  # fmt: skip
    device = look({}, tree(tmp_path, files)).devices[0]
    assert (device.unified, device.memory.free_bytes, device.budget.total_bytes) == (False, 25_000_000_000, 25_000_000_000)
    assert (device.temperature_c, device.slowdown_temperature_c, device.memory_temperature_c) == (66.0, 110.0, 72.0)
    assert (device.power_draw_w, device.power_limit_w, device.fan_percent) == (212.0, 339.0, 40.0)


def test_53_more_used_than_there_is(tmp_path) -> None:
    """Case 53: a driver that says more is used, or free, than there is contradicts itself: free is unknown and not zero, the total stands, no budget is made of it."""
    base = "sys/class/drm/card1/device/"
    files = {
        "proc/meminfo": MEMINFO,
        base + "vendor": "0x1002\n",
        base + "device": "0x744c\n",
        base + "mem_info_vram_total": f"{24 * GIB}\n",
        base + "mem_info_vram_used": f"{25 * GIB}\n",
    }
    device = look({}, tree(tmp_path / "amd", files)).devices[0]
    assert (device.memory.total_bytes, device.memory.free_bytes.reason, device.memory.used_bytes.reason) == (24 * GIB, "failed", "failed")
    assert isinstance(device.budget.usable_bytes, Missing)
    base = "sys/class/drm/card0/device/"
    files = {
        base + "vendor": "0x8086\n", base + "device": "0x56a0\n", base + "uevent": "PCI_SLOT_NAME=0000:03:00.0\n", base + "lmem_total_bytes": f"{16 * GIB}\n", base + "lmem_avail_bytes": f"{17 * GIB}\n",
    }  # fmt: skip
    device = settle_device(intel.look(tree(tmp_path / "intel", files), library=False)[0], Host())
    assert (device.memory.total_bytes, device.memory.free_bytes.reason) == (16 * GIB, "failed")
    assert isinstance(device.budget.usable_bytes, Missing)


class NotInstalled:
    """amdsmi as it fails: KeyError at the first call, since its library is not here."""

    def __getattr__(self, name: str) -> object:
        raise KeyError("libamd_smi.so")


def test_51_amdsmi_without_its_library(tmp_path) -> None:
    """Case 51: The binding dies with a KeyError: sysfs answers alone."""
    base = "sys/class/drm/card0/device/"
    files = {
        base + "vendor": "0x1002\n",
        base + "mem_info_vram_total": f"{8 * GIB}\n",
        base + "mem_info_vram_used": "0\n",
        base + "mem_info_gtt_total": f"{4 * GIB}\n",
    }
    device = amd.look(tree(tmp_path, files), NotInstalled())[0]
    assert (device.memory.total_bytes, device.sources) == (8 * GIB, ("sysfs",))


def test_53_an_integrated_intel_gpu_has_no_memory_of_its_own(tmp_path) -> None:
    """Case 53: No memory module at PCI 00:02.0: one pool with the host."""
    base = "sys/class/drm/card0/device/"
    files = {"proc/meminfo": MEMINFO, base + "vendor": "0x8086\n", base + "device": "0x7d55\n", base + "uevent": "DRIVER=i915\nPCI_SLOT_NAME=0000:00:02.0\n"}
    device = look({}, tree(tmp_path, files)).devices[0]
    assert (device.id, device.unified, device.budget.total_bytes) == ("xpu:0", True, AVAILABLE)


def test_53_free_that_never_falls_is_not_believed(tmp_path) -> None:
    """Case 53: A board that says all is free while a process holds some: the sum over its processes is used instead, with a warning; a zero of a sensor is no reading."""
    base = "sys/class/drm/card0/device/"
    files = {
        base + "vendor": "0x8086\n", base + "device": "0x56a0\n", base + "uevent": "PCI_SLOT_NAME=0000:03:00.0\n", base + "lmem_total_bytes": f"{16 * GIB}\n",
        base + "lmem_avail_bytes": f"{16 * GIB}\n", base + "hwmon/hwmon3/temp2_input": "0\n", base + "hwmon/hwmon3/temp2_label": "pkg\n",
    }  # fmt: skip
    device = intel.look(tree(tmp_path, files), library=False)[0]
    assert (device.memory.free_bytes, device.temperature_c.reason) == (16 * GIB, "failed")
    settled = settle_device(device.replace(processes=(Process(pid=9, used_bytes=6 * GIB),)), Host())
    assert settled.memory.available_bytes == settled.budget.total_bytes == 10 * GIB
    assert "all is free" in settled.warnings[0]


def test_47_the_scope_is_named(tmp_path) -> None:
    """Case 47: A container far below its own limit on a full host: what is available is the host's, and both scopes can be read apart."""
    files = {
        "proc/meminfo": "MemTotal: 263730000 kB\nMemAvailable: 900000 kB\n", "proc/self/cgroup": "0::/c\n", "sys/fs/cgroup/c/memory.max": f"{186 * GIB}\n",
        "sys/fs/cgroup/c/memory.current": f"{25 * GIB}\n", "sys/fs/cgroup/c/memory.stat": "anon 1\nfile 0\nshmem 0\n",
    }  # fmt: skip
    reading = look({}, tree(tmp_path, files))
    assert reading.host.available_bytes == 900000 * 1024
    assert (reading.host.cgroup_working_set_bytes, reading.host.cgroup_path) == (25 * GIB, "/sys/fs/cgroup/c/memory.max")
    assert reading.devices[0].budget.ever_bytes == 186 * GIB - 186 * GIB // 5
    assert reading.devices[0].budget.now_bytes == 900000 * 1024


def test_settled_readings_go_out_and_come_back(stub, root) -> None:
    """Whatever was read can be written as JSON and played back as a script: the same devices, the same budgets."""
    from brim.probes.scripted import Script
    from brim.reports.documents import probe as document

    stub.write(card(), card(1, lost=1))
    reading = look(stub.environ, root)
    line = json.dumps({"t": 0, "devices": document(reading.devices, reading.host, ())["devices"], "host": document((), reading.host, ())["host"]})
    devices, host = Script(line).at(5)
    assert (devices, host) == (reading.devices, reading.host)
    assert settle(Reading(at_ns=0, devices=devices, host=host)).devices == reading.devices
