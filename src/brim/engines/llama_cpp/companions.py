"""What runs beside the model in one llama.cpp process: draft model or MTP context, projector, LoRA adapters; priced into the same plan.

Sources: common/speculative.cpp `common_base_params_to_speculative`, `common_speculative_init_result` (draft), src/llama-model.cpp `create_memory` (MTP context),
src/llama-adapter.cpp `llama_adapter_lora_init_impl`, tools/mtmd/clip.cpp `load_tensors`, `alloc_compute_meta`; llama.cpp b11434. What is not replayed exactly is a
span, and its rule says so.
"""

from brim.engines.base import Part, Plan
from brim.engines.llama_cpp import hparams, weights
from brim.engines.llama_cpp.hparams import DRAFTS
from brim.facts.device import DeviceSpec
from brim.facts.dtypes import GGML_BLOCKS, ggml_row_bytes
from brim.facts.model import Checkpoint
from brim.facts.workload import LlamaWorkload
from brim.units import Span, exactly, round_up
from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Price(Protocol):
        """The engine's price of one checkpoint."""

        def __call__(self, checkpoint: Checkpoint, workload: LlamaWorkload, devices: tuple[DeviceSpec, ...], *, version: int) -> Plan:
            """The plan of one checkpoint and workload."""
            ...


_DRAFT = "common/speculative.cpp `common_base_params_to_speculative`, llama.cpp b11434"
_MTP = "src/llama-model.cpp `create_memory` (LLAMA_CONTEXT_TYPE_MTP), llama.cpp b11434"
_LORA = "src/llama-adapter.cpp `llama_adapter_lora_init_impl`, llama.cpp b11434"
_CLIP = "tools/mtmd/clip.cpp `clip_model_loader`, llama.cpp b11434"


class Companions(Record):
    """The checkpoints beside the model, as their headers tell them."""

    draft: Checkpoint | None = None
    projector: Checkpoint | None = None
    adapters: tuple[Checkpoint, ...] = ()


def price_with(
    checkpoint: Checkpoint, workload: LlamaWorkload, devices: tuple[DeviceSpec, ...], beside: Companions, *, version: int, price: "Price"
) -> Plan:  # fmt: skip
    """The plan of the model with everything beside it. A companion that cannot be priced adds to `missing`."""
    plan = price(checkpoint, workload, devices, version=version)
    if plan.missing or (beside == Companions() and "draft-mtp" not in workload.spec_types):
        return plan
    parts: list[Part] = []
    missing: list[str] = []
    if beside.draft is not None:
        added, wanting = _draft(checkpoint, beside.draft, workload, plan, devices, version=version, price=price)
        parts += added
        missing += wanting
    elif "draft-mtp" in workload.spec_types:
        added, wanting = _mtp(checkpoint, workload, plan, devices, version=version)
        parts += added
        missing += wanting
    if beside.projector is not None:
        parts += projector(beside.projector, workload, devices)
    for adapter in beside.adapters:
        parts += lora(adapter, checkpoint, workload, devices)
    return plan.replace(parts=plan.parts + tuple(parts), missing=plan.missing + tuple(missing))


