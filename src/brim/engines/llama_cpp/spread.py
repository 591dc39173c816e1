"""Which slice of each tensor every card holds with `--split-mode tensor`: weights by rows or columns, caches by heads; what cannot be cut is on every card.

Source: llama.cpp b11434, src/llama-model.cpp `llama_meta_device_get_split_state`, ggml/src/ggml-backend-meta.cpp. The scheduler sees one device there, so the compute
buffer of the whole graph is on each card. An architecture that the engine refuses in this mode, or stops at, is a `Wanting`.
"""

from math import lcm
from struct import pack, unpack

from brim.engines.llama_cpp.hparams import Hparams, Wanting, block_of
from brim.facts.dtypes import GGML_BLOCKS

# `llm_arch_supports_sm_tensor`
_REFUSED = frozenset(
    ("grok", "mpt", "plamo2", "minicpm3", "gemma3n", "mamba", "mamba2", "jamba", "falcon-h1", "olmo2", "olmoe", "deepseek2", "deepseek32", "hy_v4", "dots3note", "glm-dsa", "bitnet", "t5", "nemotron_h",
     "nemotron_h_moe", "granitehybrid", "minimax-01", "minimax-m2", "minimax-m3", "mistral4", "kimi-linear", "bailingmoe3", "kimi-k3", "glm5-next", "qwen3tts")
)  # fmt: skip
_UNREAD = frozenset(("deepseek4", "qwen4exp"))  # rules of their own that are not written down here
_GATED = frozenset(("qwen3next", "qwen35", "qwen35moe"))
_ATTENTION, _STATE, _FORWARD = ("attn_output.weight", "ssm_out.weight"), ("ssm_out.weight",), ("ffn_down.weight", "ffn_down_exps.weight")
# name in a block → (axis that is cut, the tensors that decide about whole quantised blocks); "" stands for the tensor itself
_CUT: dict[str, tuple[int, tuple[str, ...]]] = {
    **dict.fromkeys(("attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_qkv.weight", "attn_gate.weight"), (1, _ATTENTION)),
    **dict.fromkeys(("attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"), (0, _ATTENTION)),
    **dict.fromkeys(("cache_k", "cache_v", "attn_sinks.weight"), (0, _ATTENTION[:1])),
    **dict.fromkeys(("attn_output.weight", "ssm_out.weight"), (0, ("",))),
    **dict.fromkeys(("ssm_dt.bias", "ssm_a", "cache_r", "cache_s"), (0, _STATE)),
    **dict.fromkeys(("ssm_alpha.weight", "ssm_beta.weight", "ssm_ba.weight", "ssm_conv1d.weight"), (1, _STATE)),
    **dict.fromkeys(("ffn_up.weight", "ffn_up_exps.weight", "ffn_gate.weight", "ffn_gate_exps.weight", "ffn_gate_up.weight", "ffn_gate_up_exps.weight"), (1, _FORWARD)),
    **dict.fromkeys(("ffn_up.bias", "ffn_up_exps.bias", "ffn_gate.bias", "ffn_gate_exps.bias"), (0, _FORWARD)),
    **dict.fromkeys(("ffn_down.weight", "ffn_down_exps.weight"), (0, _FORWARD)),
    "output.weight": (1, ("",)),
    "output.bias": (0, ("",)),
}  # fmt: skip
_FORWARD_NAMES = ("ffn_up", "ffn_gate", "ffn_down")


