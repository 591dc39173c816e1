"""What users of other estimators complained about in public (thirty threads; the thread is named at each): brim's answer to the same case."""

from functools import cache

import pytest

from brim.engines.llama_cpp import price
from brim.facts.device import DeviceSpec
from brim.facts.workload import LlamaWorkload
from tests.allocations import checkpoint_of
from tests.fresh_logs import opened, rows

MIB = 1 << 20
CARD = DeviceSpec(id="cuda:0", backend="cuda", total_bytes=80 << 30, free_bytes=80 << 30)


@cache
def model(name):
    """A checkpoint of the fresh logs by the beginning of its row's name, or of the measured shapes."""
    found = next((row for row in rows() if row["id"].startswith(name)), None)
    return opened(found) if found else checkpoint_of("shapes", name)


def held(name, *parts, **settings):
    """MiB of the named parts (all where none is named) of a model fully on one card."""
    asked = {"program": "llama-server", "slots": 1, "flash_attn": "on", "gpu_layers": 999, **settings}
    plan = price(model(name), LlamaWorkload(**asked), (CARD,))
    assert not plan.missing
    return sum(part.bytes.likely for part in plan.parts if (not parts or part.name in parts)) / MIB


KV = ("kv_cache", "kv_cache_swa")


@pytest.mark.parametrize(
    ("name", "ctx", "cache", "wrong"),
    [
        # gguf-parser-go#32: half of gpt-oss's layers look back 128 tokens
        ("gptoss20b-metal-131k", 131072, 3072 + 18, 6144),
        # gguf-parser-go#28: every fourth layer of Qwen 3.5 has a cache
        ("qwen35-9b-metal", 262144, 8192, 32768),
        # gguf-parser-go#31 and #35: LFM2's first layer is a convolution
        ("lfm2-12b-arm", 32768, 384, 0),
        # ollama#16958: forty of Gemma 4's 48 layers look back 1024 tokens
        ("gemma4-12b-98k", 131072, 2048 + 480, 43008),
        # ollama#17201, unsloth#4757: MLA keeps one latent row, not heads of embedding / heads
        ("deepseek-v2-lite", 32768, 27 * 32768 * 576 * 2 / MIB, 27 * 32768 * 2 * 2048 * 2 / MIB),
        ("gemma-2-9b", 8192, 42 * 8192 * 2 * 8 * 256 * 2 / MIB * (21 + 21 * 4608 / 8192) / 42, None),
    ],
)
def test_a_cache_is_each_layers_own(name, ctx, cache, wrong) -> None:
    found = held(name, *KV, ctx=ctx)
    assert found == pytest.approx(cache, rel=1e-6)
    assert found != wrong
    assert held(name, *KV, ctx=2 * ctx) > found  # an estimate that does not move with the context schedules into an OOM


def test_compute_buffers_are_in_the_sum() -> None:
    """ollama#17201: gigabytes for DeepSeek-V2-Lite at 32K without flash attention; llama.cpp#18354: -ub 2048 loads and the first prompt dies."""
    assert held("deepseek-v2-lite", "compute_buffer", ctx=32768, flash_attn="off") > 1024
    small, large = held("qwen3-8b", "compute_buffer", ctx=32768), held("qwen3-8b", "compute_buffer", ctx=32768, ubatch=2048)
    assert large > 3 * small


def test_all_experts_are_resident() -> None:
    """llmfit#230 and #497: active parameters taken for resident ones."""
    checkpoint = model("qwen3-30b-a3b")
    stored = sum(tensor.stored_bytes for tensor in checkpoint.tensors) / MIB
    assert held("qwen3-30b-a3b", "weights", ctx=4096) == pytest.approx(stored, rel=0.01)


def test_an_embedding_model_has_no_logits_and_no_cache() -> None:
    """gpustack#2412, gguf-parser-go#2: 1 GB said to need 9 to 14, for a generation cache and a buffer of logits."""
    assert held("bge-m3", "kv_cache", program="llama-embedding", ctx=8192, embeddings=True, pooling="cls") == 0
    assert held("bge-m3", "output_buffer", program="llama-embedding", ctx=8192, embeddings=True, pooling="cls") < 1


def test_a_quantised_cache_is_believed() -> None:
    """ollama#10128: q8_0 is 34 bytes for 32 values."""
    assert held("qwen3-8b", *KV, ctx=32768, ctk="q8_0", ctv="q8_0") == pytest.approx(held("qwen3-8b", *KV, ctx=32768) * 34 / 64)
