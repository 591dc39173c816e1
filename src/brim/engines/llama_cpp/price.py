"""Prices one llama.cpp workload: every part by device, from the header's facts alone; no I/O, no clock.

Covered: weights by device, all cache kinds, recurrent state, output buffer, and the compute buffers by a replay of the engine's graph. What is not
covered is named in `Plan.missing` or in a caveat, never guessed.
"""

from brim.engines.base import Part, Plan
from brim.engines.llama_cpp import caches, constants, graphs, hparams, reserve, weights
from brim.engines.llama_cpp.caches import Cache, Memory, State
from brim.engines.llama_cpp.context import ASKED_ROWS, LOGITS_AND_ROWS, METAL_GROUPS, METAL_ROOM, OLLAMA_SERVES, PIPELINES, Context
from brim.engines.llama_cpp.hparams import ENCODED, Hparams, Wanting
from brim.engines.llama_cpp.reserve import Reserve
from brim.engines.llama_cpp.weights import HOST, Placement
from brim.facts.device import DeviceSpec
from brim.facts.model import Checkpoint
from brim.facts.workload import LlamaWorkload
from brim.units import Span, exactly
from brim.values import Missing, plain

NEWEST_BUILD = 11434
READ_FROM = 3500  # graphs of earlier builds were priced with rules of later ones and compared with a few logs only
NGL_NONE = 6165  # the last build that is known to leave all layers on the host by itself
_BUILD = "llama.cpp b11434"
_BESIDE = {
    "lora": "this is a LoRA adapter and no model: give the model, and the adapter with --lora",
    "mmproj": "this is a projector and no model: give the model, and the projector with --mmproj",
    "imatrix": "this is an importance matrix and no model",
    "vocab": "this file holds a vocabulary and no tensors",
}
_WHOSE = {
    "indexer": " of the indexer", "fours": " of four tokens", "many": " of 128 tokens", "fours_state": " of keys to be made one and their scores", "many_state": " of keys to be made one and their scores",
    "indexer_state": " of the indexer's keys to be made one and their scores",
}  # fmt: skip
_CUDA_LIKE = frozenset(("cuda", "rocm", "hip", "musa"))
_READ = _CUDA_LIKE | frozenset(
    ("metal", "mtl", "vulkan", "sycl", "xpu", "opencl", "gpuopencl", "rpc", "cpu")
)  # of the others (CANN, Hexagon, …) nobody read which operations they take


def price(checkpoint: Checkpoint, workload: LlamaWorkload, devices: tuple[DeviceSpec, ...], *, version: int = NEWEST_BUILD) -> Plan:
    """The plan of `workload` on `devices` (accelerators in llama.cpp's order; the host is always present as `cpu`) for build b`version`.

    What cannot be priced is named in `Plan.missing`, never guessed; where only the graph's tensors are lacking, the other parts are there.
    """
    wrong = _no_model(checkpoint)
    if wrong:
        return _unpriced(workload, version, wrong)
    hp = hparams.read(checkpoint)
    if isinstance(hp, Missing):
        return _unpriced(workload, version, hp.detail)
    try:
        context = Context(workload, hp, version)
        placement = weights.placed(hp, workload, devices, load_mtp=context.load_mtp, version=version)
        memory = caches.remember(hp, context)
    except Wanting as why:
        return _unpriced(workload, version, str(why))
    graphed = graphs.known(hp.arch)
    if not graphed and hp.arch not in hparams.REMEMBERED:
        return _unpriced(workload, version, f"the compute graph of architecture {hp.arch!r} is not modelled yet")
    reserved = grown = kept = None
    missing: tuple[str, ...] = ()
    if not hp.tensors:
        missing = ("weights and compute buffers: the file lists no tensors, only caches, states and the output buffer follow from its header",)
    elif not graphed:
        missing = (f"compute buffers: the compute graph of architecture {hp.arch!r} is not modelled yet",)
    else:
        try:
            memory, reserved = reserve.remembered(hp, context, placement)
            grown = reserve.remembered(hp, context.in_use(), placement)[1] if hp.arch == "minimax-m3" else None
            if placement.gpus and context.op_offload and (HOST in placement.layers or placement.overridden) and weights.lays_anew(workload, placement, version):
                kept = reserve.remembered(hp, context.at_home(), placement)[1]
        except Wanting as why:
            missing = (f"compute buffers: {why}",)
    try:
        parts = [*_weights(hp, placement, checkpoint, workload, devices, version), *_caches(hp, context, memory, placement)]
    except Wanting as why:
        return _unpriced(workload, version, str(why))
    if reserved is not None:
        parts += _compute(hp, context, reserved, placement, grown, kept)
    parts += [_output(hp, context), *_overheads(placement)]
    return Plan(
        engine="llama.cpp", engine_version=f"b{version}", parts=tuple(parts), workload=_echo(workload, context, placement), missing=missing, caveats=(*_unsaid(workload, placement, version), *_caveats(hp, context, placement, parts, reserved)),
    )  # fmt: skip


