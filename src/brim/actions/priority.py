"""Raises the priority of the guard's own threads and puts it back; it never touches a thread that is not brim's, and decides nothing."""

import contextlib
import os
import threading

_BESIDE = ("brim-measure", "brim-notify")  # their commands are children that inherit the thread's priority, and are not to come before the job


def come_first() -> dict[int, int]:
    """Raise our own priority over the job's where that is allowed (the job is started already, and keeps its own): a guard that waits for its turn looks too late.

    Every thread of ours (Linux keeps one a thread): an act waits for the one that writes its record. Not those that run commands, and nobody else's: brim may be a guest
    in a process. Gives what each had before.
    """
    linux = os.path.isdir("/proc/self/task")
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("brim-") and thread.name not in _BESIDE]
    tasks = [0, *(thread.native_id or 0 for thread in mine)] if linux else [0]
    before = {}
    for task in tasks:
        with contextlib.suppress(OSError):
            before[task] = os.getpriority(os.PRIO_PROCESS, task)
            os.setpriority(os.PRIO_PROCESS, task, min(before[task], -10))
    return before


def step_back(before: dict[int, int]) -> None:
    """Give the threads that are still there the priority that they had."""
    for task, priority in before.items():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, task, priority)
