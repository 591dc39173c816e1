"""The hostile corpus: each fault has one named rejection, exit code 5, in under a second and 100 MiB."""

import json
import os
import subprocess
import sys
import time

import pytest
from attacks.corpus import attacks, write

from brim.checkpoint import open_checkpoint
from brim.errors import BadCheckpoint
from tests.conftest import ROOT

CORPUS = attacks()


@pytest.mark.parametrize("attack", CORPUS, ids=[row[0] for row in CORPUS])
def test_each_fault_has_its_own_rejection(attack, tmp_path) -> None:
    """The class and the sentence name the fault and the file; nothing else is raised."""
    _, files, path, reason, words = attack
    write(str(tmp_path), files)
    began = time.process_time()
    with pytest.raises(BadCheckpoint) as caught:
        open_checkpoint(str(tmp_path / path))
    assert time.process_time() - began < 1
    assert (caught.value.exit_code, caught.value.reason) == (5, reason)
    assert words in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def measured(path: str) -> tuple[int, float, int, str]:
    """(exit code, seconds of CPU, peak bytes, what it said) of one `brim inspect` of its own; started by a small process, since a child's peak counts what its parent held."""
    child = "import os, sys\npid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)\n_, status, usage = os.wait4(pid, 0)\nprint(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)"
    command = [sys.executable, "-c", child, sys.executable, "-m", "brim", "inspect", "--json", path]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, check=True)
    lines = done.stdout.strip().splitlines()
    code, seconds, peak = lines[-1].split()
    return int(code), float(seconds), int(peak) * 1024, "\n".join(lines[:-1]) + done.stderr


LARGEST = sorted(CORPUS, key=lambda row: -sum(len(body) for body in row[1].values()))[:6] + [
    row for row in CORPUS if row[0] in ("a-pipe", "a-device", "json-index-traversal")
]


@pytest.mark.parametrize("attack", LARGEST, ids=[row[0] for row in LARGEST])
def test_the_command_line_ends_with_5_within_a_second_and_100_mib(attack, tmp_path) -> None:
    """A whole process for the largest rows and the special files (`make evidence` does it for all): a brim.error/1 document, no traceback."""
    _, files, path, reason, _ = attack
    write(str(tmp_path), files)
    code, seconds, peak, said = measured(str(tmp_path / path))
    assert (code, json.loads(said)["reason"]) == (5, reason)
    assert seconds < 1
    assert peak < 100 << 20
