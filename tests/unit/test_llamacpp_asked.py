"""What real libraries of four builds told of random workloads: weights by buffer, caches and compute buffers, to the byte, by the rules of each build."""

import gzip
import json
from pathlib import Path

import pytest

from brim.engines.llama_cpp import price
from brim.facts.device import DeviceSpec
from brim.facts.workload import LlamaWorkload
from brim.second_opinion import GROUPS
from tests.allocations import checkpoint_of

GOLDEN = json.loads(gzip.decompress((Path(__file__).parents[1] / "golden" / "llamacpp_asked.json.gz").read_bytes()))
CELLS = ("weights", "context", "compute")


@pytest.mark.parametrize("build", sorted(GOLDEN))
def test_what_a_real_library_told(build) -> None:
    """Every workload kept of this build: all three figures of the host."""
    words = tuple(GOLDEN[build]["built_for"])
    host = DeviceSpec(id="cpu", backend="cpu", total_bytes=1 << 40, free_bytes=1 << 40, instructions=words, built_for=words)
    assert len(GOLDEN[build]["rows"]) >= 30
    for kind, name, said, told in GOLDEN[build]["rows"]:
        plan = price(checkpoint_of(kind, name), LlamaWorkload(**said), (host,), version=int(build[1:]))
        held = dict.fromkeys(CELLS, 0)
        for part in plan.parts:
            if part.name in GROUPS:
                held[GROUPS[part.name]] += part.bytes.likely
        assert list(held.values()) == told["Host"], (name, said)
