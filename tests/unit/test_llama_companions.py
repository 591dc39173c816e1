"""What runs beside the model: draft, MTP context, projector, adapters, and what the host grows by; each part where it belongs and summed as it is said."""

import json

import pytest

from brim import api
from brim.asking import companions as read_companions
from brim.asking import fit_llama
from brim.engines.llama_cpp import price
from brim.engines.llama_cpp.companions import Companions, price_with
from brim.engines.llama_cpp.defaults import resolve
from brim.engines.llama_cpp.encoders import audio, vision
from brim.engines.llama_cpp.growth import growth, warnings
from brim.facts.device import DeviceSpec
from brim.facts.dtypes import ggml_tensor_bytes
from brim.facts.model import Checkpoint, Tensor
from brim.facts.workload import LlamaWorkload
from brim.lineup import hypothetical
from brim.units import GIB, MIB
from brim.values import Missing
from tests.allocations import drafting
from tests.cli.test_fit_and_solve import shape

CARD = DeviceSpec(id="cuda:0", backend="cuda", total_bytes=8 * GIB, free_bytes=8 * GIB)


@pytest.fixture
def model(tmp_path) -> Checkpoint:
    """A small dense llama from a shape file."""
    path = tmp_path / "small.json"
    path.write_text(json.dumps(shape()))
    return api.read(str(path))


def beside(tensors: list, metadata: dict, name: str = "beside") -> Checkpoint:
    """A checkpoint of these (name, dims, type) rows."""
    rows = tuple(Tensor(name=n, dims=tuple(d), dtype=t, offset=0, stored_bytes=ggml_tensor_bytes(t, tuple(d)), elements=0) for n, d, t in tensors)
    return Checkpoint(
        form="gguf", source=name, name=name, architecture=str(metadata.get("general.architecture", "")), metadata=metadata, tensors=rows, file_bytes=0,
        shape=Missing(reason="not_supported"),
    )  # fmt: skip


def added(model: Checkpoint, workload: LlamaWorkload, companion: Companions, devices: tuple[DeviceSpec, ...] = (CARD,)) -> list:
    """The parts that a companion adds to the plan."""
    resolved, _ = resolve(workload)
    alone = price(model, resolved, devices)
    together = price_with(model, resolved, devices, companion, version=11434, price=price)
    assert together.parts[: len(alone.parts)] == alone.parts
    assert not together.missing, together.missing
    return list(together.parts[len(alone.parts) :])


def test_a_draft_is_a_model_of_its_own(model: Checkpoint) -> None:
    """Its weights, its cache as long as the target's in its own types, its own graph, one row of logits a slot; no second device context."""
    workload = LlamaWorkload(ctx=8192, slots=2, ctk="q8_0", ctv="q8_0", draft_model="d", spec_types=("draft-simple",))
    parts = added(model, workload, Companions(draft=model))
    own = price(model, resolve(LlamaWorkload(ctx=8192, slots=2))[0].replace(outputs=2), (CARD,))
    assert {part.name for part in parts} == {"draft"}
    assert sum(part.bytes.likely for part in parts) == sum(part.bytes.likely for part in own.parts if part.name != "context_overhead")
    assert any("draft model's kv_cache" in part.rule for part in parts)
    on_host = added(model, workload.replace(draft_gpu_layers=0), Companions(draft=model))
    assert sum(part.bytes.likely for part in on_host if part.device == "cuda:0") < sum(part.bytes.likely for part in parts if part.device == "cuda:0")


def test_the_mtp_context_has_a_cache_of_its_block_alone(model: Checkpoint) -> None:
    """One block x cells x a row; without such a block in the header it cannot be told."""
    resolved, _ = resolve(LlamaWorkload(ctx=4096, slots=1, spec_types=("draft-mtp",)))
    plan = price_with(model, resolved, (CARD,), Companions(), version=11434, price=price)
    assert any("MTP" in line for line in plan.missing)
    with_block = model.replace(metadata={**model.metadata, "llama.nextn_predict_layers": 1})
    parts = [part for part in price_with(with_block, resolved, (CARD,), Companions(), version=11434, price=price).parts if part.name == "draft"]
    assert parts[0].bytes.likely == 4096 * 2 * (128 + 128)
    assert any(not part.bytes.exact for part in parts)


