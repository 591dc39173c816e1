"""Writes tests/golden/llamacpp_reserved_2.json.gz: what libllama itself reserves on the CPU for made-up small shapes of architectures. Run: `python -m tests.evidence.llamacpp_made_up PROGRAM [NAME …]`.

PROGRAM is `llamacpp_reserve.cpp` built beside a libllama b11434. With names, only those models are made anew; the others stay as they are in the file.
"""

import gzip
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.gguf_bytes import write_sparse

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "llamacpp_reserved_2.json.gz"
BUILD = 11434
# context, slots, unified, micro-batch, flash attention, K and V types, rows of logits (0: all), embeddings
RUNS = (
    (2048, 1, 0, 512, 1, "f16", "f16", 0, 0),
    (2048, 1, 0, 512, 0, "f16", "f16", 0, 0),
    (4096, 4, 0, 512, 1, "q8_0", "q8_0", 0, 0),
    (4096, 4, 1, 256, 1, "f16", "f16", 4, 0),
    (4096, 2, 0, 512, 0, "q8_0", "f16", 2, 0),
    (1024, 1, 0, 64, 1, "f16", "f16", 0, 0),
    (6144, 3, 0, 192, 1, "q4_0", "q5_1", 3, 0),
    (16384, 2, 1, 1024, 1, "bf16", "f16", 0, 0),
    (5000, 3, 0, 100, 1, "f16", "f16", 0, 0),  # slots that do not divide the micro-batch
    (6000, 5, 1, 333, 0, "q8_0", "f32", 5, 0),
)
CACHELESS = (
    (2048, 1, 0, 512, 1, "f16", "f16", 0, 0),
    (2048, 1, 0, 512, 0, "f16", "f16", 0, 1),
    (4096, 4, 0, 512, 1, "f16", "f16", 0, 1),
    (4096, 4, 1, 256, 1, "f16", "f16", 0, 0),
    (1024, 2, 0, 64, 0, "f16", "f16", 0, 0),
    (2048, 1, 0, 512, 0, "f16", "f16", 4, 0),
)
_BASE = {
    "vocab_size": 5056, "context_length": 8192, "embedding_length": 1024, "block_count": 6, "feed_forward_length": 2816, "attention.head_count": 16, "attention.head_count_kv": 4,
    "attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 64,
}  # fmt: skip
_EXPERTS = {"expert_count": 16, "expert_used_count": 4, "expert_feed_forward_length": 512}
_MAMBA = {"ssm.conv_kernel": 4, "ssm.inner_size": 2048, "ssm.state_size": 64, "ssm.time_step_rank": 32, "ssm.group_count": 0}
_RWKV = {"attention.head_count": 0, "attention.head_count_kv": None, "wkv.head_size": 64, "feed_forward_length": 3584}
_LORA = {"attention.decay_lora_rank": 64, "attention.iclr_lora_rank": 64, "attention.value_residual_mix_lora_rank": 32, "attention.gate_lora_rank": 128}
_MIX = {"time_mix_extra_dim": 32, "time_decay_extra_dim": 64}
_T5 = {"attention.head_count_kv": 16, "attention.key_length": 64, "attention.value_length": 64, "attention.relative_buckets_count": 32, "context_length": 512}

_ONE_STREAM = tuple(run for run in RUNS if run[1] == 1 or run[2])
_FIRST_BIAS = r"blk\.[1-9]\d*\.(attn_rel_b|cross_attn_rel_b)|\.cross_attn_rel_b|\.(scale|input_scale|bias)$"

