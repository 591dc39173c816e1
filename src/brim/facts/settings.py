"""The limits as we understood them, each with where it came from."""

from brim.values import Record


class Setting(Record):
    """One resolved value and its origin: `flag`, `environment NAME`, `profile PATH` or `default`."""

    value: object
    origin: str


class Limits(Record):
    """What `brim run` enforces. Bytes, nanoseconds, °C. None means that this limit is not set, and nothing is enforced for it.

    `memory_budget_bytes` bounds what the job holds on the host. `floor_bytes` is the free memory below which the job is stopped;
    `margin_bytes` above the floor begins throttling (DESIGN.md, section 4).
    """

    floor_bytes: int
    margin_bytes: int
    poll_ns: int
    grace_ns: int
    memory_budget_bytes: int | None = None
    origins: tuple[tuple[str, str], ...] = ()


DEFAULT_POLL_NS = 100_000_000
FASTEST_POLL_NS = 5_000_000
DEFAULT_GRACE_NS = 10_000_000_000
MARGIN_BYTES = 2 << 30
FLOOR_BYTES = 256 << 20


def limits(
    *,
    memory_budget_bytes: int | None = None,
    floor_bytes: int | None = None,
    margin_bytes: int | None = None,
    poll_ns: int | None = None,
    grace_ns: int | None = None,
    origin: str = "flag",
) -> Limits:
    """Limits with the defaults filled in and every origin remembered.

    The margin is 2 GiB, but at most an eighth of a memory budget. The floor is 256 MiB, but at most a sixteenth of a memory budget: it
    is the room in which a job may still end by itself after SIGTERM.
    """
    budget = memory_budget_bytes
    floor = floor_bytes if floor_bytes is not None else FLOOR_BYTES if budget is None else min(FLOOR_BYTES, budget // 16)
    margin = margin_bytes if margin_bytes is not None else MARGIN_BYTES if budget is None else min(MARGIN_BYTES, budget // 8)
    given = {"memory_budget_bytes": budget, "floor_bytes": floor_bytes, "margin_bytes": margin_bytes, "poll_ns": poll_ns, "grace_ns": grace_ns}
    return Limits(
        memory_budget_bytes=budget,
        floor_bytes=floor,
        margin_bytes=margin,
        poll_ns=poll_ns if poll_ns is not None else DEFAULT_POLL_NS,
        grace_ns=grace_ns if grace_ns is not None else DEFAULT_GRACE_NS,
        origins=tuple((name, origin if value is not None else "default") for name, value in given.items()),
    )
