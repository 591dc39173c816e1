"""Which physical cards a CUDA program would see, and under which ordinals: environment strings and devices in, devices out; and the way back.

The rules of CUDA_VISIBLE_DEVICES are those of the CUDA programming guide (13.x, section 5.2.1): the list is read up to the first entry that is not valid;
a UUID may be cut to a unique prefix; an empty list hides all. A number is read as strtoul does (`1gpu` is 1), and a card named twice hides
every card — both as PyTorch found by trying (torch/cuda/__init__.py, `_parse_visible_devices`, pull request 84879).
Not covered: CUDA_DEVICE_ORDER=FASTEST_FIRST (the default) is NVIDIA's own heuristic; over cards of different kinds an ordinal cannot be told for sure, and the answer says so.
"""

from brim.facts.device import Device
from brim.values import Missing

VARIABLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


def visible_devices(devices: "tuple[Device, ...]", listed: "str | None", order: str = "") -> "tuple[tuple[Device, ...], tuple[str, ...]]":
    """The devices that CUDA shows, renumbered `cuda:0…` in its order, and notes on what is hidden or not sure. `listed` is CUDA_VISIBLE_DEVICES (None: unset)."""
    cuda = [device for device in devices if device.backend == "cuda"]
    others = tuple(device for device in devices if device.backend != "cuda")
    if not cuda:
        return devices, ()
    ranked, notes = _ranked(
        [device for device in cuda if device.mig != "slice"], order, asked=listed is not None and any(c.isdigit() for c in (listed or "")[:1])
    )
    shown = _default(ranked, cuda) if listed is None else _listed(listed, ranked, cuda, notes)
    hidden = [
        device
        for device in cuda
        if not any(device is one for one in shown) and not (device.mig == "enabled" and any(s.parent_uuid == device.uuid for s in shown))
    ]
    if hidden:
        why = f"{VARIABLE}={listed}" if listed is not None else "CUDA shows one MIG slice, and no card that is split, unless they are named by UUID"
        names = ", ".join(f"{_label(device)}" for device in hidden)
        notes.append(f"hidden by {why}: {names}" if listed is not None else f"hidden: {names} ({why})")
    return (*(_numbered(device, number) for number, device in enumerate(shown)), *others), tuple(notes)


def _numbered(device: Device, number: int) -> Device:
    """The device under its ordinal; most have it already."""
    return device if device.index == number and device.id == f"cuda:{number}" else device.replace(id=f"cuda:{number}", index=number)


def _label(device: Device) -> str:
    return f"{device.name} ({device.uuid if isinstance(device.uuid, str) else device.id})"


def _ranked(cards: "list[Device]", order: str, *, asked: bool) -> "tuple[list[Device], list[str]]":
    """The cards as CUDA numbers them, and a note where that is a guess."""
    known = all(isinstance(card.pci_bus_id, str) for card in cards)  # NVML's own order is that of the bus too
    by_bus = sorted(cards, key=lambda d: (str(d.pci_bus_id) if known else "", d.index))
    if order.strip().upper() == "PCI_BUS_ID" or len({card.name for card in cards}) <= 1:
        return by_bus, []
    told = all(isinstance(card.compute_capability, str) for card in cards)
    fastest = sorted(by_bus, key=lambda d: -_speed(d)) if told else by_bus
    unsure = "the cards differ, and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA puts the fastest first by a rule of its own, so the ordinals here are a guess"
    return fastest, [unsure + (f" (as is the reading of {VARIABLE})" if asked else "")]


def _speed(card: Device) -> float:
    """A stand-in for NVIDIA's ranking: compute capability, then board power."""
    capability = float(card.compute_capability) if isinstance(card.compute_capability, str) else 0.0
    power = card.power_max_w if isinstance(card.power_max_w, float) else card.power_limit_w if isinstance(card.power_limit_w, float) else 0.0
    return capability * 1000 + power


