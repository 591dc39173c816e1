"""`brim fit --ask-engine` with real libllamas: the one in the installed xllamacpp, and any that BRIM_TEST_LIBLLAMA names."""

import importlib.util
import os
import pathlib
import re

import pytest

import brim
from brim.api import ask_engine
from tests.allocations import tensors_of
from tests.engine.sparse import logged
from tests.gguf_bytes import write_sparse

pytestmark = pytest.mark.engine


def libraries():
    """Real libraries on this machine."""
    spec = importlib.util.find_spec("xllamacpp")
    found = [] if spec is None else [str(pathlib.Path(spec.origin).parent / "xllamacpp.abi3.so")]
    return found + ([os.environ["BRIM_TEST_LIBLLAMA"]] if os.environ.get("BRIM_TEST_LIBLLAMA") else [])


WORKLOADS = [
    {"ctx": 4096, "slots": 1}, {"ctx": 16384, "slots": 4, "kv_unified": True, "ctk": "q8_0", "ctv": "q8_0"}, {"ctx": 8192, "slots": 2, "ubatch": 256, "flash_attn": "off"}, {"ctx": 2048, "slots": 1, "repack": False},
]  # fmt: skip


@pytest.mark.timeout(120)
@pytest.mark.parametrize("library", libraries())
@pytest.mark.parametrize("name", ["llama-3.2-1b", "gemma-3n-e4b", "qwen3-30b-a3b", "lfm2-1.2b"])
def test_every_cell_is_the_engines_to_the_byte(library, name, tmp_path) -> None:
    """Weights as the build lays them out, caches and compute buffers of several workloads, each asked of the library itself."""
    path = tmp_path / f"{name}.gguf"
    write_sparse(str(path), *tensors_of("shapes", name))
    for settings in WORKLOADS:
        answer = brim.fit(str(path), brim.LlamaWorkload(**settings))
        opinion = ask_engine(answer, environ={**os.environ, "BRIM_LIBLLAMA": library})
        assert opinion.rows, opinion.why
        assert [row for row in opinion.rows if not row.agrees] == [], (settings, opinion.why)
        assert all(row.engine_bytes is not None for row in opinion.rows)


@pytest.mark.timeout(250)
def test_a_real_load_prints_the_buffers_that_the_plan_names(tmp_path) -> None:
    """CPU_REPACK as one part, and the range that the engine prints as CPU_Mapped in the rule of the other: to the two printed digits."""
    log = logged("shapes", "llama-3.2-1b", {"ctx": 512, "slots": 1, "repack": True}, tmp_path, whole=True)
    path = tmp_path / "again.gguf"
    write_sparse(str(path), *tensors_of("shapes", "llama-3.2-1b"))
    parts = {part.rule: part.bytes.likely for part in brim.fit(str(path), brim.LlamaWorkload(ctx=512, slots=1)).plan.parts if part.name == "weights"}
    laid = next(size for rule, size in parts.items() if "(CPU_REPACK)" in rule)
    mapped = next(int(found[1]) for rule in parts if (found := re.search(r"CPU_Mapped: (\d+)", rule)))
    assert {item.buffer: round(item.bytes / (1 << 20), 2) for item in log if item.part == "weights"} == {
        "CPU_REPACK": round(laid / (1 << 20), 2), "CPU_Mapped": round(mapped / (1 << 20), 2),
    }  # fmt: skip
