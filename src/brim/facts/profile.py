"""What a profile says: targets, limits, runtime profile, watchdog, quality and claims for one kind of machine and model."""

from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Need(Record):
    """One condition of a claim: a measure of the run, a comparison and a bound.

    `measure` names a field of the run's evidence (see claim.py); `compare` is `at_least`, `at_most` or `is`; `why` is the sentence that a person reads.
    """

    measure: str
    compare: str
    bound: "float | int | bool | str"
    why: str = ""


class ClaimRule(Record):
    """A claim as data: what it says, what it needs, what it does not ask for, or why no run can ever show it (`impossible`)."""

    name: str
    says: str
    needs: tuple[Need, ...] = ()
    never_needs: tuple[str, ...] = ()
    impossible: str = ""


class Profile(Record):
    """One profile as it was written, checked. Sections are mappings of the words that profile.py's table knows; an absent section is empty.

    `limits` holds the words of `brim run`'s flags (underscores for dashes). `source` says which file it was.
    """

    name: str
    source: str
    description: str = ""
    hardware: "Mapping[str, Any]"
    model: "Mapping[str, Any]"
    limits: "Mapping[str, Any]"
    watchdog: "Mapping[str, Any]"
    runtime_profile: "Mapping[str, Any]"
    quality: "Mapping[str, Any]"
    report: "Mapping[str, Any]"
    claims: tuple[ClaimRule, ...] = ()
