"""Ask the gate, start the child in its own group, hand it to the governor; refuse loudly, exit with the refusal's code."""

import contextlib
import os
import signal

from brim import __version__, pages
from brim.actions.child import Child
from brim.actions.group import Group
from brim.actions.keeper import Keeper
from brim.actions.measure import Measure
from brim.actions.notify import Notifier, to_stderr
from brim.actions.pause import Brake
from brim.actions.power import PowerCap
from brim.actions.priority import come_first, step_back
from brim.actions.signal import Signaller
from brim.admission import Seat, needs, take_seat
from brim.book import Book
from brim.clock import SystemClock
from brim.errors import CannotTell, KilledByOther, Refused, Stopped, Unreadable, Usage
from brim.facts.device import Device, Memory, Reading
from brim.facts.extras import Extras
from brim.gate import DOES_NOT_FIT
from brim.governor import Ending, Eyes, Governor, Hands
from brim.governor.vigils import Vigils, asides
from brim.policy import quiet
from brim.probes import vigil
from brim.probes.host import HostProbe
from brim.probes.process import ProcessProbe, first_is_shell
from brim.probes.wakes import Wakes
from brim.values import Missing, Record, plain
from brim.visible import visible_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from brim.control import Page
    from brim.facts.settings import Limits
    from brim.policy.states import Decision
    from brim.prediction import Prediction
    from brim.seams import Clock, Probe

STOPPED = Stopped.exit_code
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class RunResult(Record):
    """How a run ended: brim's own exit code, its folder, and the report (`brim.run/1`)."""

    exit_code: int
    run_dir: str
    report: "Mapping[str, Any]"


class HostOnly:
    """A probe of the host alone: one device, `cpu`."""

    def __init__(self, host: "HostProbe | None" = None) -> None:
        self._host = host or HostProbe()

    def read(self, now_ns: int) -> Reading:
        """The host now."""
        from brim.budget import of_host

        seen = self._host.read()
        memory = Memory(total_bytes=seen.total_bytes, available_bytes=seen.available_bytes)
        return Reading(at_ns=now_ns, devices=(Device(id="cpu", backend="cpu", name="host memory", memory=memory, budget=of_host(seen)),), host=seen)


def run(
    command: "Sequence[str]",
    limits: "Limits",
    *,
    run_dir: str,
    prediction: "Prediction | None",
    force: bool = False,
    environ: "Mapping[str, str] | None" = None,
    clock: "Clock | None" = None,
    probe: "Probe | None" = None,
    extras: "Extras | None" = None,
) -> RunResult:
    """Gate, launch and govern one command; every outcome leaves a report in `run_dir`.

    `Refused` where the gate says no (the folder then holds the refusal); `CannotTell` where telemetry is required and there is none; `Unreadable` where the run folder
    or the command cannot be used.
    """
    clock, extras, probe = clock or SystemClock(), extras or Extras(), probe or HostOnly()
    first = probe.read(clock.now_ns())
    usual = "cpu" if limits.governs("cpu") else limits.devices[0]
    limits = limits.meaning(next((device.id for device in first.devices if device.backend != "cpu" and limits.governs(device.id)), usual))
    _make_folder(run_dir)
    book = Book(run_dir, clock, list(command), limits, prediction, dict(os.environ if environ is None else environ), extras)
    book.begin(__version__)
    verdict = prediction.verdict if prediction is not None else "cannot_tell"
    reasons = list(prediction.reasons) if prediction is not None else ["no model that brim can price is named; the limits alone are enforced"]
    if (shell := first_is_shell()) and os.getpid() != 1:
        (extras.say or to_stderr)(
            f"the first process here is a shell ({shell}): it hands no SIGTERM on, so a stop of this container reaches brim and its job as SIGKILL; start brim with exec"
        )
    absent = limits.absent(tuple(device.id for device in first.devices))
    for name in absent:
        (extras.say or to_stderr)(f"{name} is named and in no reading: nothing that was asked for it is enforced, and the level is unknown")
    unseen = [*absent, *(device.id for device in first.devices if limits.governs(device.id) and not _tells(device, limits))]
    book.journal.append("gate", {"verdict": verdict, "reasons": reasons, "forced": force, "unseen": unseen, "plan_sha256": _digest(run_dir)})
    governed = any(limits.governs(device.id) for device in first.devices)
    if limits.require_telemetry and (unseen or not governed) and not force:
        book.close(CannotTell.exit_code, "gate", f"telemetry is required and missing: {', '.join(unseen) or 'no governed device answers'}", None)
        why = dict.fromkeys(_untold(device) for device in first.devices if device.id in unseen)
        silent = f"{', '.join(unseen)} does not tell{': ' + '; '.join(why) if any(why) else ''}" if unseen else "no governed device tells"
        raise CannotTell(
            f"not started: telemetry is required, and {silent}",
            hint="Repair it (brim doctor), or leave --require-telemetry out.",
        )
    if verdict == DOES_NOT_FIT and not force:
        book.close(Refused.exit_code, "gate", "; ".join(reasons), None)
        raise Refused(f"not started: {'; '.join(reasons)}", hint=_nearest(prediction))
    for gate in extras.gates:
        answer = gate(first)
        book.journal.append(answer.kind, answer.body)
        if not answer.admitted and not force:
            book.close(Refused.exit_code, "gate", answer.reason, None)
            raise Refused(f"not started: {answer.reason}", hint="Mend what it names, or use --force to start anyway; the limits stay enforced.")
    seat = _take_seat(book, prediction, probe, extras, force=force)
    shown = visible_environment(tuple(device for device in first.devices if device.id in limits.devices))
    try:
        with signals_held(for_good=extras.ends_process) as early:
            return _govern(book, limits, probe, extras, seat, shown, early)
    finally:
        seat.leave()


