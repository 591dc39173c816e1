"""The commands of evidence as a user meets them: exit codes, documents, and refusals that name what is wrong."""

import json
import os
import subprocess
import sys

import pytest

jsonschema = pytest.importorskip("jsonschema")

from brim.reports.schemas import SCHEMAS  # noqa: E402
from tests.conftest import ROOT  # noqa: E402

READING = {
    "t": 0,
    "devices": [
        {
            "id": "cuda:0", "backend": "cuda", "name": "NVIDIA GeForce RTX 3090", "memory": {"total_bytes": 24576 << 20, "free_bytes": 23000 << 20},
            "temperature_c": 45, "power_limit_w": 350.0,
        }
    ],
}  # fmt: skip


def test_governor_report_from_readings(brim, tmp_path) -> None:
    """Scripted readings, by flag or by environment, give the two files, exit 0 whatever the decision, and a document that its schema accepts."""
    script = tmp_path / "r.jsonl"
    for heat, level in ((45, "run"), (75, "throttle"), (90, "block")):
        script.write_text(json.dumps(READING | {"devices": [READING["devices"][0] | {"temperature_c": heat}]}))
        for words, env in ((["--readings", str(script)], {}), ([], {"BRIM_READINGS": str(script)})):
            done = brim("governor-report", "--profile", "rtx3090-12b", "--out", str(tmp_path / "a" / "b"), *words, "--json", env=env)
            assert done.returncode == 0, done.stderr
            document = json.loads(done.stdout)
            assert document["decision"]["risk_level"] == level
            jsonschema.validate(document, SCHEMAS["governor-report"])
            assert json.loads((tmp_path / "a" / "b" / "rtx3090_runtime_governor_report.json").read_text()) == document
            assert (tmp_path / "a" / "b" / "rtx3090_runtime_governor_report.md").exists()
    done = brim("governor-report", "--out", str(tmp_path), "--readings", str(script), "--max-temp", "99", "--min-free-vram", "22")
    assert done.stdout.startswith("throttle"), done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--preflight", "nowhere.json"), "nowhere.json"),
        (("--profile", "rtx3090"), "rtx3090-12b"),
        (("--readings", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--max-temp", "hot"), "no temperature"),
        (("--min-free-vram", "-1"), "free VRAM"),
        (("--min-free-vram", "8589934592"), "free VRAM"),
    ],
)
def test_governor_report_usage(brim, words: "tuple[str, ...]", says: str) -> None:
    """A file that is missing, a profile that is unknown, a limit that is none: exit 2 and one sentence."""
    done = brim("governor-report", "--out", "out", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_quality_gate(brim, tmp_path) -> None:
    """A verdict is bound to the file's content: passing, failing, no number, a failing command, and an open gate after a new export."""
    artifact = tmp_path / "model.gguf"
    artifact.write_text("one")
    gate = ("quality", "--artifact", str(artifact), "--baseline", "0.70", "--metric", "acc", "--max-drop", "0.02")
    assert brim("quality", "--artifact", str(artifact)).returncode == 3
    cases = [
        (("sh", "-c", 'echo loading; echo "{\\"acc\\": 0.69}"'), 0),
        (("sh", "-c", "echo acc: 0.68"), 0),
        (("sh", "-c", "echo acc = 0.67"), 3),
        (("sh", "-c", "echo nothing"), 4),
        (("sh", "-c", "exit 7"), 4),
        (("sh", "-c", "echo acc: nan"), 4),
        (("sh", "-c", 'echo "{\\"acc\\": 0.7}"; echo more >> "$BRIM_ARTIFACT"'), 4),
        (("no-such-command",), 2),
    ]
    for command, code in cases:
        artifact.write_text("one")
        assert brim(*gate, "--", *command).returncode == code, command
    done = brim(*gate, "--json", "--", "sh", "-c", 'cat "$BRIM_ARTIFACT" >&2; echo \'{"results": {"acc": 0.7}}\'')
    jsonschema.validate(json.loads(done.stdout), SCHEMAS["quality"])
    assert brim("quality", "--artifact", str(artifact)).returncode == 0
    artifact.write_text("two")
    assert brim("quality", "--artifact", str(artifact)).returncode == 3
    artifact.write_text("one")
    assert brim("quality", "--artifact", str(artifact)).returncode == 0


def test_quality_baseline_and_pattern(brim, tmp_path) -> None:
    """A baseline may be a file; a pattern may find the number; a loss may only rise so far, by share."""
    (tmp_path / "m").write_text("x")
    (tmp_path / "base.json").write_text('{"eval": {"loss": 2.0}}')
    gate = ("quality", "--artifact", "m", "--baseline", "base.json", "--metric", "loss", "--lower-is-better", "--max-drop", "5%")
    assert brim(*gate, "--", "echo", "loss: 2.09").returncode == 0
    assert brim(*gate, "--", "echo", "loss: 2.11").returncode == 3
    assert (
        brim("quality", "--artifact", "m", "--baseline", "2", "--metric", "ppl", "--max-drop", "0", "--pattern", r"PPL=(\d+)", "--", "echo", "PPL=2").returncode
        == 0
    )
    assert brim(*gate[:-1], "much", "--", "true").returncode == 2
    assert brim("quality", "--artifact", "m", "--baseline", "none.json", "--metric", "x", "--max-drop", "1", "--", "true").returncode == 2


@pytest.mark.system
def test_a_run_and_its_claims(brim, tmp_path) -> None:
    """A short run is listed, verified, judged and drawn; what was asked for and is not shown is exit 8; an altered journal is exit 7; a run is removed only on demand."""
    run = tmp_path / "state" / "brim" / "runs" / "one"
    assert brim("run", "--run-dir", str(run), "--", "sleep", "1").returncode == 0
    done = brim("claims", "one", "--json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMAS["claims"])
    by = {claim["name"]: claim for claim in document["claims"]}
    assert list(by) == ["stable_long_run", "fits", "quality_kept", "no_bottleneck_forever", "world_best"]
    assert not any(claim["allowed"] for claim in by.values())
    assert all(claim["missing"] for claim in by.values())
    assert brim("claims", "one", "--require", "stable_long_run").returncode == 8
    assert brim("claims", "one", "--require", "stabel").returncode == 2
    assert brim("claims", "nowhere").returncode == 2
    rows = json.loads(brim("runs", "--json").stdout)
    jsonschema.validate(rows, SCHEMAS["runs"])
    assert [row["run"] for row in rows["runs"]] == ["one"]
    done = brim("report", "one", "--html")
    assert done.stdout.strip().endswith("report.html")
    page = (run / "report.html").read_text()
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page
    assert "stable_long_run" in page
    import sqlite3

    with sqlite3.connect(run / "journal.db") as journal:
        journal.execute("UPDATE lines SET wall_ns = wall_ns + 1 WHERE seq = 2")
    journal.close()
    done = brim("verify", "one")
    assert done.returncode == 7
    assert "line 2" in done.stderr
    assert not json.loads(brim("claims", "one", "--json").stdout)["claims"][0]["allowed"]
    assert json.loads(brim("claims", "one", "--json").stdout)["chain_fault"]
    assert run.exists()
    brim("runs", "--keep", "1")
    assert run.exists()
    brim("runs", "--older-than", "0.001s")
    assert run.exists()
    brim("runs", "--older-than", "0.001s", "--remove")
    assert not run.exists()


def test_calibration_words(brim, tmp_path) -> None:
    """An empty store is no error; an exported document comes back; forget needs to be told what."""
    assert brim("calibration", "list").returncode == 0
    assert brim("calibration", "forget").returncode == 2
    assert brim("calibration", "import", "nowhere").returncode == 2
    one = {
        "at": "2026-01-01T00:00:00+00:00", "run": "r1", "engine": "llama.cpp", "version": "b11434", "device": "cpu", "architecture": "llama",
        "part": "context_overhead", "predicted_bytes": 0, "measured_bytes": 50 << 20, "foreign": "",
    }  # fmt: skip
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"schema": "brim.calibration/1", "observations": [one]}))
    assert brim("calibration", "import", str(path)).returncode == 0
    done = brim("calibration", "list", "--json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMAS["calibration"])
    assert document["observations"] == [one]
    assert document["summary"][0]["runs"] == 1
    assert brim("calibration", "export", str(tmp_path / "d.json")).returncode == 0
    assert json.loads((tmp_path / "d.json").read_text())["observations"] == [one]
    assert brim("calibration", "forget", "llama").returncode == 0
    assert json.loads(brim("calibration", "list", "--json").stdout)["observations"] == []
    path.write_text("{}")
    assert brim("calibration", "import", str(path)).returncode == 2


@pytest.mark.system
@pytest.mark.parametrize(
    ("paper", "old", "new"),
    [
        ("plan.json", '"floor_bytes": ', '"floor_bytes": 1'),
        ("report.json", '"exit_code": 0', '"exit_code": 1'),
        ("report.json", '"peak_held_bytes": ', '"peak_held_bytes": 1'),
    ],
)
def test_papers_that_were_altered(brim, tmp_path, paper: str, old: str, new: str) -> None:
    """A plan that was changed after the run, or a report that says another end or peak than the journal, is exit 7 and supports nothing."""
    brim("run", "--run-dir", "one", "--", "sleep", "0.3")
    assert brim("verify", "one").returncode == 0
    path = tmp_path / "one" / paper
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    done = brim("verify", "one")
    assert done.returncode == 7
    assert paper in done.stderr
    assert paper in json.loads(brim("claims", "one", "--json").stdout)["chain_fault"]


@pytest.mark.system
def test_a_finished_run_that_was_cut(brim, tmp_path) -> None:
    """Without its report.json a finished run is exit 7 while any paper says that it ended; a run without an end is told as unfinished."""
    import shutil
    import sqlite3

    assert brim("run", "--run-dir", "whole", "--", "true").returncode == 0
    running = json.loads((tmp_path / "whole" / "resume.json").read_text()) | {"exit_code": None}
    for keep in ("report.md", "report.html", "resume.json", ""):
        run = tmp_path / f"kept-{keep}"
        shutil.copytree(tmp_path / "whole", run)
        for paper in {"report.json", "report.md", "report.html"} - {keep}:
            (run / paper).unlink()
        if keep != "resume.json":
            (run / "resume.json").write_text(json.dumps(running))
        with sqlite3.connect(run / "journal.db") as journal:
            journal.execute("DELETE FROM lines WHERE kind IN ('child_end', 'end')")
        journal.close()
        done = brim("verify", str(run))
        assert done.returncode == (7 if keep else 0), keep
        assert ("report.json" in done.stderr) if keep else ("unfinished" in done.stdout)
        assert bool(json.loads(brim("claims", str(run), "--json").stdout)["chain_fault"]) is bool(keep)
    assert brim("report", str(run), "--html").returncode == 0
    assert brim("verify", str(run)).returncode == 0  # a page made of a run that is going says nothing of its end


CUT = """
import os, sys, brim
from brim import api, book
from brim.facts.settings import limits
write = book.Book._write
def cut(self, name, content, mode=0o644):
    if name == sys.argv[2] and (name != "resume.json" or content["exit_code"] is not None):
        os._exit(9)
    write(self, name, content, mode)
book.Book._write = cut
bounds = limits(floor_bytes=1 << 30, poll_ns=50_000_000, grace_ns=10**9, devices=("cuda:0",))
brim.run(["sleep", "20"], bounds, run_dir=sys.argv[1], probe=api.machine(readings="readings"))
"""


@pytest.mark.system
@pytest.mark.parametrize("paper", ["report.json", "report.md", "resume.json"])
def test_an_ending_that_is_interrupted(brim, tmp_path, paper) -> None:
    """brim itself dies between the end record and its papers: `verify` says which it is, `report` writes what is missing from the journal, and `resume` knows why the run ended."""
    rows = [(0, 16 << 30), (1, 1 << 20)]
    row = '{"t": %d, "devices": [{"id": "cuda:0", "memory": {"total_bytes": 17179869184, "free_bytes": %d}}]}'
    (tmp_path / "readings").write_text("\n".join(row % each for each in rows))
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.run([sys.executable, "-c", CUT, "run", paper], cwd=tmp_path, env=env, check=False, timeout=60).returncode == 9
    assert json.loads((tmp_path / "run" / "resume.json").read_text())["exit_code"] is None
    done = brim("verify", "run")
    assert (done.returncode, "brim report writes it" in done.stdout) == (0, paper == "report.json"), done.stderr
    document = json.loads(brim("verify", "run", "--json").stdout)
    jsonschema.validate(document, SCHEMAS["verify"])
    assert (document["finished"], document["interrupted"]) == ((False, True) if paper == "report.json" else (True, False))
    refused = brim("resume", "run", "--", "sleep", "20")
    assert (refused.returncode, "stopped for memory" in refused.stderr) == (3, True), refused.stderr
    told = brim("report", "run", "--json")
    assert told.returncode == 0, told.stderr
    assert ("interrupted" in told.stderr) is (paper == "report.json")
    report = json.loads(told.stdout)
    jsonschema.validate(report, SCHEMAS["run"])
    assert (report["exit_code"], report["cause"]) == (75, "memory")
    done = brim("verify", "run")
    assert (done.returncode, "unfinished" in done.stdout, "interrupted" in brim("report", "run").stderr) == (0, False, False)
    path = tmp_path / "run" / "report.json"
    path.write_text(path.read_text().replace('"exit_code": 75', '"exit_code": 0', 1))
    assert brim("verify", "run").returncode == 7


def leaves(value: object, path: "tuple[object, ...]" = ()) -> "list[tuple[object, ...]]":
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [leaf for key, item in items for leaf in leaves(item, (*path, key))] or [path]


@pytest.mark.system
def test_every_leaf_of_a_report(brim, tmp_path) -> None:
    """Any value of report.json that is altered, and any that is removed or added, is found."""
    from brim import api
    from brim.errors import BrokenJournal

    assert brim("run", "--run-dir", "one", "--max-temp", "80", "--", "true", "\udce9 \u00e9").returncode == 0
    path = tmp_path / "one" / "report.json"
    whole = json.loads(path.read_text())
    assert api.verify(str(tmp_path / "one"))[1] > 3
    tried = leaves(whole)
    assert len(tried) > 60
    for leaf in tried:
        for change in ("altered", "removed"):
            report = json.loads(json.dumps(whole))
            inner = report
            for key in leaf[:-1]:
                inner = inner[key]
            if change == "removed":
                del inner[leaf[-1]]
            else:
                inner[leaf[-1]] = 987654 if inner[leaf[-1]] != 987654 else 1
            path.write_text(json.dumps(report))
            with pytest.raises(BrokenJournal, match="report"):
                api.verify(str(tmp_path / "one"))
    path.write_text(json.dumps({**whole, "more": 1}))
    with pytest.raises(BrokenJournal, match="report"):
        api.verify(str(tmp_path / "one"))
    path.write_text(json.dumps(whole))
    assert api.verify(str(tmp_path / "one"))


@pytest.mark.system
def test_papers_nested_without_end(brim, tmp_path) -> None:
    """A paper of a hundred thousand brackets is one sentence."""
    assert brim("run", "--run-dir", "one", "--", "true").returncode == 0
    for paper, command, code in (("plan.json", "verify", 7), ("resume.json", "resume", 2), ("report.json", "report", 2), ("report.json", "verify", 7)):
        (tmp_path / "one" / paper).write_text("[" * 100_000)
        done = brim(command, "one")
        assert done.returncode == code, done.stderr
        assert paper in done.stderr
        assert "internal error" not in done.stderr
    assert brim("claims", "one").returncode in (0, 8)
    assert brim("report", "one", "--html").returncode == 0


@pytest.mark.system
def test_signatures(brim, tmp_path) -> None:
    """A run is signed with the user's ed25519 key; a changed report, another key, or a signature that is asked for and missing is exit 7."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    publics = []
    for name in ("mine", "other"):
        key = ed25519.Ed25519PrivateKey.generate()
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (tmp_path / f"{name}.pem").write_bytes(key.private_bytes(*form))
        publics.append(key.public_key().public_bytes_raw().hex())
    brim("run", "--run-dir", "one", "--", "true")
    assert brim("verify", "one", "--signed-by", publics[0]).returncode == 7
    done = brim("verify", "one", "--sign", str(tmp_path / "mine.pem"), "--json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMAS["verify"])
    assert document["signed_by"] == publics[0]
    assert brim("verify", "one", "--signed-by", publics[0]).returncode == 0
    assert brim("verify", "one", "--signed-by", publics[1]).returncode == 7
    assert brim("verify", "one", "--sign", str(tmp_path / "one" / "report.json")).returncode == 2
    report = tmp_path / "one" / "report.json"
    report.write_text(report.read_text().replace('"exit_code": 0', '"exit_code": 1', 1))
    assert brim("verify", "one").returncode == 7


def test_the_preflight_that_brim_writes_is_the_one_that_the_report_reads(brim, tmp_path) -> None:
    """`brim preflight --out FILE` and `brim governor-report --preflight FILE` fit together: the figures of the file stand in the report."""
    done = brim("preflight", "--params", "12e9", "--device", "RTX 3090", "--out", "p.json")
    assert done.returncode in (0, 3), done.stderr
    filed = json.loads((tmp_path / "p.json").read_text())
    (tmp_path / "r.jsonl").write_text(json.dumps(READING))
    done = brim("governor-report", "--out", "g", "--preflight", "p.json", "--readings", "r.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)["preflight"]
    assert shown["dense_class_params"] == filed["dense_class_params"] == 12_000_000_000
    assert shown["int4_raw_weights_gb"] == filed["purefield_vram"]["int4_raw_weights_gb"]
    assert shown["path"] == filed["report_path"]


@pytest.mark.system
def test_the_page_in_a_browser(brim, tmp_path) -> None:
    """The page of a run opens in a headless Chromium in both themes without a line on the console, as tall as its text (skipped where there is no Chromium)."""
    import os
    import shutil
    import subprocess

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium here")
    assert brim("run", "--run-dir", "r", "--", "sleep", "1").returncode == 0
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
    ]
    for scheme in ("0", "1"):
        shot = tmp_path / f"{scheme}.png"
        done = subprocess.run(
            [
                chromium, *flags, "--disable-sync", "--enable-logging=stderr", f"--user-data-dir={tmp_path}/profile{scheme}", f"--blink-settings=preferredColorScheme={scheme}",
                "--window-size=400,900", f"--screenshot={shot}", f"file://{tmp_path}/r/report.html",
            ],
            capture_output=True, text=True, timeout=90, check=False, env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
        assert shot.exists(), done.stderr[-2000:]
        assert "CONSOLE" not in done.stderr


@pytest.mark.system
def test_soak(brim, tmp_path) -> None:
    """A soak ends its job at its time with 0 and says what that shows; a job that ends before gives its own code; nonsense is exit 2."""
    done = brim("soak", "--hours", "0.0014", "--run-dir", "s", "--throughput-command", "echo 42", "--throughput-every", "400ms", "--json", "--", "sleep", "60")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    measures = document["claims"]["evidence"]["measures"]
    assert document["report"]["ended_by"] == "end"
    assert 0.001 < measures["continuous_hours"] < 0.01
    assert any(signal["name"] == "throughput" and signal["count"] >= 3 for signal in document["claims"]["evidence"]["signals"])
    assert brim("verify", "s").returncode == 0
    assert brim("soak", "--hours", "1", "--run-dir", "t", "--", "sh", "-c", "exit 5").returncode == 5
    for words in (("--hours", "0", "--", "true"), ("--hours", "-1", "--", "true"), ("--hours", "1"), ("--", "true"), ("--hours", "nan", "--", "true")):
        assert brim("soak", *words).returncode == 2