def test_a_draft_with_a_next_token_block_runs_that_block() -> None:
    """With --spec-type draft-mtp the draft file's block is priced, not its trunk: one layer's cache, weights of the whole file."""
    name, made, _, _, _, memory = next(row for row in drafting() if row[0] == "mtp-qwen35" and row[2].slots == 1 and not row[3])
    resolved, _ = resolve(LlamaWorkload(ctx=2048, slots=1, draft_model="d", spec_types=("draft-mtp",)))
    plan = price_with(made, resolved, (), Companions(draft=made), version=11434, price=price)
    parts = [part for part in plan.parts if part.name == "draft"]
    assert sum(part.bytes.likely for part in parts if "'s kv_cache" in part.rule) == memory, name
    assert any("draft model's weights" in part.rule for part in parts)
    assert not plan.missing


def test_an_assistant_has_no_cache_of_its_own(model: Checkpoint) -> None:
    """Gemma 4's assistant reads its target's caches: weights, a graph, rows of logits, and the target's hidden states."""
    _, made, _, _, compute, memory = next(row for row in drafting() if row[0] == "gemma4-assistant" and row[2].slots == 1 and not row[3])
    resolved, _ = resolve(LlamaWorkload(ctx=2048, slots=1, draft_model="d", spec_types=("draft-mtp",), flash_attn="on"))
    plan = price_with(model, resolved, (), Companions(draft=made), version=11434, price=price)
    parts = [part for part in plan.parts if part.name == "draft"]
    assert not plan.missing
    assert memory == 0
    assert not any("cache" in part.rule.partition(":")[0] for part in parts)
    assert any("compute_buffer" in part.rule and part.bytes.low <= compute <= part.bytes.high for part in parts)
    assert any(part.rule.startswith("hidden states") for part in parts)


@pytest.mark.parametrize(("name", "kind", "layers"), [("eagle3", "draft-eagle3", 3), ("dflash", "draft-dflash", 5), ("dspark", "draft-dspark", 5)])
def test_a_draft_makes_the_model_keep_the_inputs_of_its_target_layers(model: Checkpoint, name: str, kind: str, layers: int) -> None:
    """Its cache is its own layers'; the rows kept for it are the target's width, a batch of them."""
    _, made, _, _, _, memory = next(row for row in drafting() if row[0] == name and row[2].slots == 1)
    resolved, _ = resolve(LlamaWorkload(ctx=2048, slots=1, draft_model="d", spec_types=(kind,)))
    plan = price_with(model, resolved, (CARD,), Companions(draft=made), version=11434, price=price)
    parts = [part for part in plan.parts if part.name == "draft"]
    assert not plan.missing
    assert sum(part.bytes.likely for part in parts if "'s kv_cache" in part.rule) == memory
    width = model.metadata["llama.embedding_length"]
    assert [part.bytes.high for part in parts if part.device == "cpu" and "rows of a batch" in part.rule] == [4 * layers * width * 2048]
    assert any(part.device == "cuda:0" and f"inputs of {layers} layers" in part.rule for part in parts)


def test_an_adapter_lies_beside_what_it_changes(model: Checkpoint) -> None:
    """Pairs on the card of their layer, on the host where the layer is; the graph's growth is a span from nothing; norms are skipped."""
    rank = 8
    pairs = [("blk.0.attn_q.weight.lora_a", [512, rank], "F32"), ("blk.0.attn_q.weight.lora_b", [rank, 512], "F32"), ("blk.7.ffn_norm.weight", [512], "F32")]
    adapter = beside(pairs, {"general.architecture": "llama", "general.type": "adapter"})
    size = 4 * 512 * rank * 2
    parts = added(model, LlamaWorkload(ctx=4096, slots=1, lora=("a",)), Companions(adapters=(adapter,)))
    assert [(part.device, part.bytes.likely) for part in parts] == [("cuda:0", size), ("cuda:0", 0)]
    assert parts[1].bytes.low == 0 < parts[1].bytes.high
    host = added(model, LlamaWorkload(ctx=4096, slots=1, lora=("a",), gpu_layers=1), Companions(adapters=(adapter,)))
    assert host[0].device == "cpu"


