"""Admit a launch: look at the machine, count what others were promised, decide, and write the new promise down, all under one lock; or wait for the memory to come back.

The decision is `availability`'s, the store is `ledger`'s; this room only joins them. While it waits it holds no lock.
"""

from brim.availability import DOES_NOT_FIT, FITS, NOT_NOW, UNFIT, Availability, availability
from brim.facts.process import Identity
from brim.facts.promise import Promise, outstanding
from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from brim.facts.device import Device, Reading
    from brim.ledger import Ledger
    from brim.prediction import Prediction
    from brim.seams import Clock, Probe, ProcessProbe

LOOK_EVERY_NS = 1_000_000_000


class Admission(Record):
    """What was decided, per device, and how long it was waited for (ns). `admitted` is true where every device has the memory now."""

    admitted: bool
    devices: tuple[Availability, ...]
    waited_ns: int

    @property
    def sentence(self) -> str:
        """The first thing that is in the way, else `fits`."""
        return next((f"{item.device}: {item.sentence}" for item in self.devices if item.verdict != FITS), FITS)


def key_of(device: "Device") -> str:
    """What names a device's memory for good: the host's pool for the host and what shares it, else UUID, PCI id or id."""
    if device.backend == "cpu" or device.unified:
        return "host"
    return next((word for word in (device.uuid, device.pci_bus_id) if isinstance(word, str) and word), device.id)


def promised(device: "Device", promises: "tuple[Promise, ...]", processes: "ProcessProbe") -> int:
    """What living runs were promised on this device's memory and have not allocated yet, in bytes."""
    total = 0
    for promise in promises:
        if promise.device == key_of(device):
            total += outstanding(promise, _held(promise, device, processes))
    return total


def _held(promise: Promise, device: "Device", processes: "ProcessProbe") -> "int | Missing":
    """What the promise's own processes hold of the device now; nothing before there is a job."""
    if promise.job is None:
        return 0
    now = processes.identity(promise.job.pid)
    if now is None or now.is_same(promise.job) is False:
        return 0
    if promise.device == "host":
        return processes.usage(promise.job).held_bytes
    if isinstance(device.processes, Missing):
        return device.processes
    tree = set(processes.tree(promise.job.pid))
    own = [process.used_bytes for process in device.processes if process.pid in tree]
    known = [used for used in own if isinstance(used, int)]
    return sum(known) if len(known) == len(own) else Missing(reason="not_supported", detail="the driver does not tell what the job holds")


def admit(
    needed: "Mapping[str, int]",
    *,
    probe: "Probe",
    ledger: "Ledger",
    processes: "ProcessProbe",
    owner: Identity,
    clock: "Clock",
    wait_ns: "int | None" = None,
    run_dir: str = "",
    believed: bool = False,
    say: "Callable[[str], None]" = lambda _line: None,
) -> Admission:
    """Promise `needed` (device id → bytes) to `owner`, now or within `wait_ns` (None: now or never). Nothing is promised where it is not admitted.

    `believed`: the gate has said yes (by an override, or by force), so only what is short at this moment stands in the way.
    """
    begun = clock.now_ns()
    said = ""
    while True:
        with ledger:
            answers = _answers(needed, probe.read(clock.now_ns()), ledger.promises(beside=owner), processes)
            bars = (NOT_NOW, UNFIT) if believed else (NOT_NOW, UNFIT, DOES_NOT_FIT)
            if all(answer.verdict not in bars for _key, answer in answers):
                like = Promise(owner=owner, device="", promised_bytes=0, made_wall_ns=clock.wall_ns(), boot=ledger.boot, run_dir=run_dir)
                ledger.add(*(like.replace(device=key, promised_bytes=item.needed_bytes) for key, item in answers))
                return Admission(admitted=True, devices=tuple(item for _key, item in answers), waited_ns=clock.now_ns() - begun)
        waited = clock.now_ns() - begun
        refused = Admission(admitted=False, devices=tuple(item for _key, item in answers), waited_ns=waited)
        hopeless = {UNFIT} if believed else {UNFIT, DOES_NOT_FIT}
        if wait_ns is None or waited >= wait_ns or any(item.verdict in hopeless for item in refused.devices):
            return refused
        if refused.sentence != said:
            said = refused.sentence
            say(f"waiting: {said}")
        clock.sleep_ns(min(LOOK_EVERY_NS, wait_ns - waited))


