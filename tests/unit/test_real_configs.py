"""Promises about configs that people published: the counts of transformers where it has the class, and no guess where it has not."""

import gzip
import hashlib
import json
import pathlib

import pytest

from brim.errors import BrimError
from brim.facts.model import Shape
from brim.shapes.config import read
from brim.values import Missing

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
CONFIGS = {row["address"]: row["config"] for row in map(json.loads, gzip.decompress((GOLDEN / "real_configs.jsonl.gz").read_bytes()).decode().splitlines())}
FIRST = json.loads((GOLDEN / "real_configs_first.json").read_text())["rows"]


def counted(rows):
    """Parameters as the oracle counts them: no buffers, no layers for prediction."""
    return sum(row.elements for row in rows if row.op != "buffer" and row.tower != "draft")


def test_every_published_config_whose_class_transformers_has_gives_its_count():
    """Each of them, read with the odd fields and the gaps that it came with, has as many parameters as transformers counts on the meta device."""
    held = [row for row in FIRST if row["status"] == "equal"]
    assert len(held) > 200
    assert len({row["family"] for row in held}) > 50
    for row in held:
        shape, rows = read(CONFIGS[row["address"]], row["address"])
        assert isinstance(shape, Shape), row["address"]
        assert counted(rows) == row["theirs"], row["address"]


def test_no_published_config_crashes_brim():
    """Each gives a shape, a `Missing` that names what is wanting, or one error that names file, field and fault."""
    for address, config in CONFIGS.items():
        try:
            shape, rows = read(config, "config.json")
        except BrimError as error:
            assert str(error).startswith("config.json: "), address
            continue
        assert rows if isinstance(shape, Shape) else shape.detail, address


LLAMA = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 96}
GLM = {
    "model_type": "chatglm",
    "hidden_size": 64,
    "ffn_hidden_size": 160,
    "num_layers": 2,
    "num_attention_heads": 4,
    "kv_channels": 16,
    "padded_vocab_size": 96,
}
GEMMA = {"model_type": "gemma3", "architectures": ["Gemma3ForCausalLM"], **LLAMA, "head_dim": 16, "num_key_value_heads": 1}


def test_a_bare_model_that_holds_its_head_itself_keeps_it():
    """ChatGLM's files name `ChatGLMModel`, whose own code has the output layer: with and without the class they hold the same weights."""
    assert read({**GLM, "architectures": ["ChatGLMModel"]})[1] == read(GLM)[1]
    assert any(row.name == "transformer.output_layer.weight" for row in read(GLM)[1])


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"model_type": "qwen", **LLAMA, "kv_channels": 16, "visual": {"layers": 48, "width": 1664}}, "visual"),
        ({**GLM, "vision_config": {"num_hidden_layers": 63}}, "vision_config"),
        ({"model_type": "llava", "architectures": ["LlavaLlamaForCausalLM"], **LLAMA, "mm_vision_tower": "openai/clip"}, "openai/clip"),
        ({"model_type": "llava", "architectures": ["LlavaMptForCausalLM"], **LLAMA, "mm_vision_tower": "openai/clip"}, "text_config"),
    ],
    ids=["Qwen-VL", "GLM-4V", "LLaVA as first published", "LLaVA on a text model that is not known"],
)
def test_a_tower_that_no_room_draws_is_never_left_out_silently(config, word):
    """The count is `Missing`, and says which tower (or that the text model is not told)."""
    shape, _rows = read(config)
    told = shape if isinstance(shape, Missing) else shape.parameters
    assert isinstance(told, Missing)
    assert word in told.detail


def test_a_first_llava_has_the_names_of_its_text_model():
    """No tower of transformers' own LLaVA is drawn for a file of the first layout."""
    _shape, rows = read({"model_type": "llava", "architectures": ["LlavaLlamaForCausalLM"], **LLAMA, "mm_vision_tower": "openai/clip"})
    assert {row.tower for row in rows} == {"text"}
    assert rows[0].name == "model.embed_tokens.weight"


def test_a_tower_called_by_the_wrapper_s_name_gets_its_own_class_s_defaults():
    """Qwen2-VL's published `vision_config` says `qwen2_vl` and little else: the tower has all its 32 blocks."""
    config = {"model_type": "qwen2_vl", **LLAMA, "num_key_value_heads": 2, "vision_config": {"in_chans": 3, "model_type": "qwen2_vl", "spatial_patch_size": 14}}
    assert len({row.layer for row in read(config)[1] if row.tower == "vision" and row.layer is not None}) == 32


def test_a_tower_whose_fields_do_not_suffice_is_missing_by_name():
    """A field that a tower lacks is wanting like one of the text model."""
    config = {"model_type": "kimi_vl", "text_config": {}, "vision_config": {"model_type": "moonvit"}}
    shape, _rows = read(config)
    assert isinstance(shape, Missing)
    assert "vision_config.hidden_size" in shape.detail


def test_a_text_half_under_the_wrapper_s_model_type_has_no_tower():
    """A file that the text half's own class wrote is that text model, whatever its model_type says."""
    assert read(GEMMA)[1] == read({**GEMMA, "model_type": "gemma3_text"})[1]


def test_the_first_qwen_speaks_gpt_2():
    """Qwen-7B as first published has GPT-2's field names."""
    older = {"n_embd": 64, "ffn_hidden_size": 160, "n_layer": 2, "n_head": 4, "vocab_size": 96}
    assert read({"model_type": "qwen", "kv_channels": 16, **older})[1] == read({"model_type": "qwen", "kv_channels": 16, **LLAMA})[1]


