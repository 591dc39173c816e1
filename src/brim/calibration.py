"""Learns a machine's fixed overheads and compute residuals from governed runs, and applies them to a plan within stated bounds; no I/O, no clock.

One observation is what one run showed of one part: measured bytes beside predicted ones. Observations count for a plan where engine, version, device and
architecture are the same. Outliers are left out and named: runs during which foreign processes held memory on the device, and, from four runs on, residuals farther
than 3.5 scaled median absolute deviations from the median (Iglewicz and Hoaglin 1993, "How to Detect and Handle Outliers"; scale 1.4826, at least 1 MiB).

What is applied: likely = predicted + median residual; the span is the range of the residuals that were kept, widened by 1 + 2/n, and never narrower than a
1/(n+1)th of the predicted one: one run moves the middle and narrows nothing, and the span narrows as runs agree. Guarantees: an exact part is never touched; no low end and no high end ever goes
below the low end that was predicted, so a refusal that stands at the low end stands for ever, and one at the high end can become a fit only within the
span that had been stated. Above the predicted span it may go freely: a machine that needs more is believed at once.
"""

from brim import trend
from brim.engines.base import Part
from brim.units import MIB, Span
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from brim.engines.base import Plan

LEARNABLE = ("context_overhead", "graph_capture", "compute_buffer", "activations", "communication", "allocator_slack")
OVERHEAD = "context_overhead"
FARTHEST = 3.5
MAD_SCALE = 1.4826


class Observation(Record):
    """One part of one run: bytes predicted and measured, on which device (its name, not its index), under what. `foreign` names what spoils it, else empty."""

    at: str
    run: str
    engine: str
    version: str
    device: str
    architecture: str
    part: str
    predicted_bytes: int
    measured_bytes: int
    foreign: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What must be the same for it to count."""
        return self.engine, self.version, self.device, self.architecture

    @property
    def residual(self) -> int:
        """Measured less predicted, in bytes."""
        return self.measured_bytes - self.predicted_bytes


class Learnt(Record):
    """What observations of one part say: the residual's span, how many runs, the newest date, and the runs left out with the reason."""

    residual: Span
    runs: int
    newest: str
    left_out: tuple[str, ...]


def key_text(key: tuple[str, str, str, str]) -> str:
    """A key as one word for lists and for `forget`."""
    return " / ".join(key)


def learn(observations: "Sequence[Observation]") -> Learnt | None:
    """What observations of one part under one key say; None where none of them is usable."""
    left_out = [f"{one.run}: {one.foreign}" for one in observations if one.foreign]
    clean = [one for one in observations if not one.foreign]
    if len(clean) >= 4:
        middle = trend.median([one.residual for one in clean])
        spread = max(MAD_SCALE * trend.median([abs(one.residual - middle) for one in clean]), MIB)
        far = [one for one in clean if abs(one.residual - middle) > FARTHEST * spread]
        left_out += [f"{one.run}: {one.residual - int(middle):+d} bytes from the other runs" for one in far]
        clean = [one for one in clean if one not in far]
    if not clean:
        return None
    residuals = [one.residual for one in clean]
    middle = int(trend.median(residuals))
    widen = 1 + 2 / len(clean)
    low = middle - int((middle - min(residuals)) * widen)
    high = middle + int((max(residuals) - middle) * widen)
    return Learnt(residual=Span(low=low, likely=middle, high=high), runs=len(clean), newest=max(one.at for one in clean), left_out=tuple(left_out))


def apply(plan: "Plan", observations: "Iterable[Observation]", devices: "Mapping[str, str]", architecture: str) -> "Plan":
    """The plan with what this machine has shown. `devices` maps a plan's device ids to the names that observations go by; an id that is not in it is left alone."""
    by: dict[tuple[str, str], list[Observation]] = {}
    for one in observations:
        if one.engine == plan.engine and one.version == plan.engine_version and one.architecture == architecture:
            by.setdefault((one.device, one.part), []).append(one)
    if not by or plan.missing:
        return plan
    parts = [_applied(part, by.get((devices.get(part.device, ""), part.name), [])) for part in plan.parts]
    for device, name in devices.items():
        seen = by.get((name, OVERHEAD), [])
        if seen and not any(part.device == device and part.name == OVERHEAD for part in plan.parts) and any(part.device == device for part in plan.parts):
            nothing = Part(name=OVERHEAD, device=device, bytes=Span(low=0, likely=0, high=0), rule="", source="")
            found = _applied(nothing, seen, force=True)
            parts += [found] if found.bytes.high else []
    return plan.replace(parts=tuple(parts))


