"""Promises of a config and the tensors beside it: the files win, and every difference is said."""

from brim.facts.model import Shape, Tensor
from brim.shapes.config import read
from brim.shapes.directory import beside, spelled
from brim.values import Missing

MOE = {
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 131,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}


def files(config, *, draft=True, without=(), more=(), other=()):
    """(shape, weights, the directory that the config implies, changed as asked)."""
    shape, weights = read(config)
    assert isinstance(shape, Shape)
    tensors = []
    for name, row in spelled(weights).items():
        if name in without or (row.tower == "draft" and not draft):
            continue
        dims = (*row.dims[:-1], row.dims[-1] + 1) if name in other else row.dims
        count = 1
        for size in dims:
            count *= size
        tensors.append(Tensor(name=name, dims=dims, dtype="BF16", offset=0, stored_bytes=2 * count, elements=count))
    tensors += [Tensor(name=name, dims=(3,), dtype="I64", offset=0, stored_bytes=24, elements=3) for name in more]
    return shape, weights, tuple(tensors)


def test_a_directory_that_is_what_the_config_implies_changes_nothing_but_the_prediction_layers():
    """The same counts and no note; prediction layers stand only where the files carry them."""
    shape, weights, tensors = files(MOE)
    held = beside(shape, weights, tensors, packed=False)
    assert held == shape
    assert held.draft_layers == 1
    without = beside(*files(MOE, draft=False), packed=False)
    assert (without.draft_layers, without.parameters, without.unusual) == (0, shape.parameters, ())


def test_every_difference_is_a_sentence():
    """Missing, extra and differently shaped tensors are told by name, and the counts are those of the files."""
    gone, wide = "model.layers.1.self_attn.o_proj.weight", "model.layers.2.mlp.gate.weight"
    shape, weights, tensors = files(MOE, without=(gone,), more=("model.layers.0.extra.weight", "model.embeddings.position_ids"), other=(wide,))
    held = beside(shape, weights, tensors, packed=False)
    told = "\n".join(held.unusual)
    assert f"1 tensors that the config implies are not in the files, first {gone}" in told
    assert "1 tensors in the files are not implied by the config, first model.layers.0.extra.weight" in told
    assert "1 tensors in the files are no weights, first model.embeddings.position_ids" in told
    assert f"first {wide}: (64, 5) for (64, 4)" in told
    draft = {name for name, row in spelled(weights).items() if row.tower == "draft"}
    assert held.parameters == sum(tensor.elements for tensor in tensors if tensor.name not in draft)


def test_a_head_that_is_left_out_or_stored_twice_is_said():
    """Files without a head are tied whatever the config says; files with one although tied say so."""
    left = beside(*files({**MOE, "tie_word_embeddings": False}, without=("lm_head.weight",)), packed=False)
    assert left.tied_embeddings
    assert any("does not tie" in note for note in left.unusual)
    twice = beside(*files({**MOE, "tie_word_embeddings": True}, more=("lm_head.weight",)), packed=False)
    assert twice.tied_embeddings
    assert any("stored although the config ties it" in note for note in twice.unusual)


def test_packed_weights_are_held_by_their_count_alone():
    """Names and dims of packed tensors are their packer's; only the counts follow."""
    shape, weights, tensors = files(MOE)
    renamed = tuple(tensor.replace(name=tensor.name.replace(".weight", ".qweight")) for tensor in tensors)
    held = beside(shape, weights, renamed, packed=True)
    assert held.unusual == shape.unusual


def test_experts_stored_otherwise_are_no_difference():
    """Separate, stacked or turned round: as many numbers in the same place are the same experts; one number more is told."""
    shape, weights, tensors = files(MOE, draft=False)
    place = "model.layers.1.mlp.experts."
    stacked = [tensor for tensor in tensors if not tensor.name.startswith(place)]
    for name, dims in (("gate_up_proj", (64, 64, 4)), ("down_proj", (64, 32, 4))):
        count = dims[0] * dims[1] * dims[2]
        stacked.append(Tensor(name=place + name, dims=dims, dtype="BF16", offset=0, stored_bytes=2 * count, elements=count))
    held = beside(shape, weights, tuple(stacked), packed=False)
    assert not [word for word in held.unusual if "config" in word]
    assert held.parameters == shape.parameters
    more = [*stacked, Tensor(name=place + "odd", dims=(1,), dtype="BF16", offset=0, stored_bytes=2, elements=1)]
    assert [word for word in beside(shape, weights, tuple(more), packed=False).unusual if "not implied" in word]


SEEN = {
    "model_type": "llava",
    "text_config": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 131},
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4},
}


def test_files_of_transformers_5_lack_a_level_of_the_tower():
    """Folders written by transformers 4 (`vision_tower.vision_model.`) and by 5 (`vision_tower.`) both are what the config implies."""
    shape, weights, tensors = files(SEEN)
    for old, new in (("", ""), ("vision_tower.vision_model.", "vision_tower.")):
        renamed = tuple(tensor.replace(name=tensor.name.replace(old, new)) for tensor in tensors)
        assert beside(shape, weights, renamed, packed=False).unusual == shape.unusual


def test_a_tower_that_is_not_known_is_counted_by_its_files():
    """Without files the whole count is missing; with files it is theirs, and the tower's tensors are no fault of the folder."""
    config = {**SEEN, "vision_config": {"model_type": "of_its_own"}, "model_type": "internvl_chat", "llm_config": SEEN["text_config"]}
    shape, weights, tensors = files(config)
    assert isinstance(shape.parameters, Missing)
    eye = Tensor(name="vision_model.x.weight", dims=(7,), dtype="BF16", offset=0, stored_bytes=14, elements=7)
    held = beside(shape, weights, (*tensors, eye), packed=False)
    assert held.parameters == sum(tensor.elements for tensor in tensors) + 7
    assert [word for word in held.unusual if "taken for the towers" in word]
    assert not [word for word in held.unusual if "not implied" in word]
