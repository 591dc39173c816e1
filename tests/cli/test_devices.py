"""brim probe, brim devices and brim doctor as a user types them, on this machine, on a stubbed one, and on a scripted one; brim run that waits for memory."""

import json
import os
import signal
import subprocess
import sys
import time

import jsonschema
import pytest

from tests.fakes import GIB, Stub, card

SCRIPT = {
    "t": 0,
    "devices": [
        {
            "id": "cuda:0", "name": "NVIDIA GeForce RTX 3090", "memory": {"total_bytes": 24 * GIB, "free_bytes": 9 * GIB, "used_bytes": 15 * GIB}, "temperature_c": 71, "power_draw_w": 300,
            "power_limit_w": 350, "slowdown_temperature_c": 95, "fan_percent": {"missing": "failed", "detail": "Unknown Error"},
            "processes": [{"pid": 4242, "used_bytes": 15 * GIB, "name": "python"}],
        }
    ],
    "host": {"total_bytes": 64 * GIB, "available_bytes": 60 * GIB},
}  # fmt: skip


@pytest.fixture
def script(tmp_path):
    """A file of readings, each later than the last."""

    def write(*steps: dict) -> str:
        path = tmp_path / "readings.jsonl"
        path.write_text("# a rehearsal\n" + "\n".join(json.dumps(step) for step in steps) + "\n")
        return str(path)

    return write


def schema(brim, name: str) -> dict:
    return json.loads(brim("schema", name).stdout)


def test_a_stubbed_card_beside_the_host(brim, tmp_path) -> None:
    """The table shows both rows, each with budget, now, temperature against its limit, power, state and source; the JSON is valid."""
    stub = Stub(tmp_path)
    stub.write(card(), lines=(f"0.proc {os.getpid()} 1073741824",))
    environ = {"LD_LIBRARY_PATH": stub.environ["LD_LIBRARY_PATH"], "NVML_STUB": stub.environ["NVML_STUB"]}
    text = brim("probe", "--deadline", "30s", env=environ).stdout
    row = next(line for line in text.splitlines() if line.startswith("cuda:0 "))
    assert "61/93 °C" in row
    assert "210/350 W" in row
    assert row.rstrip().endswith("nvml")
    assert "cuda:0: cuda budget: 20.44 GiB usable of 22.71 GiB total (10% held back) via NVML free memory on NVIDIA GeForce RTX 3090 (24.00 GiB total)" in text
    document = json.loads(brim("probe", "--json", "--deadline", "30s", env=environ).stdout)
    jsonschema.validate(document, schema(brim, "probe"))
    assert [device["id"] for device in document["devices"]] == ["cuda:0", "cpu"]
    assert "memory_temperature_c" in brim("probe", "--explain", "--deadline", "30s", env=environ).stdout


def test_one_device_that_is_named(brim, script) -> None:
    """By id, backend or UUID; exit 6 for one that is not here or gives nothing, with the reason; the error is a document under --json."""
    path = script(
        {**SCRIPT, "devices": [*SCRIPT["devices"], {"id": "cuda:1", "state": "lost", "memory": {"total_bytes": {"missing": "gone", "detail": "GPU is lost"}}}]}
    )
    for word in ("cuda:0", "CUDA", "cpu", "host"):
        answer = brim("probe", "--json", "--readings", path, "--device", word)
        assert answer.returncode == 0, answer.stderr
    assert len(json.loads(brim("probe", "--json", "--readings", path, "--device", "cuda:0").stdout)["devices"]) == 1
    for word, part in (("cuda:7", "not here"), ("rocm", "not here"), ("cuda:1", "GPU is lost")):
        answer = brim("probe", "--readings", path, "--device", word)
        assert (answer.returncode, part in answer.stderr) == (6, True), answer.stderr
    answer = brim("probe", "--readings", path, "--device", "nonsense")
    assert (answer.returncode, "rocm (hip)" in answer.stderr) == (2, True), answer.stderr
    document = json.loads(brim("probe", "--json", "--readings", path, "--device", "cuda:7").stdout)
    jsonschema.validate(document, schema(brim, "error"))
    assert document["reason"] == "no_such_device"


def test_scripted_readings_keep_their_reasons(brim, script) -> None:
    """What a script gives is shown and given on, what it does not give is missing; BRIM_READINGS names the script too."""
    path = script(SCRIPT)
    document = json.loads(brim("probe", "--json", env={"BRIM_READINGS": path}).stdout)
    jsonschema.validate(document, schema(brim, "probe"))
    device = document["devices"][0]
    assert device["fan_percent"] == {"missing": "failed", "detail": "Unknown Error"}
    assert device["clock_sm_mhz"]["missing"] == "not_supported"
    assert device["budget"]["total_bytes"] == 9 * GIB
    assert document["devices"][1]["budget"]["total_bytes"] == 64 * GIB


