"""brim fit --train and brim preflight as a user types them: exit codes, one sentence, JSON that its own schema accepts, and no torch."""

import json
import sys

import jsonschema
import pytest

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "num_hidden_layers": 32,
}  # fmt: skip


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "eight"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return str(folder)


def test_fit_train_answers_and_its_parts_add_up(brim, model):
    """LoRA on 24 GiB fits (0), full Adam does not (3) and names what would; the JSON is valid and its parts are what the device is asked for."""
    schema = json.loads(brim("schema", "fit").stdout)
    for method, code, verdict in (("lora", 0, "fits"), ("full", 3, "does_not_fit")):
        answer = brim("fit", model, "--train", method, "--device", "cuda:24GiB", "--json")
        document = json.loads(answer.stdout)
        jsonschema.validate(document, schema)
        assert (answer.returncode, document["verdict"]) == (code, verdict)
        asked = sum(part["bytes"]["likely"] for part in document["parts"] if part["device"] == "cuda:0")
        assert asked == document["devices"][0]["required_bytes"]["likely"]
        assert document["suggestions"] or verdict == "fits"


def test_what_is_suggested_fits(brim, model):
    """Every suggestion's flags, pasted behind the same command, are accepted with exit 0."""
    document = json.loads(brim("fit", model, "--train", "full", "--device", "cuda:24GiB", "--json").stdout)
    for suggestion in document["suggestions"]:
        flags = suggestion[suggestion.rindex("(") + 1 : -1].split()
        words = ["fit", model, *([] if "--train" in flags else ["--train", "full"]), *flags, "--device", "cuda:24GiB"]
        assert brim(*words).returncode == 0, suggestion


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--batch", "0"), "--batch 0"), (("--lora-rank", "9999"), "--lora-rank"), (("--zero", "2"), "one"), (("--optimizer", "adamm"), "adamm"),
        (("--zero", "7"), "--zero 7"), (("--seq", "x"), "no whole number"), (("--targets", "nothing_like_it"), "nothing_like_it"),
        (("--config", "no-such-file.yaml"), "no-such-file.yaml"), (("--base", "int3"), "int3"),
    ],
)  # fmt: skip
def test_bad_words_are_one_sentence_and_exit_2(brim, model, words, said):
    """One clear sentence on stderr, exit 2, no traceback, nothing on stdout."""
    answer = brim("fit", model, "--train", "lora", "--device", "cuda:24GiB", *words)
    assert answer.returncode == 2
    assert said in answer.stderr.splitlines()[0]
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""


def test_the_preflight_of_a_dense_12b_on_24_gib(brim, tmp_path):
    """Full Adam is blocked with 16 and 18 bytes a parameter, bf16 weights alone are 22.35 GiB, a 4-bit adapter is allowed; the governor's fields are in the file."""
    out = tmp_path / "deep" / "preflight.json"
    answer = brim("preflight", "--params", "12e9", "--device", "cuda:24GiB", "--json", "--out", str(out))
    assert answer.returncode == 0
    document = json.loads(answer.stdout)
    jsonschema.validate(document, json.loads(brim("schema", "preflight").stdout))
    assert json.loads(out.read_text()) == document
    ways = {way["name"]: way for way in document["ways"]}
    full = ways["full fine-tune, Adam"]
    assert full["verdict"] == "blocked"
    assert "178.81 GiB to 201.17 GiB" in full["reason"]
    assert full["needed_bytes"]["low"] > 16 * 12_000_000_000
    assert ways["inference, bf16"]["verdict"] == "blocked"
    assert "22.35 GiB" in ways["inference, bf16"]["reason"]
    assert ways["QLoRA, 4-bit base (adapter)"]["verdict"] == "allowed"
    assert document["dense_class_params"] == document["purefield_estimated_params"] == 12_000_000_000
    assert document["purefield_vram"] == {"bf16_weights_gb": 22.3517, "int4_raw_weights_gb": 5.5879, "rtx_3090_24gb_int4_or_adapter_feasible": True}
    assert document["report_path"] == str(out)


def test_a_declared_compressed_class_is_priced_from_its_declaration(brim):
    """12e9 × 4/8 kept × 4 bits × 1.375 = 4,125,000,000 bytes of weights."""
    words = ("--bits-per-parameter", "4", "--kept", "4/8", "--overhead", "0.375")
    document = json.loads(brim("preflight", "--params", "12B", "--device", "cuda:24GiB", "--json", *words).stdout)
    way = next(way for way in document["ways"] if "compressed" in way["name"])
    assert way["states_bytes"] == 4_125_000_000
    assert document["purefield_estimated_params"] == 6_000_000_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "MODEL"),
        (("--params", "lots"), "lots"),
        (("--params", "5"), "ten million"),
        (("--params", "12e9", "--kept", "9/4", "--bits-per-parameter", "4"), "9/4"),
    ],
)
def test_a_preflight_that_cannot_be_meant(brim, words, said):
    """Exit 2 and one sentence."""
    answer = brim("preflight", "--device", "cuda:24GiB", *words)
    assert answer.returncode == 2
    assert said in answer.stderr


