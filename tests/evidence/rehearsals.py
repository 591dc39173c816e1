"""Thermal and fault rehearsals: scripted readings in, the ladder that the journal shows out. Writes docs/evidence/governor-rehearsals.md.

    python tests/evidence/rehearsals.py

Each rehearsal runs a real job under the real governor with `--readings`; times that are minutes in earnest (patience, dwell, lost telemetry) are fractions of a second here.
"""

import concurrent.futures
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "src"))

from brim.journal import store  # noqa: E402

GIB = 1 << 30
SETTLE = 1.5  # seconds before anything happens: the job must have begun, also on a busy machine
DRIVER = """
import json, sys
from brim import api
from brim.facts.settings import limits
given = json.loads(sys.argv[3])
bounds = limits(poll_ns=50_000_000, grace_ns=2 * 10**9, dwell_ns=5 * 10**8, heat_patience_ns=8 * 10**8, unknown_after_ns=6 * 10**8, stale_after_ns=6 * 10**8,
                floor_bytes=1 << 30, throttle_margin_bytes=1 << 30, **given)
sys.exit(api.run([sys.executable, "-S", "-c", sys.argv[4]], bounds, run_dir=sys.argv[1], probe=api.machine(readings=sys.argv[2])).exit_code)
"""
JOB = """
import os, sys, time
from brim import client
client.phase("training")
end = time.monotonic() + float(os.environ["LASTS"])
step = 0
while time.monotonic() < end:
    step += 1
    time.sleep(0.01)
    if client.step(step) >= client.CHECKPOINT:
        client.checkpointed("/dev/null", step)
        if client.should_stop(): sys.exit(0)
"""


def card(temp=60.0, **more):
    """One row of a script: a card at rest, and what differs."""
    row = {"id": "cuda:0", "memory": {"total_bytes": 24 * GIB, "free_bytes": 16 * GIB}, "temperature_c": temp, "utilisation_percent": 95, "power_draw_w": 200.0}
    return {**row, "power_limit_w": 350, **more}


def gone(**more):
    return card(**{"memory": {"free_bytes": {"missing": "gone", "detail": "GPU is lost"}}, **more})


