"""The verbs of looking: this machine as a probe, one look at it, the devices that words name, and those that are known by name."""

import os
import sys

from brim.clock import SystemClock
from brim.facts.device import Device
from brim.hardware import LOOK_NS, Machine
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from brim.cards import Model as Known
    from brim.facts.device import Asked, Host, Reading
    from brim.lineup import Model
    from brim.seams import Clock


class Probed(Record):
    """What `probe` saw: the devices with their budgets, the host, what was asked, notes, and warnings about settings that were ignored."""

    devices: tuple[Device, ...]
    host: "Host"
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    asked: "tuple[Asked, ...]" = ()


def machine(
    *,
    reserve: float | None = None,
    environ: "Mapping[str, str] | None" = None,
    readings: str | None = None,
    deadline_ns: int | None = None,
    wake: bool = False,
    disk: str = "",
    clock: "Clock | None" = None,
    root: str = "",
) -> Machine:
    """This machine as a probe that can be looked at again and again, or the script that `readings` (or BRIM_READINGS) names. `Unreadable`, `Usage`: a bad script."""
    environ = os.environ if environ is None else environ
    path = readings or environ.get("BRIM_READINGS", "")
    script = None
    if path:
        from brim.probes.scripted import load

        script = load(path)
    return Machine(
        environ=environ, clock=clock or SystemClock(), root=root, script=script, reserve=reserve, deadline_ns=deadline_ns or LOOK_NS, wake=wake, disk=disk
    )


def probe(
    *,
    reserve: float | None = None,
    environ: "Mapping[str, str] | None" = None,
    readings: str | None = None,
    deadline_ns: int | None = None,
    wake: bool = False,
) -> Probed:
    """Look at this machine's devices once, within the deadline. A value that could not be had is `Missing`; nothing is raised for it."""
    eyes = machine(reserve=reserve, environ=environ, readings=readings, deadline_ns=deadline_ns, wake=wake)
    return probed(eyes.look(), eyes.warning)


def probed(seen: "Reading", warning: "str | None" = None) -> Probed:
    """A reading as `probe` gives it."""
    return Probed(devices=seen.devices, host=seen.host, warnings=(warning,) if warning else (), notes=seen.notes, asked=seen.asked)


def catalogue(query: str = "") -> "tuple[Known, ...]":
    """The devices that brim knows by name, those that match `query` (all without one). Bytes as the driver tells them."""
    from brim.cards import matches, parse
    from brim.readers.catalogue import text

    return matches(parse(text()), query)


def backend_word(text: str) -> str | None:
    """The backend that a word of the command line means (`host` is `cpu`, `hip` is `rocm`), in any case; None for another word."""
    from brim.pool import backend_word as word

    return word(text)


def suggest(query: str) -> list[str]:
    """The names of the catalogue that are nearest to an unknown one."""
    from brim.cards import suggestions

    return suggestions(catalogue(), query)


def settings(environ: "Mapping[str, str] | None" = None) -> tuple[tuple[str, str], ...]:
    """The variables of the environment that change what brim sees, those that are set, each with its value."""
    environ = os.environ if environ is None else environ
    shown = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "LD_LIBRARY_PATH")
    names = [*shown, *sorted(name for name in environ if name.startswith("BRIM_"))]
    return tuple((name, environ[name]) for name in names if name in environ)


def loop() -> "Asked":
    """Whether the loop that polls while nothing happens was built when brim was installed, and how to get it."""
    from brim.facts.device import Asked
    from brim.probes import vigil

    if vigil.library() is not None:
        return Asked(source="loop", outcome="answered", detail="polls while nothing happens are made by the built loop")
    slow = "the interpreter makes each poll, which costs several times as much"
    if not sys.platform.startswith("linux"):
        return Asked(source="loop", outcome="absent", detail=f"{slow}; the loop is for Linux")
    install = "a C compiler (Debian, Ubuntu: apt install gcc), then brim again (pip install --force-reinstall --no-deps, from the source)"
    return Asked(source="loop", outcome="absent", detail=f"{slow}: no loop was built when brim was installed", install=install)


def version() -> str:
    """The version of brim."""
    from brim import __version__

    return __version__


def devices(
    wanted: "Sequence[str]", seen: "Probed | None" = None, *, reserve: float | None = None, environ: "Mapping[str, str] | None" = None
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices that words of `--device` name (`cuda:0`, `cuda:24GiB`, `RTX 3090`), and caveats; the machine is looked at only where a word needs it."""
    from brim.lineup import assemble, parse

    if seen is None and (not wanted or any(not word.name and word.total_bytes is None for word in map(parse, wanted))):
        seen = probe(reserve=reserve, environ=environ, wake=bool(wanted))
    return assemble(wanted, seen.devices if seen is not None else (), reserve=reserve, named=known_device)


def known_device(name: str) -> "Model":
    """The one device of the catalogue that is called so, loosely; `Usage` lists the candidates of an ambiguous name and suggests for an unknown one."""
    from brim.cards import find
    from brim.lineup import Model

    model = find(catalogue(), name)
    return Model(name=model.name, backend=model.backend, total_bytes=model.memory_bytes, compute_capability=model.compute, unified=model.unified)