def clip(kind: str, **more: object) -> Checkpoint:
    """A projector of one layer with a vision encoder of the size that gemma 3 has."""
    metadata = {
        "general.architecture": "clip", "clip.projector_type": kind, "clip.vision.embedding_length": 1152, "clip.vision.feed_forward_length": 4304,
        "clip.vision.patch_size": 14, "clip.vision.image_size": 896, "clip.vision.attention.head_count": 16, **more,
    }  # fmt: skip
    return beside([("v.blk.0.attn_q.weight", [1152, 1152], "F16"), ("mm.weight", [1152, 100], "F16")], metadata)


def test_a_projector_lies_on_the_first_card_or_the_host(model: Checkpoint) -> None:
    """All tensors padded on one device; its encoder's room beside them; --no-mmproj-offload moves both."""
    weights = 2 * 1152 * 1152 + 2 * 1152 * 100
    parts = added(model, LlamaWorkload(ctx=4096, slots=1, mmproj="p"), Companions(projector=clip("gemma3")))
    assert parts[0].bytes.likely == weights // 128 * 128 + (128 if weights % 128 else 0)
    assert {part.device for part in parts} == {"cuda:0"}
    moved = added(model, LlamaWorkload(ctx=4096, slots=1, mmproj="p", mmproj_offload=False), Companions(projector=clip("gemma3")))
    assert {part.device for part in moved} == {"cpu"}


def test_the_encoders_widest_moment() -> None:
    """4096 patches of gemma 3: inputs, two rows and the hidden rows; without flash attention a score matrix; an unknown projector has a wide span."""
    found = vision(clip("gemma3"), LlamaWorkload())
    assert found is not None
    patches, row = 64 * 64, 4 * 64 * 64 * 1152
    assert found[0].likely == 4 * 3 * 896 * 896 + 5 * row // 2 + 4 * patches * 4304
    off = vision(clip("gemma3"), LlamaWorkload(flash_attn="off"))
    assert off is not None
    assert off[0].likely == 4 * 3 * 896 * 896 + 5 * row + 4 * patches * patches * 16
    strange = vision(clip("telescope"), LlamaWorkload())
    assert strange is not None
    assert strange[0].high > 3 * strange[0].likely > 9 * strange[0].low
    small = vision(clip("pixtral"), LlamaWorkload(image_max_tokens=64))
    large = vision(clip("pixtral"), LlamaWorkload())
    assert small is not None
    assert large is not None
    assert small[0].likely < large[0].likely < large[0].high
    assert "grow" in large[1]
    assert vision(beside([], {}), LlamaWorkload()) is None
    assert audio(beside([], {})) is None
    heard = audio(beside([], {"clip.audio.embedding_length": 1280, "clip.audio.feed_forward_length": 5120}))
    assert heard is not None
    assert heard[0].low < heard[0].likely < heard[0].high


