"""Asks llama.cpp itself: finds llama-fit-params on this machine, runs it once within a deadline, and reads the table that it prints; it compares nothing.

Source of the format: tools/fit-params/fit-params.cpp and common/fit.cpp `common_fit_print`, b11434: `DEVICE WEIGHTS CONTEXT COMPUTE`, whole MiB, one line a device.
The program allocates no weights (`no_alloc`), so asking is safe on a small machine.
"""

import os
import shutil
import subprocess

from brim.facts.engine import EngineNumbers, EngineRow
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VARIABLE = "BRIM_FIT_PARAMS"
DEADLINE_S = 60.0


def find(environ: "Mapping[str, str]") -> "tuple[str, ...] | None":
    """The words that start the program: `BRIM_FIT_PARAMS`, `llama-fit-params` on PATH, or the `fit-params` command of `llama`; None where neither is here."""
    named = environ.get(VARIABLE, "").strip()
    if named:
        return (named,)
    path = environ.get("PATH", "")
    alone = shutil.which("llama-fit-params", path=path)
    if alone:
        return (alone,)
    joint = shutil.which("llama", path=path)
    return (joint, "fit-params") if joint else None


def ask(program: "Sequence[str]", words: "Sequence[str]", *, deadline_s: float = DEADLINE_S, environ: "Mapping[str, str] | None" = None) -> EngineNumbers:
    """Run it and read its table. Never raises: what went wrong is the reason of the missing rows."""
    command = (*program, *words, "-fitp", "on")
    environment = dict(os.environ if environ is None else environ)
    build = _build(program, environment)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, check=False, env=environment, errors="replace")
    except OSError as fault:
        return EngineNumbers(program=program[0], command=command, build=build, rows=Missing(reason="failed", detail=f"{program[0]}: {fault.strerror}"))
    except subprocess.TimeoutExpired:
        return EngineNumbers(program=program[0], command=command, build=build, rows=Missing(reason="failed", detail=f"no answer within {deadline_s:.0f} s"))
    rows = read_table(done.stdout)
    if done.returncode != 0 or not rows:
        last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "it printed nothing")
        return EngineNumbers(program=program[0], command=command, build=build, rows=Missing(reason="failed", detail=f"exit {done.returncode}: {last}"))
    return EngineNumbers(program=program[0], command=command, build=build, rows=rows)


def read_table(text: str) -> tuple[EngineRow, ...]:
    """The rows of `-fitp on`; lines of another form are passed over."""
    rows = []
    for line in text.splitlines():
        cells = line.split()
        if len(cells) == 4 and all(cell.isdigit() for cell in cells[1:]):
            rows.append(EngineRow(device=cells[0], weights_mib=int(cells[1]), context_mib=int(cells[2]), compute_mib=int(cells[3])))
    return tuple(rows)


def _build(program: "Sequence[str]", environment: "Mapping[str, str]") -> "int | Missing":
    """The build number that `--version` prints (`version: 11434 (…)`)."""
    try:
        done = subprocess.run([*program, "--version"], capture_output=True, text=True, timeout=10, check=False, env=dict(environment), errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return Missing(reason="failed", detail="--version did not answer")
    for line in (done.stdout + done.stderr).splitlines():
        words = line.replace(":", " ").split()
        if words[:1] == ["version"] and len(words) > 1:
            digits = words[1].removeprefix("b")
            if digits.isdigit() and int(digits) > 0:
                return int(digits)
    return Missing(reason="not_supported", detail="--version names no build")
