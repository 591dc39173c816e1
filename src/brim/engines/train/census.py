"""A model's weights sorted for training: which learn, which are frozen, which get an adapter, and the blocks that repeat; counted once, priced many times."""

from brim.engines.train.setting import ADAPTERS, Linear
from brim.engines.train.styles import style_of
from brim.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from brim.facts.model import Layer, Shape, Weight
    from brim.facts.training import TrainWorkload

_EXPERTS = ("expert_gate", "expert_up", "expert_gate_up", "expert_down")
_ALIASES = {"query_key_value": "qkv", "c_attn": "qkv", "qkv_proj": "qkv", "dense": "o", "c_proj": "o", "gate_up_proj": "gate_up", "c_fc": "up"}


class Kind:
    """One kind of block: its layer facts, its rows, and the layers that are so."""

    __slots__ = ("indices", "layer", "rows")

    def __init__(self, layer: "Layer", rows: "tuple[Weight, ...]") -> None:
        self.layer, self.rows = layer, rows
        self.indices: list[int] = []


class Census:
    """The rows of a model by place: `kinds` of text blocks in the order of their first layer, `order` (kind of each layer), and the rest."""

    __slots__ = ("dropouts", "elements", "groups", "head", "kinds", "order", "rest", "rows", "shape", "stacked", "style", "table", "tied")

    def __init__(self, shape: "Shape", rows: "tuple[Weight, ...]", config: "Mapping[str, object] | None" = None) -> None:
        self.dropouts = dropouts(shape.architecture, config or {})
        self.shape, self.style = shape, style_of(shape.architecture)
        self.rows = tuple(row for row in rows if row.op != "buffer" and row.tower != "draft")
        self.elements = sum(row.elements for row in self.rows)
        self.tied = shape.tied_embeddings
        self.stacked = shape.architecture in _STACKED
        self.head = next((row for row in self.rows if row.role == "lm_head" and row.op in ("linear", "embedding")), None)
        self.table = next((row for row in self.rows if row.role == "embedding" and row.op == "embedding"), None)
        alike: dict[object, list[Weight]] = {}
        for row in self.rows:
            alike.setdefault((row.role, row.dims, row.op, row.copies, row.layer is None, module_of(row)), []).append(row)
        self.groups = tuple((rows[0], len(rows)) for rows in alike.values())
        by_layer: dict[int, list[Weight]] = {}
        self.rest: list[Weight] = []
        for row in self.rows:
            if row.layer is None or row.tower != "text":
                self.rest.append(row)
            else:
                by_layer.setdefault(row.layer, []).append(row)
        self.kinds: list[Kind] = []
        self.order: list[int] = []
        known: dict[object, int] = {}
        for layer in shape.layers:
            own = tuple(by_layer.get(layer.index, ()))
            key = (layer.replace(index=0), tuple([(row.role, row.dims, row.op, row.copies) for row in own]))
            place = known.get(key)
            if place is None:
                place = known[key] = len(self.kinds)
                self.kinds.append(Kind(layer, own))
            self.kinds[place].indices.append(layer.index)
            self.order.append(place)


# Keys of a config for dropout on embeddings, on what a block adds to the stream, and on attention; and where transformers' default for them is not zero.
_DROPOUTS = (
    ("embd_pdrop", "embed_dropout"),
    ("resid_pdrop", "hidden_dropout", "dropout", "residual_dropout", "hidden_dropout_prob"),
    ("attn_pdrop", "attention_dropout", "attention_probs_dropout_prob"),
)
_DROPPING = {"gpt2": (True, True, True), "gpt_bigcode": (True, True, True), "opt": (False, True, False), "seed_oss": (False, True, True)}


def dropouts(architecture: str, config: "Mapping[str, object]") -> "tuple[bool, bool, bool]":
    """Whether dropout stands on embeddings, on the stream and on attention, as the config (or its architecture's default) says."""
    found = list(_DROPPING.get(architecture, (False, False, False)))
    for place, names in enumerate(_DROPOUTS):
        for name in names:
            value = config.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found[place] = value > 0
    return found[0], found[1], found[2]


