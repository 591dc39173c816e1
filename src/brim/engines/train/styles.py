"""How the modeling code of each architecture is written, where that decides what autograd keeps: norms, activations, rotary slices, residual order.

Source: transformers 5.24.0, `models/<name>/modeling_<name>.py`, read and checked by the saved tensors of one layer (tests/evidence/train_oracle.py). These are facts about
an architecture's code, never about one model: widths, heads and layers come from the checkpoint.
"""

from brim.values import Record


class Style(Record):
    """`norm`: llama (weight after the cast back), gemma (fp32 to the end), olmo (fp32 product), cohere (a mean taken off, all in fp32), layer (LayerNorm), layer32 (the same without weights, in fp32). `order`: pre, post, sandwich, parallel.

    `activation`: silu and gelu (one kernel, keeps its input), gelu_new (seven kernels in Python), relu (keeps its result). `rope`: full, partial (rotated slice
    joined to the rest), none. `math_single_head`: one key head is handed to SDPA unexpanded, which only its plain kernel takes (in fp32). `router_fp32`: the router is built in fp32 whatever the model is. `scores`: what eager attention keeps: fp32 (softmax upcast and cast back) or native. `cap`: tanh on the scores.
    """

    norm: str = "llama"
    order: str = "pre"
    activation: str = "silu"
    rope: str = "full"
    scores: str = "fp32"
    cap: bool = False
    final_cap: bool = False
    embed_scale: bool = False
    embed_norm: bool = False
    known: bool = True
    math_single_head: bool = False
    router_fp32: bool = False
    eager_only: bool = False
    mask: bool = True


_LLAMA = Style()
_GEMMA = Style(norm="gemma", activation="gelu", embed_scale=True)
STYLES = {
    **dict.fromkeys(
        (
            "llama", "mistral", "ministral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe", "smollm3", "seed_oss", "ernie4_5", "olmoe", "helium", "arcee", "exaone4",
            "gpt_oss",
        ),
        _LLAMA,
    ),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "glm4_moe", "ernie4_5_moe", "dots1"), Style(router_fp32=True)),
    "gpt_bigcode": Style(norm="layer", activation="gelu", rope="none"),
    "codegen": Style(norm="layer", order="parallel", activation="gelu_new", rope="partial"),
    "cohere2": Style(norm="cohere", order="parallel"),
    "granite": Style(embed_scale=True),
    "granitemoe": Style(embed_scale=True),
    "gemma": _GEMMA,
    "gemma2": _GEMMA.replace(order="sandwich", cap=True, final_cap=True, eager_only=True),
    "gemma3": _GEMMA.replace(order="sandwich"),
    "gemma3_text": _GEMMA.replace(order="sandwich"),
    "phi3": Style(rope="partial"),
    "glm": Style(rope="partial"),
    "glm4": Style(rope="partial", order="sandwich"),
    "phi": Style(norm="layer", order="parallel", activation="gelu_new", rope="partial"),
    "gpt2": Style(norm="layer", activation="gelu_new", rope="none", scores="native", embed_scale=True),
    "gpt_neox": Style(norm="layer", order="parallel2", activation="gelu", rope="partial"),
    "stablelm": Style(norm="layer", rope="partial"),
    "olmo": Style(norm="layer32"),
    "olmo2": Style(norm="olmo", order="post"),
    "olmo3": Style(norm="olmo", order="post"),
    "opt": Style(norm="layer", activation="relu", rope="none", scores="fp32", mask=False),
    "bloom": Style(norm="layer", activation="gelu", rope="none", embed_norm=True, eager_only=True),
    "falcon": Style(norm="layer", order="parallel", activation="gelu", math_single_head=True),
    "starcoder2": Style(norm="layer", activation="gelu"),
    "cohere": Style(norm="cohere", order="parallel"),
    "nemotron": Style(norm="layer", activation="relu2", rope="partial"),
    "gptj": Style(norm="layer", order="parallel", activation="gelu_new", rope="partial"),
    "mpt": Style(norm="layer", activation="gelu", rope="none"),
}  # fmt: skip
UNKNOWN = Style(known=False)


def style_of(architecture: str) -> Style:
    """The style of an architecture's code; `known` is False where it had to be assumed (then activations get a wide span)."""
    name = architecture.lower()
    for suffix in ("forcausallm", "model"):
        name = name.removesuffix(suffix)
    found = STYLES.get(name)
    if found is None:
        plain = name.replace("_", "").replace("-", "")
        found = next((style for key, style in STYLES.items() if key.replace("_", "") == plain), None)
    return found or UNKNOWN
