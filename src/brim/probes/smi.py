"""Asks nvidia-smi, one query with a deadline, where NVML cannot be loaded; every spelling of unknown and every exit code has a reason.

The query is made of groups: where this version of nvidia-smi does not know a field (it names it and exits with 2), the field is left out and the query is
asked again, so that a renamed field costs one cell and no card. Fields and exit codes: nvidia-smi(1), "RETURN VALUE" and --help-query-gpu.
Localised numbers (`45,3`) are read: nvidia-smi parts its columns by a comma and a space. Not covered: MIG slices and processes.
"""

from brim.facts.device import Device, Memory
from brim.probes.ask import run
from brim.probes.nvml_cells import SOC_WORDS, pci_id
from brim.probes.presence import program_of
from brim.probes.vendor import Answer
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from brim.seams import Clock

MIB, MOST = 1 << 20, 1e15
# (our field, nvidia-smi's names newest first)
FIELDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("index", ("index",)),
    ("name", ("name", "gpu_name")),
    ("uuid", ("uuid", "gpu_uuid")),
    ("pci_bus_id", ("pci.bus_id", "gpu_bus_id")),
    ("driver_version", ("driver_version",)),
    ("total", ("memory.total",)),
    ("reserved", ("memory.reserved",)),
    ("used", ("memory.used",)),
    ("free", ("memory.free",)),
    ("temperature_c", ("temperature.gpu",)),
    ("memory_temperature_c", ("temperature.memory",)),
    ("power_draw_w", ("power.draw.instant", "power.draw")),
    ("power_limit_w", ("power.limit",)),
    ("power_enforced_w", ("enforced.power.limit",)),
    ("power_default_w", ("power.default_limit",)),
    ("power_min_w", ("power.min_limit",)),
    ("power_max_w", ("power.max_limit",)),
    ("utilisation_percent", ("utilization.gpu",)),
    ("fan_percent", ("fan.speed",)),
    ("clock_sm_mhz", ("clocks.current.sm", "clocks.sm")),
    ("clock_memory_mhz", ("clocks.current.memory", "clocks.mem")),
    ("reasons", ("clocks_event_reasons.active", "clocks_throttle_reasons.active")),
    ("ecc_uncorrected", ("ecc.errors.uncorrected.volatile.total",)),
    ("mig", ("mig.mode.current",)),
    ("persistence", ("persistence_mode",)),
    ("compute_capability", ("compute_cap",)),
)
UNKNOWN = (
    ("insufficient permission", "denied"), ("no permission", "denied"), ("gpu is lost", "gone"), ("lost", "gone"), ("gpu requires reset", "failed"),
    ("requires reset", "failed"), ("unknown error", "failed"), ("err!", "failed"), ("error", "failed"), ("not supported", "not_supported"), ("n/a", "not_supported"),
    ("not available", "not_supported"), ("not active", "not_supported"), ("unknown", "failed"), ("not found", "not_supported"), ("-", "not_supported"), ("", "not_supported"),
)  # fmt: skip
EXITS = {
    2: ("failed", "an argument or field is not valid"),
    3: ("not_supported", "the operation is not available on this device"),
    4: ("denied", "no permission"),
    6: ("gone", "no device was found"),
    8: ("failed", "a device's external power cables are not attached"),
    9: ("failed", "the NVIDIA driver is not loaded"),
    10: ("failed", "the kernel sees an interrupt problem with a GPU"),
    12: ("failed", "libnvidia-ml.so.1 was not found or could not be loaded"),
    13: ("not_supported", "the local NVML does not have this function"),
    14: ("failed", "an infoROM is corrupted"),
    15: ("gone", "a GPU fell off the bus or cannot be reached"),
    18: ("failed", "driver and library versions do not match (an upgrade without a reboot?); jobs that run go on, new ones cannot start"),
    255: ("failed", "an internal driver error"),
}


def look(*, environment: "Mapping[str, str]", deadline_ns: int, clock: "Clock") -> Answer:
    """All cards from one query; fields that this nvidia-smi does not know are left out and asked no more, all within the deadline."""
    begun = clock.now_ns()
    program = program_of("nvidia-smi", environment)
    if not program:
        return Answer(source="nvidia-smi", outcome="absent", detail="nvidia-smi is not on PATH")
    asked = {ours: list(names) for ours, names in FIELDS}
    while True:
        columns = [(ours, names[0]) for ours, names in asked.items() if names]
        query = ",".join(name for _ours, name in columns)
        command = [program, f"--query-gpu={query}", "--format=csv,noheader,nounits"]
        left = deadline_ns - (clock.now_ns() - begun)
        happened, text, status, _ns = run({"nvidia-smi": command}, environment={**environment, "LC_ALL": "C"}, deadline_ns=max(left, 1), clock=clock)[
            "nvidia-smi"
        ]
        elapsed = clock.now_ns() - begun
        if happened == "hung":
            return Answer(
                source="nvidia-smi",
                outcome="failed",
                detail=f"nvidia-smi did not answer within {deadline_ns / 1e9:g} s (pid {status})",
                elapsed_ns=elapsed,
                pid=status,
            )
        if happened != "ended":
            return Answer(source="nvidia-smi", outcome="failed", detail=f"nvidia-smi {happened}", elapsed_ns=elapsed)
        output = text.decode("utf-8", "replace")
        if status == 2 and _drop(output, asked) and left > 0:
            continue
        rows = parse(output, tuple(ours for ours, _name in columns))
        if rows:
            return Answer(source="nvidia-smi", outcome="answered", devices=rows, elapsed_ns=elapsed)
        reason, detail = EXITS.get(status, ("failed", f"exit {status}"))
        said = output.strip().splitlines()[0][:200] if output.strip() else ""
        return Answer(source="nvidia-smi", outcome=reason, detail=f"nvidia-smi: {detail}" + (f" ({said})" if said else ""), code=status, elapsed_ns=elapsed)


