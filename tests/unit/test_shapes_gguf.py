"""Promises of the GGUF side of the shapes: what the engine caches follows from the layers, whatever the architecture; odd keys are refused by name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim.errors import BadHeader, BrimError
from brim.facts.model import Shape, Tensor
from brim.shapes.gguf import shape_of_gguf
from brim.units import MIB, round_up
from brim.values import Missing
from tests import allocations

PLAIN = [row for row in allocations.rows() if row["set"] == "main" and row["ctk"] == row["ctv"] == "f16" and row["parallel"] == 1]


def cached_bytes(shape: Shape, row: dict) -> int:
    """Bytes that llama.cpp keeps between tokens in f16 caches and f32 states, by the layers alone (cells as `llama_kv_cache_iswa` rounds them)."""
    cells, total = round_up(row["ctx"], 256), 0
    for layer in shape.layers:
        a = layer.attention
        if layer.state is not None:
            total += 4 * (layer.state.conv_elements + layer.state.state_elements)
        if a is None or a.shares_cache_of is not None:
            continue
        held = min(cells, round_up(a.window + row["ubatch"], 256)) if a.window else cells
        width = (a.latent_rank + a.rope_dim if a.kind == "latent" else a.kv_heads * (a.key_dim + a.value_dim)) + a.index_dim
        total += 2 * held * width
    return total


@pytest.mark.parametrize("row", PLAIN, ids=lambda row: f"{row['model']}-{row['ctx']}")
def test_caches_by_the_layers_alone_are_those_of_the_engine(row):
    """For sixteen models at every context measured, layers times widths are llama.cpp's own cache and state, to its last printed digit."""
    checkpoint = allocations.checkpoint_of("shapes", row["model"])
    shape = shape_of_gguf(checkpoint.metadata, checkpoint.tensors)
    assert isinstance(shape, Shape)
    measured = sum(sizes[1] for sizes in row["measured"].values())
    assert cached_bytes(shape, row) / MIB == pytest.approx(measured, abs=0.001)


SHARED = "a layer that takes another's choice of cells has no indexer cache, though this file holds an indexer for it"
COMPRESSED = "beside the window there are cells of 4 and of 128 tokens made one, and the rows that they are made from"
POOLED = "the indexer caches raw and pooled keys beside ordinary attention, and one layer has a history of word groups"
ROUTED = "the router's head has cells of its own, and no tensors"
ENGINES_OWN = {  # where llama.cpp b11434 caches something else than the file says, and why
    "deepseek2-old": "a file without key_length_mla is cached expanded, although its attention is latent",
    "smallthinker": "src/models/smallthinker.cpp sets a window of 4096 whatever the file says",
    "deepseek4": COMPRESSED,
    "deepseek4-wide": COMPRESSED,
    "dots3note": "the shape knows one latent width, the sliding layers have their own",
    "glm5-next": POOLED,
    "glm5-next-shared": POOLED,
    "minimax-m3": "the indexer has a V cache that nothing reads",
    "glm-dsa-52": SHARED,
    "glm-dsa-shared": SHARED,
    "graniteswitch": ROUTED,
    "graniteswitch-plain": ROUTED,
    "hrm_text": "its layers are cells of runs over a few blocks, which the file's tensors do not show",
    "minimax-01": "src/models/minimax-01.cpp keeps a matrix a head in layers that the file's tensors do not tell apart",
    "t5-relu": "the engine caches as many blocks as the encoder has, whatever the decoder needs",
    "t5encoder": "the engine gives an encoder a cache that its graph never touches",
    "t5encoder-relu": "the engine gives an encoder a cache that its graph never touches",
    "minicpm3": "its attention is latent and is cached expanded",
    "plm": "its attention is latent and is cached expanded",
    "qwen4exp": POOLED,
    "qwen4exp-dense": POOLED,
    "qwen4exp-words": POOLED,
}


def test_caches_of_more_than_a_hundred_architectures_are_those_of_the_engine():
    """For a made-up file of every architecture that the engine could reserve: layers times widths are its cache and state, to the byte."""
    found = allocations.made_up()
    wrong = {}
    for name, model in found.items():
        checkpoint = allocations.checkpoint_of("models", name)
        shape = shape_of_gguf(checkpoint.metadata, checkpoint.tensors, name)
        assert isinstance(shape, Shape), name
        run = model["runs"][0]
        told = cached_bytes(shape, {"ctx": run[0], "ubatch": run[3]})
        if told != model["memory"][0]:
            wrong[name] = (told, model["memory"][0])
    assert len(found) > 100
    assert set(wrong) == set(ENGINES_OWN), wrong


def test_the_keys_alone_tell_the_same_attention_and_states():
    """Without a tensor directory the keys give the same attention and states, layer by layer, for all sixteen models."""
    for name in sorted({row["model"] for row in PLAIN}):
        checkpoint = allocations.checkpoint_of("shapes", name)
        whole, keys = shape_of_gguf(checkpoint.metadata, checkpoint.tensors), shape_of_gguf(checkpoint.metadata)
        assert isinstance(whole, Shape)
        assert isinstance(keys, Shape)
        assert [(row.attention, row.state) for row in whole.layers] == [(row.attention, row.state) for row in keys.layers], name
        assert isinstance(keys.parameters, Missing)


