"""Which weights on the host the CPU backend keeps in a layout of its own (`CPU_REPACK`, `AMX`), and the bytes of each buffer; it places nothing on a card.

Source: llama.cpp b11434, ggml/src/ggml-cpu/repack.cpp `ggml_repack_get_optimal_repack_type` and its `supports_op`, ggml-cpu/amx/amx.cpp `supports_op`, amx/mmq.cpp
`get_row_size`; src/llama-model.cpp `make_cpu_buft_list` and `load_tensors`, src/llama-model-loader.cpp `select_weight_buft` and `get_mapping_range`. The rule is asked with
the instructions that a build uses, which are at most those that the processor has. Not covered: KleidiAI and SpacemiT, which builds leave out unless asked.
"""

from brim.engines.base import Part
from brim.engines.llama_cpp.hparams import HEADLESS, Hparams
from brim.engines.llama_cpp.weights import HOST, Placement, lays_anew, stored_bytes
from brim.facts.dtypes import GGML_BLOCKS, ggml_tensor_bytes
from brim.facts.workload import LlamaWorkload
from brim.units import Span, exactly

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from brim.facts.device import DeviceSpec
    from brim.facts.model import Tensor

REPACK, AMX = "CPU_REPACK", "AMX"
# type → (instructions that are all needed, rows come in multiples of, the first build that knows it). Builds by the day of the merge: pull requests 10446 and 10541 (December
# 2024), 12332 (March 2025), 14373 (July), 14904 (August), 16739 and 17494 (November), 18096 (December), 18860 and 18888 (January 2026), 19356 and 19360 (February), 19738 (February),
# 23492 (September). An ARM build with i8mm always has dotprod; where both know a type they ask for the same rows, so that dotprod decides.
RULES: "dict[str, tuple[tuple[frozenset[str], int, int], ...]]" = {
    "Q4_0": ((frozenset(("avx2",)), 8, 4282), (frozenset(("neon", "dotprod")), 4, 4282), (frozenset(("vxe",)), 4, 7450), (frozenset(("rvv256",)), 16, 7450)),
    "Q4_K": ((frozenset(("avx2",)), 8, 4925), (frozenset(("neon", "i8mm")), 8, 7070), (frozenset(("neon", "dotprod")), 8, 7200), (frozenset(("rvv256",)), 16, 8000)),
    "Q2_K": ((frozenset(("avx512",)), 8, 5850), (frozenset(("rvv256",)), 16, 8000)),
    "Q5_K": ((frozenset(("neon", "i8mm")), 8, 7800), (frozenset(("neon", "dotprod")), 8, 8000)),
    "Q6_K": ((frozenset(("neon", "i8mm")), 8, 7850), (frozenset(("neon", "dotprod")), 8, 8000)),
    "IQ4_NL": ((frozenset(("avx2",)), 8, 6150), (frozenset(("neon", "dotprod")), 4, 4282), (frozenset(("rvv256",)), 16, 8000)),
    "MXFP4": ((frozenset(("avx2",)), 8, 8170), (frozenset(("neon", "dotprod")), 4, 8170)),
    "Q8_0": ((frozenset(("neon", "dotprod")), 4, 7450), (frozenset(("rvv256",)), 16, 8000)),
    "Q1_0": ((frozenset(("neon", "dotprod")), 4, 10950),),
}  # fmt: skip
# type → (the row must be a multiple of, bytes that a block gains); whole matrices have rows in multiples of 32
AMX_RULES = {"Q4_0": (32, 0), "Q4_1": (32, 0), "Q8_0": (32, 4), "Q4_K": (256, 4), "Q5_K": (256, 4), "Q6_K": (256, 0), "IQ4_XS": (256, 2), "F16": (16, 0)}
# what a build may use on a processor that is not known: the widest of each family
FAMILIES = (
    frozenset(("avx2",)),
    frozenset(("avx2", "avx512")),
    frozenset(("avx2", "avx512", "amx")),
    frozenset(("neon", "dotprod", "i8mm")),
    frozenset(("rvv256",)),
)
# tensors with two dimensions or more that no matrix multiplication reads (src/llama-arch.cpp `LLM_TENSOR_INFOS`), by the last words of their names
_READ_OTHERWISE = (
    "token_embd.weight", "position_embd.weight", "token_types.weight", "embed_tokens.weight", "attn_rel_b.weight", "compressor_ape.weight", "ffn_gate_tid2eid.weight",
    "conv1d.weight", "conv1d_q.weight", "conv1d_k.weight", "conv1d_v.weight", "shortconv.conv.weight", "markov_w1.weight", "selector_predecessor.weight", "selector_successor.weight", "time_mix_first.weight",
)  # fmt: skip


