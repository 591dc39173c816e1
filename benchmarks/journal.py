"""What the journal costs: bytes and time for a day at 1 Hz with eight GPUs, against the same rows in a bare SQLite table without a chain.

Run: python benchmarks/journal.py [seconds of the day, default 86400]. Prints one table; every figure beside its baseline is from the same run.
"""

import os
import random
import sqlite3
import sys
import tempfile
import time

from brim.journal import proof, store
from brim.records import canonical


class Clock:
    """A day in no time."""

    at = 0

    def now_ns(self) -> int:
        return self.at

    def wall_ns(self) -> int:
        return 1_780_000_000 * 10**9 + self.at

    def sleep_ns(self, nanoseconds: int) -> None:
        self.at += nanoseconds


def samples(seconds: int):
    """One sample a second: eight cards that drift and flicker, the host, the job."""
    draw = random.Random(20261130)
    free = [20 << 30] * 8
    for second in range(seconds):
        for card in range(8):
            free[card] += draw.randrange(-5, 6) << 20
        yield {
            "level": "run", "held_bytes": draw.randrange(1 << 34), "mapped_file_bytes": 96_576_768, "free_bytes": min(free), "processes": 9,
            **{
                f"cuda:{card}": {
                    "free_bytes": free[card], "held_bytes": (24 << 30) - free[card], "temperature_c": 60 + draw.randrange(10),
                    "power_draw_w": round(300 + draw.random() * 50, 1), "utilisation_percent": draw.randrange(90, 101),
                }
                for card in range(8)
            },
            "host": {"available_bytes": draw.randrange(1 << 36), "psi_some_avg10": round(draw.random(), 2)},
            "job": {"step": second // 2, "tokens": second * 4096, "phase": "train"},
        }  # fmt: skip


def with_chain(path: str, seconds: int) -> tuple[float, float, str]:
    clock = Clock()
    journal = store.Journal(path, clock)
    journal.append("begin", {"schema": "brim.journal/1", "brim": "bench", "command": [], "cwd": "/", "limits": {}})
    wall, cpu = time.perf_counter(), time.process_time()
    for body in samples(seconds):
        clock.at += 10**9
        journal.append("sample", body, durable=False)
    journal.append("end", {"exit_code": 0, "by": "child"})
    journal.close(10**12)
    return time.perf_counter() - wall, time.process_time() - cpu, journal.head


def bare(path: str, seconds: int) -> tuple[float, float]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("CREATE TABLE rows (seq INTEGER PRIMARY KEY, at INTEGER, body TEXT)")
    wall, cpu = time.perf_counter(), time.process_time()
    for second, body in enumerate(samples(seconds)):
        connection.execute("INSERT INTO rows VALUES (?,?,?)", (second, second, canonical(body)))
    connection.close()
    return time.perf_counter() - wall, time.process_time() - cpu


def durable_cost(path: str, times: int = 200) -> float:
    """Median seconds of one durable record: what an act waits for."""
    journal = store.Journal(path, Clock())
    took = []
    for index in range(times):
        start = time.perf_counter()
        journal.append("intent", {"kind": "stop", "reason": str(index)})
        took.append(time.perf_counter() - start)
    journal.close()
    return sorted(took)[times // 2]


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 86400
    with tempfile.TemporaryDirectory() as folder:
        path, plain = os.path.join(folder, "journal.db"), os.path.join(folder, "plain.db")
        wall, cpu, head = with_chain(path, seconds)
        wall_bare, cpu_bare = bare(plain, seconds)
        start = time.perf_counter()
        lines = len(store.events(path))
        opened = time.perf_counter() - start
        start = time.perf_counter()
        found = proof.prove(path, head, finished=True)
        proved = time.perf_counter() - start
        size, size_bare = os.path.getsize(path), os.path.getsize(plain)
        one = durable_cost(os.path.join(folder, "durable.db"))
    assert not found.faults, found.faults
    print(f"{seconds} s at 1 Hz × 8 GPUs, {found.count} lines\n")
    print("| | journal (chained, packed) | bare SQLite rows | ratio |\n|---|---:|---:|---:|")
    print(f"| size | {size / 2**20:.1f} MiB | {size_bare / 2**20:.1f} MiB | {size / size_bare:.3f} |")
    print(f"| CPU a sample | {cpu / seconds * 1e6:.0f} µs | {cpu_bare / seconds * 1e6:.0f} µs | {cpu / cpu_bare:.2f} |")
    print(f"| wall a sample, written as fast as possible | {wall / seconds * 1e6:.0f} µs | {wall_bare / seconds * 1e6:.0f} µs | {wall / wall_bare:.2f} |")
    print(f"\nopen and read the {lines} events: {opened * 1e3:.1f} ms; verify everything: {proved:.2f} s; one durable record: {one * 1e3:.2f} ms (median)")


if __name__ == "__main__":
    main()
