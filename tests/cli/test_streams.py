"""Streams that are full, closed, left by their reader or poor in characters change no exit code of a job and make no internal error."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.gguf_bytes import dense_llama, write_sparse

JOB = ("run", "--json", "--", "sh", "-c", "echo ran >> ran; exit 7")


def shell(tmp_path, how: str, *words: str, **env: str) -> "subprocess.CompletedProcess[bytes]":
    """`how` is a shell text in which "$@" stands for brim and its words."""
    whole = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(tmp_path / "state"), **env}
    return subprocess.run(
        ["/bin/sh", "-c", how, "sh", sys.executable, "-m", "brim", *words], capture_output=True, env=whole, cwd=tmp_path, timeout=60, check=False
    )


GONE = '( "$@"; echo $? > code ) {} | true; exec 3< code; read -r code <&3; exit $code'


@pytest.mark.parametrize("how", ['"$@" 2>/dev/full', '"$@" >/dev/full', '"$@" 2>&-', '"$@" >&- 2>&-', GONE.format("2>&1 >/dev/null"), GONE.format("")])
def test_a_job_runs_whoever_listens(tmp_path, how: str) -> None:
    """`brim run` starts its job and ends with its code where nobody reads what it says."""
    found = shell(tmp_path, how, *JOB)
    assert found.returncode == 7
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert b"internal error" not in found.stderr
    assert b"Traceback" not in found.stderr


@pytest.mark.parametrize(("how", "says"), [('"$@" >/dev/full', b"standard output: No space left on device"), ('"$@" >&-', b"standard output is closed")])
def test_an_answer_that_cannot_be_given(tmp_path, how: str, says: bytes) -> None:
    """Where the answer cannot be written one sentence says so, and the code is not 0."""
    found = shell(tmp_path, how, "schema", "fit")
    assert found.returncode == 2
    assert found.stderr.startswith(b"brim: " + says)
    assert found.stderr.count(b"\n") == 2


def test_a_reader_that_has_enough(tmp_path) -> None:
    """`brim … | head` is no failure."""
    found = shell(tmp_path, GONE.format(""), "schema", "fit")
    assert (found.returncode, found.stderr) == (0, b"")


def test_characters_that_the_stream_lacks(tmp_path) -> None:
    """An ASCII stream gets escapes, JSON stays JSON, and bytes that are no text come back as they were."""
    assert shell(tmp_path, '"$@"', "--help", PYTHONIOENCODING="ascii").returncode == 0
    assert shell(tmp_path, '"$@"', "--help", LC_ALL="POSIX", PYTHONUTF8="0").returncode == 0  # there Python's own way with them is another
    for encoding in ("ascii", "utf-8"):
        found = shell(tmp_path, f'"$@" --json --run-dir "$(printf "{encoding}\\377")" -- sh -c : é "$(printf "\\376")" 2>err', "run", PYTHONIOENCODING=encoding)
        assert found.returncode == 0
        assert json.loads(found.stdout)["command"][-2:] == ["é", "\udcfe"]


def test_a_schema_by_its_own_name(tmp_path) -> None:
    """`brim schema` takes a document's name as the document gives it."""
    assert shell(tmp_path, '"$@"', "schema", "brim.fit/1").stdout == shell(tmp_path, '"$@"', "schema", "fit").stdout != b""


@pytest.mark.parametrize("to", ["", ">&2"])
def test_a_job_learns_that_its_reader_went_away(tmp_path, to: str) -> None:
    """Under `brim run` a job whose reader has enough ends by SIGPIPE, as it does without brim, and what it wrote until then is in its log."""
    found = shell(
        tmp_path, GONE.format("2>&1" if to else "").replace("| true", "| head -c 9 >/dev/null"), "run", "--run-dir", "kept", "--", "sh", "-c", f"exec yes {to}"
    )
    assert found.returncode == 128 + 13
    assert (tmp_path / "kept" / "engine.log").read_bytes().startswith(b"y\ny\n")


def test_a_full_disk_behind_stdout_is_said_once(tmp_path) -> None:
    """Where stdout is full the job goes on, its log is whole, and one line says so."""
    found = shell(tmp_path, '"$@" >/dev/full', "run", "--run-dir", "kept", "--", "sh", "-c", "echo a; sleep .2; echo b; exit 7")
    assert found.returncode == 7
    assert found.stderr.count(b"brim: standard output: No space left on device; the job's output goes to its log alone") == 1
    assert (tmp_path / "kept" / "engine.log").read_bytes() == b"a\nb\n"


def test_a_document_in_a_file_names_any_path(tmp_path) -> None:
    """`preflight --out` writes valid JSON at a path that is no text, about a model whose path is none either."""
    model, out = (os.path.join(str(tmp_path), name) for name in ("m\udcff.gguf", "o\udcff.json"))
    write_sparse(model, *dense_llama(layers=4, width=512, heads=8, kv_heads=2, feed_forward=1024, vocab=1000))
    found = shell(tmp_path, '"$@"', "preflight", model, "--out", out)
    assert (found.returncode, found.stderr) == (0, b"")
    with open(out, encoding="utf-8") as file:
        assert json.load(file)["report_path"] == out


@pytest.mark.parametrize("most", [14, 22])
def test_what_brim_itself_lacks_is_said(tmp_path, most: int) -> None:
    """Out of file descriptors: one sentence that names the limit and what raises it, as text and as JSON."""
    for words in (("run", "--run-dir", "one", "--", "true"), ("run", "--json", "--run-dir", "two", "--", "true")):
        found = shell(tmp_path, f'ulimit -n {most}; "$@"', *words)
        said = found.stdout + found.stderr
        assert found.returncode == 2
        assert b"Too many open files" in said
        assert b"ulimit -n" in said
        assert b"internal error" not in said


def test_a_full_disk_is_said_once(tmp_path) -> None:
    """A JSON answer, and the JSON of its fault, on a disk that is full: one sentence, not the same one twice."""
    found = shell(tmp_path, '"$@" >/dev/full', "devices", "3090", "--json")
    assert found.stderr.count(b"No space left on device") == 1
