"""The commands around a governed run: what they print, their documents, their codes."""

import json
import os
import subprocess
import sys

import jsonschema
import pytest

from brim.reports.schemas import SCHEMAS
from tests.conftest import ROOT

pytestmark = pytest.mark.system


def test_a_dry_run_says_what_it_would_do_and_starts_nothing(brim, tmp_path) -> None:
    """Limits with their origins, the ladder in words, nothing started."""
    done = brim("run", "--dry-run", "--memory-budget", "8GiB", "--max-temp", "83", "--", "touch", str(tmp_path / "ran"), env={"BRIM_GRACE": "7s"})
    assert done.returncode == 0
    assert "max_temp_c = 83.0 °C (flag --max-temp)" in done.stderr
    assert "grace_ns = 7.0 s (environment BRIM_GRACE)" in done.stderr
    assert "floor_bytes = 256.00 MiB (default)" in done.stderr
    assert "throttle_margin_bytes = 1.00 GiB (default)" in done.stderr  # an eighth of the budget
    assert "on block: checkpoint and stop" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--memory-budget", "lots"), "is no size"),
        (("--checkpoint-signal", "KILL"), "cannot be caught"),
        (("--checkpoint-signal", "NOPE"), "is no signal"),
        (("--max-temp", "900"), "is no temperature"),
        (("--on-unknown", "panic"), "invalid choice"),
        (("--poll", "0"), "is not above zero"),
        (("--notify-command", '"'), "is no command line"),
        (("--notify-webhook", "zz"), "is no web address"),
        (("--notify-webhook", "file:///etc/passwd"), "is no web address"),
        (("--on-oom", "zz"), "is no change"),
        (("--on-oom", "s/(/4/"), "s/(/4/"),
        (("--memory-budget", "zz=100MiB"), "cpu (host), cuda, metal, rocm (hip), xpu"),
        (("--memory-budget", "cuda:4GiB=100MiB"), "is a size"),
        (("--device", "nonsense"), "cpu (host), cuda, metal, rocm (hip), xpu"),
        (("--device", "zz:0"), "'zz' is no backend"),
        (("--device", "cuda:24GiB"), "is a size"),
    ],
)
def test_bad_limits_are_usage_errors(brim, words, said) -> None:
    """Exit 2 and a sentence that names the value."""
    done = brim("run", *words, "--", "true")
    assert done.returncode == 2
    assert said in done.stderr


def test_a_bad_variable_is_named(brim) -> None:
    """A BRIM_* variable that does not parse is named."""
    done = brim("run", "--", "true", env={"BRIM_FLOOR": "much"})
    assert done.returncode == 2
    assert "BRIM_FLOOR" in done.stderr
    for word in ("zz", "zz=1GiB"):
        done = brim("run", "--", "true", env={"BRIM_MEMORY_BUDGET": word})
        assert done.returncode == 2
        assert "BRIM_MEMORY_BUDGET" in done.stderr
    for name in ("BRIM_ON_UNKNOWN", "BRIM_REQUIRE_TELEMETRY", "BRIM_DIE_WITH_ME", "BRIM_ON_OOM"):
        done = brim("run", "--", "true", env={name: "zz"})
        assert done.returncode == 2
        assert f"{name}: 'zz' is" in done.stderr


def test_every_limit_has_its_variable(brim) -> None:
    """The switches, the choice and the change have one too, below their flags."""
    env = {"BRIM_ON_UNKNOWN": "stop", "BRIM_REQUIRE_TELEMETRY": "yes", "BRIM_DIE_WITH_ME": "0", "BRIM_ON_OOM": "s/8/4/"}
    done = brim("run", "--dry-run", "--on-unknown", "checkpoint", "--", "echo", "8", env=env)
    assert done.returncode == 0
    for line in ("on_unknown = checkpoint (flag --on-unknown)", "require_telemetry = yes (environment BRIM_REQUIRE_TELEMETRY)",
                 "die_with_me = no (environment BRIM_DIE_WITH_ME)", "on_oom = s/8/4/ (environment BRIM_ON_OOM)"):  # fmt: skip
        assert line in done.stderr


@pytest.mark.parametrize("words", [("--memory-budget", "CUDA:7=1GiB"), ("--device", "cuda:7"), ("--device", "cuda:7", "--memory-budget", "1GiB")])
def test_a_named_device_that_is_not_here_is_unknown_and_said(brim, tmp_path, words) -> None:
    """What is asked for a device that no reading has is said not to be enforced: the level is unknown throughout, and required telemetry refuses."""
    script = tmp_path / "readings"
    script.write_text('{"t": 0, "devices": [{"id": "cpu", "memory": {"free_bytes": 8000000000}}]}\n')
    words = ("--readings", str(script), *words)
    done = brim("run", "--run-dir", str(tmp_path / "run"), *words, "--json", "--", "sleep", "0.3")
    assert done.returncode == 0, done.stderr
    assert "cuda:7 is named and in no reading" in done.stderr
    assert set(json.loads(done.stdout)["level_ns"]) == {"unknown"}
    refused = brim("run", "--require-telemetry", *words, "--", "touch", str(tmp_path / "ran"))
    assert refused.returncode == 4
    assert "telemetry is required, and cuda:7 does not tell" in refused.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("s/--batch 16/--batch 4/", "changes nothing in: true --batch 8 --accum=1 --name a8"),
        ("s/--batch 8/--batch 16/", "makes the workload larger: true --batch 16 --accum=1 --name a8"),
        ("s/--batch 8/--batch 4/", ""),
        ("s/--accum=1/--accum=2/", ""),  # more accumulation is no larger batch
        ("s/a8/a9/", ""),  # what a word means only the job knows
    ],
)
def test_a_change_for_a_memory_failure_is_looked_at_before_the_start(brim, tmp_path, change, said) -> None:
    """`--on-oom` that does not apply to this command, or makes it larger, is a usage error of the launch, also of a dry run and by its variable; nothing is started."""
    job = ("--", "true", "--batch", "8", "--accum=1", "--name", "a8")
    for words, env in (((), {"BRIM_ON_OOM": change}), (("--on-oom", change, "--dry-run"), {}), (("--on-oom", change), {})):
        done = brim("run", *words, *job, env=env)
        assert (done.returncode, said in done.stderr) == (2 if said else 0, True), done.stderr
        assert done.stderr.count("\n") < 4 or not said