class Laid:
    """How the host's weights lie for one set of instructions: bytes and tensors `in_place`, and by buffer (`CPU_REPACK`, `AMX`). `twice` counts bytes that lie in two of them."""

    __slots__ = ("counts", "held", "in_place", "names", "range", "tensors", "twice")

    def __init__(self) -> None:
        self.in_place = self.tensors = self.twice = 0
        self.names: list[str] = []
        self.range: int | None = None  # `mapped_range`, once it was asked for
        self.held: dict[str, int] = {}
        self.counts: dict[str, int] = {}

    @property
    def total(self) -> int:
        """All of it, in bytes."""
        return self.in_place + sum(self.held.values())


def buffer_of(name: str, dims: "tuple[int, ...]", dtype: str, instructions: "frozenset[str]", version: int, *, output: bool = False) -> str:
    """`AMX`, `CPU_REPACK`, or "" where the tensor stays as the file has it. `output`: the token embedding where it is read as the output matrix."""
    if not output and name.endswith(_READ_OTHERWISE):
        return ""
    rows = dims[1] if len(dims) > 1 else 1
    several = len(dims) > 2 and dims[2] > 1
    by_choice = several and ("exps.weight" in name or ".lora_" in name)
    if "amx" in instructions and dtype in AMX_RULES and not by_choice and rows % 32 == 0 and dims[0] % AMX_RULES[dtype][0] == 0:
        return AMX
    if rows == 1 or (several and not by_choice):
        return ""
    for needed, multiple, since in RULES.get(dtype, ()):
        if version >= since and needed <= instructions and rows % multiple == 0:
            return REPACK
    return ""


