"""`brim run --profile rtx3090-12b`: each of the four watchdog actions is done, and the report of the run shows it (scripted readings: no such card is here)."""

import json

import pytest

pytestmark = pytest.mark.system
PROFILE = ("--profile", "rtx3090-12b")


def card(free_mib: int, heat: object = 50) -> dict[str, object]:
    return {
        "id": "cuda:0", "backend": "cuda", "name": "NVIDIA GeForce RTX 3090", "memory": {"total_bytes": 24576 << 20, "free_bytes": free_mib << 20},
        "temperature_c": heat, "power_limit_w": 350.0,
    }  # fmt: skip


def script(folder, *steps: "tuple[float, dict[str, object] | None]") -> "tuple[str, str]":
    path = folder / "readings.jsonl"
    path.write_text("".join(json.dumps({"t": t, "devices": [] if device is None else [device]}) + "\n" for t, device in steps))
    return "--readings", str(path)


def acted(folder) -> dict[str, int]:
    report = json.loads((folder / "report.json").read_text())
    assert report["profile"]["name"] == "rtx3090-12b"
    page = (folder / "report.md").read_text()
    assert all(row["action"] in page for row in report["watchdog"])
    return {row["action"].split("_")[0]: row["times"] for row in report["watchdog"]}


@pytest.mark.parametrize(
    ("device", "code", "says"),
    [
        (card(6000), 3, "below the required"),
        (card(23000, 82), 3, "maximum of 82"),
        (card(23000, {"missing": "failed", "detail": "x"}), 4, "telemetry is required"),
        (None, 4, "telemetry is required"),
    ],
)
def test_the_gate_of_the_profile(brim, tmp_path, device, code, says) -> None:
    """Too little free VRAM or too much heat is refused (3); telemetry that is missing, or no card at all, is exit 4; --force starts all the same."""
    readings = script(tmp_path, (0, device))
    done = brim("run", *PROFILE, *readings, "--run-dir", "r", "--", "true")
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert brim("verify", "r").returncode == 0


def test_stop_before_oom(brim, tmp_path) -> None:
    """Free VRAM that falls below the floor stops the job with 75, at a look that came long before 20 s were over; the report names the action."""
    readings = script(tmp_path, (0, card(23000)), (1, card(9000)), (2, card(5000)))
    done = brim("run", *PROFILE, *readings, "--poll", "500ms", "--run-dir", "r", "--", "sleep", "60")
    assert done.returncode == 75, done.stderr
    assert acted(tmp_path / "r") == {"pause": 0, "stop": 1, "write": 0, "rerun": 0}
    assert "floor" in json.loads((tmp_path / "r" / "report.json").read_text())["reason"]


def test_throttle_and_evaluations(brim, tmp_path) -> None:
    """At throttle by heat the job is slowed, and resume state is written at each evaluation that the job marks."""
    job = "import time, brim.client as c\nfor step in range(6):\n    c.step(step)\n    c.evaluated()\n    time.sleep(0.6)\n"
    readings = script(tmp_path, (0, card(23000)), (1, card(23000, 76)))
    done = brim("run", *PROFILE, *readings, "--poll", "300ms", "--run-dir", "r", "--", "python3", "-c", job)
    assert done.returncode == 0, done.stderr
    times = acted(tmp_path / "r")
    assert times["pause"] >= 1
    assert times["write"] >= 2
    assert times["stop"] == 0


def test_memory_of_the_job_counts_towards_the_floor(brim, tmp_path) -> None:
    """What the job itself took does not make the launch's floor fail; what is left when it took more does."""

    def with_used(free_mib: int) -> dict[str, object]:
        device = card(free_mib)
        device["memory"] = {"total_bytes": 24576 << 20, "free_bytes": free_mib << 20, "used_bytes": (24576 - free_mib) << 20}
        return device

    readings = script(tmp_path, (0, with_used(23000)), (5, with_used(6000)))
    assert brim("run", *PROFILE, *readings, "--poll", "300ms", "--run-dir", "r", "--", "sleep", "8").returncode == 0
    readings = script(tmp_path, (0, with_used(23000)), (5, with_used(100)))
    assert brim("run", *PROFILE, *readings, "--poll", "300ms", "--run-dir", "s", "--", "sleep", "30").returncode == 75


def test_the_quality_gate_after_an_export(brim, tmp_path) -> None:
    """A file whose gate has not passed is refused (3) or forced with a record; an export during the run opens the gate again, which the report and the claim show."""
    artifact = tmp_path / "model.q4"
    artifact.write_text("first export")
    readings = script(tmp_path, (0, card(23000)))
    words = ("run", *PROFILE, *readings, "--artifact", str(artifact), "--poll", "300ms")
    refused = brim(*words, "--run-dir", "a", "--", "true")
    assert refused.returncode == 3
    assert "quality gate" in refused.stderr
    assert brim(*words, "--force", "--run-dir", "b", "--", "true").returncode == 0
    gate = ("quality", "--artifact", str(artifact), "--baseline", "0.7", "--metric", "acc", "--max-drop", "0.02", "--", "echo", "acc: 0.71")
    assert brim(*gate).returncode == 0
    assert brim(*words, "--run-dir", "c", "--", "sleep", "1").returncode == 0
    claims = {one["name"]: one["allowed"] for one in json.loads(brim("claims", "c", "--json").stdout)["claims"]}
    assert claims["quality_kept"] is True
    assert acted(tmp_path / "c")["rerun"] == 0
    assert brim(*words, "--run-dir", "d", "--", "sh", "-c", f"sleep 1; echo second export > {artifact}; sleep 1.5").returncode == 0
    assert acted(tmp_path / "d")["rerun"] == 1
    assert not {one["name"]: one["allowed"] for one in json.loads(brim("claims", "d", "--json").stdout)["claims"]}["quality_kept"]
    assert not {one["name"]: one["allowed"] for one in json.loads(brim("claims", "c", "--json").stdout)["claims"]}["quality_kept"]
    assert brim(*words, "--run-dir", "e", "--", "true").returncode == 3


def test_the_gate_is_run_again_where_the_profile_gives_its_command(brim, tmp_path) -> None:
    """With `[quality] command` an export during the run is judged at its end, bound to the new file."""
    profile = tmp_path / "p.toml"
    profile.write_text(
        'name = "p"\n[watchdog]\nactions = ["rerun_quality_gate_after_quantized_export"]\n'
        '[quality]\nmetric = "acc"\nbaseline = 0.7\nmax_drop = 0.02\ncommand = ["sh", "-c", "echo acc: 0.70"]\n'
    )
    artifact = tmp_path / "m"
    artifact.write_text("one")
    words = ("run", "--profile", str(profile), "--artifact", str(artifact), "--poll", "300ms")
    assert brim(*words, "--run-dir", "r", "--", "sh", "-c", f"sleep 1; echo two > {artifact}; sleep 1").returncode == 0
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["watchdog"][0]["times"] == 2
    assert brim("quality", "--artifact", str(artifact)).returncode == 0