def module_of(row: "Weight") -> str:
    """The module's own name: `q_proj` in `model.layers.0.self_attn.q_proj.weight`."""
    return row.name.rsplit(".", 2)[-2] if row.name.count(".") > 1 else row.name


def sides(row: "Weight") -> tuple[int, int]:
    """(inputs, outputs) of a linear row; GPT-2's are stored the other way round."""
    return (row.dims[0], row.dims[1]) if row.op != "transposed" else (row.dims[1], row.dims[0])


# Architectures whose stacked experts peft 0.21 takes for the linear layers that they were (`utils/transformers_weight_conversion.py` over transformers 5.24
# `conversion_mapping.py`): there the names gate_proj, up_proj and down_proj mean the experts alone, and the router is adapted too.
_STACKED = frozenset(
    [
        "mixtral",
        "minimax",
        "minimax_m2",
        "afmoe",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "dots1",
        "ernie4_5_moe",
        "glm4_moe",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "longcat_flash",
        "solar_open",
        "mellum",
        "qwen3_moe",
        "qwen3_next",
        "hunyuan_v1_moe",
        "flex_olmo",
        "olmoe",
        "exaone_moe",
        "cohere2_moe",
    ]
)
_EXPERT_NAMES = ("gate_proj", "up_proj", "down_proj")


def adapted(row: "Weight", targets: "tuple[str, ...]", *, stacked: bool) -> bool:
    """Whether an adapter goes on this row. peft's `all-linear` is every linear layer but the head; `stacked` tells whether it reaches stacked experts and routers."""
    module = module_of(row)
    expert = (row.role == "router" and module != "shared_expert_gate") or row.role in _EXPERTS
    if row.op == "bias" or (expert and not stacked) or (row.role not in ("lm_head", "router", *_EXPERTS) and row.op not in ("linear", "transposed")):
        return False
    if stacked and not expert and module in _EXPERT_NAMES:
        return False
    if "all-linear" in targets and row.role != "lm_head":
        return True
    return module in targets or row.role in targets or _ALIASES.get(module, module) in targets


def adapter_dims(row: "Weight", rank: int) -> "tuple[tuple[int, int], ...]":
    """The two matrices of a row's adapter. Stacked experts get the rank once an expert; gate and up are one matrix there, of twice the rank (peft `ParamWrapper`)."""
    inputs, outputs = sides(row)
    if row.role == "expert_up" and row.copies > 1:
        return ()  # counted with its gate
    if row.role in ("expert_gate", "expert_gate_up") and row.copies > 1:
        rank, outputs = 2 * rank, outputs * (2 if row.role == "expert_gate" else 1)
    rank *= row.copies
    return ((inputs, rank), (rank, outputs))


def check_targets(census: Census, w: "TrainWorkload") -> None:
    """`Usage` where a rank is above a layer's width, or no layer has the name of a target."""
    if w.method not in ADAPTERS:
        return
    chosen = [row for row, _ in census.groups if adapted(row, w.targets, stacked=census.stacked)]
    if not chosen:
        raise Usage(f"no linear layer is called {', '.join(w.targets)}", hint="Give module names (q_proj), roles (q, v, o, gate, up, down) or all-linear.")
    widest = min(min(sides(row)) for row in chosen)
    if w.lora_rank > max(min(sides(row)) for row in chosen):
        raise Usage(
            f"--lora-rank {w.lora_rank} is above the width of every adapted layer (the narrowest is {widest})", hint="A rank above the width is no adapter."
        )


def linear(row: "Weight", bias: int, w: "TrainWorkload", *, stacked: bool) -> Linear:
    """The layer as the block writer sees it."""
    inputs, outputs = sides(row)
    rank = w.lora_rank if w.method in ADAPTERS and adapted(row, w.targets, stacked=stacked) else 0
    return Linear(inputs, outputs, bias, rank)


def trains(census: Census, index: "int | None", w: "TrainWorkload") -> bool:
    """Whether the weights of layer `index` (None = outside the layers) learn. freeze: the last `trainable_layers` layers only (LLaMA-Factory's meaning)."""
    if w.method in ADAPTERS:
        return False
    if w.method != "freeze":
        return True
    return index is not None and index >= len(census.shape.layers) - w.trainable_layers
