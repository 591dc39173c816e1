"""The price of a llama.cpp workload against the bytes that the engine itself gave out, and the promises that no row can show."""

import json

import pytest

from brim.engines.llama_cpp import caches, context, hparams, mtp, price, reserve, weights
from brim.engines.llama_cpp.allocator import Arena
from brim.engines.llama_cpp.price import next_token_context
from brim.engines.llama_cpp.program import Program
from brim.facts.device import DeviceSpec
from brim.facts.workload import LlamaWorkload
from tests.allocations import MIB, PARTS, checkpoint_of, devices_of, drafting, measured, priced, reserved, rows, workload_of

CARD = DeviceSpec(id="cuda:0", backend="cuda", total_bytes=24 << 30, free_bytes=24 << 30)
SHAPES = sorted({row["model"] for row in rows()})


@pytest.mark.parametrize("model", SHAPES)
def test_measured_allocations(model) -> None:
    """Every fifth measured run of each model: weights, context and compute of each device to the printed digits; no high edge below the truth."""
    for row in [row for row in rows() if row["model"] == model][::5]:
        plan = price(checkpoint_of("shapes", model), workload_of(row), devices_of(row))
        assert not plan.missing
        for device, truth in measured(row).items():
            for kind, figure in truth.items():
                if row["set"] == "ftype" and kind == "weights":
                    continue  # the file of that run has other types than the shape
                # the one known exception: files of other types join the shared expert differently
                allowed = 0.02 * figure if row["set"] == "ftype" and model == "qwen3-next-80b-a3b" else 0.001
                assert abs(priced(plan, device, kind) - figure) <= allowed, (row, device, kind)
                assert priced(plan, device, kind, "high") >= figure - 0.001, (row, device, kind)


def test_reserved_on_the_cpu() -> None:
    """Every made-up model: the replay gives the very bytes that the engine reserves, in all settings, with all layers and with repeats left out."""
    wrong = []
    for name, made, asked, compute, memory in reserved():
        hp = hparams.read(made)
        assert isinstance(hp, hparams.Hparams), (name, hp)
        found = context.Context(asked, hp, 11434)
        kept, placement = caches.remember(hp, found), weights.place(hp, asked, ())
        whole = reserve.reserve(hp, found, kept, placement, whole=True).allocated["cpu"]
        part = reserve.reserve(hp, found, kept, placement).allocated["cpu"]
        plan = price(made, asked, ())
        held = sum(part.bytes.likely for part in plan.parts if part.name in PARTS["context"])
        if not (whole == part == compute and abs(held - memory) <= 4096):
            wrong.append((name, asked.ctx, whole, part, compute, held, memory))
    assert not wrong, wrong


def test_the_context_of_next_token_blocks() -> None:
    """Every architecture with such a block, and EAGLE 3, DFlash and DSpark drafts: the draft's graph, before and with its sampler, and its cache are the engine's to the byte."""
    wrong, seen = [], set()
    for name, made, asked, sampled, compute, memory in drafting():
        hp = hparams.read(made)
        assert isinstance(hp, hparams.Hparams), (name, hp)
        seen.add(hp.arch)
        found = context.Context(asked, hp, 11434).drafting(sampled=sampled, block=hp.arch in mtp.BLOCKS)
        _, laid = reserve.remembered(hp, found, weights.place(hp, asked, (), load_mtp=True))
        parts, wanting = next_token_context(made, asked, (), version=11434)
        held = sum(part.bytes.likely for part in parts if part.name in PARTS["context"])
        work = next((part.bytes for part in parts if part.name == "compute_buffer"), None)
        if wanting or laid.allocated["cpu"] != compute or held != memory or work is None or not work.low <= compute <= work.high:
            wrong.append((name, asked.ctx, sampled, laid.allocated, compute, held, memory, wanting))
    assert not wrong, wrong
    assert seen == {*mtp.BLOCKS, *hparams.DRAFTS}


