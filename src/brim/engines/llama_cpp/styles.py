"""How the plain decoders of llama.cpp differ from each other: one row a architecture; it lays out nothing.

Source: the graph functions of src/models/*.cpp, llama.cpp b11434. What a file's tensors decide (biases, query and key norms, fused projections, shared experts,
position tables, which layers have experts) has no trait.
"""

from brim.engines.llama_cpp.blocks import SIGMOID, SOFTMAX, SOFTMAX_WEIGHT
from brim.values import Record


class Style(Record):
    """How one architecture's decoder differs from llama's.

    `pre`: norms before attention and feed-forward have `weights`, are `bare`, or there is `none`. `embed`: `scale` (one more op), `rows` (scaled by an input), `default` (scaled even
    without the key) or `norm` (a norm without a weight). `rope`: `all`, `none`, `windowed` (sliding layers only), `windows` (sliding layers, all where none slides), `steps` (all but every fourth), `first` (all but the
    first of four), `key` (the header's word), `seven` (only the smaller of two sizes), `leading` (sliding and leading dense layers). `qk_norm`: `before` or `after` the rotation, `flat` over the whole width, `bare` (no weight, after the rotation); `qk_kind`: their kind where it is not `norm`. `q_scale`:
    queries are scaled by an op of their own. `post`: norms behind attention and feed-forward. `ffn_norm`: the name of the norm before the feed-forward. `joins`: where attention
    and feed-forward run side by side, the order in which feed-forward (f), residual (r) and attention (a) are added. `normalise` None and `gating` 0 read the header. `tail`: `hidden` and `normed` keep
    the hidden state alive as an output of its own (before or behind the output norm). `early`: experts are chosen from the layer's raw input. `pinned`: the last norm of a
    layer is kept on its device. `temperature`: queries are scaled by an input: `key` (if the header says so) or `still` (on layers without rotation).
    `norm` may be `header`: a plain norm where the header has no epsilon of the other kind. `tail` may also be `whole` (no rows are picked) or `vector` (no logits). `gate`: the function of the gate
    behind attention. `loose`: the norms behind the branches are not kept on the layer's device. `halved`: experts and shared expert are averaged.
    """

    norm: str = "RMS_NORM"
    act: str = "silu"
    pre: str = "weights"
    embed: str = ""
    rope: str = "all"
    qk_norm: str = ""
    qk_kind: str = ""
    q_scale: bool = False
    post: bool = False
    post_norms: tuple[str, str] = ("post_attention_norm", "post_ffw_norm")
    post_first: bool = False
    pinned: bool = False
    ffn_norm: str = "ffn_norm"
    early: bool = False
    residual_first: bool = False
    joins: str = ""
    halves: bool = False
    soft_cap: bool = False
    final_cap: bool = False
    logit_scale: str = ""
    residual_scale: str = ""
    gating: int = SOFTMAX
    normalise: bool | None = True
    weigh_first: bool = False
    shared_gate: str = ""
    tail: str = ""
    sinks: bool = False
    attention_first: bool = True
    temperature: str = ""
    gate: str = "sigmoid"
    loose: bool = False
    halved: bool = False


_LLAMA = Style()
_GPT = Style(norm="NORM", act="gelu")
_EARLY = Style(qk_norm="before")
_LATE = Style(qk_norm="after")
_GRANITE = Style(rope="key", logit_scale="always", residual_scale="key")

