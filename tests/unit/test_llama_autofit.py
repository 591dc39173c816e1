"""What llama.cpp's own --fit turns at the start: its decisions against the compiled source, and the words about them."""

import gzip
import json

import jsonschema
import pytest

import brim
from brim.facts.workload import LlamaWorkload
from brim.lineup import hypothetical
from brim.reports.documents import prediction
from brim.reports.schemas import SCHEMAS
from tests.allocations import checkpoint_of
from tests.evidence.llamacpp_autofit import GOLDEN, brims

GIB = 1 << 30


def test_decisions_are_those_of_the_compiled_source() -> None:
    """1500 random questions that common/fit.cpp of b11434 itself answered: context, layers, split, overrides and whether it gave up, word for word."""
    rows = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    wrong = [row["case"] for row in rows if brims(row["case"]) != row["answer"]]
    assert len(rows) == 1500
    assert not wrong, wrong[:3]


def _fit(model: str, cards: "tuple[int, ...]", asked: LlamaWorkload) -> "brim.Prediction":
    devices = (*(hypothetical("cuda", at, size, reserve=None) for at, size in enumerate(cards)), hypothetical("cpu", 0, 128 * GIB, reserve=None))
    return brim.fit(checkpoint_of("shapes", model), asked, devices=devices)


@pytest.mark.parametrize(
    ("model", "cards", "asked", "turns"),
    [
        ("llama-3.1-8b", (40 * GIB,), LlamaWorkload(), None),  # everything stays
        ("llama-3.1-8b", (20 * GIB,), LlamaWorkload(), ("-c",)),  # a shorter context is enough
        ("llama-3.1-8b", (4 * GIB,), LlamaWorkload(), ("-c", "-ngl")),  # the least context, and fewer layers
        ("llama-3.1-8b", (4 * GIB,), LlamaWorkload(ctx=8192), ("-ngl",)),  # the user's context stands
        ("llama-3.1-8b", (4 * GIB,), LlamaWorkload(ctx=0), ("-ngl",)),  # -c 0 asks for all of it
        ("llama-3.1-8b", (4 * GIB,), LlamaWorkload(gpu_layers=99, ctx=8192), ()),  # it gives up
        ("llama-3.1-8b", (4 * GIB,), LlamaWorkload(fit=False), None),
        ("llama-3.1-8b", (), LlamaWorkload(), None),  # no card, and the host has room
        ("qwen3-30b-a3b", (12 * GIB,), LlamaWorkload(ctx=8192), ("-ngl", "-ot")),  # experts go to the host
        ("qwen3-30b-a3b", (9 * GIB, 9 * GIB), LlamaWorkload(ctx=8192), ("-ngl", "-ts", "-ot")),
    ],
)
def test_what_the_engine_starts_with(model, cards, asked, turns) -> None:
    """The flags that --fit amounts to; each card keeps its target free by the plan of those flags, and one that gave up says why. The document holds it."""
    found = _fit(model, cards, asked)
    document = prediction(found)
    jsonschema.validate(document, SCHEMAS["fit"])
    if turns is None:
        assert found.start is None
        assert "engine_fit" not in document
        assert not any("--fit" in text for text in found.caveats)
        return
    start = found.start
    assert start is not None
    assert document["engine_fit"]["flags"] == list(start.flags)
    assert tuple(flag.split()[0] for flag in start.flags) == turns
    assert sum("--fit is on" in text for text in found.caveats) == 1
    assert start.met is bool(turns)
    if not turns:
        assert "already set by user" in start.why
        return
    for at, size in enumerate(cards):
        assert size - start.plan.on(f"cuda:{at}").likely >= GIB
