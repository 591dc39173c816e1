"""brim fit on devices that are not here, brim fit behind a command line, and brim solve: documents, exit codes, and answers that hold when they are asked again."""

import json

import jsonschema
import pytest

from brim.cli import main
from brim.reports.schemas import SCHEMAS

MIB = 1 << 20


def shape(architecture: str = "llama", layers: int = 8, *, experts: int = 0, window: int = 0) -> dict:
    """A small model's shape file: width 512, 8 heads of 64, 2 KV heads, a vocabulary of 4096."""
    metadata = {
        "general.architecture": architecture, "general.file_type": 15, "tokenizer.ggml.model": "none", f"{architecture}.context_length": 32768,
        f"{architecture}.embedding_length": 512, f"{architecture}.block_count": layers, f"{architecture}.feed_forward_length": 1536,
        f"{architecture}.attention.head_count": 8, f"{architecture}.attention.head_count_kv": 2, f"{architecture}.vocab_size": 4096,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5, f"{architecture}.rope.dimension_count": 64,
        f"{architecture}.attention.key_length": 64, f"{architecture}.attention.value_length": 64,
    }  # fmt: skip
    tensors: list = [["token_embd.weight", [512, 4096], "Q4_K"], ["output_norm.weight", [512], "F32"], ["output.weight", [512, 4096], "Q6_K"]]
    for il in range(layers):
        block = [
            ("attn_norm", [512], "F32"), ("attn_q", [512, 512], "Q4_K"), ("attn_k", [512, 128], "Q4_K"), ("attn_v", [512, 128], "Q4_K"),
            ("attn_output", [512, 512], "Q4_K"), ("ffn_norm", [512], "F32"),
        ]  # fmt: skip
        if architecture == "qwen3":
            block += [("attn_q_norm", [64], "F32"), ("attn_k_norm", [64], "F32")]
        block += [("ffn_gate", [512, 1536], "Q4_K"), ("ffn_up", [512, 1536], "Q4_K"), ("ffn_down", [1536, 512], "Q4_K")]
        tensors += [[f"blk.{il}.{name}.weight", dims, dtype] for name, dims, dtype in block]
    return {"name": "small", "file_type": "Q4_K_M", "metadata": metadata, "tensors": tensors}


@pytest.fixture
def model(tmp_path) -> str:
    """The shape file's path."""
    path = tmp_path / "small.json"
    path.write_text(json.dumps(shape()))
    return str(path)


def ask(capsys, *words: str) -> tuple[int, dict]:
    """Run the command line in this process: (exit code, the JSON document)."""
    code = main([*words[:1], "--json", *words[1:]])
    return code, json.loads(capsys.readouterr().out)


def test_a_card_that_is_not_here(model: str, capsys) -> None:
    """A hypothetical card by size: parts on it and on the host, the reserve applied, the document valid; too small a one refuses with the nearest thing."""
    code, document = ask(capsys, "fit", model, "--device", "cuda:4GiB", "--slots", "1")
    jsonschema.validate(document, SCHEMAS["fit"])
    assert code == 0
    assert {part["device"] for part in document["parts"]} == {"cuda:0", "cpu"}
    assert [device["id"] for device in document["devices"]] == ["cuda:0"]
    assert document["devices"][0]["budget"]["reserve_fraction"] == 0.1
    code, document = ask(capsys, "fit", model, "--device", "cpu:128MiB", "--slots", "1", "--ctx", "32768")
    assert code == 3
    assert document["verdict"] == "does_not_fit"
    assert any("it fits with" in line for line in document["suggestions"])


def test_several_cards_and_the_host(model: str, capsys) -> None:
    """Two cards of different size and an enforced host, in the order given."""
    code, document = ask(capsys, "fit", model, "--device", "cuda:6GiB", "--device", "cuda:3GiB", "--device", "cpu:8GiB", "--slots", "2")
    assert code == 0
    assert [device["id"] for device in document["devices"]] == ["cuda:0", "cuda:1", "cpu"]
    weights = {part["device"]: part["bytes"]["likely"] for part in document["parts"] if part["name"] == "weights"}
    assert weights["cuda:0"] > weights["cuda:1"] > 0


