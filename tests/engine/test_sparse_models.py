"""brim against a real llama.cpp on full-size models whose weights are holes in a file."""

import pytest

from tests.engine.sparse import logged, planned

pytestmark = pytest.mark.engine


@pytest.mark.timeout(250)
@pytest.mark.parametrize(
    ("kind", "name", "settings"), [("shapes", "llama-3.2-1b", {"ctx": 4096, "slots": 2}), ("shapes", "lfm2-1.2b", {"ctx": 8192, "slots": 1, "kind": "q8_0"})]
)
def test_a_full_size_model_is_priced_to_the_printed_digits(kind, name, settings, tmp_path) -> None:
    """Every buffer of the engine's log equals the price to the two digits that the log prints (MiB)."""
    log, plan = logged(kind, name, settings, tmp_path), planned(kind, name, settings)
    for part, size in log.items():
        assert abs(size - plan[part]) <= 0.011 * (1 << 20), part
