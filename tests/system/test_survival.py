"""Three trials each of the survival table: who ends with a complete checkpoint, and whether a fast load is taken for a leak (the whole table is evidence)."""

import importlib.util

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def survival():
    """The benchmark as a module, at a small scale: a cliff of 768 MiB, 256 MiB of gap, a checkpoint of a quarter of a second."""
    spec = importlib.util.spec_from_file_location("survival", ROOT / "benchmarks" / "survival.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.own_group() is None:
        pytest.skip("no cgroup v1 memory controller here that we may use")
    module.CLIFF, module.GAP, module.BASE, module.SAVE_MS = 768, 256, 128, 250
    module.FLAT_CLIFF, module.FLAT_BASE = 1024, 512
    return module


@pytest.fixture(scope="module")
def hog(survival, tmp_path_factory):
    return survival.build(tmp_path_factory.mktemp("hog"))


@pytest.mark.parametrize("tool", ["brim_coop", "brim_plain"])
def test_brim_loses_no_checkpoint(survival, hog, tool) -> None:
    """Wherever gap ÷ growth ≥ checkpoint time, the job ends with a complete checkpoint and the kernel kills nobody; three of three at half a GiB/s."""
    for _ in range(3):
        row = survival.trial(tool, 0.5, hog)
        assert (row["complete"], row["oom_kills"], row["exit"]) == (True, 0, 75), row
        assert row["past_mib"] < 32, row


def test_nobody_is_killed_by_the_kernel(survival, hog) -> None:
    """The cliff is real: the same job without a guard is killed at it, without a checkpoint."""
    row = survival.trial("nobody", 0.5, hog)
    assert not row["complete"]
    assert row["oom_kills"] == 1


@pytest.mark.parametrize("tool", ["brim_coop", "brim_plain"])
def test_a_fast_load_is_no_leak(survival, hog, tool) -> None:
    """A job that loads as fast as it can and then stays flat above the threshold is left alone."""
    row = survival.trial(tool, 3, hog, flat=True)
    assert not row["alarm"], row