@pytest.mark.parametrize("kind", ["price", "draft"])
def test_a_model_and_its_next_token_blocks_settle_flash_attention_each_for_itself(kind) -> None:
    """`--flash-attn auto` of one context says nothing of the other's: the answers are those of a process that asks for one alone, whichever was asked for first."""
    made = next(made for name, made, *_ in drafting() if name == "mtp-nemotron")
    card = DeviceSpec(id="cuda:0", backend="cuda", total_bytes=80 << 30, free_bytes=20 << 30, compute_capability=610)
    asked = LlamaWorkload(ctx=37561, ubatch=64, slots=2, ctk="q8_0", gpu_layers=99, kv_offload=False, outputs=16, load_mtp=True)

    def answer(which):
        return price(made, asked, (card,)).parts if which == "price" else next_token_context(made, asked, (card,), version=11434)

    reserve.forget()
    alone = answer(kind)
    reserve.forget()
    answer("draft" if kind == "price" else "price")
    assert answer(kind) == alone


def test_every_part_is_argued() -> None:
    """Every part has a rule with its own figure in it, and a source."""
    plan = price(checkpoint_of("shapes", "gemma-3-12b"), LlamaWorkload(ctx=8192), (CARD,))
    for part in plan.parts:
        assert part.source
        assert part.name == "context_overhead" or str(part.bytes.likely) in part.rule.replace(" ", ""), part


@pytest.mark.parametrize("model", SHAPES)
def test_more_costs_more(model) -> None:
    """More context, more slots, more layers on the card, wider cache types: the part that they govern never shrinks."""
    made, start = checkpoint_of("shapes", model), LlamaWorkload(ctx=4096, slots=1, gpu_layers=8)

    def held(asked, device, kind):
        return priced(price(made, asked, (CARD,)), device, kind)

    assert held(start, "cuda:0", "context") <= held(start.replace(ctx=8192), "cuda:0", "context")
    assert held(start, "cuda:0", "weights") < held(start.replace(gpu_layers=12), "cuda:0", "weights")
    assert held(start.replace(ctk="q4_0", ctv="q4_0"), "cuda:0", "context") <= held(start, "cuda:0", "context")
    both = [priced(price(made, start.replace(gpu_layers=count), (CARD,)), "cpu", "context") for count in (0, 99)]
    assert both[0] >= both[1]


def test_older_builds() -> None:
    """A build before a rule changed is priced with the rule of its day."""
    made = checkpoint_of("shapes", "llama-3.2-1b")
    asked = LlamaWorkload(ctx=4000, slots=1, flash_attn="off")
    cells = {build: price(made, asked, (), version=build).workload["ctx"] for build in (6500, 11434)}
    assert cells == {6500: 4000, 11434: 4096}
    asked = asked.replace(flash_attn="on")
    assert price(made, asked, (), version=6500).workload["ctx"] == 4096  # flash attention's kernels needed whole blocks already
    small = {build: priced(price(made, asked, (), version=build), "cpu", "compute") for build in (6500, 11434)}
    assert small[6500] > 4 * 512 * 128256 / MIB > small[11434]  # logits of every token of a micro-batch, then of the wanted ones only


def test_arena_fits_best() -> None:
    """The allocator takes the smallest hole that fits, joins holes that touch, and gives the end back."""
    arena = Arena(128)
    first, second, third, fourth = (arena.take(size) for size in (256, 512, 128, 1024))
    arena.give(first, 256)
    arena.give(third, 128)
    assert arena.take(128) == third
    arena.give(third, 128)
    arena.give(second, 512)
    assert arena.take(896) == first
    arena.give(fourth, 1024)
    assert arena.high == 256 + 512 + 128 + 1024
    assert arena.take(4096) == first + 896


def test_two_cards_share_by_free_memory() -> None:
    """Layers are shared out by free memory, and by -ts where it is given."""
    made = checkpoint_of("shapes", "llama-3.1-8b")
    cards = tuple(DeviceSpec(id=f"cuda:{index}", backend="cuda", total_bytes=24 << 30, free_bytes=free << 30) for index, free in enumerate((20, 4)))
    plan = price(made, LlamaWorkload(ctx=4096), cards)
    assert priced(plan, "cuda:0", "context") == 28 / 32 * 512
    split = price(made, LlamaWorkload(ctx=4096, tensor_split=(1.0, 1.0)), cards)
    assert priced(split, "cuda:0", "context") == 17 / 32 * 512
    assert price(made, LlamaWorkload(ctx=4096, split_mode="none", main_gpu=1), cards).parts[1].device == "cuda:1"


