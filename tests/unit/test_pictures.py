"""The layers of a GGUF: what the header and the tensors say becomes a shape, and the picture that people know of the model."""

import pytest

from brim.anatomy import picture
from brim.facts.model import Shape
from brim.shapes.gguf import shape_of_gguf
from tests.allocations import checkpoint_of

# model → (picture, active parameters in units of 10 M with embeddings and output matrix, or None for a dense model)
KNOWN = {
    "gemma-3-12b": ("5×swa(1024) + 1×full, 8 times", None),
    "gemma-2-9b": ("1×swa(4096) + 1×full, 21 times", None),
    "gemma-3n-e4b": ("4×swa(512) + 1×full, 4 times, then 4×swa(512)→shared + 1×full→shared, 3 times", None),
    "gpt-oss-20b": ("1×swa(128)+moe(4/32) + 1×full+moe(4/32), 12 times", 418),
    "deepseek-v2-lite": ("1×mla + 26×mla+moe(6/64)", 266),
    "qwen3-30b-a3b": ("48×full+moe(8/128)", 335),
    "qwen3-next-80b-a3b": ("3×gated_delta_net+moe(10/512) + 1×full+moe(10/512), 12 times", 387),
    "mixtral-8x7b": ("32×full+moe(2/8)", 1287),
    "mamba-2.8b": ("64×mamba", None),
    "llama-3.1-8b": ("32×full", None),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_models_have_their_picture(name: str) -> None:
    """Windows, chunks, states, experts and shared caches stand where the model's makers put them."""
    words, active = KNOWN[name]
    checkpoint = checkpoint_of("shapes", name)
    shape = shape_of_gguf(checkpoint.metadata, checkpoint.tensors)
    assert isinstance(shape, Shape)
    assert picture(shape) == words
    if active is not None:
        assert isinstance(shape.active_parameters, int)
        assert shape.active_parameters // 10**7 == active
    else:
        assert shape.active_parameters == shape.parameters
