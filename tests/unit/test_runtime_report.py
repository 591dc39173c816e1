"""The governor report: its rules as a table, its document and page as the issue names them, and its edges."""

import json
import os
import stat
import time
from pathlib import Path

import pytest

from brim import runtime_report
from brim.card_report import governor_report, load_profile
from brim.errors import Unreadable, Usage
from brim.probes import gpu_rows

CARD = {"name": "NVIDIA GeForce RTX 3090", "memory_total_mb": 24576, "memory_free_mb": 23000, "power_limit_w": 350.0, "temperature_c": 45}
NEED = 6 * 1024  # the preflight of `filed` has small weights, so the floor is the least one


def filed(folder: Path, feasible: bool = True, int4: float = 1.5, name: str = "preflight.json") -> str:
    path = folder / name
    document = {
        "dense_class_params": 12_345_678_901, "purefield_estimated_params": 3_210_987_654, "report_path": "/somewhere/else/preflight.json",
        "purefield_vram": {"int4_raw_weights_gb": int4, "bf16_weights_gb": 5.98, "rtx_3090_24gb_int4_or_adapter_feasible": feasible},
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return str(path)


def made(tmp_path: Path, telemetry: object, **more: object) -> "dict[str, object]":
    return governor_report("rtx3090-12b", str(tmp_path / "out"), telemetry=telemetry, preflight=str(more.pop("preflight", None) or filed(tmp_path)), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("free_mb", "heat", "level"),
    [
        (NEED + 2048, 73.9, "run"),
        (NEED + 2048, 73, "run"),
        (NEED + 2048, 74, "throttle"),
        (NEED + 2047, 40, "throttle"),
        (NEED, 81.9, "throttle"),
        (NEED, 40, "throttle"),
        (NEED - 1, 40, "block"),
        (0, 40, "block"),
        (23000, 82, "block"),
        (23000, 83, "block"),
        (NEED - 1, 90, "block"),
        (None, 40, "unknown"),
        (None, 82, "block"),
        (23000, None, "unknown"),
        (NEED - 1, None, "block"),
        (None, None, "unknown"),
        (float("nan"), 40, "unknown"),
        (-1, 40, "unknown"),
        ("[N/A]", 40, "unknown"),
        (True, 40, "unknown"),
        (99999, 40, "unknown"),
    ],
)
def test_levels(tmp_path: Path, free_mb: object, heat: object, level: str) -> None:
    """Required free VRAM, its margin of 2, the maximum temperature and its margin of 8 °C: each edge falls on the side that the rules say."""
    document = made(tmp_path, CARD | {"memory_free_mb": free_mb, "temperature_c": heat})
    decision = document["decision"]
    assert isinstance(decision, dict)
    assert decision["risk_level"] == level
    assert decision["run_12b_compressed_on_3090_allowed"] is (level in ("run", "throttle"))
    assert decision["dense_12b_full_train_on_3090_allowed"] is False
    assert decision["reason"]


@pytest.mark.parametrize("field", ["name", "memory_total_mb", "memory_free_mb", "power_limit_w", "temperature_c"])
def test_a_missing_field_is_said_and_allows_nothing(tmp_path: Path, field: str) -> None:
    """Any field that is absent is named in the reason, stands as missing in the document, and never lets a run start."""
    document = made(tmp_path, {key: value for key, value in CARD.items() if key != field})
    assert field in document["decision"]["reason"]  # type: ignore[index]
    assert document["decision"]["risk_level"] == "unknown"  # type: ignore[index]
    assert document["decision"]["run_12b_compressed_on_3090_allowed"] is False  # type: ignore[index]
    assert document["gpu"][field]["missing"] == "failed"  # type: ignore[index]
    assert "Risk level: unknown" in Path(str(document["markdown_path"])).read_text()


@pytest.mark.parametrize(("given", "int4", "required"), [(None, 1.5, 6), (None, 2.0, 6), (None, 2.5, 6.5), (3.0, 9.0, 3.0), (0.0, 9.0, 0.0), (12, 1, 12)])
def test_the_required_minimum(tmp_path: Path, given: float | None, int4: float, required: float) -> None:
    """The given minimum, else the larger of 6 and the int4 weights plus 4."""
    document = made(tmp_path, CARD, preflight=filed(tmp_path, int4=int4), min_free_vram=given)
    assert document["watchdog"]["min_free_vram_gb"] == required  # type: ignore[index]


def test_an_infeasible_preflight_allows_nothing(tmp_path: Path) -> None:
    """A cool and empty card runs nothing that the preflight calls infeasible, and the reason says so."""
    decision = made(tmp_path, CARD, preflight=filed(tmp_path, feasible=False))["decision"]
    assert isinstance(decision, dict)
    assert decision["risk_level"] == "run"
    assert decision["run_12b_compressed_on_3090_allowed"] is False
    assert "preflight" in decision["reason"]


@pytest.mark.parametrize(
    ("telemetry", "text"),
    [
        (None, "no telemetry"),
        ([], "no GPU rows"),
        ({"available": False, "error": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."}, "couldn't communicate"),
    ],
)
def test_no_telemetry(tmp_path: Path, telemetry: object, text: str) -> None:
    """Without telemetry the level is unknown, the tool's own words stand in `gpu.error`, and the page says unknown."""
    document = made(tmp_path, telemetry)
    gpu = document["gpu"]
    assert isinstance(gpu, dict)
    assert gpu["available"] is False
    assert text in gpu["error"]
    assert "command" in gpu
    assert document["decision"]["risk_level"] == "unknown"  # type: ignore[index]
    page = Path(str(document["markdown_path"])).read_text()
    assert "Free VRAM: unknown" in page
    assert "Temperature: unknown" in page


@pytest.mark.parametrize(
    ("changes", "level", "allowed"),
    [
        (({}, {}), "run", True),
        (({}, {"temperature_c": 76}), "throttle", True),
        (({"temperature_c": 76}, {"memory_free_mb": 100}), "block", False),
        (({}, {"temperature_c": None}), "unknown", False),
        (({"temperature_c": None}, {"temperature_c": 99}), "block", False),
    ],
)
def test_several_gpus(tmp_path: Path, changes: "tuple[dict[str, object], ...]", level: str, allowed: bool) -> None:
    """A list of cards gives one decision for each, in order, and one for all: the worst rules."""
    document = made(tmp_path, [CARD | change for change in changes])
    assert document["decision"]["risk_level"] == level  # type: ignore[index]
    assert document["decision"]["run_12b_compressed_on_3090_allowed"] is allowed  # type: ignore[index]
    each = document["decisions"]
    assert isinstance(each, list)
    assert [one["index"] for one in each] == [0, 1]
    assert [one["risk_level"] for one in each] == [made(tmp_path, CARD | change)["decision"]["risk_level"] for change in changes]  # type: ignore[index]
    assert len(document["gpus"]) == 2  # type: ignore[arg-type]


def test_the_document_holds_every_name(tmp_path: Path) -> None:
    """The JSON file has the names and fixed values of the contract, is UTF-8 unescaped, indented by two, with sorted keys; folders are made with parents."""
    out = tmp_path / "deep" / "er" / "ö"
    document = governor_report(out=str(out), telemetry=CARD | {"name": "RTX 3090 é"})
    text = (out / "rtx3090_runtime_governor_report.json").read_text("utf-8")
    assert json.loads(text) == document
    assert text == json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    assert "é" in text
    assert sorted(document) == [
        "claim_gate", "created_at", "decision", "gpu", "hardware_target", "json_path", "markdown_path", "model_target", "preflight", "runtime_profile",
        "schema_version", "watchdog",
    ]  # fmt: skip
    assert document["schema_version"] == "tinymind-rtx3090-runtime-governor-v1"
    assert document["hardware_target"] == "RTX 3090 24GB"
    assert document["model_target"] == "TinyMind PureField/ReGenesis 12B-class compressed runtime"
    assert document["claim_gate"] == {
        "no_bottleneck_forever_claim_allowed": False, "stable_long_run_claim_requires_soak_test_hours": 24, "world_best_performance_claim_allowed": False,
    }  # fmt: skip
    profile = document["runtime_profile"]
    assert {key: profile[key] for key in profile if key != "exact_memory"} == {
        "precision": "int4_4x8_pairwise_sparse", "training_mode": "adapter_or_bitsharp_delta_only", "full_dense_adam_training": "blocked", "microbatch": 1,
        "gradient_checkpointing": True, "cpu_nvme_offload": True, "max_persistent_tokens": 10_000_000,
    }  # fmt: skip
    assert "evidence ledger" in profile["exact_memory"]
    watchdog = document["watchdog"]
    assert (watchdog["max_temp_c"], watchdog["poll_seconds"]) == (82, 20)
    assert watchdog["actions"] == [
        "pause_or_checkpoint_on_throttle", "stop_before_oom_when_free_vram_below_floor", "write_resume_state_every_eval_interval",
        "rerun_quality_gate_after_quantized_export",
    ]  # fmt: skip
    assert sorted(document["gpu"]) == ["available", "command", "memory_free_mb", "memory_total_mb", "name", "power_limit_w", "temperature_c"]
    assert sorted(document["preflight"]) == ["bf16_weights_gb", "dense_class_params", "int4_raw_weights_gb", "path", "purefield_estimated_params"]
    from datetime import UTC, datetime

    stamp = datetime.fromisoformat(document["created_at"])
    assert stamp.utcoffset() == UTC.utcoffset(None)
    assert document["json_path"] == str(out / "rtx3090_runtime_governor_report.json")
    assert document["markdown_path"] == str(out / "rtx3090_runtime_governor_report.md")
    held = json.loads(Path(document["preflight"]["path"]).read_text())
    assert Path(document["preflight"]["path"]).parent == out / "preflight"
    assert held["purefield_vram"]["rtx_3090_24gb_int4_or_adapter_feasible"] is True


def test_the_page(tmp_path: Path) -> None:
    """The Markdown has its title, every line of the list in its form, and both sections."""
    page = Path(str(made(tmp_path, CARD | {"memory_free_mb": 23001})["markdown_path"])).read_text("utf-8")
    assert page.startswith("# ")
    for line in (
        "- GPU: NVIDIA GeForce RTX 3090", "- Free VRAM: 22.46 GB", "- Temperature: 45 °C", "12,345,678,901", "3,210,987,654", "1.5000", "- Risk level: run",
        "- Compressed run allowed: true", "- Dense training allowed: false", "forever", "## Runtime profile", "## Watchdog",
        "stop_before_oom_when_free_vram_below_floor", "adapter_or_bitsharp_delta_only",
    ):  # fmt: skip
        assert line in page, line
    assert '"No bottleneck forever" claim allowed: false' in page


def test_preflight_files(tmp_path: Path) -> None:
    """A named preflight is used as it stands, its own report_path given; one that is missing is exit 2 and nothing is recomputed or written."""
    document = made(tmp_path, CARD)
    assert document["preflight"] == {
        "path": "/somewhere/else/preflight.json", "dense_class_params": 12_345_678_901, "purefield_estimated_params": 3_210_987_654,
        "bf16_weights_gb": 5.98, "int4_raw_weights_gb": 1.5,
    }  # fmt: skip
    assert not (tmp_path / "out" / "preflight").exists()
    with pytest.raises(Unreadable) as fault:
        governor_report(out=str(tmp_path / "none"), telemetry=CARD, preflight=str(tmp_path / "nowhere.json"))
    assert fault.value.exit_code == 2
    assert "nowhere.json" in str(fault.value)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("dense_class_params", None, "dense_class_params is missing"),
        ("purefield_estimated_params", "many", "purefield_estimated_params"),
        ("purefield_vram", None, "purefield_vram"),
        ("purefield_vram.int4_raw_weights_gb", None, "int4_raw_weights_gb is missing"),
        ("purefield_vram.bf16_weights_gb", True, "bf16_weights_gb"),
        ("purefield_vram.rtx_3090_24gb_int4_or_adapter_feasible", "yes", "feasible"),
    ],
)
def test_a_preflight_that_does_not_hold(tmp_path: Path, path: str, value: object, says: str) -> None:
    """A preflight file with a field that is absent or of the wrong kind is a usage error that names file and field."""
    name = filed(tmp_path)
    document = json.loads(Path(name).read_text())
    table, _, key = path.rpartition(".")
    place = document[table] if table else document
    if value is None:
        del place[key]
    else:
        place[key] = value
    Path(name).write_text(json.dumps(document))
    with pytest.raises(Usage) as fault:
        made(tmp_path, CARD, preflight=name)
    assert says in str(fault.value)
    assert name in str(fault.value)


def test_readings_replace_the_cards(tmp_path: Path) -> None:
    """The first line of a script of readings is the telemetry, its sizes turned from bytes; devices that are no CUDA cards are not cards.

    Missing values stay missing.
    """
    script = tmp_path / "readings.jsonl"
    device = {
        "id": "cuda:0", "backend": "cuda", "name": "RTX 3090", "memory": {"total_bytes": 24576 << 20, "free_bytes": 20000 << 20},
        "temperature_c": 50, "power_limit_w": 350,
    }  # fmt: skip
    later = {"t": 5, "devices": []}
    for devices, level in (
        ([device], "run"),
        ([{"id": "cpu", "backend": "cpu", "name": "host", "memory": {}}, device], "run"),
        ([device | {"temperature_c": {"missing": "denied", "detail": "no permission"}}], "unknown"),
        ([device | {"temperature_c": 74}], "throttle"),
        ([device | {"memory": {"total_bytes": 24576 << 20, "free_bytes": 1 << 20}}], "block"),
        ([], "unknown"),
    ):
        script.write_text(json.dumps({"t": 0, "devices": devices}) + "\n" + json.dumps(later) + "\n")
        document = governor_report(out=str(tmp_path), readings=str(script))
        assert document["decision"]["risk_level"] == level
        assert str(script) in document["gpu"]["command"]
    assert "no GPU rows" in document["gpu"]["error"]


def tool(folder: Path, body: str) -> None:
    path = folder / "nvidia-smi"
    path.write_text("#!/bin/sh\n" + body + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("body", "level", "says"),
    [
        ("echo 'NVIDIA GeForce RTX 3090, 24576, 23000, 350.00, 41'", "run", ""),
        ("echo 'A, 24576, 23000, 350.00, 41'; echo 'B, 24576, 100, 350.00, 41'", "block", ""),
        ("echo 'NVIDIA GeForce RTX 3090, 24576, 23000, [N/A], [Not Supported]'", "unknown", ""),
        ("echo 'NVIDIA GeForce RTX 3090, 24576'", "unknown", ""),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch' >&2; exit 18", "unknown", "version mismatch"),
        ("echo 'No devices were found'; exit 6", "unknown", "No devices were found"),
        ("exit 9", "unknown", "code 9"),
        ("true", "unknown", "no GPU rows"),
    ],
)
def test_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, level: str, says: str) -> None:
    """What nvidia-smi prints becomes cards, its own error text becomes `gpu.error`, and the command that was asked stands there."""
    tool(tmp_path, body)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    document = governor_report(out=str(tmp_path), telemetry=_asked(), preflight=filed(tmp_path))
    assert document["decision"]["risk_level"] == level
    assert document["gpu"]["command"][0] == "nvidia-smi"
    assert says in document["gpu"].get("error", "")


