"""The commands as a user types them: exit codes, one sentence on stderr, JSON that its own schema accepts."""

import json
import random

import jsonschema
import pytest

from brim.cli import COMMANDS
from tests.gguf_bytes import dense_llama, write_sparse


@pytest.fixture
def model(tmp_path) -> str:
    """A small dense llama whose weights are a hole."""
    path = str(tmp_path / "small.gguf")
    write_sparse(path, *dense_llama(layers=4, width=512, heads=8, kv_heads=2, feed_forward=1024, vocab=1000))
    return path


def schema(brim, name: str) -> dict:
    return json.loads(brim("schema", name).stdout)


def test_probe(brim) -> None:
    """`brim probe` names the host, its budget and its caveat; its JSON is valid and gives every missing value its reason."""
    text = brim("probe")
    assert text.returncode == 0
    assert "cpu budget: " in text.stdout
    assert "snapshot" in text.stdout
    document = json.loads(brim("probe", "--json").stdout)
    jsonschema.validate(document, schema(brim, "probe"))
    assert document["devices"][0]["temperature_c"]["missing"] in ("not_supported", "denied", "failed", "gone")


def test_the_override(brim) -> None:
    """BRIM_DEVICE_BUDGET_BYTES stands for the whole budget; nonsense is ignored with a warning on stderr."""
    document = json.loads(brim("probe", "--json", env={"BRIM_DEVICE_BUDGET_BYTES": " 12345 "}).stdout)
    assert document["devices"][0]["budget"]["usable_bytes"] == 12345
    odd = brim("probe", "--json", env={"BRIM_DEVICE_BUDGET_BYTES": "lots"})
    assert "ignored" in odd.stderr
    assert json.loads(odd.stdout)["devices"][0]["budget"]["usable_bytes"] > 12345


def test_fit_answers_with_its_verdict(brim, model) -> None:
    """0 fits, 3 does not fit with the largest context that would, 4 cannot tell; the JSON is valid each time and the parts add up."""
    for budget, code, verdict in (("4294967296", 0, "fits"), ("30000000", 3, "does_not_fit"), ("1000", 3, "does_not_fit")):
        answer = brim("fit", model, "--json", env={"BRIM_DEVICE_BUDGET_BYTES": budget})
        document = json.loads(answer.stdout)
        jsonschema.validate(document, schema(brim, "fit"))
        assert (answer.returncode, document["verdict"]) == (code, verdict)
        assert sum(part["bytes"]["likely"] for part in document["parts"]) == document["devices"][0]["required_bytes"]["likely"]
        assert document["suggestions"] or verdict == "fits"
    assert brim("fit", model, "--ctx", "512", "--explain").returncode == 0


def test_max_ctx_fits_and_the_next_does_not(brim, model) -> None:
    """The context that `fit` suggests is accepted by `fit`, and 256 tokens more are not."""
    env = {"BRIM_DEVICE_BUDGET_BYTES": "30000000"}
    best = json.loads(brim("fit", model, "--json", "--slots", "1", env=env).stdout)["max_ctx"]
    assert best
    assert brim("fit", model, "--slots", "1", "--ctx", str(best), env=env).returncode == 0
    assert brim("fit", model, "--slots", "1", "--ctx", str(best + 256), env=env).returncode != 0


def test_how_far_the_largest_context_was_sought_is_said(brim, model) -> None:
    """Up to what the model was trained with; where more was asked for and fits, up to that, and it is not called trained."""
    trained, longer = (brim("fit", model, "--device", "cpu:64GiB", *words).stdout for words in (("--ctx", "512"), ("--ctx", "65536")))
    assert "(as trained; not looked beyond)" in trained
    assert "largest context that fits: 65536 (as asked, longer than trained; not looked beyond)" in longer


def test_an_unpriced_architecture_cannot_be_told(brim, tmp_path) -> None:
    """Exit 4, and what is missing is named."""
    metadata, tensors = dense_llama(layers=1, width=64, heads=4, kv_heads=2, feed_forward=128, vocab=100)
    write_sparse(str(tmp_path / "odd.gguf"), {**metadata, "general.architecture": "unheard-of"}, tensors)
    answer = brim("fit", str(tmp_path / "odd.gguf"), "--json")
    assert answer.returncode == 4
    assert "unheard-of" in " ".join(json.loads(answer.stdout)["missing"])


