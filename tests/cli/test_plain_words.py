"""One declaration of flags, two readers: whatever the plain one answers is what argparse answers, and all the rest is left to argparse."""

import contextlib
import importlib
import io
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim.cli import COMMANDS
from brim.cli.words import Asked, Parser
from brim.errors import BrimError

VALUES = [
    "8192",
    "0",
    "-1",
    "1",
    "2",
    "all",
    "auto",
    "on",
    "off",
    "list",
    "show",
    "1GiB",
    "30s",
    "0.2",
    "cpu:64GiB",
    "cuda:24GiB",
    "a.gguf",
    "x=y",
    "a b",
    "",
    "-",
    "--",
    "é",
    "3,1",
    "none",
    "q8_0",
    "b11434",
]
ALONE = ["--no-such-flag", "-h", "-x", "-5", "--", "-", "--js", "--ct", "--json=1", "--ctx=", "--ctx=-5", "--explain=", "---", "--=x", "=", "a b"]


def _parser(monkeypatch: pytest.MonkeyPatch, command: str, *words: str) -> Parser:
    """The parser that a command declares."""

    class Made(BaseException):
        pass

    made: list[Parser] = []

    def stop(self: Parser, _words: object) -> Asked:
        made.append(self)
        raise Made

    with monkeypatch.context() as patch, contextlib.suppress(Made):
        patch.setattr(Parser, "parse_args", stop)
        importlib.import_module(COMMANDS[command][0]).main([*words, "--", "true"] if command in ("run", "soak", "quality", "resume") else [*words])
    return made[0]


@pytest.fixture(scope="module")
def parsers() -> "dict[str, Parser]":
    """Every command's, and the two that read a training step."""
    with pytest.MonkeyPatch.context() as patch:
        every = {name: _parser(patch, name) for name in COMMANDS}
        return {**every, "fit --train": _parser(patch, "fit", "--train", "lora"), "solve --train": _parser(patch, "solve", "--train", "lora")}


def _plain(parser: Parser, words: "list[str]") -> "dict[str, object] | None":
    try:
        return parser.plain_reading(words)
    except (ValueError, TypeError, BrimError):
        return None


@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_what_is_read_plainly_is_what_argparse_reads(parsers, data) -> None:
    """Random lines of every command's own flags, right and wrong values, odd words and places: where the plain reading answers, argparse answers the very same."""
    parser = parsers[data.draw(st.sampled_from(sorted(parsers)))]
    flags = ["--json", *(name for one in parser.declared if one.flag for name in one.names)]
    value = st.sampled_from(VALUES)
    chosen = st.sampled_from(flags)
    pieces = st.one_of(
        chosen.map(lambda flag: [flag]), st.tuples(chosen, value).map(list), st.tuples(chosen, value).map(lambda pair: ["=".join(pair)]),
        value.map(lambda word: [word]), st.sampled_from(ALONE).map(lambda word: [word]),
    )  # fmt: skip
    words = [word for piece in data.draw(st.lists(pieces, max_size=6)) for word in piece]
    found = _plain(parser, words)
    if found is not None:
        assert found == vars(parser.by_argparse().parse_args(words, Asked()))


PLAIN = [
    ("fit", "m.gguf --ctx 8192 --json", {"model": "m.gguf", "ctx": 8192, "json": True, "engine": "llama.cpp"}),
    ("fit", "--device cuda:0 --device=cpu m.gguf", {"device": ["cuda:0", "cpu"], "reserve": None}),
    ("fit", "m.gguf --no-mmap --flash-attn on --gpu-layers all", {"mmap": False, "flash_attn": "on", "gpu_layers": -2}),
    ("probe", "--every 2s", {"every": 2_000_000_000, "json": False}),
    ("run", "--memory-budget 1GiB --poll 1s", {"memory_budget": [("", 1 << 30)], "wait": None, "die_with_me": None}),
    ("calibration", "show llama --json", {"action": "show", "what": "llama"}),
    ("solve --train", "m --for batch --config a.yaml", {"wanted": "batch", "config": ["a.yaml"]}),
]


@pytest.mark.parametrize(("command", "words", "part"), PLAIN)
def test_plain_lines(parsers, command, words, part) -> None:
    """The usual lines are read without argparse."""
    found = _plain(parsers[command], words.split())
    assert found is not None
    assert part.items() <= found.items()
    assert found == vars(parsers[command].by_argparse().parse_args(words.split(), Asked()))


LEFT = [
    ("fit", "m --json n"), ("fit", "m n"), ("fit", "--ctx"), ("fit", "--ctx -5"), ("fit", "--ctx="), ("fit", "--json=1"), ("fit", "--js"), ("fit", "--help"), ("fit", "m --flash-attn maybe"),
    ("fit", "m --ctx many"), ("fit", "-- m"), ("fit", "-5"), ("run", "--wait"), ("run", "--wait 5s"), ("calibration", ""), ("calibration", "lost"), ("calibration", "show --json llama"),
    ("solve --train", "m"), ("governor-report", "--profile x"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "words"), LEFT)
def test_what_is_left_to_argparse(parsers, command, words) -> None:
    """Faults, help, abbreviations, and forms on which versions of argparse differ."""
    assert _plain(parsers[command], words.split()) is None


def test_every_group_stands_in_the_help(parsers) -> None:
    """argparse is given everything that was declared, under its title."""
    shown = io.StringIO()
    parsers["fit"].by_argparse().print_help(shown)
    for one in parsers["fit"].declared:
        assert one.names[0] in shown.getvalue() or one.options["metavar"] in shown.getvalue()
        assert one.group in shown.getvalue()


def test_a_plain_line_loads_no_argparse() -> None:
    """That is what the plain reading is for."""
    code = "import sys\nfrom brim.cli import main\nmain(sys.argv[1:])\nprint(*sys.modules, file=sys.stderr)"
    answer = subprocess.run([sys.executable, "-c", code, "fit", "none.gguf", "--ctx", "8192"], capture_output=True, text=True, check=True)
    assert "none.gguf" in answer.stderr
    assert not {"argparse", "re", "enum", "gettext"} & set(answer.stderr.split())
