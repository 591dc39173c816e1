"""The training solver: its answer fits and the next does not; and every workload reads back from the words that it is spelled in."""

import pytest

from brim.engines.train import price, survey
from brim.engines.train.spell import accelerate_config, deepspeed_config, trainer_arguments
from brim.engines.train.words import read_config
from brim.errors import Usage
from brim.facts.device import Budget, Device, Memory
from brim.facts.training import TrainWorkload
from brim.shapes.config import read
from brim.training_solver import METHODS, solve
from brim.units import GIB

EIGHT = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "num_hidden_layers": 32, "max_position_embeddings": 131072,
}  # fmt: skip
CENSUS = survey(*read(EIGHT))


def cards(gib, count=1):
    size = gib * GIB
    budget = Budget(backend="cuda", total_bytes=size, usable_bytes=size - size // 10, reserve_fraction=0.1, source="a test")
    return tuple(Device(id=f"cuda:{i}", backend="cuda", name="card", memory=Memory(), budget=budget) for i in range(count))


def fits(w, gib):
    return price(CENSUS, w).on("cuda:0").high <= gib * GIB - gib * GIB // 10


@pytest.mark.parametrize(("wanted", "step"), [("batch", 1), ("seq", 128)])
@pytest.mark.parametrize("gib", [16, 24, 48, 80])
@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_the_largest_batch_and_length_fit_and_the_next_does_not(wanted, step, gib, method):
    """The answer fits the high end on the card; one more (or 128 tokens more) does not."""
    found = solve(CENSUS, TrainWorkload(method=method, seq=1024), cards(gib), wanted)
    value = getattr(found.workload, wanted)
    if not found.fits:
        assert not fits(found.workload, gib)
        return
    assert fits(found.workload, gib)
    assert not fits(found.workload.replace(**{wanted: value + step}), gib) or value >= 131072


@pytest.mark.parametrize(("gib", "index"), [(200, 0), (80, 3), (24, 4), (12, 6)])
def test_the_method_is_the_first_of_the_ladder_that_fits(gib, index):
    """Every rung before the answer was tried and does not fit."""
    found = solve(CENSUS, TrainWorkload(seq=512), cards(gib), "method")
    assert found.fits
    base = TrainWorkload(seq=512)
    first = next(i for i, changes in enumerate(METHODS) if fits(base.replace(**changes), gib))
    assert {key: getattr(found.workload, key) for key in METHODS[first]} == METHODS[first]
    assert first <= index


def test_auto_chooses_a_method_and_then_solves():
    """With auto on 24 GiB an 8B model gets an adapter, and the batch is the largest for it."""
    found = solve(CENSUS, TrainWorkload(seq=512), cards(24), "batch", auto=True)
    assert found.fits
    assert found.workload.method in ("lora", "qlora")
    assert not fits(found.workload.replace(batch=found.workload.batch + 1), 24)


def test_the_fewest_cards():
    """The answer fits with ZeRO-3 and one card less does not; where one is enough it is one."""
    found = solve(CENSUS, TrainWorkload(), cards(80), "gpus")
    count = found.workload.ranks
    assert found.fits
    assert count > 1
    assert not fits(found.workload.replace(ranks=count - 1), 80) if count > 2 else not fits(found.workload.replace(ranks=1, sharding="none"), 80)
    assert solve(CENSUS, TrainWorkload(method="qlora"), cards(80), "gpus").workload.ranks == 1


def test_zero_takes_the_lightest_sharding_that_fits():
    """Eight 80 GiB cards hold a full 8B step; what is lighter than the answer was tried and does not fit."""
    found = solve(CENSUS, TrainWorkload(ranks=8), cards(80, 8), "zero")
    assert found.fits
    assert found.workload.sharding in ("zero1", "zero2")
    with pytest.raises(Usage, match="one"):
        solve(CENSUS, TrainWorkload(), cards(80), "zero")


@pytest.mark.parametrize(
    "w",
    [
        TrainWorkload(),
        TrainWorkload(method="lora", base="bf16", lora_rank=8, targets=("q_proj", "v_proj"), seq=512, padded=True),
        TrainWorkload(method="qlora", base="nf4-dq", optimizer="adamw_paged_8bit", checkpointing="none"),
        TrainWorkload(precision="fp32", attention="eager", optimizer="adafactor", accumulation=4),
        TrainWorkload(method="full", precision="bf16", loss="fused", compiled=True),
    ],
)
def test_trainer_arguments_read_back_to_the_same_workload(w):
    """What is spelled for TRL is read from TRL as the same step."""
    back = TrainWorkload(**read_config(trainer_arguments(w)).changes)
    same = ("method", "batch", "seq", "accumulation", "precision", "attention", "padded", "checkpointing", "loss", "compiled")
    assert {key: getattr(back, key) for key in same} == {key: getattr(w, key) for key in same}
    if w.method != "full":
        assert (back.lora_rank, back.targets, back.base or "bf16") == (w.lora_rank, w.targets, w.base or "bf16")


@pytest.mark.parametrize("sharding", ["none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp-grad-op", "fsdp-hybrid", "fsdp2"])
@pytest.mark.parametrize("offload", ["none", "optimizer", "all"])
def test_accelerate_and_deepspeed_files_read_back(sharding, offload):
    """Sharding, ranks and offloading survive both files."""
    if offload == "all" and not (sharding == "zero3" or sharding.startswith("fsdp")):
        return
    if offload == "optimizer" and not sharding.startswith("zero"):
        return
    w = TrainWorkload(sharding=sharding, ranks=1 if sharding == "none" else 8, nodes=2 if sharding == "fsdp-hybrid" else 1, offload=offload)
    back = TrainWorkload(**read_config(accelerate_config(w)).changes)
    assert (back.sharding, back.ranks, back.nodes, back.offload) == (w.sharding, w.ranks, w.nodes, w.offload)
    if sharding.startswith("zero"):
        zero = TrainWorkload(**read_config(deepspeed_config(w)).changes)
        assert (zero.sharding, zero.offload) == (w.sharding, w.offload)