def _default(ranked: "list[Device]", cuda: "list[Device]") -> "list[Device]":
    """Without a list: every card; where one is split into slices, only the first slice (CUDA enumerates one MIG device, MIG user guide, Device Enumeration)."""
    slices = [device for device in cuda if device.mig == "slice"]
    return [slices[0]] if slices else [card for card in ranked if card.mig != "enabled"] or ranked


def _listed(listed: str, ranked: "list[Device]", cuda: "list[Device]", notes: "list[str]") -> "list[Device]":
    """The cards of a list, up to the first entry that is not valid."""
    shown: list[Device] = []
    kind = ""
    for token in listed.split(","):
        text = token.strip()
        device = _by_uuid(text, cuda) if text.startswith(("GPU-", "MIG-")) else _by_ordinal(text, ranked, cuda)
        own = text[:4] if text.startswith(("GPU-", "MIG-")) else "number"
        if device is None or (kind and own != kind):
            if listed.strip():
                notes.append(
                    f"{VARIABLE}: {text or 'an empty entry'} names no card here{'' if device is None else ' in a list of the other kind'}; it and what follows are hidden, as CUDA does"
                )
            break
        if device in shown:
            notes.append(f"{VARIABLE}: {text} names a card twice; CUDA then shows none")
            return []
        kind = own
        shown.append(device)
    return shown


def _by_uuid(text: str, cuda: "list[Device]") -> "Device | None":
    """The one device whose UUID starts so; the old form MIG-GPU-UUID/GI/CI is matched as the driver writes it."""
    exact = [device for device in cuda if device.uuid == text]
    found = exact or [device for device in cuda if isinstance(device.uuid, str) and device.uuid.startswith(text) and len(text) > 4]
    return found[0] if len(found) == 1 else None


def _by_ordinal(text: str, ranked: "list[Device]", cuda: "list[Device]") -> "Device | None":
    """The card of a leading number; a split card stands for its first slice."""
    digits = ""
    for character in text.removeprefix("+"):
        if not (character.isascii() and character.isdigit()):
            break
        digits += character
    if not digits or int(digits) >= len(ranked):
        return None
    card = ranked[int(digits)]
    if card.mig == "enabled":
        return next((device for device in cuda if device.mig == "slice" and device.parent_uuid == card.uuid), card)
    return card


def visible_environment(devices: "tuple[Device, ...]") -> dict[str, str]:
    """The variables that show a child exactly these devices, in this order, by what does not change: UUIDs, never ordinals alone.

    Devices without a UUID keep their physical number under CUDA_DEVICE_ORDER=PCI_BUS_ID. Nothing is set for a host, a hypothetical device or a Mac.
    """
    environment: dict[str, str] = {}
    cuda = [device for device in devices if device.backend == "cuda" and not device.budget.hypothetical]
    if cuda:
        named = [device.uuid for device in cuda if isinstance(device.uuid, str) and device.uuid]
        numbers = [str(device.physical_index) for device in cuda if not isinstance(device.physical_index, Missing)]
        environment[ORDER] = "PCI_BUS_ID"
        if len(named) == len(cuda):
            environment[VARIABLE] = ",".join(named)
        elif len(numbers) == len(cuda):
            environment[VARIABLE] = ",".join(numbers)
    amd = [device for device in devices if device.backend == "rocm" and not device.budget.hypothetical]
    unique = [device.uuid for device in amd if isinstance(device.uuid, str) and device.uuid.startswith("GPU-")]
    rocm = [str(device.physical_index) for device in amd if isinstance(device.physical_index, int)]
    if rocm:
        environment["ROCR_VISIBLE_DEVICES"] = ",".join(unique if len(unique) == len(amd) else rocm)
        environment["HIP_VISIBLE_DEVICES"] = ",".join(str(number) for number in range(len(rocm)))  # a list of the user's would be applied to ours once more
    xpu = [
        str(device.physical_index)
        for device in devices
        if device.backend == "xpu" and isinstance(device.physical_index, int) and not device.budget.hypothetical
    ]
    if xpu:
        environment["ZE_AFFINITY_MASK"] = ",".join(xpu)
    return environment
