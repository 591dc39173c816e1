"""Level Zero through a stub of its loader, amdsmi through a stand-in of its binding, Metal through one of libobjc: what each vendor's own library tells."""

import ctypes
import os
import shutil
import subprocess
import types
from typing import ClassVar

import pytest

from brim.clock import SystemClock
from brim.facts.device import Host
from brim.hardware import Machine
from brim.pool import settle_device
from brim.probes import amd, level_zero, metal
from brim.probes.vendor import Unavailable
from brim.values import Missing
from tests.fakes import GIB, HERE, MEMINFO, tree


@pytest.fixture(scope="module")
def loader(tmp_path_factory) -> str:
    """A compiled libze_loader.so.1."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler is here")
    path = str(tmp_path_factory.mktemp("ze") / "libze_loader.so.1")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", path, str(HERE / "ze_stub.c")], check=True, capture_output=True)
    return path


def test_level_zero(loader, monkeypatch) -> None:
    """Memory is summed over a board's modules, the hottest of its sensors counts, a zero is a sensor that dropped out; an integrated GPU has no module and so no total."""
    monkeypatch.delenv("ZE_STUB", raising=False)
    found = level_zero.sysman(loader)
    board, own = found["0000:03:00.0"], found["0000:00:02.0"]
    assert (board["name"], board["total"], board["free"]) == ("Intel(R) Arc(TM) B580 Graphics", 12 * GIB, 3 * GIB)
    assert (board["temperature_c"], board["memory_temperature_c"]) == (66.5, 74.0)
    assert (own["name"], "total" in own, "temperature_c" in own) == ("Intel(R) Graphics", False, False)


def test_level_zero_says_why(loader, monkeypatch) -> None:
    """No permission is denied, not zero; no driver, or no loader at all, is an empty answer."""
    for word, reason in (("denied", "denied"), ("lost", "gone"), ("unsupported", "not_supported")):
        monkeypatch.setenv("ZE_STUB", word)
        assert level_zero.sysman(loader)["0000:03:00.0"]["total"].reason == reason
    monkeypatch.setenv("ZE_STUB", "none")
    assert level_zero.sysman(loader) == {}
    assert level_zero.sysman("/nowhere/libze_loader.so.1") == {}


@pytest.mark.parametrize("how", ["answers", "hang", "crash", "none"])
def test_level_zero_all_the_way(loader, tmp_path, how) -> None:
    """The real loader's name in a child: its numbers beside the kernel's, or within two seconds the kernel's row alone and the reason; one that has no driver is silent."""
    base = "sys/class/drm/card0/device/"
    files = {
        "proc/meminfo": MEMINFO, base + "vendor": "0x8086\n", base + "device": "0xe20b\n", base + "uevent": "PCI_SLOT_NAME=0000:03:00.0\n", base + "lmem_total_bytes": f"{12 * GIB}\n",
    }  # fmt: skip
    environ = {"LD_LIBRARY_PATH": os.path.dirname(loader), "ZE_STUB": how, "PATH": "/usr/bin:/bin"}
    clock = SystemClock()
    begun = clock.now_ns()
    reading = Machine(environ=environ, clock=clock, root=tree(tmp_path, files), deadline_ns=10**9 if how == "hang" else 3 * 10**10).look()
    device = reading.devices[0]
    assert (device.id, device.memory.total_bytes) == ("xpu:0", 12 * GIB)
    if how == "answers":
        assert (device.name, device.memory.free_bytes, device.sources) == ("Intel(R) Arc(TM) B580 Graphics", 3 * GIB, ("level-zero", "sysfs"))
        return
    assert device.sources == ("sysfs",)
    assert isinstance(device.memory.free_bytes, Missing)
    assert how != "hang" or clock.now_ns() - begun < 2 * 10**9
    said = [asked.detail for asked in reading.asked if asked.source == "level-zero"]
    assert [word in " ".join(said) for word in ("no answer within", "the library crashed (signal 6)")] == [how == "hang", how == "crash"]


class Refused(Exception):
    """amdsmi's own kind of error."""

    def __init__(self, code: int) -> None:
        super().__init__(f"Error code:\n\t{code} | AMDSMI_STATUS")
        self.err_code = code


def amdsmi(**answers: object) -> types.SimpleNamespace:
    """The binding's functions and enumerations, with these answers; an answer that is a number is an error code."""

    def call(name: str):
        def answer(*args: object) -> object:
            value = answers.get(name, 2)
            value = value(*args) if callable(value) else value
            if isinstance(value, int) and not isinstance(value, bool) and name != "amdsmi_get_gpu_memory_total":
                raise Refused(value)
            return value

        return answer

    names = ("memory_total", "memory_usage", "asic_info", "device_uuid", "process_list", "total_ecc_count", "device_bdf")
    functions = {f"amdsmi_get_gpu_{name}": call(f"amdsmi_get_gpu_{name}") for name in names}
    enum = types.SimpleNamespace
    return enum(
        amdsmi_init=lambda: None, amdsmi_get_processor_handles=lambda: ["handle"], amdsmi_get_temp_metric=call("amdsmi_get_temp_metric"), **functions,
        AmdSmiTemperatureType=enum(HOTSPOT="hotspot", EDGE="edge", VRAM="vram"), AmdSmiTemperatureMetric=enum(CURRENT=0), AmdSmiMemoryType=enum(VRAM="vram", GTT="gtt"),
    )  # fmt: skip


