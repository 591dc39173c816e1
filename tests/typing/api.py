"""How the public face is typed: this file is checked by mypy, never run."""

from typing import Any, assert_type

import brim
from brim.facts.profile import ClaimRule
from brim.launch import RunResult

probed = brim.probe(reserve=0.1)
assert_type(probed, brim.Probed)
assert_type(probed.warnings, tuple[str, ...])

answer = brim.fit("model.gguf", brim.LlamaWorkload(ctx=4096, slots=1))
assert_type(answer, brim.Prediction)
assert_type(answer.verdict, str)
assert_type(answer.max_ctx, int | None)

result = brim.run(["true"], brim.limits(memory_budget_bytes=1 << 30), prediction=answer)
assert_type(result, RunResult)
assert_type(result.exit_code, int)
assert_type(brim.verify("run"), tuple[str, int, str])

step = brim.fit_training("folder", brim.TrainWorkload(method="lora", lora_rank=8), devices=["cuda:24GiB"])
assert_type(step, brim.Prediction)
name, found = brim.solve_training("folder", "batch", auto=True)
assert_type(name, str)
assert_type(found.fits, bool)
table = brim.preflight(parameters=12_000_000_000, devices=["cuda:24GiB"])
assert_type(table.ways[0].verdict, str)

assert_type(brim.claims("run"), dict[str, Any])
assert_type(brim.governor_report("rtx3090-12b", "out", telemetry={"memory_free_mb": 20000, "temperature_c": 50}), dict[str, Any])
assert_type(brim.load_profile("rtx3090-12b").claims, tuple[ClaimRule, ...])
assert_type(brim.quality_of("model.gguf"), tuple[bool, str, str])
assert_type(brim.evidence_of("run").run, str)
assert_type(brim.forget_calibration("llama"), int)
