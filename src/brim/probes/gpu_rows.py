"""Asks once for the rows of every NVIDIA card, with a deadline, or takes them from a script of readings; it translates and never decides."""

import contextlib
import os

from brim.errors import Usage
from brim.facts.device import device_from
from brim.probes.scripted import content, reading
from brim.units import MIB
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COLUMNS = (
    ("name", "name"),
    ("memory.total", "memory_total_mb"),
    ("memory.free", "memory_free_mb"),
    ("power.limit", "power_limit_w"),
    ("temperature.gpu", "temperature_c"),
)
DEADLINE_S = 10.0


def nvidia_smi(deadline_s: float = DEADLINE_S) -> "tuple[tuple[str, ...], list[dict[str, Any]], str]":
    """(command, rows, error) of one `nvidia-smi` query. Memory in MiB, power in W, temperature in °C, as the tool prints them.

    The error is the tool's own text. The deadline kills the tool's whole process group, so a child that keeps the pipe open cannot hold us.
    """
    import subprocess

    command = ("nvidia-smi", f"--query-gpu={','.join(name for name, _ in COLUMNS)}", "--format=csv,noheader,nounits")
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
        )
    except OSError as fault:
        return command, [], f"nvidia-smi: {fault.strerror or fault}"
    try:
        out, err = child.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        _end(child.pid)
        child.wait()
        for pipe in (child.stdout, child.stderr):
            if pipe:
                pipe.close()
        return command, [], f"nvidia-smi did not answer within {deadline_s:g} s"
    if child.returncode:
        return command, [], (err.strip() or out.strip() or f"nvidia-smi ended with code {child.returncode} and said nothing")
    rows = [_row(line) for line in out.splitlines() if line.strip()]
    return command, rows, "" if rows else (err.strip() or "nvidia-smi returned no GPU rows")


def _end(pid: int) -> None:
    import signal

    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _row(line: str) -> "dict[str, Any]":
    """One CSV row; a column that is not there stays absent. The name may hold commas, so the four numbers are taken from the right."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) > len(COLUMNS):
        cells = [", ".join(cells[: len(cells) - len(COLUMNS) + 1]), *cells[len(cells) - len(COLUMNS) + 1 :]]
    return {key: cell for (_, key), cell in zip(COLUMNS, cells, strict=False)}


def scripted(path: str) -> "tuple[str, list[dict[str, Any]], str]":
    """(command, rows, error) from the first line of a script of readings (`{"t": …, "devices": [as in brim.probe/1]}`); `Usage` where it is none."""
    text = content(path)
    number, first = next(((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")), (1, ""))
    try:
        entry = reading(first, f"{path}, line {number}")
    except Usage:
        if first.strip() != "{":  # one object over several lines is a reading too
            raise
        entry = reading(text, path)
    command = f"readings {path}"
    rows = [_device(one) for one in entry.get("devices", []) if _is_cuda(one)]
    return command, rows, "" if rows else "the readings returned no GPU rows"


def _is_cuda(device: "dict[str, Any]") -> bool:
    return str(device.get("backend") or str(device.get("id", "")).partition(":")[0]).lower() == "cuda"


def _device(device: "dict[str, Any]") -> "dict[str, Any]":
    """The report's names for one device of brim.probe/1; a value that is missing, or cannot be, is `Missing` with its reason."""
    seen = device_from(device)

    def mib(value: "int | Missing") -> "float | Missing":
        return value if isinstance(value, Missing) else value / MIB

    return {
        "name": seen.name if "name" in device else None,
        "memory_total_mb": mib(seen.memory.total_bytes),
        "memory_free_mb": mib(seen.memory.free_bytes),
        "power_limit_w": seen.power_limit_w,
        "temperature_c": seen.temperature_c,
    }
