"""Asking llama.cpp itself: the workload in its words, its table read, and cell by cell beside brim's; a fake program stands in for the engine."""

import os
import stat

import pytest

from brim.engines.base import Part, Plan
from brim.facts.device import Device, Memory
from brim.facts.engine import EngineNumbers, EngineRow
from brim.facts.workload import LlamaWorkload
from brim.probes import engine
from brim.reports.solution import second_opinion
from brim.second_opinion import Row, SecondOpinion, as_it_saw, as_it_was_asked, comparable, compare, experts, notes, unasked, words
from brim.units import MIB, exactly
from brim.values import Missing


def program(tmp_path, body: str) -> str:
    """A program of this body, executable."""
    path = tmp_path / "llama-fit-params"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_program_is_found_and_its_table_read(tmp_path) -> None:
    """On PATH or by BRIM_FIT_PARAMS; the table is four columns of whole MiB, and the build comes from --version."""
    path = program(tmp_path, 'case "$*" in *--version*) echo "version: 11434 (abc)" >&2;; *) echo noise; echo "CUDA0 100 20 3 "; echo "Host 7 0 1 ";; esac')
    assert engine.find({"PATH": str(tmp_path)}) == (path,)
    assert engine.find({"PATH": "", "BRIM_FIT_PARAMS": path}) == (path,)
    assert engine.find({"PATH": ""}) is None
    found = engine.ask((path,), ("-m", "x.gguf"))
    assert found.build == 11434
    assert found.rows == (
        EngineRow(device="CUDA0", weights_mib=100, context_mib=20, compute_mib=3), EngineRow(device="Host", weights_mib=7, context_mib=0, compute_mib=1),
    )  # fmt: skip
    assert found.command == (path, "-m", "x.gguf", "-fitp", "on")


FAILS = [("exit 3", "exit 3"), ("echo 'error: no such model' >&2; exit 1", "no such model"), ("true", "printed nothing"), ("sleep 5", "no answer")]


@pytest.mark.parametrize(("body", "said"), FAILS)
def test_a_program_that_gives_no_table_is_a_reason_not_a_failure(tmp_path, body: str, said: str) -> None:
    """Exit codes, silence and hanging become the reason of the missing rows."""
    path = program(tmp_path, f'case "$*" in *--version*) exit 0;; esac\n{body}')
    found = engine.ask((path,), (), deadline_s=1.0)
    assert isinstance(found.rows, Missing)
    assert said in found.rows.detail
    assert isinstance(found.build, Missing)
    assert isinstance(engine.ask((os.path.join(str(tmp_path), "nothing"),), ()).rows, Missing)


def test_the_workload_in_the_programs_words() -> None:
    """What llama-fit-params knows is passed on; what it does not know is left out and named."""
    asked, left_out = comparable(
        LlamaWorkload(ctx=8192, slots=4, kv_unified=True, outputs=4, ctk="q8_0", gpu_layers=-2, cpu_experts=3, tensor_split=(3.0, 1.0), kv_offload=False, lora=("a",))
    )  # fmt: skip
    said = " ".join(words(asked, "m.gguf"))
    assert said == "-m m.gguf -c 8192 -np 1 -ctk q8_0 -ngl all -ncmoe 3 -ts 3,1 -nkvo -nr"
    assert len(left_out) == 4
    assert words(LlamaWorkload(), "m.gguf") == ("-m", "m.gguf", "-c", "0")


def test_cells_agree_to_the_whole_mib() -> None:
    """CUDA1 is the second cuda card, Host the cpu; a cell agrees when it rounds down to what the engine prints; another build is said."""
    parts = [("weights", "cuda:1", 100 * MIB + 5), ("kv_cache", "cuda:1", 12 * MIB), ("recurrent_state", "cuda:1", 8 * MIB), ("compute_buffer", "cpu", 2 * MIB)]
    plan = Plan(
        engine="llama.cpp", engine_version="b11434", workload={},
        parts=tuple(Part(name=n, device=d, bytes=exactly(b), rule="", source="") for n, d, b in (("weights", "cuda:0", 1), *parts)),
    )  # fmt: skip
    rows = (
        EngineRow(device="CUDA1", weights_mib=100, context_mib=20, compute_mib=1), EngineRow(device="Host", weights_mib=0, context_mib=0, compute_mib=2),
    )  # fmt: skip
    found = compare(plan, EngineNumbers(program="x", command=("x",), build=11739, rows=rows), ("the draft",))
    assert [(row.device, row.what, row.agrees) for row in found.rows if not row.agrees] == [("cuda:1", "compute", False)]
    assert any("b11739" in line for line in found.why)
    assert any("the draft" in line for line in found.why)
    nothing = compare(plan, EngineNumbers(program="x", command=("x",), build=1, rows=Missing(reason="failed", detail="it broke")), ())
    assert nothing.rows == ()
    assert "it broke" in nothing.why[0]
    assert "not asked" in unasked("no program").why[0]


