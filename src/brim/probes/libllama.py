"""Asks a bare libllama: finds one on this machine, lets a child process simulate one load of the workload in it, and reads what it would allocate; it compares nothing.

Where it is looked for, in this order: `BRIM_LIBLLAMA`, `LD_LIBRARY_PATH`, beside llama-server or llama-cli on PATH (and in the `lib` beside their `bin`), the loader's cache, and the
Python packages that carry one, in the interpreters of this process, of `VIRTUAL_ENV` and of PATH. Nothing is imported to find it. The load is simulated (`no_alloc`): no weight is read,
no card's memory is taken but for its context. A crash, a hang past the deadline or a build that brim does not know is the reason of the missing rows, never a failure.
"""

import json
import os
import shutil
import signal
import subprocess
import sys

from brim.facts.dtypes import GGML_TYPES
from brim.facts.engine import EngineNumbers, EngineRow
from brim.units import MIB
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from brim.facts.workload import LlamaWorkload

VARIABLE = "BRIM_LIBLLAMA"
DEADLINE_S = 60.0
MOST_BYTES = 4 << 30  # what a simulated load may take: the vocabulary and the graphs, not the weights
MOST_FOUND = 4
NAMES = ("libllama.so", "libllama.so.0", "libllama.dylib")
# Python packages and where in them the library lies; xllamacpp's extension module has all of libllama in it
PACKAGES = ("llama_cpp/lib", "llama_cpp", "llama_cpp_py_sync", "llama_cpp_cuda/lib", "easy_llama")
EXTENSIONS = ("xllamacpp/xllamacpp.abi3.so",)
CARDS = ("cuda", "hip", "vulkan", "sycl", "cann", "musa")  # their drivers reserve address space that no limit on memory should count
FLASH = {"auto": -1, "off": 0, "on": 1}
SPLITS = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}


def find(environ: "Mapping[str, str]", root: str = "") -> "tuple[str, ...]":
    """The paths of the libllamas that are here, at most `MOST_FOUND`; the one that is named alone, where one is."""
    named = environ.get(VARIABLE, "").strip()
    if named:  # a bare name is a file here before it is one that the loader looks for
        return (os.path.abspath(named) if os.path.isfile(named) else named,)
    found: dict[str, str] = {}
    for path in _candidates(environ, root):
        if os.path.isfile(path):
            found.setdefault(os.path.realpath(path), path)
        if len(found) == MOST_FOUND:
            break
    return tuple(found.values())


def _candidates(environ: "Mapping[str, str]", root: str) -> "Iterator[str]":
    folders = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    path = environ.get("PATH", "")
    for program in ("llama-server", "llama-cli"):
        found = shutil.which(program, path=path)
        if found:
            beside = os.path.dirname(os.path.realpath(found))
            folders += [beside, os.path.join(os.path.dirname(beside), "lib")]
    for folder in folders:
        yield from (os.path.join(folder, name) for name in NAMES)
    yield from _cached(root)
    for packages in _packages(environ, path):
        yield from (os.path.join(packages, inside, name) for inside in PACKAGES for name in NAMES)
        yield from (os.path.join(packages, name) for name in EXTENSIONS)


def _cached(root: str) -> "Iterator[str]":
    """What the loader's cache knows (`ldconfig -p`), and the usual folders where it cannot be asked."""
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin") if not root else None
    if ldconfig:
        try:
            listed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, timeout=5, check=False, errors="replace").stdout
        except (OSError, subprocess.TimeoutExpired):
            listed = ""
        yield from (line.rpartition("=> ")[2].strip() for line in listed.splitlines() if line.strip().startswith("libllama.so") and "=> " in line)
    for folder in ("/usr/local/lib", "/usr/lib", "/opt/homebrew/lib"):
        yield from (f"{root}{folder}/{name}" for name in NAMES)


