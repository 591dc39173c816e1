"""Numbers, words and files that cannot be meant end with one sentence and the right exit code."""

import json
import os

import pytest

from brim.cli import main
from brim.knobs import CTX_STEP, Steps
from tests.cli.test_fit_and_solve import shape

DEVICE = ("--device", "cpu:64GiB")


@pytest.fixture
def model(tmp_path) -> str:
    """A small shape file."""
    path = tmp_path / "small.json"
    path.write_text(json.dumps(shape("llama", 2)))
    return str(path)


@pytest.mark.parametrize(
    "words",
    [
        ("--ctx", "99999999999999999999"),
        ("--ctx", "-5"),
        ("--slots", "1000000"),
        ("--override-tensor", "[=CPU"),
        ("--override-tensor", ".*=NOPE"),
        ("--tensor-split", "inf,1"),
        ("--spec-type", "zz"),
        ("--ctk", "zz"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(model, words, capsys) -> None:
    """Exit 2, one sentence that names the flag, nothing on stdout."""
    assert main(["fit", model, *DEVICE, *words]) == 2
    said = capsys.readouterr()
    assert words[0] in said.err
    assert "internal" not in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "words", [("-c", "99999999999999999999"), ("-c", "-5"), ("-np", "1000000"), ("-ot", "[=CPU"), ("-ot", ".*=NOPE"), ("-ts", "inf,1"), ("--spec-type", "zz")]
)
def test_so_is_the_engines_own_word(model, words, capsys) -> None:
    """The same behind --."""
    assert main(["fit", *DEVICE, "--", "llama-server", "-m", model, *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_the_longest_context_is_answered(model, capsys) -> None:
    """2³¹ - 1 tokens are priced and need no list of contexts."""
    assert main(["fit", model, *DEVICE, "--ctx", str(2**31 - 1)]) in (0, 3)
    assert "internal" not in capsys.readouterr().err


@pytest.mark.parametrize(("least", "most"), [(256, 256), (256, 300), (256, 1024), (100, 100), (4096, 131072), (256, 1001)])
def test_steps_are_the_list_they_stand_for(least, most) -> None:
    """Length, items, slices and the first that reaches a number are those of the list."""
    values = [*range(least, most + 1, CTX_STEP)]
    values += [most] if values[-1] != most else []
    steps = Steps(range(least, most + 1, CTX_STEP), most)
    assert list(steps) == values
    for end in (0, 1, len(values) - 1, len(values), len(values) + 1):
        assert list(steps[:end]) == values[:end]
    for reached in (1, least, least + 1, most - 1, most, most + 1):
        assert steps.reach(reached, -1) == next((i for i, value in enumerate(values) if value >= reached), -1)


def test_no_key_heads_on_a_card_cannot_be_told(tmp_path, capsys) -> None:
    """A header that says attention.head_count_kv 0 is answered with that key."""
    document = shape("llama", 2)
    document["metadata"]["llama.attention.head_count_kv"] = 0
    path = tmp_path / "none.json"
    path.write_text(json.dumps(document))
    assert main(["fit", str(path), "--device", "cuda:24GiB"]) == 4
    assert "attention.head_count_kv" in capsys.readouterr().out


def test_deeply_nested_calibration_is_no_calibration(tmp_path, capsys) -> None:
    """One sentence, exit 2."""
    path = tmp_path / "deep.json"
    path.write_text("[" * 200_000)
    assert main(["calibration", "import", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("--main-gpu", "7", "--split-mode", "none"),
        ("--draft-model", "/nope"),
        ("--mmproj", "/nope"),
        ("--lora", "/nope"),
    ],
)
def test_what_is_not_there_is_refused(model, words, capsys) -> None:
    """A card or a companion file that does not exist: exit 2, and its number or path is named."""
    assert main(["fit", model, "--device", "cuda:24GiB", *words]) == 2
    assert words[1] in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--workers", "-1"), ("--eval-batch", "0"), ("--trainable-layers", "-1"), ("--ranks", "99999999999")])
def test_a_step_that_cannot_be_meant_is_refused(tmp_path, words, capsys) -> None:
    """The numbers of a training step."""
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["fit", str(tmp_path), "--train", "lora", *DEVICE, *words]) == 2
    assert words[0] in capsys.readouterr().err
    assert main(["fit", str(tmp_path), "--train", "lora", *DEVICE]) in (0, 3)


@pytest.mark.parametrize("words", [("--kept", "5/1"), ("--overhead", "nan")])
def test_a_compressed_class_is_checked_without_its_bits(words, capsys) -> None:
    """`--kept` and `--overhead` alone are read too."""
    assert main(["preflight", "--params", "1e9", *DEVICE, *words]) == 2
    assert words[0] in capsys.readouterr().err


@pytest.mark.parametrize("name", ["hf:org/name", "ollama:llama3", "http://127.0.0.1/x.gguf", "https://127.0.0.1/x.gguf"])
def test_a_model_from_afar_is_not_supported_yet(name, capsys) -> None:
    """One sentence, exit 2."""
    assert main(["fit", name, *DEVICE]) == 2
    assert "not supported yet" in capsys.readouterr().err


def test_there_is_one_host(model, capsys) -> None:
    """`cpu:1` names no device."""
    assert main(["fit", model, "--device", "cpu:1"]) == 2
    assert "cpu:1" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_a_fifo_is_no_configuration(tmp_path, capsys) -> None:
    """It is refused at once and not waited for."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    assert main(["fit", "--config", str(path), *DEVICE]) == 5
    assert "no regular file" in capsys.readouterr().err


def test_a_byte_order_mark_is_passed_over(tmp_path) -> None:
    """A shape file that begins with U+FEFF is read."""
    path = tmp_path / "marked.json"
    path.write_text(json.dumps(shape("llama", 2)), encoding="utf-8-sig")
    assert main(["fit", str(path), *DEVICE]) == 0