def test_a_command_line_is_priced_as_its_flags_are(model: str, capsys) -> None:
    """`fit -- llama-server …` and the same in brim's flags are one workload, one plan; what is unknown is listed."""
    words = [
        "fit",
        "--device",
        "cuda:8GiB",
        "--",
        "llama-server",
        "-m",
        model,
        "-c",
        "8192",
        "-np",
        "2",
        "-ctk",
        "q8_0",
        "-ctv",
        "q8_0",
        "-fa",
        "on",
        "--sail",
        "full",
    ]
    code = main([words[0], "--json", *words[1:]])
    by_command = json.loads(capsys.readouterr().out)
    assert code == 0
    _, by_flags = ask(capsys, "fit", model, "--device", "cuda:8GiB", "--ctx", "8192", "--slots", "2", "--ctk", "q8_0", "--ctv", "q8_0", "--flash-attn", "on")
    assert by_command["parts"] == by_flags["parts"]
    assert by_command["unpriced"] == ["--sail full"]
    jsonschema.validate(by_command, SCHEMAS["fit"])


COMMANDS = [
    (("llama-bench", "-p", "512,4096", "-n", "128"), 0, "combinations"),
    (("llama-cli", "-c", "4096"), 0, ""),
    (("llama-server", "-c", "8192", "-np", "4", "-fa", "off", "-ctv", "q8_0"), 4, "flash attention"),
]


@pytest.mark.parametrize(("words", "code", "said"), COMMANDS)
def test_programs_answer_with_their_own_rules(model: str, capsys, words: tuple[str, ...], code: int, said: str) -> None:
    """llama-bench prices its largest test, llama-cli reserves more logits than the server, a combination that llama.cpp refuses cannot be told."""
    found = main(["fit", "--json", "--device", "cuda:8GiB", "--", words[0], "-m", model, *words[1:]])
    document = json.loads(capsys.readouterr().out)
    assert found == code
    assert said in json.dumps(document)


def test_more_rows_of_logits_for_programs_that_reserve_a_batch(model: str, capsys) -> None:
    """llama-completion pays logits for a whole micro-batch, llama-server for its slots."""
    sizes = {}
    for program in ("llama-server", "llama-completion"):
        main(["fit", "--json", "--device", "cuda:8GiB", "--", program, "-m", model, "-c", "4096", "-np", "1"])
        document = json.loads(capsys.readouterr().out)
        sizes[program] = sum(part["bytes"]["likely"] for part in document["parts"] if part["name"] == "compute_buffer" and part["device"] == "cuda:0")
    assert sizes["llama-completion"] > sizes["llama-server"]


REFUSED = [
    (("fit",), 2),
    (("fit", "--", "make", "coffee"), 4),
    (("fit", "--", "llama-server", "-c", "512"), 4),
    (("fit", "--device", "quantum:0", "MODEL"), 2),
    (("fit", "--ctx", "512", "MODEL", "--", "llama-server", "-m", "x"), 2),
    (("fit", "MODEL", "--engine-version", "soon"), 2),
    (("fit", "MODEL", "--program", "doom"), 2),
    (("fit", "MODEL", "--engine", "steam"), 4),
    (("solve", "MODEL", "--for", "speed"), 2),
    (("solve", "MODEL", "--for", "layers", "--device", "cpu:8GiB"), 2),
    (("solve", "MODEL", "--for", "split", "--device", "cuda:8GiB"), 2),
    (("solve", "MODEL", "--for", "ctx", "--ctx", "4096", "--device", "cuda:8GiB"), 2),
    (("solve", "MODEL"), 2),
]


@pytest.mark.parametrize(("words", "code"), REFUSED)
def test_words_that_cannot_be_meant_end_with_their_code(model: str, capsys, words: tuple[str, ...], code: int) -> None:
    """One sentence, no traceback, the documented code."""
    assert main([model if word == "MODEL" else word for word in words]) == code
    assert "Traceback" not in capsys.readouterr().err


SOLVED = [
    (("--for", "ctx", "--slots", "1"), "ctx"),
    (("--for", "ctx", "--for", "slots"), "ctx,slots"),
    (("--for", "layers", "--ctx", "16384", "--slots", "1", "--device", "cpu:64GiB"), "layers"),
    (("--for", "kv-type,ctx", "--slots", "1"), "kv-type,ctx"),
    (("--for", "quant", "--ctx", "4096", "--slots", "1"), "quant"),
]


