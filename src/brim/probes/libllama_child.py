"""Loads one libllama in a process of its own, asks it to simulate one load (`no_alloc`), and writes what it would allocate by buffer type; it stands alone and imports nothing of ours.

The parameter structs of llama.h change from build to build and carry no version. So none is believed: on x86-64 the defaults are written into a poisoned buffer, which shows the
struct's true size; then size and defaults must match exactly one of the layouts below, all read from headers (llama-cpp-python's copies of include/llama.h, and b11434's).
Anything else is refused by name. The figures come from `llama_get_memory_breakdown` (src/llama-ext.h), an std::map of libstdc++ that is walked node by node.
What the library logs goes to stderr. Started by `libllama.py` as `python -I -S libllama_child.py REQUEST`; a crash or a hang in here is the parent's answer.
"""

import ctypes
import json
import os
import struct
import sys

BIG = 1024
POISON = 0xA5
# name:kind; kinds are those of `struct`: P pointer, i int32, I uint32, f float, Q size_t, ? bool
_BEFORE = "devices:P overrides:P n_gpu_layers:i split_mode:i"
_BETWEEN = "tensor_split:P progress:P progress_data:P kv_overrides:P vocab_only:?"
# (the build that its header is from, fields). llama-cpp-python 0.3.16 (August 2025) has no `no_alloc`: it can only be asked by loading, which is not done here
MODEL = (
    ("b11434", f"{_BEFORE} load_mode:i lazy_mode:i main_gpu:i {_BETWEEN} check_tensors:? use_extra_bufts:? no_host:? no_alloc:? load_mtp:?"),
    (
        "llama-cpp-python 0.3.20",
        f"{_BEFORE} main_gpu:i {_BETWEEN} use_mmap:? use_direct_io:? use_mlock:? check_tensors:? use_extra_bufts:? no_host:? no_alloc:?",
    ),
    ("llama-cpp-python 0.3.16", f"{_BEFORE} main_gpu:i {_BETWEEN} use_mmap:? use_mlock:? check_tensors:? use_extra_bufts:?"),
)
_SHARED = "n_ctx:I n_batch:I n_ubatch:I n_seq_max:I"
_ROPE = "rope_scaling:i pooling:i attention:i flash:i rope_base:f rope_scale:f yarn_ext:f yarn_attn:f yarn_fast:f yarn_slow:f yarn_ctx:I defrag:f eval:P eval_data:P type_k:i type_v:i"
_SWITCHES = "abort:P abort_data:P embeddings:? offload_kqv:? no_perf:? op_offload:? swa_full:? kv_unified:? samplers:P n_samplers:Q"
CONTEXT = (
    ("b11739", f"{_SHARED} n_rs_seq:I n_outputs_max:I n_outputs_max_per_seq:I threads:i threads_batch:i kind:i {_ROPE} moe_cache:Q {_SWITCHES} other:P"),
    ("b11434", f"{_SHARED} n_rs_seq:I n_outputs_max:I n_outputs_max_per_seq:I threads:i threads_batch:i kind:i {_ROPE} {_SWITCHES} other:P"),
    ("llama-cpp-python 0.3.30", f"{_SHARED} n_rs_seq:I n_outputs_max:I threads:i threads_batch:i kind:i {_ROPE} {_SWITCHES} other:P"),
    ("llama-cpp-python 0.3.26", f"{_SHARED} n_rs_seq:I n_outputs_max:I threads:i threads_batch:i kind:i {_ROPE} {_SWITCHES}"),
    ("llama-cpp-python 0.3.20", f"{_SHARED} threads:i threads_batch:i {_ROPE} {_SWITCHES}"),
)
# the defaults that every one of these builds has (llama_model_default_params, llama_context_default_params); pointers are null, other switches 0 or 1
DEFAULTS = {
    "split_mode": 1, "main_gpu": 0, "vocab_only": 0, "use_extra_bufts": 1, "no_host": 0, "no_alloc": 0, "check_tensors": 0, "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1,
    "n_rs_seq": 0, "n_outputs_max": 0, "yarn_ext": -1.0, "yarn_ctx": 0, "kind": 0, "rope_scaling": -1, "pooling": -1, "attention": -1, "flash": -1, "rope_base": 0.0, "type_k": 1, "type_v": 1,
    "embeddings": 0, "offload_kqv": 1, "n_samplers": 0, "moe_cache": 0,
}  # fmt: skip
RANGES = {
    "n_gpu_layers": (-1, 999),
    "threads": (1, 4096),
    "threads_batch": (1, 4096),
    "n_outputs_max_per_seq": (0, 1),
    "load_mode": (-1, 4),
    "lazy_mode": (0, 2),
}
_KEPT: "list[object]" = []  # what the library was given the address of
_SIZES = {"P": 8, "Q": 8, "i": 4, "I": 4, "f": 4, "?": 1}


class Unknown(Exception):
    """Why this library is not asked."""


