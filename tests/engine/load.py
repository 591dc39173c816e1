"""Loads a model with xllamacpp in a process of its own, prints the engine's log, and leaves before anything is computed. `load.py MODEL JSON`."""

import json
import os
import sys

import xllamacpp


def main() -> None:
    """Load, and leave at once."""
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    asked = json.loads(sys.argv[2])
    params.n_ctx, params.n_parallel = asked["ctx"], asked["slots"]
    params.n_batch, params.n_ubatch = asked.get("batch", 2048), asked.get("ubatch", 512)
    if asked.get("kind", "f16") != "f16":
        params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{asked['kind'].upper()}")
    params.kv_unified = bool(asked.get("unified", False))
    params.swa_full = bool(asked.get("swa_full", False))
    params.no_extra_bufts = not asked.get("repack")  # weights stay in the mapped file: repacked copies would have to be read and held
    params.warmup = False
    params.fit_params = False
    params.verbosity = 4
    xllamacpp.Server(params)
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
