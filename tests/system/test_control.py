"""The control page: two processes, no torn reads, no cost where nothing is asked."""

import os
import subprocess
import sys
import time

import pytest

from brim import control, pages
from brim.clock import FakeClock
from brim.facts.settings import Limits

SRC = os.path.join(os.path.dirname(__file__), "..", "..", "src")


class Job(subprocess.Popen):
    """A child that runs `code` with the page in its environment; `said()` is its answer."""

    def __init__(self, path, code, **env):
        given = {"PYTHONPATH": SRC, **({"BRIM_CONTROL": str(path)} if path else {}), **env}
        super().__init__([sys.executable, "-S", "-c", code], env={**os.environ, **given}, stdout=subprocess.PIPE, text=True)

    def said(self):
        return self.communicate(timeout=20)[0]

    def ended(self):
        self.communicate(timeout=20)
        return self.returncode


job = Job


@pytest.fixture
def page(tmp_path):
    page = control.Page.create(str(tmp_path / "control"), stale_after_ns=10**12)
    page.beat(time.monotonic_ns())
    yield page
    page.close()


def test_no_checkpoint_record_is_ever_seen_torn(page):
    """Whatever the moment of the look: step, times and path of one checkpoint, or "try again"; never a mixture of two."""
    writer = job(
        page.path,
        "import time\nfrom brim import client\nend=time.monotonic()+2\nn=0\n"
        "note=client._page.note_checkpoint\n"
        "while time.monotonic()<end:\n n+=1\n note(step=n,started_ns=n,ended_ns=2*n,complete=n%2==0,request=n,path='/'+str(n)*(1+n%50))\n"
        "print(n)",
    )
    good, last = 0, 0
    while writer.poll() is None:
        note = page.last_checkpoint()
        if note is None:
            continue
        good += 1
        n = note.step
        assert n >= last
        assert (note.started_ns, note.ended_ns, note.complete, note.request) == (n, 2 * n, n % 2 == 0, n)
        assert note.path == "/" + str(n) * (1 + n % 50)
        last = n
    written = int(writer.said())
    assert good > 100  # both race on as many cores as there are: how often a look comes between two records is the scheduler's business
    assert page.last_checkpoint().step == written


def test_a_damaged_record_is_not_believed(page):
    """A record whose bytes do not match its checksum (stores seen out of order, a stray writer) reads as none."""
    page.note_checkpoint(step=7, started_ns=1, ended_ns=2, complete=True, request=3, path="/a")
    page.words[control.W_CK_STEP] = 8
    assert page.last_checkpoint() is None


def test_a_directive_is_given_whatever_stood_there(page):
    """A stray writer cannot keep the governor from asking: the number goes round."""
    page.words[control.W_DIRECTIVE] = control.U64
    assert page.direct(control.STOP) == 0
    assert page.words[control.W_DIRECTIVE] == control.STOP


def test_directive_and_number_are_one_word(page):
    """A reader that races with the writer sees a directive with its own number, never the number of another."""
    reader = job(
        page.path,
        "import time\nfrom brim import client, control\nend=time.monotonic()+1.5\nseen=bad=0\n"
        "while time.monotonic()<end:\n w=client._words[control.W_DIRECTIVE]\n seen+=1\n bad+=(w>>8)%5!=(w&255) if w else 0\nprint(seen,bad)",
    )
    number = 0
    while reader.poll() is None:
        number = page.direct((number + 1) % 5)
    seen, bad = map(int, reader.said().split())
    assert seen > 1000
    assert bad == 0
    assert number > 1000


def test_a_job_answers_the_request_it_was_given(page):
    """A directive is seen, carried out, and answered with its number; an answered checkpoint asks for nothing more."""
    number = page.direct(control.CHECKPOINT, time.monotonic_ns() + 10**10)
    worker = job(
        page.path,
        "from brim import client\nclient.phase('training')\nassert client.step(41, tokens=5)==client.CHECKPOINT\nassert 0<client.deadline()<=10\n"
        "client.checkpointed('/tmp/x',41)\nassert client.step(42, tokens=5)==client.RUN\nassert not client.should_stop()\nclient.evaluated()\n",
    )
    assert worker.ended() == 0
    note = page.last_checkpoint()
    assert (note.path, note.step, note.complete, note.request) == ("/tmp/x", 41, True, number)
    assert note.started_ns
    assert page.words[control.W_ANSWERED] == page.words[control.W_SEEN] == number
    assert (page.words[control.W_STEP], page.words[control.W_TOKENS], page.words[control.W_EVALUATIONS]) == (42, 10, 1)
    assert control.unpack_name(page.words[control.W_PHASE]) == "training"


def test_an_incomplete_checkpoint_answers_nothing(page):
    """Case 67: A checkpoint without its complete marker is told, and does not count as an answer."""
    number = page.direct(control.CHECKPOINT)
    assert job(page.path, "from brim import client\nclient.step()\nclient.checkpointed('/tmp/x',1,complete=False)").ended() == 0
    assert page.last_checkpoint().complete is False
    assert page.words[control.W_ANSWERED] < number


def test_pause_holds_a_step_until_it_is_lifted(page):
    """PAUSE waits inside step, still beating; RUN lets it go on."""
    page.direct(control.PAUSE)
    worker = job(page.path, "from brim import client\nclient.step(1)\nclient.step(2)")
    deadline = time.monotonic() + 10
    while page.words[control.W_SEEN] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    first = page.words[control.W_JOB_BEAT]
    time.sleep(0.2)
    assert worker.poll() is None
    assert page.words[control.W_JOB_BEAT] > first
    page.direct(control.RUN)
    assert worker.ended() == 0
    assert page.words[control.W_STEP] == 2