def _packages(environ: "Mapping[str, str]", path: str) -> "Iterator[str]":
    """The folders of Python packages of this interpreter, of the active environment and of the interpreters on PATH."""
    yield from (folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages")))
    prefixes = [environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    for program in ("python3", "python"):
        found = shutil.which(program, path=path)
        if found:
            prefixes.append(os.path.dirname(os.path.dirname(found)))
    for prefix in prefixes:
        library = os.path.join(prefix, "lib")
        versions = sorted(os.listdir(library), reverse=True) if os.path.isdir(library) else []
        yield from (os.path.join(library, one, kind) for one in versions if one.startswith("python3") for kind in ("site-packages", "dist-packages"))


def request(library: str, model: str, workload: "LlamaWorkload", experts: "tuple[tuple[str, str], ...]" = ()) -> "dict[str, object]":
    """The workload as the fields of llama.h's parameter structs; None leaves the library's default. `experts` are the overrides of `--n-cpu-moe`."""
    types = {name.lower(): number for number, (name, _, _) in GGML_TYPES.items()}
    switch = {None: None, True: 1, False: 0}
    layers = workload.gpu_layers
    return {
        "library": library,
        "file": model,
        "most_bytes": None if _has_cards(library) else MOST_BYTES,
        "model_params": {
            "n_gpu_layers": 999 if layers is None or layers < 0 else layers, "split_mode": SPLITS.get(workload.split_mode or "layer", 1), "main_gpu": workload.main_gpu or 0,
            "use_extra_bufts": 0 if workload.repack is False else 1, "no_host": 1 if workload.no_host else 0, "load_mtp": 1 if workload.load_mtp else 0,
        },
        "overrides": [[pattern, where] for pattern, where in (*workload.override_tensors, *experts)],
        "tensor_split": list(workload.tensor_split),
        "context_params": {
            "n_ctx": workload.ctx or 0, "n_batch": workload.batch, "n_ubatch": workload.ubatch, "n_seq_max": workload.slots or 1, "n_rs_seq": workload.rollback_rows or 0,
            "n_outputs_max": workload.outputs or 0, "flash": FLASH.get(workload.flash_attn or "auto", -1), "type_k": types.get((workload.ctk or "f16").lower()),
            "type_v": types.get((workload.ctv or "f16").lower()), "embeddings": switch[workload.embeddings], "offload_kqv": switch[workload.kv_offload],
            "op_offload": switch[workload.op_offload], "swa_full": 1 if workload.swa_full else 0, "kv_unified": 1 if workload.kv_unified else 0,
            "pooling": POOLING.get(workload.pooling or ""),
        },
    }  # fmt: skip


def _has_cards(library: str) -> bool:
    """Whether the library's folder holds a backend for cards, or the library is one file that may have one in it."""
    folder = os.path.dirname(os.path.realpath(library))
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(name.startswith("libggml-") and any(word in name for word in CARDS) for name in names)


def ask(asked: "dict[str, object]", *, deadline_s: float = DEADLINE_S, environ: "Mapping[str, str] | None" = None) -> EngineNumbers:
    """Let a child ask it. Never raises: what went wrong is the reason of the missing rows."""
    library = str(asked["library"])
    child = os.path.join(os.path.dirname(__file__), "libllama_child.py")
    command = [sys.executable, "-I", "-S", child, json.dumps(asked)]
    environment = {**(os.environ if environ is None else environ), "GGML_NO_BACKTRACE": "1"}
    shown = (library, "llama_init_from_model", str(asked["file"]))
    try:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True)
    except OSError as fault:
        return _nothing(library, shown, f"no child could be started: {fault.strerror}")
    try:
        answer, log = running.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)  # the child leads a group of its own and is not reaped yet
        running.wait()
        for pipe in (running.stdout, running.stderr):  # what the library started outside that group may hold them open for ever
            if pipe is not None:
                pipe.close()
        return _nothing(library, shown, f"it was asked and gave no answer within {deadline_s:.0f} s")
    last = next((_plain(line) for line in reversed(log.decode("utf-8", "replace").splitlines()) if line.strip()), "")
    if running.returncode < 0:
        name = signal.Signals(-running.returncode).name
        return _nothing(library, shown, f"it was asked and died by {name}" + (f" (its last words: {last[:200]})" if last else ""))
    try:
        found = json.loads(answer)
    except ValueError:
        return _nothing(library, shown, f"it was asked and left with {running.returncode}" + (f" (its last words: {last[:200]})" if last else ""))
    if "buffers" not in found:
        why = str(found.get("fault", "no figures"))
        refused = "could not load" in why or "made no context" in why
        return _nothing(library, shown, why + (f" (it said: {last[:200]})" if last and refused else ""))
    return EngineNumbers(
        program=library, command=shown, build=Missing(reason="not_supported", detail="a bare libllama names no build"), rows=_rows(found["buffers"]),
        buffers=tuple((str(name), int(model)) for name, _, model, _, _ in found["buffers"] if model), layouts=tuple(found["layouts"]), lacking=tuple(found["lacking"]),
    )  # fmt: skip


def ask_first(
    libraries: "tuple[str, ...]", model: str, workload: "LlamaWorkload", experts: "tuple[tuple[str, str], ...]", environ: "Mapping[str, str]"
) -> EngineNumbers:
    """The answer of the first of these that gives one; where none does, the first one's reason, and in short those of the others."""
    answers = []
    for library in libraries:
        answer = ask(request(library, model, workload, experts), environ=environ)
        if not isinstance(answer.rows, Missing):
            return answer
        answers.append(answer)
    others = "".join(f"; {one.program}: {one.rows.detail}" for one in answers[1:] if isinstance(one.rows, Missing))
    first = answers[0]
    assert isinstance(first.rows, Missing)
    return first.replace(rows=first.rows.replace(detail=first.rows.detail + others))


def _plain(line: str) -> str:
    """A line of a library's log without what a terminal would obey (engines write in colours)."""
    return "".join(char if char.isprintable() else "�" for char in line.strip())


def _nothing(library: str, shown: "tuple[str, ...]", why: str) -> EngineNumbers:
    return EngineNumbers(
        program=library,
        command=shown,
        build=Missing(reason="not_supported", detail="a bare libllama names no build"),
        rows=Missing(reason="failed", detail=why),
    )


def _rows(buffers: "list[list[object]]") -> tuple[EngineRow, ...]:
    """One row a device: the host's buffer types together (`CPU`, `CPU_REPACK`, `AMX`, `CUDA_Host`), a card's apart."""
    held: dict[str, list[int]] = {}
    for name, host, *sizes in buffers:
        device = "Host" if host or str(name).startswith("CPU") or name == "AMX" else str(name)
        row = held.setdefault(device, [0, 0, 0])
        for i, size in enumerate(sizes):
            row[i] += int(str(size))
    return tuple(
        EngineRow(device=device, weights_mib=row[0] // MIB, context_mib=row[1] // MIB, compute_mib=row[2] // MIB, exact=(row[0], row[1], row[2]))
        for device, row in held.items()
    )  # fmt: skip