def _take_seat(book: Book, prediction: "Prediction | None", probe: "Probe", extras: Extras, *, force: bool) -> Seat:
    """The memory that the plan needs, promised to this run; `Refused` where it is not there now and did not come back in time."""
    seat = take_seat(
        needs(prediction) or dict(extras.needs), path=extras.ledger, probe=probe, processes=ProcessProbe(), pid=os.getpid(), clock=book.clock, wait_ns=extras.wait_ns, force=force,
        run_dir=book.run_dir, say=extras.say or (lambda _line: None),
    )  # fmt: skip
    answer = seat.admission
    if answer.devices:
        reasons = [f"{item.device}: {item.sentence}" for item in answer.devices]
        book.journal.append("admission", {"admitted": answer.admitted, "reasons": reasons, "waited_ns": answer.waited_ns, "forced": force})
    if not answer.admitted and not force:
        book.close(Refused.exit_code, "gate", answer.sentence, None)
        raise Refused(f"not started: {answer.sentence}", hint="Wait for it with --wait [TIME], free it, or start anyway with --force.")
    return seat


def _tells(device: Device, limits: "Limits") -> bool:
    """Say whether a device tells what its limits need: its free memory, and its temperature where a ceiling was set for a card."""
    if limits.max_temp_c is not None and device.backend != "cpu" and isinstance(device.temperature_c, Missing):
        return False
    return not isinstance(device.memory.free_bytes, Missing) or not isinstance(device.memory.available_bytes, Missing)


def _untold(device: Device) -> str:
    """Why a device does not tell: the first of its needed readings that is missing, in the driver's own words."""
    needed = (device.memory.free_bytes, device.memory.available_bytes, device.temperature_c)
    return next((value.detail for value in needed if isinstance(value, Missing) and value.detail), "")


