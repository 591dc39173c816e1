"""Which AMD and Intel devices a program would see, and under which ordinals: the variables of ROCm and of Level Zero and devices in, devices out.

ROCR_VISIBLE_DEVICES holds ordinals or UUIDs (`GPU-…`); HIP_VISIBLE_DEVICES, or else (without a card of NVIDIA's) CUDA_VISIBLE_DEVICES, holds ordinals within what that leaves (ROCm documentation, "GPU isolation
techniques"). ZE_AFFINITY_MASK holds ordinals, `N.M` meaning a tile of device N (Level Zero specification, "Affinity Mask"). A list is read up to its first entry that is not
valid. Not covered: ONEAPI_DEVICE_SELECTOR, and a Level Zero that numbers otherwise than the kernel does (ZE_ENABLE_PCI_ID_DEVICE_ORDER); the note on what is hidden says whose order is taken.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from brim.facts.device import Device

ROCR, HIP, CUDA, ZE = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"
VARIABLES = (ROCR, HIP, CUDA, ZE)


def masked(devices: "tuple[Device, ...]", environ: "Mapping[str, str]") -> "tuple[tuple[Device, ...], tuple[str, ...]]":
    """The devices as programs see them: AMD's and Intel's renumbered in the order of their lists, the others as they are; and notes on what is hidden."""
    notes: list[str] = []
    amd = [device for device in devices if device.backend == "rocm"]
    nvidia = any(device.backend == "cuda" for device in devices)  # beside one of NVIDIA's, CUDA's list is about that card
    for variable in (ROCR, *((HIP,) if HIP in environ or nvidia else (CUDA,))):
        if amd and variable in environ:
            amd = _listed(amd, variable, environ[variable], notes)
    intel = [device for device in devices if device.backend == "xpu"]
    if intel and environ.get(ZE, "").strip():  # an empty mask is none
        intel = _listed(intel, ZE, environ[ZE], notes)
    own = {"rocm": iter(_numbered(amd)), "xpu": iter(_numbered(intel))}
    seen: list[Device] = []
    for device in devices:
        if device.backend not in own:
            seen.append(device)
        elif (following := next(own[device.backend], None)) is not None:
            seen.append(following)
    return tuple(seen), tuple(notes)


def _numbered(devices: "list[Device]") -> "list[Device]":
    return [device.replace(id=f"{device.backend}:{number}", index=number) if device.index != number else device for number, device in enumerate(devices)]


def _listed(devices: "list[Device]", variable: str, listed: str, notes: "list[str]") -> "list[Device]":
    """The devices of one list, up to its first entry that names none."""
    shown: list[Device] = []
    for token in listed.split(","):
        device = _named(token.strip(), devices, variable)
        if device is None:
            if token.strip() not in ("", "-1"):
                notes.append(f"{variable}: {token.strip()} names no device here; it and what follows are hidden")
            break
        if device not in shown:
            shown.append(device)
    hidden = [f"{device.name} ({device.pci_bus_id if isinstance(device.pci_bus_id, str) else device.id})" for device in devices if device not in shown]
    if hidden:
        notes.append(f"hidden by {variable}={listed}: {', '.join(hidden)}; its ordinals are taken to be in the kernel's order")
    return shown


def _named(text: str, devices: "list[Device]", variable: str) -> "Device | None":
    """The device of one entry: an ordinal, a tile's device, or a UUID where the variable takes one."""
    if variable == ROCR and text.upper().startswith("GPU-"):
        return next((device for device in devices if isinstance(device.uuid, str) and device.uuid.lower() == text.lower()), None)
    number = text.partition(".")[0] if variable == ZE else text
    return devices[int(number)] if number.isdecimal() and int(number) < len(devices) else None