def test_inspecting_a_gguf_draws_its_layers():
    """`brim.inspect` of a checkpoint with GGUF keys gives its layers in a line, and its parameters."""
    from brim.api import inspect

    _checkpoint, anatomy = inspect(allocations.checkpoint_of("shapes", "gemma-3-12b"))
    assert anatomy.picture == "5×swa(1024) + 1×full, 8 times"
    assert anatomy.parameters == 11766034176


def keys_of(**changes):
    """A small llama's keys."""
    keys = {
        "embedding_length": 64,
        "block_count": 2,
        "feed_forward_length": 160,
        "context_length": 128,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
    }
    return {"general.architecture": "llama", **{f"llama.{key.replace('__', '.')}": value for key, value in {**keys, **changes}.items()}}


HOSTILE = [
    ({"block_count": 0}, "block_count"),
    ({"block_count": 10**9}, "block_count"),
    ({"block_count": "many"}, "block_count"),
    ({"embedding_length": -1}, "embedding_length"),
    ({"embedding_length": 1.5}, "embedding_length"),
    ({"attention.head_count": [8]}, "attention.head_count"),
    ({"attention.head_count": True}, "attention.head_count"),
    ({"attention.head_count_kv": 3}, "attention.head_count_kv"),
    ({"attention.head_count_kv": [2, "2"]}, "attention.head_count_kv"),
    ({"nextn_predict_layers": 3}, "nextn_predict_layers"),
    ({"expert_count": 4, "expert_used_count": 5}, "expert_used_count"),
    ({"attention.shared_kv_layers": 3}, "attention.shared_kv_layers"),
    ({"attention.key_length": 2**40}, "attention.key_length"),
]


@pytest.mark.parametrize(("change", "key"), HOSTILE, ids=[f"{key}-{number}" for number, (_, key) in enumerate(HOSTILE)])
def test_a_key_that_cannot_be_true_is_one_named_error(change, key):
    """The error names the file and the key."""
    with pytest.raises(BadHeader, match=f"^m.gguf: llama.{key}"):
        shape_of_gguf(keys_of(**change), (), "m.gguf")


def test_an_architecture_that_nobody_knows_is_read_from_its_tensors():
    """Layers follow from the tensors: keys and a state, experts and a plain block, although the architecture's name is new."""
    names = {
        "token_embd.weight": (64, 100),
        "blk.0.attn_q.weight": (64, 64),
        "blk.0.attn_k.weight": (64, 16),
        "blk.0.ffn_down.weight": (96, 64),
        "blk.0.ffn_gate.weight": (64, 96),
        "blk.1.ssm_in.weight": (64, 256),
        "blk.1.ffn_down_exps.weight": (32, 64, 4),
        "blk.1.ffn_up_exps.weight": (64, 32, 4),
    }
    tensors = tuple(Tensor(name=name, dims=dims, dtype="F16", offset=0, stored_bytes=2, elements=1) for name, dims in names.items())
    new = {key.replace("llama.", "brandnew."): value for key, value in keys_of(expert_count=4, expert_used_count=2).items()}
    new |= {"general.architecture": "brandnew", "brandnew.ssm.inner_size": 128, "brandnew.ssm.state_size": 16, "brandnew.ssm.conv_kernel": 4}
    shape = shape_of_gguf({**new, "brandnew.ssm.group_count": 1}, tensors)
    assert isinstance(shape, Shape)
    first, second = shape.layers
    assert (first.attention.kv_heads, first.attention.key_dim, first.state, first.feed_forward.width) == (2, 8, None, 96)
    assert (second.attention, second.state.kind, second.state.state_elements) == (None, "mamba2", 16 * 128)
    assert (second.feed_forward.kind, second.feed_forward.gated, second.feed_forward.experts, second.feed_forward.experts_used) == ("experts", False, 4, 2)
    assert shape.tied_embeddings


def test_a_header_without_widths_is_missing_with_its_keys():
    """A vocabulary-only file tells no layers, and says which keys are wanting."""
    shape = shape_of_gguf({"general.architecture": "llama"})
    assert isinstance(shape, Missing)
    assert "llama.embedding_length, llama.block_count" in shape.detail


values = st.one_of(st.none(), st.booleans(), st.integers(-3, 70), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(-1, 9), max_size=4))
KEYS = ["block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.sliding_window"]
KEYS += ["attention.sliding_window_pattern", "expert_count", "expert_used_count", "ssm.inner_size", "ssm.state_size", "wkv.head_size", "shortconv.l_cache"]
KEYS += ["attention.kv_lora_rank", "nextn_predict_layers", "feed_forward_length", "attention.shared_kv_layers", "kda.head_dim", "full_attention_interval"]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    arch=st.sampled_from(["llama", "gemma3", "jamba", "qwen3next", "rwkv7", "deepseek2", "minimax-01", "t5", "clip", "x"]),
    changes=st.dictionaries(st.sampled_from(KEYS), values, max_size=5),
)
def test_any_keys_give_a_shape_or_missing_or_one_named_error(arch, changes):
    """Whatever stands in the keys, the answer is a shape, `Missing`, or an error of ours."""
    keys = {key.replace("llama.", f"{arch}."): value for key, value in keys_of(**changes).items()}
    try:
        shape = shape_of_gguf({**keys, "general.architecture": arch}, (), "m.gguf")
    except BrimError as error:
        assert str(error).startswith("m.gguf")
        return
    assert isinstance(shape, (Shape, Missing))
