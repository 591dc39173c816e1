"""Words that an enemy put into a file, on their way to a terminal: nothing is obeyed, no line is forged, and JSON stays JSON."""

import json

import pytest

from brim import api
from brim.cli.words import as_json, show
from brim.engines.llama_cpp import quantisation
from tests.gguf_bytes import dense_llama, write_sparse

ESCAPES = "\x1b[2J\x1b]0;x\x07\x9b1m\u202e\u2066\u200f\u2028\x7f\r"
NAME = f"ok{ESCAPES}\nFITS: everything"


@pytest.fixture
def model(tmp_path) -> str:
    """A model whose every word is hostile."""
    metadata, tensors = dense_llama(layers=2, width=64, heads=4, kv_heads=2, feed_forward=128, vocab=100)
    path = str(tmp_path / "hostile.gguf")
    write_sparse(path, {**metadata, "general.name": NAME, f"llama.{ESCAPES}": ESCAPES, "general.size_label": NAME}, [*tensors, (f"x{ESCAPES}", [32], "F32")])
    return path


def _obeyed(text: str) -> list[str]:
    return [char for char in text if not char.isprintable() and char != "\n"]


COMMANDS = [
    "inspect",
    "inspect --tensors",
    "inspect --explain",
    "fit --ctx 512",
    "fit --explain",
    "solve --for ctx",
    "solve --for ctx --explain",
    "preflight",
    "preflight --markdown",
    "fit --train lora",
    "solve --train lora --for batch",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_lets_a_terminal_obey_a_file(brim, model, words) -> None:
    """Text and JSON of every command that reads a model: no control, no mark that turns the direction of writing, and no line that begins with the file's words."""
    command, *flags = words.split()
    answer = brim(command, model, *flags)
    assert answer.returncode in (0, 3, 4, 5)
    assert not _obeyed(answer.stdout + answer.stderr)
    assert not any(line.startswith("FITS: everything") for line in answer.stdout.splitlines())
    document = brim(command, model, *flags, "--json")
    assert not _obeyed(document.stdout)
    json.loads(document.stdout)


def test_json_keeps_every_word() -> None:
    """What is escaped is the same when it is read back."""
    for words in (ESCAPES, NAME, "é😀 plain", "\\u202e", "\\\u202e"):
        assert json.loads(as_json({words: words})) == {words: words}


def test_an_answer_keeps_its_lines(capsys) -> None:
    """Lines stay, and words of any language; what a terminal would obey does not."""
    show("a é ü 漢\n  b\tc\x1b[0m\n")
    assert capsys.readouterr().out == "a é ü 漢\n  b�c�[0m\n\n"


def test_a_solve_that_asks_for_no_mix_sizes_none(model, monkeypatch) -> None:
    """Thirty mixes of forty thousand tensors take ten seconds: they are worked out only where they are wanted."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("no mix was asked for")

    monkeypatch.setattr(quantisation, "quantise", never)
    assert api.solve(model, ["ctx"], environ={"BRIM_DEVICE_BUDGET_BYTES": str(1 << 36)}).answer.fits