def _drop(output: str, asked: "dict[str, list[str]]") -> bool:
    """Leave out the field that nvidia-smi says it does not know; False where it names none of ours."""
    for names in asked.values():
        if names and f'"{names[0]}"' in output:
            names.pop(0)
            return True
    return False


def parse(output: str, columns: tuple[str, ...]) -> tuple[Device, ...]:
    """The rows of a CSV answer without header and units; a line with another number of cells is not a card."""
    devices: list[Device] = []
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.split(", ")]
        if len(cells) == len(columns):
            devices.append(_device(dict(zip(columns, cells, strict=True)), len(devices)))
    return tuple(devices)


def unknown(text: str) -> "Missing | None":
    """Why a cell has no value, in any of nvidia-smi's spellings; None where it has one."""
    plain = text.strip().strip("[]").strip().lower()
    for words, reason in UNKNOWN:
        if plain == words or (words and len(words) > 3 and words in plain and not plain[:1].isdigit()):
            return Missing(reason=reason, detail=f"nvidia-smi prints {text}")
    return None


def number(text: str) -> "float | Missing":
    """A number in any locale's spelling, or why there is none."""
    why = unknown(text)
    if why is not None:
        return why
    digits = text.replace("\u00a0", "").replace("\u202f", "").split()[0].rstrip("%WC")
    if "," in digits and "." in digits:
        digits = digits.replace("," if digits.rfind(".") > digits.rfind(",") else ".", "")
    try:
        value = float(digits.replace(",", "."))
    except ValueError:
        value = float("nan")
    return value if abs(value) < MOST else Missing(reason="failed", detail=f"nvidia-smi prints {text}")


def text_of(text: str, value: object) -> object:
    """The value of a cell, or why it has none."""
    why = unknown(text)
    return value if why is None else why


def _device(cells: "dict[str, str]", place: int) -> Device:
    index = number(cells.get("index", ""))
    at = int(index) if isinstance(index, float) else place
    fields: dict[str, Any] = {"id": f"cuda:{at}", "backend": "cuda", "name": cells.get("name") or f"NVIDIA GPU {at}", "index": at, "physical_index": at}
    fields["sources"] = ("nvidia-smi",)
    for key, cell in cells.items():
        if key in ("uuid", "pci_bus_id", "driver_version", "compute_capability"):
            fields[key] = text_of(cell, pci_id(cell) if key == "pci_bus_id" else cell)
        elif key.endswith(("_c", "_w", "_percent")):
            fields[key] = number(cell)
        elif key in ("clock_sm_mhz", "clock_memory_mhz", "ecc_uncorrected"):
            value = number(cell)
            fields[key] = value if isinstance(value, Missing) else int(value)
        elif key in ("mig", "persistence"):
            fields[key] = text_of(cell, cell.lower() if key == "mig" else cell.lower() == "enabled")
    fields["memory"] = _memory(cells)
    words = fields["name"].upper().replace("-", " ").split()
    fields["soc"] = next((f"nvidia-smi calls it {fields['name']}" for word in SOC_WORDS if word in words), "")
    if fields["name"] and unknown(fields["name"]) is not None:
        fields["name"] = f"NVIDIA GPU {at}"
    return Device(**fields)


def _memory(cells: "dict[str, str]") -> Memory:
    """MiB as nvidia-smi prints them, as bytes; a total of 0 is no number."""

    def bytes_of(key: str) -> "int | Missing":
        value = number(cells[key]) if key in cells else Missing(reason="not_supported", detail=f"this nvidia-smi has no memory.{key}")
        return value if isinstance(value, Missing) else int(value) * MIB

    total, free = bytes_of("total"), bytes_of("free")
    if total == 0:
        total = free = Missing(reason="failed", detail="nvidia-smi prints a total of 0 MiB")
    return Memory(total_bytes=total, free_bytes=free, used_bytes=bytes_of("used"), available_bytes=free, reserved_bytes=bytes_of("reserved"))
