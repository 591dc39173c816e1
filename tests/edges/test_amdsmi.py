"""AMD's real Python binding against a stub of its library: what it answers, what it refuses, what it does not have, and what it never answers."""

import atexit
import ctypes
import functools
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

from brim.clock import SystemClock
from brim.hardware import Machine
from brim.probes import amd
from brim.values import Missing
from tests.fakes import GIB, HERE, MEMINFO, tree

SPEC = importlib.util.find_spec("amdsmi")
pytestmark = pytest.mark.skipif(SPEC is None, reason="the package amdsmi is not installed (it is in the dependency group test)")
BASE = "sys/class/drm/card0/device/"
SYSFS = {
    "proc/meminfo": MEMINFO,
    BASE + "vendor": "0x1002\n",
    BASE + "uevent": "PCI_SLOT_NAME=0000:83:00.0\n",
    BASE + "mem_info_vram_total": f"{192 * GIB}\n",
    BASE + "mem_info_vram_used": f"{6 * GIB}\n",
}
BOARD = (
    "count 1", "0.bus 0x83", "0.name AMD_Instinct_MI300X", "0.uuid a1ff74a1-0000-1000-80aa-0123456789ab", f"0.vram {192 * GIB}", f"0.vram_used {6 * GIB}", f"0.gtt {500 * GIB}", "0.gtt_used 0",
    "0.hotspot 71", "0.mem 58", "0.ecc 0", f"0.proc 77 {5 * GIB}", "0.proc 0 1",
)  # fmt: skip


@functools.cache
def build() -> str:
    """The folder of a compiled libamd_smi.so: the stub, and "not supported" for every other symbol that the binding asks for when it is imported."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler is here to build the stub")
    folder = tempfile.mkdtemp(prefix="brim-amdsmi-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    wrapper = (pathlib.Path(SPEC.origin).parent / "amdsmi_wrapper.py").read_text("utf-8")
    own = set(re.findall(r"^u32 (amdsmi_\w+)\(", (HERE / "amdsmi_stub.c").read_text("utf-8"), re.MULTILINE))
    others = sorted(set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper)) - own)
    assert len(others) > 50
    pathlib.Path(folder, "rest.c").write_text("\n".join(f"unsigned {name}(void) {{ return 2; }}" for name in others))
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", f"{folder}/libamd_smi.so", str(HERE / "amdsmi_stub.c"), f"{folder}/rest.c"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def binding(tmp_path, monkeypatch):
    """The real binding with the stub loaded in its library's place, and what writes the stub's state."""
    path = tmp_path / "amdsmi.txt"
    monkeypatch.setenv("AMDSMI_STUB", str(path))
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libamd_smi.so").symlink_to(f"{build()}/libamd_smi.so")
    for name in [name for name in sys.modules if name.partition(".")[0] == "amdsmi"]:
        monkeypatch.delitem(sys.modules, name)
    found = importlib.import_module("amdsmi")
    assert isinstance(found.amdsmi_wrapper._libraries["libamd_smi.so"] if hasattr(found, "amdsmi_wrapper") else ctypes.CDLL(None), ctypes.CDLL)

    def write(*lines: str) -> None:
        path.write_text("\n".join(lines) + "\n")

    yield found, write
    for name in [name for name in sys.modules if name.partition(".")[0] == "amdsmi"]:
        del sys.modules[name]


def test_a_board_beside_sysfs(binding, tmp_path) -> None:
    """The kernel's memory and sensors; name, UUID, processes and ECC from the binding; a process without a pid is none."""
    found, write = binding
    write(*BOARD)
    device = amd.look(tree(tmp_path / "root", SYSFS), found)[0]
    assert (device.name, device.uuid, device.sources) == ("AMD Instinct MI300X", "a1ff74a1-0000-1000-80aa-0123456789ab", ("amdsmi", "sysfs"))
    assert (device.memory.total_bytes, device.memory.free_bytes, device.temperature_c, device.memory_temperature_c) == (192 * GIB, 186 * GIB, 71.0, 58.0)
    assert [(p.pid, p.used_bytes, p.name) for p in device.processes] == [(77, 5 * GIB, "python3")]
    assert device.ecc_uncorrected == 0


def test_a_board_alone(binding, tmp_path) -> None:
    """In a container without sysfs the card is what the binding tells."""
    found, write = binding
    write(*BOARD)
    device = amd.look(str(tmp_path / "empty"), found)[0]
    assert (device.pci_bus_id, device.memory.total_bytes, device.memory.used_bytes, device.sources) == ("0000:83:00.0", 192 * GIB, 6 * GIB, ("amdsmi",))
    assert not device.soc


CODES = [(1, "failed"), (2, "not_supported"), (3, "not_supported"), (8, "failed"), (9, "failed"), (10, "denied"), (12, "failed"), (30, "failed"), (31, "gone"), (40, "failed"), (56, "failed"), (4294967295, "failed")]  # fmt: skip


