"""Runs one vendor probe in a process of its own, so that a driver's crash or hang stays there; its answer goes out as one marshalled block.

Before a library of AMD's or Intel's is touched, what the kernel itself tells of their cards goes out as a block of its own: it stands where the library hangs or crashes.

Started by `ask.py` as `python -I -S -c … VENDOR ROOT WAKE`. What libraries print goes to /dev/null: the answer has the real standard output for itself.
"""

import contextlib
import marshal
import os
import sys

from brim.probes.vendor import Unavailable
from brim.values import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.device import Device


KERNEL_TELLS = ("amd", "intel")


def look(vendor: str, root: str, *, wake: bool, library: bool = True) -> "tuple[Device, ...]":
    """One look through one vendor's library, in this process; `Unavailable` says why there is none. Without `library` what the kernel itself tells (AMD, Intel)."""
    if vendor == "nvidia":
        try:
            from brim.probes.nvml import Nvml

            probe = Nvml(root=root, wake=wake)
        except ImportError as error:
            raise Unavailable("not_supported", f"the Python package nvidia-ml-py is not here ({error})", 12) from None
        probe.open()
        return probe.read(1)
    if vendor == "amd":
        from brim.probes.amd import look as look_amd

        return look_amd(root, library=library)
    if vendor == "intel":
        from brim.probes.intel import look as look_intel

        return look_intel(root, library=library)
    if vendor == "apple":
        from brim.probes.metal import look as look_apple

        return look_apple()
    raise Unavailable("failed", f"no vendor is called {vendor}")


def main() -> None:
    """Look once, write the answer, leave without running the library's exit code (it may hang)."""
    vendor, root, wake = sys.argv[1:4]
    out = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    answer: dict[str, object]
    if vendor in KERNEL_TELLS:
        with contextlib.suppress(Unavailable, OSError):
            _send(out, {"kernel": [plain(device) for device in look(vendor, root, wake=False, library=False)]})
    try:
        answer = {"devices": [plain(device) for device in look(vendor, root, wake=wake == "1")]}
    except Unavailable as why:
        answer = {"reason": why.reason, "detail": why.detail, "code": why.code}
    except Exception as error:  # noqa: BLE001 - a vendor's package may raise anything; the parent gets it as the reason
        answer = {"reason": "failed", "detail": f"{type(error).__name__}: {error}", "code": 0}
    _send(out, answer)
    os._exit(0)


def _send(out: int, answer: "dict[str, object]") -> None:
    block = marshal.dumps(answer)
    while block:
        block = block[os.write(out, block) :]
