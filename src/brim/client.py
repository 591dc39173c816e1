"""What a governed job imports: it tells the governor its steps and hears what is asked of it; without a governor every call does nothing.

    from brim import client

    for number in range(client.resume_step(0), 10_000):
        train_one_step()
        if client.step(number) >= client.CHECKPOINT:      # under a microsecond while there is nothing to do
            save(path)
            client.checkpointed(path, number)
            if client.should_stop():
                break

Guarantees: standard library only; a missing, foreign or broken page is a job that is not governed, never an error; only rank 0 writes, and a forked child only
reads; `slow` and `pause` are carried out inside `step`, and end by themselves when the governor is gone. Steps may be looked at anywhere: `directive()` is the
same look without counting a step, for evaluations, warm-ups and compilations that take long.
"""

import os
import time

from brim.control import CHECKPOINT, NAMES, PAUSE, RUN, SLOW, STOP

__all__ = ["CHECKPOINT", "NAMES", "PAUSE", "RUN", "SLOW", "STOP", "attached", "checkpointed", "deadline", "directive", "evaluated"]
__all__ += ["governor_lost", "phase", "resume_from", "resume_step", "should_stop", "step"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.control import Page

_now = time.monotonic_ns
_page: "Page | None" = None
_words: "memoryview[int] | None" = None
_writes = False
_count = 0
_saving_since = 0
_last_step_ns = 0
_asked_ns = 0
# The words a step touches, bound here so that a step looks up plain names.
_DIRECTIVE, _DEADLINE, _GOVERNOR_BEAT, _SLOW, _STALE, _DIE = 1, 2, 3, 5, 6, 7
_BEAT, _STEP, _TOKENS, _PHASE, _SEEN, _ANSWERED, _EVALUATIONS = range(513, 520)


def _attach(path: str) -> None:
    """Map the page; a job must never fail because its governor's file is gone or strange."""
    global _page, _words, _writes  # noqa: PLW0603
    from brim.control import W_JOB_PID, Page

    try:
        page = Page(path)
    except (OSError, ValueError):
        return
    _page, _words = page, page.words
    rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("SLURM_PROCID") or "0"
    _writes = rank == "0"
    if _writes:
        page.words[W_JOB_PID] = os.getpid()
        page.words[_BEAT] = _now()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_read_only)


def _read_only() -> None:
    """A forked child (a data loader) may look, and never writes over its parent's words."""
    global _writes  # noqa: PLW0603
    _writes = False


def attached() -> bool:
    """Whether there is a governor's page."""
    return _words is not None


def governor_lost() -> bool:
    """Has the governor been silent for longer than it promised? False where there is none."""
    words = _words
    return words is not None and _now() - words[_GOVERNOR_BEAT] > words[_STALE] > 0


def directive() -> int:
    """What is asked now: RUN, SLOW, PAUSE, CHECKPOINT or STOP (save if you can, then end). An answered CHECKPOINT reads RUN."""
    words = _words
    if words is None:
        return RUN
    word = words[_DIRECTIVE]
    code = word & 255
    if code == RUN:
        return RUN
    if governor_lost():
        return STOP if words[_DIE] else RUN
    if _writes:
        words[_SEEN] = word >> 8
        if code == CHECKPOINT and words[_ANSWERED] >= word >> 8:
            return RUN
    return code


def step(number: int = -1, tokens: int = 0) -> int:
    """A step is done: count it, and hear what is asked (as `directive`). Without `number` steps count from 0; `tokens` are added up.

    SLOW sleeps here, in proportion to the time of the last step; PAUSE waits here until it is lifted.
    """
    global _count, _last_step_ns  # noqa: PLW0603
    words = _words
    if words is None:
        return 0
    now = _now()
    if _writes:
        words[_BEAT] = now
        words[_STEP] = _count = number if number >= 0 else _count + 1
        if tokens:
            words[_TOKENS] += tokens
    if words[_DIRECTIVE] & 255 == 0 and (not words[_DIE] or now - words[_GOVERNOR_BEAT] < words[_STALE]):
        _last_step_ns = now
        return 0
    return _obey(words, now)


def _obey(words: "memoryview[int]", now: int) -> int:
    """The rare path of `step`: something is asked, or the governor that the job shall die with is gone."""
    global _last_step_ns, _asked_ns  # noqa: PLW0603
    if words[_DIE] and governor_lost():
        return STOP
    code = directive()
    if code == SLOW:
        share = min(words[_SLOW], 950)
        time.sleep(min((now - _last_step_ns) / 1e9 * share / (1000 - share), 5.0) if _last_step_ns else 0.0)
    while code == PAUSE:
        time.sleep(0.02)
        if _writes:
            words[_BEAT] = _now()
        code = directive()
    if code >= CHECKPOINT and not _asked_ns:
        _asked_ns = now
    _last_step_ns = _now()
    return code


def should_stop() -> bool:
    """Whether the job shall end now (after what it has saved)."""
    return directive() == STOP or (_words is not None and bool(_words[_DIE]) and governor_lost())


def deadline() -> float:
    """Seconds left to answer the present request; infinite where there is none."""
    words = _words
    if words is None or not words[_DEADLINE] or words[_DIRECTIVE] & 255 < CHECKPOINT:
        return float("inf")
    return (words[_DEADLINE] - _now()) / 1e9


def phase(name: str) -> None:
    """Say what the job is doing: `loading` and `warmup` hold the forecast off; `saving` starts the clock of a checkpoint; `training`, `serving`, `eval`."""
    global _saving_since  # noqa: PLW0603
    words = _words
    if words is None or not _writes:
        return
    words[_PHASE] = int.from_bytes(name.encode("ascii", "replace")[:8], "little")
    words[_BEAT] = _now()
    if name == "saving":
        _saving_since = words[_BEAT]


def checkpointed(path: "str | os.PathLike[str]", step: int = -1, complete: bool = True) -> None:  # noqa: FBT001, FBT002
    """A checkpoint of `step` is written at `path`; call it after the file (or folder) has its final name. Answers the present request if it is complete."""
    global _saving_since, _asked_ns  # noqa: PLW0603
    page, words = _page, _words
    if page is None or words is None or not _writes:
        return
    now, word = _now(), words[_DIRECTIVE]
    request = word >> 8 if word & 255 >= CHECKPOINT else 0
    page.note_checkpoint(
        step=_count if step < 0 else step,
        started_ns=_saving_since or _asked_ns,
        ended_ns=now,
        complete=complete,
        request=request,
        path=os.path.abspath(os.fspath(path)),
    )
    _saving_since = _asked_ns = 0
    words[_BEAT] = now
    if complete and request:
        words[_SEEN] = words[_ANSWERED] = request


def evaluated() -> None:
    """An evaluation is done: the governor writes its resume state."""
    if _words is not None and _writes:
        _words[_EVALUATIONS] += 1
        _words[_BEAT] = _now()


def resume_from() -> str:
    """The checkpoint that `brim resume` asks to go on from; empty for a fresh start."""
    return os.environ.get("BRIM_RESUME_FROM", "")


def resume_step(default: int = 0) -> int:
    """The first step to do: one after the step of the checkpoint that `brim resume` names, else `default`."""
    text = os.environ.get("BRIM_RESUME_STEP", "")
    return int(text) + 1 if text.isascii() and text.isdigit() else default


if _path := os.environ.get("BRIM_CONTROL", ""):
    _attach(_path)
