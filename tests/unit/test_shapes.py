"""Promises of the shapes rooms: configs become layers and weights, odd ones are refused by name, and nothing unknown is guessed."""

import hashlib
import json
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim.errors import BadHeader, BrimError
from brim.facts.model import Shape
from brim.shapes.config import read, shape_of_config, tensor_table
from brim.shapes.families.registry import FAMILIES
from brim.values import Missing

GOLDEN = json.loads((pathlib.Path(__file__).parent.parent / "golden" / "shapes.json").read_text())
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 131,
    "tie_word_embeddings": False,
}


def listing(rows):
    """Every tensor's name and dims as the oracle lists them: experts spelled out, prediction layers left out."""
    lines = []
    for row in rows:
        names = [row.name] if row.copies == 1 else [row.name.replace("{}", str(number)) for number in range(row.copies)]
        lines += [f"{name.replace('{}', '0')} {tuple(reversed(row.dims))}" for name in names if row.tower != "draft"]
    return sorted(lines, key=lambda line: line.rsplit(" (", 1)[0])


@pytest.mark.parametrize("fact", GOLDEN["models"], ids=lambda fact: fact["name"])
def test_published_configs_give_the_parameters_and_tensors_that_transformers_counts(fact):
    """For every published config in the golden file: the same parameters and, name by name, the same tensors as transformers on the meta device."""
    shape, rows = read(fact["config"], fact["name"])
    lines = listing(rows)
    assert isinstance(shape, Shape)
    assert sum(row.elements for row in rows if row.op != "buffer" and row.tower != "draft") == fact["parameters"]
    assert len(lines) == fact["tensors"]
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == fact["sha256"]
    assert shape.active_parameters == fact["active_parameters"]


PARAMETERS = [  # published by their makers, in billions, to the digits that they give; the last says that they leave the embedding out of the active ones
    ("mixtral-8x7b", 46.7, 12.9, False),
    ("qwen3-30b-a3b", 30.5, 3.3, False),
    ("deepseek-v3", 671.0, 37.0, False),
    ("gpt-oss-20b", 20.9, 3.6, True),
    ("olmoe-1b-7b", 6.9, 1.3, False),
    ("qwen1.5-moe-a2.7b", 14.3, 2.7, False),
]


@pytest.mark.parametrize(("name", "total", "active", "without"), PARAMETERS)
def test_active_parameters_are_those_that_the_makers_publish(name, total, active, without):
    """Total and active parameters of sparse models are near what their makers say (who round)."""
    fact = next(fact for fact in GOLDEN["models"] if fact["name"] == name)
    shape = shape_of_config(fact["config"])
    assert isinstance(shape, Shape)
    counted = shape.active_parameters - (shape.vocabulary * shape.width if without else 0)
    assert shape.parameters / 1e9 == pytest.approx(total, abs=0.051)
    assert counted / 1e9 == pytest.approx(active, rel=0.02)