def _answers(needed: "Mapping[str, int]", reading: "Reading", promises: "tuple[Promise, ...]", processes: "ProcessProbe") -> "list[tuple[str, Availability]]":
    """One answer a device. Devices that share the host's pool are asked for the sum of what is needed of it: one pool, counted once."""
    found = []
    by_id = {device.id: device for device in reading.devices}
    shared = sum(count for ident, count in needed.items() if ident in by_id and key_of(by_id[ident]) == "host")
    for ident, count in needed.items():
        device = by_id.get(ident)
        if device is None:
            continue
        key = key_of(device)
        whole = shared if key == "host" else count
        answer = availability(whole, ident, device.budget, holders=device.processes, promised_bytes=promised(device, promises, processes))
        if device.faults:
            answer = answer.replace(verdict=UNFIT, sentence=f"not fit for a job: {'; '.join(device.faults)}")
        found.append((key, answer.replace(needed_bytes=count)))
    return found


class Seat:
    """A run's place in the book of promises: taken before the launch, told its job, left at the end. Without a ledger it is only a look."""

    def __init__(self, ledger: "Ledger | None", owner: Identity, admission: Admission) -> None:
        self._ledger, self._owner, self.admission = ledger, owner, admission

    def sit(self, job: Identity) -> None:
        """The job has started: what its tree holds is no longer outstanding."""
        if self._ledger is not None:
            with self._ledger:
                self._ledger.settle(self._owner, job)

    def leave(self) -> None:
        """The run is over: nothing is promised any more."""
        if self._ledger is not None:
            with self._ledger:
                self._ledger.release(self._owner)


def needs(prediction: "Prediction | None") -> dict[str, int]:
    """What a prediction asks of each real device, in bytes: the high end where that fits, else what is likely. Nothing where it was not priced."""
    if prediction is None:
        return {}
    items = [item for item in prediction.gate.devices if not item.device.budget.hypothetical]
    asked = {item.device.id: item.required.high if item.fits else item.required.likely for item in items}
    return {ident: count for ident, count in asked.items() if count > 0}


def take_seat(
    needed: "Mapping[str, int]",
    *,
    path: str,
    probe: "Probe",
    processes: "ProcessProbe",
    pid: int,
    clock: "Clock",
    wait_ns: "int | None" = None,
    force: bool = False,
    run_dir: str = "",
    say: "Callable[[str], None]" = lambda _line: None,
) -> Seat:
    """Admit this process's run and write it into the book at `path` ("": no book is kept). With `force` it is written down whatever the answer."""
    from brim.ledger import Ledger, boot_id

    owner = processes.identity(pid)
    if not path or not needed or owner is None:
        return Seat(None, owner or Identity(pid=pid, birth=Missing(reason="gone", detail="")), Admission(admitted=True, devices=(), waited_ns=0))
    ledger = Ledger(path, processes.identity, boot=boot_id())
    try:
        answer = admit(
            needed, probe=probe, ledger=ledger, processes=processes, owner=owner, clock=clock, wait_ns=wait_ns, run_dir=run_dir, believed=True, say=say
        )  # fmt: skip
        if force and not answer.admitted:
            with ledger:
                boot, stamp = ledger.boot, clock.wall_ns()
                rows = {device.id: key_of(device) for device in probe.read(clock.now_ns()).devices}
                ledger.add(
                    *(Promise(owner=owner, device=rows.get(i, i), promised_bytes=n, made_wall_ns=stamp, boot=boot, run_dir=run_dir) for i, n in needed.items())
                )
    except OSError:  # a state folder that cannot be written costs the promise, not the run
        return Seat(None, owner, Admission(admitted=True, devices=(), waited_ns=0))
    return Seat(ledger, owner, answer)
