"""The ledger of promises and admission: nothing is promised twice, dead owners are forgotten, what a job has allocated is no longer outstanding, waiting ends."""

import json
import multiprocessing
import os

import pytest

from brim.admission import admit, key_of, promised, take_seat
from brim.clock import FakeClock
from brim.facts.device import Budget, Device, Host, Memory, Process, Reading
from brim.facts.process import Identity, Usage
from brim.facts.promise import Promise, outstanding
from brim.ledger import Ledger
from brim.probes.process import ProcessProbe
from brim.values import Missing

GIB = 1 << 30


class Book:
    """Who lives, what their trees are and hold: a stand-in for the process probe."""

    def __init__(self, **births: int) -> None:
        self.births = {int(pid[1:]): birth for pid, birth in births.items()}
        self.held: dict[int, int] = {}

    def identity(self, pid: int):
        return Identity(pid=pid, birth=self.births[pid]) if pid in self.births else None

    def tree(self, leader: int) -> list[int]:
        return [leader]

    def usage(self, leader: Identity) -> Usage:
        return Usage(held_bytes=self.held.get(leader.pid, 0), mapped_file_bytes=0, peak_bytes=0, processes=1, by="test")


class Probe:
    """Readings in order, the last one for ever."""

    def __init__(self, *readings: Reading) -> None:
        self.readings = list(readings)

    def read(self, _now_ns: int) -> Reading:
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


def reading(now: int, *, processes: tuple[Process, ...] = (), ever: int = 20) -> Reading:
    budget = Budget(
        backend="cuda", total_bytes=now * GIB, usable_bytes=now * GIB, reserve_fraction=0.1, source="x", ever_bytes=ever * GIB, now_bytes=now * GIB
    )  # fmt: skip
    device = Device(id="cuda:0", backend="cuda", name="card", memory=Memory(), uuid="GPU-1", budget=budget, processes=processes)
    return Reading(at_ns=0, devices=(device,), host=Host())


ME = Identity(pid=10, birth=100)


def ask(tmp_path, book: Book, probe: Probe, needed: int, owner: Identity = ME, **options):
    ledger = Ledger(str(tmp_path / "promises.json"), book.identity)
    return admit({"cuda:0": needed * GIB}, probe=probe, ledger=ledger, processes=book, owner=owner, clock=options.pop("clock", FakeClock()), **options)


def test_two_launches_are_not_promised_the_same_memory(tmp_path) -> None:
    """The second is told that the rest is promised to another run; once the first has allocated, its promise is spent and its memory is simply not free."""
    book = Book(p10=100, p11=110, p20=200)
    assert ask(tmp_path, book, Probe(reading(15)), 10).admitted
    second = ask(tmp_path, book, Probe(reading(15)), 10, Identity(pid=11, birth=110))
    assert not second.admitted
    assert "10.00 GiB is promised to other runs" in second.sentence
    with Ledger(str(tmp_path / "promises.json"), book.identity) as ledger:
        ledger.settle(ME, Identity(pid=20, birth=200))
    loaded = reading(5, processes=(Process(pid=20, used_bytes=10 * GIB),))
    assert ask(tmp_path, book, Probe(loaded), 4, Identity(pid=11, birth=110)).admitted


def test_dead_owners_are_forgotten(tmp_path) -> None:
    """Who is gone, or is another process under the same pid, or lived in another boot, promises nothing; who cannot be told apart is kept."""
    path = str(tmp_path / "promises.json")
    book = Book(p1=10, p2=20, p3=30, p4=40)
    rows = [(1, 10, "b"), (2, 999, "b"), (9, 90, "b"), (3, 30, "old boot"), (4, None, "b")]
    with Ledger(path, lambda pid: Identity(pid=pid, birth=0), boot="b") as ledger:
        promises = [
            Promise(
                owner=Identity(pid=pid, birth=Missing(reason="denied", detail="") if birth is None else birth),
                device="host",
                promised_bytes=1,
                made_wall_ns=0,
                boot=boot,
            )
            for pid, birth, boot in rows
        ]
        ledger.add(*promises)
    with Ledger(path, book.identity, boot="b") as ledger:
        assert [promise.owner.pid for promise in ledger.promises()] == [1, 4]
        assert [promise.owner.pid for promise in ledger.promises(beside=Identity(pid=1, birth=10))] == [4]


@pytest.mark.parametrize("text", ["", "not json", "[]", "{}", "[1]", '[{"owner": 5}]', "null", "\x00\x01"])
def test_a_broken_book_starts_anew(tmp_path, text) -> None:
    """Whatever is in the file: no promise, no fault, and it can be written again."""
    path = tmp_path / "promises.json"
    path.write_text(text)
    with Ledger(str(path), lambda pid: Identity(pid=pid, birth=1)) as ledger:
        assert ledger.promises() == ()
        ledger.add(Promise(owner=Identity(pid=5, birth=1), device="host", promised_bytes=7, made_wall_ns=0))
    assert json.loads(path.read_text())[0]["promised_bytes"] == 7


