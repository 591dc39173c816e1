"""What llama.cpp reads out of a GGUF header: widths, heads, windows and recurrent layers, one value per layer where they may differ.

Source: llama.cpp b11434, src/llama-model.cpp `load_hparams`, src/llama-hparams.cpp and the `load_arch_hparams` of each src/models/*.cpp. A key that the engine
insists on and the header lacks is a `Wanting`; an architecture that the engine at this build does not know is one too. Nothing is guessed.
"""

from brim.engines.llama_cpp.sane import check
from brim.facts.model import Checkpoint
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Wanting(Exception):
    """A header that does not say what the engine needs; the message is one clear sentence."""


# architecture → (kind, default window or None where the key is needed, layers in one period, full layer first). `llama-hparams.cpp: set_swa_pattern`.
# "only" marks windows that exist only where the key is given and not zero. A period of 0 reads the per-layer array of the header.
_WINDOWS: dict[str, tuple[str, int | None, int, bool]] = {
    "gemma2": ("sliding", 4096, 2, False),
    "gemma3": ("only", None, 6, False),
    "dflash": ("only", None, 0, False),
    "gemma3n": ("sliding", None, 5, False),
    "gemma4": ("sliding", None, 0, False),
    "gemma4-assistant": ("sliding", None, 0, False),
    "gemma-embedding": ("symmetric", None, 6, False),
    "cohere2": ("sliding", None, 4, False),
    "cohere2moe": ("sliding", None, 4, True),
    "gpt-oss": ("sliding", None, 2, False),
    "exaone-moe": ("sliding", 128, 4, False),
    "olmo2": ("only", None, 4, False),
    "afmoe": ("only", None, 4, False),
    "smallthinker": ("only", 4096, 4, True),
    "mellum": ("only", None, 4, False),
    "dots3note": ("sliding", None, 0, False),
    "plamo3": ("only", None, 8, False),
    "laguna": ("only", None, 4, True),
    "granite_swa": ("sliding", None, 0, False),
    "maple": ("sliding", None, 0, False),
    "mimo2": ("sliding", None, 0, False),
    "spark2_5": ("sliding", None, 0, False),
    "step35": ("sliding", None, 0, False),
    "muse-glimmer": ("sliding", None, 4, False),
    "modern-bert": ("symmetric", None, 3, True),
}

