"""Writes docs/evidence/llamacpp-logs.md: public llama.cpp logs beside the price of their run. Run: `python -m tests.evidence.llamacpp_logs`.

A log gives widths and settings. Its caches, recurrent state and output buffer are priced from the header alone; weights and compute buffers from the tensor directory that
`brim` itself makes of a shape file without one (header and file type), opened as a user would open it.
"""

import gzip
import json
import statistics
import tempfile
import time
from functools import cache
from pathlib import Path

from brim.checkpoint import open_checkpoint
from brim.engines.llama_cpp import price
from brim.engines.llama_cpp.builds import build_on
from brim.engines.llama_cpp.weights import OUTPUT_FIRST
from brim.facts.device import DeviceSpec
from brim.facts.workload import LlamaWorkload

OUT = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "llamacpp-logs.md"
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "llamacpp_logs.json.gz"
MIB = 1 << 20
NOT_MODELLED = {
    "turbo": "cache types of a fork (turbo2, turbo3, turbo4)",
}
PATTERNS = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "gemma4": 6}
LATE = {"late 2025": 7100}
OLLAMA = 7437  # the llama.cpp that ollama carried in the first half of 2026 (Makefile.sync: ec98e2002, 16 December 2025)
# what a log prints for general.file_type → the mix
MIXES = {"Q4_K - Medium": "Q4_K_M", "Q5_K - Medium": "Q5_K_M", "Q3_K - Medium": "Q3_K_M", "Q2_K - Medium": "Q2_K", "Q4_K - Small": "Q4_K_S", "Q5_K - Small": "Q5_K_S", "Q8_0": "Q8_0", "Q6_K": "Q6_K",
         "BF16": "BF16", "F16": "F16", "IQ4_XS - 4.25 bpw": "IQ4_XS", "IQ3_XXS - 3.0625 bpw": "IQ3_XXS", "MXFP4 MoE": "MXFP4_MOE"}  # fmt: skip
BACKENDS = {"CUDA": "cuda", "ROCm": "rocm", "Vulkan": "vulkan", "SYCL": "sycl", "Metal": "metal", "OpenCL": "opencl", "RPC": "rpc"}
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
EXPLAINED = {
    ("ik357-qwen3-235b-a22b-128k-c16384-ub512-l2381", "compute"): "a build with a BLAS backend (it has a CPU buffer beside CUDA_Host): BLAS multiplies the output matrix on the host, so CUDA copies expert matrices only",
    ("ik357-qwen3-235b-a22b-128k-c16384-ub512-l2581", "compute"): "a build with a BLAS backend: its own host buffer of 8.25 MiB for what BLAS multiplies is not modelled",
}  # fmt: skip


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


def _split(log, cards):
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
    layers, shares = _split(log, cards)
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


def observed(log, *names):
    """MiB of a log over all devices; None where the log does not give them."""
    total = None
    for name in names:
        given = log["observed_mib"].get(name)
        if given:
            total = (total or 0.0) + (given["total"] if "total" in given else sum(given.values()))
    return total


@cache
def _headed(index):
    """The plan of a log from its header alone, as MiB by part. A fork that keeps latent rows only is priced by the rules of builds that do."""
    log = logs()[index]
    checkpoint = opened(log).replace(tensors=())
    version = build_of(log) or 11434
    if log["engine"] == "ik_llama.cpp" and log["run"].get("mla_attn") in (2, 3):
        version = 11434
    plan = price(checkpoint, workload_of(log, []), (), version=version)
    found = {}
    for part in plan.parts:
        found[part.name] = found.get(part.name, 0.0) + part.bytes.likely / MIB
    return found, plan.missing


def compare():
    """(log, part, priced, observed, verdict) of every cache, state and output buffer that can be compared."""
    for index, log in enumerate(logs()):
        seen = {"cache": observed(log, "kv", "kv_swa", "kv_indexer"), "state": observed(log, "recurrent"), "output": observed(log, "output")}
        words = f"{log['arch']} {log['run'].get('type_k')} {log['run'].get('type_v')}"
        unknown = next((why for key, why in NOT_MODELLED.items() if key in words), "")
        if log["run"].get("n_ctx") is None:
            unknown = unknown or "the log gives no context length"
        found, missing = ({}, ()) if unknown else _headed(index)
        names = {"cache": ("kv_cache", "kv_cache_swa"), "state": ("recurrent_state",), "output": ("output_buffer",)}
        for part, figure in seen.items():
            if not figure:
                continue
            if unknown or not found:
                yield log, part, None, figure, unknown or (missing[0] if missing else "")
                continue
            if part == "output" and log["run"].get("n_seq_max") is None:
                yield log, part, None, figure, "the log gives no number of slots"
                continue
            counted = names[part][:1] if part == "cache" and "kv_swa" not in log["observed_mib"] and log["engine"] != "ik_llama.cpp" else names[part]
            counted = ("kv_cache_swa",) if log["arch"] == "deepseek4" and part == "cache" else counted
            value = sum(found.get(name, 0.0) for name in counted)
            devices = max(len(log["observed_mib"].get({"cache": "kv", "state": "recurrent", "output": "output"}[part]) or {}), 1)
            printed = 0.5 if "kv_indexer" in log["observed_mib"] else 0.011 * devices  # those are from a table of whole MiB
            verdict = "equal" if abs(value - figure) <= printed else "differs"
            yield log, part, value, figure, verdict if verdict == "equal" else EXPLAINED.get((log["id"], part), verdict)