def _applied(part: Part, observations: "Sequence[Observation]", *, force: bool = False) -> Part:
    """One part, its span moved and narrowed within the bounds that the module states."""
    if not observations or part.name not in LEARNABLE or (part.bytes.exact and not force):
        return part
    learnt = learn(observations)
    if learnt is None:
        return part
    old = part.bytes
    likely = max(old.likely + learnt.residual.likely, old.low)
    low, high = max(old.likely + learnt.residual.low, old.low), max(old.likely + learnt.residual.high, old.low)
    least = learnt.runs + 1 if learnt.runs > 1 else 1  # n runs may narrow a span to its 1/(n+1)th at best; one run narrows nothing
    below, above = (old.likely - old.low, old.high - old.likely) if old.high else (likely, likely)
    low, high = max(min(low, likely - below // least), old.low), max(high, likely + above // least)
    left_out = f"; left out: {', '.join(learnt.left_out)}" if learnt.left_out else ""
    return part.replace(
        bytes=Span(low=min(low, likely), likely=likely, high=high),
        rule=f"{part.rule or 'not priced'}; here {learnt.residual.likely:+d} B ({learnt.residual.low:+d}…{learnt.residual.high:+d})",
        source=f"measured here on {learnt.newest[:10]}, {learnt.runs} run{'s' if learnt.runs > 1 else ''}{left_out}"
        + (f"; {part.source}" if part.source else ""),
    )


def observe(
    plan: "Plan", measured: "Mapping[tuple[str, str], int]", peaks: "Mapping[str, int]", devices: "Mapping[str, str]", about: "Mapping[str, str]"
) -> tuple[Observation, ...]:
    """What one run showed. `measured` maps (part, device id) to bytes that the engine itself reported; `peaks` maps a device id to the most that the job held there.

    The fixed overhead of a device is its peak less every other part: as the engine reported it where it did, else as predicted. `about` gives `at`, `run`, `architecture`, `foreign`.
    """
    found = []
    for part in plan.parts:
        name = devices.get(part.device)
        seen = measured.get((part.name, part.device))
        if name and seen is not None and part.name in LEARNABLE:
            found.append(_observation(plan, name, part.name, part.bytes.likely, seen, about))
    for device, peak in peaks.items():
        name = devices.get(device)
        others = [part for part in plan.parts if part.device == device and part.name != OVERHEAD]
        if name and others and not plan.missing:
            names = dict.fromkeys(
                part.name for part in others
            )  # several parts may have one name (a cache of each kind, weights by buffer): the engine tells their sum
            rest = peak - sum(measured.get((word, device), sum(part.bytes.likely for part in others if part.name == word)) for word in names)
            predicted = sum(part.bytes.likely for part in plan.parts if part.device == device and part.name == OVERHEAD)
            if rest >= 0:  # else the run was too short to touch what it had mapped, and shows nothing about the rest
                found.append(_observation(plan, name, OVERHEAD, predicted, rest, about))
    return tuple(found)


def _observation(plan: "Plan", device: str, part: str, predicted: int, measured: int, about: "Mapping[str, str]") -> Observation:
    return Observation(
        at=about["at"], run=about["run"], engine=plan.engine, version=plan.engine_version, device=device, architecture=about["architecture"], part=part,
        predicted_bytes=predicted, measured_bytes=measured, foreign=about.get("foreign", ""),
    )  # fmt: skip


def from_rows(rows: object) -> tuple[Observation, ...]:
    """Observations from decoded JSON; a row that does not hold is left out (a damaged store must not stop a fit)."""
    found = []
    for row in rows if isinstance(rows, list) else ():
        texts = ("at", "run", "engine", "version", "device", "architecture", "part")
        if (
            isinstance(row, dict)
            and all(isinstance(row.get(key), str) for key in texts)
            and all(_is_bytes(row.get(f"{key}_bytes")) for key in ("predicted", "measured"))
        ):
            found.append(
                Observation(
                    **{key: row[key] for key in texts}, predicted_bytes=row["predicted_bytes"], measured_bytes=row["measured_bytes"],
                    foreign=str(row.get("foreign", "")),
                )
            )  # fmt: skip
    return tuple(found)


def _is_bytes(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60


def summary(observations: "Sequence[Observation]") -> "list[dict[str, Any]]":
    """One row for each key and part: how many runs, the newest, the residual's span, and what was left out."""
    groups: dict[tuple[tuple[str, str, str, str], str], list[Observation]] = {}
    for one in observations:
        groups.setdefault((one.key, one.part), []).append(one)
    rows = []
    for (key, part), members in sorted(groups.items()):
        learnt = learn(members)
        rows.append({
            "key": key_text(key), "engine": key[0], "version": key[1], "device": key[2], "architecture": key[3], "part": part, "observations": len(members),
            "runs": learnt.runs if learnt else 0, "newest": learnt.newest if learnt else None,
            "residual_bytes": {"low": learnt.residual.low, "likely": learnt.residual.likely, "high": learnt.residual.high} if learnt else None,
            "left_out": list(learnt.left_out) if learnt else [f"{one.run}: {one.foreign}" for one in members],
        })  # fmt: skip
    return rows