def test_markdown_has_one_row_a_way(brim):
    """The Markdown table has as many rows as the document has ways."""
    words = ("preflight", "--params", "8e9", "--device", "cuda:80GiB")
    ways = json.loads(brim(*words, "--json").stdout)["ways"]
    rows = [line for line in brim(*words, "--markdown").stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == len(ways) + 1


def test_torch_is_never_imported(model):
    """Pricing a training step loads no torch, transformers or numpy."""
    import subprocess

    code = (
        "import sys; from brim import api; from brim.facts.training import TrainWorkload; "
        f"api.fit_training({model!r}, TrainWorkload(), devices=['cuda:24GiB']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'numpy', 'yaml')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_solve_train_auto(brim, model):
    """The batch that is found is accepted by `fit` with the words that it gives, one more is not; the JSON is valid."""
    document = json.loads(brim("solve", model, "--train", "auto", "--for", "batch", "--seq", "512", "--device", "cuda:24GiB", "--json").stdout)
    jsonschema.validate(document, json.loads(brim("schema", "solve-train").stdout))
    assert document["fits"]
    assert {"brim", "trl", "accelerate", "torchtune"} <= set(document["words"])
    words = document["words"]["brim"].split()
    assert brim("fit", model, *words, "--device", "cuda:24GiB").returncode == 0
    words[words.index("--batch") + 1] = str(document["workload"]["batch"] + 1)
    assert brim("fit", model, *words, "--device", "cuda:24GiB").returncode != 0
    assert brim("solve", model, "--train", "auto", "--for", "everything", "--device", "cuda:24GiB").returncode == 2


def test_a_training_command_is_priced_and_gated(brim, model, tmp_path):
    """`brim fit -- torchrun …` prices the step; `brim run` refuses it (3) on a budget that is too small, before anything starts; a command that says nothing is 4."""
    mark = tmp_path / "started"
    script = tmp_path / "train.py"
    script.write_text(f"open({str(mark)!r}, 'w')\n")
    arguments = ["--model_name_or_path", model, "--per_device_train_batch_size", "1", "--max_length", "512", "--bf16", "--gradient_checkpointing", "true"]
    answer = brim("fit", "--device", "cuda:24GiB", "--json", "--", "torchrun", "--nproc_per_node", "1", str(script), *arguments)
    assert answer.returncode == 3
    assert json.loads(answer.stdout)["engine"]["name"] == "train"
    refused = brim("run", "--run-dir", str(tmp_path / "run"), "--", sys.executable, str(script), *arguments, env={"BRIM_DEVICE_BUDGET_BYTES": "1000000000"})
    assert refused.returncode == 3, refused.stderr
    assert not mark.exists()
    assert brim("fit", "--device", "cuda:24GiB", "--", "torchrun", str(script)).returncode == 4


def test_a_gguf_and_its_config_give_the_same_step(brim, tmp_path):
    """A dense llama as GGUF and as config.json: the same parts to the byte."""
    from tests.gguf_bytes import dense_llama, write_sparse

    gguf = tmp_path / "small.gguf"
    write_sparse(str(gguf), *dense_llama(layers=4, width=512, heads=8, kv_heads=2, feed_forward=1024, vocab=1000))
    config = tmp_path / "config.json"
    widths = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000, "num_hidden_layers": 4}
    tensors = json.loads(brim("inspect", str(gguf), "--json", "--tensors").stdout).get("tensors", [])
    tied = not any(tensor["name"] == "output.weight" for tensor in tensors) if tensors else False
    config.write_text(json.dumps({"model_type": "llama", **widths, "tie_word_embeddings": tied}))
    said = [json.loads(brim("fit", str(path), "--train", "lora", "--device", "cuda:24GiB", "--json").stdout)["parts"] for path in (gguf, config)]
    assert [(part["name"], part["bytes"]) for part in said[0]] == [(part["name"], part["bytes"]) for part in said[1]]


def test_words_of_other_programs_mean_the_same(brim, model):
    """`pure-bf16`, `paged_adamw_8bit`, `on` and `fa2` are read as brim's own words."""
    mine = ("--precision", "bf16", "--optimizer", "adamw_paged_8bit", "--checkpointing", "full", "--attn", "flash")
    theirs = ("--precision", "pure-bf16", "--optimizer", "paged_adamw_8bit", "--checkpointing", "on", "--attn", "fa2")
    said = [json.loads(brim("fit", model, "--train", "full", "--device", "cuda:80GiB", "--json", *words).stdout)["workload"] for words in (mine, theirs)]
    assert said[0] == said[1]
