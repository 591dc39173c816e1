"""A published config as the GGUF that llama.cpp's converter would write of it: keys and tensors, nothing written; for pricing a model before converting it.

Guarantees: names are those of gguf-py's own map (tests hold every family against it); a family or a tensor that is not in the tables below gives
`Missing`, never a partial file. Matrices keep the config's number format, vectors and norms are F32 (llama.cpp b11434, conversion/base.py).
Not covered: what a converter computes (rotary factors of long-context variants), tokenizers, towers (they become a projector file of their own).
"""

from brim.facts.dtypes import ggml_tensor_bytes
from brim.facts.model import Attention, Shape, Tensor
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.facts.model import Weight

# family → llama.cpp's architecture (conversion/*.py: ModelBase.register and model_arch)
ARCHITECTURES = {
    "cohere2": "cohere2",
    "ernie4_5": "ernie4_5",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "exaone4": "exaone4",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "gemma3_text": "gemma3",
    "gpt_oss": "gpt-oss",
    "granite": "granite",
    "kimi_k2": "deepseek2",
    "jamba": "jamba",
    "lfm2": "lfm2",
    "llama": "llama",
    "mamba": "mamba",
    "mistral": "llama",
    "mixtral": "llama",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "olmoe": "olmoe",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen2_moe": "qwen2moe",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "seed_oss": "seed_oss",
    "smollm3": "smollm3",
}
_SANDWICH = frozenset(("gemma2", "gemma3"))
_AFTER = frozenset(("olmo2", "exaone4", "seed_oss", "gpt-oss", "qwen3next"))
_HEADLESS = frozenset(("gemma", "gemma2", "cohere2"))  # architectures whose head is always the embedding
_PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.experts.{}.gate_proj": "ffn_gate_exps",
    "mlp.experts.{}.up_proj": "ffn_up_exps",
    "mlp.experts.{}.down_proj": "ffn_down_exps",
    "block_sparse_moe.experts.{}.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.{}.w3": "ffn_up_exps",
    "block_sparse_moe.experts.{}.w2": "ffn_down_exps",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "mlp.router": "ffn_gate_inp",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "norm": "attn_norm",
    "pre_ff_layernorm": "ffn_norm",
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
    "feed_forward.router": "ffn_gate_inp",
    "feed_forward.experts.{}.gate_proj": "ffn_gate_exps",
    "feed_forward.experts.{}.up_proj": "ffn_up_exps",
    "feed_forward.experts.{}.down_proj": "ffn_down_exps",
    **{
        f"{block}.{name}": part
        for block in ("mamba", "mixer")
        for name, part in (
            ("in_proj", "ssm_in"),
            ("conv1d", "ssm_conv1d"),
            ("x_proj", "ssm_x"),
            ("dt_proj", "ssm_dt"),
            ("out_proj", "ssm_out"),
            ("dt_layernorm", "ssm_dt_norm"),
            ("b_layernorm", "ssm_b_norm"),
            ("c_layernorm", "ssm_c_norm"),
        )
    },
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_FORMATS = ("BF16", "F16", "F32")


