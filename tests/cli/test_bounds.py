"""Numbers, words and files that cannot be meant end with one sentence and the right exit code."""

import json

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