BAD_WORDS = [
    (("nonsense",), 2, "unknown command"), ((), 2, ""), (("fit",), 2, "MODEL"), (("fit", "x", "--ctx", "0"), 2, "--ctx"), (("fit", "x", "--ctx", "many"), 2, "--ctx"), (("fit", "x", "--ctx", "9" * 5000), 2, "longer than any number"),
    (("fit", "x", "--no-such-flag"), 2, "--no-such-flag"), (("fit", "no-such-file"), 2, "no-such-file"), (("run",), 2, "no command"), (("run", "true"), 2, "behind --"),
    (("run", "--memory-budget", "big", "--", "true"), 2, "no size"), (("run", "--poll", "0", "--", "true"), 2, "--poll"), (("schema", "x"), 2, "unknown document"),
    (("report", "no-such-run"), 2, "no-such-run"), (("verify", "no-such-run"), 2, "no-such-run"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "part"), BAD_WORDS)
def test_bad_words_get_one_sentence(brim, words, code, part) -> None:
    """No traceback, the documented code, the fault named; with --json an error document."""
    answer = brim(*words)
    assert answer.returncode == code
    assert part in answer.stderr + answer.stdout
    assert "Traceback" not in answer.stderr
    if words and words[0] in COMMANDS and words[0] not in ("schema",):
        document = json.loads(brim(words[0], "--json", *words[1:]).stdout)
        jsonschema.validate(document, schema(brim, "error"))
        assert document["code"] == code


def test_bad_files(brim, tmp_path, smollm2) -> None:
    """A missing file and a folder are 2; a text file, an empty one and a real GGUF cut at 20 places are 5; each names file and fault."""
    (tmp_path / "text.gguf").write_text("this is no model\n" * 100)
    (tmp_path / "empty.gguf").touch()
    for name, code in (("none.gguf", 2), (".", 2), ("text.gguf", 5), ("empty.gguf", 5)):
        answer = brim("fit", name)
        assert (answer.returncode, answer.stdout) == (code, "")
        assert name in answer.stderr
    with open(smollm2, "rb") as file:
        raw = file.read(4 << 20)
    chance = random.Random(11)
    for _ in range(20):
        (tmp_path / "cut.gguf").write_bytes(raw[: chance.randrange(1, len(raw))])
        answer = brim("fit", "cut.gguf")
        assert answer.returncode == 5, answer
        assert "cut.gguf" in answer.stderr
        assert "Traceback" not in answer.stderr


def test_help_everywhere(brim) -> None:
    """Every command has help, and the overview lists every command."""
    overview = brim("--help").stdout
    for name in COMMANDS:
        assert f"  {name} " in overview
        assert brim(name, "--help").stdout.startswith(f"usage: brim {name}")


def test_cold_start_loads_few_modules(tmp_path, model) -> None:
    """`brim fit` loads no heavy package; the count of modules is a promise that a new import has to argue with."""
    import subprocess
    import sys

    code = f"import sys; sys.argv = ['brim', 'fit', {model!r}]\nfrom brim.cli import main\nmain()\nprint(len(sys.modules), ' '.join(sorted(sys.modules)), file=sys.stderr)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": "src", "PATH": "", "XDG_STATE_HOME": str(tmp_path)}
    )
    count, _, names = answer.stderr.strip().splitlines()[-1].partition(" ")
    heavy = {
        "dataclasses",
        "typing",
        "json",
        "sqlite3",
        "psutil",
        "pynvml",
        "msgspec",
        "pathlib",
        "subprocess",
        "threading",
        "asyncio",
        "inspect",
        "logging",
        "argparse",
        "re",
        "enum",
        "collections",
        "functools",
        "warnings",
    }
    assert not heavy & set(names.split()), heavy & set(names.split())
    assert int(count) <= 108, names  # 34 are a bare start's, 16 the rooms of llama.cpp's replay, 6 those of devices, knobs and companions
