"""Public logs that nobody had seen while the engine model was made, as what they stand for: a header, a shape file, devices and a workload; nothing is priced here.

One JSON row a line in golden/llamacpp_fresh_logs.jsonl: facts only (widths, settings, printed sizes), in the form of the first set, with the public file that each was read in.
Keys of the GGUF header that have no place in that form stand under `header`; tensors by type as the log counts them under `weights.tensors`.
"""

import json
import re
import tempfile
from functools import cache
from pathlib import Path

from brim.checkpoint import open_checkpoint
from brim.engines.llama_cpp.builds import build_on
from brim.facts.device import DeviceSpec
from brim.facts.workload import LlamaWorkload
from tests.logs import BACKENDS, EXPERTS, MIXES, OLLAMA, header_of, split_of
from tests.logs import build_of as _build_of

GOLDEN = Path(__file__).resolve().parent / "golden" / "llamacpp_fresh_logs.jsonl"
_BACKENDS = {**BACKENDS, "MTL": "metal"}
_MIXES = {**MIXES, "Q4_0": "Q4_0", "Q3_K - Large": "Q3_K_L", "Q3_K - Small": "Q3_K_S", "Q2_K": "Q2_K", "Q5_0": "Q5_0", "Q4_1": "Q4_1"}


@cache
def rows():
    """The rows of the golden file."""
    return [json.loads(line) for line in GOLDEN.read_text().splitlines() if line]


def build_of(row):
    """The build number that the log prints, else the newest of its day; None where neither is known. Ollama's runner of early 2026 carries an older one."""
    build = row["build"] or ""
    if row["engine"] == "ollama" and row["run"].get("program") != "llama-server":
        return OLLAMA if build >= "2026" else build_on(*map(int, build.split("-"))) if build else None
    return _build_of({**row, "engine": "llama.cpp"})


def cards_of(row):
    """(name in the log, device) of each accelerator that the log names; one of a backend that brim does not know stands as a card of no backend."""
    names = {name.removesuffix("_Mapped") for part in ("model", "kv", "compute") for name in row["observed_mib"].get(part) or {}}
    names = sorted(
        (name for name in names if name not in ("CPU", "total") and "Host" not in name and not name.startswith("CPU_")), key=lambda name: (len(name), name)
    )
    made = []
    for name in names:
        word = name.rstrip("0123456789")
        backend = _BACKENDS.get(word, word.lower())
        made.append((name, DeviceSpec(id=f"{backend}:{name[len(word) :] or 0}", backend=backend, total_bytes=256 << 30, free_bytes=256 << 30)))
    return made


def opened(row, *, header_only=False):
    """The checkpoint that the log's header, file type and size stand for."""
    hp = {"sliding_window": None, "n_embd_k_gqa": None, "expert_count": None, **row["hparams"]}
    meta, _ = header_of({**row, "hparams": hp, "run": {"mla_attn": None, **row["run"]}})
    arch, weights = row["arch"], row["weights"]
    rope = None
    for key, value in (row.get("header") or {}).items():
        if key == "rope_freqs":
            rope = value
        else:
            meta[f"{arch}.{key}"] = value
    if rope:
        meta["rope_freqs"] = True
        meta.pop("rope_freqs")
    shape = {"name": row["id"], "file_type": _MIXES.get(weights["file_type"], "F16"), "metadata": meta}
    if weights["file_size_gib"]:
        shape["weights_bytes"] = int(weights["file_size_gib"] * (1 << 30))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(shape, file)
        file.flush()
        made = open_checkpoint(file.name)
    return made.replace(tensors=()) if header_only else made


def workload_of(row, cards):
    """The run in the program's words; the split that a log does not say is read from its caches' lines, for a cache follows its layer."""
    run, notes = row["run"], row["run"].get("other_flags") or ""
    layers = run.get("n_gpu_layers")
    shares = tuple(run.get("split") or ())
    if not shares and len(cards) > 1 and "-ot" not in notes and "total" not in row["observed_mib"].get("kv", {"total": 0}):
        shares = split_of({**row, "run": {"n_gpu_layers": layers}}, cards)[1]
    if layers is not None and layers >= (run.get("offload_total_layers") or 1 << 30):
        layers = 999
    asked = re.search(r"-ot (\S+?)=CPU", notes)
    patterns = ((asked[1], "CPU"),) if asked else ((EXPERTS, "CPU"),) if "experts on CPU" in notes else ()
    embedding = run.get("embedding")
    return LlamaWorkload(
        program=run.get("program") or "llama-cli",
        ctx=run["n_ctx"], slots=run["n_seq_max"] or 1, batch=run["n_batch"], ubatch=run["n_ubatch"], kv_unified=run["kv_unified"], ctk=run["type_k"], ctv=run["type_v"],
        flash_attn="on" if run["flash_attn"] else "off", swa_full=True if run.get("swa_full") else None, gpu_layers=layers, override_tensors=patterns, tensor_split=shares,
        kv_offload=False if "--no-kv-offload" in notes else None, mmap=run.get("mmap"), embeddings=embedding, pooling=run.get("pooling"), fit=False,
        spec_types=("draft-mtp",) if run.get("draft") == "mtp" else (),
    )  # fmt: skip
