"""A small llama.cpp server for the demonstration: loads MODEL with xllamacpp, answers one question over HTTP on loopback, and ends.

Its log (the engine's own, on stderr) prints every buffer that llama.cpp allocates; `brim run` keeps it and sets it beside the prediction.
"""

import argparse
import json
import os
import sys
import urllib.request

import xllamacpp


def main() -> int:
    """Serve, ask, print the answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-c", "--ctx", type=int, default=2048)
    parser.add_argument("-np", "--slots", type=int, default=1)
    parser.add_argument("--cache-type", default="f16")
    parser.add_argument("--ask", default="In one sentence: why is the sky blue?")
    parser.add_argument("--load-only", action="store_true", help="load the model, print the buffers, answer nothing")
    asked = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = asked.model
    params.n_ctx, params.n_parallel = asked.ctx, asked.slots
    if asked.cache_type != "f16":
        params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{asked.cache_type.upper()}")
    params.warmup = not asked.load_only
    params.fit_params = False
    params.verbosity = 4
    server = xllamacpp.Server(params)
    if asked.load_only:
        # A server that is torn down while its loop is still starting waits for itself for ever (seen with 2026.10.11549): leave without it.
        sys.stderr.flush()
        os._exit(0)
    print(f"served at {server.listening_address}", flush=True)
    print(f"question: {asked.ask}\nanswer:   {answer(server.listening_address, asked.ask)}", flush=True)
    return 0


def answer(address: str, question: str) -> str:
    """One chat completion."""
    body = json.dumps({"messages": [{"role": "user", "content": question}], "max_tokens": 48, "temperature": 0}).encode()
    request = urllib.request.Request(address + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return str(json.load(reply)["choices"][0]["message"]["content"]).strip()


if __name__ == "__main__":
    sys.exit(main())
