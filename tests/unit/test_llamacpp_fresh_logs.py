"""Logs that were gathered after the engine model stood: what each promises, row by row; what is not kept is named with its reason in the evidence script."""

from collections import Counter

import pytest

from brim.engines.llama_cpp import price
from brim.engines.llama_cpp.constants import overhead
from brim.engines.llama_cpp.context import ASKED_ROWS, HOST_WORK, METAL_OFFLOAD, OLLAMA_SERVES, PIPELINES
from brim.engines.llama_cpp.quantisation import fused, quantise, tensor_types
from brim.facts.device import DeviceSpec
from brim.implied import variants
from tests.evidence.llamacpp_fresh_logs import EXPLAINED, UNLOGGED, compared
from tests.fresh_logs import opened, rows, workload_of
from tests.logs import is_fork

KEPT = ("kv", "kv_swa", "recurrent", "output")
IDS = [row["id"] for row in rows()]


@pytest.mark.parametrize("row", rows(), ids=IDS)
def test_caches_states_and_output_are_those_of_the_log(row) -> None:
    """To the printed digits; the forks' caches too, but for where their split over cards is not said."""
    parts = KEPT if not is_fork(row) else ("kv",)
    for part, device, value, _, _, logged, why in compared(row):
        if part in parts and not why:
            assert value == pytest.approx(logged, abs=0.011 if not is_fork(row) else 0.05), (part, device)


@pytest.mark.parametrize("row", [row for row in rows() if not is_fork(row)], ids=[row["id"] for row in rows() if not is_fork(row)])
def test_compute_buffers_are_those_of_the_log(row) -> None:
    """To the printed digits, or inside the span of builds that the log may be of; the others have a sentence that says why."""
    for part, device, value, low, high, logged, why in compared(row):
        if part == "compute" and not why and (row["id"], part, device) not in EXPLAINED:
            assert value == pytest.approx(logged, abs=0.011) or low - 0.011 <= logged <= high + 0.011, device


@pytest.mark.parametrize("row", [row for row in rows() if row["weights"].get("tensors") and row["weights"]["file_type"]], ids=lambda row: row["id"])
def test_the_directory_that_a_header_implies_has_the_tensors_of_the_file(row) -> None:
    """As many of each type as the log counts; files made with a mix of their own apart."""
    counted = row["weights"]["tensors"]
    if None in counted.values() or row["id"] == "mixtral-8x7b-metal-512":
        pytest.skip("the log counts some of them, or a file of before experts were joined")
    assert Counter(tensor.dtype for tensor in opened(row).tensors) == {kind.upper(): count for kind, count in counted.items()}


def test_the_older_quantiser_had_rules_of_its_own_for_fused_values() -> None:
    """A fused matrix of queries, keys and values was Q5_K in Q4_K_M and Q6_K in Q5_K_M (b4435, b6165); now it follows the rule of values."""
    made = opened(next(row for row in rows() if row["id"] == "starcoder-15b-metal-2k"))
    assert fused(made)
    older = {kind for name, kind in tensor_types(made, "Q5_K_M", older=True).items() if "attn_qkv.weight" in name}
    newer = {kind for name, kind in tensor_types(made, "Q5_K_M").items() if "attn_qkv.weight" in name}
    assert (older, newer) == ({"Q6_K"}, {"Q5_K", "Q6_K"})
    assert quantise(made, "Q5_K_M", older=True).file_bytes > quantise(made, "Q5_K_M").file_bytes


def _sized(name: str, part: str, build: int, *backends: str, **asked: object) -> "dict[str, tuple[int, int, int]]":
    """Device → (low, likely, high) of one part of a row's model on other cards and builds."""
    row = next(row for row in rows() if row["id"] == name)
    cards = tuple(DeviceSpec(id=f"{backend}:{index}", backend=backend, total_bytes=256 << 30, free_bytes=256 << 30) for index, backend in enumerate(backends))
    plan = price(opened(row), workload_of(row, []).replace(tensor_split=(), **asked), cards, version=build)
    return {one.device: (one.bytes.low, one.bytes.likely, one.bytes.high) for one in plan.parts if one.name == part}


@pytest.mark.parametrize(
    ("backend", "build", "stays"),
    [
        ("metal", METAL_OFFLOAD - 1, True),
        ("metal", METAL_OFFLOAD, False),
        ("cuda", METAL_OFFLOAD - 1, False),
        ("cuda", HOST_WORK - 1, True),
        ("cuda", HOST_WORK, False),
    ],
)
def test_where_a_card_takes_no_work_of_the_host_its_layers_attend_there(backend, build, stays) -> None:
    """ggml-metal.m `offload_op` was false to b6165, and takes products since; CUDA's came with PR 6083."""
    scores = 4 * 32 * 128000 * 512  # 32 heads of F32 over all cells
    assert (_sized("granite-code-8b-ollama-metal-ngl20-128k", "compute_buffer", build, backend)["cpu"][1] > scores) is stays


def test_ollamas_own_runner_keeps_hidden_rows_beside_the_logits() -> None:
    """Until it launched llama-server (PR 16031)."""
    name = "granite-code-8b-ollama-metal-ngl20-128k"
    own, serves = (_sized(name, "output_buffer", build, "metal")["cpu"][1] for build in (OLLAMA_SERVES - 1, OLLAMA_SERVES))
    assert (own, serves) == (4 * (49152 + 4096), 4 * 49152)


