"""The commands around a governed run: what they print, their documents, their codes."""

import json

import jsonschema
import pytest

from brim.reports.schemas import SCHEMAS

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
    done = brim("run", "--dry-run", "--on-unknown", "checkpoint", "--", "true", env=env)
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