def _govern(book: Book, limits: "Limits", probe: "Probe", extras: Extras, seat: Seat, shown: "Mapping[str, str]", early: "list[int]") -> RunResult:
    """Make what the run needs, start the job held, write down who it is, let it go, govern it, and put everything away again."""
    clock = book.clock
    page = pages.make(limits, clock, resumed_from=extras.resume_step)
    group = Group(f"brim-{os.getpid()}-{clock.now_ns() // 1000:x}")
    process = ProcessProbe(mark=f"BRIM_RUN={book.run_dir}")
    child = _hold(book, process, group, seat, _job_environ(book, extras, shown, page), page)
    keeper = None
    if limits.die_with_me and isinstance(child.identity.birth, int):
        keeper = Keeper(child.pid, child.identity.birth, grace_ns=limits.grace_ns, kill_dir=group.kill_dir, made=group.made)
    wakes = _make_wakes(child, group, probe, limits, clock)
    signaller = Signaller(process)
    notifier = Notifier(say=extras.say or to_stderr, command=extras.notify_command, webhook=extras.webhook, run=book.run_dir, environ=book.environ)
    eyes = Eyes(probe=probe, process=process, page=page, leader=child.identity)
    at_first = eyes.first(clock.now_ns())
    devices, kills_before = at_first.devices, at_first.host.oom_kills
    hands = Hands(
        child.identity, page=page, signaller=signaller, brake=Brake(lambda number: signaller.tree(child.identity, number), group if group.kill_dir else None), group=group,
        notifier=notifier,
        checkpoint_signal=limits.checkpoint_signal, power=_power(limits, devices),
    )  # fmt: skip
    watch, put_down = _watchers(book, limits, extras, hands)
    vigils = _vigils(child, probe, limits, wakes[0], page, clock, devices)
    governor = Governor(
        child,
        limits.replace(woken=wakes[1]),
        eyes=eyes,
        hands=hands,
        journal=book.journal,
        clock=clock,
        wakes=wakes[0],
        page=page,
        watch=watch,
        glances=_may_glance(limits, extras),
        vigils=vigils,
    )
    watching = (child, wakes[0], *(() if vigils is None else (vigils,)))
    usual = come_first()
    try:
        ending = _under_signals(governor, hands, child, wakes[0], early)
    except BaseException:
        said = signaller.tree(child.identity, signal.SIGTERM)  # a job without its guard is worse than one that is stopped
        to_stderr(f"the governor itself failed; the job is asked to end: {said}; {hands.finish()}")
        book.journal.close()  # the last looks before the fault are the ones that tell of it
        child.wait(1_000_000_000)
        for part in watching:
            part.close()
        raise
    finally:
        step_back(usual)
    kills = process.oom_kills()
    elsewhere = _struck(probe, kills_before, clock.now_ns()) if not kills and ending.status in (-signal.SIGKILL, 137) else 0
    if keeper is not None:
        keeper.close()
    left = group.remove()
    for part in (*watching, notifier):
        part.close()
    if page is not None:
        pages.put_away(page)
    put_down()
    return _finish(book, ending, kills, left, elsewhere)


def _job_environ(book: Book, extras: Extras, shown: "Mapping[str, str]", page: "Page | None") -> dict[str, str]:
    """The caller's environment with what the job is told: its cards, its run, its page, and where to go on from."""
    environ = {key: value for key, value in book.environ.items() if not key.startswith(("BRIM_CONTROL", "BRIM_RUN", "BRIM_RESUME"))}
    environ |= {**shown, "BRIM_RUN": book.run_dir} | ({"BRIM_CONTROL": page.path} if page else {})
    if extras.resume_from:
        environ |= {"BRIM_RESUME_FROM": extras.resume_from, "BRIM_RESUME_STEP": str(extras.resume_step)}
    return environ


def _hold(book: Book, process: ProcessProbe, group: Group, seat: Seat, environ: "dict[str, str]", page: "Page | None") -> Child:
    """Start the job held: in its group and in the ledger, and its pid and birth on the disk, before it runs."""
    book.journal.append("launch", {"command": book.command})
    child = Child(book.command, process, env=environ, cwd=book.cwd, log_path=os.path.join(book.run_dir, "engine.log"), past_terminal=book.wants_log)
    seat.sit(child.identity)
    refused = group.add(child.pid)
    process.group_dir, process.procs_dir = group.memory_dir, group.kill_dir
    child.offer_to_the_kernel()
    leader = {"pid": child.pid, "birth": plain(child.identity.birth)}
    groups = {"groups": list(group.made), "refused": [*group.refused, *([refused] if refused else [])]}
    book.journal.append("launched", {**leader, **groups, "control": page.path if page else "", "log": ["stdout" if fd == 1 else "stderr" for fd in child.kept]})
    return child