def _asked() -> runtime_report.Telemetry:
    command, rows, error = gpu_rows.nvidia_smi()
    return runtime_report.Telemetry(command=command, error=error) if error else runtime_report.telemetry_of(rows, command)


def test_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that hangs, with a child that keeps its pipe open, is given up at the deadline and told so."""
    tool(tmp_path, "sleep 60 & sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    start = time.monotonic()
    _, rows, error = gpu_rows.nvidia_smi(0.3)
    assert time.monotonic() - start < 5
    assert rows == []
    assert "within 0.3 s" in error
    assert gpu_rows.DEADLINE_S == 10


def test_profiles_name_the_nearest(tmp_path: Path) -> None:
    """An unknown key, section, profile or action is an error that names the nearest known one; a wrong kind of value says what to write."""
    cases = [
        ("[limits]\nmax_tmp = 80", "'max_temp'"),
        ("[limit]\nmax_temp = 80", "'limits'"),
        ("[limits]\nmax_temp = 'hot'", "write a number"),
        ("[limits]\nfloor = '3 apples'", "is no size"),
        ("[limits]\npoll = 'often'", "is no time"),
        ("[limits]\non_unknown = 'pray'", "keep, checkpoint, stop"),
        ("[watchdog]\nactions = ['dance']", "is no action"),
        ("[model.compresed]\nkept = 1", "'compressed'"),
        ("[[claims]]\nsays = 'x'", "needs a name"),
        ("[[claims]]\nname = 'x'\nneeds = [{measure = 'coverage'}]", "exactly one"),
        ("[[claims]]\nname = 'x'\nneeds = [{mesure = 'coverage', is = 1}]", "'measure'"),
        ("nme = 'x'", "'name'"),
        ("[limits", "no TOML"),
    ]
    for text, says in cases:
        path = tmp_path / "p.toml"
        path.write_text(text if text.startswith("nme") else 'name = "p"\n' + text)
        with pytest.raises(Usage) as fault:
            load_profile(str(path))
        assert says in f"{fault.value} {fault.value.hint}", (text, str(fault.value))
        assert str(path) in str(fault.value)
    with pytest.raises(Usage) as fault:
        load_profile("rtx3090-12")
    assert "'rtx3090-12b'" in str(fault.value)


def test_a_users_profile_hides_the_packaged_one(tmp_path: Path) -> None:
    """A profile in the user's folder is found by name before the packaged one of the same name; both are listed with their origin."""
    from brim.card_report import profiles

    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "rtx3090-12b.toml").write_text('name = "rtx3090-12b"\ndescription = "mine"\n')
    (folder / "broken.toml").write_text("name = 3\n")
    rows = {row["name"]: row for row in profiles(str(tmp_path))}
    assert rows["rtx3090-12b"]["origin"] == "user"
    assert rows["rtx3090-12b"]["description"] == "mine"
    assert "broken.toml" in rows["broken"]["fault"]
    assert load_profile("rtx3090-12b", str(tmp_path)).description == "mine"