def lacking(log, checkpoint):
    """Why a log's compute buffers cannot be priced from what it says; "" where they can."""
    run, hp = log["run"], log["hparams"]
    if build_of(log) is None:
        return "the log names no build"
    if run.get("n_ctx") is None:
        return "the log gives no context length"
    if log["arch"] in NOT_MODELLED or "turbo" in str(run.get("type_k")):
        return NOT_MODELLED.get(log["arch"], NOT_MODELLED["turbo"])
    if not hp.get("embedding_length") or (not hp.get("vocab_size") and log["arch"] != "llama"):
        return "the log gives no width of the embedding or no vocabulary"
    if not hp.get("expert_count") and not hp.get("feed_forward_length"):
        return "the log gives no width of the feed-forward"
    if not checkpoint.tensors:
        return f"no table says which tensors {log['arch']} has"
    return ""


def _same_file(log, checkpoint):
    """Why the made directory is not the log's file; "" where type and size agree."""
    weights = log["weights"]
    if weights["file_type"] not in MIXES:
        return "no file type that llama-quantize makes" if weights["file_type"] else "the log gives no file type"
    size = (weights["file_size_gib"] or 0) * (1 << 30)
    held = sum(tensor.stored_bytes for tensor in checkpoint.tensors)
    return (
        ""
        if size and abs(held - size) <= size / 1000
        else f"a mix of its own: {held / (1 << 30):.2f} GiB by llama-quantize's rule, {weights['file_size_gib']} GiB by the log"
    )


