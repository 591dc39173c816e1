"""Headers whose values are of the wrong kind or size: inspect and fit refuse them by key, and nothing large is made for them."""

import random

import pytest

from brim import api
from brim.errors import BadCheckpoint, BadHeader, BadTensor, BrimError
from brim.facts.model import Checkpoint, Tensor
from brim.facts.training import TrainWorkload
from brim.facts.workload import LlamaWorkload
from brim.values import Missing
from tests.allocations import checkpoint_of
from tests.gguf_bytes import dense_llama, write_sparse

BUDGET = {"BRIM_DEVICE_BUDGET_BYTES": str(1 << 36)}
METADATA, TENSORS = dense_llama(layers=2, width=64, heads=4, kv_heads=2, feed_forward=128, vocab=100, kind="F32")


def made(metadata: dict[str, object], dims: dict[str, tuple[int, ...]] | None = None) -> Checkpoint:
    tensors = []
    for name, shape, kind in TENSORS:
        size = (dims or {}).get(name, tuple(shape))
        tensors.append(Tensor(name=name, dims=size, dtype=kind, offset=0, stored_bytes=4, elements=1))
    return Checkpoint(
        form="gguf",
        source="made.gguf",
        name="made",
        architecture="llama",
        metadata={**METADATA, **metadata},
        tensors=tuple(tensors),
        file_bytes=1,
        shape=Missing(reason="not_supported"),
    )


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("block_count", 1 << 31, "whole number from 0 to 512"),
        ("block_count", 0, "is 0"),
        ("block_count", "2", "not a number"),
        ("block_count", [2], "is a list"),
        ("embedding_length", 1 << 40, "whole number"),
        ("attention.head_count", [], "empty list"),
        ("attention.head_count", ["a"], "not a number"),
        ("attention.head_count", -3, "whole number"),
        ("attention.key_length", 1.5, "whole number"),
        ("context_length", 1 << 62, "whole number"),
        ("expert_count", 1 << 20, "0 to 1024"),
        ("expert_count", 8, "expert_used_count is 0 of 8"),
        ("rope.dimension_count", "x", "not a number"),
        ("logit_scale", "x", "not a number"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_key(key: str, value: object, words: str) -> None:
    """Exit 5 with the key; no list is made as long as a header says."""
    with pytest.raises(BadHeader, match=words) as caught:
        api.fit(made({f"llama.{key}": value}), LlamaWorkload(ctx=512), environ=BUDGET)
    assert f"made.gguf: llama.{key if 'expert_used' not in words else 'expert_used_count'} is" in str(caught.value)


@pytest.mark.parametrize(("name", "dims"), [("blk.0.attn_q.weight", (64,)), ("token_embd.weight", (64,))])
def test_a_matrix_with_too_few_dimensions_is_refused_by_its_name(name: str, dims: tuple[int, ...]) -> None:
    """Exit 5 with the tensor."""
    with pytest.raises(BadTensor, match=name):
        api.fit(made({}, {name: dims}), LlamaWorkload(ctx=512), environ=BUDGET)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"llama.block_count": (1 << 31) - 1}, "block_count is 2147483647"), ({"llama.attention.head_count": 1 << 30}, "head_count is 1073741824"),
        ({"llama.attention.head_count_kv": [-1, -1]}, "head_count_kv is -1"), ({"llama.nextn_predict_layers": 3}, "nextn_predict_layers is 3 of 2"),
    ],
)  # fmt: skip
def test_a_training_step_refuses_what_a_run_refuses(tmp_path, changes: dict[str, object], words: str) -> None:
    """The same header, the same sentence: nothing is made as long as it says."""
    path = str(tmp_path / "odd.gguf")
    write_sparse(path, {**METADATA, **changes}, TENSORS)
    with pytest.raises(BadHeader, match=words):
        api.fit_training(path, TrainWorkload(method="lora"), environ=BUDGET)
    with pytest.raises(BadHeader, match=words):
        api.preflight(path, devices=("cuda:24GiB",))
    with pytest.raises(BadHeader, match=words):
        api.fit(path, LlamaWorkload(ctx=512), environ=BUDGET)


def test_a_model_of_next_token_blocks_alone(tmp_path) -> None:
    """As many of them as blocks: a draft model of its own, whose layers they are; as a model it cannot be priced. One more than blocks is refused."""
    path = str(tmp_path / "draft.gguf")
    write_sparse(path, {**METADATA, "llama.nextn_predict_layers": 2}, TENSORS)
    checkpoint, _ = api.inspect(path)
    assert not isinstance(checkpoint.shape, Missing)
    assert (len(checkpoint.shape.layers), checkpoint.shape.draft_layers) == (2, 0)
    assert "all of its blocks predict next tokens for another model" in checkpoint.shape.unusual
    assert "no layer besides those for next tokens" in " ".join(api.fit(path, LlamaWorkload(ctx=512), environ=BUDGET).plan.missing)
    write_sparse(path, {**METADATA, "llama.nextn_predict_layers": 3}, TENSORS)
    with pytest.raises(BadHeader, match="more than block_count"):
        api.inspect(path)


