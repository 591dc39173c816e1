"""The catalogue: every row is whole, and loose names find the one device that is meant, or say which could be."""

import pytest

from brim.cards import find, matches, parse
from brim.errors import Usage
from brim.readers.catalogue import text

MODELS = parse(text())
GIB = 1 << 30


def test_the_rows_are_whole() -> None:
    """At least two hundred devices, each once, with memory, backend and two sources; the sizes are the driver's, not the box's."""
    assert len(MODELS) >= 200
    assert len({model.name for model in MODELS}) == len(MODELS)
    for model in MODELS:
        assert model.backend in ("cuda", "rocm", "xpu", "metal"), model.name
        assert GIB <= model.memory_bytes <= 512 * GIB, model.name
        assert model.memory_from, model.name
        assert model.source, model.name
        assert (model.backend == "cuda") == bool(model.compute), model.name
        assert model.slowdown_c <= model.shutdown_c, model.name
    families = (
        "GTX 10",
        "RTX 20",
        "RTX 30",
        "RTX 40",
        "RTX 50",
        "Quadro",
        "P100",
        "B300",
        "Jetson",
        "GB10",
        "Radeon RX",
        "Instinct",
        "Arc",
        "GPU Max",
        "Apple M1",
        "Apple M5",
    )
    assert [family for family in families if not any(family in model.name for model in MODELS)] == []
    assert 79.15 < find(MODELS, "H100 SXM5 80GB").memory_bytes / GIB < 79.25


@pytest.mark.parametrize("query", ["3090", "rtx 3090", "NVIDIA GeForce RTX 3090", "rtx3090", "geforce 3090", "RTX-3090", "GeForce RTX 3090"])
def test_one_card_by_many_names(query) -> None:
    """Loosely written, the driver's own name too: one card, and not its Ti."""
    assert find(MODELS, query).name == "NVIDIA GeForce RTX 3090"


FOUND = [
    ("3090ti", "NVIDIA GeForce RTX 3090 Ti"), ("RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 Laptop GPU"), ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM4 80GB"), ("t4", "NVIDIA Tesla T4"),
    ("Tesla V100-SXM2-32GB", "NVIDIA Tesla V100 SXM2 32GB"), ("mi300x", "AMD Instinct MI300X"), ("rx7900xtx", "AMD Radeon RX 7900 XTX"), ("M4 Max 64 GB", "Apple M4 Max 64GB"),
    ("DGX Spark", "NVIDIA GB10"), ("a770 16gb", None), ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation"), ("l40s", "NVIDIA L40S"), ("strix halo 128GB", "AMD Ryzen AI Max+ 395 128GB"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "name"), FOUND)
def test_names_of_every_maker(query, name) -> None:
    """What people and drivers write finds the row; a size that no row has finds none."""
    if name is None:
        with pytest.raises(Usage):
            find(MODELS, query)
    else:
        assert find(MODELS, query).name == name


@pytest.mark.parametrize(
    ("query", "some"),
    [
        ("h100", "NVIDIA H100 NVL 94GB"),
        ("4060 ti", "NVIDIA GeForce RTX 4060 Ti 16GB"),
        ("rtx 6000", "NVIDIA Quadro RTX 6000"),
        ("m4 max", "Apple M4 Max 128GB"),
    ],
)
def test_an_ambiguous_name_lists_its_candidates(query, some) -> None:
    """It never guesses."""
    with pytest.raises(Usage, match="may be any of") as fault:
        find(MODELS, query)
    assert some in str(fault.value)


def test_an_unknown_name_suggests() -> None:
    """The nearest names, or where to look."""
    with pytest.raises(Usage, match="no device is called") as fault:
        find(MODELS, "rtx 3091")
    assert "3090" in fault.value.hint
    with pytest.raises(Usage) as fault:
        find(MODELS, "qqqqqqqq")
    assert "brim devices" in fault.value.hint


def test_every_row_is_found_by_its_own_name_and_aliases() -> None:
    """Its own name finds each row, or one that a plan cannot tell from it."""
    for model in MODELS:
        for name in (model.name, *model.aliases):
            other = find(MODELS, name) if len({(m.memory_bytes, m.compute) for m in matches(MODELS, name)}) == 1 else model
            assert (other.memory_bytes, other.backend) == (model.memory_bytes, model.backend), name


def test_the_documents_count_right() -> None:
    """The number of devices that the documentation and the changelog give is the number of rows."""
    import pathlib

    root = pathlib.Path(__file__).parent.parent.parent
    for name in ("docs/probes.md", "CHANGELOG.md"):
        assert f"{len(MODELS)} " in (root / name).read_text(), name
