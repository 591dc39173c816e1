"""Going on with a run: not while its job lives on, and with a seat in the ledger of promises like any other launch."""

import json
import os
import signal
import subprocess
import sys
import time

import jsonschema
import pytest

from brim.journal import store
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


@pytest.mark.parametrize("how", ["command", "model"])
def test_a_resumed_run_takes_its_seat(brim, tmp_path, smollm2, how) -> None:
    """While a resumed run goes, the ledger holds what its command is priced at (or, for a command that names no model, what the run before was), and is empty afterwards."""
    server = tmp_path / "llama-server"
    server.write_text("#!/bin/sh\ntest -e again || { touch again; kill -KILL $$; }\ncp ledger seen\n")
    server.chmod(0o755)
    words = ("--model", smollm2, "--ctx", "512", "--", "sh", str(server)) if how == "model" else ("--", str(server), "-m", smollm2, "-c", "512")
    env = {"BRIM_LEDGER": str(tmp_path / "ledger")}
    assert brim("run", "--run-dir", "run", *words, env=env).returncode == 137
    assert json.loads((tmp_path / "ledger").read_text()) == []
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())["prediction"]
    done = brim("resume", "run", "--run-dir", "more", env=env)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "seen").read_text())
    (device,) = plan["devices"]
    assert (row["device"], row["run_dir"]) == ("host", str(tmp_path / "more"))
    assert row["promised_bytes"] == device["required_bytes"]["high"] > 100_000_000
    assert json.loads((tmp_path / "ledger").read_text()) == []
    (tmp_path / "again").unlink()
    (tmp_path / "seen").unlink()
    (tmp_path / "more" / "resume.json").write_text(
        (tmp_path / "run" / "resume.json").read_text().replace('"resumed_run": ""', f'"resumed_run": "{tmp_path / "run"}"')
    )
    assert brim("resume", "more", "--run-dir", "third", env=env).returncode == 137  # it went on from a run that was itself gone on with
    entries = [json.loads(line.body) for line in store.events(str(tmp_path / "third" / "journal.db")) if line.kind == "admission"]
    assert [entry["admitted"] for entry in entries] == [True]
