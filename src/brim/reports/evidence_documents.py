"""The documents of evidence and claims: values in, builtins and characters out; no number is computed here but for print."""

from brim.values import Missing, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from brim.claim import Verdict
    from brim.facts.evidence import Evidence


def evidence(found: "Evidence") -> "dict[str, Any]":
    """The evidence as builtins; an infinite number is the word `infinite`, because JSON has none."""
    row = plain(found)
    assert isinstance(row, dict)
    row["measures"] = {name: _finite(value) for name, value in found.measures.items()}
    return row


def _finite(value: object) -> object:
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "infinite" if value > 0 else "-infinite"
    return plain(value)


def claims(run: str, verdicts: "Sequence[Verdict]", found: "Evidence", chain_fault: str) -> "dict[str, Any]":
    """`brim.claims/1`."""
    return {
        "schema": "brim.claims/1",
        "run": run,
        "chain_fault": chain_fault,
        "claims": [
            {
                "name": one.name, "says": one.says, "allowed": one.allowed, "evidence": list(one.evidence), "missing": list(one.missing),
                "never_needs": list(one.never_needs),
            }
            for one in verdicts
        ],
        "evidence": evidence(found),
    }  # fmt: skip


def claims_text(document: "Mapping[str, Any]") -> str:
    """The claims for a terminal or an issue: each with allowed or not yet, the evidence, and what is missing."""
    lines = []
    for one in document["claims"]:
        never = not one["allowed"] and not one["evidence"] and len(one["missing"]) == 1
        lines.append(f"{'allowed ' if one['allowed'] else 'never   ' if never else 'not yet '} {one['name']}: {one['says']}")
        lines += [f"    shown:   {text}" for text in one["evidence"]]
        lines += [f"    {'because' if never else 'missing'}: {text}" for text in one["missing"]]
    return "\n".join(lines)


def evidence_text(found: "Evidence") -> str:
    """The evidence as a short list for people."""
    measures = found.measures
    lines = [
        f"continuous for {_hours(measures.get('continuous_hours'))} of {_hours(measures.get('duration_hours'))}, coverage {_percent(measures.get('coverage'))}",
        "time in level: " + (", ".join(f"{level} {spent:.0f} s" for level, spent in found.level_seconds.items()) or "none"),
        f"hours until memory reaches the floor: {_plain_number(measures.get('hours_to_floor'))}",
        f"throughput drift: {_percent(measures.get('throughput_drift'))}",
        f"faults {measures.get('faults')}, restarts {measures.get('restarts')}",
    ]
    for signal in found.signals:
        if signal.count:
            scale, unit = (1 << 20, "MiB") if signal.unit == "bytes" else (1, signal.unit)
            limit = "no limit" if isinstance(signal.limit, Missing) else f"{signal.side} {signal.limit / scale:.1f}"
            lines.append(
                f"{signal.name}: p50 {_scaled(signal.p50, scale)}, p95 {_scaled(signal.p95, scale)}, p99 {_scaled(signal.p99, scale)}, "
                f"{_scaled(signal.low, scale)}…{_scaled(signal.high, scale)} {unit} ({limit}), coverage {signal.coverage:.2%}"
            )
    lines += [f"{one.kind} at {one.at_s:.0f} s for {one.length_s:.0f} s: {one.what}" for one in found.interruptions]
    return "\n".join(lines)


def _hours(value: object) -> str:
    return f"{value:.4g} h" if isinstance(value, (int, float)) else "unknown"


def _percent(value: object) -> str:
    return f"{value:.2%}" if isinstance(value, (int, float)) else f"not known ({value.detail})" if isinstance(value, Missing) else "not known"


def _plain_number(value: object) -> str:
    return "never at the present trend" if value == float("inf") else f"{value:.4g}" if isinstance(value, (int, float)) else _percent(value)


def _scaled(value: object, scale: int) -> str:
    return f"{value / scale:.1f}" if isinstance(value, (int, float)) else "unknown"
