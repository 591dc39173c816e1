"""A bare libllama: how it is found, and that whatever it does when it is asked (hang, crash, refuse, grow, be another build) is an answer and never ours."""

import json
import os
import platform
import shutil
import subprocess
import sys
import time

import pytest

from brim.facts.workload import LlamaWorkload
from brim.probes import libllama, libllama_child
from brim.values import Missing
from tests.conftest import ROOT
from tests.gguf_bytes import dense_llama, write_sparse

COMPILER = shutil.which("c++") or shutil.which("g++")
built = pytest.mark.skipif(COMPILER is None or platform.machine() != "x86_64", reason="a C++ compiler on x86-64 builds the stand-in library")


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """The stand-in library with the structs of b11434, and one with larger ones."""
    folder = tmp_path_factory.mktemp("libllama")
    made = {}
    for name, flags in (("plain", []), ("big", ["-DLLAMA_STUB_BIG"]), ("old", ["-DLLAMA_STUB_OLD"])):
        path = folder / name / "libllama.so"
        path.parent.mkdir()
        subprocess.run(
            [COMPILER, "-shared", "-fPIC", "-O1", *flags, "-o", str(path), str(ROOT / "tests" / "fakes" / "llama_stub.cpp")], check=True, timeout=100
        )
        made[name] = str(path)
    return made


def ask(library, mode="", deadline_s=20.0, **asked):
    """What an ask gives with the stand-in in this mode."""
    request = libllama.request(library, "m.gguf", LlamaWorkload(**{"ctx": 4096, "slots": 2, **asked}))
    return libllama.ask(request, deadline_s=deadline_s, environ={**os.environ, "LLAMA_STUB": mode})


@built
def test_it_is_asked_with_the_workloads_own_settings(stubs) -> None:
    """Bytes by device and by buffer type; context, slots and repacking arrive in the structs; the load is simulated."""
    found = ask(stubs["plain"])
    assert [(row.device, row.exact) for row in found.rows] == [("Host", (1500, 8192, 7))]
    assert found.buffers == (("CPU", 1000), ("CPU_REPACK", 500))
    assert found.layouts == ("b11434", "b11434")
    assert isinstance(found.build, Missing)
    assert ask(stubs["plain"], repack=False).buffers == (("CPU", 1000),)


@built
def test_an_older_build_is_asked_what_it_knows(stubs) -> None:
    """Structs of April 2026 are known by their size and defaults; what they have no field for is told, and the load is simulated without a mapping."""
    found = ask(stubs["old"], outputs=2)
    assert [(row.device, row.exact) for row in found.rows] == [("Host", (1500, 8192, 7))]
    assert found.layouts == ("llama-cpp-python 0.3.20",) * 2
    assert found.lacking == ("n_outputs_max",)


FAULTS = [
    ("plain", "hang", "no answer within 2 s"), ("plain", "crash", "died by SIGSEGV"), ("plain", "exit", "left with 3"), ("plain", "refuse", "could not load the model"),
    ("plain", "strange", "whose parameter structs brim does not know"), ("big", "", "whose parameter structs brim does not know: its llama_model_params (104 bytes)"), ("plain", "greedy", "no memory"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "said"), [("sleep(60);", "no answer within 1 s"), ("_exit(3);", "left with 3 (its last words: �[31mred)")])
def test_what_it_starts_and_says_holds_nobody_up(tmp_path, code, said) -> None:
    """A process of the library's own that outlives the deadline with our pipe in its hands is not waited for; colours in its log reach no terminal."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler builds the library")
    (tmp_path / "odd.c").write_text(
        "#include <unistd.h>\n__attribute__((constructor)) static void start(void) {"
        f' if (fork() == 0) {{ setsid(); sleep({20 if "sleep" in code else 0}); _exit(0); }} (void)!write(2, "\\033[31mred\\n", 9); {code} }}\n'
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(tmp_path / "odd.so"), str(tmp_path / "odd.c")], check=True, timeout=60)
    began = time.monotonic()
    found = ask(str(tmp_path / "odd.so"), deadline_s=1.0 if "sleep" in code else 20.0)
    assert isinstance(found.rows, Missing)
    assert said in found.rows.detail
    assert time.monotonic() - began < 15


@built
@pytest.mark.parametrize(("which", "mode", "said"), FAULTS)
def test_whatever_it_does_is_an_answer(stubs, which, mode, said) -> None:
    """A hang ends at the deadline, a crash is told by its signal, structs that are not known are refused by name, and memory has a limit."""
    found = ask(stubs[which], mode, deadline_s=2.0 if mode == "hang" else 20.0)
    assert isinstance(found.rows, Missing)
    assert said in found.rows.detail


def test_what_is_no_library_is_an_answer(tmp_path) -> None:
    """A text file, a library of something else, a path that is not there."""
    (tmp_path / "libllama.so").write_text("no library")
    assert "cannot be loaded" in ask(str(tmp_path / "libllama.so")).rows.detail
    assert "cannot be loaded" in ask(str(tmp_path / "nothing.so")).rows.detail
    other = next((path for path in ("/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6") if os.path.exists(path)), None)
    if other is not None:
        assert "not a libllama" in ask(other).rows.detail


def test_where_it_is_found(tmp_path, monkeypatch) -> None:
    """By name first, then the loader's path, beside llama-server (and in the lib beside its bin), then Python packages of the active environment; nothing is imported."""
    monkeypatch.setattr(libllama, "_cached", lambda _root: iter(()))
    monkeypatch.setattr(sys, "path", [])
    assert libllama.find({}) == ()
    places = ("venv/lib/python3.12/site-packages/llama_cpp/lib/libllama.so", "app/lib/libllama.so.0", "app/bin/libllama.so", "loader/libllama.so")
    environ = {"VIRTUAL_ENV": str(tmp_path / "venv"), "PATH": str(tmp_path / "app" / "bin"), "LD_LIBRARY_PATH": str(tmp_path / "loader")}
    server = tmp_path / "app" / "bin" / "llama-server"
    server.parent.mkdir(parents=True)
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    for place in places:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        assert libllama.find(environ)[0] == str(path), place
    assert len(libllama.find(environ)) == len(places)
    assert libllama.find({**environ, "BRIM_LIBLLAMA": "/named"}) == ("/named",)
    monkeypatch.chdir(path.parent)
    assert libllama.find({**environ, "BRIM_LIBLLAMA": path.name}) == (str(path),)  # not one of that name elsewhere