def _watchers(book: Book, limits: "Limits", extras: Extras, hands: Hands) -> "tuple[Callable[[Decision, Any, int], None], Callable[[], None]]":
    """What is done at each look beside governing (resume state, the resumed step, the exported file, throughput, the live line), and at the end."""
    told: list[int] = []
    measure = Measure(*extras.throughput) if extras.throughput[0] else None

    def watch(decision: "Decision", seen: "Any", now: int) -> None:
        book.keep_state(decision.state)
        words = seen.look.words
        if extras.resume_step > 0 and not told and words is not None and words.step > 0:
            told.append(words.step)
            if words.step < extras.resume_step:
                text = f"the resumed job counts step {words.step}, although it was to go on from step {extras.resume_step}: it may have started anew"
                book.journal.append("level", {"level": decision.state.level, "reason": text}, durable=False)
                (extras.say or to_stderr)(text)
        for text in hands.keep(seen.look):
            book.journal.append("outcome", {"kind": "power", "outcome": text}, durable=False)
        if extras.artifact is not None:
            for body in extras.artifact.look():
                book.journal.append("quality", body, durable=False)
        for value in measure.taken() if measure else ():
            book.journal.append("throughput", {"value": value}, durable=False)
        if extras.watch is not None:
            extras.watch(limits, decision, seen.look, now)

    def put_down() -> None:
        if measure is not None:
            measure.close()
        if extras.artifact is not None:
            for body in extras.artifact.close():
                book.journal.append("quality", body)

    return watch, put_down


@contextlib.contextmanager
def signals_held(*, for_good: bool = False) -> "Iterator[list[int]]":
    """Note the signals that would end brim instead of ending by them: between a job's start and its last paper, what ends is the job. Yields those that came.

    With `for_good` they stay noted where all went well: the process ends with the run, and its code is the job's.
    """
    came: list[int] = []
    previous: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # not the main thread: the caller keeps its own handlers
        previous = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in _ENDING}
    ended = False
    try:
        yield came
        ended = True
    finally:
        for number, handler in previous.items() if not (for_good and ended) else ():
            signal.signal(number, handler)


def _under_signals(governor: Governor, hands: Hands, child: Child, wakes: Wakes, early: "list[int]") -> Ending:
    """Govern with our own signals caught: each one ends the wait at once and takes the job's checkpoint path (a job that catches the same one gets it)."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    wakes.watch(reader, "signal", drain="read")

    def hand_on(number: int, _frame: object) -> None:
        hands.ending_signal = number
        governor.ask()

    previous: dict[int, Any] = {}
    try:
        previous = {number: signal.signal(number, hand_on) for number in _ENDING}
        if signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:  # Ctrl-Z
            previous[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, lambda _number, _frame: governor.ask_to_rest())
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    except ValueError:
        before = None  # not the main thread: the caller keeps its own handlers
    for number in early:  # while the job was made ready
        hand_on(number, None)
    try:
        child.release()
        return governor.govern()
    finally:
        if before is not None:
            signal.set_wakeup_fd(before)
        for number, handler in previous.items():
            signal.signal(number, handler)
        wakes.forget(reader)
        os.close(reader)
        os.close(writer)


def _may_glance(limits: "Limits", extras: Extras) -> bool:
    """Whether looks may be left out while nothing is near: not where each is shown to somebody, keeps something else going, or reaps for a whole container."""
    return extras.watch is None and extras.artifact is None and not extras.throughput[0] and limits.power_cap_w is None and os.getpid() != 1


def _vigils(
    child: Child, probe: "Probe", limits: "Limits", wakes: Wakes, page: "Page | None", clock: "Clock", devices: "tuple[Device, ...]"
) -> "Vigils | None":
    """The built loop that looks between glances; None where it was not built, or time is not the machine's."""
    loop = vigil.library() if isinstance(clock, SystemClock) else None
    where = getattr(probe, "asides", None)
    if loop is None or where is None:
        return None
    seldom = asides(loop, where(), quiet.asides(limits, devices), poll_ns=limits.poll_ns)
    orphans = [(vigil.child(loop, kind, of, how), 0, 0, False) for kind, of, how in child.waits()]
    return Vigils(loop, epoll=wakes.fileno(), page=page, asides=[*seldom, *orphans])


def _make_wakes(child: Child, group: Group, probe: "Probe", limits: "Limits", clock: "Clock") -> "tuple[Wakes, bool]":
    """Ask the kernel to wake us: at the end of the child, near the floor of the job's budget or of the group that limits us, when tasks wait for memory."""
    wakes, woken = Wakes(), False
    wakes.watch(child.pidfd, "child")
    budget, floor, margin = limits.budget("cpu"), limits.floor_bytes, limits.margin("cpu")
    if group.memory_dir and budget is not None:
        levels = [wakes.threshold(group.memory_dir, level) for level in (budget - floor - margin, budget - floor + 1)]
        woken = all(levels)
    host = probe.read(clock.now_ns()).host
    if isinstance(host.cgroup_limit_bytes, int) and isinstance(host.cgroup_path, str):
        folder = os.path.dirname(host.cgroup_path)
        levels = [wakes.threshold(folder, level) for level in (host.cgroup_limit_bytes - floor - margin, host.cgroup_limit_bytes - floor + 1)]
        woken = woken or (budget is None and all(levels))
    if group.memory_dir:
        wakes.events(f"{group.memory_dir}/memory.events")
    wakes.pressure("/proc/pressure/memory")
    return wakes, woken


