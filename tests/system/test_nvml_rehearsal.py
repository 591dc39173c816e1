"""Rehearsals through NVML itself: the real binding, the real governor, a driven stub in the driver's place."""

import json
import os
import subprocess
import sys
import time

import pytest

from brim.journal import store
from tests.conftest import ROOT
from tests.fakes import GIB, Stub, card

pytestmark = pytest.mark.system
JOB = """
import sys, time
from brim import client
client.phase("training")
print("ready", flush=True)
step = 0
while True:
    time.sleep(0.01)
    step += 1
    if client.step(step) >= client.CHECKPOINT:
        client.checkpointed("/dev/null", step)
        if client.should_stop(): sys.exit(0)
"""


def rehearse(tmp_path, *states, flags=(), job=(sys.executable, "-S", "-c", JOB), starts=True):
    """Run a job under brim with the stub in its first state, then in the others, a second and a half apart; (exit code, records)."""
    pytest.importorskip("pynvml")
    stub = Stub(tmp_path)
    stub.write(states[0])
    env = {**os.environ, **stub.environ, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(tmp_path / "state")}
    words = ["--run-dir", str(tmp_path / "run"), "--device", "cuda:0", "--poll", "100ms", "--grace", "5s", "--floor", "1GiB", *flags]
    run = subprocess.Popen([sys.executable, "-m", "brim", "run", *words, "--", *job], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert not starts or run.stdout.readline() == "ready\n", run.communicate()[1]
    for state in states[1:]:
        time.sleep(1.5)
        stub.write(state)
    _, said = run.communicate(timeout=40)
    return run.returncode, [(line.kind, json.loads(line.body)) for line in store.read(str(tmp_path / "run" / "journal.db"))], said


def intents(rows):
    return [body["kind"] for kind, body in rows if kind == "intent" and "late" not in body]


def test_heat_by_nvml(tmp_path) -> None:
    """Warm: slowed, its power capped; at the ceiling: saved and stopped, 75, the power given back; the samples carry the card's readings."""
    code, rows, said = rehearse(tmp_path, card(temp=60), card(temp=78), card(temp=85), flags=("--max-temp", "83", "--power-cap", "250"))
    assert (intents(rows), code) == (["slow", "stop:asked", "verify"], 75), said
    outcomes = [body["outcome"] for kind, body in rows if kind == "outcome"]
    assert any("power limit 250 W (was 350 W" in text for text in outcomes), outcomes
    assert any("power limit back at 350 W" in text for text in outcomes), outcomes
    assert {body["cuda:0"]["temperature_c"] for kind, body in rows if kind == "sample"} >= {60, 78, 85}


@pytest.mark.parametrize("state", [card(lost=1), card(xid=79, xid_count=1)], ids=["lost", "xid 79"])
def test_a_dead_card_by_nvml(tmp_path, state) -> None:
    """A card that is lost, or XID 79 from the event queue: SIGTERM at once, nothing is asked of it, and the fault stands in the journal."""
    code, rows, said = rehearse(tmp_path, card(), state)
    assert (intents(rows), code) == (["stop:terminating", "verify"], 75), said
    assert any(kind == "fault" and body["device"] == "cuda:0" for kind, body in rows)


def test_card_memory_by_nvml(tmp_path) -> None:
    """The card's own free memory below the floor: saved and stopped."""
    code, rows, said = rehearse(tmp_path, card(), card(used=24 * GIB - (600 << 20), reserved=0))
    assert (intents(rows)[-2:], code) == (["stop:asked", "verify"], 75), said
