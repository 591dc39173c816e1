"""Twenty runs of the chaos that `tests/evidence/chaos.py` makes five hundred of."""

import concurrent.futures

import pytest

from tests.system.evidence import load

chaos = load("chaos")
pytestmark = pytest.mark.system


def test_twenty_storms() -> None:
    """Nothing lost that was acknowledged, no orphan without a record, every journal verifies."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: chaos.one(number, "test"), range(20)))
    assert [(event, kind, faults) for event, kind, faults, _ in found if faults] == []
    assert sum(saved for _, _, _, saved in found) >= 2, "hardly a job got as far as a checkpoint: no test of anything"