def placed(log):
    """What a log's devices hold beside the price: {"why": …} or {"rows": [(device, part, priced, logged)], "weights": why the weights are left out}."""
    checkpoint = opened(log)
    why = lacking(log, checkpoint)
    if why:
        return {"why": why}
    cards = cards_of(log)
    unlike = _same_file(log, checkpoint)
    layers = _split(log, cards)[0]
    if unlike and cards and all(spec.backend != "rpc" for _, spec in cards) and layers is not None and layers <= log["hparams"]["block_count"]:
        return {"why": f"{unlike}, and matrices of the host are copied to the card as they are stored"}
    asked, specs = workload_of(log, cards), tuple(spec for _, spec in cards)
    plan = price(checkpoint, asked, specs, version=build_of(log))
    if plan.missing:
        return {"why": plan.missing[0]}
    if log["hparams"].get("expert_count") and not log["hparams"].get("expert_feed_forward_length"):
        wide = log["hparams"]["feed_forward_length"]
        others = [price(opened(log, wide // part), asked, specs, version=build_of(log)) for part in (16, 8, 4)]
        if len({tuple(one.bytes.likely for one in other.parts if one.name == "compute_buffer") for other in others}) > 1:
            return {"why": "the log gives no width of the experts"}
        plan = others[0]
    rows = []
    cut = "more)" in str(log["run"].get("other_flags") or "")
    told = unlike or ("the log cuts its tensor overrides short" if cut else "")
    homes = {spec.id: name for name, spec in cards}
    for part, names in (
        ("compute", ("compute_buffer",)),
        ("kv", ("kv_cache",)),
        ("kv_swa", ("kv_cache_swa",)),
        ("recurrent", ("recurrent_state",)),
        ("model", ("weights",)),
    ):
        if part == "model" and told:
            continue
        given = log["observed_mib"].get(part) or {}
        for device in [*homes, "cpu"]:
            logged = given.get(homes[device]) if device != "cpu" else _host(log, part, given)
            if logged is None:
                continue
            value = sum(one.bytes.likely for one in plan.parts if one.device == device and one.name in names) / MIB
            rows.append((homes.get(device, "host"), part, value, logged))
    return {"rows": rows, "weights": told}


def _host(log, part, given):
    """A log's figure for host memory: the buffers that are not a card's; mapped weights are a span of the file and no sum where a card holds some."""
    names = [name for name in given if "Host" in name or name.startswith(("CPU", "AMX", "host"))]
    if part == "model" and cards_of(log) and any("Mapped" in name for name in names) and len(given) > len(names):
        return None
    if part == "model" and any(name.startswith(("CPU_AARCH64", "AMX")) for name in names):
        return None
    return sum(given[name] for name in names) if names else None


def totals():
    """(index, log, device, priced, logged, parts, weights) of each device of each log of llama.cpp, ollama and the like; priced is None (and parts the reason) where it cannot be told."""
    for index, log in enumerate(logs()):
        if is_fork(log) or not (log["observed_mib"].get("compute") or log["observed_mib"].get("model")):
            continue
        found = placed(log)
        if "why" in found or not any(part == "compute" for _, part, _, _ in found["rows"]):
            yield index, log, "", None, None, found.get("why", "the log gives no compute buffer"), ""
            continue
        for device in dict.fromkeys(row[0] for row in found["rows"]):
            rows = [row for row in found["rows"] if row[0] == device]
            if any(row[1] == "compute" for row in rows):
                yield index, log, device, sum(row[2] for row in rows), sum(row[3] for row in rows), "+".join(row[1] for row in rows), found["weights"]


def off(value, logged):
    """The relative error in percent."""
    return 100 * (value - logged) / logged


def _ninety_fifth(errors):
    return sorted(errors)[max(0, -(-95 * len(errors) // 100) - 1)]


def _figures(rows, title):
    errors = [abs(off(value, logged)) for *_, value, logged, _parts, _weights in rows]
    if not errors:
        return f"- {title}: none."
    return f"- {title}: {len(errors)} devices, median {statistics.median(errors):.2f} %, p95 {_ninety_fifth(errors):.2f} %, worst {max(errors):.2f} %."


def _totals_table():
    rows = list(totals())
    told = [row for row in rows if row[3] is not None]
    cards = [row for row in told if row[2] != "host"]
    lines = ["## Device totals", "", "Weights, caches, state and compute buffer of each device, as far as the log gives them. Nothing is fitted to a log: each rule was read in the sources of the builds around its change. Work began on the logs with an even place in the golden set; the odd ones stand apart below, but were seen before the end, so that only other logs can say how far the rules carry.", ""]  # fmt: skip
    for title, part in (("all", None), ("even places", 0), ("odd places", 1)):
        lines.append(_figures([row for row in cards if part is None or row[0] % 2 == part], f"cards, {title}"))
        lines.append(_figures([row for row in told if part is None or row[0] % 2 == part], f"cards and host, {title}"))
    lines += ["", "| # | Log | Build | Device | Parts | Priced MiB | Logged MiB | Off | |", "|---|---|---|---|---|---|---|---|---|"]
    for index, log, device, value, logged, parts, weights in rows:
        build = f"{log['engine']} {log['build']}"
        if value is None:
            lines.append(f"| {index} | {log['id']} | {build} | – | – | – | – | – | cannot be told: {parts} |")
            continue
        error = off(value, logged)
        why = (
            EXPLAINED.get((log["id"], "compute"), "not explained") if abs(error) > 3 else f"without weights: {weights}" if weights and device != "host" else ""
        )
        lines.append(f"| {index} | {log['id']} | {build} | {device} | {parts} | {value:.2f} | {logged:.2f} | {error:+.2f} % | {why} |")
    return lines


def main():
    rows = list(compare())
    lines = [
        "# Public llama.cpp logs beside the price", "", f"Generated by `python -m tests.evidence.llamacpp_logs` ({time.strftime('%Y-%m-%d')}); do not edit.", "",
        f"{len(logs())} public logs (issues, discussions, kept logs) of llama.cpp, ik_llama.cpp and ollama builds from 2024 to 2026. They give widths and settings, no tensors. Caches, recurrent state and output buffer",
        "are compared to the printed digits, over all devices; device totals from the directory that brim makes of header and file type, priced by the rules of the log's build.", "",
    ]  # fmt: skip
    for part in ("cache", "state", "output"):
        of = [row for row in rows if row[1] == part]
        equal, asked = sum(row[4] == "equal" for row in of), sum(row[2] is not None for row in of)
        lines.append(f"- {part}: {equal} of {asked} equal ({100 * equal / max(asked, 1):.1f} %); {len(of) - asked} cannot be told.")
    lines += [
        "",
        *_totals_table(),
        "",
        "## Caches, state and output buffer",
        "",
        "| Log | Build | Part | Priced MiB | Logged MiB | |",
        "|---|---|---|---|---|---|",
    ]
    for log, part, value, figure, verdict in rows:
        lines.append(f"| {log['id']} | {log['engine']} {log['build']} | {part} | {'–' if value is None else f'{value:.2f}'} | {figure:.2f} | {verdict} |")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n".join([*lines, ""]))
    print(OUT)


if __name__ == "__main__":
    main()