# name → architecture, what differs from the base, and more: `runs`; `without`: a pattern of tensors that the file lacks (else the model has every optional one); `resized`: other extents
MODELS = {
    "arctic": ("arctic", {"expert_count": 16, "expert_used_count": 2}),
    "grovemoe": ("grovemoe", {**_EXPERTS, "expert_chunk_feed_forward_length": 128, "expert_group_scale": 0.05, "experts_per_group": 2}),
    "grovemoe-few": ("grovemoe", {**_EXPERTS, "expert_group_scale": 0.05, "experts_per_group": 4, "attention.key_length": 128, "attention.value_length": 128, "rope.dimension_count": 128}),
    "plamo2": ("plamo2", {**_MAMBA, "attention.head_count": [0, 16] * 3, "attention.head_count_kv": [0, 4] * 3, "attention.key_length": 64, "attention.value_length": 64, "rope.dimension_count": 64}),
    "plamo3": ("plamo3", {"attention.key_length": 128, "attention.value_length": 128, "rope.dimension_count": 128}),
    "plamo3-window": ("plamo3", {"attention.sliding_window": 512, "block_count": 10}),
    "llada": ("llada", {}),
    "llada-moe": ("llada-moe", {**_EXPERTS}),
    "dream": ("dream", {}),
    "rnd1": ("rnd1", {**_EXPERTS, "attention.key_length": 128, "attention.value_length": 128, "rope.dimension_count": 128}),
    "rwkv6": ("rwkv6", {**_RWKV, **_MIX, "rescale_every_n_layers": 6}),
    "rwkv6-rescaled": ("rwkv6", {**_RWKV, **_MIX, "rescale_every_n_layers": 2}),
    "rwkv6qwen2": ("rwkv6qwen2", {**_RWKV, **_MIX, "token_shift_count": 1, "attention.head_count": 16, "attention.head_count_kv": 4}, {"without": r"time_mix_first|output_norm.bias|\.(scale|input_scale)$"}),
    "rwkv6qwen2-even": ("rwkv6qwen2", {**_RWKV, **_MIX, "token_shift_count": 1}, {"without": r"time_mix_first|output_norm.bias|\.(scale|input_scale)$"}),
    "arwkv7": ("arwkv7", {**_RWKV, **_LORA, "token_shift_count": 1}),
    "arwkv7-ungated": ("arwkv7", {**_RWKV, **_LORA, "token_shift_count": 1}, {"without": r"time_mix_(g[12]|ln)\.|\.(scale|input_scale)$", "resized": {"lerp_fused": [1024, 1, 1, 5]}}),
    "rwkv6-parts": ("rwkv6", {**_RWKV, **_MIX}, {"without": r"lerp_fused|\.(scale|input_scale)$|time_mix_(key|value|receptance)\.bias"}),
    "t5": ("t5", _T5, {"runs": _ONE_STREAM}),
    "t5-relu": ("t5", {**_T5, "context_length": 2048, "decoder_block_count": 4}, {"runs": _ONE_STREAM, "without": _FIRST_BIAS + r"|ffn_gate\.|^output\."}),
    "t5-narrow": ("t5", {**_T5, "attention.key_length": 32, "attention.value_length": 32}, {"runs": _ONE_STREAM, "without": _FIRST_BIAS}),
    "t5encoder": ("t5encoder", _T5),
    "t5encoder-relu": ("t5encoder", _T5, {"without": _FIRST_BIAS + r"|ffn_gate\.|^output\."}),
    "jais2": ("jais2", {"attention.head_count_kv": 16}),
    "maple": ("maple", {**_EXPERTS, "attention.sliding_window": 256, "attention.sliding_window_pattern": [True, True, False] * 2, "swiglu_clamp_exp": 7.0}),
    "maple-free": ("maple", {**_EXPERTS, "attention.sliding_window": 128, "attention.sliding_window_pattern": [True, False] * 3, "swiglu_clamp_exp": 0.0}),
    "cohere2moe": ("cohere2moe", {**_EXPERTS, "attention.sliding_window": 512, "leading_dense_block_count": 1, "logit_scale": 0.0625, "expert_shared_count": 1, "block_count": 8, "attention.layer_norm_rms_epsilon": None}),
    "cohere2moe-rms": ("cohere2moe", {**_EXPERTS, "attention.sliding_window": 512, "leading_dense_block_count": 2, "logit_scale": 0.0625, "expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_gating_func": 1}),
    "muse-glimmer": ("muse-glimmer", {"attention.sliding_window": 512, "logit_scale": 0.25, "final_logit_softcapping": 30.0, "block_count": 8}),
    "muse-glimmer-uncapped": ("muse-glimmer", {"attention.sliding_window": 512, "logit_scale": 0.25}),
    "laguna": ("laguna", {**_EXPERTS, "leading_dense_block_count": 1, "attention.sliding_window": 512, "attention.head_count": [12, 16, 16, 16, 12, 16], "attention.key_length": 64, "attention.value_length": 64, "expert_weights_norm": True, "expert_weights_scale": 2.5}),
    "laguna-full": ("laguna", {**_EXPERTS, "leading_dense_block_count": 2, "expert_gating_func": 2, "expert_shared_feed_forward_length": 1024}),
    "spark2_5": ("spark2_5", {"attention.sliding_window": 512, "attention.sliding_window_pattern": [True, True, True, False, True, False]}),
    "deepseek2-ocr": ("deepseek2-ocr", {**_EXPERTS, "attention.head_count_kv": 16, "leading_dense_block_count": 1, "expert_shared_count": 2}),
    "llama-embed": ("llama-embed", {"attention.causal": False}, {"runs": CACHELESS}),
    "llama-embed-causal": ("llama-embed", {}),
    "chameleon": ("chameleon", {"vocab_size": 16384}),
    "chameleon-swin": ("chameleon", {"vocab_size": 16384, "swin_norm": True}),
    "talkie": ("talkie", {"logit_scale": 0.5}),
    "cogvlm": ("cogvlm", {"attention.head_count_kv": 16}),
    "hrm_text": ("hrm_text", {"block_count": 12, "hrm.layers_per_stack": 2, "hrm.h_cycles": 2, "hrm.l_cycles": 2}),
    "hrm_text-wide": ("hrm_text", {"block_count": 8, "hrm.layers_per_stack": 4, "hrm.h_cycles": 1, "hrm.l_cycles": 1, "embedding_scale": 2.0}),
    "minimax-01": ("minimax-01", {"expert_count": 8, "expert_used_count": 2, "residual_scale": 3.5, "block_count": 9, "full_attention_interval": 4, "attention.key_length": 64, "attention.value_length": 64}, {"runs": tuple(run for run in RUNS if run[3] % run[1] == 0)}),
}  # fmt: skip
_NO_CACHE = frozenset(("llada", "llada-moe", "dream", "rnd1", "t5encoder", "clef"))


