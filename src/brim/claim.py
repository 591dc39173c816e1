"""Says which sentences the evidence supports: a claim, the soak records, and what is still missing before it may be made.

A claim is data: its needs are (measure, comparison, bound). It is allowed when every need holds; a measure that is `Missing`, or that the evidence does
not have, is
never taken for a pass. A claim with `impossible` set is never allowed, whatever a profile says about its needs. Nothing here raises for evidence.
"""

from brim.facts.profile import ClaimRule, Need
from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from brim.facts.evidence import Evidence

HORIZON_HOURS = 8760


class Verdict(Record):
    """One claim judged: `evidence` and `missing` are sentences, one for each need (or the reason why no run can show it)."""

    name: str
    says: str
    allowed: bool
    evidence: tuple[str, ...]
    missing: tuple[str, ...]
    never_needs: tuple[str, ...] = ()


def _need(measure: str, compare: str, bound: float, why: str) -> Need:
    return Need(measure=measure, compare=compare, bound=bound, why=why)


def _is(measure: str, why: str) -> Need:
    return Need(measure=measure, compare="is", bound=True, why=why)


CHAIN = (
    _is("journal_holds", "the journal's chain holds"),
    _is("end_record", "the run was finished by its end record"),
)
BUILT_IN: "Mapping[str, ClaimRule]" = {
    rule.name: rule
    for rule in (
        ClaimRule(
            name="stable_long_run",
            says="The run was stable for 24 hours and longer.",
            needs=(
                _is("governed", "the run was governed"),
                _need("continuous_hours", "at_least", 24, "hours of the longest stretch without a gap, a suspended clock, lost telemetry or a restart"),
                _need("block_seconds", "at_most", 0, "seconds at level block in that stretch"),
                _need("faults", "at_most", 0, "faults of the hardware in that stretch"),
                _need("hours_to_floor", "at_least", HORIZON_HOURS, "hours until a shown trend in memory reaches the floor (infinite where none is shown)"),
                _need("throughput_drift", "at_least", -0.05, "change of throughput over that stretch, as a share"),
                _need("throughput_drift", "at_most", 0.25, "change of throughput over that stretch, as a share"),
                *CHAIN,
            ),
            never_needs=("quality_kept", "fits"),
        ),
        ClaimRule(
            name="fits",
            says="Prediction and measured peak agree within the stated span.",
            needs=(
                _is("plan_priced", "the plan was priced in full before the start"),
                _is("peak_within_span", "the measured peak lies within the predicted span on every device"),
                *CHAIN,
            ),
            never_needs=("stable_long_run",),
        ),
        ClaimRule(
            name="quality_kept",
            says="A quality gate passed for exactly this exported file, after its last export.",
            needs=(
                _is("quality_passed", "the gate passed for this SHA-256"),
                _is("artifact_unchanged", "the file is still the one that the gate saw"),
            ),
            never_needs=("stable_long_run",),
        ),
        ClaimRule(
            name="no_bottleneck_forever",
            says="There will never be a bottleneck.",
            impossible="A run shows what happened while it ran, on this machine and this workload; it cannot show that nothing ever will.",
        ),
        ClaimRule(
            name="world_best",
            says="No other system performs better.",
            impossible="A run measures one system; it cannot show anything about all the others, which were not measured here.",
        ),
    )
}


def rules_of(given: "Iterable[ClaimRule]") -> tuple[ClaimRule, ...]:
    """The claims of a profile over the built-in ones, in the profile's order, then the built-in ones that it does not name.

    A profile may add claims and may add needs to a built-in one; it can neither drop a built-in need nor make an impossible claim possible.
    """
    merged: dict[str, ClaimRule] = {}
    for rule in given:
        base = BUILT_IN.get(rule.name)
        merged[rule.name] = (
            rule
            if base is None
            else base.replace(needs=(*base.needs, *rule.needs), never_needs=rule.never_needs or base.never_needs, says=rule.says or base.says)
        )
    for name, rule in BUILT_IN.items():
        merged.setdefault(name, rule)
    return tuple(merged.values())


def judge(rules: "Iterable[ClaimRule]", evidence: "Evidence") -> tuple[Verdict, ...]:
    """Every claim judged on the evidence, in the order given."""
    return tuple(_judged(rule, evidence) for rule in rules)


def _judged(rule: ClaimRule, evidence: "Evidence") -> Verdict:
    if rule.impossible or not rule.needs:
        why = rule.impossible or "the claim names nothing that it needs, so nothing can show it"
        return Verdict(name=rule.name, says=rule.says, allowed=False, evidence=(), missing=(why,), never_needs=rule.never_needs)
    shown: list[str] = []
    missing: list[str] = []
    for need in rule.needs:
        value = evidence.measures.get(need.measure, Missing(reason="not_supported", detail="the evidence has no such measure"))
        (shown if holds(need, value) else missing).append(sentence(need, value))
    return Verdict(name=rule.name, says=rule.says, allowed=not missing, evidence=tuple(shown), missing=tuple(missing), never_needs=rule.never_needs)


def holds(need: Need, value: object) -> bool:
    """Whether a measure satisfies a need; a value that is missing, not a number, or of the wrong kind never does."""
    if isinstance(value, Missing) or value is None:
        return False
    if need.compare == "is":
        return type(value) is type(need.bound) and value == need.bound
    if isinstance(value, bool) or not isinstance(value, (int, float)) or isinstance(need.bound, (bool, str)):
        return False
    return value >= need.bound if need.compare == "at_least" else value <= need.bound


def sentence(need: Need, value: object) -> str:
    """One need and what was found, for people: `continuous_hours 12.5, needs at least 24: hours of …`."""
    if isinstance(value, Missing):
        found = f"not known ({value.detail or value.reason})"
    elif isinstance(value, float):
        found = f"{value:.4g}"
    else:
        found = str(value).lower() if isinstance(value, bool) else str(value)
    wanted = {"at_least": "at least ", "at_most": "at most ", "is": ""}[need.compare]
    bound = str(need.bound).lower() if isinstance(need.bound, bool) else f"{need.bound}"
    return f"{need.measure} is {found}, needs {wanted}{bound}" + (f" ({need.why})" if need.why else "")