def test_an_explicit_margin_is_as_set(brim) -> None:
    """`--throttle-margin 2GiB` is the default's number, and yet what was asked for: only a default is scaled down under a memory budget."""
    for words, shown in (
        ((), "512.00 MiB (default)"),
        (("--throttle-margin", "2GiB"), "2.00 GiB (flag --throttle-margin)"),
        (("--throttle-margin", "1GiB"), "1.00 GiB"),
    ):
        done = brim("run", "--dry-run", "--memory-budget", "4GiB", *words, "--", "true")
        assert f"throttle_margin_bytes = {shown}" in done.stderr, done.stderr


def test_a_dead_stderr_stops_no_run_of_a_program(tmp_path) -> None:
    """`brim.run` in a program whose stderr is closed, or goes nowhere: papers that cannot be written are said to nobody, and the job's code comes back."""
    code = (
        "import os, sys, brim\nfrom brim.facts.settings import limits\nbroken = os.pipe(); os.close(broken[0]); os.dup2(broken[1], 2)\n"
        "if sys.argv[2] == 'closed': os.close(2); sys.stderr = None\n"
        "found = brim.run(['sh', '-c', 'rm -rf \"$0\"; exit 7', sys.argv[1]], limits(), run_dir=sys.argv[1])\nprint(found.exit_code)\n"
    )
    for how in ("pipe", "closed"):
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(tmp_path / "state")}
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / how), how], env=env, stdout=subprocess.PIPE, text=True, check=False, timeout=60)
        assert done.stdout == "7\n", (how, done)


def test_a_soak_whose_folder_is_gone_keeps_the_jobs_code(brim, tmp_path) -> None:
    """Claims that cannot be read are said on stderr; the exit code is the job's, and the document says null."""
    words = ("soak", "--hours", "1", "--run-dir", str(tmp_path / "run"), "--json", "--", "sh", "-c", f"rm -rf '{tmp_path / 'run'}'; exit 7")
    done = brim(*words)
    assert done.returncode == 7, done.stderr
    assert "brim: no claims: " in done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMAS["soak"])
    assert (document["exit_code"], document["claims"]) == (7, None)


def test_top_and_resume_of_a_run_that_has_ended(brim, tmp_path) -> None:
    """`brim top` shows what was done last; its document and the resume document are valid; there is nothing to resume, exit 2."""
    folder = str(tmp_path / "run")
    assert brim("run", "--run-dir", folder, "--", "sh", "-c", "sleep 0.3").returncode == 0
    jsonschema.validate(json.loads((tmp_path / "run" / "resume.json").read_text()), SCHEMAS["resume"])
    assert ((tmp_path / "run" / "resume.json").stat().st_mode & 0o777) == 0o600
    document = json.loads(brim("top", folder, "--json").stdout)
    jsonschema.validate(document, SCHEMAS["top"])
    assert document["ended"] is True
    shown = brim("top", folder).stdout
    assert "level" in shown
    assert "end" in shown
    again = brim("resume", folder)
    assert again.returncode == 2
    assert "nothing to go on with" in again.stderr
    assert brim("resume", str(tmp_path / "none")).returncode == 2
    assert brim("top", str(tmp_path / "none")).returncode == 2
    assert brim("top").returncode == 2


def test_secrets_are_not_written_down(brim, tmp_path) -> None:
    """What looks like a secret in the environment is named in resume.json, and its value is not there."""
    brim("run", "--run-dir", str(tmp_path / "run"), "--", "true", env={"HF_TOKEN": "hf_very_secret", "PLAIN": "kept"})
    text = (tmp_path / "run" / "resume.json").read_text()
    assert "hf_very_secret" not in text
    assert "HF_TOKEN" in json.loads(text)["environ_not_kept"]
    assert json.loads(text)["environ"]["PLAIN"] == "kept"


def test_required_telemetry_that_is_missing_refuses(brim, tmp_path) -> None:
    """--require-telemetry with a device that does not tell: exit 4, nothing started; --force starts."""
    script = tmp_path / "readings"
    script.write_text('{"t": 0, "devices": [{"id": "cuda:0", "memory": {"free_bytes": {"missing": "failed", "detail": "x"}}}]}\n')
    words = ("--readings", str(script), "--require-telemetry", "--", "touch", str(tmp_path / "ran"))
    assert brim("run", *words).returncode == 4
    assert not (tmp_path / "ran").exists()
    assert brim("run", "--force", *words).returncode == 0
    assert (tmp_path / "ran").exists()
