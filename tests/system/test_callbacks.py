"""The ready-made loops: without a governor nothing happens; under one they save at a step boundary, stop there and go on; ranks decide as one."""

import os
import signal
import subprocess
import sys
import time

import pytest

from brim.errors import BrimError
from brim.journal import store
from tests.conftest import ROOT

pytestmark = pytest.mark.system
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def test_a_loop_without_a_governor_is_a_loop() -> None:
    """Every step is done, nothing is saved, nothing stops it, and no trainer's library is imported."""
    code = (
        "import sys\nfrom brim.integrations.callbacks import Loop\nsaved=[]\nloop=Loop(save=saved.append)\ndone=list(loop.steps(range(loop.start,50)))\n"
        "assert done==list(range(50)) and not saved and not loop.stopped\nassert not {'torch','transformers','lightning','jax'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=ENV, check=False).returncode == 0


def _governed(folder):
    """Wait until the run in this folder was looked at three times: the job runs by then."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if sum(line.kind == "sample" for line in store.read(str(folder / "journal.db"))) >= 3:
                return
        except BrimError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{folder}: nothing was governed in time")


def test_a_loop_that_is_stopped_goes_on_to_the_same_end(tmp_path) -> None:
    """The plain example: stopped twice, resumed twice, the same total as in one go."""
    whole = subprocess.run(
        [sys.executable, str(ROOT / "examples/plain_python.py"), str(tmp_path / "a"), "300"], env=ENV, capture_output=True, text=True, check=True
    ).stdout
    words, total = (
        ["run", "--poll", "100ms", "--run-dir", str(tmp_path / "r0"), "--", sys.executable, str(ROOT / "examples/plain_python.py"), str(tmp_path / "b"), "300"],
        "",
    )
    stopped = 0
    for number in range(1, 4):
        run = subprocess.Popen([sys.executable, "-m", "brim", *words], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if number < 3:
            _governed(tmp_path / f"r{number - 1}")
            run.send_signal(signal.SIGTERM)
        total = run.communicate(timeout=30)[0]
        if run.returncode == 0:
            break
        assert run.returncode == 75
        stopped += 1
        words = ["resume", str(tmp_path / f"r{number - 1}"), "--run-dir", str(tmp_path / f"r{number}")]
    assert (total, stopped) == (whole, 2)


@pytest.mark.parametrize("every", [1, 5])
def test_ranks_decide_as_one_at_a_common_step(every, monkeypatch) -> None:
    """Case 63: A directive that only rank 0 sees takes effect on all ranks at the same step, whichever step the look falls on."""
    from brim import client
    from brim.integrations.callbacks import Loop

    board = {}
    stops = []
    for rank in (0, 1, 2):
        monkeypatch.setattr(client, "step", lambda number, tokens=0, rank=rank: client.STOP if rank == 0 and number >= 7 else client.RUN)
        step = {"now": 0}

        def agree(code, rank=rank, step=step):
            return board.setdefault(step["now"], code) if rank == 0 else board[step["now"]]

        loop = Loop(save=lambda number: None, agree=agree, agree_every=every)
        for number in range(40):
            step["now"] = number
            if loop.after(number):
                stops.append(number)
                break
    assert stops == [7 if every == 1 else 10] * 3