def _known(plan: Plan, key: str, default: int) -> int:
    value = plan.workload.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _draft(
    checkpoint: Checkpoint, draft: Checkpoint, workload: LlamaWorkload, plan: Plan, devices: tuple[DeviceSpec, ...], *, version: int, price: "Price"
) -> tuple[list[Part], list[str]]:  # fmt: skip
    """The draft model: its own weights, a cache as long as the target's, its own graph; no rows for embeddings, one row of logits a slot."""
    slots = workload.slots or 1
    block = any(kind in ("draft-dflash", "draft-dspark") for kind in workload.spec_types)
    rows = slots * (1 + (3 if workload.draft_max is None else workload.draft_max)) if block else slots
    trained = checkpoint.metadata.get(f"{checkpoint.architecture}.context_length", 0)
    own = workload.replace(
        ctx=workload.ctx or _known(plan, "ctx", trained if isinstance(trained, int) else 0), ctk=workload.draft_ctk or "f16", ctv=workload.draft_ctv or "f16",
        gpu_layers=-1 if workload.draft_gpu_layers is None else workload.draft_gpu_layers, cpu_experts=workload.draft_cpu_experts,
        override_tensors=workload.draft_override_tensors, outputs=rows, embeddings=False, rollback_rows=0, pooling=None, draft_model=None, spec_types=(), lora=(),
        mmproj=None, load_mtp="draft-mtp" in workload.spec_types,
    )  # fmt: skip
    left = tuple(device.replace(free_bytes=max(1, device.free_bytes - plan.on(device.id).likely)) for device in devices)
    priced = price(draft, own, left, version=version)
    found, missing = [part for part in priced.parts if part.name != "context_overhead"], priced.missing
    fed = draft.architecture in DRAFTS
    block_only = "draft-mtp" in workload.spec_types and bool(_first(draft.metadata.get(f"{draft.architecture}.nextn_predict_layers")))
    if draft.architecture == "gemma4-assistant":  # it looks into the target's caches and has none
        own = own.replace(ctk=workload.ctk, ctv=workload.ctv)
    if fed or block_only:
        from brim.engines.llama_cpp.price import next_token_context

        drafted, wanting = next_token_context(draft, own, left, version=version)
        if not wanting:  # samplers lie in the graph; of next-token blocks the first runs, not the trunk (which the file may not have)
            found, missing = [part for part in found if part.name == "weights"] + drafted, ()
    parts = [
        Part(name="draft", device=part.device, bytes=part.bytes, rule=f"draft model's {part.name}: {part.rule}", source=f"{_DRAFT}; {part.source}") for part in found
    ]  # fmt: skip
    if block_only:
        parts.append(_hidden(checkpoint, workload))
    if fed:
        parts += _features(checkpoint, draft, workload, plan)
    return parts, [f"the draft model: {item}" for item in missing]


def _features(checkpoint: Checkpoint, draft: Checkpoint, workload: LlamaWorkload, plan: Plan) -> list[Part]:
    """What a draft that feeds on features makes the model keep: the inputs of its target layers, in the graph of a micro-batch and as rows of a batch."""
    taken = draft.metadata.get(f"{draft.architecture}.target_layers")
    layers = len(taken) if isinstance(taken, (list, tuple)) else 3
    width = _first(checkpoint.metadata.get(f"{checkpoint.architecture}.embedding_length"))
    batch = workload.batch or 2048
    micro = min(batch, workload.ubatch or 512)
    source = "src/llama-context.cpp `set_embeddings_layer_inp`, `output_reserve`; src/llama-graph.cpp `set_outputs`, llama.cpp b11434"
    rows, kept = 4 * layers * width * batch, 4 * (layers + 1) * width * micro
    parts = [
        Part(name="draft", device="cpu", bytes=Span(low=0, likely=rows, high=rows), rule=f"4 B × {layers} layers' inputs × {width} × {batch} rows of a batch = {rows}, from the first prompt on", source=source),
    ]  # fmt: skip
    computing = {part.device for part in plan.parts if part.name == "compute_buffer"}
    for device in sorted(computing):  # the encoder's features enter through the host's buffer
        rule = f"inputs of {layers} layers kept in the graph of {micro} tokens, {layers} × {width} wide: 0 to {kept}"
        parts.append(Part(name="draft", device=device, bytes=Span(low=0, likely=0, high=kept), rule=rule, source=source))
    return parts


def _first(value: "Any", index: int = 0) -> int:
    if isinstance(value, (list, tuple)):
        value = value[index] if value else 0
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _mtp(checkpoint: Checkpoint, workload: LlamaWorkload, plan: Plan, devices: tuple[DeviceSpec, ...], *, version: int) -> tuple[list[Part], list[str]]:
    """The context that drafts with the model's own MTP block: a cache of that block alone and its graph; where that is not modelled a span below the model's own."""
    from brim.engines.llama_cpp.price import next_token_context

    arch, keys = checkpoint.architecture, checkpoint.metadata
    blocks = _first(keys.get(f"{arch}.nextn_predict_layers"))
    if not blocks:
        return [], ["the MTP context: the header names no MTP block (nextn_predict_layers)"]
    slots = workload.slots or 1
    trained = keys.get(f"{arch}.context_length", 0)
    own = workload.replace(
        ctx=workload.ctx or _known(plan, "ctx", trained if isinstance(trained, int) else 0), ctk=workload.draft_ctk or "f16", ctv=workload.draft_ctv or "f16", outputs=slots,
        embeddings=False, rollback_rows=0, pooling=None, draft_model=None, spec_types=(), lora=(), mmproj=None, load_mtp=True,
    )  # fmt: skip
    priced, wanting = next_token_context(checkpoint, own, devices, version=version)
    if wanting:
        return _bounded_mtp(checkpoint, workload, plan, blocks, wanting)
    parts = [
        Part(name="draft", device=part.device, bytes=part.bytes, rule=f"MTP context's {part.name}: {part.rule}", source=f"{_MTP}; {part.source}")
        for part in priced
    ]
    return [*parts, _hidden(checkpoint, workload)], []


