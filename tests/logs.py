"""Public llama.cpp logs as what they stand for: a header, a shape file, devices and a workload; nothing is priced here.

The golden file holds facts only: widths, settings and the printed sizes. What a log does not say is left to the engine's default or read from its cache lines.
"""

import gzip
import json
import tempfile
from functools import cache
from pathlib import Path

from brim.checkpoint import open_checkpoint
from brim.engines.llama_cpp.builds import build_on
from brim.engines.llama_cpp.weights import OUTPUT_FIRST
from brim.facts.device import DeviceSpec
from brim.facts.workload import LlamaWorkload

GOLDEN = Path(__file__).resolve().parent / "golden" / "llamacpp_logs.json.gz"
PATTERNS = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "gemma4": 6}
LATE = {"late 2025": 7100}
IK = 3500  # about where ik_llama.cpp left (June to August 2024)
OLLAMA = 7437  # the llama.cpp that ollama carried in the first half of 2026 (Makefile.sync: ec98e2002, 16 December 2025)
# what a log prints for general.file_type → the mix
MIXES = {"Q4_K - Medium": "Q4_K_M", "Q5_K - Medium": "Q5_K_M", "Q3_K - Medium": "Q3_K_M", "Q2_K - Medium": "Q2_K", "Q4_K - Small": "Q4_K_S", "Q5_K - Small": "Q5_K_S", "Q8_0": "Q8_0", "Q6_K": "Q6_K",
         "BF16": "BF16", "F16": "F16", "IQ4_XS - 4.25 bpw": "IQ4_XS", "IQ3_XXS - 3.0625 bpw": "IQ3_XXS", "MXFP4 MoE": "MXFP4_MOE"}  # fmt: skip
BACKENDS = {"CUDA": "cuda", "ROCm": "rocm", "Vulkan": "vulkan", "SYCL": "sycl", "Metal": "metal", "OpenCL": "opencl", "RPC": "rpc"}
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"


@cache
def logs():
    """The public logs: facts only."""
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))


def build_of(log):
    """The build number: from the log, else from the month; None where the log names neither."""
    build = str(log["build"] or "")
    if log["engine"] == "ollama" and build >= "2026":
        return OLLAMA
    if build.startswith("b") and build[1:5].isdigit():
        return int(build[1:].split(maxsplit=1)[0])
    parts = build.split("-")
    return build_on(*(int(part) for part in parts)) if len(parts) > 1 else LATE.get(build)


def is_fork(log):
    """Whether the engine is one whose graphs are its own."""
    return log["engine"].startswith("ik_") or "fork" in log["engine"]


