"""Promises of a config and the tensors beside it: the files win, and every difference is said."""

from brim.facts.model import Shape, Tensor
from brim.shapes.config import read
from brim.shapes.directory import beside, spelled

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
