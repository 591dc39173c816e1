"""A decoded Hugging Face config becomes a shape and a list of weights; what stands in it decides, never the model's name.

Guarantees: a config whose family is known gives a `Shape` and every weight of the published checkpoint; an unknown family, or one whose
fields do not suffice, gives `Missing` with the fields that are wanting; a field that cannot be true is a `BadHeader` with file, field and fault.
Not covered: the tokenizer, weights beside the config (`shapes/directory.py` compares them), code that a repository brings along.
"""

from brim.errors import BadHeader
from brim.facts.model import Shape
from brim.shapes.blueprint import Blueprint
from brim.shapes.families.registry import FAMILIES, SAME_FIELDS
from brim.shapes.fields import Fields
from brim.shapes.heads import apply_head, architecture_of, known_head
from brim.shapes.kinds import not_told
from brim.shapes.quantised import quantisation_of
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from brim.facts.model import Weight

_TOWERS = frozenset(("vision_config", "visual", "vision", "mm_vision_tower", "audio_config", "speech_config"))  # where a config describes what sees or hears
_USUAL = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


def shape_of_config(config: "Mapping[str, Any]", source: str = "config.json") -> "Shape | Missing":
    """The shape of the model that `config` describes; `source` names the file in errors."""
    return read(config, source)[0]


def tensor_table(config: "Mapping[str, Any]", source: str = "config.json") -> "tuple[Weight, ...]":
    """Every weight of the checkpoint that `config` describes, by its published name; empty where the shape is `Missing`."""
    return read(config, source)[1]


def read(config: "Mapping[str, Any]", source: str = "config.json") -> "tuple[Shape | Missing, tuple[Weight, ...]]":
    """Shape and weights at once (`shape_of_config` and `tensor_table` are its halves)."""
    if not isinstance(config, dict):
        raise BadHeader(f"{source}: the config is no JSON object")
    model_type = config.get("model_type")
    if model_type is not None and (not isinstance(model_type, str) or len(model_type) > 200):
        raise BadHeader(f"{source}: model_type must be a word")
    name = model_type or _by_architecture(config)
    if name == "minimax" and str(config.get("architectures")).startswith("['MiniMaxM2"):
        name = "minimax_m2"  # M2 was first published under the older model_type
    own = name not in FAMILIES and _by_architecture(config) in FAMILIES
    if own:
        name = _by_architecture(config)  # a model_type of the maker's own, written by a class that is known
    if name not in FAMILIES:
        return not_told(name or "(none given)", [key for key in _USUAL if key not in config]), ()
    if FAMILIES[name][0] == "wrappers":
        from brim.shapes.families.wrappers import text_alone

        name = text_alone(config, name) or name
    b = Blueprint(source)
    f = fields_of(config, source, name)
    if own:
        f.defaults = {}  # what the maker's own config class fills in is not known: every field must stand in the file
    draw(name, f, b)
    if FAMILIES[name][0] != "wrappers" and not _TOWERS.isdisjoint(config):
        from brim.shapes.families.wrappers import towers_beside

        towers_beside(config, f, b)
    if f.wanting:
        return Missing(reason="not_supported", detail=f"{name}: the config lacks {', '.join(sorted(set(f.wanting)))}"), ()
    top = architecture_of(config)
    if not known_head(b, top, name):
        return Missing(reason="not_supported", detail=f"{name}: architectures names {top[:80]}, whose head is not known to brim"), ()
    return _shape(name, f, b, config), tuple(b.weights)


def fields_of(config: "Mapping[str, Any]", source: str, name: str, path: str = "") -> Fields:
    """The config's fields with the defaults and the other spellings of its family."""
    from brim.shapes.defaults import DEFAULTS, SPELLINGS

    known = SAME_FIELDS.get(name, name)
    return Fields(config, source, DEFAULTS.get(known, {}), path, SPELLINGS.get(known, {}))


def draw(name: str, f: Fields, b: Blueprint) -> None:
    """Let the family's own function draw the model."""
    from importlib import import_module

    room, function = FAMILIES[name]
    getattr(import_module(f"brim.shapes.families.{room}"), function)(f, b)


def _by_architecture(config: "Mapping[str, Any]") -> str:
    """Old configs have no model_type: the class name says the family (`LlamaForCausalLM` → llama)."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        return ""
    stem = names[0].split("For")[0].removesuffix("Model").removesuffix("LMHead").lower()
    return next((name for name in FAMILIES if name.replace("_", "").replace("-", "") == stem), names[0][:80])


def _shape(name: str, f: Fields, b: Blueprint, config: "Mapping[str, Any]") -> Shape:
    apply_head(b, config, f, name)
    unusual = list(b.unusual)
    if f.assumed:
        unusual.append(f"not in the file, transformers' default taken: {', '.join(dict.fromkeys(f.assumed))}")
    return Shape(
        architecture=name,
        vocabulary=b.vocabulary,
        width=b.width,
        layers=tuple(b.layers),
        encoder_layers=tuple(b.encoder_layers),
        encoder_width=b.encoder_width,
        vision=b.vision,
        audio=b.audio,
        context_trained=b.context if b.context else Missing(reason="not_supported", detail="the config does not say"),
        tied_embeddings=b.tied,
        parameters=_counted(b, b.elements() - b.elements("draft")),
        active_parameters=_counted(b, sum(row.active for row in b.weights if row.tower != "draft")),
        draft_layers=b.draft_layers,
        quantisation=quantisation_of(config, f.source),
        unusual=tuple(unusual),
    )


def _counted(b: Blueprint, count: int) -> "int | Missing":
    """`count`, unless a tower was seen that brim cannot count."""
    for tower in (b.vision, b.audio):
        if tower is not None and isinstance(tower.parameters, Missing):
            return tower.parameters
    return count
