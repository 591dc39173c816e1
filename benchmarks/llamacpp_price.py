"""What a price of llama.cpp costs: one replay of an 80-layer model, one from memory, and a sweep of ten thousand settings, as ratios to `json.dumps` of the same header in the same run.

Prints one row a case. Nothing is asserted: figures belong to the machine that made them.
"""

import json
import statistics
import time

from tests.gguf_bytes import dense_llama
from tests.unit.test_spine import checkpoint

from brim.engines.llama_cpp import price, reserve
from brim.facts.device import DeviceSpec
from brim.facts.workload import LlamaWorkload

EIGHTY = {"layers": 80, "width": 8192, "heads": 64, "kv_heads": 8, "feed_forward": 28672, "vocab": 128256}
CARD = (DeviceSpec(id="cuda:0", backend="cuda", total_bytes=80 << 30, free_bytes=80 << 30),)


def timed(work, rounds):
    """Median seconds of a call."""
    spent = []
    for index in range(rounds):
        began = time.perf_counter()
        work(index)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def main() -> None:
    """Measure and print."""
    model = checkpoint(**EIGHTY)
    header = json.dumps(dense_llama(**EIGHTY), default=str)
    base = timed(lambda _: json.dumps(json.loads(header)), 50)
    print(f"baseline: read and write the same header as JSON, {1000 * base:.2f} ms")

    def fresh(index, devices):
        reserve.forget()
        assert not price(model, LlamaWorkload(ctx=4096 + 256 * index, slots=1), devices).missing

    def sweep(devices):
        began = time.perf_counter()
        for index in range(10_000):
            asked = LlamaWorkload(
                ctx=1024 * (1 + index % 50), slots=1 + index // 50 % 4, gpu_layers=index // 200 % 50, ctk=("f16", "q8_0")[index % 2], ctv="f16"
            )
            price(model, asked, devices)
        return time.perf_counter() - began

    rows = [
        ("one price, graph replayed, CPU", timed(lambda index: fresh(index, ()), 30)),
        ("one price, graph replayed, one card", timed(lambda index: fresh(index, CARD), 30)),
        ("one price asked for again", timed(lambda _: price(model, LlamaWorkload(ctx=4096, slots=1), CARD), 200)),
        ("10,000 prices: 50 contexts, 4 slot counts, 50 splits", sweep(CARD)),
    ]
    for name, seconds in rows:
        print(f"{name:55} {1000 * seconds:10.2f} ms   {seconds / base:10.1f} ×")


if __name__ == "__main__":
    main()