def _power(limits: "Limits", devices: "tuple[Device, ...]") -> "dict[str, PowerCap]":
    """The cap of each governed NVIDIA card by its id; none where none was asked for."""
    cards = [device for device in devices if device.backend == "cuda" and limits.governs(device.id)]
    if limits.power_cap_w is None:
        return {}
    return {device.id: PowerCap(device.index if isinstance(device.physical_index, Missing) else device.physical_index, limits.power_cap_w) for device in cards}


def _struck(probe: "Probe", before: "int | Missing", now_ns: int) -> int:
    """How often the kernel's OOM killer has struck since, around the job (the group that holds us, else the whole machine); 0 where that is not told."""
    after = probe.read(now_ns).host.oom_kills
    return 0 if isinstance(before, Missing) or isinstance(after, Missing) else max(0, after - before)


def _finish(book: Book, ending: Ending, kills: "int | None", left: str, elsewhere: int = 0) -> RunResult:
    """Work out the exit code: the child's own, 75 where we stopped it, 9 where the kernel killed it and there is proof.

    Where the kernel killed another process of the job, or somebody around a job that was killed, the code is the child's own and the cause is the kernel: it is not retried unchanged.
    """
    own = 128 - ending.status if ending.status < 0 else ending.status
    by, reason, code = ending.by, ending.reason, own
    if by == "child" and kills and (ending.status == -signal.SIGKILL or own == 137):
        by, reason, code = "kernel", f"the kernel's OOM killer struck in the job's own group ({kills} time(s), by its counter)", KilledByOther.exit_code
    elif by == "child" and kills and own:
        reason = f"the kernel's OOM killer struck in the job's own group ({kills} time(s), by its counter), not at its first process, which ended by itself"
        ending = ending.replace(cause="kernel")
    elif by == "child" and own == 137 and elsewhere and not reason:
        reason = (
            f"killed (SIGKILL), most likely by the kernel: its OOM killer struck around this job {elsewhere} time(s) meanwhile, and its victims are not told"
        )
        ending = ending.replace(cause="kernel")
    elif by == "child" and own == 137 and not reason:
        why = "this system has no counter of the kernel's kills for the job" if kills is None else "no kill of the kernel's was counted in the job's own group"
        reason = f"killed (SIGKILL), cause unknown: {why}, and brim did not do it"
    elif by == "end":
        code = 0
    elif by in ("governor", "signal"):
        code = STOPPED
    body = {"exit_code": own, "by": by, "status": ending.status, "reason": reason, "after": ending.after, "oom_kills": kills}
    body |= {"cause": ending.cause, "peak_held_bytes": plain(ending.peak_held_bytes), "peak_mapped_bytes": plain(ending.peak_mapped_bytes)}
    book.journal.append("child_end", {**body, **({"left_behind": left} if left else {})}, deadline_ns=5_000_000_000)
    return RunResult(exit_code=code, run_dir=book.run_dir, report=book.close(code, by, reason, ending))


def _digest(run_dir: str) -> str:
    """Hash plan.json as it stands, for the journal: the prediction cannot be changed after the run. Empty where it could not be written."""
    from hashlib import sha256

    try:
        with open(os.path.join(run_dir, "plan.json"), "rb") as file:
            return sha256(file.read()).hexdigest()
    except OSError:
        return ""


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as fault:
        raise Unreadable(f"{path}: the run folder cannot be made: {fault.strerror}", hint="Give a writable --run-dir.") from None
    if os.path.exists(os.path.join(path, "journal.db")):
        raise Usage(f"{path}: already holds a run", hint="Give another --run-dir.")


def _nearest(prediction: "Prediction | None") -> str:
    if prediction is None or not prediction.suggestions:
        return "Use --force to start anyway; the limits stay enforced."
    return "; ".join(prediction.suggestions) + ". Or use --force to start anyway; the limits stay enforced."