def test_unknown_is_named() -> None:
    """An architecture without a replay answers what is missing and prices nothing."""
    made = checkpoint_of("shapes", "llama-3.2-1b").replace(
        architecture="t5", metadata={**checkpoint_of("shapes", "llama-3.2-1b").metadata, "general.architecture": "t5"}
    )
    plan = price(made, LlamaWorkload(ctx=4096), ())
    assert plan.missing
    assert not plan.parts


def test_vulkan_says_what_it_does_not_know() -> None:
    """Another backend than CUDA gets a span and a word on it, and a buffer over a driver's single allocation is named."""
    card = DeviceSpec(id="vulkan:0", backend="vulkan", total_bytes=48 << 30, free_bytes=48 << 30)
    plan = price(checkpoint_of("shapes", "llama-3.1-8b"), LlamaWorkload(ctx=131072), (card,))
    compute = next(part for part in plan.parts if part.name == "compute_buffer" and part.device == "vulkan:0")
    assert compute.bytes.low < compute.bytes.likely < compute.bytes.high
    assert any("one allocation" in said for said in plan.caveats)


def test_public_logs() -> None:
    """Caches and recurrent states of public logs are equal to the printed digits; none that is priced differs."""
    from tests.evidence.llamacpp_logs import compare

    rows = [row for row in compare() if row[2] is not None]
    assert len(rows) >= 100
    assert not [(row[0]["id"], *row[1:]) for row in rows if row[4] != "equal"]


def test_device_totals_of_public_logs() -> None:
    """Each device of each log of llama.cpp, priced by the rules of its build, is within 3 % of the log, but for those with a sentence that says why."""
    from tests.evidence.llamacpp_logs import EXPLAINED, off, totals

    rows = [row for row in totals() if row[3] is not None]
    assert len(rows) >= 40
    far = [(row[1]["id"], row[2], round(off(row[3], row[4]), 2)) for row in rows if abs(off(row[3], row[4])) > 3 and (row[1]["id"], "compute") not in EXPLAINED]
    assert not far
    assert sum(abs(off(row[3], row[4])) <= 0.05 for row in rows) >= 37


# (build, devices, workload) → MiB of the card's compute buffer; each pair lies on both sides of one rule, read in the sources of the two builds
BY_BUILD = [
    ("the mask is f32 and cast on the card", 9409, 9415, LlamaWorkload(ctx=65536, flash_attn="on", program="llama-cli"), "compute_buffer"),
    ("llama-server's logits are capped", 9453, 9464, LlamaWorkload(ctx=4096, slots=1), "compute_buffer"),
    ("a second input stage", 11393, 11401, LlamaWorkload(ctx=4096, slots=1), "compute_buffer"),
    ("four slots by themselves", 6900, 6925, LlamaWorkload(ctx=4096), "output_buffer"),
    ("the output layer first", 7489, 7490, LlamaWorkload(ctx=4096, slots=1, gpu_layers=8), "weights"),
    ("streams of their own", 6074, 6075, LlamaWorkload(ctx=8192, slots=4, flash_attn="off"), "compute_buffer"),
    ("gate and product apart", 5779, 5780, LlamaWorkload(ctx=512, ubatch=512, flash_attn="on", program="llama-cli", outputs=1), None),
]


@pytest.mark.parametrize(("what", "before", "after", "asked", "part"), BY_BUILD, ids=[row[0] for row in BY_BUILD])
def test_rules_change_with_the_build(what, before, after, asked, part) -> None:
    """The price differs between the last build with an old rule and the first with the new one, in the part that the rule is about."""
    model = checkpoint_of("shapes", "qwen3-8b")

    def sizes(version):
        plan = price(model, asked, (CARD,), version=version)
        assert not plan.missing
        return {(one.name, one.device): one.bytes.likely for one in plan.parts}

    old, new = sizes(before), sizes(after)
    changed = {name for (name, _device), size in old.items() if size != new.get((name, _device))}
    assert (part in changed) if part else changed <= {"compute_buffer"}, what