RECURRENT = frozenset(("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"))
HYBRID = frozenset(
    ("jamba", "falcon-h1", "plamo2", "granitehybrid", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "qwen3next", "kimi-linear", "bailingmoe3", "kimi-k3", "glm5-next", "qwen35", "qwen35moe", "qwen4exp",
     "minimax-01")
)  # fmt: skip
CACHELESS = frozenset(
    ("bert", "jina-bert-v2", "jina-bert-v3", "nomic-bert", "nomic-bert-moe", "neo-bert", "eurobert", "modern-bert", "gemma-embedding", "dream", "llada", "llada-moe", "rnd1", "clef")
)  # fmt: skip
# diffusion models: every token looks at every other, whatever the header says (`load_arch_hparams` sets causal_attn)
_DIFFUSION = frozenset(("dream", "llada", "llada-moe", "rnd1"))
ENCODED = frozenset(("t5", "t5encoder", "eagle3", "dflash"))  # `llama_model_has_encoder`
DRAFTS = frozenset(("eagle3", "dflash"))  # run beside a target only, on its features
# the prompt graph is reserved for one sequence as well, and the larger one stays (`sched_reserve`, inputs that grow with the square of a sequence's tokens)
LONE = frozenset(("minimax-01", "kimi-linear"))
# encoders without an output matrix; all others fall back to the token embedding's copy
HEADLESS = frozenset(("bert", "jina-bert-v2", "jina-bert-v3", "nomic-bert", "nomic-bert-moe", "neo-bert", "eurobert", "modern-bert"))
_ROLLBACK = frozenset(
    ("kimi-k3", "qwen35", "qwen35moe", "qwen4exp", "glm5-next", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3", "deepseek4")
)
_FOUR_POSITIONS = frozenset(("qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen4exp", "paddleocr"))
_SECTIONED = frozenset(("glm4", "glm4moe", "hunyuan_vl", "bailingmoe3"))
_STILL_STEPS = frozenset(("smollm3", "llama4", "afmoe"))
_UNMIXED = frozenset(("cogvlm", "deepseek4", "graniteswitch", "eagle3", "dflash", "gemma4-assistant"))
_INDEXED = frozenset(("deepseek32", "deepseek4", "glm-dsa", "dots3note", "hy_v4", "minimax-m3", "glm5-next"))
# Architectures with caches or memory of a kind that is not modelled here: they answer "cannot tell".
_UNMODELLED = frozenset(
    ("wavtokenizer-dec", "clip",
     "clef", "pockettts", "qwen3tts")
)  # fmt: skip


REMEMBERED = frozenset(_WINDOWS) | RECURRENT | HYBRID | CACHELESS  # architectures whose memory is known here whether their graph is or not


def block_of(name: str) -> "tuple[int, str] | None":
    """(block, what is left of the name) of a tensor that belongs to a block; T5 names its encoder's and decoder's blocks apart (`enc.` and `dec.` lead what is left)."""
    side = name[:4] if name.startswith(("enc.blk.", "dec.blk.")) else ""
    if not name.startswith("blk.", len(side)):
        return None
    number, _, rest = name[len(side) + 4 :].partition(".")
    return int(number), side + rest


class Hparams:
    """The engine's hyper-parameters of one checkpoint. Lists have one entry a block, trailing nextn blocks included; `layers` counts the executed ones."""

    __slots__ = (
        "arch",
        "blocks",
        "cached",
        "causal",
        "compressed",
        "context_trained",
        "deepstack",
        "depth",
        "experts",
        "experts_used",
        "ff",
        "heads",
        "history",
        "indexer",
        "indexes",
        "key",
        "key_window",
        "kv_heads",
        "layers",
        "meta",
        "mixed",
        "mla",
        "nextn",
        "pool",
        "pooled",
        "positions",
        "recurrent",
        "rollback",
        "rot",
        "rows_r",
        "rows_s",
        "still_step",
        "tensors",
        "value",
        "value_window",
        "vocabulary",
        "width",
        "window",
        "window_kind",
        "windowed",
    )  # fmt: skip

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.meta = checkpoint.metadata
        self.arch = str(checkpoint.architecture or self.meta.get("general.architecture", ""))
        self.tensors = {tensor.name: (tensor.dims, tensor.dtype) for tensor in checkpoint.tensors}
        check(checkpoint, self.arch)
        if self.arch in _UNMODELLED:
            raise Wanting(f"the memory of architecture {self.arch!r} is not modelled yet")
        if self.arch == "dflash" and self.get("hyper_connection.count"):
            raise Wanting("DSpark drafts with stages of DeepSeek V4 are not modelled yet")
        self.context_trained = self.need("context_length")
        self.width = self.need("embedding_length")
        self.blocks = self.need("block_count")
        self.nextn = int(self.get("nextn_predict_layers", 0))
        if self.arch == "deepseek4" and f"blk.{self.blocks - self.nextn}.nextn.eh_proj.weight" not in self.tensors:
            self.nextn = 0
        self.layers = self.blocks - self.nextn
        self.blocks += self.arch == "graniteswitch"  # the router's head lies behind the last layer
        self.depth = int(self.get("decoder_block_count", self.layers)) if self.arch == "t5" else self.layers  # layers of the reserved graph
        if self.depth > self.layers:
            raise Wanting(f"{self.arch}.decoder_block_count is {self.depth}: llama.cpp refuses a decoder with more blocks than the encoder ({self.layers})")
        self.causal = self.arch not in _DIFFUSION and bool(self.get("attention.causal", True))
        mapped = [int(n) for n in self.get("deepstack_mapping", ()) or ()]
        self.deepstack = int(self.get("n_deepstack_layers", 0)) if self.arch in ("qwen3vl", "qwen3vlmoe") else len({n for n in mapped if n >= 0})
        self._attention()
        self._indexers()
        self._windows()
        self._recurrent()
        self._pools()
        self._vocabulary()
        sections = self.get("rope.dimension_sections") or (0, 0)
        multi = self.arch in _SECTIONED and int(sections[0]) > 0 and int(sections[1]) > 0
        self.positions = 4 if multi or self.arch in _FOUR_POSITIONS else 1
        self.mixed = self.arch not in _UNMIXED
        self.still_step = self.layers if self.arch == "llama4" and not self.window_kind else 4
        self.rollback = self.arch in _ROLLBACK

    def get(self, key: str, default: "Any" = None) -> "Any":
        """The value of `{architecture}.{key}`, or the default."""
        return self.meta.get(f"{self.arch}.{key}", default)

    def need(self, key: str) -> int:
        """An integer that the engine insists on."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Wanting(f"the header lacks {self.arch}.{key}")
        return int(value)

    def per_layer(self, key: str, default: "Any") -> "list[Any]":
        """A value for each block: a scalar is repeated, an array is taken as it is."""
        value = self.get(key)
        if value is None:
            return list(default) if isinstance(default, list) else [default] * self.blocks
        if isinstance(value, (list, tuple)):
            if len(value) < self.layers:
                raise Wanting(f"{self.arch}.{key} has {len(value)} entries for {self.layers} layers")
            return [*value, *[value[-1]] * (self.blocks - len(value))]
        return [value] * self.blocks

    def _attention(self) -> None:
        """Heads and head widths (`load_hparams`)."""
        self.heads = [int(n) for n in self.per_layer("attention.head_count", 0)]
        self.kv_heads = [int(n) for n in self.per_layer("attention.head_count_kv", self.heads)]
        self.ff = [int(n) for n in self.per_layer("feed_forward_length", 0)]
        if self.arch == "graniteswitch":
            self.heads[-1], self.kv_heads[-1], self.ff[-1] = 1, 1, 0
        first = self.heads[0]
        if not first and self.arch not in RECURRENT and self.arch not in HYBRID:
            raise Wanting(f"the header lacks {self.arch}.attention.head_count")
        natural = self.width // first if first else 0
        stated = first or self.arch == "plamo2"  # a first layer without heads has no head width, unless the architecture reads it again
        self.key = int(self.get("attention.key_length", natural)) if stated else 0
        self.value = int(self.get("attention.value_length", natural)) if stated else 0
        self.key_window = int(self.get("attention.key_length_swa", self.key))
        self.value_window = int(self.get("attention.value_length_swa", self.value))
        self.rot = int(self.get("rope.dimension_count", self.key))
        self.experts = int(self.get("expert_count", 0))
        self.experts_used = [int(n) for n in self.per_layer("expert_used_count", 0)]
        if self.arch in ("hunyuan-dense", "hunyuan_vl") and self.experts <= 1:
            self.experts, self.experts_used = 0, [0] * self.blocks
        key_mla, value_mla = int(self.get("attention.key_length_mla", 0)), int(self.get("attention.value_length_mla", 0))
        self.mla = (key_mla, value_mla) if key_mla and value_mla else None
        start = None
        if self.arch == "gemma3n":
            start = 20
        elif self.arch == "gemma4":
            start = self.blocks - int(self.get("attention.shared_kv_layers", 0))
        self.cached = [start is None or il < start for il in range(self.blocks)]

    def _indexers(self) -> None:
        """Which layers own an indexer, and its heads, head width and most kept cells (`indexer_n_head`, `indexer_head_size`, `indexer_top_k`)."""
        self.indexer: tuple[int, int, int] | None = None
        self.indexes = [False] * self.blocks
        self.compressed: list[int] = []  # how many tokens become one cell in a layer, 0 for none; empty where the architecture does not compress
        if self.arch not in _INDEXED or (self.arch == "hy_v4" and not self.get("attention.indexer.top_k")):
            return
        self.indexer = (self.need("attention.indexer.head_count"), self.need("attention.indexer.key_length"), self.need("attention.indexer.top_k"))
        types: list[Any] = [1] * self.blocks
        if self.arch == "deepseek4":
            self.compressed = [int(ratio) for ratio in self.per_layer("attention.compress_ratios", 0)]
            if any(ratio not in (0, 4, 128) for ratio in self.compressed):
                raise Wanting("deepseek4.attention.compress_ratios holds a ratio that is not 0, 4 or 128")
            types = [ratio == 4 for ratio in self.compressed]
        elif self.arch == "glm-dsa":
            if self.context_trained >= 1 << 20:  # GLM 5.2 files without the key: two full layers, then every fourth
                types = [int(il < 2 or (il - 2) % 4 == 0) for il in range(self.blocks)]
            types = self.per_layer("attention.indexer.types", types)
        elif self.arch == "minimax-m3":
            types = [il >= int(self.get("leading_dense_block_count", 0)) for il in range(self.blocks)]
        elif self.arch in ("hy_v4", "dots3note", "glm5-next"):
            types = self.per_layer("attention.indexer.types", types if self.arch == "glm5-next" else 0)
            if self.arch == "hy_v4" and not types[0]:
                raise Wanting("hy_v4.attention.indexer.types: the first layer must own an indexer")
            types = [kind and (self.arch != "glm5-next" or self.kv_heads[il] > 0) for il, kind in enumerate(types)]
        self.indexes = [bool(kind) and il < self.layers for il, kind in enumerate(types)]

    def _windows(self) -> None:
        """Which layers slide, and over how many tokens."""
        self.window_kind, self.window, self.windowed = "", 0, [False] * self.blocks
        kind, default, period, first = _WINDOWS.get(self.arch, ("", None, 0, False))
        given = self.get("attention.sliding_window")
        if self.arch == "llama4" and given != 0:
            kind, default, period, given = "chunked", 8192, 4, 8192
        elif self.arch == "exaone4" and self.layers == 64:
            kind, default, period = "sliding", 4096, 4
        elif self.arch == "deepseek4":
            self.window_kind, self.window, self.windowed = "sliding", self.need("attention.sliding_window"), [True] * self.blocks
            return
        elif self.arch in ("lfm2", "lfm2moe") and given:
            self.window_kind, self.window = "sliding", int(given)
            self.windowed = [n > 0 for n in self.kv_heads]
            return
        if not kind or (kind in ("only", "symmetric") and not given):
            return
        if self.arch == "smallthinker":
            given = 4096
        if given is None and default is None:
            raise Wanting(f"the header lacks {self.arch}.attention.sliding_window")
        self.window_kind = "sliding" if kind == "only" else kind
        self.window = int(given if given is not None else default)  # type: ignore[arg-type]
        self.windowed = self._pattern(period, dense_first=first)

    def _pattern(self, period: int, *, dense_first: bool) -> list[bool]:
        """One flag a block: from the header's array, else every `period`-th layer is full."""
        stated = self.get("attention.sliding_window_pattern")
        if isinstance(stated, (list, tuple)):
            return [bool(flag) for flag in self.per_layer("attention.sliding_window_pattern", 0)]
        if not period and stated is None:
            raise Wanting(f"the header lacks {self.arch}.attention.sliding_window_pattern")
        period = int(stated) if stated is not None else period
        flags = [not period or (il % period != 0 if dense_first else il % period < period - 1) for il in range(self.layers)]
        return flags + [False] * self.nextn

    def _recurrent(self) -> None:
        """Which layers keep a state, and how many f32 values a sequence each of them keeps (`n_embd_r`, `n_embd_s`)."""
        arch, blocks = self.arch, self.blocks
        if arch in RECURRENT or arch == "falcon-h1":
            self.recurrent = [True] * blocks
        elif arch in ("qwen3next", "qwen35", "qwen35moe", "qwen4exp", "minimax-01"):
            interval = int(self.get("full_attention_interval", 8 if arch == "minimax-01" else 4))
            flags = [il < self.layers and (il + 1) % interval != 0 for il in range(blocks)]
            self.recurrent = [bool(flag) for flag in self.per_layer("attention.recurrent_layers", flags)]
        elif arch in ("nemotron_h", "nemotron_h_moe"):
            self.recurrent = [il < self.layers and not self.kv_heads[il] and not self.ff[il] for il in range(blocks)]
        elif arch in HYBRID:
            self.recurrent = [il < self.layers and not self.kv_heads[il] for il in range(blocks)]
        else:
            self.recurrent = [False] * blocks
        self.rows_r = self.rows_s = 0
        if any(self.recurrent):
            self._state_rows()

    def _pools(self) -> None:
        """qwen4exp: how many tokens an indexer's key stands for (`indexer_kpool`), where, and the layer that looks words up, with its row of history (`ple_conv_state`)."""
        self.pool, self.pooled, self.history = 0, [False] * self.blocks, (-1, 0)
        if self.arch == "glm5-next":
            self.pool = self.need("attention.indexer.kpool")
            if self.pool < 2 or self.need("attention.indexer.top_k") % self.pool:
                raise Wanting("glm5-next.attention.indexer.kpool must be above 1 and divide attention.indexer.top_k")
        if self.arch != "qwen4exp":
            return
        self.indexer = (self.need("attention.indexer.head_count"), self.need("attention.indexer.key_length"), self.need("attention.indexer.top_k"))
        self.indexes = [il < self.layers and not self.recurrent[il] for il in range(self.blocks)]
        ratios = [int(ratio) for ratio in self.per_layer("attention.compress_ratios", 0)]
        self.pool, self.pooled = max(ratios), [ratio > 0 for ratio in ratios]
        if any(ratio not in (0, self.pool) for ratio in ratios) or self.pool == 1 or (self.pool and self.indexer[2] % self.pool):
            raise Wanting("qwen4exp.attention.compress_ratios must be one ratio above 1 that divides attention.indexer.top_k")
        looked = self.get("ple.layers") or ()
        if looked:
            size = (self.need("ple.conv_kernel") - 1) * self.need("ple.ngram_size") * self.need("hyper_connection.count") * self.width
            self.history = (int(looked[0]) if isinstance(looked, (list, tuple)) else int(looked), size)

    def _state_rows(self) -> None:
        """`llama_hparams::n_embd_r` and `n_embd_s`."""
        wkv, kda, short = int(self.get("wkv.head_size", 0)), int(self.get("kda.head_dim", 0)), int(self.get("shortconv.l_cache", 0))
        conv, inner, state = int(self.get("ssm.conv_kernel", 0)), int(self.get("ssm.inner_size", 0)), int(self.get("ssm.state_size", 0))
        groups = int(self.get("ssm.group_count", 0))
        if wkv:
            self.rows_r, self.rows_s = int(self.get("token_shift_count", 2)) * self.width, self.width * wkv
        elif short:
            self.rows_r = self.width * (short - 1)
        elif kda:
            self.rows_r, self.rows_s = 3 * ((conv - 1) if conv else 3) * self.heads[0] * kda, kda * kda * self.heads[0]
        elif inner and state:
            self.rows_r, self.rows_s = max(conv - 1, 0) * (inner + 2 * groups * state), state * inner
        elif self.arch == "minimax-01":
            self.rows_s = self.key * self.key * self.heads[0]
        else:
            raise Wanting(f"the header does not say how large the recurrent state of {self.arch!r} is")

    def _vocabulary(self) -> None:
        """The number of tokens: the tokenizer's list, else the key, else the embedding's rows."""
        tokens = self.meta.get("tokenizer.ggml.tokens")
        embedding = self.tensors.get("token_embd.weight")
        if isinstance(tokens, (list, tuple)) and tokens:
            self.vocabulary = len(tokens)
        elif self.get("vocab_size"):
            self.vocabulary = int(self.get("vocab_size"))
        elif embedding is not None:
            self.vocabulary = embedding[0][1]
        else:
            raise Wanting("the header says neither how many tokens there are nor has it an embedding matrix")

    def trait(self, il: int) -> int:
        """What else tells layers apart that neither tensors nor lists show: sparse activations, layers without rotation."""
        if self.arch == "gemma3n":
            return int(il < 10)
        if self.arch in ("rwkv7", "arwkv7"):
            return int(il > 0)
        if self.arch == "kimi-k3":
            size = int(self.get("attn_res.block_size", 0))
            return 2 * (il // size) + int(il % size == 0) if size else 0
        if self.arch == "qwen4exp":
            return 2 * int(self.pooled[il]) + int(self.history[0] == il)
        every = int(self.get("rescale_every_n_layers", 0)) if self.arch == "rwkv6" else 0
        if every:
            return int((il + 1) % every == 0)
        if self.deepstack:
            mapped = self.get("deepstack_mapping")
            return int(il < self.deepstack) if not mapped else int(mapped[il]) + 2
        turned = self.get("attention.rope_pattern")
        if isinstance(turned, (list, tuple)):
            return int(bool(turned[il]))
        return int(self.arch in _STILL_STEPS and (il + 1) % self.still_step == 0)

    def head_key(self, il: int) -> int:
        """Width of one key head of a layer."""
        return self.key_window if self.windowed[il] else self.key

    def head_value(self, il: int) -> int:
        """Width of one value head of a layer."""
        return self.value_window if self.windowed[il] else self.value

    def width_key(self, il: int) -> int:
        """Width of the keys of one cache cell (`n_embd_k_gqa`)."""
        return self.head_key(il) * self.kv_heads[il]

    def width_value(self, il: int) -> int:
        """Width of the values of one cache cell (`n_embd_v_gqa`)."""
        return self.head_value(il) * self.kv_heads[il]


_RECENT: "list[tuple[Checkpoint, Hparams | Missing]]" = []


def read(checkpoint: Checkpoint) -> "Hparams | Missing":
    """The hyper-parameters of a checkpoint, remembered for the last few checkpoints (a sweep asks ten thousand times), or why they cannot be had."""
    for known, hparams in _RECENT:
        if known is checkpoint:
            return hparams
    found: Hparams | Missing
    try:
        found = Hparams(checkpoint)
    except Wanting as why:
        found = Missing(reason="not_supported", detail=str(why))
    _RECENT.insert(0, (checkpoint, found))
    del _RECENT[4:]
    return found
