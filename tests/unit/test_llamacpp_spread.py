"""`--split-mode tensor`: each card's slice of weights and caches, and the room of the whole graph on each, against what the engine itself gave out; `row` is refused as the engine refuses it."""

import gzip
import json

import pytest

from brim.engines.llama_cpp import price
from brim.facts.device import DeviceSpec
from brim.facts.dtypes import ggml_tensor_bytes
from brim.facts.workload import LlamaWorkload
from tests.allocations import GOLDEN, PARTS, checkpoint_of
from tests.evidence.llamacpp_shares import kinded

FOUND = json.loads(gzip.decompress((GOLDEN / "llamacpp_shares.json.gz").read_bytes()))
UNREAD_CACHE = ("llama-embed",)  # its graph never reads its cache, and the oracle counts caches by what the graph reads


def _asked(row):
    ctx, slots, unified, ubatch, flash, ctk, ctv, outputs, _ = row["run"]
    return LlamaWorkload(
        program="llama-fit-params", ctx=ctx, batch=2048, ubatch=ubatch, slots=slots, kv_unified=bool(unified), ctk=ctk, ctv=ctv, flash_attn="on" if flash else "off", outputs=outputs or None,
        split_mode="tensor", tensor_split=tuple(map(float, row["shares"])), mmap=False,
    )  # fmt: skip


def _plan(row):
    """The plan on CPU devices, which the oracle took for cards."""
    made = checkpoint_of("models", row["model"])
    kinds = {name: kind for name, _, kind in kinded([(t.name, t.dims, t.dtype) for t in made.tensors], row["kind"])}
    tensors = tuple(t.replace(dtype=kinds[t.name], stored_bytes=ggml_tensor_bytes(kinds[t.name], t.dims)) for t in made.tensors)
    cards = tuple(DeviceSpec(id=f"cpu:{index}", backend="vulkan", total_bytes=1 << 40, free_bytes=1 << 40) for index in range(len(row["shares"])))
    return price(made.replace(tensors=tensors), _asked(row), cards), cards


def test_each_card_holds_what_the_engine_gave_it() -> None:
    """Weights, caches and states of each card and the compute buffers of cards and host, to the byte, in every row."""
    wrong = []
    for row in FOUND["rows"]:
        plan, cards = _plan(row)
        if plan.missing:
            wrong.append((row["model"], plan.missing))
            continue
        held = [[sum(part.bytes.likely for part in plan.parts if part.device == card.id and part.name in names) for names in PARTS.values()] for card in cards]
        host = sum(part.bytes.likely for part in plan.parts if part.device == "cpu" and part.name == "compute_buffer")
        if row["model"] in UNREAD_CACHE:
            held = [[weights, 0, compute] for weights, _, compute in held]
        if held != row["devices"] or host != row["host"]:
            wrong.append((row["model"], row["shares"], row["kind"], held, row["devices"], host, row["host"]))
    assert len(FOUND["rows"]) > 100
    assert not wrong, wrong


def test_what_the_engine_refuses_is_not_priced() -> None:
    """Every row at which the engine stopped is named as wanting, never priced."""
    assert FOUND["refused"]
    assert [row["model"] for row in FOUND["refused"] if not _plan(row)[0].missing] == []


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
            held = sum(part.bytes.likely for part in plan.parts if part.device == card.id and part.name == name)
            assert abs(held / alone - share) < 0.15 * share, (name, card.id, held, alone)
