"""The training engine beside PyTorch's own figures (golden, made in fake mode), and its promises of order and addition."""

import json
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim.engines.train import price, survey
from brim.errors import Usage
from brim.facts.training import TrainWorkload
from brim.shapes.config import read

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "train.jsonl"
LINES = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
CONFIGS, ROWS = LINES[0]["configs"], LINES[1:]
LLAMA = {**CONFIGS["llama"], "num_hidden_layers": 3}


def config_of(row):
    key = {"mpt": "n_layers", "gpt2": "n_layer", "bloom": "n_layer", "gptj": "n_layer", "gpt_bigcode": "n_layer"}.get(row["family"], "num_hidden_layers")
    return {**CONFIGS[row["family"]], **row.get("config", {}), key: row["layers"]}


def workload_of(row):
    lora = row["method"] in ("lora", "dora")
    base = (row.get("base") or ("fp32" if row["precision"] == "fp32" else "bf16")) if lora else ""
    return TrainWorkload(
        method=row["method"],
        batch=row["batch"],
        seq=row["seq"],
        optimizer=row["optimizer"],
        precision=row["precision"],
        base=base,
        attention=row["attention"],
        padded=row["mask"] == "made",
        checkpointing=row["checkpointing"],
        lora_rank=row["rank"] or 16,
        adapter=row.get("adapter", ""),
        lora_dropout=row.get("dropout", 0.0),
        accumulation=row.get("accumulation", 1),
        trainable_layers=row.get("trainable_layers", 2),
    )


def predicted(row):
    plan = price(survey(*read(config_of(row)), config_of(row)), workload_of(row), "cpu")
    parts = {part.name: part.bytes.likely for part in plan.parts}
    moments = plan.workload["moments_bytes"]
    return plan, parts, moments


def label(row):
    return "-".join(str(row[key]) for key in ("family", "method", "checkpointing", "precision", "seq", "optimizer", "attention", "mask"))


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_states_are_exact_and_activations_and_peaks_are_within_one_in_twenty(row):
    """Weights and optimiser state equal PyTorch's to the byte; kept activations and the peak of each moment lie within 5 %."""
    plan, parts, moments = predicted(row)
    assert parts["weights"] + parts.get("adapter", 0) == row["parameters"]
    assert parts.get("optimizer_state", 0) == row["optimizer_state"]
    if "saved" in row:
        assert plan.workload["saved_activation_bytes"] == pytest.approx(row["saved"], rel=0.05)
    assert moments["forward"] == pytest.approx(row["peak_forward"], rel=0.05)
    assert max(moments["forward"], moments["backward"]) == pytest.approx(row["peak_backward"], rel=0.05)
    assert max(moments.values()) == pytest.approx(row["peak_step"], rel=0.05)


def test_gradients_at_the_optimizers_step_are_exact():
    """What stands when the optimiser steps is every gradient, in its weight's dtype."""
    for row in ROWS:
        shape, weights = read(config_of(row))
        from brim.engines.train.setting import Setting
        from brim.engines.train.states import gradient_bytes, states

        w = workload_of(row)
        assert gradient_bytes(states(survey(shape, weights), w, Setting(w, cuda=False, eager=False))) == row["gradients"], label(row)


