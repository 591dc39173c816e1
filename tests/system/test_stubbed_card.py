"""A governed run on a card that NVIDIA's real binding shows, through the driven stub of its library: heat, then a lost card, in the middle of the run."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.fakes import Stub, card

pytestmark = pytest.mark.system
SRC = str(pathlib.Path(__file__).parent.parent.parent / "src")


def wait_for(path: pathlib.Path, words: str, seconds: float = 40) -> None:
    """Until the file holds the words."""
    until = time.monotonic() + seconds
    while words not in path.read_text():
        assert time.monotonic() < until, path.read_text()
        time.sleep(0.1)


def test_heat_and_a_lost_card(tmp_path) -> None:
    """The child sees the card by its UUID; near the ceiling the job is slowed; when the card is lost it is stopped, exit 75, and the report says why."""
    stub = Stub(tmp_path)
    stub.write(card())
    state = {
        "PYTHONPATH": SRC,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "LD_LIBRARY_PATH": stub.environ["LD_LIBRARY_PATH"],
        "NVML_STUB": stub.environ["NVML_STUB"],
    }
    command = [
        sys.executable,
        "-m",
        "brim",
        "run",
        "--device",
        "cuda:0",
        "--max-temp",
        "90",
        "--poll",
        "200ms",
        "--grace",
        "2s",
        "--run-dir",
        str(tmp_path / "run"),
    ]
    talk = tmp_path / "talk"
    with talk.open("w") as err:
        job = subprocess.Popen(
            [*command, "--", "sh", "-c", "echo shown=$CUDA_VISIBLE_DEVICES; sleep 120"], stdout=subprocess.PIPE, stderr=err, text=True, env={**os.environ, **state}
        )  # fmt: skip
        try:
            wait_for(talk, "level unknown → run")
            stub.write(card(temp=88))
            wait_for(talk, "run → throttle")
            stub.write(card(lost=1))
            out, _ = job.communicate(timeout=40)
        finally:
            if job.poll() is None:
                job.send_signal(signal.SIGKILL)
    assert (job.returncode, out.strip()) == (75, "shown=GPU-0a1b2c3d-0000-4000-8000-000000000000"), talk.read_text()
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["ended_by"] == "governor"
    assert "lost" in report["reason"]
