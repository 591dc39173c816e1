"""A job for the soak: llama.cpp serves SmolLM2 in this process and answers questions over HTTP on loopback until it is told to stop.

It tells the governor of its tokens and steps (brim.client), so that the soak can say whether throughput drifts.
"""

import argparse
import itertools
import json
import os
import sys
import urllib.request

import xllamacpp

from brim import client

QUESTIONS = ("Why is the sky blue?", "Name three rivers.", "What is a prime number?", "Write a haiku about memory.", "How does a heat pump work?")


def main() -> int:
    """Serve and ask until the governor says stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-c", "--ctx", type=int, default=2048)
    parser.add_argument("-np", "--slots", type=int, default=4)
    parser.add_argument("-t", "--threads", type=int, default=1)
    asked = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = asked.model
    params.n_ctx, params.n_parallel = asked.ctx, asked.slots
    params.cpuparams.n_threads = asked.threads
    params.fit_params = False
    params.verbosity = 4
    client.phase("loading")
    server = xllamacpp.Server(params)
    client.phase("serving")
    for step in itertools.count(1):
        client.step(step, answer(server.listening_address, QUESTIONS[step % len(QUESTIONS)]))
        if client.should_stop():
            sys.stderr.flush()
            os._exit(0)
    return 0


def answer(address: str, question: str) -> int:
    """One chat completion; how many tokens it wrote."""
    body = json.dumps({"messages": [{"role": "user", "content": question}], "max_tokens": 64, "temperature": 0.7}).encode()
    request = urllib.request.Request(address + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return int(json.load(reply)["usage"]["completion_tokens"])


if __name__ == "__main__":
    sys.exit(main())
