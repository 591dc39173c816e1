"""The book of promises: a small file under a lock, so that two launches at the same time are not promised the same memory; it stores and forgets, it does not decide.

A promise dies with its owner: who is gone, or is another process under the same pid, or lived in an earlier boot, is forgotten at the next look. An owner that cannot be
looked at is kept. The file is replaced as a whole under the lock; one that cannot be read starts anew, since its only loss is a warning less. Without `fcntl` (Windows) there is no lock.
"""

import json
import os

from brim.facts.process import Identity
from brim.facts.promise import Promise
from brim.values import Missing

try:
    import fcntl
except ImportError:  # Windows: promises are kept without a lock
    fcntl = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self


class Ledger:
    """`with Ledger(path, identity) as book:` holds the lock; `identity` says who has a pid now (None: nobody)."""

    def __init__(self, path: str, identity: "Callable[[int], Identity | None]", *, boot: str = "") -> None:
        self._path, self._identity, self.boot = path, identity, boot
        self._lock = -1
        self._book: list[Promise] = []

    def __enter__(self) -> "Self":
        """Wait for the lock, read the book, forget the dead."""
        os.makedirs(os.path.dirname(self._path) or ".", exist_ok=True)
        self._lock = os.open(self._path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if fcntl is not None:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._book = [promise for promise in self._read() if self._lives(promise)]
        return self

    def __exit__(self, *_fault: object) -> None:
        """Let the lock go."""
        os.close(self._lock)
        self._lock = -1

    def promises(self, *, beside: "Identity | None" = None) -> tuple[Promise, ...]:
        """The promises of living owners, without those of `beside` (oneself)."""
        return tuple(promise for promise in self._book if beside is None or promise.owner != beside)

    def add(self, *promises: Promise) -> None:
        """Write promises down; the file is on the disk's way before this returns."""
        self._book.extend(promises)
        self._write()

    def settle(self, owner: Identity, job: Identity) -> None:
        """Note the job that the owner has launched."""
        self._book = [promise.replace(job=job) if promise.owner == owner else promise for promise in self._book]
        self._write()

    def release(self, owner: Identity) -> None:
        """Strike out everything that was promised to an owner."""
        self._book = [promise for promise in self._book if promise.owner != owner]
        self._write()

    def _lives(self, promise: Promise) -> bool:
        if promise.boot and self.boot and promise.boot != self.boot:
            return False
        now = self._identity(promise.owner.pid)
        return now is not None and now.is_same(promise.owner) is not False

    def _read(self) -> list[Promise]:
        try:
            with open(self._path, encoding="utf-8") as file:
                rows: Any = json.loads(file.read(1 << 20) or "[]")
            return [_promise(row) for row in rows]
        except (OSError, ValueError, TypeError, KeyError):
            return []

    def _write(self) -> None:
        rows = [_row(promise) for promise in self._book]
        new = f"{self._path}.new"
        with open(new, "w", encoding="utf-8") as file:
            json.dump(rows, file)
        os.replace(new, self._path)


def _row(promise: Promise) -> "dict[str, Any]":
    return {
        "owner": _who(promise.owner), "device": promise.device, "promised_bytes": promise.promised_bytes, "made_wall_ns": promise.made_wall_ns, "boot": promise.boot,
        "job": None if promise.job is None else _who(promise.job), "run_dir": promise.run_dir,
    }  # fmt: skip


def _who(identity: Identity) -> "list[int | None]":
    return [identity.pid, None if isinstance(identity.birth, Missing) else identity.birth]


def _identity(row: "list[Any]") -> Identity:
    pid, birth = row
    return Identity(pid=int(pid), birth=Missing(reason="not_supported", detail="not written down") if birth is None else int(birth))


def _promise(row: "dict[str, Any]") -> Promise:
    return Promise(
        owner=_identity(row["owner"]), device=str(row["device"]), promised_bytes=int(row["promised_bytes"]), made_wall_ns=int(row["made_wall_ns"]), boot=str(row["boot"]),
        job=None if row["job"] is None else _identity(row["job"]), run_dir=str(row["run_dir"]),
    )  # fmt: skip


def boot_id() -> str:
    """What tells this boot from others; empty where the kernel does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(64).strip()
    except OSError:
        return ""
