"""Shape files that list no tensors: the directory that header, file_type and weights_bytes imply, held against what llama.cpp's own quantiser wrote."""

import json

import pytest

from brim import api
from brim.checkpoint import open_checkpoint
from brim.facts.workload import LlamaWorkload
from brim.gate import CANNOT_TELL
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


def test_the_price_without_a_directory_is_the_price_with_it(tmp_path) -> None:
    """A plan from the implied directory equals the plan from the real one."""
    environ = {"BRIM_DEVICE_BUDGET_BYTES": str(1 << 40)}
    made = api.fit(unlisted("gemma-3-12b", tmp_path), LlamaWorkload(ctx=8192), environ=environ)
    full = api.fit(checkpoint_of("shapes", "gemma-3-12b"), LlamaWorkload(ctx=8192), environ=environ)
    assert [(part.name, part.bytes) for part in made.plan.parts] == [(part.name, part.bytes) for part in full.plan.parts]