BROKEN = [
    "",
    "not json\n",
    "[]\n",
    '{"t": -1}\n',
    '{"t": "x"}\n',
    '{"t": NaN}\n',
    '{"devices": []}\n',
    '{"t": ' + "9" * 400 + "}\n",
    '{"t": 0}\n' + "[" * 100_000 + "\n",
    '{"t": 0, "devices": {}}\n',
    '{"t": 0, "devices": [{"name": "x"}]}\n',
    '{"t": 0, "host": 5}\n',
    '{"t": 5}\n{"t": 1}\n',
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_script_is_a_usage_error(brim, tmp_path, text) -> None:
    """One sentence that names the file and the line, exit 2."""
    (tmp_path / "bad.jsonl").write_text(text)
    answer = brim("probe", "--readings", "bad.jsonl")
    assert (answer.returncode, "bad.jsonl" in answer.stderr, "Traceback" in answer.stderr) == (2, True, False)
    assert brim("probe", "--readings", "none.jsonl").returncode == 2


@pytest.mark.parametrize("text", ["[" * 100_000, '{"devices": []}', '{"t": NaN, "devices": []}', '{"t": "1"}'])
def test_a_broken_script_is_no_telemetry(brim, tmp_path, text) -> None:
    """The governor report refuses such a script as the probe does."""
    (tmp_path / "bad.jsonl").write_text(text)
    answer = brim("governor-report", "--readings", "bad.jsonl", "--out", "out")
    assert (answer.returncode, "bad.jsonl, line 1" in answer.stderr, "internal" in answer.stderr) == (2, True, False)


def test_readings_from_a_pipe_are_refused(brim, tmp_path) -> None:
    """A FIFO is not waited for."""
    os.mkfifo(tmp_path / "pipe")
    for words in (("probe",), ("governor-report", "--out", "out"), ("run", "--memory-budget", "1GiB", "--run-dir", "r")):
        answer = brim(*words, "--readings", "pipe", *(("--", "true") if words[0] == "run" else ()), timeout=20)
        assert (answer.returncode, "pipe" in answer.stderr) == (2, True), answer.stderr


HOSTILE = {
    "id": "cuda:0\n# x|\x1b[2J\ud800",
    "name": "A\n# B | <b>\x1b[2J\ud800",
    "temperature_c": 10**400,
    "power_limit_w": "350",
    "fan_percent": {"missing": "weird"},
}


@pytest.mark.parametrize(
    "name", ["temperature_c", "power_limit_w", "power_draw_w", "driver_version", "faults", "processes", "budget", "memory", "index", "unified"]
)
@pytest.mark.parametrize("value", [10**400, "71", True, [1], {"missing": ["x"]}, {}, {"missing": "weird"}, -1e300])
def test_a_value_of_another_kind_is_missing(name, value) -> None:
    """Whatever stands in a field, the row is read, and a number in it is a number."""
    from brim.facts.device import device_from
    from brim.values import REASONS, Missing

    device = device_from({"id": "cuda:0", name: value})
    for field in ("temperature_c", "power_limit_w", "power_draw_w"):
        seen = getattr(device, field)
        assert isinstance(seen, Missing)
        assert seen.reason in REASONS
    assert isinstance(device.index, int)
    assert isinstance(device.unified, bool)
    assert isinstance(device.faults, tuple)


@pytest.mark.system
def test_a_hostile_reading(brim, script, tmp_path) -> None:
    """Names with line breaks, escapes, Markdown and half characters, and numbers that cannot be: everything is printed, nothing dies, nothing gets out of its line."""
    path = script({"t": 0, "devices": [{**HOSTILE, "memory": {"total_bytes": 24 * GIB, "free_bytes": 20 * GIB}}], "host": SCRIPT["host"]})
    document = json.loads(brim("probe", "--json", "--readings", path).stdout)
    assert document["devices"][0]["temperature_c"]["missing"] == "failed"
    assert document["devices"][0]["power_limit_w"]["missing"] == "failed"
    assert document["devices"][0]["fan_percent"]["missing"] == "failed"
    shown = brim("probe", "--explain", "--readings", path)
    assert (shown.returncode, "\x1b" in shown.stdout) == (0, False), shown.stderr
    told = brim("governor-report", "--readings", path, "--out", "out")
    assert told.returncode == 0, told.stderr
    page = next((tmp_path / "out").glob("*.md")).read_text()
    assert "\x1b" not in page
    assert not any(line.startswith("# B") for line in page.splitlines())
    ran = brim("run", "--readings", path, "--max-temp", "80", "--run-dir", "r", "--", "sleep", "0.5")
    assert "internal error" not in ran.stderr
    page = (tmp_path / "r" / "report.md").read_text()
    assert "\x1b" not in page
    assert not any(line.startswith("# x") for line in page.splitlines())


@pytest.mark.parametrize("switch", ["delay.nvmlInitWithFlags 30000", "crash.nvmlInitWithFlags 1"])
def test_a_bad_driver_costs_two_seconds_at_most(brim, tmp_path, switch) -> None:
    """The whole command, start to end, with a library that hangs for 30 s or crashes."""
    stub = Stub(tmp_path)
    stub.write(card(), lines=(switch,))
    begun = time.monotonic()
    answer = brim("probe", "--json", "--deadline", "1s", env={"LD_LIBRARY_PATH": stub.environ["LD_LIBRARY_PATH"], "NVML_STUB": stub.environ["NVML_STUB"]})
    assert time.monotonic() - begun < 2.5  # the deadline, and what a loaded machine takes to start Python twice
    assert answer.returncode == 0
    nvml = next(asked for asked in json.loads(answer.stdout)["asked"] if asked["source"] == "nvml")
    assert nvml["detail"].startswith("telemetry unavailable")


def test_doctor_on_any_machine(brim) -> None:
    """Exit 0, every source with its answer, and the document is valid."""
    text = brim("doctor")
    assert text.returncode == 0
    for word in ("nvml", "metal", "host", "python"):
        assert word in text.stdout
    document = json.loads(brim("doctor", "--json").stdout)
    jsonschema.validate(document, schema(brim, "doctor"))
    assert {asked["source"] for asked in document["asked"]} >= {"nvml", "nvidia-smi", "host", "metal", "loop"}


def test_doctor_says_what_to_install(brim, tmp_path) -> None:
    """A library that is here and a binding that fails to load it: the command that repairs it is printed."""
    stub = Stub(tmp_path)
    stub.write(card(), lines=("err.nvmlInitWithFlags 12",))
    text = brim("doctor", "--deadline", "30s", env={"LD_LIBRARY_PATH": stub.environ["LD_LIBRARY_PATH"], "NVML_STUB": stub.environ["NVML_STUB"]}).stdout
    assert "to install:" in text
    assert "nvml: install NVIDIA's driver" in text


def test_doctor_says_who_polls(monkeypatch) -> None:
    """The loop that was built, or that the interpreter polls, and what brings the loop."""
    from brim.probes import vigil
    from brim.sight import loop

    monkeypatch.setattr(vigil, "library", object)
    assert (loop().outcome, loop().install) == ("answered", "")
    monkeypatch.setattr(vigil, "library", lambda: None)
    assert (loop().outcome, "C compiler" in loop().install) == ("absent", sys.platform.startswith("linux"))


def test_devices_are_searched(brim) -> None:
    """The one that is meant, all without a query, suggestions and exit 6 for none; the document is valid."""
    assert brim("devices", "rtx", "3090").stdout.count("NVIDIA GeForce RTX 3090") == 1
    assert len(brim("devices").stdout.splitlines()) > 200
    nothing = brim("devices", "rtx 3091")
    assert (nothing.returncode, "3090" in nothing.stderr) == (6, True)
    document = json.loads(brim("devices", "h100", "--json").stdout)
    jsonschema.validate(document, schema(brim, "devices"))
    assert len(document["devices"]) >= 5


def test_watch_looks_again(brim, script) -> None:
    """With --json one document a line, as soon as something has moved, with the reading that holds then."""
    path = script(SCRIPT, {**SCRIPT, "t": 0.2, "devices": [{"id": "cuda:0", "temperature_c": 90}]})
    environ = {**os.environ, "PYTHONPATH": os.path.join(os.path.dirname(__file__), "..", "..", "src")}
    command = [sys.executable, "-m", "brim", "probe", "--watch", "--json", "--every", "100ms", "--readings", path]
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - a suite that runs in the background of a shell has it ignored
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ, preexec_fn=heard) as child:  # noqa: PLW1509 - one system call
        seen = [json.loads(child.stdout.readline())["devices"][0]["temperature_c"]]
        while seen[-1] == 71 and len(seen) < 50:  # the machine's own memory moves, too
            seen.append(json.loads(child.stdout.readline())["devices"][0]["temperature_c"])
        child.send_signal(2)
        child.communicate(timeout=10)
    assert (seen[0], seen[-1], child.returncode) == (71, 90, 0)


