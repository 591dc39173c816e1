"""Going on with a stopped run: what is refused, what is changed, what is kept."""

import pytest

from brim import again
from brim.errors import Refused, Usage
from brim.facts.settings import limits
from brim.units import GIB
from brim.values import plain

SAVED = {"state": "acknowledged", "step": 41, "path": "/ck", "took_ns": 1}


def document(**changes):
    base = {
        "command": ["python", "train.py", "--batch", "8"], "cwd": "/w", "environ": {"A": "1"}, "environ_not_kept": ["HF_TOKEN"], "limits": plain(limits(memory_budget_bytes=GIB)),
        "exit_code": 75, "stopped_by": "governor", "cause": "heat", "reason": "hot", "checkpoint": SAVED, "attempt": 1,
    }  # fmt: skip
    return {**base, **changes}


def test_the_same_again() -> None:
    """Same command, folder, environment and limits; secrets come from the present environment; one attempt more; the checkpoint that was acknowledged."""
    todo = again.plan(document(), {"HF_TOKEN": "x", "B": "2"})
    assert (todo.command, todo.cwd, todo.environ) == (("python", "train.py", "--batch", "8"), "/w", {"A": "1", "HF_TOKEN": "x"})
    assert todo.limits == limits(memory_budget_bytes=GIB)
    assert (todo.checkpoint, todo.step, todo.attempt) == ("/ck", 41, 2)
    assert not any("HF_TOKEN" in note for note in todo.notes)
    assert any("HF_TOKEN" in note for note in again.plan(document(), {}).notes)


@pytest.mark.parametrize("changes", [{"cause": "memory"}, {"stopped_by": "kernel", "exit_code": 9}])
def test_a_memory_failure_is_never_retried_unchanged(changes) -> None:
    """Not without a change, not with a change that changes nothing; with one, or with a new command, yes."""
    with pytest.raises(Refused, match="never retried unchanged"):
        again.plan(document(**changes), {})
    with pytest.raises(Refused):
        again.plan(document(**changes), {}, command=("python", "train.py", "--batch", "8"))
    with pytest.raises(Usage, match="changes nothing"):
        again.plan(document(**changes), {}, on_oom="s/--batch 16/--batch 4/")
    assert again.plan(document(**changes), {}, on_oom="s/--batch 8/--batch 4/").command[-2:] == ("--batch", "4")
    assert again.plan(document(**changes), {}, command=("true",)).command == ("true",)
    kept = plain(limits(on_oom="s/8/4/"))
    assert again.plan(document(limits=kept, **changes), {}).command[-1] == "4"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("s/8/4/", "a --n=4 b"), ("s|--n=8|--n=2|", "a --n=2 b"), ("s/a --n=8/a --m 1/", "a --m 1 b"), ("s/--n=8 b//", "a"),
        (r"s/--n=(\d)/--n=\g<1>0/", "a --n=80 b"),
    ],
)  # fmt: skip
def test_changes(change, expected) -> None:
    """One argument by a regular expression, or several in a row."""
    assert " ".join(again.changed(("a", "--n=8", "b"), change)) == expected


@pytest.mark.parametrize("change", ["", "x/a/b/", "s/a", "s//b/", "s/(/b/", "s/a/b/q", "s/zzz/y/"])
def test_bad_changes(change) -> None:
    """A change that is malformed or matches nothing is a usage error."""
    with pytest.raises(Usage):
        again.changed(("a", "b"), change)


def test_what_is_gone_is_not_gone_on_with() -> None:
    """A job that ended well has nothing left to do; a checkpoint that is gone is no start, unless the start is asked for."""
    with pytest.raises(Usage, match="nothing to go on with"):
        again.plan(document(exit_code=0, stopped_by="child", cause=""), {})
    with pytest.raises(Refused, match="is gone"):
        again.plan(document(), {}, exists=False)
    assert again.plan(document(), {}, exists=False, from_start=True).checkpoint == ""


@pytest.mark.parametrize(("state", "word"), [("signalled", "only signalled"), ("none", "no checkpoint was acknowledged")])
def test_an_unacknowledged_checkpoint_is_said(state, word) -> None:
    """Where nothing was acknowledged the job starts by itself, and that is said."""
    todo = again.plan(document(checkpoint={"state": state}), {})
    assert todo.checkpoint == ""
    assert any(word in note for note in todo.notes)


def test_back_off_doubles_to_five_minutes() -> None:
    """Nothing before the first try, then twice as long each time, five minutes at most."""
    assert [again.backoff_ns(5, attempt) for attempt in range(1, 5)] == [0, 5, 10, 20]
    assert again.backoff_ns(5_000_000_000, 99) == 300_000_000_000