def _hidden(checkpoint: Checkpoint, workload: LlamaWorkload) -> Part:
    """The hidden states that a next-token block needs of the model, a row for each token of a batch."""
    arch, keys = checkpoint.architecture, checkpoint.metadata
    hidden = 4 * (_first(keys.get(f"{arch}.embedding_length_out")) or _first(keys.get(f"{arch}.embedding_length"))) * (workload.batch or 2048)
    hidden *= _first(keys.get(f"{arch}.hyper_connection.count")) or 1
    rule = f"hidden states of a batch beside the model's logits, from the first prompt on: 0 to {hidden}"
    return Part(
        name="draft", device="cpu", bytes=Span(low=0, likely=0, high=hidden), rule=rule, source="src/llama-context.cpp `output_reserve`, llama.cpp b11434"
    )


def _bounded_mtp(checkpoint: Checkpoint, workload: LlamaWorkload, plan: Plan, blocks: int, wanting: str) -> tuple[list[Part], list[str]]:
    """An MTP context whose graph is not modelled: its cache by the header's widths, and a graph of one block, bounded by the model's own."""
    arch, keys = checkpoint.architecture, checkpoint.metadata
    heads = _first(keys.get(f"{arch}.attention.head_count_kv"), -1) or _first(keys.get(f"{arch}.attention.head_count_kv"))
    width = _first(keys.get(f"{arch}.embedding_length"))
    queries = max(1, _first(keys.get(f"{arch}.attention.head_count")))
    key_dim = _first(keys.get(f"{arch}.attention.key_length")) or width // queries
    value_dim = _first(keys.get(f"{arch}.attention.value_length")) or width // queries
    latent = f"{arch}.attention.key_length_mla" in keys
    rows_k, rows_v = (key_dim, 0) if latent else (heads * key_dim, heads * value_dim)
    cells = _known(plan, "cells", 0) * _known(plan, "streams", 1) or round_up(workload.ctx or _first(keys.get(f"{arch}.context_length")), 256)
    type_k, type_v = (workload.draft_ctk or "f16").upper(), (workload.draft_ctv or "f16").upper()
    row = ggml_row_bytes(type_k, rows_k) + (ggml_row_bytes(type_v, rows_v) if rows_v else 0)
    compute = [part for part in plan.parts if part.name == "compute_buffer"]
    home = next((part.device for part in reversed(plan.parts) if part.name == "weights" and part.device != "cpu"), "cpu")
    own = next((part for part in compute if part.device == home), None)
    extra = 16 * width * (workload.ubatch or 512)
    parts = [
        Part(
            name="draft", device=home, bytes=exactly(blocks * cells * row), source=_MTP,
            rule=f"MTP context's kv_cache: {blocks} block x {cells} cells x {row} bytes a cell ({type_k.lower()} K of {rows_k}, {type_v.lower()} V of {rows_v})",
        ),
        Part(
            name="draft", device="cpu", bytes=exactly(4 * _vocabulary(checkpoint) * (workload.slots or 1)), source=_MTP,
            rule=f"MTP context's output_buffer: 4 bytes x {_vocabulary(checkpoint)} tokens x {workload.slots or 1} slots",
        ),
    ]  # fmt: skip
    if own is not None:
        likely = own.bytes.likely
        parts.append(
            Part(
                name="draft", device=home, bytes=Span(low=likely // 4, likely=likely, high=own.bytes.high + extra), source=_MTP,
                rule=f"MTP context's compute_buffer: not replayed ({wanting}); a graph of one block, at most the model's own {likely} + 4 embedding rows ({extra})",
            )
        )  # fmt: skip
    return parts, []


def _vocabulary(checkpoint: Checkpoint) -> int:
    found = checkpoint.metadata.get(f"{checkpoint.architecture}.vocab_size")
    if isinstance(found, int):
        return found
    return next((tensor.dims[1] for tensor in checkpoint.tensors if tensor.name == "token_embd.weight" and len(tensor.dims) > 1), 0)


def _padded(dtype: str, dims: tuple[int, ...], stored: int, device: str) -> int:
    """A tensor in a buffer: 128 bytes on a card (a partial row of 512 with it where it is quantised), 32 on the host."""
    if device == "cpu":
        return round_up(stored, 32)
    short = -dims[0] % 512
    return round_up(stored + (ggml_row_bytes(dtype, short) if GGML_BLOCKS[dtype][0] > 1 and short else 0), 128)


def lora(adapter: Checkpoint, checkpoint: Checkpoint, workload: LlamaWorkload, devices: tuple[DeviceSpec, ...]) -> list[Part]:
    """An adapter: each pair of tensors lies where the tensor that it changes lies; the graph grows by its low-rank products (a span)."""
    homes = _homes(checkpoint, workload, devices)
    held: dict[str, int] = {}
    rank = widest = 0
    for tensor in adapter.tensors:
        base = tensor.name.removesuffix(".lora_a").removesuffix(".lora_b")
        if base == tensor.name:
            continue  # norms are skipped by the loader
        home = homes.get(base, "cpu")
        held[home] = held.get(home, 0) + _padded(tensor.dtype, tensor.dims, tensor.stored_bytes, home)
        if tensor.name.endswith(".lora_b") and tensor.dims:
            rank, widest = max(rank, tensor.dims[0]), max(widest, tensor.dims[1] if len(tensor.dims) > 1 else 0)
    ubatch = workload.ubatch or 512
    work = 4 * ubatch * (2 * widest + rank)
    parts = [
        Part(name="adapter", device=home, bytes=exactly(count), rule=f"{adapter.name}: sum of its pairs beside {home}'s weights = {count}", source=_LORA)
        for home, count in sorted(held.items())
    ]
    for home in sorted(held):
        parts.append(
            Part(
                name="adapter", device=home, bytes=Span(low=0, likely=0, high=work), source="src/llama-graph.cpp `build_lora_mm`, llama.cpp b11434",
                rule=f"work space of rank {rank}: between 0 (it fits in freed room) and 4 x {ubatch} rows x (2 x {widest} + {rank}) = {work}",
            )
        )  # fmt: skip
    return parts


def _homes(checkpoint: Checkpoint, workload: LlamaWorkload, devices: tuple[DeviceSpec, ...]) -> dict[str, str]:
    """Where each tensor of the model lies (the last of its homes: a tied embedding's copy counts as the host's)."""
    if not devices:
        return {}
    facts = hparams.read(checkpoint)
    if isinstance(facts, Missing):
        return {}
    placed = weights.place(facts, workload, devices)
    return {name: homes[0] for name, homes in placed.tensors.items() if homes}


def projector(checkpoint: Checkpoint, workload: LlamaWorkload, devices: tuple[DeviceSpec, ...]) -> list[Part]:
    """A projector file: all of its tensors on one device, and the graph of its largest image (a span: see encoders.py)."""
    device = devices[0].id if devices and workload.mmproj_offload is not False else "cpu"
    held = sum(_padded(tensor.dtype, tensor.dims, tensor.stored_bytes, device) for tensor in checkpoint.tensors)
    parts = [
        Part(
            name="mmproj", device=device, bytes=exactly(held), source=_CLIP,
            rule=f"{checkpoint.name}: {len(checkpoint.tensors)} tensors, each padded to its buffer = {held}",
        )
    ]  # fmt: skip
    from brim.engines.llama_cpp import encoders

    found = encoders.vision(checkpoint, workload)
    if found is not None:
        work, rule = found
        parts.append(Part(name="mmproj", device=device, bytes=work, rule=f"vision encoder's compute buffer: {rule}", source=_CLIP))
    audio = encoders.audio(checkpoint)
    if audio is not None:
        work, rule = audio
        parts.append(Part(name="mmproj", device=device, bytes=work, rule=f"audio encoder's compute buffer: {rule}", source=_CLIP))
    return parts
