"""Asks several sources at once, each in a child process with a deadline: a crash or a hang in there becomes a reason, never ours.

Guarantees: no call waits past the deadline; a child that hangs is killed and never joined (in state D it cannot die); while it lingers its source is
not asked again, so stuck children do not pile up. Not covered: Windows, where the look happens in this process.
"""

import marshal
import os
import sys
from io import BytesIO

from brim.facts.device import device_from
from brim.probes.vendor import Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from brim.seams import Clock

LIMIT = 4 << 20  # an answer above this is no answer of ours
_CODE = "import sys;sys.path[:]=sys.argv[4:];from brim.probes.child import main;main()"
_lingering: dict[str, int] = {}


class _Child:
    """One running child: its pid, its pipe, what it wrote so far."""

    __slots__ = ("done_ns", "fd", "pid", "text")

    def __init__(self, pid: int, fd: int) -> None:
        self.pid, self.fd, self.text, self.done_ns = pid, fd, b"", 0


def vendor_command(vendor: str, root: str, *, wake: bool) -> list[str]:
    """The command line of a vendor's child."""
    return [sys.executable, "-I", "-S", "-c", _CODE, vendor, root, "1" if wake else "0", *sys.path]


def run(
    commands: "Mapping[str, Sequence[str]]", *, environment: "Mapping[str, str]", deadline_ns: int, clock: "Clock"
) -> dict[str, tuple[str, bytes, int, int]]:
    """Run the commands at once, at most until `deadline_ns` from now. For each: (what happened, its output, its exit status or signal, ns it took).

    What happened is `ended` (status ≥ 0: exit code; < 0: the signal), `hung`, or `not_started: WHY`.
    """
    begun = clock.now_ns()
    results: dict[str, tuple[str, bytes, int, int]] = {}
    running: dict[str, _Child] = {}
    for name, command in commands.items():
        if _still_there(name):
            results[name] = ("hung", b"", _lingering[name], 0)
            continue
        try:
            running[name] = _start(command, environment)
        except OSError as error:
            results[name] = (f"not_started: {error.strerror}", b"", 0, clock.now_ns() - begun)
    _collect(running, begun + deadline_ns, clock)
    for name, child in running.items():
        results[name] = _result(name, child, begun, clock)
    return results


def _start(command: "Sequence[str]", environment: "Mapping[str, str]") -> _Child:
    read, write = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        pid = os.posix_spawnp(command[0], list(command), dict(environment), file_actions=actions, setpgroup=0)
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)
    os.set_blocking(read, False)
    return _Child(pid, read)


