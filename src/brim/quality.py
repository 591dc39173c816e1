"""Reads a number from an evaluation's output and judges it against a baseline; no I/O, no clock.

A verdict is bound to the SHA-256 of one artifact: another export is another file and has no verdict. Higher is better unless the rule says otherwise.
"""

import json
import re

from brim.errors import CannotTell, Usage
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


class Rule(Record):
    """What must hold: the metric's name, how far it may drop (absolute, or as a share of the baseline), and which way is better."""

    metric: str
    max_drop: float
    relative: bool = False
    lower_is_better: bool = False


class Verdict(Record):
    """One evaluation judged. `drop` is positive where the artifact is worse than the baseline."""

    passed: bool
    value: float
    baseline: float
    drop: float
    allowed_drop: float
    reason: str


def parse_drop(text: str) -> tuple[float, bool]:
    """(drop, relative) from `0.02` or `2%`; `Usage` where it is neither or negative."""
    try:
        drop = float(text.rstrip("%"))
    except ValueError:
        raise Usage(f"--max-drop {text!r}: write a number such as 0.02, or a share such as 2%") from None
    if not 0 <= drop < float("inf"):
        raise Usage(f"--max-drop {text!r}: must not be negative")
    return (drop / 100, True) if text.endswith("%") else (drop, False)


def number_in(output: str, metric: str, pattern: str | None = None) -> float:
    """The metric in an evaluation's output: the last JSON value that has it (a dotted name, or the bare name at any depth), else the last `metric: number` in the text.

    `pattern` is a regular expression with one group, used instead. `CannotTell` where there is no number, `Usage` for a bad pattern.
    """
    if pattern is not None:
        try:
            found = re.findall(pattern, output)
        except re.error as fault:
            raise Usage(f"--pattern {pattern!r}: {fault}") from None
        last = found[-1] if found else None
        return _finite(last[0] if isinstance(last, tuple) else last, metric)
    for document in _documents(output):
        value = _look_up(document, metric)
        if value is not None:
            return _finite(value, metric)
    loose = re.findall(rf"(?<![\w.]){re.escape(metric)}\s*[:=|]?\s*({NUMBER})(?![\w.])", output)
    return _finite(loose[-1] if loose else None, metric)


def _finite(value: object, metric: str) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise CannotTell(f"the evaluation printed no number for {metric!r}", hint='Print JSON such as {"accuracy": 0.71}, or give --pattern.') from None
    if not abs(number) < float("inf"):
        raise CannotTell(f"the evaluation printed {value!r} for {metric!r}, which is no finite number")
    return number


def _documents(output: str) -> "list[Any]":
    """Every JSON object or list in the output, the last first: the whole text, then single lines."""
    found = []
    for text in (output, *reversed(output.splitlines())):
        if text.lstrip()[:1] in ("{", "["):
            try:
                found.append(json.loads(text))
            except (ValueError, RecursionError):
                continue
    return found


def _look_up(document: "Any", metric: str) -> object:
    """The value under a dotted path, else under the bare name at any depth (the first in order)."""
    place = document
    for word in metric.split("."):
        if not isinstance(place, dict) or word not in place:
            break
        place = place[word]
    else:
        return place if isinstance(place, (int, float, str)) and not isinstance(place, bool) else None
    for item in document.values() if isinstance(document, dict) else document if isinstance(document, list) else ():
        if isinstance(item, (dict, list)):
            value = _look_up(item, metric)
            if value is not None:
                return value
    return None


def judge(rule: Rule, value: float, baseline: float) -> Verdict:
    """Whether `value` is within the allowed drop of `baseline`."""
    drop = value - baseline if rule.lower_is_better else baseline - value
    allowed = abs(baseline) * rule.max_drop if rule.relative else rule.max_drop
    passed = drop <= allowed + 1e-12 * max(1.0, abs(baseline))  # 0.70 − 0.68 is a hair more than 0.02 in binary
    word = "within" if passed else "more than"
    reason = f"{rule.metric} is {value:g} against {baseline:g}: worse by {drop:g}, {word} the allowed {allowed:g}"
    if drop <= 0:
        reason = f"{rule.metric} is {value:g} against {baseline:g}: not worse"
    return Verdict(passed=passed, value=value, baseline=baseline, drop=drop, allowed_drop=allowed, reason=reason)


def state_of(verdicts: "Mapping[str, Any]", digest: str, metric: str = "") -> "tuple[bool, str]":
    """(open or passed, why) for one artifact by its SHA-256 in the stored verdicts; with `metric` only that metric's verdict counts."""
    held = verdicts.get(digest)
    if not isinstance(held, dict):
        return False, f"no quality gate has passed for this file (SHA-256 {digest[:16]}…): it is new, or was exported again"
    if metric and held.get("metric") != metric:
        return False, f"the gate that passed for this file measured {held.get('metric')!r}, and {metric!r} is asked for"
    return held.get("passed") is True, str(held.get("reason", "the stored verdict gives no reason"))