@pytest.mark.parametrize(("die", "expected"), [(False, "RUN"), (True, "STOP")])
def test_a_dead_governor_is_noticed(tmp_path, die, expected):
    """When the governor's heartbeat is stale a paused job goes on, and a job that shall die with its governor is told to stop."""
    page = control.Page.create(str(tmp_path / "control"), stale_after_ns=10**6, die_with_me=die)
    page.direct(control.PAUSE)
    assert job(page.path, f"from brim import client\nassert client.governor_lost()\nassert client.step(1)==client.{expected}").ended() == 0


@pytest.mark.parametrize("rank", ["1", "7"])
def test_other_ranks_only_read(page, rank):
    """Rank 0 alone writes: two writers of one word are impossible."""
    page.direct(control.STOP)
    assert (
        job(page.path, "from brim import client\nassert client.step(9)==client.STOP\nclient.checkpointed('/x',9)\nclient.evaluated()", RANK=rank).ended() == 0
    )
    assert page.last_checkpoint() is None
    assert page.words[control.W_STEP] == page.words[control.W_JOB_PID] == 0


def test_a_forked_child_only_reads(page):
    """A data loader that was forked from the trainer does not overwrite its step."""
    code = "import os\nfrom brim import client\nclient.step(5)\npid=os.fork()\nif not pid:\n client.step(99); os._exit(0)\nos.waitpid(pid,0)"
    assert job(page.path, code).ended() == 0
    assert page.words[control.W_STEP] == 5


@pytest.mark.parametrize("content", [None, b"", b"x" * 8192, b"\0" * 8191])
def test_a_broken_page_is_no_governor(tmp_path, content):
    """A missing, short or foreign page makes every call a no-op, never an error."""
    path = tmp_path / "control"
    if content is not None:
        path.write_bytes(content)
    code = "from brim import client\nassert not client.attached()\nassert client.step(1)==0\nassert not client.should_stop()\n"
    code += "client.checkpointed('/x',1)\nclient.phase('a')"
    assert job(path, code).ended() == 0
    if content is not None:
        with pytest.raises(ValueError, match="control page"):
            control.Page(str(path))


def test_resume_words(page):
    """`brim resume` hands the checkpoint and its step over; the job goes on one after."""
    code = "from brim import client\nassert client.resume_from()=='/ck'\nassert client.resume_step(3)==42"
    assert job(page.path, code, BRIM_RESUME_FROM="/ck", BRIM_RESUME_STEP="41").ended() == 0
    assert job(None, "from brim import client\nassert client.resume_from()=='' and client.resume_step(3)==3").ended() == 0


def test_what_is_foretold_outlives_its_writer(tmp_path):
    """What the governor is about to do can be read after SIGKILL at once afterwards, with its stamps; it is gone when the journal has it; a damaged one is none; a long one is cut."""
    path = tmp_path / "control"
    control.Page.create(str(path), stale_after_ns=10**12).close()
    code = f"import os\nfrom brim import control\np=control.Page({str(path)!r})\np.foretell(7, 8, 'stop:killing: memory é')\nos.kill(os.getpid(), 9)"
    assert Job(None, code).ended() == -9
    page = control.Page(str(path))
    assert page.foretold() == (7, 8, "stop:killing: memory é")
    page.words[control.W_AHEAD_SUM] ^= 1
    assert page.foretold() is None
    page.foretell(9, 10, "x" * 10_000)
    assert page.foretold() == (9, 10, "x" * control.AHEAD_MAX)
    page.told()
    assert page.foretold() is None
    page.close()


def test_the_client_imports_almost_nothing():
    """`import brim.client` loads no module of the standard library that a bare interpreter lacks, but mmap and time."""
    code = "import sys\nbefore=set(sys.modules)\nimport brim.client\nprint(*sorted(set(sys.modules)-before))"
    loaded = set(job(None, code).said().split())
    assert loaded <= {
        "brim",
        "brim.client",
        "brim.control",
        "mmap",
        "os",
        "stat",
        "posixpath",
        "genericpath",
        "os.path",
        "_collections_abc",
        "abc",
        "_abc",
        "_stat",
    }


def test_a_step_costs_about_a_microsecond(page):
    """A step with nothing to do stays within a generous multiple of a microsecond even on a loaded machine (the figure itself is a benchmark)."""
    code = (
        "import time\nfrom brim import client\nstep=client.step\nbest=1e9\n"
        "for _ in range(20):\n t=time.perf_counter_ns()\n for i in range(2000): step(i)\n best=min(best,(time.perf_counter_ns()-t)/2000)\nprint(best)"
    )
    assert float(job(page.path, code).said()) < 2000


def test_a_runtime_folder_of_somebody_elses_is_passed_over(tmp_path, monkeypatch):
    """After `su`, XDG_RUNTIME_DIR may still name a folder that can neither be listed nor written: the page lies in the next place."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lists, creates = os.listdir, control.Page.create

    def refused(folder):
        if str(folder).startswith(str(tmp_path)):
            raise PermissionError(13, "Permission denied", str(folder))
        return folder

    monkeypatch.setattr(os, "listdir", lambda folder: lists(refused(folder)))
    monkeypatch.setattr(control.Page, "create", lambda path, **words: creates(refused(path), **words))
    made = pages.make(Limits(), FakeClock(), resumed_from=-1)
    assert made is not None
    assert not made.path.startswith(str(tmp_path))
    pages.put_away(made)
    assert not os.path.exists(made.path)