def as_gguf(shape: Shape, weights: "tuple[Weight, ...]", dtype: str = "BF16") -> "tuple[dict[str, Any], tuple[Tensor, ...]] | Missing":
    """(keys, tensors) of the GGUF of a shape read from a config; `dtype` (BF16, F16, F32) is what matrices are kept in."""
    arch = ARCHITECTURES.get(shape.architecture)
    if arch is None or dtype not in _FORMATS:
        return Missing(reason="not_supported", detail=f"the GGUF of a {shape.architecture} is not known to brim")
    packed = shape.quantisation.method if shape.quantisation is not None else ""
    tensors: list[Tensor] = []
    offset = 0
    for row in weights:
        if row.tower != "text":
            continue
        made = _pieces(row, shape, arch)
        if not made:
            return Missing(reason="not_supported", detail=f"{row.name}: its name in a GGUF is not known to brim")
        for name, dims in made:
            plain = len(dims) == 1 or name.endswith((".bias", "_norm.weight", "ffn_gate_inp.weight", "ssm_conv1d.weight", "shortconv.conv.weight", "ssm_a"))
            kind = "F32" if plain else "MXFP4" if packed == "mxfp4" and "_exps." in name else dtype
            stored, count = ggml_tensor_bytes(kind, dims), 1
            for size in dims:
                count *= size
            tensors.append(Tensor(name=name, dims=dims, dtype=kind, offset=offset, stored_bytes=stored, elements=count))
            offset += -(-stored // 32) * 32
    return keys_of(shape, arch, tensors), tuple(tensors)


def _pieces(row: "Weight", shape: Shape, arch: str) -> "list[tuple[str, tuple[int, ...]]]":
    """(name, dims) of what a published tensor becomes: mostly one, two where the converter takes it apart, none where it is not known."""
    _stem, _, rest = row.name.partition(".layers.")
    number, _, rest = rest.partition(".")
    at = f"blk.{number}."
    if rest == "self_attn.kv_b_proj.weight":  # conversion/deepseek.py: keys transposed, values apart, both by head
        a = next(layer.attention for layer in shape.layers if layer.attention is not None)
        keys = (a.key_dim - a.rope_dim, a.latent_rank, a.heads)
        return [(at + "attn_k_b.weight", keys), (at + "attn_v_b.weight", (a.latent_rank, a.value_dim, a.heads))]
    if rest == "self_attn.sinks":
        return [(at + "attn_sinks.weight", row.dims)]
    if rest.endswith((".A_log", ".D")):  # conversion/mamba.py: A is stored as -exp(A_log)
        return [(at + ("ssm_a" if rest.endswith(".A_log") else "ssm_d"), row.dims)]
    if rest == "linear_attn.dt_bias":
        return [(at + "ssm_dt.bias", row.dims)]
    if rest == "linear_attn.in_proj_qkvz.weight":  # conversion/qwen3next.py: taken apart into query, key and value, and the gate
        state = next(layer.state for layer in shape.layers if layer.state is not None)
        return [(at + "attn_qkv.weight", (row.dims[0], row.dims[1] - state.inner_width)), (at + "attn_gate.weight", (row.dims[0], state.inner_width))]
    if row.op == "conv" and rest.endswith(".weight"):  # the axis of one is dropped
        name = gguf_name(row.name, arch)
        return [(name, (row.dims[0], *row.dims[2:]))] if name else []
    if rest.endswith("e_score_correction_bias"):
        return [(at + "exp_probs_b.bias", row.dims)]
    if rest.startswith("mlp.experts.") and row.op == "experts":  # conversion/gpt_oss.py: gate and up interleaved, inputs last
        part, bias = rest[12:].removesuffix("_bias"), rest.endswith("_bias")
        ending, count = (".bias" if bias else ".weight"), row.dims[-1]
        out, inputs = row.dims[0], row.dims[1:-1]
        if part == "down_proj":
            return [(at + "ffn_down_exps" + ending, (*inputs, out, count))]
        return [(f"{at}ffn_{half}_exps{ending}", (*inputs, out // 2, count)) for half in ("gate", "up")]
    name = gguf_name(row.name, arch)
    if not name:
        return []
    if name.endswith("_inp_shexp.weight"):
        return [(name, row.dims[:1])]
    return [(name, (*row.dims, row.copies) if "_exps." in name else row.dims)]


def gguf_name(name: str, arch: str) -> str:
    """A published tensor's name in a GGUF, '' where it is not known."""
    stem, _, ending = name.rpartition(".")
    tops = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "embeddings": "token_embd", "norm_f": "output_norm"}
    tops |= {"embedding_norm": "token_embd_norm", "final_layernorm": "output_norm"}
    top = tops.get(stem.rpartition(".")[2])
    if top == "output" and arch in _HEADLESS:
        return ""
    if ".layers." not in stem:
        return f"{top}.{ending}" if top else ""
    number, _, rest = stem.partition(".layers.")[2].partition(".")
    part = _PARTS.get(rest, "")
    if rest == "post_attention_layernorm":
        part = "post_attention_norm" if arch in _SANDWICH or arch in _AFTER else "ffn_norm"
    return f"blk.{number}.{part}.{ending}" if part else ""


_NONE = Attention(kind="full", heads=0, kv_heads=0, key_dim=0, value_dim=0)


def _state_keys(shape: Shape, arch: str, tensors: "list[Tensor]") -> "dict[str, Any]":
    """The keys of states, and of the layers without attention: heads by layer, or the period that llama.cpp takes by itself."""
    states = [layer.state for layer in shape.layers if layer.state is not None]
    if not states:
        return {}
    keys: dict[str, Any] = {}
    if arch in ("jamba", "lfm2"):
        keys["attention.head_count_kv"] = [layer.attention.kv_heads if layer.attention is not None else 0 for layer in shape.layers]
    kept = states[0]
    if kept.kind == "short_conv":
        return {**keys, "shortconv.l_cache": kept.conv_elements // shape.width + 1}
    conv = next(tensor.dims for tensor in tensors if tensor.name.endswith("ssm_conv1d.weight"))
    keys |= {"ssm.conv_kernel": conv[0], "ssm.inner_size": kept.inner_width}
    if kept.kind == "gated_delta_net":  # one state size for keys and values, as llama.cpp has it
        size = kept.inner_width // kept.heads
        return {**keys, "ssm.state_size": size, "ssm.time_step_rank": kept.heads, "ssm.group_count": (conv[1] - kept.inner_width) // (2 * size)}
    rank = next(tensor.dims[0] for tensor in tensors if tensor.name.endswith("ssm_dt.weight"))
    return {**keys, "ssm.state_size": kept.state_elements // kept.inner_width, "ssm.time_step_rank": rank}


def keys_of(shape: Shape, arch: str, tensors: "list[Tensor]") -> "dict[str, Any]":
    """The keys that decide memory, as the converter writes them."""
    attentions = [layer.attention for layer in shape.layers if layer.attention is not None] or [_NONE]
    feeds = [layer.feed_forward for layer in shape.layers if layer.feed_forward is not None]
    first, sparse = attentions[0], [feed for feed in feeds if feed.experts]
    plain = [feed for feed in feeds if not feed.experts]
    keys: dict[str, Any] = {
        "context_length": shape.context_trained if isinstance(shape.context_trained, int) else 0,
        "embedding_length": shape.width,
        "block_count": len(shape.layers),
        "feed_forward_length": (plain or sparse)[0].width if feeds else 0,
        "attention.head_count": first.heads,
        "attention.head_count_kv": first.kv_heads,
        "attention.key_length": first.key_dim,
        "attention.value_length": first.value_dim,
        **_state_keys(shape, arch, tensors),
        "vocab_size": shape.vocabulary,
    }
    if arch == "mamba":
        keys = {key: value for key, value in keys.items() if not key.startswith("attention.") or key == "attention.head_count"}
    if first.kind == "latent":  # cached as one head: the latent and its rotary part (conversion/deepseek.py)
        keys |= {
            "attention.head_count_kv": 1,
            "attention.key_length": first.latent_rank + first.rope_dim,
            "attention.value_length": first.latent_rank,
            "attention.key_length_mla": first.key_dim,
            "attention.value_length_mla": first.value_dim,
            "attention.kv_lora_rank": first.latent_rank,
            "rope.dimension_count": first.rope_dim,
            "leading_dense_block_count": next((index for index, feed in enumerate(feeds) if feed.experts), len(feeds)),
        }
        if first.query_rank:
            keys["attention.q_lora_rank"] = first.query_rank
    if sparse:
        keys |= {"expert_count": sparse[0].experts, "expert_used_count": sparse[0].experts_used}
        if arch != "llama":
            keys["expert_feed_forward_length"] = sparse[0].width
        if sparse[0].shared_width and arch == "deepseek2":
            keys["expert_shared_count"] = sparse[0].shared_width // sparse[0].width
        elif sparse[0].shared_width:
            keys["expert_shared_feed_forward_length"] = sparse[0].shared_width
    windows = {a.window for a in attentions if a.window}
    if windows and arch not in ("llama", "phi3", "qwen2", "qwen3", "qwen2moe", "qwen3moe"):  # those run every layer in full (src/models/*.cpp)
        keys["attention.sliding_window"] = windows.pop()
    return {"general.architecture": arch, **{f"{arch}.{key}": value for key, value in keys.items()}}
