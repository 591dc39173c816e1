"""Full-size models as sparse files, opened by a real llama.cpp on the CPU: its own log beside the price of the same load."""

import importlib.metadata
import json
import pathlib
import subprocess
import sys
import threading

from brim.engines.llama_cpp import price
from brim.engines.llama_cpp.log import buffers
from brim.facts.workload import LlamaWorkload
from tests.allocations import checkpoint_of, tensors_of
from tests.gguf_bytes import write_sparse

LOADER = pathlib.Path(__file__).parent / "load.py"
SUMMED = {"kv_cache_swa": "kv_cache"}


def logged(kind, name, settings, folder, *, whole=False):
    """Bytes by part that the engine's log prints for a load of a shape (`kind` is `shapes` or `models`, see `tests.allocations`); `whole`: every buffer apart."""
    metadata, tensors = tensors_of(kind, name)
    path = pathlib.Path(folder) / f"{name}.gguf"
    write_sparse(str(path), metadata, tensors)
    try:
        log = _until_reserved([sys.executable, str(LOADER), str(path), json.dumps(settings)])
    finally:
        path.unlink()
    if whole:
        return buffers(log)
    held = {}
    for item in buffers(log):
        held[item.part] = held.get(item.part, 0) + item.bytes
    return held


def _until_reserved(command):
    """The log up to the line behind the last buffer; the loader is stopped there: what it would do next is of no interest and may take for ever."""
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    guard = threading.Timer(240, child.kill)
    guard.start()
    lines = []
    assert child.stderr is not None
    try:
        for line in child.stderr:
            lines.append(line)
            if "sched_reserve: graph" in line:
                break
        else:
            raise AssertionError("the engine did not load the file:\n" + "".join(lines[-30:]))
    finally:
        guard.cancel()
        child.kill()
        child.wait()
        child.stderr.close()
    return "".join(lines)


def planned(kind, name, settings):
    """Bytes by part of the price of the same load."""
    asked = LlamaWorkload(
        program="llama-server", ctx=settings["ctx"], slots=settings["slots"], batch=settings.get("batch", 2048), ubatch=settings.get("ubatch", 512), ctk=settings.get("kind", "f16"),
        ctv=settings.get("kind", "f16"), kv_unified=settings.get("unified", False), swa_full=settings.get("swa_full", False),
    )  # fmt: skip
    plan = price(checkpoint_of(kind, name), asked, (), version=int(importlib.metadata.version("xllamacpp").rpartition(".")[2]))
    assert not plan.missing, plan.missing
    held = {}
    for part in plan.parts:
        key = SUMMED.get(part.name, part.name)
        held[key] = held.get(key, 0) + part.bytes.likely
    return held
