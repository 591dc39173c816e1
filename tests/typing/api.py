"""How the public face is typed: this file is checked by mypy, never run."""

from typing import assert_type

import brim
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
