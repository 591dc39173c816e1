"""Shape files that list no tensors: the directory that header, file_type and weights_bytes imply, held against what llama.cpp's own quantiser wrote."""

import json

import pytest

from brim import api
from brim.checkpoint import open_checkpoint
from brim.facts.workload import LlamaWorkload
from brim.gate import CANNOT_TELL
from brim.implied import variants
from tests.allocations import checkpoint_of

# models whose files carry the mix Q4_K_M; the others of the golden set have kinds of layers that no table describes
LISTED = (
    "deepseek-v2-lite", "gemma-2-9b", "gemma-3-12b", "gpt-oss-20b", "llama-3.1-8b", "llama-3.2-1b", "mixtral-8x7b", "phi-3-mini-4k", "qwen2.5-7b", "qwen3-30b-a3b", "qwen3-8b",
)  # fmt: skip


def unlisted(name: str, tmp_path, *, weights: bool = True) -> str:
    """A shape file of a golden model without its tensors."""
    full = checkpoint_of("shapes", name)
    words = {"name": name, "file_type": "Q4_K_M", "metadata": dict(full.metadata)}
    if weights:
        words["weights_bytes"] = sum(t.stored_bytes for t in full.tensors)
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(words))
    return str(path)


@pytest.mark.parametrize("name", LISTED)
def test_the_implied_directory_is_the_real_one(name: str, tmp_path) -> None:
    """Every tensor by name, dims and type, tied or not, with rotation factors or without: only the bytes of the file tell, and they suffice."""
    full, made = checkpoint_of("shapes", name), open_checkpoint(unlisted(name, tmp_path))
    assert {t.name: (t.dims, t.dtype) for t in made.tensors} == {t.name: (t.dims, t.dtype) for t in full.tensors}
    assert "its own word" not in made.caveats[0]
    assert "lists no tensors" in made.caveats[0]


def test_without_bytes_the_likeliest_is_taken_and_said(tmp_path) -> None:
    """No weights_bytes: a directory all the same, marked as taken from the header."""
    made = open_checkpoint(unlisted("qwen3-8b", tmp_path, weights=False))
    assert {t.name for t in made.tensors} == {t.name for t in checkpoint_of("shapes", "qwen3-8b").tensors}
    assert "lists no tensors; taken from its header as Q4_K_M" in made.caveats[0]


def test_a_family_that_no_table_describes_is_not_guessed(tmp_path) -> None:
    """jamba without its tensors: cannot tell, not a dense model."""
    path = unlisted("jamba-mini-52b", tmp_path)
    assert open_checkpoint(path).tensors == ()
    assert api.fit(path, LlamaWorkload(ctx=512), environ={"BRIM_DEVICE_BUDGET_BYTES": str(1 << 40)}).verdict == CANNOT_TELL


# made-up files of llama.cpp's own writing, with every tensor that its loader may find
WRITTEN = ("bert", "bitnet", "command-r", "deci", "glm4", "glm4moe", "llama", "llama-moe", "minimax-m2", "qwen35", "gpt-oss", "gemma")


@pytest.mark.parametrize("name", WRITTEN)
def test_an_implied_directory_lacks_only_what_files_may_leave_out(name: str) -> None:
    """Every implied tensor is in the engine's own file by name and dims; what is lacking are biases of projections, scales and a classifier."""
    full = checkpoint_of("models", name)
    held = {tensor.name: tensor.dims for tensor in full.tensors}
    made = min(({t.name: t.dims for t in one} for one in variants(full.metadata)), key=lambda one: len(set(one.items()) ^ set(held.items())))
    assert not set(made.items()) - set(held.items())
    assert all(
        one.endswith(("scale", "_q.bias", "_k.bias", "_v.bias", "_output.bias", "ffn_up.bias", "ffn_gate.bias", "ffn_down.bias")) or one.startswith("cls")
        for one in set(held) - set(made)
    )


