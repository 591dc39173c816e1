"""Turns one reading into the budget of a device: the ceiling that a plan may spend, with the sentence that names the query."""

from brim.facts.device import Budget, Host
from brim.units import format_bytes
from brim.values import Missing

OVERRIDE = "BRIM_DEVICE_BUDGET_BYTES"
RESERVES = {"cpu": 0.20, "cuda": 0.10, "rocm": 0.10, "xpu": 0.10, "metal": 0.10}
CAVEAT = (
    "Approximate: mapped weights live in the page cache, so a plan that charges them all is an upper bound — a model over the budget may still run by page-faulting, "
    "and one that fits may still be evicted by pressure from elsewhere. A snapshot, not a reservation."
)


def clamp_reserve(fraction: float) -> float:
    """A reserve inside 0…1; a NaN counts as no reserve."""
    return min(1.0, max(0.0, fraction)) if fraction == fraction else 0.0


def usable(total_bytes: int, reserve: float) -> int:
    """The total less the reserve, in whole bytes, never negative. The reserve is taken in parts per million so that no float meets the bytes."""
    return total_bytes - total_bytes * round(clamp_reserve(reserve) * 1_000_000) // 1_000_000


def parse_override(text: str | None) -> "tuple[int | None, str | None]":
    """The override in bytes, and a warning where the text was given but is of no use (then the probe stands)."""
    if text is None:
        return None, None
    trimmed = text.strip()
    if not (trimmed.isascii() and trimmed.isdigit()) or int(trimmed) <= 0:
        return None, f"{OVERRIDE}={text!r} is ignored: it is no positive number of bytes"
    return int(trimmed), None


def of_host(host: Host, *, reserve: float | None = None, override: int | None = None) -> Budget:
    """The host's budget: the lowest of physical RAM and the cgroup limit, less the reserve; the override stands for all of it."""
    held_back = clamp_reserve(RESERVES["cpu"] if reserve is None else reserve)
    if override is not None:
        return _overridden("cpu", override)
    if isinstance(host.total_bytes, Missing):
        return Budget(backend="cpu", total_bytes=host.total_bytes, usable_bytes=host.total_bytes, reserve_fraction=held_back, source=host.total_bytes.detail)
    total, source = host.total_bytes, "physical RAM (MemTotal in /proc/meminfo)"
    if isinstance(host.cgroup_limit_bytes, int) and host.cgroup_limit_bytes < total:
        total, source = host.cgroup_limit_bytes, f"the cgroup memory limit ({host.cgroup_path})"
    return Budget(backend="cpu", total_bytes=total, usable_bytes=usable(total, held_back), reserve_fraction=held_back, source=source)


def _overridden(backend: str, override: int) -> Budget:
    return Budget(
        backend=backend,
        total_bytes=override,
        usable_bytes=override,
        reserve_fraction=0.0,
        source=f"{OVERRIDE}, which overrides the probe; no reserve applied",
    )


def sentence(budget: Budget) -> str:
    """The one line that a person reads (DESIGN.md, section 2)."""
    if isinstance(budget.usable_bytes, Missing) or isinstance(budget.total_bytes, Missing):
        return f"{budget.backend} budget: unknown ({budget.source}); no ceiling enforced"
    held = f"{budget.reserve_fraction * 100:g}"
    return f"{budget.backend} budget: {format_bytes(budget.usable_bytes)} usable of {format_bytes(budget.total_bytes)} total ({held}% held back) via {budget.source}"