@pytest.mark.parametrize(("name", "card", "host"), [("file-qwen38-27b-vulkan-8k-mtp", 568.18, 112.07), ("file-qwen35-9b-vulkan-8k-4seq", 416.44, 96.07)])
def test_vulkan_runs_nodes_in_an_order_of_its_own(name, card, host) -> None:
    """Two public logs of 2026 with a micro-batch of 2048 (their host lines say it): both compute buffers to the printed digits, and not without the order."""
    from brim.engines.llama_cpp import reserve, vulkan
    from tests.logs import cards_of, logs, opened, workload_of

    log = next(log for log in logs() if log["id"] == name)
    log = {**log, "hparams": {**log["hparams"], "feed_forward_length": log["hparams"]["feed_forward_length"] or 12288}}
    cards = cards_of(log)
    asked = workload_of(log, cards).replace(ubatch=2048, program="llama-server", gpu_layers=99)
    sizes = []
    for version in (10000, vulkan.REORDERED - 1):
        reserve.forget()
        plan = price(opened(log), asked, tuple(spec for _, spec in cards), version=version)
        sizes.append([round(part.bytes.likely / (1 << 20), 2) for part in plan.parts if part.name == "compute_buffer"])
    assert sizes[0] == [card, host]
    assert sizes[1] != sizes[0]


def test_two_cards_of_an_older_build_hold_what_their_log_says(tmp_path) -> None:
    """A run of January 2025 (llama.cpp issue 11200: 64 layers as 41 and 23, q8_0 caches, a pipeline): both caches and all three compute buffers to the printed digits."""
    from brim.checkpoint import open_checkpoint

    keys = {
        "context_length": 32768,
        "embedding_length": 5120,
        "block_count": 64,
        "feed_forward_length": 27648,
        "attention.head_count": 40,
        "attention.head_count_kv": 8,
        "vocab_size": 152064,
    }
    shape = tmp_path / "shape.json"
    shape.write_text(
        json.dumps(
            {"name": "q", "file_type": "Q4_K_M", "metadata": {"general.architecture": "qwen2", **{f"qwen2.{key}": value for key, value in keys.items()}}}
        )
    )
    cards = tuple(DeviceSpec(id=f"cuda:{i}", backend="cuda", total_bytes=24 << 30, free_bytes=24 << 30) for i in range(2))
    asked = LlamaWorkload(ctx=32768, slots=1, batch=512, ubatch=256, ctk="q8_0", ctv="q8_0", flash_attn="on", gpu_layers=99, tensor_split=(41, 24))
    plan = price(open_checkpoint(str(shape)), asked, cards, version=4440)
    sizes = {(part.name, part.device): round(part.bytes.likely / (1 << 20), 2) for part in plan.parts if part.name in ("kv_cache", "compute_buffer")}
    assert sizes == {
        ("kv_cache", "cuda:0"): 2788.0, ("kv_cache", "cuda:1"): 1564.0, ("compute_buffer", "cuda:0"): 233.0, ("compute_buffer", "cuda:1"): 237.51, ("compute_buffer", "cpu"): 133.01,
    }  # fmt: skip


def test_the_window_of_older_builds() -> None:
    """Cells of the sliding cache by build: all of them, a batch beside the window, a micro-batch, padded to 32 or to 256."""
    model = checkpoint_of("shapes", "gpt-oss-20b")
    cells = {}
    for version, flash in ((5434, "off"), (5435, "off"), (5550, "off"), (6165, "on"), (7100, "on")):
        plan = price(model, LlamaWorkload(ctx=8192, slots=1, flash_attn=flash, program="llama-cli"), (), version=version)
        found = [part.rule for part in plan.parts if part.name == "kv_cache_swa"]
        cells[version] = int(found[0].split(" × ")[1].split()[0]) if found else 0
    assert cells == {5434: 0, 5435: 2176, 5550: 640, 6165: 768, 7100: 768}


