"""Train, be stopped by the governor at a checkpoint, `brim resume`, end: the same weights as an uninterrupted run. Writes docs/evidence/governor-resume.md.

    python tests/evidence/resume.py --python PYTHON_WITH_TORCH [--trials 5]

Each trial stops the run at a random moment in one of three ways (SIGTERM to brim, a scripted overheating, a memory budget that another step would pass is left to the
survival benchmark), resumes it, and compares the SHA-256 of all weights. The last rows are torchrun with two workers over gloo, and the callbacks of trainers that are there.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent.parent
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def brim(*words, **popen):
    return subprocess.Popen([sys.executable, "-m", "brim", *map(str, words)], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen)


def weights(folder):
    path = folder / "weights.sha256"
    return path.read_text().strip() if path.exists() else None


def wait_for(process, word):
    return any(word in line for line in process.stdout)


def stop_and_resume(job, folder, how, chance, *, stops=2):
    """Run until told to stop, `stops` times, then to the end; (weights, stops acknowledged, steps gone on from)."""
    runs, told, steps = folder / "runs", 0, []
    words = ("run", "--run-dir", runs / "0", "--grace", "20s")
    if how == "heat":
        readings = folder / "hot.jsonl"
        cool = {"id": "cuda:0", "memory": {"free_bytes": 1 << 34, "total_bytes": 1 << 34}, "temperature_c": 60}
        readings.write_text(
            json.dumps({"t": 0, "devices": [cool]}) + "\n" + json.dumps({"t": chance.uniform(4, 7), "devices": [{**cool, "temperature_c": 95}]}) + "\n"
        )
        words = (*words, "--readings", readings, "--max-temp", "90")
    process = brim(*words, "--", *job)
    for number in range(stops + 1):
        wait_for(process, "first step")
        if number < stops and (how == "signal" or number > 0):
            time.sleep(chance.uniform(0.1, 1.5))
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=180)
        document = json.loads((runs / str(number) / "resume.json").read_text())
        if number == stops or process.returncode == 0:
            break
        told += document["checkpoint"]["state"] == "acknowledged" and process.returncode == 75
        steps.append(document["checkpoint"].get("step"))
        process = brim("resume", runs / str(number), "--run-dir", runs / str(number + 1))
    return weights(folder), told, steps, process.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--jax-python", help="a Python with JAX (default: the same)")
    parser.add_argument("--more-path", action="append", default=[], help="a further folder for the jobs' PYTHONPATH")
    parser.add_argument("--only", action="append", default=[], help="jobs whose name holds this word only")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--write", default=str(ROOT / "docs/evidence/governor-resume.md"))
    asked = parser.parse_args()
    chance, rows = random.Random(asked.seed), []
    ENV["PYTHONPATH"] = os.pathsep.join([ENV["PYTHONPATH"], *asked.more_path])
    for name, prefix, example, ways, steps_wanted in (
        ("plain PyTorch loop", [asked.python], "plain_pytorch", ("signal", "heat"), 300),
        (
            "torchrun, 2 workers, gloo",
            [asked.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
            "plain_pytorch",
            ("signal",),
            300,
        ),
        ("transformers.Trainer", [asked.python], "transformers_trainer", ("signal",), 90),
        ("Lightning Trainer", [asked.python], "lightning_trainer", ("signal",), 90),
        ("JAX loop", [asked.jax_python or asked.python], "jax_loop", ("signal",), 300),
    ):
        if asked.only and not any(word in name for word in asked.only):
            continue
        script = ROOT / "examples" / f"{example}.py"
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            done = subprocess.run(
                [*prefix, str(script), "--folder", str(folder), "--steps", str(steps_wanted)], env=ENV, capture_output=True, text=True, check=False
            )
            whole = weights(folder)
            if whole is None:
                why = (done.stderr.strip().splitlines() or ["no word"])[-1]
                rows.append((name, "–", "–", "–", "not tried: " + why))
                continue
        for how in ways:
            for _ in range(asked.trials if name.startswith("plain") else max(1, asked.trials // 2)):
                with tempfile.TemporaryDirectory() as made:
                    folder = pathlib.Path(made)
                    job = [*prefix, str(script), "--folder", str(folder), "--steps", str(steps_wanted), "--pace", "0.02" if steps_wanted > 100 else "0.05"]
                    found, told, steps, code = stop_and_resume(job, folder, how, chance)
                    same = "same" if found == whole else f"DIFFERENT ({code})"
                    rows.append((name, how, f"{told}/2", ", ".join(map(str, steps)), same))
                    print(rows[-1], flush=True)
    stamp = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = f"""# Stopped, resumed, the same weights

Generated by `python tests/evidence/resume.py --seed {asked.seed}` on {stamp}; {os.cpu_count()} CPUs, Linux {platform.release()}. Each run is stopped twice at random moments and resumed;
its weights (SHA-256 over all tensors) are compared with those of an uninterrupted run of the same program.

| job | stopped by | stops with an acknowledged checkpoint | gone on from step | weights at the end |
|---|---|---:|---|---|
""" + "".join("| " + " | ".join(row) + " |\n" for row in rows)
    pathlib.Path(asked.write).write_text(text)
    print(text)
    return 0 if all(row[4] == "same" or row[4].startswith("not tried") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
