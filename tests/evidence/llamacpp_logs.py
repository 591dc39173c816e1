"""Writes docs/evidence/llamacpp-logs.md: public llama.cpp logs beside the price of their caches and states. Run: `python -m tests.evidence.llamacpp_logs`.

A log gives widths, not tensors; so caches, recurrent state and the output buffer are compared, whose price needs the header alone.
"""

import gzip
import json
import time
from functools import cache
from pathlib import Path

from brim.engines.llama_cpp import price
from brim.facts.model import Checkpoint, Tensor
from brim.facts.workload import LlamaWorkload
from brim.values import Missing

OUT = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "llamacpp-logs.md"
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "llamacpp_logs.json.gz"
MIB = 1 << 20
# llama.cpp's newest build number at the turn of each month, for logs that give a date only
MONTHS = {"2024-04": 2600, "2025-01": 4400, "2025-03": 4800, "2025-04": 5100, "2025-05": 5250, "2025-06": 5600, "2025-07": 5850, "2025-09": 6400, "2025-10": 6660, "late 2025": 7100, "2026-05": 9280, "2026-08": 10640, "2026-09": 11000}
NOT_MODELLED = {
    "turbo": "cache types of a fork (turbo2, turbo3, turbo4)",
    "deepseek4": "its window cache without values and its compressed caches are not modelled",
    "qwen4exp": "its second cache for an indexer is not modelled",
}
EXPLAINED = {"file-gemma2-2b-rocm-2seq-fullswa": "differs: ollama keeps embeddings beside the logits, 2304 values a slot"}
PATTERNS = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "gemma4": 6}


@cache
def logs():
    """The public logs: facts only."""
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))


def build_of(log):
    """The build number: from the log, else from the month."""
    build = str(log["build"] or "")
    if build.startswith("b") and build[1:5].isdigit():
        return int(build[1:].split(maxsplit=1)[0])
    return MONTHS.get(build if build.startswith("late") else build[:7], 11434)


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
    for key in ("expert_count", "expert_used_count", "nextn_predict_layers"):
        put(key, hp.get(key))
    put("attention.sliding_window", hp.get("sliding_window"))
    ssm = hp.get("ssm") or {}
    for key in ("conv_kernel", "inner_size", "state_size", "group_count", "time_step_rank"):
        put(f"ssm.{key}", ssm.get(key))
    put("full_attention_interval", hp.get("full_attention_interval"))
    if arch == "deci" and hp.get("attention_layers"):
        kv_heads = [kv_heads] * hp["attention_layers"] + [0] * (blocks - hp["attention_layers"])
    if arch == "deepseek2":
        kv_heads = _latent(log, put)
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


def priced(log):
    """MiB by part of the price of the log's run."""
    meta, run = header_of(log)
    arch = log["arch"]
    embedding = Tensor(
        name="token_embd.weight", dims=(meta[f"{arch}.embedding_length"], meta[f"{arch}.vocab_size"]), dtype="F16", offset=0, stored_bytes=0, elements=0
    )
    made = Checkpoint(form="gguf", source="log", name=log["id"], architecture=arch, metadata=meta, tensors=(embedding,), file_bytes=0, shape=Missing(reason="not_supported"))  # fmt: skip
    notes = str(run.get("other_flags") or "")
    flash = run.get("flash_attn")
    asked = LlamaWorkload(
        ctx=run["n_ctx"], slots=run.get("n_seq_max") or 1, batch=max(run.get("n_batch") or 2048, run.get("n_ubatch") or 512), ubatch=run.get("n_ubatch") or 512, kv_unified=run.get("kv_unified"),
        ctk=run.get("type_k") or "f16", ctv=(run.get("type_k") if arch == "deepseek2" and run.get("mla_attn") in (2, 3) else run.get("type_v")) or "f16",
        flash_attn="off" if (flash is False or (flash is None and build_of(log) < 6300)) and (run.get("type_v") or "f16") in ("f16", "f32", "bf16") else "on",
        swa_full="full-size SWA" in notes or log["engine"] == "ik_llama.cpp", rollback_rows=2 if "rs_seq=2" in notes else 0,
    )  # fmt: skip
    plan = price(made, asked, (), version=build_of(log))
    found = {}
    for part in plan.parts:
        found[part.name] = found.get(part.name, 0.0) + part.bytes.likely / MIB
    return found, plan.missing


def observed(log, *names):
    """MiB of a log over all devices; None where the log does not give them."""
    total = None
    for name in names:
        given = log["observed_mib"].get(name)
        if given:
            total = (total or 0.0) + (given["total"] if "total" in given else sum(given.values()))
    return total


def compare():
    """(log, part, priced, observed, verdict) of every figure that can be compared."""
    for log in logs():
        seen = {"cache": observed(log, "kv", "kv_swa"), "state": observed(log, "recurrent"), "output": observed(log, "output")}
        words = f"{log['arch']} {log['run'].get('type_k')} {log['run'].get('type_v')}"
        unknown = next((why for key, why in NOT_MODELLED.items() if key in words), "")
        if log["run"].get("n_ctx") is None:
            unknown = unknown or "the log gives no context length"
        found, missing = ({}, ()) if unknown else priced(log)
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
            value = sum(found.get(name, 0.0) for name in counted)
            devices = max(len(log["observed_mib"].get({"cache": "kv", "state": "recurrent", "output": "output"}[part]) or {}), 1)
            yield log, part, value, figure, "equal" if abs(value - figure) <= 0.011 * devices else EXPLAINED.get(log["id"], "differs")


def main():
    rows = list(compare())
    lines = [
        "# Public llama.cpp logs beside the price", "", f"Generated by `python -m tests.evidence.llamacpp_logs` ({time.strftime('%Y-%m-%d')}); do not edit.", "",
        f"{len(logs())} public logs (issues, discussions, kept logs) of llama.cpp, ik_llama.cpp and ollama builds from 2024 to 2026. They give widths and settings, not tensors: caches, recurrent state and output buffer",
        "are compared to the printed digits, over all devices; compute buffers and weights need the tensors and are held by the measured loads (llamacpp-allocations.md).", "",
    ]  # fmt: skip
    for part in ("cache", "state", "output"):
        of = [row for row in rows if row[1] == part]
        equal, asked = sum(row[4] == "equal" for row in of), sum(row[2] is not None for row in of)
        lines.append(f"- {part}: {equal} of {asked} equal ({100 * equal / max(asked, 1):.1f} %); {len(of) - asked} cannot be told.")
    lines += ["", "| Log | Build | Part | Priced MiB | Logged MiB | |", "|---|---|---|---|---|---|"]
    for log, part, value, figure, verdict in rows:
        lines.append(f"| {log['id']} | {log['engine']} {log['build']} | {part} | {'–' if value is None else f'{value:.2f}'} | {figure:.2f} | {verdict} |")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n".join([*lines, ""]))
    print(OUT)


if __name__ == "__main__":
    main()