def llama():
    return survey(*read(LLAMA))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.sampled_from(["full", "lora", "qlora", "dora", "freeze"]),
    st.sampled_from(["none", "full", "selective", "offloaded"]),
    st.sampled_from(["fp32", "bf16", "bf16-autocast", "mixed", "fp8"]),
    st.sampled_from(["adamw", "adamw_8bit", "adamw_4bit", "adafactor", "lion", "sgd", "muon"]),
    st.integers(1, 4),
    st.integers(1, 600),
)
def test_more_tokens_never_cost_less_and_parts_add_up(method, checkpointing, precision, optimizer, batch, seq):
    """The peak never falls with the batch or the length; every part has low ≤ likely ≤ high; the likely total is the peak moment plus what is not torch's."""
    if method == "qlora" and precision in ("fp32", "mixed"):
        precision = "bf16"
    w = TrainWorkload(method=method, checkpointing=checkpointing, precision=precision, optimizer=optimizer, batch=batch, seq=seq)
    census = llama()
    plan = price(census, w)
    here = plan.on("cuda:0").high
    assert here <= price(census, w.replace(batch=batch + 1)).on("cuda:0").high
    assert here <= price(census, w.replace(seq=seq + 1)).on("cuda:0").high
    for part in plan.parts:
        assert 0 <= part.bytes.low <= part.bytes.likely <= part.bytes.high, part
    outside = sum(part.bytes.likely for part in plan.parts if part.device == "cuda:0" and part.name in ("context_overhead", "allocator_slack"))
    assert plan.on("cuda:0").likely - outside == pytest.approx(max(plan.workload["moments_bytes"].values()), abs=2)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"batch": 0}, "--batch 0"),
        ({"seq": 0}, "--seq 0"),
        ({"optimizer": "adamm"}, "--optimizer adamm"),
        ({"method": "prefix"}, "--train prefix"),
        ({"method": "lora", "lora_rank": 5000}, "--lora-rank 5000"),
        ({"method": "lora", "targets": ("nosuch",)}, "nosuch"),
        ({"sharding": "zero2"}, "one"),
        ({"sharding": "fsdp", "ranks": 4, "nodes": 3}, "--nodes 3"),
        ({"method": "qlora", "base": "bf16"}, "quantised"),
        ({"attention": "magic"}, "--attn magic"),
        ({"offload": "all", "sharding": "zero2", "ranks": 2}, "--offload all"),
        ({"lora_dropout": 1.5}, "--lora-dropout"),
        ({"precision": "int3"}, "--precision int3"),
        ({"accumulation": 2, "fused_backward": True}, "accumulate"),
    ],
)
def test_a_workload_that_cannot_be_meant_is_one_sentence(changes, word):
    """Bad input is `Usage` (exit 2) and the sentence names the flag and the value."""
    with pytest.raises(Usage, match=word) as fault:
        price(llama(), TrainWorkload(**changes))
    assert "\n" not in str(fault.value)


def test_eight_bit_adam_keeps_small_tensors_in_fp32_and_blocks_of_256():
    """bitsandbytes: under 4096 elements two fp32 moments; else two bytes and two fp32 maxima a block of 256; one pair of code books."""
    from brim.engines.train.states import Learned, States, optimizer_bytes

    state = States()
    state.learned = [Learned((64, 63), 1, 2, hidden=True), Learned((64, 65), 3, 2, hidden=True)]
    w = TrainWorkload(optimizer="adamw_8bit")
    assert optimizer_bytes(state, w, steps_on_device=False) == 2 * 4 * 4032 + 3 * (2 * 4160 + 2 * 4 * 17) + 2 * 1024


def test_nf4_with_double_quantisation_counts_every_byte():
    """4096 × 4096 in nf4: 8,388,608 of codes, 262,144 8-bit maxima, 1024 fp32 nested maxima, two code books, one offset."""
    from brim.engines.train.states import packed_bytes

    assert packed_bytes(4096 * 4096, "nf4-dq") == 8_388_608 + 262_144 + 4 * 1024 + 64 + 1024 + 4
    assert packed_bytes(4096 * 4096, "nf4") == 8_388_608 + 4 * 262_144 + 64
    assert packed_bytes(4096 * 4096, "int8") == 4096 * 4096


