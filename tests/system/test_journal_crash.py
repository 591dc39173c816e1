"""A journal whose writer is killed at a random moment, also in the middle of packing and thinning, opens and holds up to the last acknowledged record."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from brim.journal import proof, store

pytestmark = pytest.mark.system
WRITER = """
import sys
from brim.clock import SystemClock
from brim.journal import packing, store
packing.BLOCK_SAMPLES, packing.KEEP_FULL_BLOCKS, packing.THIN_BLOCKS = 8, 3, 3
journal = store.Journal(sys.argv[1], SystemClock())
journal.append("begin", {"schema": "brim.journal/1", "brim": "0", "command": [], "cwd": "/", "limits": {}})
number = 0
while True:
    for _ in range(7):
        journal.append("sample", {"held_bytes": number, "free_bytes": 1, "level": "run"}, durable=False)
        number += 1
    if journal.append("level", {"level": "run", "reason": str(number)}, durable=True):
        print(number, flush=True)
"""


def test_kill_at_random_moments(tmp_path) -> None:
    """Fifteen writers killed with SIGKILL: each journal verifies, and has every record that was acknowledged; most of them died after packing and thinning had begun."""
    draw = random.Random(7)
    thinned = 0
    for index in range(15):
        path = str(tmp_path / f"{index}.db")
        child = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True, env={**os.environ})
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(draw.random() * 0.8)
        child.send_signal(signal.SIGKILL)
        acknowledged = [int(line) for line in child.stdout.read().split()]
        child.wait()
        child.stdout.close()
        found = proof.prove(path, None, finished=False)
        assert found.faults == []
        events = store.events(path)
        if acknowledged:
            assert any(f'"reason":"{acknowledged[-1]}"' in line.body for line in events)
        thinned += any(line.kind == "thinned" for line in events)
    assert thinned >= 5
