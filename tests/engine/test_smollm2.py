"""brim against a real llama.cpp on a real model: what the plan says and what the engine's own log prints."""

import pathlib
import subprocess
import sys

import pytest

import brim
from brim.engines.llama_cpp.log import buffers
from brim.units import MIB
from tests.conftest import ROOT

pytestmark = pytest.mark.engine
GRID = [(ctx, slots, kind) for ctx in (512, 2048, 8192) for slots in (1, 4) for kind in ("f16", "q8_0")]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("ctx", "slots", "kind"), GRID)
def test_the_plan_equals_the_log(smollm2: str, ctx: int, slots: int, kind: str, capsys) -> None:
    """Weights, KV cache and output buffer equal the log to its printed digits; the compute buffer is within 2 %. Every miss is printed."""
    serve = pathlib.Path(ROOT / "demo" / "serve.py")
    command = [sys.executable, str(serve), "-m", smollm2, "-c", str(ctx), "-np", str(slots), "--cache-type", kind, "--load-only"]
    log = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stderr
    logged: dict[str, int] = {}
    for item in buffers(log):
        logged[item.part] = logged.get(item.part, 0) + item.bytes
    answer = brim.fit(smollm2, brim.LlamaWorkload(ctx=ctx, slots=slots, ctk=kind, ctv=kind))
    plan: dict[str, int] = {}
    for part in answer.plan.parts:
        plan[part.name] = plan.get(part.name, 0) + part.bytes.likely
    with capsys.disabled():
        misses = "  ".join(f"{name} {plan[name] - logged[name]:+d} B" for name in logged)
        print(f"\n  ctx {ctx:5} slots {slots} {kind:4}: {misses}", end="")
    for name in ("weights", "kv_cache", "output_buffer"):
        assert f"{plan[name] / MIB:.2f}" == f"{logged[name] / MIB:.2f}", name
    assert abs(plan["compute_buffer"] - logged["compute_buffer"]) <= 0.02 * logged["compute_buffer"]
