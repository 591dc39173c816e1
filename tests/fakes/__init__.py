"""Stand-ins that tests drive: a C stub of NVIDIA's library, scripts in nvidia-smi's place, trees in the kernel's place."""

import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

HERE = pathlib.Path(__file__).parent
GIB = 1 << 30


@functools.cache
def build_stub() -> str:
    """The folder of a compiled libnvidia-ml.so.1; built once per test run."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler is here to build the NVML stub")
    folder = tempfile.mkdtemp(prefix="brim-nvml-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", f"{folder}/libnvidia-ml.so.1", str(HERE / "nvml_stub.c"), "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def card(number: int = 0, **changes: object) -> dict[str, object]:
    """The lines of one healthy RTX 3090; a value of None takes the line away, so that the driver answers not supported."""
    values: dict[str, object] = {
        "name": "NVIDIA GeForce RTX 3090", "uuid": f"GPU-{number}a1b2c3d-0000-4000-8000-00000000000{number}", "pci": f"00000000:0{number + 1}:00.0", "total": 24 * GIB,
        "used": GIB, "reserved": 300 << 20, "temp": 61, "power": 210_000, "limit": 350_000, "enforced": 350_000, "min": 100_000, "max": 366_000, "default": 350_000, "util": 40,
        "reasons": 0, "fan": 45, "sm_clock": 1700, "mem_clock": 9501, "slowdown": 95, "shutdown": 98, "gpu_max": 93, "mig": None, "persistence": 1, "cc": 86,
    }  # fmt: skip
    values.update(changes)
    return {f"{number}.{key}": value for key, value in values.items() if value is not None}


class Stub:
    """The driven library: `write` replaces the whole state in one rename, also while a program runs."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "nvml.txt"
        self.environ = {"PATH": str(folder / "bin"), "LD_LIBRARY_PATH": build_stub(), "NVML_STUB": str(self.path)}

    def write(self, *cards: dict[str, object], driver: str = "560.35.03", lines: "tuple[str, ...]" = ()) -> None:
        rows = [
            f"driver {driver}",
            "nvml 12.560.35.03",
            "cuda 12060",
            f"count {len(cards)}",
            *(f"{key} {value}" for item in cards for key, value in item.items()),
            *lines,
        ]
        new = self.path.with_suffix(".new")
        new.write_text("\n".join(rows) + "\n")
        os.replace(new, self.path)


def smi(folder: pathlib.Path, body: str) -> dict[str, str]:
    """An environment in which `nvidia-smi` is this shell script."""
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + body)
    program.chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}


def tree(root: pathlib.Path, files: "dict[str, str | bytes]") -> str:
    """Files under a root, as a stand-in for /proc and /sys."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(root)


MEMINFO = "MemTotal:       131072000 kB\nMemFree:        1000000 kB\nMemAvailable:   100000000 kB\nShmem:            2000 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n"