def next_token_context(checkpoint: Checkpoint, workload: LlamaWorkload, devices: tuple[DeviceSpec, ...], *, version: int) -> "tuple[list[Part], str]":
    """Cache, graph and output rows of the context that drafts with next-token blocks, or of an EAGLE 3, DFlash or DSpark draft (no weights), and what is wanting or "".

    The graph is reserved at the start, and again with the draft's sampler in it before the first token: the span holds both.
    """
    hp = hparams.read(checkpoint)
    if isinstance(hp, Missing):
        return [], hp.detail
    try:
        first = Context(workload, hp, version).drafting(sampled=0, block=hp.arch not in hparams.DRAFTS)
        placement = weights.placed(hp, workload, devices, load_mtp=True, version=version)
        memory, start = reserve.remembered(hp, first, placement)
        each = max(1, (workload.outputs or 1) // first.sequences) if hp.arch == "dflash" else 1  # a block of tokens is drafted in one pass
        _, later = reserve.remembered(hp, first.drafting(sampled=each, block=first.mtp), placement)
    except Wanting as why:
        return [], str(why)
    compute = []
    for before, after in zip(_compute(hp, first, start, placement), _compute(hp, first, later, placement), strict=True):
        low, high = min(before.bytes.low, after.bytes.low), max(before.bytes.high, after.bytes.high)
        compute.append(after.replace(bytes=Span(low=low, likely=after.bytes.likely, high=high)))
    rows, vocabulary = first.sequences, hp.vocabulary
    start_bytes = 4 * vocabulary * rows
    most = 4 * rows * each * (4 * vocabulary + 1 + _width_out(hp))
    rule = f"4 B × {vocabulary} tokens × {rows} sequences = {start_bytes}; with the sampler's rows and hidden states {most}"
    output = Part(
        name="output_buffer",
        device=HOST,
        bytes=Span(low=start_bytes, likely=start_bytes, high=most),
        rule=rule,
        source=f"{_BUILD}, llama-context.cpp: output_reserve",
    )
    return [*_caches(hp, first, memory, placement), *compute, output], ""


def _width_out(hp: Hparams) -> int:
    """Width of a row of embeddings (`n_embd_out`)."""
    if hp.arch in ("deepseek4", "qwen4exp"):
        return hp.width * int(hp.get("hyper_connection.count", 1))
    return int(hp.get("embedding_length_out", 0)) or hp.width


def _no_model(checkpoint: Checkpoint) -> str:
    """What the file is where it is no model that llama.cpp could open; "" where it is one."""
    if "general.architecture" not in checkpoint.metadata:
        return f"llama.cpp opens GGUF files and this is {checkpoint.form}: convert it (convert_hf_to_gguf.py), or name the engine that opens it"
    if checkpoint.role in _BESIDE:
        return _BESIDE[checkpoint.role]
    return ""


def _unpriced(workload: LlamaWorkload, version: int, why: str) -> Plan:
    asked = plain(workload)
    assert isinstance(asked, dict)
    return Plan(engine="llama.cpp", engine_version=f"b{version}", parts=(), workload=asked, missing=(why,))


def _echo(workload: LlamaWorkload, context: Context, placement: Placement) -> "dict[str, object]":
    """The workload as the engine will run it."""
    asked = plain(workload)
    assert isinstance(asked, dict)
    return {
        **asked, "ctx": context.total_cells, "slots": context.sequences, "kv_unified": context.unified, "batch": context.batch, "ubatch": context.ubatch, "outputs": context.outputs,
        "ctk": context.type_k.lower(), "ctv": context.type_v.lower(), "flash_attn": "on" if context.flash else "off", "swa_full": context.swa_full,
        "gpu_layers": sum(1 for device in [*placement.layers, placement.output] if device != HOST),
    }  # fmt: skip


def _weights(hp: Hparams, placement: Placement, checkpoint: Checkpoint, workload: LlamaWorkload, devices: tuple[DeviceSpec, ...], version: int) -> list[Part]:
    parts = []
    source = f"the file's tensor directory; {_BUILD}, llama-model.cpp: load_tensors"
    for device, held in sorted(placement.held.items()):
        if not held:
            continue
        if device == HOST and (workload.load_mode == "mmap+mlock" or weights.lays_anew(workload, placement, version)):
            from brim.engines.llama_cpp import repacked  # on use: a host that only has the embedding of a card's model has no question for it

            known = next((one for one in devices if one.backend == HOST), None)
            parts += repacked.host_parts(hp, placement, checkpoint.tensors, workload, known, version, source)
            continue
        lies = device if placement.spread is None or device == HOST else placement.gpus[0].id
        blocks = sum(1 for home in placement.layers[: hp.layers] if home == lies)
        what = (
            f"{'slices of ' if placement.spread is not None and device != HOST else ''}{placement.counts[device]} tensors, of {blocks} of {hp.layers} layers"
            + (" and the output layer" if placement.output == lies else "")
        )
        padding = "each padded to 32" if device == HOST else "each padded to 128, a quantised row that is no multiple of 512 by one partial row"
        rule = f"sum of {what}, {padding} = {held}"
        parts.append(Part(name="weights", device=device, bytes=exactly(held), rule=rule, source=source))
    return parts


def _caches(hp: Hparams, context: Context, memory: Memory, placement: Placement) -> list[Part]:
    parts: list[Part] = []
    if hp.arch == "gemma4-assistant":  # its layers read the caches of the target
        return parts
    named = [(memory.base, "kv_cache"), (memory.window, "kv_cache_swa")]
    named += [(cache, "recurrent_state" if cache.name.endswith("_state") else "kv_cache") for cache in memory.beside]
    for cache, name in named:
        if cache is not None:
            parts += _cache(cache, name, context, placement)
    if memory.state is not None:
        state = memory.state
        held: dict[str, list[int]] = {}
        for il in state.layers:
            held.setdefault(placement.layers[il] if context.kv_offload else HOST, []).append(il)
        if placement.spread is not None:
            parts += _spread_state(state, held.pop(placement.gpus[0].id, []), placement)
        for device, layers in sorted(held.items()):
            size = sum(state.layer_bytes(il) for il in layers)
            more = f" + {state.rows} × {state.history[1]} × 4 B of history" if state.history[0] in layers else ""
            rule = f"{len(layers)} layers × {state.rows} rows × ({state.conv} + {state.state}) values × 4 B{more} = {size}"
            parts.append(
                Part(
                    name="recurrent_state",
                    device=device,
                    bytes=exactly(size),
                    rule=rule,
                    source=f"{_BUILD}, llama-hparams.cpp: n_embd_r, n_embd_s; llama-memory-recurrent.cpp",
                )
            )
    return parts


def _spread_state(state: State, layers: "list[int]", placement: Placement) -> list[Part]:
    """The recurrent state of layers whose heads are spread over the cards."""
    held = dict.fromkeys((device.id for device in placement.together), 0)
    for il in layers:
        for kind, width in (("r", state.conv), ("s", state.state)):
            assert placement.spread is not None
            for device, dims in zip(held, placement.spread.cache(kind, il, (width, state.rows)), strict=True):
                held[device] += weights.stored_bytes("F32", dims, device) if all(dims) else 0
    rule = f"this card's heads in {len(layers)} layers × {state.rows} rows × ({state.conv} + {state.state}) values × 4 B"
    source = f"{_BUILD}, llama-model.cpp: llama_meta_device_get_split_state; llama-memory-recurrent.cpp"
    return [Part(name="recurrent_state", device=device, bytes=exactly(size), rule=f"{rule} = {size}", source=source) for device, size in held.items() if size]


def _slices(cache: Cache, il: int, key: int, value: int, home: str, placement: Placement) -> "list[tuple[str, int, int]]":
    """(device, K width, V width) of a layer's cells: where they lie, or each card's heads of them."""
    if placement.spread is None or home == HOST:
        return [(home, key, value)]
    made = []
    keys = placement.spread.cache("k", il, (key, cache.cells, cache.streams))
    values = placement.spread.cache("v", il, (value, cache.cells, cache.streams)) if value else [(0, 0, 0)] * len(keys)
    for device, k, v in zip(placement.together, keys, values, strict=True):
        made.append((device.id, k[0], v[0]))
    return made


def _cache(cache: Cache, name: str, context: Context, placement: Placement) -> list[Part]:
    held: dict[str, list[int]] = {}
    widths: dict[str, set[tuple[int, int]]] = {}
    known: dict[tuple[int, int, str], int] = {}
    for il, key, value in cache.rows:
        lies = placement.layers[il] if context.kv_offload else HOST
        for home, k, v in _slices(cache, il, key, value, lies, placement):
            entry = held.setdefault(home, [0, 0])
            entry[0] += 1
            size = known.get((k, v, home))
            if size is None:
                size = known[k, v, home] = cache.layer_bytes(k, v, home) if k or v else 0
            entry[1] += size
            widths.setdefault(home, set()).add((k, v))
    parts = []
    for device, (layers, size) in sorted(held.items()):
        if len(widths[device]) == 1:
            key, value = next(iter(widths[device]))
            row = f"{key} keys in {cache.type_k.lower()}" + (f" + {value} values in {cache.type_v.lower()}" if value else "")
        else:
            row = f"keys in {cache.type_k.lower()} and values in {cache.type_v.lower()} of {len(widths[device])} widths"
        row += _WHOSE.get(cache.name, "")
        rule = f"{cache.streams} × {cache.cells} cells × {layers} layers × ({row}) = {size}"
        parts.append(Part(name=name, device=device, bytes=exactly(size), rule=rule, source=f"{_BUILD}, llama-kv-cache.cpp: llama_kv_cache()"))
    return parts


def _compute(
    hp: Hparams, context: Context, reserved: Reserve, placement: Placement, grown: "Reserve | None" = None, kept: "Reserve | None" = None
) -> list[Part]:
    """The compute buffers as they are reserved; `grown` is the graph when the context is full, where that is another, `kept` the one in which the CPU keeps its own weights' work."""
    checked = graphs.CHECKED.get(hp.arch, "")
    source = f"replay of {_BUILD}'s graph of {reserved.nodes} operations in {reserved.splits} parts, {context.tokens} tokens, with ggml-alloc.c's best fit; "
    source += checked or "this architecture's graph was read from the source and never compared with a run"
    backends = {device.id: device.backend for device in placement.gpus}
    unread = ", ".join(sorted(set(backends.values()) - _READ))
    parts = []
    for device, likely in reserved.reported.items():
        if not likely:
            continue
        real = reserved.allocated[device]
        low, high = min(real, likely), max(real, likely)
        if not checked:
            low, high = low * 9 // 10, high * 11 // 10
        elif placement.gpus and hp.arch not in graphs.ON_CARDS:
            low, high = low * 97 // 100, high * 103 // 100  # compared on the CPU only: fusions and kernels of a card are read from the source
        backend = backends.get(device, "cuda")
        if backend not in _CUDA_LIKE and not (backend == "metal" and METAL_ROOM <= context.version < METAL_GROUPS):
            low, high = low * 9 // 10, high * 12 // 10
        if context.version < READ_FROM:
            low, high = low * 4 // 5, high * 6 // 5
        rule = reserved.peaks[device]
        if unread:
            low, high = low // 8, high * 2
            rule += f"; which operations {unread} takes was not read, and those that it leaves are the host's"
        if grown is not None and grown.allocated[device] > high:
            high = grown.allocated[device]
            rule += f"; reserved for 256 positions, it grows with those in use to {high}"
        if kept is not None and kept.allocated[device] != real:
            low, high = min(low, kept.allocated[device]), max(high, kept.allocated[device])
            rule += f"; {kept.allocated[device]} where the CPU laid all its weights out anew, whose work no card takes over (ggml-backend.cpp: only from host buffers)"
        if real != likely:
            rule = f"as llama.cpp's own fit and memory table count it {likely}; {real} are allocated then: {rule}"
        if placement.spread is None or device == HOST:
            parts.append(Part(name="compute_buffer", device=device, bytes=Span(low=low, likely=likely, high=high), rule=rule, source=source))
            continue
        more = (len(placement.together) - 1).bit_length() * 4 * hp.width * context.tokens  # room for the sums of all cards, where no library brings its own
        rule += f"; each card has the room of the whole graph, and up to {more} B more for the sums that the cards exchange"
        parts += [
            Part(name="compute_buffer", device=card.id, bytes=Span(low=low, likely=likely, high=high + more), rule=rule, source=source)
            for card in placement.together
        ]
    return parts


def _output(hp: Hparams, context: Context) -> Part:
    rows = context.sequences
    what = "sequences"
    if PIPELINES <= context.version < ASKED_ROWS:
        rows, what = context.batch, "tokens of the batch"
    size = 4 * hp.vocabulary * rows
    rule = f"4 B × {hp.vocabulary} tokens × {rows} {what}"
    both = not ASKED_ROWS <= context.version < LOGITS_AND_ROWS or hp.arch in ENCODED
    if context.embeddings and not both:
        size, rule = 0, "0: no logits beside embeddings"
    runner = context.program == "ollama" and context.version < OLLAMA_SERVES and hp.causal  # its own patch of output_reserve keeps logits and hidden rows
    if runner or (context.embeddings and (both or context.pooling == "none")):
        width = _width_out(hp)
        size += 4 * width * rows
        rule += f" + 4 B × {width} × {rows}"
    return Part(name="output_buffer", device=HOST, bytes=exactly(size), rule=f"{rule} = {size}", source=f"{_BUILD}, llama-context.cpp: output_reserve")


def _overheads(placement: Placement) -> list[Part]:
    parts = []
    for device in placement.together or placement.gpus:
        known = constants.overhead(device.backend)
        parts.append(Part(name="context_overhead", device=device.id, bytes=known.bytes, rule=known.rule, source=known.source))
    return parts


def _unsaid(workload: LlamaWorkload, placement: Placement, version: int) -> tuple[str, ...]:
    """What an old build would do where -ngl is left out: nothing on a card (`llama_model_default_params` of b4435, b5310 and b6165); and how far back the graphs were read."""
    early = (f"compute buffers of builds before b{READ_FROM} are priced by rules of later ones, a fifth either way",) if version < READ_FROM else ()
    if not placement.gpus or version > NGL_NONE or (workload.gpu_layers is not None and workload.gpu_layers >= 0):
        return early
    return (
        *early,
        f"b{version} puts no layer on a card where -ngl is left out (Metal apart); priced with all layers there",
    )


def _caveats(hp: Hparams, context: Context, placement: Placement, parts: "list[Part]", reserved: "Reserve | None") -> tuple[str, ...]:
    said = []
    if reserved is not None and reserved.pipeline:
        said.append("several cards with all layers run as a pipeline: every input is kept four times; llama.cpp falls back to one copy where that does not fit")
    if placement.split == "row":
        said.append("--split-mode row spreads the rows of each matrix over the cards in builds and backends that can: weights are priced as whole layers here")
    for device in placement.together or placement.gpus:
        limit = constants.LARGEST_ALLOCATION.get(device.backend)
        largest = max((part.bytes.high for part in parts if part.device == device.id), default=0)
        if limit is not None and largest > limit[0]:
            said.append(
                f"{device.id}: one allocation of {largest} B is over the {limit[0]} to {limit[1]} B that some {device.backend} drivers grant at once: it may fail with memory free"
            )
        if device.backend not in _CUDA_LIKE:
            said.append(f"{device.id}: compute buffers are replayed with CUDA's rules; {device.backend} takes other operations and aligns otherwise")
    if hp.nextn and not context.load_mtp:
        said.append(f"{hp.nextn} next-token block(s) of the file are not loaded")
    return tuple(said)