@pytest.mark.parametrize("cards", [0, 2])
def test_watch_tells_what_moves_on_this_machine(brim, tmp_path, cards) -> None:
    """A line comes when a card of the stub moves, not one at each poll; without cards only the host is followed; Ctrl-C ends it at once with 0."""
    stub = Stub(tmp_path)
    environ = {**os.environ, "PYTHONPATH": os.path.join(os.path.dirname(__file__), "..", "..", "src")}
    if cards:
        stub.write(*(card(n) for n in range(cards)))
        environ |= {"LD_LIBRARY_PATH": stub.environ["LD_LIBRARY_PATH"], "NVML_STUB": stub.environ["NVML_STUB"]}
    command = [sys.executable, "-m", "brim", "probe", "--watch", "--json", "--every", "20ms", "--deadline", "30s"]
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - as above
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ, preexec_fn=heard) as child:  # noqa: PLW1509 - one system call
        first = json.loads(child.stdout.readline())
        assert len(first["devices"]) == cards + 1
        time.sleep(1)
        lines = 1
        if cards:
            stub.write(card(temp=80), card(1))
            while json.loads(child.stdout.readline())["devices"][0]["temperature_c"] != 80:
                lines += 1
        begun = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert (child.wait(timeout=5), lines < 25) == (0, True)  # fifty polls were made; the machine's own memory moves, too
        assert time.monotonic() - begun < 1


