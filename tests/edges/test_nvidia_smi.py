"""nvidia-smi as scripts play it: every spelling of unknown, localised numbers, renamed and missing fields, exit codes, a hang; asked only where the library cannot be loaded."""

import pytest

from brim.clock import SystemClock
from brim.probes.smi import EXITS, FIELDS, look, number, parse, unknown
from brim.values import Missing
from tests.fakes import GIB, smi

NAMES = [ours for ours, _theirs in FIELDS]
ROW = {
    "index": "0", "name": "NVIDIA GeForce RTX 3090", "uuid": "GPU-1", "pci_bus_id": "00000000:01:00.0", "driver_version": "560.35", "total": "24576", "reserved": "318", "used": "1024",
    "free": "23234", "temperature_c": "61", "memory_temperature_c": "N/A", "power_draw_w": "210.50", "power_limit_w": "350.00", "power_enforced_w": "350.00", "power_default_w": "350.00",
    "power_min_w": "100.00", "power_max_w": "366.00", "utilisation_percent": "40", "fan_percent": "45", "clock_sm_mhz": "1700", "clock_memory_mhz": "9501", "reasons": "0x0000000000000004",
    "ecc_uncorrected": "[N/A]", "mig": "[N/A]", "persistence": "Enabled", "compute_capability": "8.6",
}  # fmt: skip

SPELLINGS = [
    ("[N/A]", "not_supported"), ("N/A", "not_supported"), ("[Not Supported]", "not_supported"), ("Not Supported", "not_supported"), ("[Unknown Error]", "failed"), ("Unknown Error", "failed"),
    ("ERR!", "failed"), ("[GPU is lost]", "gone"), ("[GPU requires reset]", "failed"), ("[Insufficient Permissions]", "denied"), ("[Unknown]", "failed"), ("", "not_supported"),
    ("[Not Found]", "not_supported"), ("-", "not_supported"), ("[Not Available]", "not_supported"), ("Insufficient Permissions", "denied"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), SPELLINGS)
def test_every_spelling_of_unknown(text, reason) -> None:
    """Each is missing with its own reason, and never a number."""
    for value in (unknown(text), number(text)):
        assert isinstance(value, Missing)
        assert value.reason == reason


NUMBERS = [
    ("45", 45.0),
    ("45.30", 45.3),
    ("45,30", 45.3),
    ("1.234,5", 1234.5),
    ("1,234.5", 1234.5),
    ("350.00 W", 350.0),
    ("40 %", 40.0),
    ("0", 0.0),
    ("1\u00a0234,5", 1234.5),
    ("-3", -3.0),
]


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_numbers_in_any_locale(text, value) -> None:
    """Decimal commas, thousands, units behind the number."""
    assert number(text) == value


def script(cells: dict[str, str]) -> str:
    return f"echo '{', '.join(cells.values())}'\n"


def ask(environment, seconds: float = 30):
    return look(environment=environment, deadline_ns=round(seconds * 1e9), clock=SystemClock())


def test_a_healthy_card(tmp_path) -> None:
    """Every cell with its unit; MiB become bytes; the PCI id has the kernel's form."""
    answer = ask(smi(tmp_path, script(ROW)))
    device = answer.devices[0]
    assert answer.outcome == "answered"
    assert (device.id, device.pci_bus_id, device.memory.total_bytes, device.memory.free_bytes) == ("cuda:0", "0000:01:00.0", 24 * GIB, 23234 << 20)
    assert (device.temperature_c, device.power_draw_w, device.power_max_w, device.clock_sm_mhz, device.persistence) == (61.0, 210.5, 366.0, 1700, True)
    assert (device.memory_temperature_c.reason, device.ecc_uncorrected.reason, device.mig.reason) == ("not_supported",) * 3
    assert device.sources == ("nvidia-smi",)


def test_localised_decimals_do_not_shift_columns(tmp_path) -> None:
    """`210,50` is one cell."""
    device = ask(smi(tmp_path, script({**ROW, "power_draw_w": "210,50", "power_limit_w": "350,00"}))).devices[0]
    assert (device.power_draw_w, device.power_limit_w, device.power_enforced_w) == (210.5, 350.0, 350.0)


@pytest.mark.parametrize("bad", NAMES)
def test_one_bad_cell_costs_one_cell(bad) -> None:
    """Whichever column is unknown, the row and all other columns stand."""
    row = {**ROW, bad: "[Unknown Error]"}
    device = parse(", ".join(row.values()), tuple(row))[0]
    assert device.memory.total_bytes == 24 * GIB or bad == "total"
    assert device.temperature_c == 61.0 or bad == "temperature_c"
    assert device.id == "cuda:0"


RENAMED = """
case "$1" in *{field}*) echo 'Field "{field}" is not a valid field to query.'; exit 2;; esac
case "$1" in *{other}*) echo '{with_other}';; *) echo '{without}';; esac
"""


def test_a_renamed_field_is_asked_by_its_older_name(tmp_path) -> None:
    """nvidia-smi names the field that it does not know: the older name is asked, and every card stands."""
    without = ", ".join(ROW.values())
    body = RENAMED.format(field="clocks_event_reasons.active", other="clocks_throttle_reasons.active", with_other=without, without="nothing")
    device = ask(smi(tmp_path, body)).devices[0]
    assert (device.temperature_c, device.compute_capability) == (61.0, "8.6")


def test_a_missing_field_costs_one_column(tmp_path) -> None:
    """A field without an older name is left out."""
    without = ", ".join(value for key, value in ROW.items() if key != "reserved")
    body = RENAMED.format(field="memory.reserved", other="memory.reserved", with_other="nothing", without=without)
    device = ask(smi(tmp_path, body)).devices[0]
    assert (device.memory.reserved_bytes.reason, device.memory.total_bytes, device.temperature_c) == ("not_supported", 24 * GIB, 61.0)


@pytest.mark.parametrize("code", sorted(EXITS))
def test_every_exit_code_has_a_reason(tmp_path, code) -> None:
    """nvidia-smi(1): each code becomes a reason and a cause, with what it printed."""
    answer = ask(smi(tmp_path, f"echo 'what it says'; exit {code}\n"))
    assert (answer.outcome, answer.devices) == (EXITS[code][0], ())
    assert EXITS[code][1] in answer.detail
    assert "what it says" in answer.detail


def test_a_hang_and_garbage(tmp_path) -> None:
    """A hang ends at the deadline; output that is no row is no card."""
    clock = SystemClock()
    begun = clock.now_ns()
    assert "did not answer within 0.3 s" in ask(smi(tmp_path, "exec sleep 30\n"), 0.3).detail
    assert clock.now_ns() - begun < 2_000_000_000
    answer = ask(smi(tmp_path, "echo 'No devices were found'\n"))
    assert (answer.outcome, answer.devices) == ("failed", ())
    assert ask({"PATH": str(tmp_path / "none")}).outcome == "absent"