def told(**more) -> EngineNumbers:
    row = EngineRow(device="Host", weights_mib=1, context_mib=1, compute_mib=1, exact=(MIB + 5, MIB, MIB))
    return EngineNumbers(program="l", command=("l",), build=Missing(reason="not_supported", detail="none"), **{"rows": (row,), **more})


def host(instructions) -> Device:
    return Device(id="cpu", backend="cpu", name="host", memory=Memory(), instructions=instructions)


# (what the processor has, the buffers that the engine told, what its build uses)
SEEN = [
    (("avx2", "avx512", "amx"), (("AMX", 5), ("CPU", 1)), ("avx2", "avx512", "amx")), (("avx2", "amx"), (("CPU", 1), ("CPU_REPACK", 5)), ("avx2",)), (("avx2", "amx"), (("CPU", 1),), ()),
    (("avx2",), (), None), (Missing(reason="failed", detail="no cpuinfo"), (("CPU_REPACK", 5),), None),
]  # fmt: skip


@pytest.mark.parametrize(("instructions", "buffers", "built_for"), SEEN)
def test_an_engines_buffers_show_what_it_was_built_for(instructions, buffers, built_for) -> None:
    """Of the processor's instructions, those whose layouts the engine used; a card that the engine did not see is left out of brim's plan."""
    card = Device(id="cuda:0", backend="cuda", name="card", memory=Memory())
    assert as_it_saw((card, host(instructions)), told(buffers=buffers)) == ((host(instructions),), built_for)


def test_a_bare_library_is_asked_nearly_everything() -> None:
    """Slots, shared caches and rows of logits are its own words; draft, projector and adapters are left out, and nothing is mapped."""
    workload = LlamaWorkload(ctx=8192, slots=4, kv_unified=True, outputs=4, cpu_experts=2, lora=("a",))
    asked, left_out = comparable(workload, bare=True)
    assert (asked.slots, asked.kv_unified, asked.outputs, asked.mmap, asked.repack) == (4, True, 4, False, None)
    assert left_out == ("the adapters",)
    assert [pattern.split("\\.")[1] for pattern, _ in experts(asked)] == ["0", "1"]
    assert len(experts(workload.replace(cpu_experts=1 << 20))) == 1


def test_older_structs_stand_for_the_builds_of_their_time() -> None:
    """What they have no field for is left out on both sides, and brim prices a build of that time."""
    asked = LlamaWorkload(outputs=4, rollback_rows=2)
    workload, build, left_out = as_it_was_asked(asked, told(layouts=("llama-cpp-python 0.3.20",) * 2, lacking=("n_outputs_max", "n_rs_seq")), 11434)
    assert (workload.outputs, workload.rollback_rows, build, len(left_out)) == (None, 0, 8640, 2)
    assert as_it_was_asked(asked, told(layouts=("b11434", "b11434")), 11434) == (asked, 11434, ())
    assert as_it_was_asked(asked, told(layouts=("b11434", "b11739")), 11434) == (asked, 11549, ())


def test_bytes_are_compared_as_bytes() -> None:
    """A cell that would agree to the whole MiB differs by five bytes."""
    plan = Plan(engine="llama.cpp", engine_version="b11434", workload={}, parts=(Part(name="weights", device="cpu", bytes=exactly(MIB), rule="", source=""),))
    rows = compare(plan, told(), (), ("a note",)).rows
    assert next((row.what, row.agrees, row.engine_bytes) for row in rows) == ("weights", False, MIB + 5)


def test_what_else_makes_them_part() -> None:
    """A device that is not here was not asked about; a model whose simulated load counts less is named."""
    given = Device(id="cuda:0", backend="cuda", name="card", memory=Memory())
    assert "not about the cuda:0" in notes("llama", (given,), (host(("avx2",)),))[0]
    assert notes("llama", (host(("avx2",)),), (host(("avx2",)),)) == ()
    assert "two reservations" in notes("minimax-01", (), ())[0]


def test_what_an_engine_says_reaches_no_terminal_as_it_is() -> None:
    """Device names, reasons and the command lose what a terminal would obey; the table stays one line a row."""
    row = Row(device="CPU\x1b[2J", what="weights", brim_bytes=MIB, engine_mib=1, agrees=True)
    lines = second_opinion(SecondOpinion(command=("./x\x1b[31m", "a\nb"), build=1, rows=(row,), why=("exit 1: \x1b]0;title\x07\nmore",)))
    assert len(lines) == 5
    assert all(line.isprintable() for line in lines)