STYLES: dict[str, Style] = {
    **dict.fromkeys(
        (
            "llama",
            "qwen2",
            "exaone",
            "internlm2",
            "xverse",
            "ernie4_5",
            "ernie4_5-moe",
            "llama-embed",
            "pangu-embedded",
            "qwen2vl",
            "qwen",
            "bitnet",
            "plamo",
            "paddleocr",
            "nanbeige",
            "deci",
            "llada",
            "dream",
        ),
        _LLAMA,
    ),
    **dict.fromkeys(("qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "mellum", "rnd1"), _EARLY),
    **dict.fromkeys(("hunyuan-moe", "hunyuan-dense", "hunyuan_vl", "maincoder"), _LATE),
    **dict.fromkeys(("starcoder2", "codeshell"), _GPT),
    **dict.fromkeys(("starcoder", "gpt2", "mpt", "bloom"), _GPT.replace(rope="none")),
    **dict.fromkeys(("granite", "granitemoe"), _GRANITE),
    "minicpm": _GRANITE.replace(rope="all", embed="default", residual_scale="always"),
    **dict.fromkeys(("phi3", "phimoe"), Style(q_scale=True, halves=True, attention_first=False)),
    "phi2": _GPT.replace(q_scale=True, joins="afr"),
    "gemma": Style(act="gelu", embed="scale", q_scale=True),
    "gemma2": Style(act="gelu", embed="scale", q_scale=True, post=True, soft_cap=True, final_cap=True),
    "gemma3": Style(act="gelu", embed="rows", q_scale=True, post=True, final_cap=True, qk_norm="before"),
    "gpt-oss": Style(act="swiglu_oai", ffn_norm="post_attention_norm", gating=SOFTMAX_WEIGHT, normalise=False, tail="hidden", sinks=True),
    "cohere2": Style(norm="NORM", joins="fra", rope="windowed", logit_scale="key"),
    "command-r": Style(norm="NORM", joins="fra", logit_scale="key", qk_norm="before"),
    "falcon": _GPT.replace(joins="far"),
    "gptneox": _GPT.replace(joins="fra"),
    "stablelm": Style(norm="NORM", qk_norm="before"),
    "orion": Style(norm="NORM"),
    "nemotron": Style(norm="NORM", act="relu_sqr"),
    "arcee": Style(act="relu_sqr"),
    "chatglm": Style(halves=True),
    "glm4": Style(post=True, halves=True, pinned=True),
    "glm4moe": Style(ffn_norm="post_attention_norm", gating=SIGMOID, normalise=None, qk_norm="before"),
    "qwen2moe": Style(normalise=False, shared_gate="silu"),
    "olmo": Style(norm="NORM", pre="bare"),
    "olmo2": Style(pre="none", post=True, qk_norm="flat"),
    "olmoe": Style(qk_norm="flat", normalise=False),
    "minimax-m2": Style(qk_norm="flat", gating=0),
    "exaone4": Style(pre="none", post=True, qk_norm="before", rope="windows"),
    "smollm3": Style(rope="steps"),
    "llama4": Style(rope="steps", qk_norm="bare", gating=SIGMOID, normalise=False, weigh_first=True, temperature="still"),
    "mistral3": Style(temperature="key"),
    "seed_oss": Style(ffn_norm="post_attention_norm"),
    "baichuan": Style(rope="seven"),
    "refact": Style(rope="none"),
    "deepseek": Style(normalise=False),
    "dots1": Style(qk_norm="before", gating=0, normalise=None),
    "jais": Style(norm="NORM", rope="none"),
    "apertus": Style(act="xielu", qk_norm="before"),
    "openelm": Style(qk_norm="before", residual_first=True),
    "dbrx": Style(norm="NORM", ffn_norm="attn_output_norm"),
    "afmoe": Style(embed="scale", rope="steps", qk_norm="before", post=True, post_first=True, pinned=True, gating=SIGMOID, normalise=None),
    "smallthinker": Style(act="relu", rope="first", gating=0, early=True),
    "exaone-moe": Style(rope="windowed", qk_norm="before", gating=0, normalise=None),
    "grok": Style(
        act="gelu", embed="default", post=True, post_norms=("attn_output_norm", "layer_output_norm"), pinned=True, logit_scale="always", final_cap=True
    ),
    "mimo2": Style(sinks=True, gating=SIGMOID),
    "granite_swa": _GRANITE.replace(sinks=True),
    "hy_v3": Style(qk_norm="before", gating=SIGMOID, normalise=None, tail="normed"),
    "step35": Style(qk_norm="before", gating=SIGMOID, normalise=None, tail="hidden"),
    "bailingmoe": Style(normalise=None),
    "llada-moe": Style(qk_norm="before", normalise=False),
    "llama-embed": _LLAMA.replace(tail="vector"),
    "cogvlm": _LLAMA.replace(tail="whole"),
    "jais2": Style(norm="NORM", act="relu_sqr"),
    "spark2_5": Style(act="gelu"),
    "deepseek2-ocr": Style(normalise=None),
    "maple": Style(qk_norm="before", rope="windowed"),
    "laguna": Style(qk_norm="before", gating=SIGMOID, normalise=None, gate="softplus"),
    "muse-glimmer": Style(embed="norm", rope="windowed", qk_norm="before", post=True, post_first=True, loose=True, logit_scale="always", final_cap=True),
    "cohere2moe": Style(norm="header", joins="fra", rope="leading", logit_scale="key", gating=SIGMOID, normalise=None, halved=True, tail="normed"),
    "plamo3": Style(qk_norm="before", post=True, halves=True, pinned=True),
    "bailingmoe2": Style(qk_norm="before", gating=0, normalise=None),
}
