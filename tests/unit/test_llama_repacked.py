"""Weights that the CPU lays out anew: the rule row by row, real builds' buffers to the byte, and what a plan says where the processor or the build is not known."""

import gzip
import json
from pathlib import Path

import pytest

from brim.engines.llama_cpp import hparams, price, repacked, weights
from brim.engines.llama_cpp.repacked import buffer_of, bytes_in
from brim.facts.device import DeviceSpec
from brim.facts.workload import LlamaWorkload
from brim.units import MIB
from tests.allocations import checkpoint_of

NEW = 11434
GOLDEN = json.loads(gzip.decompress((Path(__file__).parents[1] / "golden" / "llamacpp_repacked.json.gz").read_bytes()))
BUILDS = {"avx2": ("avx2",), "amx": ("avx2", "avx512", "amx")}
X86, AMX, ARM, OLD_ARM, S390 = ("avx2",), ("avx2", "avx512", "amx"), ("neon", "dotprod", "i8mm"), ("neon",), ("vxe",)
Q, EXPS, KV_B = "blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight", "blk.0.attn_k_b.weight"
# (tensor, dims, type, instructions, build, buffer)
RULE = [
    (Q, (4096, 4096), "Q4_K", X86, NEW, "CPU_REPACK"), (Q, (4096, 4096), "Q4_K", X86, 4900, ""), (Q, (4096, 4096), "Q4_K", ARM, NEW, "CPU_REPACK"), (Q, (4096, 4096), "Q4_K", OLD_ARM, NEW, ""),
    (Q, (4096, 4100), "Q4_K", X86, NEW, ""), (Q, (4096, 4100), "Q4_0", ARM, NEW, "CPU_REPACK"), (Q, (4096, 4100), "Q4_0", X86, NEW, ""), (Q, (4096, 4102), "Q4_0", ARM, NEW, ""),
    (Q, (4096, 4096), "Q4_0", X86, 4282, "CPU_REPACK"), (Q, (4096, 4096), "Q4_0", X86, 4281, ""), (Q, (4096, 4096), "Q4_0", S390, NEW, "CPU_REPACK"), (Q, (4096, 4096), "Q4_K", S390, NEW, ""),
    (Q, (4096, 4096), "Q6_K", X86, NEW, ""), (Q, (4096, 4096), "Q6_K", ARM, NEW, "CPU_REPACK"), (Q, (4096, 4096), "Q6_K", ARM, 7500, ""), (Q, (4096, 4096), "Q6_K", AMX, NEW, "AMX"),
    (Q, (4096, 4096), "Q8_0", X86, NEW, ""), (Q, (4096, 4096), "Q8_0", ARM, NEW, "CPU_REPACK"), (Q, (4096, 4096), "Q8_0", AMX, NEW, "AMX"), (Q, (4096, 4096), "Q5_K", X86, NEW, ""),
    (Q, (4096, 4096), "Q2_K", X86, NEW, ""), (Q, (4096, 4096), "Q2_K", ("avx2", "avx512"), NEW, "CPU_REPACK"), (Q, (4096, 4096), "IQ4_NL", X86, NEW, "CPU_REPACK"), (Q, (4096, 4096), "IQ4_NL", X86, 6000, ""),
    (Q, (4096, 4096), "F16", X86, NEW, ""), (Q, (4096, 4096), "F16", AMX, NEW, "AMX"), (Q, (4096, 4096), "BF16", AMX, NEW, ""), (Q, (4096, 4096), "F32", AMX, NEW, ""), (Q, (4096, 4096), "IQ4_XS", AMX, NEW, "AMX"),
    (Q, (4096, 4112), "Q4_K", AMX, NEW, "CPU_REPACK"), (Q, (96, 4096), "Q8_0", AMX, NEW, "AMX"), ("blk.0.attn_q.bias", (4096,), "F16", AMX, NEW, ""),
    (EXPS, (2880, 2880, 32), "MXFP4", X86, NEW, "CPU_REPACK"), (EXPS, (2880, 2880, 32), "MXFP4", X86, 8000, ""), (EXPS, (2048, 768, 128), "Q4_K", AMX, NEW, "CPU_REPACK"), (EXPS, (2048, 768, 128), "Q6_K", AMX, NEW, ""),
    (KV_B, (128, 512, 16), "Q4_0", X86, NEW, ""), (KV_B, (128, 512, 16), "Q8_0", AMX, NEW, "AMX"),
    ("token_embd.weight", (4096, 32000), "Q4_K", X86, NEW, ""), ("output.weight", (4096, 32000), "Q4_K", X86, NEW, "CPU_REPACK"), ("per_layer_token_embd.weight", (8960, 32000), "Q4_K", X86, NEW, ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dims", "dtype", "words", "version", "buffer"), RULE)
def test_the_rule(name, dims, dtype, words, version, buffer) -> None:
    """Type, rows, instructions and build decide; what is only looked up row by row, and matrices of several that no choice of experts reads, stay as they are."""
    assert buffer_of(name, dims, dtype, frozenset(words), version) == buffer


def test_the_tied_embedding_is_a_matrix_where_it_is_the_output() -> None:
    """The same tensor is looked up in place and multiplied in its own layout."""
    assert buffer_of("token_embd.weight", (4096, 32000), "Q4_K", frozenset(X86), NEW, output=True) == "CPU_REPACK"


SIZES = [
    ("CPU_REPACK", (256, 8), "Q4_K", 8 * 144), ("AMX", (256, 32), "Q4_K", 32 * 148), ("AMX", (32, 32), "Q8_0", 32 * 38 + 0), ("AMX", (256, 32), "Q6_K", 32 * 210), ("AMX", (256, 32), "IQ4_XS", 32 * 138),
    ("AMX", (16, 32), "F16", 1024), ("CPU_REPACK", (32, 8, 3), "MXFP4", 416), ("AMX", (32, 32, 4), "Q8_0", 32 * 38),
]  # fmt: skip


@pytest.mark.parametrize(("buffer", "dims", "dtype", "size"), SIZES)
def test_bytes_of_a_tensor(buffer, dims, dtype, size) -> None:
    """CPU_REPACK keeps the size, AMX adds 4 bytes to a block of Q8_0, Q4_K and Q5_K and 2 to one of IQ4_XS; all padded to 32; AMX counts one matrix of several."""
    assert bytes_in(buffer, dims, dtype) == size


@pytest.mark.parametrize("build", sorted(BUILDS))
def test_real_builds_buffers_to_the_byte(build) -> None:
    """Every model that a real build was asked about: the bytes of each of its buffers."""
    compared = 0
    for model, told in GOLDEN.items():
        if build in told:
            kind, name = model.split("/", 1)
            facts = hparams.read(checkpoint_of(kind, name))
            laid = repacked.lay_out(facts, weights.place(facts, LlamaWorkload(mmap=False), ()), frozenset(BUILDS[build]), NEW)
            found = {**laid.held, **({"CPU": laid.in_place} if laid.in_place else {})}
            assert found == told[build], model
            compared += 1
    assert compared > 150


def host(words, **more) -> DeviceSpec:
    return DeviceSpec(id="cpu", backend="cpu", total_bytes=1 << 40, free_bytes=1 << 40, instructions=words, **more)


def held(name, workload, devices, version=NEW):
    """The parts of the host's weights."""
    found = price(checkpoint_of("shapes", name), workload, devices, version=version)
    return [part for part in found.parts if part.name == "weights" and part.device == "cpu"]


ASKED = LlamaWorkload(ctx=512, slots=1)


def test_an_unknown_processor_is_a_span() -> None:
    """Nothing is laid out anew at the low end and in the middle, the widest build is the high end; a model whose embedding is not tied gains only AMX's sums."""
    (tied,), (apart,) = held("gemma-3-12b", ASKED, ()), held("qwen3-8b", ASKED, ())
    assert tied.bytes.low == tied.bytes.likely == GOLDEN["shapes/gemma-3-12b"]["avx2"]["CPU"] + GOLDEN["shapes/gemma-3-12b"]["avx2"]["CPU_REPACK"]
    assert tied.bytes.high == sum(GOLDEN["shapes/gemma-3-12b"]["amx"].values())
    assert apart.bytes.low == apart.bytes.likely < apart.bytes.high < apart.bytes.likely * 1.03


def test_a_known_processor_says_its_buffers() -> None:
    """One part for CPU_REPACK, to the byte, one for what is used in place; together they hold every build for this processor."""
    laid, rest = held("gemma-3-12b", ASKED, (host(AMX),))
    told = GOLDEN["shapes/gemma-3-12b"]
    assert (laid.bytes.low, laid.bytes.high) == (told["avx2"]["CPU_REPACK"],) * 2
    assert rest.bytes.likely == told["avx2"]["CPU"]
    assert laid.bytes.high + rest.bytes.high == sum(told["amx"].values())
    assert "CPU_REPACK" in laid.rule
    assert str(told["amx"]["AMX"]) in rest.rule
    assert "CPU_Mapped" in rest.rule


def test_a_known_build_is_one_figure() -> None:
    """What the engine showed of itself leaves no span."""
    parts = held("gemma-3-12b", ASKED, (host(AMX, built_for=AMX),))
    assert all(part.bytes.low == part.bytes.high for part in parts)
    assert sum(part.bytes.likely for part in parts) == sum(GOLDEN["shapes/gemma-3-12b"]["amx"].values())
    (plain,) = held("gemma-3-12b", ASKED, (host(AMX, built_for=()),))
    assert plain.bytes.low == plain.bytes.high


CARD = DeviceSpec(id="cuda:0", backend="cuda", total_bytes=24 << 30, free_bytes=24 << 30)
METAL = DeviceSpec(id="metal:0", backend="metal", total_bytes=24 << 30, free_bytes=24 << 30)
HALF = ASKED.replace(gpu_layers=20)
# (workload, devices, build, whether weights may be laid out anew)
APPLIES = [
    (ASKED, (host(X86),), NEW, True), (ASKED.replace(repack=False), (host(X86),), NEW, False), (ASKED, (host(X86),), 4000, False), (HALF, (CARD, host(X86)), NEW, False),
    (HALF.replace(no_host=True), (CARD, host(X86)), NEW, True), (HALF, (METAL, host(ARM)), NEW, True), (ASKED.replace(mmap=False), (host(X86),), NEW, True), (ASKED, (host(()),), NEW, False),
    (ASKED, (host(OLD_ARM),), NEW, False),
]  # fmt: skip


@pytest.mark.parametrize(("workload", "devices", "version", "applies"), APPLIES)
def test_when_it_applies(workload, devices, version, applies) -> None:
    """Not with --no-repack, nor in builds before it, nor beside a card whose host buffers come first (--no-host passes those over); Metal has none."""
    parts = held("qwen3-8b", workload, devices, version)
    assert any("CPU_REPACK" in part.rule and "anonymous" in part.rule for part in parts) == applies
    if not applies:
        (part,) = parts
        assert part.bytes.low == part.bytes.high


def test_a_locked_file_is_held_from_first_to_last() -> None:
    """With --mlock on a mapped file the pages between the tensors in use stay in memory, too."""
    free, locked = (held("qwen3-8b", ASKED.replace(load_mode=mode), (host(X86),)) for mode in ("mmap", "mmap+mlock"))
    total = sum(tensor.stored_bytes for tensor in checkpoint_of("shapes", "qwen3-8b").tensors)
    assert free[-1].bytes.likely < locked[-1].bytes.likely <= total
    assert locked[-1].bytes.likely > total - 400 * MIB
    assert free[0].bytes == locked[0].bytes


def test_public_logs_with_such_buffers() -> None:
    """DeepSeek R1 under AMX (b4905) and a 7B model under AVX2 (June 2025): the printed digits."""
    from tests.evidence.llamacpp_logs import laid_out
    from tests.logs import logs

    found = [(buffer, round(value, 2), logged) for log in logs() for _mix, buffer, value, logged in laid_out(log)]
    assert sorted(found) == [("AMX", 18214.39, 18214.39), ("CPU_AARCH64", 3204.0, 3204.0)]
