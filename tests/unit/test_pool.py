"""The budget of every backend: query, reserve, clamp, override, fall-back, unknown, words; as one table."""

import pytest

from brim.budget import OVERRIDE, clamp_reserve, parse_override, sentence, usable
from brim.facts.device import Device, Host, Memory
from brim.pool import backend_word, fall_back, host_available, of_host, settle_device
from brim.values import Missing

GIB = 1 << 30
HOST = Host(total_bytes=32 * GIB, available_bytes=20 * GIB)
GONE = Missing(reason="failed", detail="no driver")


def card(backend: str, source: str, **memory: object) -> Device:
    return Device(id=f"{backend}:0", backend=backend, name="A card", memory=Memory(**memory), sources=(source,))


OWN = {"total_bytes": 24 * GIB, "free_bytes": 20 * GIB, "used_bytes": 4 * GIB}
ROWS = [
    (card("cuda", "nvml", **OWN), None, None, 18 * GIB, "cuda budget: 18.00 GiB usable of 20.00 GiB total (10% held back) via NVML free memory on A card (24.00 GiB total)"),
    (card("cuda", "nvidia-smi", **OWN), None, None, 18 * GIB, "cuda budget: 18.00 GiB usable of 20.00 GiB total (10% held back) via nvidia-smi free memory on A card (24.00 GiB total)"),
    (card("rocm", "sysfs", **OWN), None, None, 18 * GIB, "rocm budget: 18.00 GiB usable of 20.00 GiB total (10% held back) via free VRAM in kernel sysfs on A card (24.00 GiB total)"),
    (card("rocm", "amdsmi", **OWN), None, None, 18 * GIB, "rocm budget: 18.00 GiB usable of 20.00 GiB total (10% held back) via amdsmi free VRAM on A card (24.00 GiB total)"),
    (card("xpu", "level-zero", **OWN), None, None, 18 * GIB, "xpu budget: 18.00 GiB usable of 20.00 GiB total (10% held back) via level-zero free memory on A card (24.00 GiB total)"),
    (card("metal", "metal", total_bytes=24 * GIB).replace(unified=True), None, None, usable(24 * GIB, 0.1), "via recommendedMaxWorkingSetSize of A card (one pool with the host, counted once)"),
    (card("cuda", "nvml", **OWN), 0.5, None, 10 * GIB, "(50% held back)"),
    (card("cuda", "nvml", **OWN), 7.0, None, 0, "cuda budget: 0 B usable of 20.00 GiB total (100% held back)"),
    (card("cuda", "nvml", **OWN), -3.0, None, 20 * GIB, "(0% held back)"),
    (card("cuda", "nvml", **OWN), 0.5, 5 * GIB, 5 * GIB, f"cuda budget: 5.00 GiB usable of 5.00 GiB total (0% held back) via {OVERRIDE}"),
    (card("cuda", "nvml", total_bytes=GONE, free_bytes=GONE), None, None, None, "cuda budget: unknown (A card: no driver); no ceiling enforced"),
    (card("cuda", "nvml", total_bytes=GONE, free_bytes=GONE), None, 5 * GIB, 5 * GIB, "no reserve applied"),
    (card("xpu", "sysfs").replace(soc="integrated graphics at PCI 0000:00:02.0"), None, None, 18 * GIB, "xpu budget: 18.00 GiB usable of 20.00 GiB total (10% held back) via available host memory of A card"),
]  # fmt: skip


@pytest.mark.parametrize(("device", "reserve", "override", "expected", "words"), ROWS)
def test_the_budget_of_every_backend(device, reserve, override, expected, words) -> None:
    """Each row: the query of its backend, its reserve, and the sentence that a person reads."""
    budget = settle_device(device, HOST, reserve=reserve, override=override).budget
    assert isinstance(budget.usable_bytes, Missing) if expected is None else budget.usable_bytes == expected
    assert words in sentence(budget)
    assert budget.approximate


def test_a_budget_is_never_negative_nor_more_than_its_total() -> None:
    """Whatever the reserve, NaN and infinities too."""
    for reserve in (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 0.1, 1.0, 2.0):
        assert 0 <= clamp_reserve(reserve) <= 1
        assert 0 <= usable(1000, reserve) <= 1000


@pytest.mark.parametrize(
    ("text", "count"),
    [("1024", 1024), ("  1024\n", 1024), ("0", None), ("-5", None), ("1e9", None), ("24GiB", None), ("", None), ("१२", None), ("nan", None), (None, None)],
)
def test_the_override_is_parsed_or_ignored_with_a_warning(text, count) -> None:
    """A positive whole number, white space trimmed; anything else is ignored, and says so."""
    value, warning = parse_override(text)
    assert value == count
    assert bool(warning) is (text is not None and count is None)


def test_the_hosts_budget_tells_ever_and_now() -> None:
    """RAM or the lower cgroup limit less a fifth; what is there now is the smallest room, and no more than the budget."""
    limited = Host(total_bytes=32 * GIB, available_bytes=30 * GIB, cgroup_limit_bytes=10 * GIB, cgroup_working_set_bytes=3 * GIB, cgroup_path="/a")
    budget = of_host(limited)
    assert (budget.total_bytes, budget.usable_bytes, budget.ever_bytes, budget.now_bytes) == (10 * GIB, 8 * GIB, 8 * GIB, 7 * GIB)
    assert host_available(limited) == 7 * GIB
    assert of_host(HOST).now_bytes == 20 * GIB
    assert sentence(of_host(Host(total_bytes=GONE))) == "cpu budget: unknown (no driver); no ceiling enforced"


def test_an_accelerator_that_does_not_answer_falls_back() -> None:
    """The budget is the host's, keeps the word that was asked for, and says that it fell back; the override still stands for everything."""
    budget = fall_back("cuda", "no CUDA device answered", HOST)
    assert (budget.backend, budget.fell_back, budget.usable_bytes) == ("cuda", True, usable(32 * GIB, 0.2))
    assert "fell back" in sentence(budget)
    assert sentence(budget).startswith("cuda budget: 25.60 GiB usable of 32.00 GiB total (20% held back) via physical RAM")
    assert not fall_back("cuda", "x", HOST, override=5).fell_back
    nothing = fall_back("rocm", "no ROCm device answered", Host(total_bytes=GONE))
    assert sentence(nothing) == "rocm budget: unknown (no ROCm device answered, and no driver); no ceiling enforced"


@pytest.mark.parametrize(
    ("word", "backend"),
    [("cpu", "cpu"), ("HOST", "cpu"), ("Cuda", "cuda"), ("metal", "metal"), ("ROCm", "rocm"), ("hip", "rocm"), ("XPU", "xpu"), ("gpu", None), ("", None)],
)
def test_backend_words(word, backend) -> None:
    """In any case; anything else is no backend."""
    assert backend_word(word) == backend


def test_a_hypothetical_or_scripted_budget_stands() -> None:
    """A budget that the reading brought is not derived anew."""
    own = of_host(HOST).replace(backend="cuda", source="given")
    assert settle_device(card("cuda", "nvml", **OWN).replace(budget=own), HOST).budget == own