def lay(fields: str) -> "tuple[dict[str, tuple[int, str]], int]":
    """Field → (offset, kind) by C's rules of alignment, and the struct's size."""
    at, placed = 0, {}
    for word in fields.split():
        name, kind = word.split(":")
        size = _SIZES[kind]
        at = -(-at // size) * size
        placed[name] = (at, kind)
        at += size
    return placed, -(-at // 8) * 8


def read(raw: bytes, placed: "dict[str, tuple[int, str]]", name: str) -> float:
    """One field's value; a bool as its byte, whatever it is."""
    offset, kind = placed[name]
    return float(struct.unpack_from("B" if kind == "?" else "Q" if kind == "P" else kind, raw, offset)[0])


def matches(raw: bytes, fields: str, size: "int | None") -> bool:
    """Whether these defaults can be a struct of these fields."""
    placed, whole = lay(fields)
    last = max(offset + _SIZES[kind] for offset, kind in placed.values())
    if size is not None and not last <= size <= whole:
        return False
    for name, (_offset, kind) in placed.items():
        value = read(raw, placed, name)
        if kind == "P" and name not in ("abort", "abort_data") and value != 0:
            return False
        if kind == "?" and value not in (0, 1):
            return False
        low, high = RANGES.get(name, (DEFAULTS.get(name, value),) * 2)
        if not low <= value <= high:
            return False
    return True


def defaults_of(library: ctypes.CDLL, function: str) -> "tuple[bytes, int | None]":
    """(the defaults, the struct's size). Where a struct's address is passed as a first argument (x86-64) the buffer is poisoned twice, which shows what was written."""
    if os.uname().machine in ("x86_64", "amd64"):
        called = getattr(library, function)
        called.restype, called.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        shots = []
        for poison in (POISON, POISON ^ 0xFF):
            held = (ctypes.c_ubyte * BIG)(*([poison] * BIG))
            called(ctypes.addressof(held))
            shots.append(bytes(held))
        written = [i for i in range(BIG) if shots[0][i] == shots[1][i]]
        if not written or written[-1] >= BIG - 64:
            raise Unknown(f"{function} wrote no struct that could be measured")
        return shots[0], written[-1] + 1

    class Room(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_ubyte * BIG)]

    called = getattr(library, function)
    called.restype, called.argtypes = Room, []
    return bytes(called().bytes), None


def known(raw: bytes, size: "int | None", layouts: "tuple[tuple[str, str], ...]", what: str) -> "tuple[str, str]":
    """The one layout that these defaults have; `Unknown` where none or several do."""
    found = [layout for layout in layouts if matches(raw, layout[1], size)]
    if len(found) != 1:
        measured = "" if size is None else f" ({size} bytes)"
        raise Unknown(f"a libllama whose parameter structs brim does not know: its {what}{measured} is none of {', '.join(name for name, _ in layouts)}")
    return found[0]


def patched(raw: bytes, fields: str, values: "dict[str, float | None]", lacking: "list[str]") -> ctypes.Structure:
    """The defaults with these fields set, as a struct that can be passed by value; a field that the build lacks is added to `lacking` where it is asked for as no default."""
    placed, size = lay(fields)
    held = bytearray(raw[:size])
    for name, value in values.items():
        if value is None:
            continue
        if name not in placed:
            lacking += [name] if value else []
            continue
        offset, kind = placed[name]
        struct.pack_into("Q" if kind == "P" else kind, held, offset, value if kind == "f" else bool(value) if kind == "?" else int(value))

    class Params(ctypes.Structure):
        _fields_ = [("words", ctypes.c_uint64 * (size // 8))]

    return Params.from_buffer_copy(held)


def pairs(library: ctypes.CDLL, context: int) -> "list[list[object]]":
    """[buffer type, host?, weights, context, compute] of each buffer type, in bytes: the nodes of the map that the library returns."""
    for name in ("_Z26llama_get_memory_breakdownPK13llama_context", "_ZNK13llama_context16memory_breakdownEv"):
        if hasattr(library, name):
            break
    else:
        raise Unknown("this build does not tell its memory by buffer type (llama_get_memory_breakdown)")
    if sys.platform == "darwin":
        raise Unknown("its memory by buffer type is a map of libc++'s, which brim does not read")

    class Head(
        ctypes.Structure
    ):  # comparison, colour, parent (the root), left, right, count (libstdc++, bits/stl_tree.h); returned through a hidden address on every machine
        _fields_ = [("words", ctypes.c_uint64 * 6)]

    called = getattr(library, name)
    called.restype, called.argtypes = Head, [ctypes.c_void_p]
    words = list(called(context).words)
    if not 0 < words[5] <= 64:
        raise Unknown("its memory by buffer type is no map that brim can read")
    rows: list[list[object]] = []
    waiting = [words[2]]
    while waiting and len(rows) <= 64:
        node = waiting.pop()
        if not node:
            continue
        cells = (ctypes.c_uint64 * 8).from_address(node)
        waiting += [cells[2], cells[3]]
        rows.append([library.ggml_backend_buft_name(cells[4]).decode(), bool(library.ggml_backend_buft_is_host(cells[4])), cells[5], cells[6], cells[7]])
    if len(rows) != words[5]:
        raise Unknown("its memory by buffer type is no map that brim can read")
    return sorted(rows, key=lambda row: str(row[0]))


def _signatures(library: ctypes.CDLL) -> None:
    pointers = ("ggml_backend_dev_get", "ggml_backend_dev_buffer_type", "llama_model_load_from_file", "llama_init_from_model")
    for name in pointers:
        getattr(library, name).restype = ctypes.c_void_p
    library.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    library.ggml_backend_dev_buffer_type.argtypes = [ctypes.c_void_p]
    library.ggml_backend_dev_count.restype = ctypes.c_size_t
    library.ggml_backend_buft_name.restype, library.ggml_backend_buft_name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    library.ggml_backend_buft_is_host.restype, library.ggml_backend_buft_is_host.argtypes = ctypes.c_bool, [ctypes.c_void_p]


def _overrides(library: ctypes.CDLL, asked: "list[list[str]]") -> "ctypes.Array[ctypes.c_void_p] | None":
    """The array of (pattern, buffer type), ended by nulls."""
    if not asked:
        return None
    types = {}
    for i in range(library.ggml_backend_dev_count()):
        buffer = library.ggml_backend_dev_buffer_type(library.ggml_backend_dev_get(i))
        types[library.ggml_backend_buft_name(buffer).decode()] = buffer
    made = (ctypes.c_void_p * (2 * len(asked) + 2))()
    for i, (pattern, where) in enumerate(asked):
        if where not in types:
            raise Unknown(f"it has no buffer type {where} (it has {', '.join(sorted(types))})")
        words = ctypes.create_string_buffer(pattern.encode())
        _KEPT.append(words)
        made[2 * i], made[2 * i + 1] = ctypes.addressof(words), types[where]
    return made


def ask(request: "dict[str, object]") -> "dict[str, object]":
    """The figures of one simulated load, and the layouts that the library was found to have."""
    library = ctypes.CDLL(str(request["library"]), mode=ctypes.RTLD_GLOBAL)
    needed = (
        "llama_model_default_params",
        "llama_context_default_params",
        "llama_model_load_from_file",
        "llama_init_from_model",
        "ggml_backend_buft_name",
        "ggml_backend_dev_count",
    )
    absent = [name for name in needed if not hasattr(library, name)]
    if absent:
        raise Unknown(f"it has no {absent[0]}: not a libllama, or one from before 2025")
    _signatures(library)
    raw, size = defaults_of(library, "llama_model_default_params")
    model_build, fields = known(raw, size, MODEL, "llama_model_params")
    if "no_alloc" not in fields:
        raise Unknown(
            f"a libllama like that of {model_build} cannot simulate a load (no_alloc came in December 2025): it is not asked to load the model in earnest"
        )
    if library.ggml_backend_dev_count() == 0 and hasattr(library, "ggml_backend_load_all_from_path"):
        library.ggml_backend_load_all_from_path(os.fsencode(os.path.dirname(os.path.realpath(str(request["library"])))))
    values = dict(request["model_params"])  # type: ignore[call-overload]
    overrides = _overrides(library, request["overrides"])  # type: ignore[arg-type]
    split = [float(share) for share in request["tensor_split"]]  # type: ignore[attr-defined]
    shares = (ctypes.c_float * 128)(*split)
    values.update({"no_alloc": 1, "load_mode": 0 if "load_mode" in fields else None, "use_mmap": 0 if "use_mmap" in fields else None})
    values["overrides"] = None if overrides is None else ctypes.addressof(overrides)
    values["tensor_split"] = ctypes.addressof(shares) if split else None
    lacking: list[str] = []
    model_params = patched(raw, fields, values, lacking)
    raw, size = defaults_of(library, "llama_context_default_params")
    context_build, fields = known(raw, size, CONTEXT, "llama_context_params")
    context_params = patched(raw, fields, request["context_params"], lacking)  # type: ignore[arg-type]
    library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, type(model_params)]
    library.llama_init_from_model.argtypes = [ctypes.c_void_p, type(context_params)]
    library.llama_backend_init()
    model = library.llama_model_load_from_file(os.fsencode(str(request["file"])), model_params)
    if not model:
        raise Unknown("it could not load the model")
    context = library.llama_init_from_model(model, context_params)
    if not context:
        raise Unknown("it made no context for this workload")
    return {"buffers": pairs(library, context), "layouts": [model_build, context_build], "lacking": lacking}


def _limit(most: "int | None") -> None:
    """No core file, and no more memory than that (private and writable, which is what a simulated load may need)."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if most is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main() -> None:
    """Ask, write one JSON document to the real standard output, and leave without running anybody's exit code."""
    request = json.loads(sys.argv[1])
    out = os.dup(1)
    os.dup2(2, 1)
    _limit(request.get("most_bytes"))
    try:
        answer = ask(request)
    except Unknown as why:
        answer = {"fault": str(why)}
    except OSError as why:
        answer = {"fault": f"it cannot be loaded: {why}"}
    os.write(out, json.dumps(answer).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
