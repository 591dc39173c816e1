"""Promises of a config priced as the GGUF that llama.cpp's converter would write: names, dims and keys are those of real converted files."""

import json

import gguf
import pytest

from brim.api import fit
from brim.facts.model import Shape
from brim.facts.workload import LlamaWorkload
from brim.shapes.config import read
from brim.shapes.converted import ARCHITECTURES, as_gguf, gguf_name
from brim.values import Missing
from tests import allocations
from tests.unit.test_shapes import GOLDEN

CONFIGS = {fact["name"]: fact["config"] for fact in GOLDEN["models"]}
SAME = [
    "llama-3.1-8b",
    "llama-3.2-1b",
    "mixtral-8x7b",
    "qwen2.5-7b",
    "qwen3-8b",
    "qwen3-30b-a3b",
    "gemma-2-9b",
    "gemma-3-12b",
    "gpt-oss-20b",
    "deepseek-v2-lite",
]
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 131,
    "tie_word_embeddings": False,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 131},
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 32, "num_hidden_layers": 1},
}


@pytest.mark.parametrize("name", SAME)
def test_names_dims_and_keys_are_those_of_the_models_that_llama_cpp_wrote(name):
    """Tensor by tensor the file that llama.cpp's own quantiser wrote of that model (but for the rotary factors, which are computed); no key differs but the context."""
    shape, weights = read(CONFIGS[name], name)
    keys, tensors = as_gguf(shape, weights)
    written = allocations.checkpoint_of("shapes", "jamba-mini-52b" if name == "jamba-mini" else name)
    theirs = {tensor.name: tensor.dims for tensor in written.tensors if tensor.name != "rope_freqs.weight"}
    assert {tensor.name: tensor.dims for tensor in tensors} == theirs
    free = ("context_length", "feed_forward_length")  # the trained context is the file's own; an unused width of dense blocks is not in a shape
    assert not {key: value for key, value in keys.items() if key in written.metadata and written.metadata[key] != value and not key.endswith(free)}


@pytest.mark.parametrize("family", sorted(ARCHITECTURES))
def test_every_name_is_the_one_of_gguf_py(family):
    """For every family that can be converted, each tensor's name is what gguf-py's own map makes of the published one."""
    shape, weights = read({"model_type": family, **SMALL, "tie_word_embeddings": family in ("gemma", "gemma2", "cohere2")}, family)
    assert isinstance(shape, Shape), shape
    arch = ARCHITECTURES[family]
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == arch)
    names = gguf.get_tensor_name_map(kind, 2)
    for row in weights:
        apart = ("kv_b_proj.weight", "sinks", "_bias", "experts.gate_up_proj", "experts.down_proj", "A_log", ".D", "in_proj_qkvz.weight")
        if row.tower == "text" and not row.name.endswith(apart):
            published = row.name.replace(".{}", "").removeprefix("language_model.")
            assert gguf_name(row.name, arch) == names.get_name(published, try_suffixes=(".weight", ".bias")), row.name


@pytest.mark.parametrize(
    "name", ["llama-3.2-1b", "qwen2.5-7b", "gemma-2-9b", "gpt-oss-20b", "deepseek-v2-lite", "qwen3-next-80b-a3b", "lfm2-1.2b", "mamba-2.8b"]
)
def test_a_folder_with_a_config_is_priced_as_its_gguf(name, tmp_path):
    """Caches and compute of the config alone are those of the model's GGUF under the same workload; the answer says what it priced."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    workload = LlamaWorkload(ctx=4096, slots=1)
    ours = fit(str(tmp_path), workload, device=("cuda:400GiB",))
    theirs = fit(allocations.checkpoint_of("shapes", name), workload, device=("cuda:400GiB",))

    def parts(answer):
        return {(part.name, part.device): part.bytes for part in answer.plan.parts if part.name.startswith(("kv_cache", "recurrent"))}

    assert parts(ours) == parts(theirs)
    assert ours.verdict == "fits"
    assert any("converter would write" in note for note in ours.caveats)


def test_what_cannot_be_converted_is_missing_by_name():
    """A family without a row, and a tensor without a name, give no half of a file."""
    for family in ("falcon", "gpt2"):
        made = as_gguf(*read({"model_type": family, **{key: value for key, value in SMALL.items() if "config" not in key}}, family))
        assert isinstance(made, Missing)
        assert family in made.detail