@pytest.mark.parametrize(("stage", "ranks", "gigabytes"), [(0, 64, 120), (1, 64, 31.4), (2, 64, 16.6), (3, 64, 1.9)])
def test_the_zero_papers_table_is_reproduced(stage, ranks, gigabytes):
    """arXiv 1910.02054, figure 1: 7.5 billion parameters on 64 cards."""
    from brim.engines.train.parallel import zero_states_bytes

    assert zero_states_bytes(7_500_000_000, stage, ranks) / 1e9 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_engine_divides_mixed_states_as_the_zero_paper_does(stage):
    """2 + 2 + 12 bytes a parameter, divided as the stage says, to the byte (rounded up a part)."""
    from brim.engines.train.parallel import zero_states_bytes

    census, ranks = llama(), 8
    plan = price(census, TrainWorkload(sharding=f"zero{stage}", ranks=ranks, precision="mixed", seq=1, accumulation=1))
    states = sum(part.bytes.likely for part in plan.parts if part.device == "cuda:0" and part.name in ("weights", "master_weights", "optimizer_state"))
    gradients = 2 * census.elements if stage < 2 else -(-2 * census.elements // ranks)
    assert states + gradients - zero_states_bytes(census.elements, stage, ranks) in range(4)


def test_offloaded_gradients_leave_the_card():
    """ZeRO-2 with the optimiser on the host leaves two bytes a parameter and the bucket on the card, as DeepSpeed's own estimator says; the host gets 16 a parameter."""
    census = llama()
    plan = price(census, TrainWorkload(sharding="zero2", ranks=2, precision="mixed", offload="optimizer", seq=8))
    parts = {part.name: part.bytes.likely for part in plan.parts if part.device == "cuda:0"}
    assert parts["weights"] == 2 * census.elements
    assert not {"gradients", "master_weights", "optimizer_state"} & set(parts)
    host = next(part.bytes.likely for part in plan.parts if part.device == "cpu" and part.name == "optimizer_state")
    assert host - 16 * census.elements in range(-4, 8)


def test_what_is_not_known_is_said():
    """An encoder-decoder is not told; an architecture whose code is not known, fp8 and compile have wide activations, and the plan says so."""
    seq2seq = {"model_type": "t5", "d_model": 512, "d_ff": 2048, "d_kv": 64, "num_heads": 8, "num_layers": 6, "vocab_size": 32128, "is_encoder_decoder": True}
    assert price(survey(*read(seq2seq)), TrainWorkload()).missing
    census = llama()
    for changes in ({"precision": "fp8"}, {"compiled": True}):
        plan = price(census, TrainWorkload(**changes))
        span = next(part.bytes for part in plan.parts if part.name == "activations" and part.device == "cuda:0")
        assert span.low < 0.7 * span.high
    shape, rows = read(LLAMA)
    odd = price(survey(shape.replace(architecture="unheard_of"), rows), TrainWorkload())
    span = next(part.bytes for part in odd.parts if part.name == "activations" and part.device == "cuda:0")
    assert span.low < 0.7 * span.high
    assert any("unheard_of" in caveat for caveat in odd.caveats)


def test_the_host_and_the_disk_are_priced_too():
    """Loader workers, offloaded inputs and rank 0's copy are parts of the host; a checkpoint's disk bytes are weights and optimiser state, or the adapter and its state."""
    census = llama()
    plan = price(census, TrainWorkload(sharding="fsdp", ranks=4, nodes=2, workers=3, checkpointing="offloaded"))
    host = {part.name: part.bytes for part in plan.parts if part.device == "cpu"}
    assert host["compute_buffer"].likely == 3 * 2 * 120 * 2**20
    assert host["weights"].high == 4 * census.elements
    assert host["activations"].likely == 2 * len(census.shape.layers) * 2048 * census.shape.width * 2
    full = price(census, TrainWorkload()).workload
    assert full["checkpoint_disk_bytes"] == 12 * census.elements
    lora = price(census, TrainWorkload(method="lora")).workload
    assert lora["checkpoint_disk_bytes"] == 12 * lora["trainable_parameters"]


def test_cards_share_what_their_sharding_says():
    """DDP holds everything and its buckets; ZeRO and FSDP divide, in the order of their stages (a model of many layers, since what is gathered is a few of them)."""
    census = survey(*read({**LLAMA, "num_hidden_layers": 48}))
    totals = [price(census, TrainWorkload(sharding=kind, ranks=8, seq=128)).on("cuda:0").likely for kind in ("ddp", "zero1", "zero2", "zero3")]
    assert totals == sorted(totals, reverse=True)
    alone = price(census, TrainWorkload(seq=128)).on("cuda:0").likely
    assert totals[0] > alone
    whole, op = (price(census, TrainWorkload(sharding=kind, ranks=8, seq=128)).on("cuda:0").likely for kind in ("fsdp", "fsdp-grad-op"))
    assert whole < op < totals[0]