def bytes_in(buffer: str, dims: "tuple[int, ...]", dtype: str) -> int:
    """Bytes of a tensor in that buffer, padded to 32. AMX adds sums and unpacked scales to each block, and counts one matrix of a tensor that has several."""
    if buffer == AMX and dtype != "F16":
        block, size = GGML_BLOCKS[dtype]
        held = dims[1] * (dims[0] // block) * (size + AMX_RULES[dtype][1])
    else:
        held = ggml_tensor_bytes(dtype, dims)
    return -(-held // 32) * 32


def lay_out(hp: Hparams, placement: Placement, instructions: "frozenset[str]", version: int) -> Laid:
    """Where each tensor that is on the host lies; remembered with the placement."""
    key = (instructions, version)
    known = placement.laid.get(key)
    if known is not None:
        return known
    laid = placement.laid[key] = Laid()
    tied = placement.output == HOST and "output.weight" not in hp.tensors and hp.arch not in HEADLESS
    for name, homes in placement.tensors.items():
        if HOST not in homes:
            continue
        dims, dtype = hp.tensors[name]
        copies = homes.count(HOST)
        if tied and name == "token_embd.weight":
            buffer = buffer_of(name, dims, dtype, instructions, version, output=True)
            if buffer:
                copies = 1
                _put(laid, buffer, bytes_in(buffer, dims, dtype))
                laid.twice += bytes_in(buffer, dims, dtype)
        buffer = buffer_of(name, dims, dtype, instructions, version)
        if buffer:
            _put(laid, buffer, bytes_in(buffer, dims, dtype))
        else:
            laid.in_place += copies * stored_bytes(dtype, dims, HOST)
            laid.tensors += copies
            laid.names.append(name)
    return laid


def _put(laid: Laid, buffer: str, size: int) -> None:
    laid.held[buffer] = laid.held.get(buffer, 0) + size
    laid.counts[buffer] = laid.counts.get(buffer, 0) + 1


def mapped_range(tensors: "Iterable[Tensor]", names: "Iterable[str]") -> int:
    """What the engine prints as `CPU_Mapped`: in each file from the first to the last byte of the tensors that are used in place; 0 where offsets are not known.

    Tensors that were made up for a header without any may have offsets of another file: a range beyond all that is stored says so.
    """
    wanted = set(names)
    ends: dict[int, tuple[int, int]] = {}
    for tensor in tensors:
        if tensor.name in wanted:
            first, last = ends.get(tensor.shard, (tensor.offset, 0))
            ends[tensor.shard] = (min(first, tensor.offset), max(last, tensor.offset + ggml_tensor_bytes(tensor.dtype, tensor.dims)))
    found, stored = sum(last - first for first, last in ends.values()), sum(tensor.stored_bytes + 4096 for tensor in tensors)
    return found if found <= stored else 0


def host_parts(
    hp: Hparams, placement: Placement, tensors: "Iterable[Tensor]", workload: LlamaWorkload, host: "DeviceSpec | None", version: int, source: str
) -> list[Part]:
    """The host's weights by buffer: what is laid out anew is anonymous memory, what is used in place is the file's own pages (with `--no-mmap` memory, too).

    Likely is a build for processors with AVX2 or NEON like this one, without AMX, as wheels and packages are made; where the processor is not known nothing is laid out anew.
    The span holds the widest build and one that lays out nothing; of a build that is known (`built_for`) it is one figure.
    """
    plain = placement.held[HOST]
    if not lays_anew(workload, placement, version):
        return [_in_place(hp, placement, tensors, workload, lay_out(hp, placement, frozenset(), version), Span(low=plain, likely=plain, high=plain), source)]
    own = None if host is None or host.instructions is None else frozenset(host.instructions)
    usual = frozenset() if own is None else own - {"amx"}
    builds: tuple[frozenset[str], ...] = (frozenset(), *(FAMILIES if own is None else (own,)))
    if host is not None and host.built_for is not None:
        usual = frozenset(host.built_for)
        builds = (usual,)
    likely = lay_out(hp, placement, usual, version)
    others = {words: lay_out(hp, placement, words, version) for words in builds}
    widest = max(others, key=lambda words: others[words].total)
    totals = [likely.total, *(laid.total for laid in others.values())]
    parts = []
    for buffer, size in sorted(likely.held.items()):
        again = f"; {likely.twice} of it is the tied embedding, which stays in place as well" if likely.twice else ""
        rule = f"sum of {likely.counts[buffer]} tensors in the layout of {' and '.join(sorted(usual))}, each padded to 32 = {size}: anonymous memory ({buffer}){again}"
        parts.append(Part(name="weights", device=HOST, bytes=exactly(size), rule=rule, source=f"{source}; repack.cpp: ggml_repack_get_optimal_repack_type"))
    held = sum(likely.held.values())
    span = Span(low=max(0, min(totals) - held), likely=likely.in_place, high=max(totals) - held)
    rest = _in_place(hp, placement, tensors, workload, likely, span, source)
    if others[widest].total > likely.total:
        words = ", ".join(f"{size} in {buffer}" for buffer, size in sorted(others[widest].held.items()))
        rest = rest.replace(rule=f"{rest.rule}; a build for {' and '.join(sorted(widest))} keeps {words} and {others[widest].in_place} in place")
    return [*parts, rest] if span.high else parts


def _in_place(hp: Hparams, placement: Placement, tensors: "Iterable[Tensor]", workload: LlamaWorkload, laid: Laid, span: Span, source: str) -> Part:
    """The part of the weights that the host uses as they are. With `--mlock` on a mapped file everything from its start to the last of them is locked."""
    blocks = sum(1 for home in placement.layers[: hp.layers] if home == HOST)
    what = f"{laid.tensors} tensors, of {blocks} of {hp.layers} layers" + (" and the output layer" if placement.output == HOST else "")
    rule = f"sum of {what}, each padded to 32 = {span.likely}"
    if not placement.mapped:
        return Part(name="weights", device=HOST, bytes=span, rule=rule, source=source)
    printed = 0
    if laid.held or workload.load_mode == "mmap+mlock":
        printed = laid.range = mapped_range(tensors, laid.names) if laid.range is None else laid.range
    if workload.load_mode == "mmap+mlock" and printed > span.likely:
        rule += f"; --mlock keeps everything between the first and the last of them in memory: {printed}"
        span = Span(low=span.low, likely=printed, high=max(printed, span.high))
    if laid.held:
        shown = f" (the engine prints their range in the file as CPU_Mapped: {printed})" if printed else ""
        rule += f", used in place from the mapped file{shown}; pages of the others were read once and can be dropped"
    return Part(name="weights", device=HOST, bytes=span, rule=rule, source=source)
