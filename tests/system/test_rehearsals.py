"""Thermal and fault rehearsals under the real governor: the journal shows the right ladder each time (the table is tests/evidence/rehearsals.py)."""

import pytest

from tests.system.evidence import load

rehearsals = load("rehearsals")
pytestmark = pytest.mark.system
SHORT = (
    "ramp to throttle and back",
    "the ceiling is reached",
    "a sensor that jumps once",
    "the device is lost",
    "XID 79",
    "a power brake, and its end",
    "telemetry is lost: stop",
    "card memory below its floor",
)


@pytest.mark.parametrize("rehearsal", [each for each in rehearsals.REHEARSALS if each[0] in SHORT], ids=lambda each: each[0])
def test_rehearsal(rehearsal) -> None:
    """The intents in the journal are those expected, in that order, and no others; the exit code is right."""
    _, intents, code, _, said = rehearsals.rehearse(rehearsal)
    assert (intents, code) == (rehearsal[4], rehearsal[5]), said
