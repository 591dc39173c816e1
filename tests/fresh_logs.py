"""Public logs that nobody had seen while the engine model was made, as what they stand for: a header, a shape file, devices and a workload; nothing is priced here.

One JSON row a line in golden/llamacpp_fresh_logs.jsonl: facts only (widths, settings, printed sizes), in the form of the first set, with the public file that each was read in.
Keys of the GGUF header that have no place in that form stand under `header`; tensors by type as the log counts them under `weights.tensors`.
"""

import json
import re
import tempfile
from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path

from brim.checkpoint import open_checkpoint
from brim.engines.llama_cpp import NEWEST_BUILD, context
from brim.engines.llama_cpp.builds import build_on
from brim.engines.llama_cpp.quantisation import quantise
from brim.facts.device import DeviceSpec
from brim.facts.workload import LlamaWorkload
from brim.implied import variants
from tests.logs import BACKENDS, EXPERTS, MIXES, OLLAMA, header_of, split_of
from tests.logs import build_of as _build_of

GOLDEN = Path(__file__).resolve().parent / "golden" / "llamacpp_fresh_logs.jsonl"
_BACKENDS = {**BACKENDS, "MTL": "metal"}
_MIXES = {**MIXES, "Q4_0": "Q4_0", "Q3_K - Large": "Q3_K_L", "Q3_K - Small": "Q3_K_S", "Q2_K": "Q2_K", "Q5_0": "Q5_0", "Q4_1": "Q4_1"}
# builds at which a rule of the engine model changes: a log of an interval may be of any of them
_CHANGES = sorted({value for name, value in vars(context).items() if name.isupper() and isinstance(value, int) and 2600 < value < NEWEST_BUILD})


@cache
def rows():
    """The rows of the golden file."""
    return [json.loads(line) for line in GOLDEN.read_text().splitlines() if line]


def builds_of(row):
    """The builds that the log may be of, oldest to newest: one that it prints, the newest of its day, or an interval that its form tells; () where none is known.

    Ollama's runner of early 2026 carries an older build.
    """
    build = row["build"] or ""
    if isinstance(build, list):
        return tuple(sorted({*build, *(one for one in _CHANGES if build[0] < one < build[1])}))
    if row["run"].get("mla_attn") in (2, 3):  # a fork that keeps latent rows only, as later builds do
        return (NEWEST_BUILD,)
    if row["engine"] == "ollama" and row["run"].get("program") != "llama-server":
        return (OLLAMA,) if build >= "2026" else (build_on(*map(int, build.split("-"))),) if build else ()
    known = _build_of({**row, "engine": "llama.cpp"})
    return () if known is None else (known,)


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
    if hp.get("n_ctx_train"):
        meta[f"{arch}.context_length"] = hp["n_ctx_train"]
    for key, value in (row.get("header") or {}).items():
        meta[f"{arch}.{key}"] = value
    shape = {"name": row["id"], "file_type": _MIXES.get(weights["file_type"], "F16"), "metadata": meta}
    if weights["file_size_gib"]:
        shape["weights_bytes"] = int(weights["file_size_gib"] * (1 << 30))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(shape, file)
        file.flush()
        made = open_checkpoint(file.name)
    if header_only:
        return made.replace(tensors=())
    return _as_counted(made, weights, shape["file_type"])


def _as_counted(made, weights, mix):
    """Of the directories that the header implies, that with the log's number of tensors of each type; the one already made where the log counts none or none fits."""
    counted = {kind.upper(): count for kind, count in (weights.get("tensors") or {}).items()}
    if not counted or None in counted.values() or not made.tensors:
        return made
    fitting = []
    for tensors, imatrix, older in product(variants(made.metadata), (None, True), (False, True)):
        other = quantise(made.replace(tensors=tensors, file_bytes=0, caveats=()), mix, imatrix=imatrix, older=older)
        if Counter(tensor.dtype for tensor in other.tensors) == counted:
            fitting.append(other)
    size = (weights["file_size_gib"] or 0) * (1 << 30)
    return min(fitting, key=lambda one: abs(one.file_bytes - size)) if fitting else made


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
        program=run.get("program") or ("ollama" if row["engine"] == "ollama" else "llama-cli"),
        ctx=run["n_ctx"], slots=run["n_seq_max"] or 1, batch=run["n_batch"], ubatch=run["n_ubatch"], kv_unified=run["kv_unified"], ctk=run["type_k"], ctv=run["type_v"],
        flash_attn={None: None, True: "on", False: "off"}[run["flash_attn"]], swa_full=True if run.get("swa_full") else None, gpu_layers=layers, override_tensors=patterns, tensor_split=shares,
        kv_offload=False if "--no-kv-offload" in notes else None, mmap=run.get("mmap"), embeddings=embedding, pooling=run.get("pooling"), fit=False,
        spec_types=("draft-mtp",) if run.get("draft") == "mtp" else (), draft_max=run.get("draft_max"), rollback_rows=run.get("draft_max"), load_mtp=True if run.get("draft_max") else None,
    )  # fmt: skip