def test_early_builds_keep_output_rows_for_the_whole_batch_and_no_pipeline() -> None:
    """PR 6122 asks for rows as outputs need them; PR 6017 brought both the buffer and the pipeline over cards."""
    early, later = (_sized("gritlm-7b-cuda-ngl25-512", "output_buffer", build, "cuda")["cpu"][1] for build in (ASKED_ROWS - 1, ASKED_ROWS))
    assert early == 4 * 512 * (32000 + 4096) > later
    plain, copied = (_sized("mistral7b-python-4rocm-4k", "compute_buffer", build, "rocm", "rocm")["cpu"][1] for build in (PIPELINES - 1, PIPELINES))
    assert plain < copied


def test_a_backend_whose_choice_of_operations_was_not_read_has_a_wide_span() -> None:
    """CANN as logged leaves much of an attention to the host; SYCL's (`xpu` is one) are read."""
    name = "gptoss20b-cann-8dev-cmoe-131k"
    for backend, wide in (("cann", True), ("hexagon", True), ("sycl", False), ("xpu", False), ("vulkan", False)):
        for low, likely, high in _sized(name, "compute_buffer", 6103, backend, backend).values():
            assert (low <= likely // 4 and high >= 2 * likely) is wide


@pytest.mark.parametrize("name", ["qwen25coder-32b-2gpu-32k-q8", "qwen25-7b-ollama-cuda-27of29-8k-q8"])
def test_an_intel_card_is_a_sycl_card(name) -> None:
    """`xpu` is what the host's probe calls it; the engine's backend is SYCL, with its events and without CUDA's own padding."""
    for build in (4197, 11434):
        both = [_sized(name, "compute_buffer", build, word, word) for word in ("sycl", "xpu")]
        assert list(both[0].values()) == list(both[1].values())


def test_headers_imply_next_token_blocks_and_gated_attention() -> None:
    """The projection of a next-token block; the gate of an afmoe block; experts in each block of a llama4 that says so."""
    named = lambda name: {tensor.name: tensor.dims for tensor in opened(next(row for row in rows() if row["id"] == name)).tensors}  # noqa: E731
    assert named("qwen36-27b-mtp6-rocm-262k")["blk.64.nextn.eh_proj.weight"] == (10240, 5120)
    assert named("trinity-nano-metal-16k-q8")["blk.55.attn_gate.weight"] == (1024, 1024)
    scout = named("llama4-scout-vulkan-2gpu-ngl11-nkvo-64k")
    assert (scout["blk.0.ffn_up_exps.weight"], scout["blk.0.ffn_up_shexp.weight"]) == ((5120, 8192, 16), (5120, 8192))


@pytest.mark.parametrize(("backend", "card", "seen", "how", "where"), UNLOGGED)
def test_what_no_line_names_lies_in_the_span(backend, card, seen, how, where) -> None:
    """Cards where no other user shows, by llama.cpp's own table of memory."""
    span = overhead(backend).bytes
    assert span.low <= seen << 20 <= span.high, (card, how, where)


def test_the_set_is_wide() -> None:
    """At least forty logs, of twenty architectures, seven kinds of devices and builds of four years."""
    assert len(rows()) >= 40
    assert len({row["arch"] for row in rows()}) >= 20
    assert len({row["source"] for row in rows()}) >= 40


@pytest.mark.parametrize(
    ("blocks", "width", "wide", "kv_heads", "shared", "every", "each", "tensors", "values"),
    [
        (48, 3840, 15360, ([8] * 5 + [1]) * 8, 0, 6, 0, 667, 40),  # 12B: full-attention layers take their keys for values
        (42, 2560, 10240, 2, 18, 6, 256, 720, 42),  # E4B: a table of inputs for each layer
        (35, 1536, [6144] * 15 + [12288] * 20, 1, 20, 5, 256, 601, 35),  # E2B: wider feed-forwards where caches are shared
    ],
)
def test_gemma4s_directory_is_one_that_the_engine_opens(blocks, width, wide, kv_heads, shared, every, each, tensors, values) -> None:
    """The directories were opened by llama.cpp (xllamacpp, 30 November 2026) as sparse files, and its caches and compute buffer were brim's; experts are not in the table."""
    header = {
        "general.architecture": "gemma4", "gemma4.context_length": 131072, "gemma4.embedding_length": width, "gemma4.block_count": blocks,
        "gemma4.feed_forward_length": wide, "gemma4.vocab_size": 262144, "gemma4.attention.head_count": 8 if each else 16, "gemma4.attention.head_count_kv": kv_heads,
        "gemma4.attention.key_length": 512, "gemma4.attention.value_length": 512, "gemma4.attention.key_length_swa": 256, "gemma4.attention.value_length_swa": 256,
        "gemma4.attention.sliding_window_pattern": [(layer + 1) % every != 0 for layer in range(blocks)], "gemma4.attention.shared_kv_layers": shared,
        "gemma4.embedding_length_per_layer_input": each,
    }  # fmt: skip
    made = variants(header)[0]
    assert len(made) == tensors
    assert sum("attn_v.weight" in tensor.name for tensor in made) == values
    assert variants({**header, "gemma4.expert_count": 128, "gemma4.expert_feed_forward_length": 704}) == []


def test_llama_3s_rotation_factors_are_supposed_from_its_two_numbers() -> None:
    """No key says that a file has rope_freqs; a base of 500000 with a context beyond 8192 is Llama 3.1's scaling (the converter writes the factors then)."""
    header = {
        "general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 64, "llama.feed_forward_length": 128, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.vocab_size": 256,
    }  # fmt: skip

    def first(**told) -> bool:
        return any(tensor.name == "rope_freqs.weight" for tensor in variants({**header, **{f"llama.{key}": value for key, value in told.items()}})[0])

    assert first(**{"rope.freq_base": 500000.0, "context_length": 131072})
    assert not first(**{"rope.freq_base": 500000.0, "context_length": 8192})
    assert not first(**{"rope.freq_base": 10000.0, "context_length": 131072})
    assert not first()
