"""The governor report for every kind of case, by the command line and scripted readings; writes docs/evidence/governor-report.md.

Run: python tests/evidence/governor_report.py.
"""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent.parent


def card(index: int = 0, free: object = 23000, heat: object = 45, **more: object) -> dict[str, object]:
    free_bytes = free << 20 if isinstance(free, int) else free
    return {
        "id": f"cuda:{index}", "backend": "cuda", "name": "NVIDIA GeForce RTX 3090", "memory": {"total_bytes": 24576 << 20, "free_bytes": free_bytes},
        "temperature_c": heat, "power_limit_w": 350.0, **more,
    }  # fmt: skip


GONE = {"missing": "failed", "detail": "Unknown Error"}
CASES = (
    ("idle and cool", [card()], ()),
    ("warm", [card(heat=74)], ()),
    ("nearly full", [card(free=8500)], ()),
    ("too hot", [card(heat=82)], ()),
    ("too full", [card(free=6900)], ()),
    ("too full, but a lower minimum is given", [card(free=6900)], ("--min-free-vram", "4")),
    ("hot, but a higher maximum is given", [card(heat=82)], ("--max-temp", "95")),
    ("no card", [], ()),
    ("temperature missing", [card(heat=GONE)], ()),
    ("free memory missing", [card(free=GONE)], ()),
    ("free memory missing, too hot", [card(free=GONE, heat=90)], ()),
    ("power limit missing", [card(power_limit_w=GONE)], ()),
    ("two cards, both well", [card(), card(1)], ()),
    ("two cards, one warm", [card(), card(1, heat=76)], ()),
    ("two cards, one too full", [card(), card(1, free=100)], ()),
    ("two cards, one without temperature", [card(), card(1, heat=GONE)], ()),
)


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "readings.jsonl")
        for name, devices, words in CASES:
            pathlib.Path(script).write_text(json.dumps({"t": 0, "devices": devices}) + "\n")
            command = [sys.executable, "-m", "brim", "governor-report", "--profile", "rtx3090-12b", "--out", folder, "--readings", script, "--json", *words]
            done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True, capture_output=True, text=True)
            document = json.loads(done.stdout)
            each = ", ".join(one["risk_level"] for one in document.get("decisions", ()))
            made = document["decision"]
            rows.append(
                f"| {name} | {made['risk_level']}{f' ({each})' if each else ''} | {made['run_12b_compressed_on_3090_allowed']} | {made['reason']} |".replace(
                    "True", "yes"
                ).replace("False", "no")
            )
    lines = [
        "# The governor report, case by case", "",
        f"Made by `python tests/evidence/governor_report.py` on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}: profile `rtx3090-12b`, scripted readings (no such card is here).", "",
        "| case | level (each) | run allowed | reason |", "|---|---|---|---|", *rows, "",
    ]  # fmt: skip
    (ROOT / "docs" / "evidence" / "governor-report.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