@pytest.mark.parametrize(("code", "reason"), CODES)
def test_every_error_is_missing_with_its_reason(binding, tmp_path, code, reason) -> None:
    """amdsmi_status_t as the binding raises it: each cell is missing with its reason and the binding's own words, on one line; no cell takes the row along."""
    found, write = binding
    calls = ("gpu_device_uuid", "temp_metric", "gpu_memory_total", "gpu_memory_usage", "gpu_total_ecc_count", "gpu_process_list", "gpu_asic_info")
    write(*BOARD, *(f"err.amdsmi_get_{call} {code}" for call in calls))
    device = amd.look(str(tmp_path / "empty"), found)[0]
    cells = (
        device.uuid,
        device.temperature_c,
        device.memory_temperature_c,
        device.memory.total_bytes,
        device.memory.used_bytes,
        device.ecc_uncorrected,
        device.processes,
    )
    assert [cell.reason for cell in cells] == [reason] * 7
    assert all("AMDSMI_STATUS_" in cell.detail and "\n" not in cell.detail for cell in cells)
    assert device.name == "AMD GPU 0000:83:00.0"
    beside = amd.look(tree(tmp_path / "root", SYSFS), found)[0]
    assert (beside.memory.free_bytes, beside.processes.reason) == (186 * GIB, reason)


def test_cells_that_are_not_there(binding, tmp_path) -> None:
    """A card without a marketing name is no card called N/A; sentinels of all ones, and a zero of a sensor, are no readings; the hot spot falls back to the edge."""
    found, write = binding
    ones = (1 << 64) - 1
    write("count 1", "0.bus 0x83", f"0.vram {ones}", f"0.vram_used {ones}", "0.edge 44", "0.mem 0", f"0.proc 77 {ones}", f"0.ecc {ones}")
    device = amd.look(str(tmp_path / "empty"), found)[0]
    assert device.name == "AMD GPU 0000:83:00.0"
    assert (device.temperature_c, device.memory_temperature_c.reason) == (44.0, "failed")
    assert (device.memory.total_bytes.reason, device.memory.used_bytes.reason) == ("not_supported", "not_supported")
    assert (device.processes[0].pid, device.processes[0].used_bytes.reason, device.ecc_uncorrected.reason) == (77, "not_supported", "not_supported")
    beside = amd.look(tree(tmp_path / "root", SYSFS), found)[0]
    assert beside.name != "N/A"


@pytest.mark.parametrize("call", ["amdsmi_init", "amdsmi_get_socket_handles", "amdsmi_get_processor_handles", "amdsmi_get_gpu_device_bdf"])
def test_without_a_first_answer_sysfs_stands_alone(binding, tmp_path, call) -> None:
    """Where the library cannot even begin (driver not loaded, device not found) the kernel's row stands."""
    found, write = binding
    write(*BOARD, f"err.{call} 34")
    device = amd.look(tree(tmp_path / "root", SYSFS), found)[0]
    assert (device.sources, device.memory.total_bytes) == (("sysfs",), 192 * GIB)


@pytest.mark.parametrize("how", ["answers", "hangs", "crashes", "no library"])
def test_the_whole_way(tmp_path, how) -> None:
    """`brim probe` with the binding in its child: its answer in full, or within two seconds the kernel's row and the reason; a driver takes nothing along."""
    state = tmp_path / "amdsmi.txt"
    trouble = {"hangs": "delay.amdsmi_get_gpu_asic_info 30000", "crashes": "crash.amdsmi_get_gpu_asic_info 1"}.get(how, "")
    state.write_text("\n".join((*BOARD, trouble)) + "\n")
    environ = {"AMDSMI_STUB": str(state), "LD_LIBRARY_PATH": build() if how != "no library" else str(tmp_path), "PATH": "/usr/bin:/bin"}
    clock = SystemClock()
    begun = clock.now_ns()
    options = {"deadline_ns": 1_000_000_000 if how == "hangs" else 30_000_000_000}
    reading = Machine(environ=environ, clock=clock, root=tree(tmp_path / "root", SYSFS), **options).look()
    device = reading.devices[0]
    assert (device.id, device.memory.total_bytes, device.memory.free_bytes) == ("rocm:0", 192 * GIB, 186 * GIB)
    if how == "answers":
        assert (device.name, device.sources) == ("AMD Instinct MI300X", ("amdsmi", "sysfs"))
        return
    assert device.sources == ("sysfs",)
    assert how != "hangs" or clock.now_ns() - begun < 2_000_000_000
    asked = {asked.source: asked for asked in reading.asked}
    assert (asked["amdsmi and sysfs"].outcome, asked["amdsmi and sysfs"].detail) == ("answered", "1 device via sysfs")
    outcome, word = {
        "hangs": ("failed", "no answer within"),
        "crashes": ("failed", "the library crashed (signal 6)"),
        "no library": ("absent", "sysfs answers without it"),
    }[how]
    assert asked["amdsmi"].outcome == outcome
    assert word in asked["amdsmi"].detail
    assert isinstance(device.processes, Missing)
