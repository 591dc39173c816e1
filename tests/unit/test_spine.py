"""The pure spine: budgets, gate, planner, policy and the llama.cpp price of dense models."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim import budget
from brim.engines.base import Part, Plan
from brim.engines.llama_cpp import price
from brim.engines.llama_cpp.log import buffers
from brim.facts.device import Device, Host, Memory
from brim.facts.dtypes import ggml_tensor_bytes
from brim.facts.model import Checkpoint, Tensor
from brim.facts.settings import limits
from brim.facts.workload import LlamaWorkload
from brim.gate import judge
from brim.planner import LOOK_AHEAD, highest, largest
from brim.units import GIB, MIB, Span
from brim.values import Missing
from tests.gguf_bytes import dense_llama

GONE = Missing(reason="failed", detail="nothing answered")


@pytest.mark.parametrize(
    ("host", "reserve", "override", "total", "usable", "words"),
    [
        (Host(total_bytes=100), None, None, 100, 80, "MemTotal"),
        (Host(total_bytes=100, cgroup_limit_bytes=50, cgroup_path="/g"), None, None, 50, 40, "cgroup"),
        (Host(total_bytes=100, cgroup_limit_bytes=1 << 63, cgroup_path="/g"), None, None, 100, 80, "MemTotal"),
        (Host(total_bytes=100), 0.0, None, 100, 100, "MemTotal"),
        (Host(total_bytes=100), 7.5, None, 100, 0, "MemTotal"),
        (Host(total_bytes=100), -3.0, None, 100, 100, "MemTotal"),
        (Host(total_bytes=100), float("nan"), None, 100, 100, "MemTotal"),
        (Host(total_bytes=100), None, 77, 77, 77, "overrides"),
        (Host(total_bytes=GONE), None, None, GONE, GONE, "nothing answered"),
        (Host(total_bytes=GONE), None, 77, 77, 77, "overrides"),
    ],
)
def test_host_budgets(host, reserve, override, total, usable, words) -> None:
    """The lowest of RAM and the cgroup limit, less a reserve clamped to 0…1; the override stands for all; unknown stays unknown."""
    found = budget.of_host(host, reserve=reserve, override=override)
    assert (found.total_bytes, found.usable_bytes) == (total, usable)
    assert words in found.source


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), (" 5\n", 5), (None, None), ("", None), ("0", None), ("-5", None), ("5GiB", None), ("1e9", None), ("٥", None)]
)
def test_the_override_is_trimmed_and_else_ignored_with_a_warning(text, value) -> None:
    """A value that does not parse, or is not positive, is ignored with a warning."""
    found, warning = budget.parse_override(text)
    assert found == value
    assert (warning is None) == (value is not None or text is None)


def test_budget_sentences() -> None:
    """The line that a person reads, word for word."""
    known = budget.of_host(Host(total_bytes=100 * GIB))
    assert budget.sentence(known) == "cpu budget: 80.00 GiB usable of 100.00 GiB total (20% held back) via physical RAM (MemTotal in /proc/meminfo)"
    assert budget.sentence(budget.of_host(Host(total_bytes=GONE))) == "cpu budget: unknown (nothing answered); no ceiling enforced"


def device(usable_of: int, available: "int | Missing" = 1 << 60) -> Device:
    host = Host(total_bytes=usable_of)
    return Device(id="cpu", backend="cpu", name="x", memory=Memory(available_bytes=available), budget=budget.of_host(host, reserve=0.5))


def plan(low: int, likely: int, high: int, *missing: str) -> Plan:
    part = Part(name="weights", device="cpu", bytes=Span(low=low, likely=likely, high=high), rule="r", source="s")
    return Plan(engine="e", engine_version="1", parts=(part,), workload={}, missing=missing)


@pytest.mark.parametrize(
    ("span", "total", "verdict", "words"),
    [
        ((10, 10, 10), 20, "fits", "to spare"),
        ((10, 10, 11), 20, "cannot_tell", "inside the uncertainty"),
        ((11, 11, 11), 20, "does_not_fit", "only without the reserve"),
        ((21, 22, 23), 20, "does_not_fit", "short by 12 B"),
    ],
)
def test_the_gate_judges_by_the_ends_of_the_span(span, total, verdict, words) -> None:
    """`fits` means the high end fits, `does_not_fit` that the low end does not; between them the gate cannot tell."""
    answer = judge(plan(*span), (device(total),))
    assert answer.verdict == verdict
    assert words in answer.reasons[0]


def test_the_gate_never_guesses() -> None:
    """An unpriced part or an unknown budget gives `cannot_tell`; what does not fit now is said apart."""
    assert judge(plan(1, 1, 1, "something"), (device(100),)).verdict == "cannot_tell"
    blind = device(100).replace(budget=budget.of_host(Host(total_bytes=GONE)))
    assert judge(plan(1, 1, 1), (blind,)).verdict == "cannot_tell"
    busy = judge(plan(40, 40, 40), (device(100, available=30),))
    assert busy.verdict == "fits"
    assert "not now" in busy.reasons[0]


@given(st.integers(0, 5000), st.integers(1, 64), st.lists(st.integers(-300, 300), min_size=80, max_size=80), st.integers(0, 5000))
def test_the_largest_fits_and_the_next_does_not(most: int, step: int, noise: list[int], ceiling: int) -> None:
    """Also where the cost is not monotone: the answer fits, and one step more does not (or is above the most)."""

    def fits(value: int) -> bool:
        return value + noise[value // step % len(noise)] <= ceiling

    found = largest(fits, most=most, step=step)
    assert found % step == 0
    assert found == 0 or fits(found)
    assert found + step > most or not fits(found + step)


def test_defaults_of_floor_and_margin() -> None:
    """The default margin is 2 GiB, but at most an eighth of a memory budget, the floor at most a sixteenth; what was given is taken and remembered as given."""
    assert limits().margin("cpu") == 2 * GIB
    assert limits(memory_budget_bytes=8 * GIB).meaning("cpu").margin("cpu") == GIB
    assert limits(memory_budget_bytes=800 * MIB).meaning("cpu").margin("cpu") == 100 * MIB
    assert limits(memory_budget_bytes=800 * MIB, throttle_margin_bytes=300 * MIB).meaning("cpu").margin("cpu") == 300 * MIB
    assert (limits().floor_bytes, limits(memory_budget_bytes=800 * MIB).floor_bytes) == (256 * MIB, 50 * MIB)
    assert dict(limits(floor_bytes=5).origins)["floor_bytes"] == "flag"
    assert dict(limits().origins)["floor_bytes"] == "default"


def checkpoint(**shape: int) -> Checkpoint:
    metadata, rows = dense_llama(**shape)
    tensors = tuple(Tensor(name=n, dims=tuple(d), dtype=k, offset=0, stored_bytes=ggml_tensor_bytes(k, tuple(d)), elements=1) for n, d, k in rows)
    return Checkpoint(form="gguf", source="x", name="x", architecture="llama", metadata=metadata, tensors=tensors, file_bytes=0, shape=GONE)


SMALL = {"layers": 4, "width": 512, "heads": 8, "kv_heads": 2, "feed_forward": 1024, "vocab": 1000}


@given(st.integers(1, 65536), st.integers(1, 8), st.booleans(), st.sampled_from(["f16", "q8_0", "q4_0"]))
def test_dense_plans_add_up_and_grow_with_the_context(ctx: int, slots: int, unified: bool, kind: str) -> None:
    """Parts sum to the total; a longer context never has a smaller cache; q4_0 never a larger one than f16."""
    asked = LlamaWorkload(ctx=ctx, slots=slots, kv_unified=unified, ctk=kind, ctv=kind)
    small = price(checkpoint(**SMALL), asked, ())
    assert not small.missing
    assert small.total().likely == sum(part.bytes.likely for part in small.parts)
    longer = price(checkpoint(**SMALL), asked.replace(ctx=ctx + 256), ())
    cache = {name: next(p.bytes.likely for p in found.parts if p.name == "kv_cache") for name, found in (("short", small), ("long", longer))}
    assert cache["short"] <= cache["long"]


def test_what_is_not_priced_is_named() -> None:
    """An architecture, an option or a key that is not known gives a plan without parts that says what is missing."""
    known = checkpoint(**SMALL)
    for wrong, words in (
        (known.replace(architecture="unheard-of"), "unheard-of"),
        (known.replace(metadata={k: v for k, v in known.metadata.items() if k != "llama.block_count"}), "llama.block_count"),
        (known.replace(metadata={**known.metadata, "llama.attention.head_count": 0}), "head_count"),
        (known.replace(tensors=()), ""),
    ):
        found = price(wrong, LlamaWorkload(), ())
        assert found.missing
        assert words in " ".join(found.missing)


def test_engine_logs_are_read() -> None:
    """The buffers that llama.cpp prints, to the printed digits; other lines are passed over."""
    log = (
        "0.1 I load_tensors:   CPU_Mapped model buffer size =    92.10 MiB\nllama_kv_cache:        CPU KV buffer size =    45.00 MiB\nKV buffer size = x MiB\n"
    )
    assert [(item.part, item.buffer, item.bytes) for item in buffers(log)] == [("weights", "CPU_Mapped", round(92.10 * MIB)), ("kv_cache", "CPU", 45 * MIB)]


@settings(max_examples=200)
@given(limit=st.integers(0, 5000), count=st.integers(1, 5000), lie=st.integers(-10_000, 10_000), start=st.integers(-5, 5005))
def test_a_guess_saves_prices_and_cannot_change_the_answer(limit: int, count: int, lie: int, start: int) -> None:
    """Whatever is guessed and wherever it starts, the answer is the last that fits; a good guess needs few prices."""
    asked: list[int] = []

    def fits(index: int) -> bool:
        asked.append(index)
        return index < limit

    expected = min(limit, count) - 1
    assert highest(fits, count, lambda low, high: lie) == (None if expected < 0 else expected)
    assert highest(fits, count, lambda low, high: lie, start) == (None if expected < 0 else expected)
    asked.clear()
    assert highest(fits, count, lambda low, high: limit - 1) == (None if expected < 0 else expected)
    if 0 < limit < count:
        assert len(set(asked)) <= 4 + LOOK_AHEAD


def test_a_reports_total_sets_only_the_hosts_parts_against_the_hosts_memory() -> None:
    """What lies on a card is no part of what the process tree held: the total row compares the host with the host."""
    from brim.facts.process import Ending
    from brim.prediction import Prediction
    from brim.reports.documents import _compare

    on_both = Plan(
        engine="e",
        engine_version="1",
        parts=tuple(
            Part(name="weights", device=where, bytes=Span(low=n, likely=n, high=n), rule="r", source="s") for where, n in (("cuda:0", 900), ("cpu", 100))
        ),
        workload={},
    )
    answer = Prediction(
        checkpoint=checkpoint(**SMALL), plan=on_both, gate=judge(on_both, ()), max_ctx=None, max_ctx_is_trained=False, suggestions=(), caveats=()
    )
    seen = {"status": 0, "by": "child", "reason": "", "peak_held_bytes": 70, "peak_mapped_bytes": 40, "lowest_free_bytes": 1, "level_ns": {}, "looks": 1}
    row = _compare(answer, Ending(**seen), [])[-1]
    assert (row["part"], row["predicted_bytes"], row["measured_bytes"], row["difference_bytes"]) == ("total", 100, 110, 10)