@pytest.mark.parametrize("name", ["blk.².attn_q.weight", "blk.x.attn_q.weight", "blk.", "blk.-1.attn_q.weight", "blk.99999.attn_q.weight", "x.lora_b"])
def test_a_tensor_of_no_block_is_no_crash(tmp_path, name: str) -> None:
    """Names that look like numbers and are none: read, or refused by name, from every command."""
    path, good = str(tmp_path / "odd.gguf"), str(tmp_path / "good.gguf")
    write_sparse(path, METADATA, [*TENSORS, (name, [64, 64], "F32"), ("y.lora_b", [], "F32")])
    write_sparse(good, METADATA, TENSORS)
    for ask in (
        lambda: api.inspect(path), lambda: api.fit(path, LlamaWorkload(ctx=512), environ=BUDGET), lambda: api.fit_training(path, TrainWorkload(method="lora"), environ=BUDGET),
        lambda: api.fit(good, LlamaWorkload(ctx=512, lora=(path,)), environ=BUDGET), lambda: api.solve(path, ["ctx"], environ=BUDGET),
    ):  # fmt: skip
        try:
            ask()
        except BrimError as fault:
            assert "odd.gguf" in str(fault)


@pytest.mark.parametrize(
    ("head", "flags", "words"),
    [
        (16, {"ctk": "q8_0", "flash_attn": "on"}, "q8_0 K cache here: its blocks of 32 values do not divide a head of 16"),
        (16, {"ctv": "q4_0", "flash_attn": "on"}, "q4_0 V cache here: its blocks of 32 values do not divide a head of 16"),
        (16, {"ctk": "q8_0", "flash_attn": "off"}, ""),
        (80, {"ctk": "q8_0"}, "do not divide a head of 80"),
        (64, {"ctk": "q8_0", "ctv": "q8_0"}, ""),
        (40, {"ctk": "q8_0", "flash_attn": "off"}, "do not divide a row of 40"),
    ],
)
def test_a_quantised_cache_whose_blocks_reach_over_a_head(head: int, flags: dict[str, str], words: str) -> None:
    """llama.cpp does not start then (`llama_init_from_model`, b11434; without flash attention a whole row decides): no plan, and the solver does not offer it."""
    heads = 1 if head == 40 else 2
    metadata, tensors = dense_llama(layers=2, width=head * heads, heads=heads, kv_heads=heads, feed_forward=128, vocab=100, kind="F32")
    model = made({}).replace(
        metadata=metadata, tensors=tuple(Tensor(name=name, dims=tuple(dims), dtype=kind, offset=0, stored_bytes=4, elements=1) for name, dims, kind in tensors)
    )
    missing = api.fit(model, LlamaWorkload(ctx=512, **flags), environ=BUDGET).plan.missing  # type: ignore[arg-type]
    assert words in " ".join(missing) if words else not missing
    assert api.solve(model, ["ctx"], environ=BUDGET).answer.fits


ODD = [0, -1, 1, 2**31, 2**62, "x", "", [], [1], ["a"], True, 1.5, 1e308, [0] * 40, [-1] * 100]
MODELS = ("llama-3.2-1b", "gemma-3n-e4b", "gpt-oss-20b", "deepseek-v2-lite", "lfm2-1.2b", "mamba-2.8b")


@pytest.mark.parametrize("name", MODELS)
def test_random_odd_values_never_crash(name: str) -> None:
    """Any few values of a real header replaced by odd ones: an answer or one of our errors, from inspect and from fit (fixed seed)."""
    chance = random.Random(name)
    checkpoint = checkpoint_of("shapes", name)
    refused = 0
    for _ in range(25):
        metadata = dict(checkpoint.metadata)
        for key in chance.sample(sorted(metadata), 2):
            metadata[key] = chance.choice(ODD)
        odd = checkpoint.replace(metadata=metadata)
        for verb in (api.inspect, lambda it: api.fit(it, LlamaWorkload(ctx=512), environ=BUDGET)):
            try:
                verb(odd)
            except BrimError as fault:
                refused += isinstance(fault, BadCheckpoint)
    assert refused


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"role": "lora"}, "--lora"),
        ({"role": "mmproj"}, "--mmproj"),
        ({"role": "vocab"}, "no tensors"),
        ({"form": "safetensors", "metadata": {"model_type": "llama"}}, "llama.cpp opens GGUF files and this is safetensors"),
    ],
)
def test_what_is_no_model_for_the_engine_is_said(changes: dict[str, object], words: str) -> None:
    """Cannot tell, with what the file is and what to do with it."""
    answer = api.fit(made({}).replace(**changes), LlamaWorkload(ctx=512), environ=BUDGET)
    assert answer.verdict == "cannot_tell"
    assert words in answer.plan.missing[0]
