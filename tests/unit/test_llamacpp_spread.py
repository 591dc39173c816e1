"""`--split-mode tensor`: each card's slice of weights and caches, and the room of the whole graph on each, against what the engine itself gave out; `row` is refused as the engine refuses it."""

import pytest

from brim.engines.llama_cpp import price
from brim.facts.device import DeviceSpec
from brim.facts.workload import LlamaWorkload
from tests.allocations import checkpoint_of
from tests.spread import FOUND, held, plan_of


def test_each_card_holds_what_the_engine_gave_it() -> None:
    """Weights, caches and states of each card and the compute buffers of cards and host, to the byte, in every row."""
    wrong = []
    for row in FOUND["rows"]:
        plan, cards = plan_of(row)
        if plan.missing:
            wrong.append((row["model"], plan.missing))
            continue
        found = held(row, plan, cards)
        if found != (row["devices"], row["host"]):
            wrong.append((row["model"], row["shares"], row["kind"], found, row["devices"], row["host"]))
    assert len(FOUND["rows"]) > 100
    assert not wrong, wrong


def test_what_the_engine_refuses_is_not_priced() -> None:
    """Every row at which the engine stopped is named as wanting, never priced."""
    assert FOUND["refused"]
    assert [row["model"] for row in FOUND["refused"] if not plan_of(row)[0].missing] == []


@pytest.mark.parametrize(("mode", "flash", "word"), [("row", "auto", "split by rows"), ("tensor", "off", "flash attention")])
def test_refused_modes(mode, flash, word) -> None:
    """Rows are refused since the cards' split buffers went, and so are spread tensors without flash attention."""
    cards = tuple(DeviceSpec(id=f"cuda:{index}", backend="cuda", total_bytes=24 << 30, free_bytes=23 << 30) for index in range(2))
    asked = LlamaWorkload(ctx=4096, split_mode=mode, flash_attn=flash)
    plan = price(checkpoint_of("shapes", "llama-3.1-8b"), asked, cards)
    assert word in plan.missing[0]
    assert not price(checkpoint_of("shapes", "llama-3.1-8b"), asked.replace(split_mode="layer"), cards).missing


def test_spread_over_cuda_cards() -> None:
    """On two equal cards each holds about half of the weights and of the cache, and the whole graph's room."""
    cards = tuple(DeviceSpec(id=f"cuda:{index}", backend="cuda", total_bytes=24 << 30, free_bytes=23 << 30) for index in range(2))
    asked = LlamaWorkload(ctx=8192, slots=1)
    one = price(checkpoint_of("shapes", "llama-3.1-8b"), asked, cards[:1])
    plan = price(checkpoint_of("shapes", "llama-3.1-8b"), asked.replace(split_mode="tensor"), cards)
    for name, share in (("weights", 0.5), ("kv_cache", 0.5), ("compute_buffer", 1.0)):
        alone = sum(part.bytes.likely for part in one.parts if part.device == "cuda:0" and part.name == name)
        for card in cards:
            here = sum(part.bytes.likely for part in plan.parts if part.device == card.id and part.name == name)
            assert abs(here / alone - share) < 0.15 * share, (name, card.id, here, alone)