@pytest.mark.parametrize(("words", "names"), SOLVED)
def test_the_solvers_answer_holds_when_it_is_asked_again(model: str, capsys, words: tuple[str, ...], names: str) -> None:
    """The document is valid; the answer's workload, priced anew by brim fit, fits; one more of the last knob does not."""
    code, document = ask(capsys, "solve", model, "--device", f"cuda:{1060 * MIB}B", *words)
    jsonschema.validate(document, SCHEMAS["solve"])
    assert code == 0
    assert list(document["answer"]["chosen"]) == names.split(",")
    assert all(margin >= 0 for margin in document["answer"]["margin_bytes"].values())
    last = names.rpartition(",")[2]
    further = [step for step in document["answer"]["steps"] if step["knob"] == last and step["upwards"]]
    assert all(not step["fits"] for step in further)
    if "ctx" in document["answer"]["chosen"] and names == "ctx":
        ctx = int(document["answer"]["chosen"]["ctx"])
        assert f"-c {ctx}" in document["answer"]["flags"]
        assert ask(capsys, "fit", model, "--device", f"cuda:{1060 * MIB}B", "--ctx", str(ctx), "--slots", "1")[0] == 0
        assert ctx == 32768 or ask(capsys, "fit", model, "--device", f"cuda:{1060 * MIB}B", "--ctx", str(ctx + 256), "--slots", "1")[0] != 0


def test_the_largest_split_of_two_cards(model: str, capsys) -> None:
    """Shares of the layers for two unequal cards, with the flags, and the larger card takes more."""
    code, document = ask(capsys, "solve", model, "--for", "split", "--device", "cuda:4GiB", "--device", "cuda:2GiB", "--slots", "1")
    assert code == 0
    first, second = map(float, document["answer"]["chosen"]["split"].split(","))
    assert first + second == 9
    assert first > second
    assert document["answer"]["flags"] == [f"-ts {document['answer']['chosen']['split']}"]


def test_where_nothing_fits_the_nearest_thing_is_named(model: str, capsys) -> None:
    """No context fits a tiny card: exit 3, and either another knob that does it or the plain statement that none does."""
    code, document = ask(capsys, "solve", model, "--for", "ctx", "--device", "cpu:24MiB", "--slots", "1")
    assert code == 3
    nearest = document["nearest"]
    assert nearest is not None
    assert nearest["fits"]
    assert nearest["flags"]
    assert ask(capsys, "solve", model, "--for", "ctx", "--device", "cuda:1MiB", "--device", "cpu:1MiB", "--slots", "1")[1]["nearest"] is None


def test_a_packaging_has_its_own_defaults(model: str, capsys) -> None:
    """--engine ollama takes Ollama's row of the table: a context of 4096, one slot."""
    _, document = ask(capsys, "fit", model, "--engine", "ollama", "--device", "cuda:8GiB")
    assert (document["workload"]["ctx"], document["workload"]["slots"]) == (4096, 1)


def test_a_long_sweep_is_answered(model: str, capsys) -> None:
    """Thousands of llama-bench combinations: the largest is found by its longest context, and the count is said."""
    words = ["llama-bench", "-m", model, "-p", "128-4096+128", "-n", "128", "-d", "0,4096", "-ctk", "f16,q8_0", "-ub", "128,512", "-fa", "1", "-ngl", "0,4,99"]
    assert main(["fit", "--json", "--device", "cuda:8GiB", "--", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["workload"]["ctx"] == 8192
    assert any("combinations" in line for line in document["caveats"])


def test_explain_prints_the_arithmetic(model: str, capsys) -> None:
    """Each part's rule has the model's own numbers in it, and its source."""
    assert main(["fit", model, "--device", "cuda:4GiB", "--explain", "--slots", "1", "--ctx", "4096"]) == 0
    text = capsys.readouterr().out
    assert "4096 cells × 8 layers × (128 keys in f16 + 128 values in f16)" in text
    assert "llama-kv-cache.cpp" in text


def test_host_growth_is_said_and_not_counted(model: str, capsys) -> None:
    """The prompt cache is a part that grows, not one of the plan; it is said where it would pass an enforced host."""
    _, document = ask(capsys, "fit", model, "--device", "cpu:4GiB", "--slots", "1", "--ctx", "4096")
    assert document["verdict"] == "fits"
    assert [part["name"] for part in document["grows"]] == ["prompt_cache"]
    assert any("--cache-ram" in line for line in document["caveats"])
    _, document = ask(capsys, "fit", model, "--device", "cpu:4GiB", "--slots", "1", "--ctx", "4096", "--cache-ram", "0")
    assert document["grows"] == []