def test_the_first_falcons_and_their_kin_are_read_by_their_own_names():
    """`RefinedWeb` is Falcon's new architecture, `RefinedWebModel` the old one; one `bias` of InternLM 1 and openPangu stands on all four projections."""
    older = {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 96, "parallel_attn": True, "bias": False}
    newer = {
        "model_type": "falcon",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 96,
        "parallel_attn": True,
        "bias": False,
    }
    many = {**newer, "num_kv_heads": 2, "new_decoder_architecture": True}
    assert read({"model_type": "RefinedWeb", **older, "n_head_kv": 2})[1] == read(many)[1]
    assert (
        read({"model_type": "RefinedWebModel", **older, "multi_query": True})[1] == read({**newer, "multi_query": True, "new_decoder_architecture": False})[1]
    )
    for family in ("internlm", "PanguEmbedded"):
        config = {**LLAMA, "num_key_value_heads": 2, "tie_word_embeddings": False, "bias": True}
        assert read({**config, "model_type": family})[1] == read({**config, "model_type": "llama", "attention_bias": True})[1]


@pytest.mark.parametrize("version", ["4.57.0", "5.1.0", ""])
def test_a_word_beats_a_default_on_who_ties_the_head(version):
    """The text class's default (true, in transformers 5.24) gives way to the wrapper's explicit false; the text config's own word beats both in files of version 4."""
    text = {
        **LLAMA,
        "model_type": "qwen3_vl_moe_text",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "num_key_value_heads": 2,
        "head_dim": 16,
    }
    config = {"model_type": "qwen3_vl_moe", "transformers_version": version, "tie_word_embeddings": False, "text_config": text}
    assert any(row.role == "lm_head" for row in read(config)[1])


def test_pixtral_has_no_level_of_its_own_under_llava():
    """`PixtralVisionModel` stands directly under `vision_tower.`."""
    config = {
        "model_type": "llava",
        "text_config": {**LLAMA, "model_type": "mistral", "num_key_value_heads": 2},
        "vision_config": {"model_type": "pixtral", "hidden_size": 32, "num_hidden_layers": 1},
    }
    assert any(row.name == "vision_tower.patch_conv.weight" for row in read(config)[1])


DBRX = "aws-neuron/neuronx-distributed@fbac349b61:examples/training/dbrx/dbrx_pretrain/configs/16x13b_config.json"


@pytest.mark.parametrize(
    ("word", "parameters", "active"),
    [(DBRX, 131_596_523_520, 36_470_000_000), ("XiaomiMiMo--MiMo-V2-Flash", 308_778_768_832, None), ("MiMo-7B-Base", 7_623_000_000, None)],
    ids=["DBRX", "MiMo V2 Flash", "MiMo 7B"],
)
def test_families_met_in_the_wild_have_their_counts(word, parameters, active):
    """DBRX and MiMo V2 Flash as transformers counts them, DBRX's active parameters as its makers say (36 billion); MiMo 7B's main layers within a thousandth."""
    (address,) = (address for address in CONFIGS if word in address)
    shape, rows = read(CONFIGS[address])
    assert counted(rows) == pytest.approx(parameters, rel=1e-3 if active is None and parameters < 10**10 else 0)
    if active:
        assert shape.active_parameters == pytest.approx(active, rel=0.01)


INDEXES = [json.loads(line) for line in gzip.decompress((GOLDEN / "real_indexes.jsonl.gz").read_bytes()).decode().splitlines()]
# Where a published index and its config part: what the index has, as far as it says.
PARTED = {
    "Alikhan13r/falcon-180B-chat": "a tied head is stored again",
    "amansingh61/bloom": "names without the model's prefix",
    "bryce-hoehn/Qwen3.5-18B-REAP-A3B-Coding": "the names of the wrapper under the text half's model_type",
    "wenchunchia/MultiModal-Search-Qwen3-VL-Embedding-": "an embedding model's file without the head that its class has",
    "bryce-hoehn/Qwen3.5-25B-REAP-A3B-Coding": "the names of the wrapper under the text half's model_type",
    "Decentralised-AI/falcon-40b": "a tied head is stored again",
    "emotibot-inc/Zhuzhi-6B": "a head is stored again under another name",
    "19ShengSheng/Flames": "five classifiers of its own code",
    "delsakov/mcp_tests": "packed by MLX, which keeps the experts apart",
    "gaoqinqinshan/qingshanyiliao": "packed",
    "root-hypercube/qwen3-mlx": "packed",
}


def test_published_indexes_hold_the_tensors_that_their_configs_imply():
    """Name by name, the tensors that `model.safetensors.index.json` lists beside the config; those that part are known, and say why."""
    parted, held = set(), 0
    for row in INDEXES:
        try:
            shape, rows = read(row["config"], row["address"])
        except BrimError:
            continue
        if not isinstance(shape, Shape) or not isinstance(shape.parameters, int):
            continue
        names = sorted(w.name.replace("{}", str(number)) for w in rows for number in range(w.copies))
        if (len(names), hashlib.sha256("\n".join(names).encode()).hexdigest()) == (row["tensors"], row["sha256"]):
            held += 1
        elif row["config"].get("quantization_config") is None:
            parted.add(row["address"].split("@")[0])
    assert parted <= set(PARTED)
    assert held >= 48