HEAT = {"max_temp_c": 83.0}
# name, limits, script [(second, rows)], how long the job would last, intents expected in this order (and no others), exit code
REHEARSALS = [
    ("ramp to throttle and back", HEAT, [(0, [card(60)]), (0.4, [card(70)]), (0.8, [card(77)]), (1.2, [card(66)]), (1.5, [card(60)])], 3.0, ["slow", "resume"], 0),
    ("plateau at the limit", HEAT, [(0, [card(60)]), *((0.4 + n / 10, [card(78, power_draw_w=300.0 + n)]) for n in range(41)), (4.5, [card(60)])], 7.0, ["slow", "slow", "pause", "resume"], 0),
    ("the ceiling is reached", HEAT, [(0, [card(60)]), (0.5, [card(78)]), (0.8, [card(84)])], 6.0, ["slow", "stop:asked", "verify"], 75),
    ("a hot memory sensor alone", HEAT, [(0, [card(60, memory_temperature_c=70)]), (0.5, [card(60, memory_temperature_c=90)])], 6.0, ["stop:asked", "verify"], 75),
    (
        "a sensor that freezes under load", {**HEAT, "on_unknown": "stop"},
        [(0, [card(61, power_draw_w=150.0)])] + [(0.3 + n / 20, [card(61, power_draw_w=320.0 + n)]) for n in range(60)], 6.0, ["stop:asked", "verify"], 75,
    ),
    ("a sensor that jumps once", HEAT, [(0, [card(60)]), (0.80, [card(130)]), (0.83, [card(60)])], 2.0, [], 0),
    ("free memory reads zero once", {}, [(0, [card()]), (0.80, [card(memory={"total_bytes": 24 * GIB, "free_bytes": 0})]), (0.83, [card()])], 2.0, [], 0),
    ("the device is lost", {}, [(0, [card()]), (0.6, [gone()])], 6.0, ["stop:terminating", "verify"], 75),
    ("XID 79", {}, [(0, [card()]), (0.6, [card(faults=["xid 79"])])], 6.0, ["stop:terminating", "verify"], 75),
    ("XID 48 (double-bit ECC)", {}, [(0, [card()]), (0.6, [card(faults=["xid 48"])])], 6.0, ["stop:asked", "verify"], 75),
    ("XID 13 (an application's own)", {}, [(0, [card()]), (0.6, [card(faults=["xid 13"])])], 2.5, ["checkpoint:asked", "resume"], 0),
    ("a new uncorrected ECC error", {}, [(0, [card(ecc_uncorrected=2)]), (0.6, [card(ecc_uncorrected=3)])], 6.0, ["stop:asked", "verify"], 75),
    ("a power brake, and its end", {}, [(0, [card(throttle_reasons=[])]), (0.5, [card(throttle_reasons=["hw_power_brake"])]), (1.2, [card(throttle_reasons=[])])], 3.0, ["slow", "resume"], 0),
    ("a thermal slowdown that the card reports itself", {}, [(0, [card(throttle_reasons=[])]), (0.5, [card(throttle_reasons=["sw_thermal"])]), (1.0, [card(throttle_reasons=[])])], 3.0, ["slow", "resume"], 0),
    ("telemetry is lost: keep", {"on_unknown": "keep"}, [(0, [card()]), (0.5, [])], 2.5, [], 0),
    ("telemetry is lost: checkpoint", {"on_unknown": "checkpoint"}, [(0, [card()]), (0.5, [])], 3.0, ["checkpoint:asked", "resume"], 0),
    ("telemetry is lost: stop", {"on_unknown": "stop"}, [(0, [card()]), (0.5, [])], 6.0, ["stop:asked", "verify"], 75),
    ("card memory near its floor", {}, [(0, [card()]), (0.6, [card(memory={"total_bytes": 24 * GIB, "free_bytes": 3 * GIB // 2})])], 2.5, ["checkpoint:asked", "resume"], 0),
    ("card memory below its floor", {}, [(0, [card()]), (0.6, [card(memory={"total_bytes": 24 * GIB, "free_bytes": GIB // 2})])], 6.0, ["stop:asked", "verify"], 75),
]  # fmt: skip


def rehearse(rehearsal):
    """(name, intents as they came, exit code, why the level last changed) of one rehearsal."""
    name, given, script, lasts, _, _ = rehearsal
    with tempfile.TemporaryDirectory(prefix="brim-rehearsal-") as made:
        folder = pathlib.Path(made)
        lines = [
            json.dumps({"t": at + SETTLE if at else 0, "devices": rows, "host": {"available_bytes": 64 * GIB, "total_bytes": 64 * GIB}}) for at, rows in script
        ]
        (folder / "readings").write_text("\n".join(lines))
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "LASTS": str(lasts + SETTLE)}
        words = [sys.executable, "-c", DRIVER, str(folder / "run"), str(folder / "readings"), json.dumps({"devices": ["cuda:0"], **given}), JOB]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
        rows = [(line.kind, json.loads(line.body)) for line in store.read(str(folder / "run" / "journal.db"))]
        intents = [body["kind"] for kind, body in rows if kind == "intent" and "late" not in body]
        why = [body["reason"] for kind, body in rows if kind == "intent"]
        return name, intents, done.returncode, why[0] if why else "", done.stderr


def main():
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = list(pool.map(rehearse, REHEARSALS))
    lines, bad = [], 0
    for rehearsal, (name, intents, code, why, _) in zip(REHEARSALS, found, strict=True):
        right = intents == rehearsal[4] and code == rehearsal[5]
        bad += not right
        lines.append(
            f"| {name} | {' → '.join(rehearsal[4]) or 'nothing'}, exit {rehearsal[5]} | {'as expected' if right else ' → '.join(intents) + f', exit {code}'} | {why} |"
        )
    stamp = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = f"""# Rehearsals: what the governor does when readings go wrong

Generated by `python tests/evidence/rehearsals.py` on {stamp}; {os.cpu_count()} CPUs, Linux {platform.release()}. Real job, real governor, scripted readings of one card; the journal's intents in order.

| rehearsal | expected | journal | first reason |
|---|---|---|---|
""" + "\n".join(lines)
    path = ROOT / "docs/evidence/governor-rehearsals.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    print(text)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
