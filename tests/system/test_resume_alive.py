"""A run whose governor was killed and whose job lives on: it is not started a second time."""

import json
import os
import signal
import subprocess
import sys
import time

import jsonschema
import pytest

from brim.reports.schemas import SCHEMAS
from brim.resumption import living
from tests.conftest import ROOT

pytestmark = pytest.mark.system


@pytest.mark.parametrize("leader_ends", [False, True])
def test_a_job_that_still_runs_is_not_resumed(brim, tmp_path, leader_ends) -> None:
    """Exit 3 and the pid, in `brim top` too, whether the leader or only one of its group is left; once nobody is left it is resumed."""
    folder = tmp_path / "run"
    shell = "sleep 300 & " + ("sleep 1.5" if leader_ends else "wait")
    words = [sys.executable, "-m", "brim", "run", "--run-dir", str(folder), "--", "sh", "-c", f"echo $$ > pid; {shell}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(tmp_path / "state")}
    governor = subprocess.Popen(words, env=env, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 20
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() and living(str(folder))) and time.monotonic() < end:
        time.sleep(0.02)
    leader = int((tmp_path / "pid").read_text())
    governor.kill()
    governor.wait()
    try:
        while leader_ends and living(str(folder)) == leader and time.monotonic() < end:
            time.sleep(0.05)
        left = living(str(folder))
        assert left is not None
        assert (left == leader) is not leader_ends
        refused = brim("resume", str(folder), "--", "true")
        assert refused.returncode == 3
        assert f"still runs, as pid {left}" in refused.stderr
        document = json.loads(brim("top", str(folder), "--json").stdout)
        jsonschema.validate(document, SCHEMAS["top"])
        assert document["job_pid"] == left
        assert f"still runs, as pid {left}" in brim("top", "--once", str(folder)).stdout
    finally:
        os.killpg(leader, signal.SIGKILL)
    while living(str(folder)) and time.monotonic() < end:
        time.sleep(0.02)
    assert brim("resume", str(folder), "--", "true").returncode == 0
