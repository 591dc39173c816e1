"""Which devices a plan is for: the words of `--device` as devices, real ones as they were probed and hypothetical ones by size or by name.

Guarantees: a hypothetical device never takes the budget override and always says that it is hypothetical; its ids count on from the real ones of its backend. An
accelerator that was asked for and does not answer falls back to the host's budget, and says so first. Not covered: which backend an engine was built for.
"""

from brim.budget import RESERVES, usable
from brim.errors import Usage
from brim.facts.device import UNASKED, Budget, Device, DeviceSpec, Memory
from brim.units import format_bytes, parse_size
from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Named = Callable[[str], "Model | None"]

BACKENDS = {"cpu": "cpu", "host": "cpu", "cuda": "cuda", "metal": "metal", "rocm": "rocm", "hip": "rocm", "xpu": "xpu"}
WORDS = "cpu (host), cuda, metal, rocm (hip), xpu"


class Model(Record):
    """A device of the catalogue: what its driver reports, in bytes, and its CUDA compute capability as text (`8.6`, "" where there is none)."""

    name: str
    backend: str
    total_bytes: int
    compute_capability: str = ""
    unified: bool = False


class Wanted(Record):
    """One word of `--device`: a backend with an index (None: all of them) or with a size, or a name of the catalogue."""

    word: str
    backend: str = ""
    index: int | None = None
    total_bytes: int | None = None
    name: str = ""


def parse(word: str) -> Wanted:
    """`cuda:0` is an index, `cuda:24GiB` a size, `cuda` every card, anything without a known backend a name. `Usage` says what is wrong."""
    head, colon, tail = word.strip().partition(":")
    backend = BACKENDS.get(head.strip().lower())
    if backend is None:
        if colon or not head:
            raise Usage(f"--device {word!r}: {head!r} is no backend", hint=f"Backends: {WORDS}; a size makes a hypothetical device (cuda:24GiB).")
        return Wanted(word=word, name=head.strip())
    if not colon:
        return Wanted(word=word, backend=backend)
    if tail.isascii() and tail.isdigit():
        if backend == "cpu" and tail.strip("0"):
            raise Usage(f"--device {word!r}: there is one host", hint="Give cpu, or a size with its unit: cpu:64GiB.")
        return Wanted(word=word, backend=backend, index=int(tail))
    try:
        size = parse_size(tail)
    except ValueError as fault:
        raise Usage(f"--device {word!r}: {fault}", hint="An index (cuda:0) or a size with its unit (cuda:24GiB).") from None
    if size <= 0:
        raise Usage(f"--device {word!r}: a device of no size", hint="Give a size above zero.")
    return Wanted(word=word, backend=backend, total_bytes=size)


def hypothetical(backend: str, index: int, total_bytes: int, *, reserve: "float | None", model: "Model | None" = None) -> Device:
    """A device that is not here. `reserve` None: the backend's own share is held back."""
    held = RESERVES[backend] if reserve is None else min(1.0, max(0.0, reserve))
    name = f"hypothetical {format_bytes(total_bytes)}" if model is None else f"{model.name} (hypothetical)"
    source = "the size given by --device" if model is None else f"the catalogue ({model.name})"
    return Device(
        id="cpu" if backend == "cpu" else f"{backend}:{index}",
        backend=backend,
        name=name,
        index=index,
        unified=model is not None and model.unified,
        compute_capability=model.compute_capability if model is not None and model.compute_capability else UNASKED,
        memory=Memory(total_bytes=total_bytes),
        budget=Budget(
            backend=backend, total_bytes=total_bytes, usable_bytes=usable(total_bytes, held), reserve_fraction=held, source=source, hypothetical=True
        ),
    )  # fmt: skip