@built
def test_the_next_one_is_asked_where_one_cannot_answer(stubs, tmp_path) -> None:
    """A stale library does not hide a good one; where none answers, every reason is told."""
    (tmp_path / "libllama.so").write_text("no library")
    stale, workload = str(tmp_path / "libllama.so"), LlamaWorkload(ctx=4096, slots=2)
    found = libllama.ask_first((stale, stubs["plain"]), "m.gguf", workload, (), os.environ)
    assert found.program == stubs["plain"]
    none = libllama.ask_first((stale, stubs["big"]), "m.gguf", workload, (), os.environ)
    assert isinstance(none.rows, Missing)
    assert "cannot be loaded" in none.rows.detail
    assert "104 bytes" in none.rows.detail


@built
def test_where_a_struct_cannot_be_measured_its_defaults_decide(stubs, monkeypatch) -> None:
    """On a machine that returns structs otherwise (64-bit ARM) the layout is told by all defaults alone."""
    monkeypatch.setattr(libllama_child.os, "uname", lambda: type("Machine", (), {"machine": "aarch64"}))
    library = libllama_child.ctypes.CDLL(stubs["plain"])
    for function, layouts in (("llama_model_default_params", libllama_child.MODEL), ("llama_context_default_params", libllama_child.CONTEXT)):
        raw, size = libllama_child.defaults_of(library, function)
        assert size is None
        assert libllama_child.known(raw, size, layouts, function)[0] == "b11434"


@pytest.mark.parametrize(
    ("build", "size"), [("b11739", 168), ("b11434", 160), ("llama-cpp-python 0.3.30", 160), ("llama-cpp-python 0.3.26", 152), ("llama-cpp-python 0.3.20", 136)]
)
def test_sizes_of_the_structs_that_are_known(build, size) -> None:
    """C's rules of alignment give the sizes that the compilers of those builds gave (the first two were measured)."""
    fields = dict(libllama_child.CONTEXT)[build]
    assert libllama_child.lay(fields)[1] == size


def test_no_layout_can_be_taken_for_another() -> None:
    """The defaults of each known layout, written by its own rules into a poisoned buffer, match that layout alone."""
    for layouts in (libllama_child.MODEL, libllama_child.CONTEXT):
        for build, fields in layouts:
            placed, size = libllama_child.lay(fields)
            raw = bytearray(b"\xa5" * libllama_child.BIG)
            raw[:size] = bytes(size)
            usual = {
                "n_gpu_layers": -1,
                "threads": 4,
                "threads_batch": 4,
                "offload_kqv": 1,
                "no_perf": 1,
                "op_offload": 1,
                "swa_full": 1,
                "use_mmap": 1,
                "load_mode": -1,
                "lazy_mode": 1,
            }
            for name, (offset, kind) in placed.items():
                value = usual.get(name, libllama_child.DEFAULTS.get(name, 0))
                libllama_child.struct.pack_into(
                    "Q" if kind == "P" else kind, raw, offset, bool(value) if kind == "?" else float(value) if kind == "f" else int(value)
                )
            assert [name for name, other in layouts if libllama_child.matches(bytes(raw), other, size)] == [build]


@built
def test_the_command_line_shows_both_and_why_they_part(stubs, brim, tmp_path) -> None:
    """`brim fit --ask-engine` with a library: a table in text and in JSON, brim's verdict and exit code unchanged; a crash is one line; `BRIM_LIBLLAMA` goes before llama-fit-params."""
    model = str(tmp_path / "small.gguf")
    write_sparse(model, *dense_llama(layers=4, width=512, heads=8, kv_heads=2, feed_forward=1024, vocab=1000))
    program = tmp_path / "llama-fit-params"
    program.write_text("#!/bin/sh\necho Host 1 2 3\n")
    program.chmod(0o755)
    environ = {"BRIM_LIBLLAMA": stubs["plain"], "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    told = brim("fit", model, "--device", "cpu:4GiB", "--ask-engine", env=environ)
    assert told.returncode == 0, told.stderr
    assert "differs" in told.stdout
    assert "weights lie in CPU (1000 B), CPU_REPACK (500 B)" in told.stdout
    asked = json.loads(brim("fit", model, "--device", "cpu:4GiB", "--ask-engine", "--json", env=environ).stdout)["asked_engine"]
    assert next((row["device"], row["what"], row["engine_bytes"]) for row in asked["rows"]) == ("cpu", "weights", 1500)
    crashed = brim("fit", model, "--device", "cpu:4GiB", "--ask-engine", env={**environ, "LLAMA_STUB": "crash"})
    assert crashed.returncode == 0
    assert "it was asked and died by SIGSEGV" in crashed.stdout
    assert "llama-fit-params" in brim("fit", model, "--device", "cpu:4GiB", "--ask-engine", env={**environ, "BRIM_LIBLLAMA": ""}).stdout
