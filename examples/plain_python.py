"""The same contract without any library: a job of plain Python that listens, saves and goes on. Run it as `brim run -- python examples/plain_python.py FOLDER`."""

import json
import pathlib
import sys
import time

from brim import client

folder = pathlib.Path(sys.argv[1])
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 300
folder.mkdir(parents=True, exist_ok=True)
client.phase("loading")
total = json.loads(pathlib.Path(client.resume_from()).read_text())["total"] if client.resume_from() else 0
client.phase("training")
for step in range(client.resume_step(0), steps):
    total = (total * 31 + step) % 1_000_003
    time.sleep(0.005)
    if client.step(step) >= client.CHECKPOINT:
        client.phase("saving")
        path = folder / "state.json"
        path.with_suffix(".part").write_text(json.dumps({"step": step, "total": total}))
        path.with_suffix(".part").replace(path)
        client.checkpointed(path, step)
        client.phase("training")
        if client.should_stop():
            sys.exit(0)
print("total", total, flush=True)
