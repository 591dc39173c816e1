"""Where the control pages of runs lie: makes one in memory where there is such a place, and takes away those that nobody needs any more."""

import os
import time

from brim import control

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.control import Page
    from brim.facts.settings import Limits
    from brim.seams import Clock

KEEP_FORETOLD_S = 7 * 86_400


def make(limits: "Limits", clock: "Clock", *, resumed_from: int) -> "Page | None":
    """The control page, in memory where there is such a place; None where nothing can be written (then the job is governed by signals alone)."""
    stale = max(5_000_000_000, 5 * limits.poll_ns)
    for folder in (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm", "/tmp"):  # noqa: S108 - the page is made with O_EXCL semantics by rename, mode 0600
        if folder and os.path.isdir(folder):
            _sweep(folder)
            path = f"{folder}/brim-{os.getuid()}-{os.getpid()}-{time.monotonic_ns():x}.control"
            try:
                page = control.Page.create(path, stale_after_ns=stale, die_with_me=limits.die_with_me, resumed_from=max(resumed_from, 0))
            except OSError:
                continue
            page.beat(clock.now_ns())
            return page
    return None


def _sweep(folder: str) -> None:
    """Take away pages whose governor and job are both gone; one that tells what its governor was doing when it was killed stays for a week (brim verify reads it)."""
    try:
        entries = os.listdir(folder)
    except OSError:  # somebody else's runtime folder, as after `su`: the next place is taken
        return
    for entry in entries:
        if not (entry.startswith(f"brim-{os.getuid()}-") and entry.endswith(".control")):
            continue
        try:
            page = control.Page(f"{folder}/{entry}")
        except (OSError, ValueError):
            continue
        pids = page.words[control.W_GOVERNOR_PID], page.words[control.W_JOB_PID]
        if not any(pid and os.path.exists(f"/proc/{pid}") for pid in pids) and (page.foretold() is None or _age_s(page.path) > KEEP_FORETOLD_S):
            put_away(page)
        else:
            page.close()


def _age_s(path: str) -> float:
    """How long ago a file was written; 0 where it is gone."""
    try:
        return max(0.0, time.time() - os.stat(path).st_mtime)
    except OSError:
        return 0.0


def put_away(page: "Page") -> None:
    """Let a page go and take its file away, where it is still there."""
    path = page.path
    page.close()
    try:
        os.unlink(path)
    except OSError:
        return