REMOTE = [  # what the hub shows for the published safetensors
    (7_737_708_544, {"model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 92544, "bias": False}),
    (7_505_973_248, {"model_type": "baichuan", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 125696}),
    (7_721_324_544, {"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32, "kv_channels": 128, "vocab_size": 151936, "no_bias": True}),
    (136_731_648, {"model_type": "nomic_bert", "architectures": ["NomicBertModel"], "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": 3072, "vocab_size": 30528, "type_vocab_size": 2}),
    (2_724_880_896, {"model_type": "minicpm", "hidden_size": 2304, "intermediate_size": 5760, "num_hidden_layers": 40, "num_attention_heads": 36, "num_key_value_heads": 36, "vocab_size": 122753}),
    (9_399_951_392, {"model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 40, "num_attention_heads": 32, "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2, "padded_vocab_size": 151552, "add_qkv_bias": True, "add_bias_linear": False}),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "config"), REMOTE, ids=[config["model_type"] for _, config in REMOTE])
def test_families_with_code_of_their_own_have_the_published_counts(parameters, config):
    """Families that transformers does not know have as many parameters as the hub counts in their files."""
    shape = shape_of_config(config)
    assert isinstance(shape, Shape)
    assert shape.parameters == parameters


RWKV7 = [  # Peng et al. 2025, RWKV-7 "Goose", table of the World3 models: (parameters, layers, width, ranks of decay, rate, value and gate)
    (191_034_624, 12, 768, (64, 64, 32, 128)),
    (450_767_872, 24, 1024, (64, 64, 32, 128)),
    (1_527_404_544, 24, 2048, (96, 96, 64, 256)),
    (2_947_735_040, 32, 2560, (96, 96, 64, 320)),
]


@pytest.mark.parametrize(("parameters", "layers", "width", "ranks"), RWKV7)
def test_rwkv_7_has_the_parameters_of_its_paper(parameters, layers, width, ranks):
    """The four World3 models, to the last parameter: the published count leaves out the first layer's value mix, as the published files do."""
    decay, rate, value, gate = ranks
    config = {"model_type": "rwkv7", "hidden_size": width, "num_hidden_layers": layers, "vocab_size": 65536, "head_dim": 64, "tie_word_embeddings": False}
    config |= {"decay_low_rank_dim": decay, "a_low_rank_dim": rate, "v_low_rank_dim": value, "gate_low_rank_dim": gate}
    shape = shape_of_config(config)
    assert isinstance(shape, Shape)
    assert shape.parameters == parameters


HOSTILE = [
    ({"num_attention_heads": 0}, "num_attention_heads"),
    ({"num_attention_heads": -8}, "num_attention_heads"),
    ({"num_attention_heads": 10**30}, "num_attention_heads"),
    ({"num_key_value_heads": 3}, "num_key_value_heads"),
    ({"hidden_size": "4096"}, "hidden_size"),
    ({"hidden_size": 64.5}, "hidden_size"),
    ({"hidden_size": True}, "hidden_size"),
    ({"hidden_size": [64]}, "hidden_size"),
    ({"hidden_size": 2**40}, "hidden_size"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
    ({"num_hidden_layers": 0}, "num_hidden_layers"),
    ({"vocab_size": -1}, "vocab_size"),
    ({"head_dim": 0}, "head_dim"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ({"layer_types": ["full_attention"] * 4}, "layer_types"),
    ({"layer_types": "full_attention"}, "layer_types"),
    ({"layer_types": ["full_attention", "mystery", "full_attention"]}, "layer_types"),
    ({"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "layer_types"),
    ({"layer_types": [1, 2, 3]}, "layer_types"),
    ({"model_type": ["llama"]}, "model_type"),
    ({"quantization_config": "int4"}, "quantization_config"),
    ({"quantization_config": {"quant_method": "gptq", "bits": -4}}, "quantization_config"),
    ({"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 9, "moe_intermediate_size": 8}, "num_experts_per_tok"),
    ({"model_type": "gemma3n_text", "num_kv_shared_layers": 9}, "num_kv_shared_layers"),
    ({"model_type": "nemotron_h", "hybrid_override_pattern": "M?M"}, "hybrid_override_pattern"),
    ({"model_type": "nemotron_h", "hybrid_override_pattern": "M*"}, "num_hidden_layers"),
    ({"model_type": "mamba2", "num_heads": 5, "head_dim": 7}, "num_heads"),
    ({"model_type": "gemma3", "text_config": "text"}, "text_config"),
    ({"model_type": "stablelm", "qk_layernorm": True, "num_attention_heads": 64, "num_key_value_heads": 64, "num_hidden_layers": 2048}, "num_hidden_layers"),
    ({"model_type": "qwen3_moe", "num_experts": 65536, "num_experts_per_tok": 8, "num_hidden_layers": 2000}, "num_hidden_layers"),
    ({"model_type": "gemma3", "text_config": {"num_attention_heads": 0}}, "text_config.num_attention_heads"),
]


@pytest.mark.parametrize(("change", "field"), HOSTILE, ids=[f"{field}-{number}" for number, (_, field) in enumerate(HOSTILE)])
def test_a_field_that_cannot_be_true_is_one_named_error(change, field):
    """The error names the file and the field, and is a bad header; no traceback of another kind."""
    with pytest.raises(BadHeader, match=field.replace(".", r"\.")) as caught:
        read({**LLAMA, **change}, "models/x/config.json")
    assert str(caught.value).startswith("models/x/config.json: ")


UNKNOWN = [
    ({"model_type": "nosuch", "hidden_size": 64}, ("nosuch", "num_hidden_layers", "vocab_size")),
    ({}, ("none given", "model_type", "hidden_size")),
    ({"architectures": ["NosuchForCausalLM"]}, ("NosuchForCausalLM",)),
    ({**LLAMA, "model_type": "mixtral", "num_local_experts": None}, ("num_local_experts",)),
    ({**LLAMA, "model_type": "deepseek_v2", "num_experts_per_tok": None}, ("num_experts_per_tok",)),
    ({**LLAMA, "hidden_size": None}, ("hidden_size",)),
    ({"model_type": "llava"}, ("text_config",)),
    ({**LLAMA, "model_type": "glm4_moe", "num_hidden_layers": None, "num_nextn_predict_layers": 1, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}, ("num_hidden_layers",)),
]  # fmt: skip


@pytest.mark.parametrize(("config", "words"), UNKNOWN)
def test_what_cannot_be_told_is_missing_with_the_fields_that_are_wanting(config, words):
    """An unknown architecture, or a known one without a field that has no default, is `Missing`; a model of experts never becomes dense."""
    shape, rows = read(config, "config.json")
    assert isinstance(shape, Missing)
    assert rows == ()
    for word in words:
        assert word in shape.detail


KINDS = [
    ({"model_type": "gemma3_text", "num_hidden_layers": 8, "sliding_window": 32, "sliding_window_pattern": 3}, "sssf"[1:] * 2 + "ss"),
    ({"model_type": "gemma2", "num_hidden_layers": 4, "sliding_window": 32}, "sfsf"),
    ({"model_type": "mistral", "num_hidden_layers": 3, "sliding_window": 32}, "sss"),
    ({"model_type": "mistral", "num_hidden_layers": 3, "sliding_window": None}, "fff"),
    ({"model_type": "qwen2", "num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 32, "max_window_layers": 3}, "fffs"),
    ({"model_type": "qwen2", "num_hidden_layers": 4, "use_sliding_window": False, "sliding_window": 32, "max_window_layers": 3}, "ffff"),
    ({"model_type": "llama4_text", "num_hidden_layers": 4, "attention_chunk_size": 32}, "cccf"),
    ({"model_type": "cohere2", "num_hidden_layers": 4, "sliding_window": 32, "layer_types": ["full_attention", "sliding_attention"] * 2}, "fsfs"),
    ({"model_type": "qwen3_next", "num_hidden_layers": 4, "full_attention_interval": 2}, ".f.f"),
    ({"model_type": "jamba", "num_hidden_layers": 4, "attn_layer_period": 3, "attn_layer_offset": 1}, ".f.."),
    ({"model_type": "lfm2", "num_hidden_layers": 4, "full_attn_idxs": [1, 2]}, ".ff."),
    ({"model_type": "nemotron_h", "num_hidden_layers": 4, "hybrid_override_pattern": "M*-M"}, ".f-."),
    ({"model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": 32, "sliding_window_pattern": 2}, "sfsf"),
    ({"model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": 32, "sliding_window_pattern": "LLLG"}, "sssf"),
    ({"model_type": "minimax", "num_hidden_layers": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "attn_type_list": [0, 0, 1, 0]}, "..f."),
    ({"model_type": "minimax", "num_hidden_layers": 2, "architectures": ["MiniMaxM2ForCausalLM"], "attn_type_list": [1, 1]}, "ff"),
    ({"model_type": "smollm3", "num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 32, "no_rope_layers": [1, 0, 1, 0]}, "fsfs"),
]


@pytest.mark.parametrize(("config", "kinds"), KINDS)
def test_layer_kinds_come_from_the_fields_of_the_config(config, kinds):
    """f full, s sliding, c chunked, . a state, - neither: as the config's own pattern says, with the config's own window."""
    shape = shape_of_config({"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, **config})
    assert isinstance(shape, Shape), shape
    letters = {"full": "f", "sliding": "s", "chunked": "c"}
    told = "".join(letters[row.attention.kind] if row.attention else "." if row.state else "-" for row in shape.layers)
    assert told == kinds
    assert {row.attention.window for row in shape.layers if row.attention} <= {0, 32}


def test_the_layers_for_prediction_are_drawn_apart_and_not_counted():
    """DeepSeek v3 has 671 B parameters; the 14 B of its prediction layer are rows of the tower `draft` (its report: 685 B on the hub)."""
    fact = next(fact for fact in GOLDEN["models"] if fact["name"] == "deepseek-v3")
    shape, rows = read(fact["config"])
    assert isinstance(shape, Shape)
    assert shape.draft_layers == 1
    assert len(shape.layers) == 61
    assert shape.parameters == sum(row.elements for row in rows if row.tower != "draft")
    assert 684.4e9 < sum(row.elements for row in rows) < 684.6e9


def test_a_bare_config_is_inspected_with_the_tensors_that_it_implies(tmp_path):
    """`brim.inspect` of a folder with nothing but a config: its layers in a line, its parameters, and what is not counted."""
    from brim.api import inspect

    fact = next(fact for fact in GOLDEN["models"] if fact["name"] == "deepseek-v3")
    (tmp_path / "config.json").write_text(json.dumps(fact["config"]))
    checkpoint, anatomy = inspect(str(tmp_path))
    assert anatomy.picture == "3×mla + 58×mla+moe(8/256)"
    assert anatomy.parameters == sum(tensor.elements for tensor in checkpoint.tensors) == 671026419200
    assert any("multi-token prediction (1)" in note for note in anatomy.unusual)


PACKED = [
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, ("gptq", 4, 128)),
    ({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}, ("awq", 4, 64)),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, ("bitsandbytes", 4, 0)),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, ("bitsandbytes", 8, 0)),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8", 8, 0)),
    ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, ("mxfp4", 4, 32)),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}}}, ("compressed-tensors", 4, 128)),
    ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 3, "group_size": 64}}}, ("hqq", 3, 64)),
    ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, ("torchao", 0, 0)),
]


@pytest.mark.parametrize(("packed", "told"), PACKED)
def test_packed_weights_are_told_from_the_config(packed, told):
    """Method, bits and group of every kind of quantization_config; the logical weights stay the same."""
    shape = shape_of_config({**LLAMA, "quantization_config": packed})
    assert isinstance(shape, Shape)
    assert (shape.quantisation.method, shape.quantisation.bits, shape.quantisation.group) == told
    assert shape.parameters == shape_of_config(LLAMA).parameters


def test_the_class_that_wrote_a_checkpoint_tells_the_family_where_model_type_does_not():
    """A model_type of the maker's own, or none, with a known class behind it is that class's family; older field names are understood."""
    told = shape_of_config(LLAMA)
    for change in ({"model_type": "housemade"}, {"model_type": None}):
        shape = shape_of_config({**LLAMA, **change, "architectures": ["LlamaForCausalLM"]})
        assert isinstance(shape, Shape)
        assert (shape.architecture, shape.parameters) == ("llama", told.parameters)
    bloom = shape_of_config({"model_type": "bloom", "n_embed": 64, "n_layer": 2, "num_attention_heads": 4, "vocab_size": 131})
    assert (bloom.width, len(bloom.layers)) == (64, 2)


def test_linear_layers_of_a_model_can_be_picked_by_role():
    """What a trainer asks: the names of the projections, with (inputs, outputs)."""
    rows = {row.name: row for row in tensor_table(LLAMA)}
    assert rows["model.layers.0.self_attn.k_proj.weight"].dims == (64, 16)
    assert rows["model.layers.2.mlp.down_proj.weight"].dims == (160, 64)
    assert {row.role for row in rows.values() if row.op == "linear"} == {"q", "k", "v", "o", "gate", "up", "down", "lm_head"}
    assert all(row.layer in (0, 1, 2) for row in rows.values() if ".layers." in row.name)


TIES = [
    ({"transformers_version": "4.50.0"}, {}, False),
    ({"transformers_version": "4.50.0", "tie_word_embeddings": True}, {"tie_word_embeddings": False}, False),
    ({"transformers_version": "4.50.0"}, {"tie_word_embeddings": True}, True),
    ({"transformers_version": "5.2.0"}, {}, True),
    ({"transformers_version": "5.2.0", "tie_word_embeddings": False}, {"tie_word_embeddings": True}, False),
]


@pytest.mark.parametrize(("top", "text", "tied"), TIES)
def test_who_ties_a_wrapper_s_head_depends_on_the_version_that_wrote_it(top, text, tied):
    """transformers 4 asked the text config (Mistral's default is untied), version 5 asks the wrapper (Mistral 3's default is tied)."""
    small = {"model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 131}
    shape, rows = read({"model_type": "mistral3", "text_config": {**small, **text}, "vision_config": {"model_type": "pixtral"}, **top})
    assert isinstance(shape, Shape)
    assert shape.tied_embeddings is tied
    assert any(row.role == "lm_head" for row in rows) is not tied


def test_a_default_that_stands_in_for_a_core_field_is_said():
    """A config without its width gets transformers' default, and says so."""
    shape = shape_of_config({key: value for key, value in LLAMA.items() if key != "intermediate_size"})
    assert isinstance(shape, Shape)
    assert any("intermediate_size" in note for note in shape.unusual)


values = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 300), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(-2, 9), max_size=6), st.just({})
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    changes=st.dictionaries(
        st.sampled_from(sorted({*LLAMA, "layer_types", "head_dim", "sliding_window", "text_config", "vision_config", "num_experts"})), values, max_size=4
    ),
)
def test_any_config_gives_a_shape_or_missing_or_one_named_error(family, changes):
    """Whatever stands in the fields, the answer is a shape, `Missing`, or an error of ours that names the file."""
    small = {"num_hidden_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 64}
    try:
        shape, rows = read({**small, "model_type": family, **{key: value for key, value in changes.items() if key != "model_type"}}, "c.json")
    except BrimError as error:
        assert str(error).startswith("c.json")
        return
    assert isinstance(shape, (Shape, Missing))
    if isinstance(shape, Shape) and not isinstance(shape.parameters, Missing):
        assert shape.parameters == sum(row.elements for row in rows if row.tower != "draft")


def test_a_strangers_model_type_gets_no_defaults():
    """A class that is known under a model_type that is not: what the file leaves out is not filled from the known family, it is wanting."""
    fields = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape, _ = read({**fields, "model_type": "stranger"})
    assert isinstance(shape, Missing)
    assert "vocab_size" in shape.detail
    whole, _ = read({**fields, "model_type": "stranger", "vocab_size": 131})
    assert isinstance(whole, Shape)
    assert not [word for word in whole.unusual if "default taken" in word]


@pytest.mark.parametrize(
    ("version", "wrapper", "text", "tied"),
    [
        ("4.50.0", None, False, False),
        ("5.1.0", None, False, True),
        ("5.1.0", False, True, False),
        ("4.50.0", True, False, False),
        ("", True, False, True),
        ("", None, False, False),
    ],
)
def test_who_ties_the_head_of_a_wrapper(version, wrapper, text, tied):
    """transformers 4 asked the text config, 5 the wrapper's (whose default is true here); without a version the file's own word wins."""
    inner = {"model_type": "cohere2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 131}
    config = {"model_type": "cohere2_vision", "text_config": {**inner, "tie_word_embeddings": text}, "vision_config": {"model_type": "siglip_vision_model"}}
    config |= {"transformers_version": version} if version else {}
    config |= {} if wrapper is None else {"tie_word_embeddings": wrapper}
    shape, _ = read(config)
    assert isinstance(shape, Shape)
    assert shape.tied_embeddings is tied


SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 131, "tie_word_embeddings": False}
T5 = {"d_model": 64, "d_ff": 96, "d_kv": 16, "num_heads": 4, "num_layers": 2, "vocab_size": 131}
BART = {"d_model": 64, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4} | {
    "decoder_attention_heads": 4,
    "vocab_size": 131,
    "max_position_embeddings": 32,
}


@pytest.mark.parametrize(
    ("family", "fields", "name", "head"),
    [
        ("llama", SMALL, "LlamaForCausalLM", {"lm_head.weight": (131, 64)}),
        ("llama", SMALL, "LlamaForSequenceClassification", {"score.weight": (2, 64)}),
        ("llama", SMALL, "LlamaForQuestionAnswering", {"qa_outputs.bias": (2,), "qa_outputs.weight": (2, 64)}),
        ("mistral", {**SMALL, "num_key_value_heads": 2}, "MistralForQuestionAnswering", {"qa_outputs.bias": (2,), "qa_outputs.weight": (2, 64)}),
        ("gpt2", {"n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 131}, "GPT2ForTokenClassification", {"classifier.bias": (2,), "classifier.weight": (2, 64)}),
        ("bert", SMALL, "BertForMultipleChoice", {"classifier.bias": (1,), "classifier.weight": (1, 64)}),
        ("bert", SMALL, "BertForNextSentencePrediction", {"cls.seq_relationship.bias": (2,), "cls.seq_relationship.weight": (2, 64)}),
        ("bart", BART, "BartForQuestionAnswering", {"qa_outputs.bias": (2,), "qa_outputs.weight": (2, 64)}),
        ("t5", T5, "T5ForTokenClassification", {"classifier.bias": (2,), "classifier.weight": (2, 64)}),
    ],
)  # fmt: skip
def test_each_class_has_its_own_head(family, fields, name, head):
    """What stands on top is what `architectures` names (sizes: transformers 5.24 on the meta device); no language-model head beside a classifier."""
    rows = tensor_table({**fields, "model_type": family, "architectures": [name]})
    tops = {row.name: tuple(reversed(row.dims)) for row in rows if row.role in ("lm_head", "classifier")}
    assert tops == head


@pytest.mark.parametrize(
    ("family", "fields", "name"),
    [
        ("llama", SMALL, "LlamaForProcessRewards"),
        ("gpt2", {"n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 131}, "GPT2DoubleHeadsModel"),
        ("bart", BART, "BartForCausalLM"),
        ("bert", SMALL, "BertForSomethingOfItsOwn"),
    ],
)  # fmt: skip
def test_a_head_that_is_not_known_is_not_guessed(family, fields, name):
    """A class whose head brim does not draw is never counted with a language-model head: the answer is missing, with the class's name."""
    shape, rows = read({**fields, "model_type": family, "architectures": [name]})
    assert isinstance(shape, Missing)
    assert name in shape.detail
    assert rows == ()


_S, _E, _D, _H = "model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"


@pytest.mark.parametrize(
    ("shared", "tied", "spoken", "tables"),
    [
        (True, True, None, {_S: 50}),
        (True, False, None, {_S: 50, _E: 50, _D: 50, _H: 50}),
        (False, True, None, {_E: 50, _D: 50}),
        (False, True, 70, {_E: 50, _D: 70}),
        (False, False, 70, {_E: 50, _D: 70, _H: 70}),
    ],
)
def test_the_two_vocabularies_of_marian(shared: bool, tied: bool, spoken: "int | None", tables: "dict[str, int]") -> None:
    """As transformers 5.24 builds MarianMTModel on the meta device: shared or not, tied or not, the decoder's and the logits' vocabulary of its own."""
    config = {
        "model_type": "marian", "architectures": ["MarianMTModel"], "vocab_size": 50, "decoder_vocab_size": spoken, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 12,
        "share_encoder_decoder_embeddings": shared, "tie_word_embeddings": tied,
    }  # fmt: skip
    shape, weights = read(config, "config.json")
    assert not isinstance(shape, Missing)
    held = {weight.name: weight.dims for weight in weights}
    assert {name: held[name][1] for name in (_S, _E, _D, _H) if name in held} == tables
    assert held["final_logits_bias"] == (spoken or 50, 1)
    assert shape.vocabulary == (spoken or 50)
