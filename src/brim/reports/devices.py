"""What a person reads of devices: the table of `brim probe`, the list of `brim doctor`, the catalogue; values in, lines out, nothing computed but column widths."""

from brim.budget import CAVEAT, sentence
from brim.facts.device import Device
from brim.reports.text import clean, table
from brim.units import format_bytes
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.cards import Model
    from brim.facts.device import Asked, Host

DASH = "–"
_WORDS = {"not_supported": "n/a", "denied": "denied", "failed": "failed", "gone": "gone"}


def cell(value: object, unit: str = "") -> str:
    """A value for a table: short, with its unit; a missing one as its reason in a word."""
    if isinstance(value, Missing):
        return _WORDS.get(value.reason, value.reason)
    if isinstance(value, float):
        return f"{value:.0f}{unit}"
    return f"{value}{unit}"


def _against(value: object, limit: object, unit: str) -> str:
    """`61/89 °C`: a reading against its limit; the limit stays out where nobody tells it."""
    if isinstance(value, Missing):
        return cell(value)
    return f"{cell(value)}{unit}" if isinstance(limit, Missing) else f"{cell(value)}/{cell(limit)}{unit}"


def _bytes(value: "int | Missing") -> str:
    return cell(value) if isinstance(value, Missing) else format_bytes(value)


def heat_limit(device: Device) -> "float | Missing":
    """The lowest temperature at which the device itself slows down or stops, of those that it tells."""
    told = [
        value for value in (device.max_operating_temperature_c, device.slowdown_temperature_c, device.shutdown_temperature_c) if not isinstance(value, Missing)
    ]
    return min(told) if told else device.slowdown_temperature_c


def probe(
    devices: "tuple[Device, ...]", *, host: "Host | None" = None, notes: tuple[str, ...] = (), explain: bool = False, asked: "tuple[Asked, ...]" = ()
) -> str:
    """The table, then the budget of each device in a sentence, then what is worth saying."""
    rows: list[tuple[str, ...]] = [("device", "name", "budget", "now", "temperature", "power", "load", "state", "source")]
    for device in devices:
        power = device.power_enforced_w if not isinstance(device.power_enforced_w, Missing) else device.power_limit_w
        rows.append((
            clean(device.id), clean(device.name), _bytes(device.budget.usable_bytes), _bytes(device.memory.available_bytes), _against(device.temperature_c, heat_limit(device), " °C"),
            _against(device.power_draw_w, power, " W"), cell(device.utilisation_percent, " %"), clean(device.state), clean("+".join(device.sources)) or DASH,
        ))  # fmt: skip
    lines = [*table(rows, right=(2, 3)), ""]
    lines += [sentence(device.budget) if device.id in ("cpu", device.backend) else f"{device.id}: {sentence(device.budget)}" for device in devices]
    for device in devices:
        if device.unified:
            lines.append(f"{device.id} is unified with the host ({device.unified_because}): one pool, counted once")
        lines += [f"{device.id}: {word}" for word in (*device.faults, *device.warnings)]
    lines += [f"note: {note}" for note in notes]
    if explain:
        lines += _explained(devices, host, asked)
    return "\n".join([*(clean(line, 4000) for line in lines), "", CAVEAT])


def _explained(devices: "tuple[Device, ...]", host: "Host | None", asked: "tuple[Asked, ...]") -> list[str]:
    """Every value that is missing, those with the same reason together, and which source was asked in how many ms."""
    lines = [""]
    for device in devices:
        lines += [f"missing from {device.id}:", *_grouped(_missing(device))]
    if host is not None:
        lines += ["missing from the host:", *_grouped([(name, value) for name in host._fields if isinstance(value := getattr(host, name), Missing)])]
    lines.append("asked:")
    lines += [f"  {source.source}: {source.outcome}, {source.detail} ({source.elapsed_ns / 1e6:.0f} ms)" for source in asked]
    return lines


def _grouped(found: list[tuple[str, Missing]]) -> list[str]:
    reasons: dict[Missing, list[str]] = {}
    for name, missing in found:
        reasons.setdefault(missing, []).append(name)
    return [f"  {missing.reason} ({missing.detail}): {', '.join(names)}" for missing, names in reasons.items()]


def _missing(device: Device) -> list[tuple[str, Missing]]:
    found = [(name, value) for name in device._fields if isinstance(value := getattr(device, name), Missing)]
    return found + [(f"memory.{name}", value) for name in device.memory._fields if isinstance(value := getattr(device.memory, name), Missing)]


def doctor(asked: "tuple[Asked, ...]", facts: "tuple[tuple[str, str], ...]", devices: "tuple[Device, ...]", notes: tuple[str, ...]) -> str:
    """What was asked, what answered and how fast, what is missing and the command that brings it."""
    rows: list[tuple[str, ...]] = [("source", "answer", "ms", "says")]
    rows += [(item.source, item.outcome, f"{item.elapsed_ns / 1e6:.0f}" if item.elapsed_ns else DASH, item.detail) for item in asked]
    lines = [*table(rows, right=(2,)), ""]
    lines += [f"{name}: {value}" for name, value in facts]
    lines += ["", *(f"{device.id}  {device.name}  {device.state}; {sentence(device.budget)}" for device in devices)]
    lines += [f"  {device.id}: {word}" for device in devices for word in (*device.faults, *device.warnings)]
    lines += [f"note: {note}" for note in notes]
    missing = [item for item in asked if item.install]
    lines += ["", "to install:" if missing else "nothing is missing that this machine could use"]
    lines += [f"  {item.source}: {item.install}" for item in missing]
    return "\n".join(lines)


def catalogue(models: "tuple[Model, ...]") -> str:
    """The devices of the catalogue that match."""
    rows: list[tuple[str, ...]] = [("name", "memory", "GB/s", "W", "compute", "pool", "source")]
    for model in models:
        rows.append((
            model.name, format_bytes(model.memory_bytes), cell(model.bandwidth_gbs) if model.bandwidth_gbs else DASH, cell(model.power_w) if model.power_w else DASH,
            model.compute or DASH, "unified" if model.unified else "own", model.source,
        ))  # fmt: skip
    return "\n".join(table(rows, right=(1, 2, 3)))
