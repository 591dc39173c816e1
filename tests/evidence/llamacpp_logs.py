"""Writes docs/evidence/llamacpp-logs.md: public llama.cpp logs beside the price of their run. Run: `python -m tests.evidence.llamacpp_logs`.

A log gives widths and settings. Its caches, recurrent state and output buffer are priced from the header alone; weights and compute buffers from the tensor directory that
`brim` itself makes of a shape file without one (header and file type), opened as a user would open it.
"""

import statistics
import time
from functools import cache
from pathlib import Path

from tests.logs import IK, MIXES, build_of, cards_of, is_fork, logs, opened, split_of, workload_of

from brim.engines.llama_cpp import hparams, price, repacked
from brim.engines.llama_cpp.weights import place
from brim.facts.workload import LlamaWorkload

OUT = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "llamacpp-logs.md"
MIB = 1 << 20
NOT_MODELLED = {
    "turbo": "cache types of a fork (turbo2, turbo3, turbo4)",
}
EXPLAINED = {
    (
        "ik357-qwen3-235b-a22b-128k-c16384-ub512-l2381",
        "compute",
    ): "a build with a BLAS backend (it has a CPU buffer beside CUDA_Host): BLAS multiplies the output matrix on the host, so CUDA copies expert matrices only",
    (
        "ik357-qwen3-235b-a22b-128k-c16384-ub512-l2581",
        "compute",
    ): "a build with a BLAS backend: its own host buffer of 8.25 MiB for what BLAS multiplies is not modelled",
}


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
    layers = split_of(log, cards)[0]
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


def totals(*, forks=False):
    """(index, log, device, priced, logged, parts, weights) of each device of each log of llama.cpp, ollama and the like; priced is None (and parts the reason) where it cannot be told.

    `forks`: those of ik_llama.cpp instead, by the rules of the build that it left.
    """
    for index, log in enumerate(logs()):
        if is_fork(log) is not forks or not (log["observed_mib"].get("compute") or log["observed_mib"].get("model")):
            continue
        if forks and (log["arch"] == "deepseek2" or not log["engine"].startswith("ik_")):
            continue
        found = placed({**log, "build": f"b{IK}"} if forks else log)
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


def _forks_table():
    rows = [row for row in totals(forks=True) if row[3] is not None]
    lines = ["## ik_llama.cpp, apart", "", f"This fork has graphs of its own (fused experts, copies of host weights only on demand, masks twice) and is not modelled. Priced by the rules of b{IK}, where it left; DeepSeek with its -mla modes left out.", ""]  # fmt: skip
    lines += [
        _figures([row for row in rows if row[2] != "host"], "cards"),
        "",
        "| # | Log | Device | Parts | Priced MiB | Logged MiB | Off |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {index} | {log['id']} | {device} | {parts} | {value:.2f} | {logged:.2f} | {off(value, logged):+.2f} % |"
        for index, log, device, value, logged, parts, _ in rows
    ]
    return lines


ANEW = {"AMX": ("avx2", "avx512", "amx"), "CPU_AARCH64": ("avx2",), "CPU_REPACK": ("avx2",)}


def laid_out(log):
    """(mix, buffer, MiB by the rule, MiB in the log) of each buffer of weights that the CPU laid out anew; a log that names no file type is the mix whose size is its mapped file's."""
    held = log["observed_mib"].get("model") or {}
    for buffer in ANEW.keys() & held.keys():
        mixes = [log["weights"]["file_type"]] if log["weights"]["file_type"] else list(MIXES)
        for mix in mixes:
            made = opened({**log, "weights": {**log["weights"], "file_type": mix}})
            total = sum(tensor.stored_bytes for tensor in made.tensors) / MIB
            if abs(total - held.get("CPU_Mapped", total)) > 0.5:
                continue
            facts = hparams.read(made)
            laid = repacked.lay_out(facts, place(facts, LlamaWorkload(), ()), frozenset(ANEW[buffer]), build_of(log))
            yield mix, buffer, sum(laid.held.values()) / MIB, held[buffer]


def _anew_table():
    lines = ["## Weights that the CPU laid out anew", "", "| Log | Build | Mix | Buffer | By the rule, MiB | Logged MiB | |", "|---|---|---|---|---|---|---|"]
    for log in logs():
        for mix, buffer, value, logged in laid_out(log):
            equal = "equal" if abs(value - logged) < 0.006 else f"{off(value, logged):+.2f} %"
            lines.append(f"| {log['id']} | {log['engine']} {log['build']} | {mix} | {buffer} | {value:.2f} | {logged:.2f} | {equal} |")
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
        *_forks_table(),
        "",
        *_anew_table(),
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
