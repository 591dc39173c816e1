"""The words of --device: real devices by index, hypothetical ones by size or name, and the fall-back to the host."""

import pytest

from brim.errors import Usage
from brim.facts.device import Budget, Device, Memory
from brim.lineup import Model, Wanted, assemble, chosen_by_engine, left_visible, parse, specs
from brim.units import GIB
from brim.values import Missing

PARSED = [
    ("cuda:0", Wanted(word="cuda:0", backend="cuda", index=0)),
    ("cuda:24", Wanted(word="cuda:24", backend="cuda", index=24)),  # a number without a unit is an index
    ("CUDA:24GiB", Wanted(word="CUDA:24GiB", backend="cuda", total_bytes=24 * GIB)),
    ("cuda:24GB", Wanted(word="cuda:24GB", backend="cuda", total_bytes=24 * 10**9)),
    ("cuda:24.5Gi", Wanted(word="cuda:24.5Gi", backend="cuda", total_bytes=int(24.5 * GIB))),
    ("hip:1", Wanted(word="hip:1", backend="rocm", index=1)),
    ("host", Wanted(word="host", backend="cpu")),
    ("cpu:64GiB", Wanted(word="cpu:64GiB", backend="cpu", total_bytes=64 * GIB)),
    ("metal", Wanted(word="metal", backend="metal")),
    ("RTX 3090", Wanted(word="RTX 3090", name="RTX 3090")),
]


@pytest.mark.parametrize(("word", "expected"), PARSED)
def test_a_device_word_is_understood(word: str, expected: Wanted) -> None:
    """Backends in any case, an index without a unit, a size with one, anything else a name."""
    assert parse(word) == expected


@pytest.mark.parametrize("word", ["quantum:0", "cuda:24parsecs", "cuda:", ":0", "cuda:0GiB", "cuda:-1"])
def test_a_word_that_means_nothing_is_a_usage_error(word: str) -> None:
    """One sentence with the word in it."""
    with pytest.raises(Usage, match="--device"):
        parse(word)


def host() -> Device:
    """A probed host of 16 GiB."""
    budget = Budget(backend="cpu", total_bytes=16 * GIB, usable_bytes=12 * GIB, reserve_fraction=0.2, source="physical RAM")
    return Device(id="cpu", backend="cpu", name="host", memory=Memory(total_bytes=16 * GIB, available_bytes=10 * GIB), budget=budget)


def card(index: int, total: int = 24 * GIB) -> Device:
    """A probed card."""
    budget = Budget(backend="cuda", total_bytes=total, usable_bytes=total * 9 // 10, reserve_fraction=0.1, source="NVML")
    return Device(
        id=f"cuda:{index}", backend="cuda", name="card", index=index, memory=Memory(total_bytes=total, free_bytes=total - GIB), budget=budget, compute_capability="8.6"
    )  # fmt: skip


def test_without_words_the_accelerators_count_else_the_host() -> None:
    """What is visible: the cards; where there are none, the host."""
    assert [d.id for d in assemble((), (card(0), card(1), host()))[0]] == ["cuda:0", "cuda:1"]
    assert [d.id for d in assemble((), (host(),))[0]] == ["cpu"]


def test_hypothetical_devices_count_on_and_hold_back_their_reserve() -> None:
    """cuda:24GiB twice is cuda:0 and cuda:1, a tenth held back, marked as hypothetical; beside a real cuda:0 it is cuda:1."""
    devices, caveats = assemble(("cuda:24GiB", "cuda:12GiB", "cpu:64GiB"), (host(),))
    assert [d.id for d in devices] == ["cuda:0", "cuda:1", "cpu"]
    assert [d.budget.usable_bytes for d in devices] == [
        24 * GIB - 24 * GIB // 10,
        12 * GIB - 12 * GIB * 100_000 // 1_000_000,
        64 * GIB - 64 * GIB * 200_000 // 1_000_000,
    ]
    assert all(d.budget.hypothetical for d in devices)
    assert caveats == ()
    assert [d.id for d in assemble(("cuda:0", "cuda:8GiB"), (card(0), host()))[0]] == ["cuda:0", "cuda:1"]
    assert assemble(("cuda:10GiB",), (host(),), reserve=0.5)[0][0].budget.usable_bytes == 5 * GIB


def test_a_name_comes_from_the_catalogue() -> None:
    """A name is looked up; one that is not there is a usage error."""
    known = {"RTX 3090": Model(name="GeForce RTX 3090", backend="cuda", total_bytes=24 * GIB, compute_capability="8.6")}
    devices, _ = assemble(("RTX 3090",), (host(),), named=known.get)
    assert devices[0].id == "cuda:0"
    assert specs(devices)[0].compute_capability == 860
    with pytest.raises(Usage, match="catalogue"):
        assemble(("Voodoo 2",), (host(),), named=known.get)


def test_an_accelerator_that_does_not_answer_falls_back_to_the_host() -> None:
    """The host's budget stands in, its source says so, and the caveat comes first."""
    devices, caveats = assemble(("cuda:0",), (host(),))
    assert [d.id for d in devices] == ["cpu"]
    assert devices[0].budget.fell_back
    assert "fell back" in devices[0].budget.source
    assert "fell back" in caveats[0]


def test_the_host_is_named_once() -> None:
    """Two hosts are a contradiction."""
    with pytest.raises(Usage, match="twice"):
        assemble(("cpu", "cpu:8GiB"), (host(),))


def test_an_engine_learns_the_cards_and_their_free_memory() -> None:
    """Only accelerators; free memory where it was read, else the total; an unknown capability is 8.9."""
    made = specs((host(), card(0), card(1).replace(memory=Memory(total_bytes=24 * GIB), compute_capability=Missing(reason="denied"))))
    assert [(s.id, s.free_bytes, s.compute_capability) for s in made] == [("cuda:0", 23 * GIB, 860), ("cuda:1", 24 * GIB, 890)]


CHOICES = [
    (None, ["cuda:0", "cuda:1", "cpu"], 0),
    ((), ["cpu"], 0),
    (("CUDA1",), ["cuda:1", "cpu"], 0),
    (("CUDA1", "CUDA0"), ["cuda:1", "cuda:0", "cpu"], 0),
    (("CUDA5",), ["cpu"], 1),
]


@pytest.mark.parametrize(("names", "ids", "said"), CHOICES)
def test_the_commands_own_device_list_chooses(names: "tuple[str, ...] | None", ids: list[str], said: int) -> None:
    """--device none and CUDA1,CUDA0 of a llama.cpp command narrow and order the cards; a stranger is said."""
    devices, caveats = chosen_by_engine((card(0), card(1), host()), names)
    assert [d.id for d in devices] == ids
    assert len(caveats) == said


@pytest.mark.parametrize(
    ("names", "ids"),
    [(None, ["cuda:0", "cuda:1", "cpu"]), (("1",), ["cuda:1", "cpu"]), (("1", "0"), ["cuda:1", "cuda:0", "cpu"]), (("1", "7", "0"), ["cuda:1", "cpu"])],
)
def test_a_variable_before_the_command_narrows_the_cards(names: "tuple[str, ...] | None", ids: list[str]) -> None:
    """CUDA_VISIBLE_DEVICES by index, in its order, up to the first name that is none."""
    assert [d.id for d in left_visible((card(0), card(1), host()), names)] == ids