BOARD = {
    "amdsmi_get_gpu_device_bdf": "0000:83:00.0", "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI300X"}, "amdsmi_get_gpu_device_uuid": "a1ff74a1-0000-1000-80aa",
    "amdsmi_get_temp_metric": lambda _handle, kind, _metric: float({"hotspot": 71, "vram": 58}.get(kind, 0)),
    "amdsmi_get_gpu_process_list": [{"pid": 77, "name": "/opt/python3", "mem": 0, "memory_usage": {"vram_mem": 5 * GIB}}, {"pid": 0, "name": "N/A", "mem": 1}],
    "amdsmi_get_gpu_total_ecc_count": {"uncorrectable_count": 1},
}  # fmt: skip


def test_amdsmi_beside_sysfs(tmp_path) -> None:
    """The kernel gives memory and sensors; amdsmi adds name, UUID, processes and ECC, and fills what the kernel does not tell."""
    base = "sys/class/drm/card0/device/"
    files = {
        base + "vendor": "0x1002\n",
        base + "uevent": "PCI_SLOT_NAME=0000:83:00.0\n",
        base + "mem_info_vram_total": f"{192 * GIB}\n",
        base + "mem_info_vram_used": f"{6 * GIB}\n",
    }
    device = amd.look(tree(tmp_path, files), amdsmi(**BOARD))[0]
    assert (device.name, device.uuid, device.sources) == ("AMD Instinct MI300X", "a1ff74a1-0000-1000-80aa", ("amdsmi", "sysfs"))
    assert (device.memory.free_bytes, device.temperature_c, device.memory_temperature_c) == (186 * GIB, 71.0, 58.0)
    assert [(p.pid, p.used_bytes, p.name) for p in device.processes] == [(77, 5 * GIB, "python3")]
    assert "uncorrected" in settle_device(device, Host()).faults[0]


def test_amdsmi_alone_with_errors(tmp_path) -> None:
    """Without sysfs the card is amdsmi's; each call that is refused is missing with its reason; an APU's carve-out is told from its GTT."""
    sizes = {"vram": 512 << 20, "gtt": 110 * GIB}
    answers = {
        "amdsmi_get_gpu_device_bdf": "0000:c5:00.0", "amdsmi_get_gpu_memory_total": lambda _handle, kind: sizes[kind], "amdsmi_get_gpu_process_list": 10,
        "amdsmi_get_gpu_device_uuid": 31,
    }  # fmt: skip
    device = amd.look(str(tmp_path), amdsmi(**answers))[0]
    assert (device.processes.reason, device.uuid.reason, device.temperature_c.reason, device.ecc_uncorrected.reason) == (
        "denied",
        "gone",
        "not_supported",
        "not_supported",
    )
    assert (device.memory.carve_out_bytes, device.memory.shared_total_bytes, bool(device.soc)) == (512 << 20, 110 * GIB, True)
    settled = settle_device(device, Host(total_bytes=125 * GIB, available_bytes=100 * GIB))
    assert (settled.unified, settled.budget.total_bytes, settled.budget.ever_bytes < 110 * GIB) == (True, 100 * GIB, True)


def test_no_amd_card(tmp_path) -> None:
    """Neither sysfs nor amdsmi shows one: it says so."""
    with pytest.raises(Unavailable, match="no AMD card"):
        amd.look(str(tmp_path), amdsmi(amdsmi_get_gpu_device_bdf=2))


class Objc:
    """libobjc, Metal and libSystem as far as the probe calls them: selectors are numbers, objects too."""

    ANSWERS: ClassVar[dict[bytes, object]] = {
        b"name": 7,
        b"UTF8String": b"Apple M4 Max",
        b"recommendedMaxWorkingSetSize": 48 * GIB,
        b"currentAllocatedSize": GIB,
        b"hasUnifiedMemory": 1,
    }

    def __init__(self, path: str, device: int = 5) -> None:
        self.path = path
        if path == "missing":
            raise OSError(path)
        self.sel_registerName = lambda name: name
        self.MTLCreateSystemDefaultDevice = lambda: device
        self.sysctlbyname = self._sysctl

        def send(_receiver: object, selector: bytes) -> object:
            return self.ANSWERS[selector]

        self.objc_msgSend = send
        for function in (self.sel_registerName, self.MTLCreateSystemDefaultDevice, send):
            function.restype = function.argtypes = None

    @staticmethod
    def _sysctl(_name: bytes, value: object, size: object, _new: object, _length: object) -> int:
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int64))[0] = 57344
        ctypes.cast(size, ctypes.POINTER(ctypes.c_size_t))[0] = 8
        return 0


def test_metal() -> None:
    """recommendedMaxWorkingSetSize is the total; it is unified because Metal says so; the wired limit is shown and not used."""
    answers = metal.ask(Objc)
    assert answers == {"name": "Apple M4 Max", "recommended": 48 * GIB, "allocated": GIB, "unified": True, "wired_limit_mb": 57344}
    device = settle_device(metal.device_of(answers), Host(total_bytes=64 * GIB, available_bytes=40 * GIB))
    assert (device.id, device.unified, device.unified_because) == ("metal:0", True, "Metal says hasUnifiedMemory")
    assert (device.budget.total_bytes, device.budget.now_bytes) == (48 * GIB, 40 * GIB)
    assert "57344" in device.warnings[0]
    assert isinstance(metal.device_of({**answers, "recommended": 0}).memory.total_bytes, Missing)


def test_metal_without_a_device() -> None:
    """No framework is not supported, no device (no session) is gone; off a Mac nothing is tried."""
    with pytest.raises(Unavailable) as fault:
        metal.ask(lambda path: Objc(path, device=0))
    assert fault.value.reason == "gone"
    with pytest.raises(Unavailable) as fault:
        metal.ask(lambda _path: Objc("missing"))
    assert fault.value.reason == "not_supported"
