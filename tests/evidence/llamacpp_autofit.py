"""brim's port of `--fit` beside llama.cpp's own common/fit.cpp, compiled from source over made-up models; prints what differs and writes a golden file.

Run: `python -m tests.evidence.llamacpp_autofit --source LLAMA_CPP [--count 20000] [--seed 1] [--write]`. LLAMA_CPP is b11434's source; g++ is needed. The decisions are
the file itself up to its printing of tables; the engine's loads are replaced by a formula on both sides (`llamacpp_autofit.cpp`, `measured` below).
"""

import argparse
import gzip
import json
import os
import random
import re
import select
import subprocess
import sys
import tempfile
from pathlib import Path

from brim.engines.llama_cpp.autofit import Asked, Measured, adapt
from brim.engines.llama_cpp.weights import _single

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "llamacpp_autofit.json.gz"
PATIENCE_S = 5.0
NAMES = ("attn_q.weight", "ffn_up.weight", "ffn_gate.weight", "ffn_down.weight", "ffn_up_exps.weight", "ffn_gate_exps.weight", "ffn_down_exps.weight")


def measured(case, trial):
    """The formula: what a trial of a made-up model takes, device by device, in bytes."""
    count, blocks = len(case["free"]) if case["devices"] else 0, case["blocks"]
    layers = trial.layers if trial.layers is not None else (case["layers"] if case["layers"] >= 0 else blocks + 1)
    start, active = max(blocks + 1 - layers, 0), min(layers, blocks + 1)
    shares = trial.split or ((1,) * count if case["split"] else case["free"])
    if not any(shares):
        shares = case["free"]
    points, total = [], 0.0
    for share in shares[:count]:
        total = _single(total + _single(float(share)))
        points.append(total)
    points = [_single(point / total) for point in points]
    patterns = [(re.compile(pattern), -1 if home == "CPU" else int(home[4:])) for pattern, home in trial.overrides]
    used, model, held = [0] * (count + 1), [0] * (count + 1), [0] * (count + 1)
    for il in range(blocks + 1):
        home = count
        if count and start <= il < start + active:
            home = next((at for at, point in enumerate(points) if _single((il - start) / active) < point), count)
        held[home] += 1
        if il == blocks:
            model[home] += case["output"]
            break
        used[home] += case["cache"] * (trial.ctx // 256) * (1 + (il % 4 == 0))
        for at, (name, size) in enumerate(zip(NAMES, case["weights"], strict=True)):
            where = next((to for pattern, to in patterns if pattern.search(f"blk.{il}.{name}")), home)
            model[count if where < 0 else where] += size * (1 + (il * 7 + case["seed"] + at) % 3)
    for at in range(count + 1):
        used[at] += model[at] + (case["c0"] + case["c1"] * (trial.ctx // 256) if held[at] else case["c0"] // 2) + (4096 if at == count else 0)
    return Measured(used=tuple(used[:count]), model=tuple(model[:count]), host=used[count])


def question(case):
    """A case as brim asks it."""
    many = case["devices"]
    return Asked(
        free=tuple(case["free"][:many]), margins=tuple(case["margins"]), buffers=tuple(f"CUDA{at}" for at in range(many)), host=case["host"], blocks=case["blocks"], trained=case["trained"],
        experts=bool(case["experts"]), streams=case["streams"], ctx=case["ctx"], least=None if case["least"] < 0 else case["least"], layers=None if case["layers"] < 0 else case["layers"],
        split_fixed=bool(case["split"]), overrides_fixed=bool(case["overrides"]), split_mode="row" if case["mode"] else "layer",
    )  # fmt: skip


def brims(case):
    """brim's answer in the harness's words."""
    found = adapt(question(case), lambda trial: measured(case, trial))
    trial = found.trial
    split = trial.split or (0,) * case["devices"]
    layers = trial.layers if trial.layers is not None else case["layers"]
    over = "".join(f" {pattern}={-1 if home == 'CPU' else home[4:]}" for pattern, home in trial.overrides)
    return f"{int(not found.met)} {trial.ctx} {layers} |{''.join(f' {share}' for share in split)} |{over}"


def made_up(rng):
    """A random question: small numbers, so that everything happens."""
    devices = rng.choice((0, 1, 1, 1, 2, 2, 3, 4))
    experts = rng.choice((0, 0, 8))
    unit = 1 << 20
    blocks = rng.choice((1, 2, 3, 5, 8, 16, 24, 32, 33, 48, 61, 80))
    size = [rng.randint(1, 40) * unit for _ in range(4)] + [rng.randint(20, 200) * unit * bool(experts) for _ in range(3)]
    whole = blocks * 2 * sum(size)
    return {
        "devices": devices, "blocks": blocks, "trained": rng.choice((2048, 4096, 8192, 32768, 131072, 40960)), "experts": experts, "streams": rng.choice((1, 1, 1, 2, 4)),
        "ctx": rng.choice((0, 0, 0, 4096, 16384)), "least": rng.choice((4096, 4096, 4096, 512, -1)), "layers": rng.choice((-1,) * 9 + (blocks // 2,)), "split": rng.choice((0,) * 9 + (1,)),
        "overrides": rng.choice((0,) * 9 + (1,)), "mode": rng.choice((0,) * 9 + (1,)), "host": int(whole * rng.uniform(0.3, 1.6)),
        "free": [int(whole * rng.uniform(0.02, 1.3) / max(devices, 1)) for _ in range(max(devices, 1))], "margins": [rng.choice((0, 64, 256, 1024)) * unit for _ in range(max(devices, 1))],
        "weights": size, "output": rng.randint(1, 300) * unit, "cache": rng.randint(0, 1 << 17), "c0": rng.randint(0, 300) * unit, "c1": rng.randint(0, 1 << 19), "seed": rng.randint(0, 2),
    }  # fmt: skip


def line_of(case):
    """A case as the harness reads it."""
    head = [case[key] for key in ("devices", "blocks", "trained", "experts", "streams", "ctx", "least", "layers", "split", "overrides", "mode", "host")]
    tail = [case[key] for key in ("output", "cache", "c0", "c1", "seed")]
    return " ".join(map(str, [*head, *case["free"], *case["margins"], *case["weights"], *tail]))


def build(source, folder):
    """Compile the harness with the engine's own decisions."""
    text = (source / "common" / "fit.cpp").read_text()
    decisions = text[: text.index("void common_memory_breakdown_print(const struct llama_context * ctx) {")]
    cut = Path(folder) / "decisions.inc"
    cut.write_text(
        decisions.replace('#include "json.h"\n', "")
        .replace('"../src/llama-ext.h"', '"llama-ext.h"')
        .replace('#include "log.h"', "\n".join(f"#define {word}(...) ((void) 0)" for word in ("LOG_TRC", "LOG_WRN", "LOG_ERR")))
    )
    program = os.path.join(folder, "autofit")
    paths = [f"-I{source / part}" for part in ("include", "ggml/include", "src", "common")]
    subprocess.run(["g++", "-std=c++17", "-O1", "-DNDEBUG", f'-DFIT="{cut}"', *paths, str(HERE / "llamacpp_autofit.cpp"), "-o", program], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    cases = [made_up(rng) for _ in range(asked.count)]
    with tempfile.TemporaryDirectory() as folder:
        program = build(asked.source, folder)
        answers, dead, process = [], 0, None
        for case in cases:
            if process is None or process.poll() is not None:
                process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            process.stdin.write(line_of(case) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().rstrip("\n") if select.select([process.stdout], [], [], PATIENCE_S)[0] else ""
            if not answer:  # unsigned numbers below nothing: the engine's own loop runs for four thousand million turns, or it divides by nothing
                process.kill()
                process.wait()
                dead += 1
            answers.append(answer)
        process.stdin.close()
    wrong = [(case, theirs, ours) for case, theirs in zip(cases, answers, strict=True) if theirs and (ours := brims(case)) != theirs]
    for case, theirs, ours in wrong[:5]:
        print(json.dumps(case), "\n  theirs", theirs[:300], "\n  ours  ", ours[:300])
    turned = sum(1 for case, answer in zip(cases, answers, strict=True) if answer and answer.split()[2] != str(case["layers"]))
    print(f"{asked.count} questions (seed {asked.seed}): {turned} turned layers, {dead} had no answer, {len(wrong)} differ")
    if asked.write:
        some = [{"case": case, "answer": answer} for case, answer in zip(cases, answers, strict=True) if answer][:1500]
        GOLDEN.write_bytes(gzip.compress(json.dumps(some, separators=(",", ":")).encode(), mtime=0))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