def header_of(log):
    """The GGUF keys that the log's widths stand for."""
    arch, hp, run = log["arch"], log["hparams"], log["run"]
    blocks = hp["block_count"]
    meta = {
        "general.architecture": arch, f"{arch}.context_length": hp.get("n_ctx_train") or 1 << 20, f"{arch}.embedding_length": hp["embedding_length"] or 4096, f"{arch}.block_count": blocks,
        f"{arch}.feed_forward_length": hp["feed_forward_length"] or 4096, f"{arch}.vocab_size": hp["vocab_size"] or 32000,
    }  # fmt: skip
    put = lambda key, value: meta.__setitem__(f"{arch}.{key}", value) if value is not None else None  # noqa: E731
    heads = hp["head_count"] if hp["head_count"] is not None else 16
    kv_heads = hp["head_count_kv"]
    put("attention.head_count", heads)
    for key in ("key_length", "value_length"):
        put(f"attention.{key}", hp[key])
    for key in ("expert_count", "expert_used_count", "nextn_predict_layers", "expert_feed_forward_length", "leading_dense_block_count"):
        put(key, hp.get(key))
    for key in ("sliding_window", "kv_lora_rank", "q_lora_rank"):
        put(f"attention.{key}", hp.get(key))
    put("rope.dimension_count", hp.get("rope_dimension_count"))
    ssm = hp.get("ssm") or {}
    for key in ("conv_kernel", "inner_size", "state_size", "group_count", "time_step_rank"):
        put(f"ssm.{key}", ssm.get(key))
    put("full_attention_interval", hp.get("full_attention_interval"))
    if arch == "deci" and hp.get("attention_layers"):
        kv_heads = [kv_heads] * hp["attention_layers"] + [0] * (blocks - hp["attention_layers"])
        put("attention.head_count", [heads if kv else 0 for kv in kv_heads])
    if arch == "deepseek2":
        kv_heads = _latent(log, put)
    if arch == "deepseek4":  # the log gives the window only; the other caches follow in lines that the excerpt lacks
        put("attention.compress_ratios", [4 if il % 2 else 128 for il in range(blocks)])
        for key, value in (("head_count", 64), ("key_length", 128), ("top_k", 512)):
            put(f"attention.indexer.{key}", value)
        put("attention.value_length", hp["key_length"])
    if arch == "qwen4exp":
        indexer = hp["indexer"]
        for key, value in (("head_count", 4), ("key_length", indexer["key_length"]), ("top_k", 2048)):  # the head count and top_k size no cache
            put(f"attention.indexer.{key}", value)
        for key, value in (("inner_size", 4096), ("state_size", 128), ("group_count", 16), ("time_step_rank", 32), ("conv_kernel", 4)):
            meta.setdefault(f"{arch}.ssm.{key}", value)  # widths of the state, which the log does not give and which is not compared
        put("full_attention_interval", blocks // hp["full_attention_layers"])
    if arch == "bert":
        put("attention.causal", value=False)
        put("context_length", run["n_ctx"])
    if "n_embd_k_gqa_full" in hp:
        kv_heads = _gemma4(hp, put)
    put("attention.head_count_kv", kv_heads)
    if log["engine"] == "ik_llama.cpp":
        meta.pop(f"{arch}.attention.sliding_window", None)  # this fork keeps all cells of sliding layers
        if arch in PATTERNS:
            put("attention.sliding_window", 4096)
    return meta, run


def _latent(log, put):
    """The deepseek2 layouts: a head's own keys and values, or the latent row with or without a second copy."""
    hp, run = log["hparams"], log["run"]
    mode = run.get("mla_attn")
    put("rope.dimension_count", hp.get("rope_dimension_count") or 64)
    put("attention.kv_lora_rank", hp.get("kv_lora_rank") or 512)
    if hp["expert_count"] == 256:
        put("expert_gating_func", 2)  # as the converter writes it for the choice of experts with a bias
    if not mode and hp["n_embd_k_gqa"] not in (512, 576):
        return hp["head_count"]
    rank, turned = hp.get("kv_lora_rank") or 512, hp.get("rope_dimension_count") or 64
    put("attention.key_length", rank + turned)
    put("attention.value_length", rank)
    if mode != 1:
        put("attention.key_length_mla", 192)
        put("attention.value_length_mla", 128)
    return 1


def _gemma4(hp, put):
    """Two kinds of layers of their own widths, as one head each."""
    blocks = hp["block_count"]
    shared = hp.get("shared_kv_layers") or 0
    full = hp.get("full_attention_layers") or blocks // 6
    period = blocks // full
    put("attention.sliding_window_pattern", [il % period != period - 1 for il in range(blocks)])
    put("attention.shared_kv_layers", shared)
    for kind, suffix in (("full", ""), ("swa", "_swa")):
        put(f"attention.key_length{suffix}", hp[f"n_embd_k_gqa_{kind}"])
        put(f"attention.value_length{suffix}", hp[f"n_embd_v_gqa_{kind}"])
    return 1


def opened(log, experts=None):
    """The checkpoint of the shape file that the log makes: header, file type and size; the number of shared experts is the one that gives the log's parameters.

    `experts`: a width of the experts for a log that gives none.
    """
    meta, _ = header_of(log)
    arch, weights = log["arch"], log["weights"]
    if experts:
        meta[f"{arch}.expert_feed_forward_length"] = experts
    made = []
    for shared in (1, 2) if arch in ("deepseek2", "glm4moe") else (0,):
        words = {**meta, f"{arch}.expert_shared_count": shared} if shared else meta
        if arch in ("glm4moe", "deepseek2"):
            words.setdefault(f"{arch}.leading_dense_block_count", 1)
        shape = {"name": log["id"], "file_type": MIXES.get(weights["file_type"], "F16"), "metadata": words}
        if weights["file_size_gib"]:
            shape["weights_bytes"] = int(weights["file_size_gib"] * (1 << 30))
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(shape, file)
            file.flush()
            made.append(open_checkpoint(file.name))
    wanted = (weights["params_b"] or 0) * 1e9
    return min(made, key=lambda one: abs(sum(tensor.elements for tensor in one.tensors) - wanted)) if wanted else made[0]


def cards_of(log):
    """The accelerators that the log names, in its order of numbers."""
    names = {name for part in ("model", "kv", "compute") for name in log["observed_mib"].get(part) or {}}
    names = sorted((name for name in names if name.rstrip("0123456789") in BACKENDS and "Host" not in name), key=lambda name: (len(name), name))
    made = []
    for name in names:
        word = name.rstrip("0123456789")
        backend = BACKENDS[word]
        made.append((name, DeviceSpec(id=f"{backend}:{name[len(word) :] or 0}", backend=backend, total_bytes=80 << 30, free_bytes=80 << 30)))
    return made


def split_of(log, cards):
    """(layers on cards, shares of the cards): what the log does not say is read from its caches' lines, for a cache follows its layer; the output layer is the last card's."""
    held, blocks = log["observed_mib"].get("kv") or {}, log["hparams"]["block_count"]
    layers = log["run"].get("n_gpu_layers")
    if not cards or not held or "total" in held:
        return layers, ()
    each = sum(held.values()) / blocks
    on_host = round(sum(size for name, size in held.items() if "Host" in name or name == "CPU") / each)
    if layers is None and on_host:
        layers = blocks - on_host + (1 if (build_of(log) or 11434) >= OUTPUT_FIRST else 0)
    counts = [round(held[name] / each) for name, _ in cards] if all(name in held for name, _ in cards) and len(cards) > 1 else []
    if counts and (layers is None or layers > blocks):
        counts[-1] += 1
    return layers, tuple(counts)


def workload_of(log, cards):
    """The run in the program's words. What the log does not say about the split is read from the caches' lines: they follow their layers."""
    run, notes = log["run"], str(log["run"].get("other_flags") or "")
    build, flash = build_of(log) or 11434, run.get("flash_attn")
    quantised = (run.get("type_v") or "f16") not in ("f16", "f32", "bf16")
    on = flash is True or (isinstance(flash, str) and "enabled" in flash) or (quantised and flash is None)
    mode, latent = run.get("mla_attn"), log["arch"] == "deepseek2"
    pooled = sum((log["observed_mib"].get("output") or {"": 1}).values()) == 0  # an output buffer of nothing: one vector a sequence
    layers, shares = split_of(log, cards)
    patterns = ()
    if "-ot blk" in notes and "ffn.*=CPU" in notes:
        patterns = ((notes.split("-ot ")[1].split("=CPU", maxsplit=1)[0], "CPU"),)
    elif any(word in notes for word in ("experts on CPU", "-cmoe", "exps=CPU", "ffn.*=CUDA0")):
        patterns = ((EXPERTS, "CPU"),)
    return LlamaWorkload(
        program="llama-server" if build >= 9464 else "llama-cli",
        ctx=run["n_ctx"], slots=run.get("n_seq_max") or 1, batch=max(run.get("n_batch") or 2048, run.get("n_ubatch") or 512), ubatch=run.get("n_ubatch") or 512, kv_unified=run.get("kv_unified"),
        ctk=run.get("type_k") or "f16", ctv=(run.get("type_k") if latent and mode in (2, 3) else run.get("type_v")) or "f16",
        flash_attn="on" if on else "off" if flash is False or build < 6325 else None,
        swa_full="full-size SWA" in notes or log["engine"] == "ik_llama.cpp", rollback_rows=2 if "rs_seq=2" in notes else 0,
        gpu_layers=layers, override_tensors=patterns, tensor_split=shares, split_mode=run.get("split_mode"), mmap="--no-mmap" not in notes,
        embeddings=True if pooled or log["engine"] == "ollama" else None,  # ollama's runner always asks for embeddings (llama.go: NewContextParams)
        pooling=("cls" if log["arch"] == "bert" else "mean") if pooled else None,  # bge files say cls in their header
    )  # fmt: skip
