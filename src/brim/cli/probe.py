"""brim probe: devices, budgets, readings, and where each came from."""

import sys

from brim import api
from brim.cli.words import Asked, Parser, as_json, fraction, time
from brim.errors import NoSuchDevice, Usage
from brim.hardware import LONGEST_NS
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.api import Probed
    from brim.facts.device import Device
    from brim.hardware import Machine


def _parser() -> Parser:
    parser = Parser("probe", "What devices are here, what a plan may spend on each, and where each number came from.")
    parser.add_argument("--json", action="store_true", help="print brim.probe/1")
    parser.add_argument("--explain", action="store_true", help="give the reason of each value that is missing, and what was asked")
    parser.add_argument(
        "--watch", action="store_true", help="go on until Ctrl-C: print again whenever something moved, and each minute (with --json: one document a line)"
    )
    parser.add_argument("--every", type=time, metavar="TIME", default=1_000_000_000, help="time between two polls of --watch (default 1s)")
    parser.add_argument("--device", metavar="D", help="only this device (cuda:0, cuda, a UUID); a sleeping card is woken; exit 6 where it gives nothing")
    parser.add_argument(
        "--reserve", type=fraction, metavar="FRACTION", help="hold back this share of each device (0…1; default 0.2 for the host, 0.1 for others)"
    )
    parser.add_argument("--deadline", type=time, metavar="TIME", help="how long drivers may take to answer (default 1.6s)")
    parser.add_argument("--readings", metavar="FILE", help="play a script of readings instead of looking at this machine")
    return parser


def main(argv: list[str]) -> int:
    """Exit 0 also where values are missing: nothing missing ever drops a row. 6 where `--device` named one that gave nothing."""
    asked = _parser().parse_args(argv)
    eyes = api.machine(reserve=asked.reserve, readings=asked.readings, deadline_ns=asked.deadline, wake=asked.device is not None)
    if eyes.warning:
        print(f"brim: {eyes.warning}", file=sys.stderr)
    if asked.watch:
        return _watch(asked, eyes)
    _print(asked, _only(asked.device, api.probed(eyes.look(), eyes.warning)))
    return 0


def _watch(asked: Asked, eyes: "Machine") -> int:
    """Print what is news until somebody stops us; on a terminal each reading replaces the last."""
    screen = sys.stdout.isatty() and not asked.json
    try:
        for reading in eyes.follow(poll_ns=asked.every, longest_ns=max(asked.every, LONGEST_NS)):
            seen = _only(asked.device, api.probed(reading, eyes.warning))
            if screen:
                print("\x1b[H\x1b[2J", end="")
            _print(asked, seen, line=True)
            sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        return 0


def _print(asked: Asked, seen: "Probed", *, line: bool = False) -> None:
    if asked.json:
        from brim.reports.documents import probe as document

        print(as_json(document(seen.devices, seen.host, seen.warnings, seen.notes, seen.asked), indent=None if line else 2))
    else:
        from brim.reports.devices import probe as text

        print(text(seen.devices, host=seen.host, notes=seen.notes, explain=asked.explain, asked=seen.asked))


def _only(word: "str | None", seen: "Probed") -> "Probed":
    """The one device that was named; `NoSuchDevice` where it is not here, or gave nothing."""
    if word is None:
        return seen
    plain = word.strip()
    backend = api.backend_word(plain.partition(":")[0])
    found = [
        device
        for device in seen.devices
        if plain in (device.id, device.backend) or (isinstance(device.uuid, str) and device.uuid.startswith(plain) and plain.startswith(("GPU-", "MIG-")))
    ]
    if not found and backend:
        index = plain.partition(":")[2]
        found = [device for device in seen.devices if device.backend == backend and (not index or device.id in (backend, f"{backend}:{index}"))]
    if not found and not backend and not plain.startswith(("GPU-", "MIG-")):
        raise Usage(
            f"probe: {word!r} names no device", hint="Backends are cpu (host), cuda, metal, rocm (hip), xpu and vulkan; cuda:0 is one card of a backend."
        )
    if not found:
        here = ", ".join(device.id for device in seen.devices)
        raise NoSuchDevice(f"{word} is not here; there {'is' if len(seen.devices) == 1 else 'are'} {here}" + "".join(f"; {note}" for note in seen.notes))
    if all(_gave_nothing(device) for device in found):
        raise NoSuchDevice(f"{word} gave nothing: {_why(found[0])}", hint="`brim doctor` says what was asked and what answered.")
    return seen.replace(devices=tuple(found))


def _gave_nothing(device: "Device") -> bool:
    return all(isinstance(value, Missing) for value in (device.memory.available_bytes, device.memory.total_bytes, device.temperature_c, device.power_draw_w))


def _why(device: "Device") -> str:
    total = device.memory.total_bytes
    return f"{device.state}, {total.detail}" if isinstance(total, Missing) else device.state