def test_waiting_ends_when_the_memory_comes_back(tmp_path) -> None:
    """It says once what it waits for, sleeps between looks, and is admitted as soon as it fits; time is the clock's."""
    clock, said = FakeClock(), []
    held = (Process(pid=4242, used_bytes=12 * GIB, name="python"),)
    probe = Probe(reading(5, processes=held), reading(5, processes=held), reading(5, processes=held), reading(16))
    answer = ask(tmp_path, Book(p10=100), probe, 10, clock=clock, wait_ns=60 * 10**9, say=said.append)
    assert (answer.admitted, answer.waited_ns) == (True, 3 * 10**9)
    assert said == ["waiting: cuda:0: fits, but not now: 12.00 GiB of it is held by PID 4242 (python)"]


def test_waiting_has_an_end(tmp_path) -> None:
    """After the time given it is refused with the reason, and nothing stays promised; what can never fit is not waited for."""
    clock = FakeClock()
    answer = ask(tmp_path, Book(p10=100), Probe(reading(5)), 10, clock=clock, wait_ns=5 * 10**9)
    assert (answer.admitted, answer.waited_ns) == (False, 5 * 10**9)
    clock = FakeClock()
    assert (ask(tmp_path, Book(p10=100), Probe(reading(5)), 30, clock=clock, wait_ns=5 * 10**9).waited_ns, clock.now_ns()) == (0, 0)
    with Ledger(str(tmp_path / "promises.json"), Book(p10=100).identity) as ledger:
        assert ledger.promises() == ()


def test_a_card_with_a_hardware_fault_gets_no_job(tmp_path) -> None:
    """Case 39: However much is free on it, and however long one would wait: refused at once, with the fault (FIELD_CASES 39)."""
    sick = reading(15)
    sick = sick.replace(devices=(sick.devices[0].replace(faults=("row remapping failed (as XID 64 says): isolate this card",)),))
    clock = FakeClock()
    answer = ask(tmp_path, Book(p10=100), Probe(sick), 1, clock=clock, wait_ns=60 * 10**9, believed=True)
    assert (answer.admitted, clock.now_ns()) == (False, 0)
    assert "isolate this card" in answer.sentence


def test_one_pool_is_asked_once() -> None:
    """The host and what shares its memory have one name in the book; a card has its UUID, else its PCI id."""
    shared = Device(id="cuda:0", backend="cuda", name="GB10", memory=Memory(), uuid="GPU-9", unified=True)
    host = Device(id="cpu", backend="cpu", name="host", memory=Memory())
    assert key_of(shared) == key_of(host) == "host"
    assert key_of(shared.replace(unified=False)) == "GPU-9"
    assert key_of(shared.replace(unified=False, uuid=Missing(reason="denied", detail=""), pci_bus_id="0000:01:00.0")) == "0000:01:00.0"
    book = Book(p1=10, p2=20)
    book.held[2] = 3 * GIB
    promise = Promise(owner=Identity(pid=1, birth=10), device="host", promised_bytes=5 * GIB, made_wall_ns=0, job=Identity(pid=2, birth=20))
    assert promised(host, (promise,), book) == promised(shared, (promise,), book) == 2 * GIB


def test_what_is_not_told_stays_outstanding() -> None:
    """A driver that gives no memory per process cannot show that a promise is spent."""
    promise = Promise(owner=ME, device="GPU-1", promised_bytes=5, made_wall_ns=0)
    assert (outstanding(promise, 3), outstanding(promise, 9), outstanding(promise, Missing(reason="not_supported", detail=""))) == (2, 0, 5)


def test_a_seat_is_taken_told_and_left(tmp_path) -> None:
    """The real process probe: this process takes a seat, names its job, leaves; by force it is written down although it does not fit."""
    path = str(tmp_path / "book.json")
    options = {"path": path, "processes": ProcessProbe(), "pid": os.getpid(), "clock": FakeClock()}
    seat = take_seat({"cuda:0": 3 * GIB}, probe=Probe(reading(15)), **options)
    seat.sit(Identity(pid=os.getpid(), birth=1))
    assert json.loads((tmp_path / "book.json").read_text())[0]["promised_bytes"] == 3 * GIB
    seat.leave()
    assert json.loads((tmp_path / "book.json").read_text()) == []
    assert not take_seat({"cuda:0": 19 * GIB}, probe=Probe(reading(15)), **options).admission.admitted
    take_seat({"cuda:0": 19 * GIB}, probe=Probe(reading(15)), force=True, **options)
    assert json.loads((tmp_path / "book.json").read_text())[0]["promised_bytes"] == 19 * GIB
    assert take_seat({}, probe=Probe(reading(15)), **options).admission.admitted


def _contend(path: str, number: int, taken: "multiprocessing.Queue") -> None:
    book = Book(**{f"p{n}": n for n in range(1, 9)})
    answer = admit(
        {"cuda:0": 4 * GIB}, probe=Probe(reading(15)), ledger=Ledger(path, book.identity), processes=book, owner=Identity(pid=number, birth=number), clock=FakeClock()
    )  # fmt: skip
    taken.put(answer.admitted)


def test_eight_at_once_get_no_more_than_there_is(tmp_path) -> None:
    """Real processes under the real lock: of eight that ask for 4 GiB each of 15, three are admitted."""
    context = multiprocessing.get_context("fork")
    taken = context.Queue()
    workers = [context.Process(target=_contend, args=(str(tmp_path / "book.json"), number, taken)) for number in range(1, 9)]
    for worker in workers:
        worker.start()
    answers = [taken.get(timeout=30) for _ in workers]
    for worker in workers:
        worker.join()
    assert sum(answers) == 3