HEADERS = {
    "glm4": {"block_count": 4, "embedding_length": 512, "feed_forward_length": 1024, "attention.head_count": 8, "attention.head_count_kv": 2, "attention.key_length": 64, "attention.value_length": 64},
    "glm4moe": {"block_count": 3, "embedding_length": 512, "feed_forward_length": 1024, "attention.head_count": 8, "attention.head_count_kv": 2, "attention.key_length": 64, "attention.value_length": 64,
                "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 256, "expert_shared_count": 1, "leading_dense_block_count": 1},
    "command-r": {"block_count": 2, "embedding_length": 512, "feed_forward_length": 1024, "attention.head_count": 8, "attention.head_count_kv": 8},
    "minimax-m2": {"block_count": 2, "embedding_length": 512, "feed_forward_length": 256, "attention.head_count": 8, "attention.head_count_kv": 2, "attention.key_length": 64,
                   "attention.value_length": 64, "expert_count": 8, "expert_used_count": 2},
    "deci": {"block_count": 2, "embedding_length": 512, "feed_forward_length": [1024, 512], "attention.head_count": [8, 0], "attention.head_count_kv": [2, 0]},
    "qwen35": {"block_count": 4, "embedding_length": 512, "feed_forward_length": 1024, "attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 128,
               "attention.value_length": 128, "full_attention_interval": 4, "ssm.conv_kernel": 4, "ssm.inner_size": 1024, "ssm.state_size": 128, "ssm.time_step_rank": 8, "ssm.group_count": 4},
    "bert": {"block_count": 2, "embedding_length": 512, "feed_forward_length": 1024, "attention.head_count": 8, "attention.causal": False},
    "bitnet": {"block_count": 2, "embedding_length": 512, "feed_forward_length": 1024, "attention.head_count": 8, "attention.head_count_kv": 2},
    "deepseek2": {"block_count": 3, "embedding_length": 512, "feed_forward_length": 1024, "attention.head_count": 8, "attention.head_count_kv": 8, "attention.key_length": 192,
                  "attention.value_length": 128, "attention.kv_lora_rank": 128, "attention.q_lora_rank": 256, "rope.dimension_count": 64, "expert_count": 8, "expert_used_count": 2,
                  "expert_feed_forward_length": 256, "expert_shared_count": 1, "leading_dense_block_count": 1, "expert_gating_func": 2},
}  # fmt: skip


@pytest.mark.parametrize("arch", HEADERS)
def test_a_header_alone_is_enough_for_its_graph(arch: str, tmp_path) -> None:
    """Families known by their header: the implied directory has all that the engine's graph asks for, so that nothing stays unpriced."""
    words = {"general.architecture": arch, **{f"{arch}.{key}": value for key, value in {"context_length": 4096, "vocab_size": 1000, **HEADERS[arch]}.items()}}
    path = tmp_path / "shape.json"
    path.write_text(json.dumps({"name": arch, "file_type": "Q8_0", "metadata": words}))
    made = api.fit(str(path), LlamaWorkload(ctx=512), environ={"BRIM_DEVICE_BUDGET_BYTES": str(1 << 40)})
    assert not made.plan.missing
    assert {part.name for part in made.plan.parts} >= {"weights", "compute_buffer"}


def test_the_price_without_a_directory_is_the_price_with_it(tmp_path) -> None:
    """A plan from the implied directory equals the plan from the real one."""
    environ = {"BRIM_DEVICE_BUDGET_BYTES": str(1 << 40)}
    made = api.fit(unlisted("gemma-3-12b", tmp_path), LlamaWorkload(ctx=8192), environ=environ)
    full = api.fit(checkpoint_of("shapes", "gemma-3-12b"), LlamaWorkload(ctx=8192), environ=environ)
    assert [(part.name, part.bytes) for part in made.plan.parts] == [(part.name, part.bytes) for part in full.plan.parts]


QWEN3_8B = {
    "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize("words", [{}, {"weights_bytes": 5_000_000_000}], ids=["no size", "a size of its own"])
def test_a_config_with_a_file_type_is_priced_in_that_mix(words, tmp_path) -> None:
    """A shape file of a Hugging Face config and a llama.cpp mix, alone or before a command line: the weights of the file that llama-quantize writes."""
    path = tmp_path / "shape.json"
    path.write_text(json.dumps({"name": "q", "file_type": "Q4_K_M", "config": QWEN3_8B, **words}))
    environ = {"BRIM_DEVICE_BUDGET_BYTES": str(1 << 40)}
    real = api.fit(checkpoint_of("shapes", "qwen3-8b"), LlamaWorkload(ctx=4096, slots=1), environ=environ)
    alone = api.fit(str(path), LlamaWorkload(ctx=4096, slots=1), environ=environ)
    before = api.fit(str(path), command=["llama-server", "-c", "4096", "-np", "1"], environ=environ)
    for made in (alone, before):
        assert [(part.name, part.bytes) for part in made.plan.parts] == [(part.name, part.bytes) for part in real.plan.parts]