def assemble(
    words: "Sequence[str]", probed: tuple[Device, ...], *, reserve: "float | None" = None, named: "Named | None" = None
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices of these words in their order, and what must be said of them. No words: the accelerators that are visible, else the host.

    `Usage` for a word that means nothing; `named` looks a name up in the catalogue.
    """
    if not words:
        accelerators = tuple(device for device in probed if device.backend != "cpu")
        return (*accelerators, *(device for device in probed if device.backend == "cpu" and not accelerators)), ()
    found: list[Device] = []
    caveats: list[str] = []
    for wanted in map(parse, words):
        if wanted.name or wanted.total_bytes is not None:
            found.append(_made(wanted, found, probed, reserve, named))
        else:
            real = [device for device in probed if device.backend == wanted.backend and wanted.index in (None, device.index)]
            found += [device for device in real if device.id not in {one.id for one in found}] or _fallen_back(wanted, real, found, probed, caveats)
    if sum(device.id == "cpu" for device in found) > 1:
        raise Usage("--device: the host is named twice", hint="Give cpu once, or cpu:SIZE once.")
    return tuple(found), tuple(caveats)


def _made(wanted: Wanted, found: list[Device], probed: tuple[Device, ...], reserve: "float | None", named: "Named | None") -> Device:
    model = named(wanted.name) if wanted.name and named is not None else None
    if wanted.name and model is None:
        raise Usage(f"--device {wanted.word!r}: neither a backend nor a device of the catalogue", hint=f"Backends: {WORDS}; or a size: cuda:24GiB.")
    backend = wanted.backend if model is None else model.backend
    total = wanted.total_bytes if model is None else model.total_bytes
    assert total is not None
    taken = {device.index for device in found if device.backend == backend}
    index = next(i for i in range(len(found) + 1) if i not in taken)
    return hypothetical(backend, index, total, reserve=reserve, model=model)


def _fallen_back(wanted: Wanted, real: list[Device], found: list[Device], probed: tuple[Device, ...], caveats: list[str]) -> list[Device]:
    """The host in place of an accelerator that does not answer."""
    if real or wanted.backend == "cpu":
        return []
    caveats.insert(0, f"{wanted.word} does not answer: fell back to host memory, and the engine is priced on the CPU")
    host = next((device for device in probed if device.backend == "cpu"), None)
    if host is None or any(device.id == "cpu" for device in found):
        return []
    budget = host.budget.replace(fell_back=True, source=f"{host.budget.source}; fell back, because {wanted.word} does not answer")
    return [host.replace(budget=budget)]


def specs(devices: "Sequence[Device]") -> tuple[DeviceSpec, ...]:
    """What an engine model must know of the accelerators, in order. A device without a known total is left out: nothing could be split by it."""
    made = []
    for device in devices:
        total = device.memory.total_bytes if isinstance(device.memory.total_bytes, int) else device.budget.total_bytes
        if device.backend == "cpu" or not isinstance(total, int):
            continue
        free = device.memory.free_bytes
        made.append(
            DeviceSpec(
                id=device.id, backend=device.backend, total_bytes=total, free_bytes=free if isinstance(free, int) else total,
                compute_capability=_capability(device.compute_capability), unified=device.unified,
            )
        )  # fmt: skip
    return tuple(made)


def with_host(devices: "Sequence[Device]") -> tuple[DeviceSpec, ...]:
    """`specs`, and behind them the host where its processor's instructions are known: they decide how an engine lays out the weights that it keeps there."""
    for device in devices:
        total = device.budget.total_bytes
        if device.backend == "cpu" and not isinstance(device.instructions, Missing):
            room = total if isinstance(total, int) else 0
            return (*specs(devices), DeviceSpec(id="cpu", backend="cpu", total_bytes=room, free_bytes=room, instructions=device.instructions))
    return specs(devices)


def _capability(text: "str | Missing") -> int:
    """`8.9` → 890; 890 where the device does not tell (llama.cpp's sizes are the same from 6.1 to 12.0)."""
    if isinstance(text, Missing):
        return 890
    major, _, minor = text.partition(".")
    return int(major) * 100 + int(minor or 0) * 10 if major.isdigit() and (minor or "0").isdigit() else 890


ENGINE_NAMES = {"cuda": "CUDA", "rocm": "ROCm", "metal": "Metal", "xpu": "SYCL"}


def chosen_by_engine(devices: tuple[Device, ...], names: "tuple[str, ...] | None") -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices that llama.cpp's own `--device CUDA0,CUDA1` (or `none`) leaves, in its order, and what must be said; the host always stays.

    llama.cpp counts the cards that it sees from zero (ggml/src/ggml-cuda `ggml_backend_cuda_reg`, b11434): CUDA0 is the first of ours.
    """
    if names is None:
        return devices, ()
    hosts = tuple(device for device in devices if device.backend == "cpu")
    accelerators = [device for device in devices if device.backend != "cpu"]
    by_name: dict[str, Device] = {}
    for device in accelerators:
        prefix = ENGINE_NAMES.get(device.backend, device.backend)
        count = sum(other.backend == device.backend for other in accelerators[: accelerators.index(device)])
        by_name[f"{prefix}{count}".lower()] = device
        by_name.setdefault(f"vulkan{accelerators.index(device)}", device)
        if device.backend == "metal":
            by_name.setdefault("metal", device)
    chosen = [by_name[name.lower()] for name in names if name.lower() in by_name]
    strangers = [name for name in names if name.lower() not in by_name]
    caveats = tuple(f"the command's device {name} is not among the devices given to brim" for name in strangers)
    return (*dict.fromkeys(chosen), *hosts), caveats


def left_visible(devices: tuple[Device, ...], names: "tuple[str, ...] | None") -> tuple[Device, ...]:
    """The devices that `CUDA_VISIBLE_DEVICES=1,0` (and its like) in front of a command leaves, in that order; the host always stays. Names are indices or UUIDs."""
    if names is None:
        return devices
    accelerators = [device for device in devices if device.backend != "cpu"]
    chosen: list[Device] = []
    for name in names:
        found = next((one for one in accelerators if str(one.index) == name or (isinstance(one.uuid, str) and one.uuid.startswith(name))), None)
        if found is None:  # CUDA ignores everything behind the first name that is none
            break
        chosen.append(found)
    return (*dict.fromkeys(chosen), *(device for device in devices if device.backend == "cpu"))