HELD = {"id": "cuda:0", "uuid": "GPU-77", "name": "NVIDIA GeForce RTX 3090", "temperature_c": 60}
FULL = {**HELD, "memory": {"total_bytes": 24 * GIB, "free_bytes": 100 << 20}, "processes": [{"pid": 4242, "used_bytes": 23 * GIB, "name": "python"}]}
FREE = {**HELD, "memory": {"total_bytes": 24 * GIB, "free_bytes": 23 * GIB}, "processes": []}
ROOMY = {"total_bytes": 64 * GIB, "available_bytes": 60 * GIB}


def test_a_run_that_fits_but_not_now(brim, script, smollm2, tmp_path) -> None:
    """Refused with the holder's name, exit 3; with --wait it starts when the memory is back, on the card that was named, by its UUID; --force starts at once."""
    path = script({"t": 0, "devices": [FULL], "host": ROOMY}, {"t": 2, "devices": [FREE], "host": ROOMY})
    words = ("run", "--readings", path, "--model", smollm2, "--device", "cuda:0", "--floor", "1MiB")
    refused = brim(*words, "--run-dir", "refused", "--", "true")
    assert refused.returncode == 3
    assert "fits, but not now: 23.00 GiB of it is held by PID 4242 (python)" in refused.stderr
    assert "--wait" in refused.stderr
    waited = brim(*words, "--run-dir", "waited", "--wait", "60s", "--", "sh", "-c", "echo shown=$CUDA_VISIBLE_DEVICES")
    assert (waited.returncode, waited.stdout.strip()) == (0, "shown=GPU-77"), waited.stderr
    assert "waiting: cuda:0: fits, but not now" in waited.stderr
    assert brim(*words, "--run-dir", "forced", "--force", "--", "true").returncode == 0
    assert json.loads((tmp_path / "state" / "brim" / "promises.json").read_text()) == []


def test_fit_says_that_it_is_not_now(brim, script, smollm2) -> None:
    """`brim fit --device cuda:0` tells what the card could ever give from what it has now."""
    path = script({"t": 0, "devices": [FULL], "host": ROOMY})
    document = json.loads(brim("fit", smollm2, "--device", "cuda:0", "--json", env={"BRIM_READINGS": path}).stdout)
    assert (document["verdict"], document["devices"][0]["fits_now"]) == ("fits", False)
    assert "fits, but not now: 23.00 GiB of it is held by PID 4242 (python)" in document["reasons"][0]


def test_fit_on_a_device_of_the_catalogue(brim, smollm2) -> None:
    """By a loose name it is hypothetical, all of it free; an ambiguous one lists its candidates, exit 2."""
    document = json.loads(brim("fit", smollm2, "--device", "rtx 3090", "--json").stdout)
    assert document["devices"][0]["budget"]["hypothetical"]
    assert 23.5 < document["devices"][0]["budget"]["total_bytes"] / GIB < 23.6
    answer = brim("fit", smollm2, "--device", "4060 ti")
    assert (answer.returncode, "may be any of" in answer.stderr) == (2, True)
