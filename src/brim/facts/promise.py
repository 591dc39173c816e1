"""What a governed run has been promised on a device: who owns the promise, how much, and when; frozen, no I/O."""

from brim.facts.process import Identity
from brim.values import Missing, Record


class Promise(Record):
    """Memory that a run was admitted with, in bytes. `device` is what does not change (UUID, PCI id, `host`), `owner` the governor's own process.

    `job` is the launched process once there is one: what its tree holds is no longer outstanding. `boot` tells two boots apart, since births start anew.
    """

    owner: Identity
    device: str
    promised_bytes: int
    made_wall_ns: int
    boot: str = ""
    job: "Identity | None" = None
    run_dir: str = ""


def outstanding(promise: Promise, held_bytes: "int | Missing") -> int:
    """What the run may still allocate: the promise less what its processes hold now. Where nobody tells what they hold, all of it."""
    return promise.promised_bytes if isinstance(held_bytes, Missing) else max(0, promise.promised_bytes - held_bytes)