def test_a_pipeline_needs_devices_with_events() -> None:
    """Two RPC servers ran without copies of the inputs before b11053, and always without the host's weights."""
    servers = tuple(DeviceSpec(id=f"rpc:{i}", backend="rpc", total_bytes=80 << 30, free_bytes=80 << 30) for i in range(2))
    model = checkpoint_of("shapes", "qwen3-8b")
    sizes = {}
    for version in (10605, 11053):
        plan = price(model, LlamaWorkload(ctx=32768, slots=1), servers, version=version)
        sizes[version] = sum(part.bytes.likely for part in plan.parts if part.name == "compute_buffer")
    assert sizes[10605] < sizes[11053]


def test_without_tensors_the_header_still_prices_the_caches() -> None:
    """A header without a directory: caches and output buffer as with one, and the plan says what is lacking."""
    model = checkpoint_of("shapes", "qwen3-8b")
    full, bare = (price(one, LlamaWorkload(ctx=4096), ()) for one in (model, model.replace(tensors=())))
    assert "lists no tensors" in bare.missing[0]
    keep = ("kv_cache", "output_buffer")
    assert [(part.name, part.bytes) for part in bare.parts] == [(part.name, part.bytes) for part in full.parts if part.name in keep]


def test_what_was_compared_on_the_cpu_only_says_so_on_a_card() -> None:
    """A graph that was compared on the CPU is exact there and has a narrow span on a card; one compared on cards is exact on both."""
    made = checkpoint_of("models", "command-r")
    for devices, exact in (((), True), ((CARD,), False)):
        part = next(part for part in price(made, LlamaWorkload(ctx=4096), devices).parts if part.name == "compute_buffer")
        assert (part.bytes.low == part.bytes.high) is exact
        assert part.bytes.high <= 1.07 * part.bytes.low
    known = price(checkpoint_of("shapes", "qwen3-8b"), LlamaWorkload(ctx=4096), (CARD,))
    assert all(part.bytes.low == part.bytes.high for part in known.parts if part.name == "compute_buffer")


@pytest.mark.parametrize("model", ["qwen3-8b", "gemma-3-12b", "deepseek-v2-lite", "qwen3-next-80b-a3b", "gpt-oss-20b"])
def test_a_recorded_walk_gives_the_same_bytes(model, monkeypatch) -> None:
    """From the third length on, buffers come from a recorded walk: the plan of a fresh layout, words included, on the CPU, on a card and on both."""
    made, ran = checkpoint_of("shapes", model), []
    run = Program.run
    monkeypatch.setattr(Program, "run", lambda program, cells: ran.append(cells) or run(program, cells))
    for devices, layers, flash in (((), None, "on"), ((CARD,), 99, "off"), ((CARD,), 3, "on")):
        asked = LlamaWorkload(slots=4, gpu_layers=layers, flash_attn=flash, kv_unified=True)
        reserve.forget()
        plans = {ctx: price(made, asked.replace(ctx=ctx), devices) for ctx in (8192, 20224, 65536, 12288, 40960, 99840)}
        for ctx, plan in plans.items():
            reserve.forget()
            fresh = price(made, asked.replace(ctx=ctx), devices)
            assert plan == fresh, ctx
    assert len(ran) >= 6


@pytest.mark.parametrize("model", SHAPES)
def test_what_was_priced_before_changes_nothing(model) -> None:
    """Splits whose walked layers are alike share one graph: every seventh split, with and without experts on the host, priced in a row and alone, is the same plan."""
    made = checkpoint_of("shapes", model)
    blocks = int(made.metadata[f"{made.architecture}.block_count"])
    asks = [
        LlamaWorkload(ctx=4096, slots=1, gpu_layers=layers, cpu_experts=experts)
        for experts in (None, blocks // 2)
        for layers in (1, 4, *range(7, blocks + 2, 7), blocks)
    ]
    reserve.forget()
    together = [price(made, asked, (CARD,)) for asked in asks]
    wrong = []
    for asked, plan in zip(asks, together, strict=True):
        reserve.forget()
        if price(made, asked, (CARD,)).parts != plan.parts:
            wrong.append(asked)
    assert not wrong
