"""The oracle of the training engine: PyTorch itself, in fake mode, over two whole training steps; it needs torch, transformers and peft, and no memory.

Run: `python tests/evidence/train_oracle.py > tests/golden/train.jsonl`. One line a case: the model's config, the settings, and what PyTorch held in bytes:

- `parameters`, `gradients`, `optimizer`: sums over the live tensors after the second backward;
- `saved`: unique storages that autograd packed in the forward pass, parameters and buffers left out (only without checkpointing, whose own hooks hide it);
- `live_forward`: everything live when the loss is there (second step); `peak_forward`, `peak_backward`, `peak_step`: MemTracker's running peak at the end of each moment.

The device of the fake tensors is `cpu`: attention takes PyTorch's CPU flash kernel (it saves q, k, v, out and the log-sum-exp, as the CUDA kernel does).
"""

import argparse
import gc
import json
import sys
import warnings

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
H, L, V = 1024, 3, 32000

FAMILIES = {
    "llama": {"model_type": "llama", "hidden_size": H, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": V},
    "mistral": {"model_type": "mistral", "hidden_size": H, "intermediate_size": 3584, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": V, "sliding_window": None},
    "qwen2": {"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "hidden_size": H, "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True},
    "gemma": {"model_type": "gemma", "hidden_size": H, "intermediate_size": 4096, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 64000},
    "gemma2": {"model_type": "gemma2", "hidden_size": 1152, "intermediate_size": 4608, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 64000},
    "gemma3": {"model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 64000},
    "phi3": {"model_type": "phi3", "hidden_size": H, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 32064, "pad_token_id": 0},
    "phi": {"model_type": "phi", "hidden_size": H, "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 51200},
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "vocab_size": 50257},
    "gpt_neox": {"model_type": "gpt_neox", "hidden_size": H, "intermediate_size": 4096, "num_attention_heads": 16, "vocab_size": 50304},
    "olmo2": {"model_type": "olmo2", "hidden_size": H, "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 50304},
    "granite": {"model_type": "granite", "hidden_size": H, "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 49155},
    "opt": {"model_type": "opt", "hidden_size": H, "word_embed_proj_dim": H, "ffn_dim": 4096, "num_attention_heads": 16, "vocab_size": 50272},
    "bloom": {"model_type": "bloom", "hidden_size": H, "n_head": 16, "vocab_size": 65024},
    "mixtral": {"model_type": "mixtral", "hidden_size": H, "intermediate_size": 1792, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": V, "num_local_experts": 8, "sliding_window": None},
    "qwen3_moe": {"model_type": "qwen3_moe", "hidden_size": H, "intermediate_size": 3072, "moe_intermediate_size": 768, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": V, "num_experts": 16, "num_experts_per_tok": 4},
}  # fmt: skip

MORE = {
    "starcoder2": {"model_type": "starcoder2", "hidden_size": H, "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 49152, "sliding_window": None},
    "stablelm": {"model_type": "stablelm", "hidden_size": H, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 50304},
    "falcon": {"model_type": "falcon", "hidden_size": H, "num_attention_heads": 16, "vocab_size": 65024, "multi_query": True, "parallel_attn": True, "bias": False},
    "cohere": {"model_type": "cohere", "hidden_size": H, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 64000},
    "olmo": {"model_type": "olmo", "hidden_size": H, "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 50304},
    "olmoe": {"model_type": "olmoe", "hidden_size": H, "intermediate_size": 768, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 50304, "num_experts": 16, "num_experts_per_tok": 4},
    "qwen2_moe": {"model_type": "qwen2_moe", "hidden_size": H, "intermediate_size": 2816, "moe_intermediate_size": 704, "shared_expert_intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": V, "num_experts": 16, "num_experts_per_tok": 4},
    "deepseek_v3": {"model_type": "deepseek_v3", "hidden_size": H, "intermediate_size": 2816, "moe_intermediate_size": 512, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": V, "n_routed_experts": 16, "num_experts_per_tok": 4, "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1, "kv_lora_rank": 256, "q_lora_rank": 384, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64},
    "smollm3": {"model_type": "smollm3", "hidden_size": H, "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 64000, "pad_token_id": 0},
    "gptj": {"model_type": "gptj", "n_embd": H, "n_head": 16, "rotary_dim": 32, "vocab_size": 50400},
    "gpt_bigcode": {"model_type": "gpt_bigcode", "n_embd": H, "n_head": 16, "vocab_size": 49152},
    "glm4": {"model_type": "glm4", "hidden_size": H, "intermediate_size": 3584, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 64000, "pad_token_id": 0},
    "nemotron": {"model_type": "nemotron", "hidden_size": H, "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 64000},
    "helium": {"model_type": "helium", "hidden_size": H, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 64, "vocab_size": 48000},
    "mpt": {"model_type": "mpt", "d_model": H, "n_heads": 16, "vocab_size": 50368},
    "seed_oss": {"model_type": "seed_oss", "hidden_size": H, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 64000},
    "gpt_oss": {"model_type": "gpt_oss", "hidden_size": H, "intermediate_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 64000, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 128},
}  # fmt: skip


def config_of(family, layers=L):
    raw = dict(FAMILIES.get(family) or MORE[family])
    raw["n_layers" if family == "mpt" else "n_layer" if family in ("gpt2", "bloom", "gptj", "gpt_bigcode") else "num_hidden_layers"] = layers
    for key in (
        ("resid_pdrop", "embd_pdrop", "attn_pdrop")
        if family in ("gpt2", "phi", "gptj", "gpt_bigcode")
        else ("hidden_dropout", "attention_dropout")
        if family in ("bloom", "gpt_neox")
        else ("dropout",)
        if family == "opt"
        else ()
    ):
        raw[key] = 0.0
    return raw


def build(raw, dtype, attention):
    kwargs = {key: value for key, value in raw.items() if key != "model_type"}
    config = transformers.AutoConfig.for_model(raw["model_type"], **kwargs)
    config.use_cache = False
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)


def hooks_on_frozen():
    """MemTracker puts gradient hooks on every parameter, frozen ones too, which torch refuses; on a frozen one a hook has nothing to do."""
    for name in ("register_hook", "register_post_accumulate_grad_hook"):
        own = getattr(torch.Tensor, name)
        setattr(torch.Tensor, name, lambda self, hook, own=own: own(self, hook) if self.requires_grad else _NoHandle())


class _NoHandle:
    def remove(self):
        pass


def lora(model, rank, dtype, autocast_adapter, dropout=0.0, dora=False):
    import peft
    from peft.tuners.tuners_utils import BaseTunerLayer

    # Fake parameters cannot be swapped by `Module.to`, so the adapter is made in its dtype at once and never moved.
    moved = torch.nn.Module.to
    torch.nn.Module.to = lambda self, *_, **__: self
    BaseTunerLayer._move_adapter_to_device_of_base_layer = lambda *_, **__: None
    torch.set_default_dtype(torch.float32 if autocast_adapter else dtype)
    config = peft.LoraConfig(r=rank, target_modules="all-linear", lora_dropout=dropout, use_dora=dora, task_type="CAUSAL_LM")
    try:
        return peft.get_peft_model(model, config, autocast_adapter_dtype=False)
    finally:
        torch.nn.Module.to = moved
        torch.set_default_dtype(torch.float32)


def without_mask(model_type):
    """Let the model run causal without a mask, as a real run does when nothing is padded (a fake mask cannot be looked at)."""
    module = __import__(f"transformers.models.{model_type}.modeling_{model_type}", fromlist=["x"])
    for name in ("create_causal_mask", "create_sliding_window_causal_mask"):
        if hasattr(module, name):
            setattr(module, name, lambda *_, **__: None)


def storages(tensors):
    seen = {}
    for tensor in tensors:
        if tensor is not None:
            storage = tensor.untyped_storage()
            seen[storage._cdata] = storage.nbytes()
    return sum(seen.values())


def total(snapshot):
    return sum(value["Total"] for value in snapshot.values()) if snapshot else 0


def parts(snapshot):
    out = {}
    for value in snapshot.values():
        for key, number in value.items():
            out[getattr(key, "name", str(key))] = out.get(getattr(key, "name", str(key)), 0) + number
    return out


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-5, foreach=False, fused=False),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=1e-5, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-5, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-5, foreach=False),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=1e-5, momentum=0.9, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-5, foreach=False),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-5, foreach=False),
}


def measure(case):
    """One case, in fake mode; returns the case with its figures."""
    dtype = {"fp32": torch.float32, "bf16-autocast": torch.float32, "bf16": torch.bfloat16}[case["precision"]]
    if case.get("mask") == "none":
        without_mask(case["config"]["model_type"].removesuffix("_text"))
    with FakeTensorMode():
        model = build(case["config"], torch.bfloat16 if case.get("base") == "bf16" else dtype, case["attention"])
        if case["method"] in ("lora", "dora"):
            model = lora(model, case["rank"], dtype, case.get("adapter") == "fp32", case.get("dropout", 0.0), case["method"] == "dora")
        if case["method"] == "freeze":
            model.requires_grad_(False)
            for layer in model.model.layers[-case["trainable_layers"] :]:
                layer.requires_grad_(True)
        model.train()
        if case["checkpointing"] == "full":
            if case["method"] in ("lora", "dora"):
                model.enable_input_require_grads()
            model.gradient_checkpointing_enable({"use_reentrant": False})
        trainable = [p for p in model.parameters() if p.requires_grad]
        optimizer = OPTIMIZERS[case["optimizer"]](trainable)
        ids = torch.zeros((case["batch"], case["seq"]), dtype=torch.int64)
        owned = {t.untyped_storage()._cdata for t in [*model.parameters(), *model.buffers(), ids]}
        packed = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage._cdata not in owned:
                packed[storage._cdata] = storage.nbytes()
            return tensor

        def forward():
            auto = case["precision"] == "bf16-autocast"
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=auto):
                return model(input_ids=ids, labels=ids).loss

        forward().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        if case["checkpointing"] == "none":
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                loss = forward()
            del loss
        for _ in range(case.get("accumulation", 1) - 1):  # gradients of earlier micro-batches stand
            forward().backward()
        gc.collect()
        tracker = MemTracker()
        tracker.track_external(model, optimizer, ids)
        out = dict(case)
        with tracker:
            loss = forward()
            out["live_forward"] = total(tracker.get_tracker_snapshot("current"))
            out["peak_forward"] = total(tracker.get_tracker_snapshot("peak"))
            loss.backward()
            out["peak_backward"] = total(tracker.get_tracker_snapshot("peak"))
            out["gradients"] = storages([p.grad for p in trainable])
            optimizer.step()
            out["peak_step"] = total(tracker.get_tracker_snapshot("peak"))
            out["peak_parts"] = parts(tracker.get_tracker_snapshot("peak"))
        out["parameters"] = storages(model.parameters())
        out["trainable"] = sum(p.numel() for p in trainable)
        out["buffers"] = storages(model.buffers())
        out["optimizer_state"] = storages([v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)])
        if case["checkpointing"] == "none":
            out["saved"] = sum(packed.values())
        return out


EXPERTS = ("mixtral", "qwen3_moe", "olmoe", "qwen2_moe", "deepseek_v3", "gpt_oss")
EAGER_ONLY = ("gemma2", "bloom", "mpt", "gpt_oss")
BASE = {
    "method": "full",
    "rank": 0,
    "checkpointing": "none",
    "precision": "bf16",
    "batch": 2,
    "seq": 512,
    "optimizer": "adamw",
    "attention": "sdpa",
    "mask": "made",
}


def case_of(family, layers=L, **changes):
    case = {"family": family, "config": config_of(family, layers), **BASE, **changes}
    if family in EAGER_ONLY:
        case["attention"] = "eager"
    return case


def cases():
    """The grid (17 families × method × checkpointing × precision × two lengths), then optimisers, eager attention, no mask and realistic widths."""
    for family in FAMILIES:
        for method, rank in (("full", 0), ("lora", 16)):
            for checkpointing in ("none", "full"):
                for precision in ("fp32", "bf16", "bf16-autocast"):
                    if family in EXPERTS and precision != "bf16":
                        continue  # torch's fake grouped matrix product takes bf16 only
                    base = "bf16" if method == "lora" and precision == "bf16-autocast" else None
                    for seq in (256, 1024):
                        yield case_of(
                            family,
                            method=method,
                            rank=rank,
                            checkpointing=checkpointing,
                            precision=precision,
                            base=base,
                            adapter="fp32" if base else None,
                            seq=seq,
                        )
    for optimizer in OPTIMIZERS:
        yield case_of("llama", checkpointing="full", batch=1, seq=64, optimizer=optimizer)
    for family in ("llama", "gpt2", "qwen3", "phi"):
        for checkpointing in ("none", "full"):
            yield case_of(family, checkpointing=checkpointing, attention="eager")
    yield case_of("llama", layers=8, checkpointing="full", batch=4, seq=4096)
    yield case_of("llama", layers=8, batch=1, seq=2048, precision="bf16-autocast")
    for family in ("llama", "qwen2", "qwen3", "mistral"):
        for checkpointing in ("none", "full"):
            yield case_of(family, checkpointing=checkpointing, mask="none")
    for checkpointing in ("none", "full"):
        dropping = case_of("gpt2", checkpointing=checkpointing, precision="fp32")
        dropping["config"] |= {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
        yield {**dropping, "model_dropout": True}
        yield case_of("llama", checkpointing=checkpointing, method="lora", rank=16, dropout=0.1)
        yield case_of("llama", checkpointing=checkpointing, method="dora", rank=16)
        yield case_of("llama", checkpointing=checkpointing, method="freeze", trainable_layers=1)
        for family in ("llama", "qwen2"):
            for precision in ("bf16", "bf16-autocast"):
                yield case_of(family, checkpointing=checkpointing, accumulation=3, precision=precision)
    for family in MORE:
        for method, rank in (("full", 0), ("lora", 16)):
            for checkpointing in ("none", "full"):
                for precision in ("bf16",) if family in EXPERTS else ("bf16", "fp32"):
                    yield case_of(family, method=method, rank=rank, checkpointing=checkpointing, precision=precision)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", nargs="*")
    parser.add_argument("--method", default="")
    parser.add_argument("--more", action="store_true", help="only the architectures behind the grid")
    parser.add_argument("--limit", type=int, default=0)
    arguments = parser.parse_args()
    hooks_on_frozen()
    done = 0
    for case in cases():
        if (
            arguments.more
            and case["family"] not in MORE
            and not {"dropout", "accumulation", "trainable_layers", "model_dropout"} & set(case)
            and case["method"] != "dora"
        ):
            continue
        if (arguments.family and case["family"] not in arguments.family) or (arguments.method and case["method"] != arguments.method):
            continue
        try:
            row = measure(case)
        except Exception as error:
            row = {**case, "error": f"{type(error).__name__}: {str(error)[:300]}"}
        row["versions"] = f"torch {torch.__version__}, transformers {transformers.__version__}"
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        done += 1
        if arguments.limit and done >= arguments.limit:
            break


if __name__ == "__main__":
    main()