class Spread:
    """The shares of some cards in every tensor of a model. `shares` are `--tensor-split`, all zero for equal ones."""

    __slots__ = ("cards", "hp", "ranks", "shares")

    def __init__(self, hp: Hparams, cards: int, shares: "tuple[float, ...]") -> None:
        if hp.arch in _REFUSED:
            raise Wanting(f"llama.cpp refuses --split-mode tensor for architecture {hp.arch!r}")
        if hp.arch in _UNREAD:
            raise Wanting(f"how --split-mode tensor cuts the tensors of architecture {hp.arch!r} is not modelled yet")
        self.hp, self.cards = hp, cards
        self.shares = [_single(share) for share in (*shares, *(0.0,) * cards)[:cards]]
        seen: dict[tuple[bool, bool], int] = {}
        self.ranks = []  # how many layers of the same kind come before each
        for il in range(hp.blocks):
            kind = (hp.recurrent[il], hp.windowed[il])
            self.ranks.append(seen.get(kind, 0))
            seen[kind] = self.ranks[-1] + 1

    def tensor(self, name: str, dims: "tuple[int, ...]", dtype: str) -> "list[tuple[int, ...]]":
        """The extents of a weight's slice on each card."""
        block = block_of(name)
        il, rest = block if block is not None else (0, name)
        turn = self.ranks[il] if block is not None else self.hp.layers
        return self._cut(il, rest, dims, dtype, turn)

    def cache(self, kind: str, il: int, dims: "tuple[int, ...]") -> "list[tuple[int, ...]]":
        """The extents of each card's slice of a layer's cells (`k`, `v`) or state (`r`, `s`)."""
        return self._cut(il, "cache_" + kind, dims, "F32", self.ranks[il])

    def _cut(self, il: int, rest: str, dims: "tuple[int, ...]", dtype: str, turn: int) -> "list[tuple[int, ...]]":
        hp = self.hp
        found = _CUT.get(rest)
        if rest in ("attn_q_norm.weight", "attn_k_norm.weight") and len(dims) > 1 and dims[1] > 1:
            found = (1, _ATTENTION[:1])
        if rest in ("cache_r", "cache_s") and hp.arch in ("lfm2", "lfm2moe"):
            found = None
        if found is None or hp.arch == "hrm_text":
            return [dims] * self.cards
        axis, anchors = found
        block = GGML_BLOCKS[dtype if anchors == ("",) else self._anchor(il, anchors)][0]
        held = [0] * self.cards
        for width, repeats, step in self._segments(il, rest, dims[axis], block):
            if step < 1:
                raise Wanting("llama.cpp stops where --split-mode tensor meets a layer without key heads")
            for card, slice_ in enumerate(self._slices(width, step, turn)):
                held[card] += slice_ * repeats
        return [tuple(held[card] if place == axis else size for place, size in enumerate(dims)) for card in range(self.cards)]

    def _anchor(self, il: int, names: "tuple[str, ...]") -> str:
        for name in names:
            tensor = self.hp.tensors.get(f"blk.{il}.{name}")
            if tensor is not None:
                return tensor[1]
        raise Wanting(f"llama.cpp stops with --split-mode tensor: block {il} has no {names[-1]}")

    def _slices(self, width: int, step: int, turn: int) -> "list[int]":
        """Each card's share of `width`, whole steps of it; the card that takes the rest changes from layer to layer."""
        turn %= self.cards
        scan: list[float] = []
        for index in range(self.cards):
            share = self.shares[(index + turn) % self.cards]
            scan.append(share if not scan else _single(scan[-1] + share))
        made = [0] * self.cards
        low = 0
        for index in range(self.cards - 1):
            high = width * (index + 1) // self.cards if not scan[-1] else int(_single(_single(_single(float(width)) * scan[index]) / scan[-1]))
            high -= high % step
            made[(index + turn) % self.cards] = high - low
            low = high
        made[(self.cards - 1 + turn) % self.cards] = width - low
        return made

    def _segments(self, il: int, rest: str, size: int, block: int) -> "list[tuple[int, int, int]]":
        """(width, how often, step) of the parts that a tensor is made of and that are cut each for itself."""
        hp = self.hp
        parts = self._delta_parts(il, rest, size) if hp.arch in _GATED else self._parts(il, rest, size)
        steps = self._state_steps(rest, block) if hp.recurrent[il] else self._head_steps(il, rest, size, block, len(parts))
        if steps is None:
            steps = [lcm(block, 128) if rest.startswith(_FORWARD_NAMES) else 1]
        return [(width, repeats, steps[min(index, len(steps) - 1)]) for index, (width, repeats) in enumerate(parts)]

    def _parts(self, il: int, rest: str, size: int) -> "list[tuple[int, int]]":
        hp = self.hp
        if rest in ("attn_qkv.weight", "attn_qkv.bias"):
            q, k, v = hp.heads[il] * hp.head_key(il), hp.width_key(il), hp.width_value(il)
            return [(q, 1), (k, 2)] if k == v else [(q, 1), (k, 1), (v, 1)]
        if rest.startswith("ffn_up") and size == 2 * hp.ff[il]:
            return [(hp.ff[il], 2)]
        return self._joint(il, rest, size)

    def _joint(self, il: int, rest: str, size: int) -> "list[tuple[int, int]]":
        """Gate and up in one matrix, of experts as wide as the header says."""
        if not rest.startswith("ffn_gate_up"):
            return [(size, 1)]
        if size != 2 * int(self.hp.per_layer("expert_feed_forward_length", 0)[il]):
            raise Wanting("llama.cpp stops with --split-mode tensor at a joint gate and up matrix that is no expert's")
        return [(size // 2, 2)]

    def _delta_parts(self, il: int, rest: str, size: int) -> "list[tuple[int, int]]":
        """qwen3next and qwen35: queries with gates, and the convolution's and the state's keys and values."""
        hp = self.hp
        if not hp.recurrent[il] and rest in ("attn_qkv.weight", "attn_qkv.bias"):
            return [(2 * hp.heads[il] * hp.head_key(il), 1), (hp.width_value(il), 2)]
        head, keys, values, conv = (int(hp.get(name, 0)) for name in ("ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.conv_kernel"))
        key, value, ratio = head * keys, head * values, values // keys if keys else 0
        joint = rest in ("attn_qkv.weight", "ssm_conv1d.weight")
        if hp.arch == "qwen3next":
            if joint:
                return [(key, 2), (value, 1)]
            if rest == "cache_r":
                return [(key * (conv - 1), 2), (value * (conv - 1), 1)]
        elif joint:
            return [(key, 2 + ratio)]
        elif rest == "cache_r":
            return [(key * (conv - 1), 2 + ratio)]
        elif rest == "cache_s":
            return [(keys * head * head, ratio)]
        elif hp.recurrent[il] and rest in ("attn_gate.weight", "ssm_out.weight"):
            return [(key, ratio)]
        elif rest in ("ssm_dt.bias", "ssm_a", "ssm_alpha.weight", "ssm_beta.weight"):
            return [(keys, ratio)]
        return self._joint(il, rest, size)

    def _state_steps(self, rest: str, block: int) -> "list[int] | None":
        """Steps in a recurrent layer."""
        head, conv = int(self.hp.get("ssm.state_size", 0)), int(self.hp.get("ssm.conv_kernel", 0))
        whole = lcm(block, 128, head) if head else 0
        if rest in ("attn_qkv.weight", "attn_gate.weight", "ssm_conv1d.weight", "ssm_out.weight"):
            return [whole]
        if rest in ("ssm_dt.bias", "ssm_a", "ssm_alpha.weight", "ssm_beta.weight"):
            return [whole // max(head, 1)]
        if rest == "ssm_ba.weight":
            return [2 * (whole // max(head, 1))]
        if rest == "cache_r":
            return [whole * (conv - 1)]
        return [whole * head] if rest == "cache_s" else None

    def _head_steps(self, il: int, rest: str, size: int, block: int, parts: int) -> "list[int] | None":
        """Steps in a layer that attends: whole groups of heads, and whole quantised blocks."""
        hp = self.hp
        key, heads, kv_heads = hp.head_key(il), hp.heads[il], hp.kv_heads[il]
        group = heads // kv_heads if kv_heads else 0
        queries, wide = group * key, block
        while wide < 128 and wide * self.cards < queries:
            wide *= 2
        step = lcm(queries, wide) if queries else 0
        each = step // key if key else 0
        if rest == "attn_sinks.weight":
            return [each]
        gated = lcm(2 * queries, wide) if queries else 0
        if rest in ("attn_q.weight", "attn_q.bias"):
            return [gated if hp.arch in _GATED else step]
        if rest == "attn_output.weight":
            return [each * hp.head_value(il)]
        if rest == "attn_gate.weight":
            return [each if size == heads else step]
        keys = step // group if group else 0
        values = keys // key * hp.head_value(il) if key else 0
        if rest in ("attn_k.weight", "attn_k.bias", "cache_k"):
            return [keys]
        if rest in ("attn_v.weight", "attn_v.bias", "cache_v"):
            return [values]
        if rest in ("attn_qkv.weight", "attn_qkv.bias"):
            return [gated, keys] if hp.arch in _GATED else [step, keys, values] if parts == 3 else [step, keys]
        return None


def _single(value: float) -> float:
    """Rounded as a C float."""
    made: float = unpack("f", pack("f", value))[0]
    return made