def lines_of(metadata: dict) -> "list[str]":
    """The program's input lines for a header."""
    lines = []
    for key, value in metadata.items():
        if isinstance(value, list):
            kind = "F" if isinstance(value[0], float) else "B" if isinstance(value[0], bool) else "U"
            lines.append(f"{kind} {key} {','.join(str(int(item) if isinstance(item, bool) else item) for item in value)}")
        elif isinstance(value, bool):
            lines.append(f"b {key} {int(value)}")
        elif isinstance(value, str):
            lines.append(f"s {key} {value}")
        else:
            lines.append(f"{'f' if isinstance(value, float) else 'u'} {key} {value}")
    return lines


def made(program: str, architecture: str, differs: dict, more: "dict | None" = None) -> dict:
    """Metadata, tensors and reserved bytes of one model."""
    more = more or {}
    keys = {f"{architecture}.{key}": value for key, value in {**_BASE, **differs}.items() if value is not None}
    metadata = {"general.architecture": architecture, "tokenizer.ggml.model": "none", **keys}
    runs = more.get("runs") or (CACHELESS if architecture in _NO_CACHE else RUNS)
    lines = lines_of(metadata)
    asked = ["run " + " ".join(map(str, run)) for run in runs]
    without = more.get("without")
    if without is None:
        return _read(architecture, metadata, runs, _told(program, [*lines, *asked]))
    every = _read(architecture, metadata, (), _told(program, [*lines, asked[0]], tensors_only=True))["tensors"]
    kept = [(name, dims, kind) for name, dims, kind in {entry[0]: entry for entry in every}.values() if not re.search(without, name)]
    for pattern, dims in more.get("resized", {}).items():
        kept = [(name, dims if re.search(pattern, name) else old, kind) for name, old, kind in kept]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/made.gguf"
        write_sparse(path, metadata, kept)
        return _read(architecture, metadata, runs, _told(program, [f"file {path}", *asked]))


def _told(program: str, lines: "list[str]", *, tensors_only: bool = False) -> "list[str]":
    """What the program prints for these lines."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        done = subprocess.run([program, file.name], capture_output=True, text=True, check=False)
    if done.returncode and not tensors_only:
        raise SystemExit(f"{done.returncode}\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
    return [line for line in done.stdout.splitlines() if not tensors_only or line.startswith("tensor ")]


def _read(architecture: str, metadata: dict, runs: "tuple[tuple[object, ...], ...]", printed: "list[str]") -> dict:
    """A golden entry from the program's lines."""
    model: dict = {"metadata": metadata, "tensors": [], "reserved": [], "memory": [], "nodes": [], "runs": [list(run) for run in runs]}
    for line in printed:
        words = line.split()
        if words[0] == "tensor":
            dims = [int(word) for word in words[3:]]
            while len(dims) > 1 and dims[-1] == 1:
                dims.pop()
            model["tensors"].append([words[1], dims, words[2].upper()])
        elif words[:2] == ["run", "FAIL"]:
            for key in ("reserved", "memory", "nodes"):
                model[key].append(None)
        elif words[0] == "run":
            model["reserved"].append(int(words[1]))
            model["memory"].append(int(words[2]))
            model["nodes"].append(int(words[3]) if len(words) > 3 else None)
    if len(model["reserved"]) != len(runs):
        raise SystemExit(f"{architecture}: {len(model['reserved'])} answers to {len(runs)} runs")
    return model


def main() -> None:
    program, *names = sys.argv[1:]
    found = json.loads(gzip.decompress(GOLDEN.read_bytes())) if GOLDEN.exists() else {"build": BUILD, "runs": [list(run) for run in RUNS], "models": {}}
    for name in names or MODELS:
        found["models"][name] = made(program, *MODELS[name])
        assert found["models"][name]["tensors"], name
        print(name, found["models"][name]["reserved"])
    found["models"] = dict(sorted((name, model) for name, model in found["models"].items() if name in MODELS))
    GOLDEN.write_bytes(gzip.compress(json.dumps(found, separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
