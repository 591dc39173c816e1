"""Every field case has a test that carries its number, and the table of them in the documents is the present one."""

import pathlib

import pytest

from tests.conftest import ROOT
from tests.system.evidence import load

field = load("field_cases")


def test_every_case_has_a_test() -> None:
    """All 36 cases, each held by at least one test; no test carries a number that is none."""
    numbers = [number for number, _, _ in field.cases()]
    assert numbers == list(range(1, 72, 2))
    assert set(field.tests()) == set(numbers)


def test_the_table_is_the_present_one() -> None:
    """`python tests/evidence/field_cases.py` writes what stands in docs/evidence."""
    assert field.PATH.read_text("utf-8") == field.table()


def test_the_collected_cases_are_all_there() -> None:
    """Where the collection itself stands beside the checkout, its numbers are ours."""
    collected = ROOT.parent / "shared" / "evidence" / "FIELD_CASES.md"
    if not collected.exists():
        pytest.skip("the collection is not beside this checkout")
    told = [int(line.partition(".")[0]) for line in pathlib.Path(collected).read_text("utf-8").splitlines() if line.partition(".")[0].isdecimal()]
    assert told == [number for number, _, _ in field.cases()]