# (projector, width, feed-forward, heads, patch, image, gated, scale factor) and the compute buffer in MiB that llama.cpp b11434 reserves on the CPU for such a file, with
# and without flash attention (`mtmd_get_memory_usage` less the weights; files whose data is a hole)
MEASURED = [
    ("gemma3", 1152, 4304, 16, 14, 896, False, 0, 121.25, 1132.00),
    ("mlp", 1024, 4096, 16, 14, 336, False, 0, 21.55, 32.88),
    ("idefics3", 1152, 4304, 16, 14, 364, False, 3, 20.01, 39.77),
    ("kimivl", 1152, 4304, 16, 14, 896, False, 2, 34.87, 88.80),
    ("internvl", 1024, 4096, 16, 14, 448, False, 2, 28.03, 80.14),
    ("qwen2vl_merger", 1280, 5120, 16, 14, 560, False, 0, 267.08, 4598.27),
    ("pixtral", 1024, 4096, 16, 16, 1024, True, 0, 16.56, 16.06),
    ("qwen2.5vl_merger", 1280, 3420, 16, 14, 560, True, 0, 704.79, 4871.57),
]


@pytest.mark.parametrize("row", MEASURED, ids=[row[0] for row in MEASURED])
def test_the_span_holds_what_the_engine_reserves(row: tuple) -> None:
    """Eight projectors, flash attention kept and off: the engine's own figure lies in the span, and the likely end is within two fifths of it."""
    kind, width, feed, heads, patch, image, gated, scale, kept, off = row
    keys = {
        "clip.projector_type": kind, "clip.vision.embedding_length": width, "clip.vision.feed_forward_length": feed, "clip.vision.attention.head_count": heads,
        "clip.vision.patch_size": patch, "clip.vision.image_size": image, **({"clip.vision.projector.scale_factor": scale} if scale else {}),
    }  # fmt: skip
    tensors = [("v.blk.0.ffn_gate.weight", [width, feed], "F16")] if gated else []
    for flash, measured in (("auto", kept), ("off", off)):
        found = vision(beside(tensors, keys), LlamaWorkload(flash_attn=flash))
        assert found is not None
        assert found[0].low <= measured * MIB <= found[0].high, (flash, found[0].likely / MIB)
        assert abs(found[0].likely / MIB / measured - 1) < 0.4


def test_a_companion_that_cannot_be_read_cannot_be_told(model: Checkpoint) -> None:
    """A draft, projector or adapter that is not there is named in `missing`, and the verdict is cannot_tell."""
    workload = resolve(LlamaWorkload(ctx=4096, slots=1, draft_model="/nowhere/d.gguf", lora=("/nowhere/l.gguf",)))[0]
    found, missing = read_companions(workload, api.read)
    assert found == Companions()
    assert len(missing) == 2
    answer = fit_llama(model, (workload,), (hypothetical("cuda", 0, 8 * GIB, reserve=None),), read=api.read, version=11434)
    assert answer.verdict == "cannot_tell"
    assert any("draft model" in line for line in answer.reasons)


def test_the_host_grows_by_prompts_and_checkpoints(model: Checkpoint) -> None:
    """The prompt cache up to its limit; checkpoints of window and state by slot; nothing for a program that keeps none; said against the host's budget."""
    resolved, _ = resolve(LlamaWorkload(ctx=4096, slots=2))
    plan = price(model, resolved, ())
    parts = growth(plan, resolved)
    assert [(part.name, part.bytes.low, part.bytes.high) for part in parts] == [("prompt_cache", 0, 8192 * MIB)]
    assert growth(plan, resolve(LlamaWorkload(program="llama-completion", ctx=4096))[0]) == ()
    assert growth(plan, resolve(LlamaWorkload(ctx=4096, slots=2, cache_ram_mib=0))[0]) == ()
    window = plan.replace(parts=(*plan.parts, plan.parts[0].replace(name="kv_cache_swa"), plan.parts[0].replace(name="recurrent_state")))
    held = plan.parts[0].bytes.likely
    checkpoints = growth(window, resolved)[1]
    assert checkpoints.bytes.high == (held // 2 + held // 2) * 32 * 2
    tight = warnings(plan, parts, plan.on("cpu").high + 100 * MIB)
    assert "--cache-ram between 0 and 100" in tight[0]
    assert warnings(plan, parts, plan.on("cpu").high)[0].endswith("give --cache-ram 0")  # less than 0 would be no limit
    assert warnings(plan, parts, None)
    assert warnings(plan, (), None) == ()