def _collect(running: dict[str, _Child], until_ns: int, clock: "Clock") -> None:
    """Read every pipe until it ends or the deadline is there."""
    import select

    poll = select.poll()
    open_fds = {child.fd: child for child in running.values()}
    for fd in open_fds:
        poll.register(fd, select.POLLIN | select.POLLHUP)
    while open_fds:
        left = until_ns - clock.now_ns()
        if left <= 0:
            return
        for fd, _event in poll.poll(max(1, left // 1_000_000)):
            child = open_fds[fd]
            try:
                part = os.read(fd, 1 << 16)
            except BlockingIOError:
                continue
            child.text += part
            if not part or len(child.text) > LIMIT:
                child.done_ns = clock.now_ns()
                poll.unregister(fd)
                del open_fds[fd]


def _result(name: str, child: _Child, begun: int, clock: "Clock") -> tuple[str, bytes, int, int]:
    os.close(child.fd)
    if not child.done_ns:
        _kill(child.pid)
        if not _reaped(child.pid, clock, 20_000_000)[0]:
            _lingering[name] = child.pid
        return "hung", child.text, child.pid, clock.now_ns() - begun
    gone, status = _reaped(child.pid, clock, 200_000_000)
    if not gone:  # it closed its output and lives on: the answer counts, the process does not
        _kill(child.pid)
        if not _reaped(child.pid, clock, 20_000_000)[0]:
            _lingering[name] = child.pid
    return "ended", child.text, status, child.done_ns - begun


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except OSError:
        return


def _reaped(pid: int, clock: "Clock", patience_ns: int) -> tuple[bool, int]:
    """Whether the child is gone within `patience_ns`, and its exit status (negative: the signal)."""
    until = clock.now_ns() + patience_ns
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # somebody else in this program reaped it
            return True, 0
        if found:
            return True, os.waitstatus_to_exitcode(status)
        if clock.now_ns() >= until:
            return False, 0
        clock.sleep_ns(500_000)


def _still_there(name: str) -> bool:
    """Whether an earlier child of this source still lingers; reaps it where it has gone meanwhile."""
    pid = _lingering.get(name)
    if pid is None:
        return False
    try:
        found, _status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        found = pid
    if found:
        del _lingering[name]
    return not found


def ask(vendors: "Sequence[str]", *, root: str, wake: bool, environment: "Mapping[str, str]", deadline_ns: int, clock: "Clock") -> dict[str, Answer]:
    """Each vendor's answer, or the reason why there is none."""
    if not hasattr(os, "posix_spawn"):
        return {vendor: _here(vendor, root, wake=wake, clock=clock) for vendor in vendors}
    commands = {vendor: vendor_command(vendor, root, wake=wake) for vendor in vendors}
    results = run(commands, environment=environment, deadline_ns=deadline_ns, clock=clock)
    return {vendor: answer_of(vendor, *results[vendor], deadline_ns=deadline_ns) for vendor in vendors}


def answer_of(vendor: str, happened: str, text: bytes, status: int, elapsed_ns: int, *, deadline_ns: int) -> Answer:
    """A child's end as an answer: a signal is a crash in the driver, silence past the deadline a hang. Where the kernel told rows before that, they are the answer."""
    told = _told(text)
    answer = _end_of(vendor, happened, told, status, elapsed_ns, deadline_ns=deadline_ns)
    if answer.outcome == "answered" or not told or not told[0].get("kernel"):
        return answer
    return answer.replace(outcome="answered", detail="", code=0, beside=answer.detail, devices=tuple(device_from(entry) for entry in told[0]["kernel"]))


def _told(text: bytes) -> "list[dict[str, Any]]":
    """The whole blocks that a child wrote."""
    file, blocks = BytesIO(text), []
    while file.tell() < len(text):
        try:
            block = marshal.load(file)  # noqa: S302 - written by our own child of the same interpreter
        except (ValueError, EOFError, TypeError):
            break
        if isinstance(block, dict):
            blocks.append(block)
    return blocks


def _end_of(vendor: str, happened: str, told: "list[dict[str, Any]]", status: int, elapsed_ns: int, *, deadline_ns: int) -> Answer:
    if happened == "hung":
        detail = f"telemetry unavailable: no answer within {deadline_ns / 1e9:g} s (pid {status}, killed); --deadline waits longer"
        if not elapsed_ns:
            detail = f"telemetry unavailable: an earlier look (pid {status}) still hangs in the driver"
        return Answer(source=vendor, outcome="failed", detail=detail, elapsed_ns=elapsed_ns, pid=status)
    if happened != "ended":
        return Answer(source=vendor, outcome="failed", detail=f"telemetry unavailable: {happened}", elapsed_ns=elapsed_ns)
    if status < 0:
        return Answer(source=vendor, outcome="failed", detail=f"telemetry unavailable: the library crashed (signal {-status})", elapsed_ns=elapsed_ns)
    try:
        answer = next(block for block in told if "kernel" not in block)
        if "reason" in answer:
            return Answer(source=vendor, outcome=answer["reason"], detail=answer["detail"], code=answer["code"], elapsed_ns=elapsed_ns)
        return Answer(source=vendor, outcome="answered", devices=tuple(device_from(entry) for entry in answer["devices"]), elapsed_ns=elapsed_ns)
    except (StopIteration, TypeError, KeyError):
        return Answer(source=vendor, outcome="failed", detail=f"telemetry unavailable: the look ended without an answer (exit {status})", elapsed_ns=elapsed_ns)


def _here(vendor: str, root: str, *, wake: bool, clock: "Clock") -> Answer:
    """The look in this process, where there is no spawn."""
    from brim.probes.child import look
    from brim.probes.vendor import Unavailable

    begun = clock.now_ns()
    try:
        return Answer(source=vendor, outcome="answered", devices=look(vendor, root, wake=wake), elapsed_ns=clock.now_ns() - begun)
    except Unavailable as why:
        return Answer(source=vendor, outcome=why.reason, detail=why.detail, code=why.code, elapsed_ns=clock.now_ns() - begun)
