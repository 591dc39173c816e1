"""Which graph an architecture has: one table from the header's architecture to the function that lays it out."""

from brim.engines.llama_cpp.blocks import Builder
from brim.engines.llama_cpp.decoders import STYLES, decoder
from brim.engines.llama_cpp.ends import pool
from brim.engines.llama_cpp.hparams import Wanting

# architecture → module and function; the module is loaded when a model needs it
_BUILDERS = {
    "mamba": "hybrids.mamba_only",
    "mamba2": "hybrids.mamba_only",
    "jamba": "hybrids.jamba",
    "lfm2": "hybrids.lfm2",
    "lfm2moe": "hybrids.lfm2",
    "qwen3next": "hybrids.qwen3next",
    "qwen35": "hybrids.qwen3next",
    "qwen35moe": "hybrids.qwen3next",
    "falcon-h1": "hybrids.falcon_h1",
    "granitehybrid": "hybrids.granite_hybrid",
    "nemotron_h": "hybrids.nemotron_h",
    "nemotron_h_moe": "hybrids.nemotron_h",
    **dict.fromkeys(("bert", "jina-bert-v2", "jina-bert-v3", "nomic-bert", "nomic-bert-moe"), "encoder.bert"),
    **dict.fromkeys(("modern-bert", "neo-bert", "eurobert", "gemma-embedding"), "encoder.pre_norm"),
    "deepseek2": "latent.deepseek2",
    "mistral4": "latent.deepseek2",
    "deepseek32": "indexers.sparse",
    "glm-dsa": "indexers.sparse",
    "deepseek4": "deepseek4.deepseek4",
    "eagle3": "eagle.eagle3",
    "dflash": "dflash.dflash",
    "graniteswitch": "switched.graniteswitch",
    "dots3note": "indexers.dots3note",
    "hy_v4": "indexers.hy_v4",
    "minimax-m3": "minimax_m3.minimax_m3",
    "glm5-next": "glm5.glm5_next",
    "qwen4exp": "qwen4.qwen4exp",
    "gemma3n": "gemma3n.gemma3n",
    "gemma4": "gemma4.gemma4",
    "kimi-linear": "kimi.kimi_linear",
    **dict.fromkeys(("rwkv6", "rwkv7"), "rwkv.rwkv"),
    **dict.fromkeys(("rwkv6qwen2", "arwkv7"), "rwkv.rwkv_qwen2"),
    "plamo2": "plamo.plamo2",
    "minimax-01": "lightning.minimax_01",
    "talkie": "outliers.talkie",
    "chameleon": "outliers.chameleon",
    "hrm_text": "outliers.hrm_text",
    "arctic": "mixtures.arctic",
    "grovemoe": "mixtures.grovemoe",
    "t5": "t5.decoder",
    "t5encoder": "t5.encoder",
    "kimi-k3": "kimi.kimi_k3",
    "bailingmoe3": "kimi.bailingmoe3",
    **dict.fromkeys(("minicpm3", "plm"), "latent.minicpm3"),
}

_ROWS = "this graph gives the exact bytes of every measured allocation of b11434 (CPU, one and two CUDA devices)"
_ORACLE = "this graph gives the exact bytes that b11434 itself reserves on the CPU for made-up shapes"
# architectures whose allocations on CUDA devices were compared, too
ON_CARDS = frozenset(
    ("llama", "qwen2", "qwen3", "qwen3moe", "phi3", "gemma2", "gemma3", "gemma3n", "gpt-oss", "deepseek2", "mamba", "jamba", "lfm2", "qwen3next")
)
# what each architecture's graph was compared with; an architecture that is not here was read from the source only
CHECKED = {
    **dict.fromkeys(ON_CARDS, _ROWS),
    **dict.fromkeys((
        "cohere2", "mamba2", "falcon-h1", "granitehybrid", "nemotron_h", "glm4moe", "lfm2moe", "qwen35", "qwen35moe", "exaone", "internlm2", "xverse", "ernie4_5", "ernie4_5-moe", "qwen2vl", "qwen2moe", "hunyuan-moe",
        "hunyuan-dense", "hunyuan_vl", "maincoder", "pangu-embedded", "starcoder2", "codeshell", "starcoder", "gpt2", "mpt", "bloom", "granite", "granitemoe", "minicpm", "phimoe", "phi2", "gemma", "command-r", "falcon",
        "gptneox", "stablelm", "orion", "nemotron", "arcee", "chatglm", "glm4", "olmo", "olmo2", "olmoe", "minimax-m2", "exaone4", "smollm3", "llama4", "mistral3", "seed_oss", "baichuan", "refact", "deepseek", "dots1",
        "bailingmoe", "bailingmoe2", "qwen3vl", "qwen3vlmoe", "gemma4", "rwkv7", "kimi-linear", "mellum", "qwen", "bitnet", "plamo", "jais", "nanbeige", "paddleocr", "apertus", "openelm", "dbrx", "afmoe", "smallthinker",
        "exaone-moe", "grok", "mimo2", "granite_swa", "hy_v3", "step35", "mistral4", "nemotron_h_moe", "bert", "jina-bert-v2", "jina-bert-v3", "nomic-bert", "nomic-bert-moe", "modern-bert", "neo-bert", "eurobert", "gemma-embedding",
        "deci", "deepseek32", "deepseek4", "glm-dsa", "qwen4exp", "arctic", "grovemoe", "plamo2", "plamo3", "llada", "llada-moe", "dream", "rnd1", "rwkv6", "rwkv6qwen2", "arwkv7", "t5", "t5encoder", "minicpm3", "plm", "bailingmoe3", "kimi-k3", "dots3note", "hy_v4", "minimax-m3", "glm5-next", "eagle3", "dflash", "graniteswitch", "gemma4-assistant",
        "jais2", "maple", "cohere2moe", "muse-glimmer", "laguna", "spark2_5", "deepseek2-ocr", "llama-embed", "chameleon", "talkie", "cogvlm", "hrm_text", "minimax-01",
    ), _ORACLE),
}  # fmt: skip


def known(arch: str) -> bool:
    """Whether an architecture's graph can be laid out."""
    return arch in STYLES or arch in _BUILDERS


def build(b: Builder) -> None:
    """Lay out the graph of the builder's model; an architecture without a row is a `Wanting`."""
    arch = b.hp.arch
    style = None if b.context.mtp else STYLES.get(arch)
    module, _, name = ("mtp.build" if b.context.mtp else _BUILDERS.get(arch, "")).partition(".")
    if style is not None:
        end = decoder(b, style)
    elif module:
        end = getattr(__import__(f"brim.engines.llama_cpp.{module}", fromlist=[name]), name)(b)
    else:
        raise Wanting(f"the compute graph of architecture {arch!r} is not modelled yet")
    pool(b)
    if b.context.sampled:
        from brim.engines.llama_cpp import mtp

        mtp.sample(b, end)
