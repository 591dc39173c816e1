"""Models that see or hear: a text model under `text_config` (older files: at the top) beside a tower, under names that each wrapper chooses.

Guarantee: the text model is read by its own family's room; a tower or projector without a room makes the whole count `Missing`, never smaller.
"""

from brim.facts.model import Tower
from brim.shapes.families import ears, projectors, vision
from brim.shapes.families.registry import FAMILIES
from brim.shapes.fields import Fields
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from brim.shapes.blueprint import Blueprint

_UNDER = ("language_model.model.", "language_model.lm_head")
_INSIDE = ("model.language_model.", "lm_head")
_FLAT = ("model.", "lm_head")
_TEXT = ("model.text_model.", "lm_head")
_THINKER = ("thinker.model.", "thinker.lm_head")
_SEEN = "vision_tower.vision_model."

# wrapper → (text family where text_config names none, where the text's `model.` and `lm_head` go, tower family where it names none, its place, projector)
# A wrapper without a place for its tower has a tower or a projector that no room draws.
WRAPPERS: "dict[str, tuple[str, tuple[str, str], str, str, projectors.Projector | None]]" = {
    "aya_vision": ("cohere2", _UNDER, "siglip_vision_model", _SEEN, projectors.aya),
    "cohere2_vision": ("cohere2", _INSIDE, "siglip_vision_model", "model." + _SEEN, projectors.cohere2),
    "deepseek_vl": ("llama", _INSIDE, "siglip_vision_model", "model.vision_model.vision_model.", projectors.deepseek),
    "gemma3": ("gemma3_text", _UNDER, "siglip_vision_model", _SEEN, projectors.gemma3),
    "gemma3n": ("gemma3n_text", _INSIDE, "", "", None),
    "gemma4": ("gemma4_text", _INSIDE, "gemma4_vision", "model.vision_tower.", projectors.gemma4),
    "glm46v": ("glm4v_text", _INSIDE, "glm4v_vision", "model.visual.", None),
    "glm4v": ("glm4v_text", _INSIDE, "glm4v_vision", "model.visual.", None),
    "glm4v_moe": ("glm4v_moe_text", _INSIDE, "glm4v_moe_vision", "model.visual.", None),
    "granite_speech": ("granite", _UNDER, "", "", None),
    "idefics3": ("llama", _TEXT, "idefics3_vision", "model.vision_model.", projectors.idefics),
    "internvl": ("qwen2", _UNDER, "internvl_vision", "vision_tower.", projectors.internvl),
    "internvl_chat": ("qwen2", _UNDER, "", "", None),
    "kimi_k25": ("deepseek_v3", _UNDER, "kimi_k25_vision", "vision_tower.", projectors.kimi_k25),
    "kimi_vl": ("deepseek_v3", _UNDER, "moonvit", "vision_tower.", projectors.kimi_vl),
    "lfm2_vl": ("lfm2", _INSIDE, "siglip2_vision_model", "model." + _SEEN, projectors.lfm2),
    "llama4": ("llama4_text", _UNDER, "llama4_vision_model", "vision_model.", projectors.llama4),
    "llava": ("llama", _UNDER, "clip_vision_model", _SEEN, projectors.llava),
    "lighton_ocr": ("qwen3", _INSIDE, "pixtral", "model.vision_encoder.", projectors.lighton),
    "llava_next": ("llama", _UNDER, "clip_vision_model", _SEEN, projectors.llava_next),
    "llava_next_video": ("llama", _UNDER, "clip_vision_model", _SEEN, projectors.llava_next),
    "llava_onevision": ("qwen2", _UNDER, "siglip_vision_model", _SEEN, projectors.llava_next),
    "mistral3": ("mistral", _UNDER, "pixtral", "vision_tower.", projectors.mistral3),
    "mllama": ("mllama_text_model", _UNDER, "mllama_vision_model", "vision_model.", projectors.mllama),
    "paligemma": ("gemma", _UNDER, "siglip_vision_model", _SEEN, projectors.paligemma),
    "qwen2_audio": ("qwen2", _UNDER, "", "", None),
    "phi4_multimodal": ("phi3", _FLAT, "phi4_multimodal_vision", "", None),
    "phi4mm": ("phi3", _FLAT, "phi4mm_vision", "", None),
    "qwen2_5_omni": ("qwen2", _THINKER, "qwen2_5_omni_vision", "", None),
    "qwen2_5_vl": ("qwen2_5_vl_text", _FLAT, "qwen2_5_vl_vision", "visual.", None),
    "qwen2_vl": ("qwen2_vl_text", _FLAT, "qwen2_vl_vision", "visual.", None),
    "qwen3_5": ("qwen3_5_text", _INSIDE, "qwen3_5_vision", "model.visual.", None),
    "qwen3_5_moe": ("qwen3_5_moe_text", _INSIDE, "qwen3_5_moe_vision", "model.visual.", None),
    "qwen3_omni_moe": ("qwen3_moe", _THINKER, "qwen3_omni_moe_vision", "", None),
    "qwen3_vl": ("qwen3_vl_text", _INSIDE, "qwen3_vl_vision", "model.visual.", None),
    "qwen3_vl_moe": ("qwen3_vl_moe_text", _INSIDE, "qwen3_vl_moe_vision", "model.visual.", None),
    "smolvlm": ("llama", _TEXT, "smolvlm_vision", "model.vision_model.", projectors.idefics),
    "vipllava": ("llama", _UNDER, "clip_vision_model", _SEEN, projectors.vipllava),
    "voxtral": ("llama", _UNDER, "", "", None),
}

TOWERS: "dict[str, Callable[[Fields, Blueprint, str], None]]" = {
    "clip_vision_model": vision.clip,
    "gemma4_vision": vision.gemma4,
    "glm4v_moe_vision": vision.glm4v,
    "glm4v_vision": vision.glm4v,
    "idefics3": vision.idefics,
    "idefics3_vision": vision.idefics,
    "internvl_vision": vision.internvl,
    "kimi_k25_vision": vision.moonvit,
    "llama4_vision_model": vision.llama4,
    "mllama_vision_model": vision.mllama,
    "moonvit": vision.moonvit,
    "pixtral": vision.pixtral,
    "qwen2_5_vl": vision.qwen2_5,
    "qwen2_5_vl_vision": vision.qwen2_5,
    "qwen2_vl": vision.qwen2,
    "qwen2_vl_vision": vision.qwen2,
    "qwen3_5": vision.qwen3,
    "qwen3_5_moe": vision.qwen3,
    "qwen3_5_moe_vision": vision.qwen3,
    "qwen3_5_vision": vision.qwen3,
    "qwen3_vl": vision.qwen3,
    "qwen3_vl_moe": vision.qwen3,
    "qwen3_vl_moe_vision": vision.qwen3,
    "qwen3_vl_vision": vision.qwen3,
    "siglip2_vision_model": vision.siglip2,
    "siglip_vision_model": vision.siglip,
    "smolvlm_vision": vision.idefics,
}

NESTED = ("llama4",)  # wrappers whose text half is a whole model with a head of its own (models/*/modeling_*.py, `self.language_model = …ForCausalLM`)
OPTIONAL = ("gemma4_vision",)  # towers that a config without `vision_config` does not have; the others are there with all their defaults

EARS: "dict[str, Callable[[Fields, Blueprint, int], None]]" = {
    "gemma4_audio": ears.gemma4,
    "qwen2_audio_encoder": ears.qwen2_audio,
    "voxtral_encoder": ears.voxtral,
}


def wrapper(f: "Fields", b: "Blueprint") -> None:
    """Text first, then the tower and its projector."""
    name = str(f.values.get("model_type"))
    family, (body, head), tower, place, project = WRAPPERS.get(name, ("", _UNDER, "", "", None))
    if f.has("mm_vision_tower"):
        _apart(f, b)
        return
    _text(f, b, family, body, head)
    v = f.section("vision_config")
    if v is None and f.raw("vision_config") is None and (not tower or tower in OPTIONAL):
        audio(f, b)
        return
    b.tower, kind = "vision", (v.word("model_type") if v is not None else "") or tower
    room = (TOWERS.get(kind) or TOWERS.get(tower)) if place else None
    if room is None:
        b.vision = _unknown("vision", kind)
        b.unusual.append(f"the vision tower ({kind or 'unnamed'}) is not known to brim and not counted")
    else:
        place = place.removesuffix("vision_model.") if room is vision.pixtral else place  # this class has no level of its own (PixtralVisionModel)
        seen = _with_defaults(f, v, _class_of(kind if kind in TOWERS else tower))
        room(seen, b, place)
        f.wanting.extend(seen.wanting)
        if project is not None and b.vision is not None:
            project(f, b, b.vision.width, b.width)
            b.vision = b.vision.replace(parameters=b.elements("vision"))
    b.tower = "text"
    audio(f, b)


def text_alone(config: "Mapping[str, Any]", name: str) -> str:
    """The text family where a file of the wrapper's model_type was written by the text half's own class and holds nothing else (`Gemma3ForCausalLM`), else ''."""
    names, (family, place, *_rest) = config.get("architectures"), WRAPPERS[name]
    written = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    halves = any(
        isinstance(config.get(key), dict) for key in ("text_config", "llm_config", "language_config", "thinker_config", "vision_config", "audio_config")
    )
    return family if place is not _FLAT and not halves and written.lower() == name.replace("_", "") + "forcausallm" else ""


def _apart(f: "Fields", b: "Blueprint") -> None:
    """LLaVA's own first layout (its llava/model, `LlavaLlamaForCausalLM`): the text model's fields and names, and a tower that `mm_vision_tower` names.

    The tower lies in a checkpoint of its own or in this one, which the config does not say: it is not counted.
    """
    names = f.raw("architectures")
    word = names[0].split("For")[0].lower() if isinstance(names, list) and names and isinstance(names[0], str) else ""
    family = {"llavallama": "llama", "llavamistral": "mistral", "llavaqwen": "qwen2", "llavamixtral": "mixtral"}.get(word)
    if family is None:
        f.wanting.append("text_config")
        return
    _text(f, b, family, *_FLAT)
    stranger(f, b, "vision", str(f.raw("mm_vision_tower"))[:80])


def stranger(f: "Fields", b: "Blueprint", kind: str, name: str) -> None:
    """A tower that no room draws: told, and the count is `Missing`."""
    b.vision = _unknown(kind, name)
    b.unusual.append(f"the {kind} tower ({name}) is not known to brim and not counted")


# Sections that describe a tower; a text family that is no wrapper draws none of them (Qwen-VL's `visual`, GLM-4V-9B's `vision_config`).
_TOWER_SECTIONS = {
    "vision_config": "vision",
    "visual": "vision",
    "vision": "vision",
    "mm_vision_tower": "vision",
    "audio_config": "audio",
    "speech_config": "audio",
}


def towers_beside(config: "Mapping[str, Any]", f: "Fields", b: "Blueprint") -> None:
    """A tower in the config of a family that draws text alone makes the count `Missing`, never smaller than it is."""
    for key, kind in _TOWER_SECTIONS.items():
        value = config.get(key)
        if value and isinstance(value, (dict, str)) and b.vision is None:
            stranger(f, b, kind, key)


def _unknown(kind: str, name: str) -> Tower:
    missing = Missing(reason="not_supported", detail=f"{kind} tower {name or 'without a model_type'}")
    return Tower(kind=kind, width=0, layers=(), parameters=missing)


def audio(f: "Fields", b: "Blueprint") -> None:
    """The ear, where there is one; one that no room draws is told and makes the count `Missing`."""
    for name in ("audio_config", "encoder_config"):
        heard = f.section(name)
        if heard is None:
            continue
        kind = heard.word("model_type")
        if kind in EARS:
            b.tower = "audio"
            told = _with_defaults(f, heard, kind, name)
            EARS[kind](told, b, b.width)
            f.wanting.extend(told.wanting)
            b.tower = "text"
        if kind not in EARS or b.audio is None:
            b.audio = _unknown("audio", kind)
            b.unusual.append(f"the audio tower ({kind or 'unnamed'}) is not known to brim and not counted")
        else:
            b.audio = b.audio.replace(parameters=b.elements("audio"))


def _class_of(kind: str) -> str:
    """The tower's own class where a file calls it by the wrapper's name (Qwen2-VL's published `vision_config` says `qwen2_vl`, and little else)."""
    own = WRAPPERS[kind][2] if kind in WRAPPERS else ""
    return own if own in TOWERS else kind


def _with_defaults(f: "Fields", v: "Fields | None", kind: str, name: str = "vision_config") -> Fields:
    from brim.shapes.defaults import DEFAULTS, SPELLINGS

    return Fields(v.values if v is not None else {}, f.source, DEFAULTS.get(kind, {}), f"{f.path}{name}.", SPELLINGS.get(kind, {}))


def _tied(f: "Fields", values: "Mapping[str, Any]", kind: str, *, own: bool) -> bool:
    """Whether head and embedding are one. transformers 4 asked the text config, version 5 asks the wrapper's; each leaves out what is its default.

    A file without a version: what it says wins, the wrapper's word first. Llama 4 holds a whole causal model of its own, which asks the text config always.
    A default gives way to what either config says: the text classes' own defaults changed between the versions (Qwen3-VL-MoE: false in 4.57, true in 5.24).
    """
    from brim.shapes.defaults import DEFAULTS

    version = f.word("transformers_version")
    text = bool(values.get("tie_word_embeddings", DEFAULTS.get(kind, {}).get("tie_word_embeddings", False)))
    nested = str(f.values.get("model_type")) in NESTED
    if own and (nested or (version.startswith("4.") and ("tie_word_embeddings" in values or not f.has("tie_word_embeddings")))):
        return text
    if version or f.has("tie_word_embeddings") or "tie_word_embeddings" not in values:
        return f.flag("tie_word_embeddings")
    return text


def _text(f: "Fields", b: "Blueprint", family: str, body: str, head: str) -> None:
    from importlib import import_module

    from brim.shapes.defaults import DEFAULTS, SPELLINGS

    thinker = f.section("thinker_config")
    t = f.section("text_config") or f.section("llm_config") or f.section("language_config") or (thinker.section("text_config") if thinker else None)
    values = t.values if t is not None else {key: value for key, value in f.values.items() if key != "model_type"}
    if t is None and "hidden_size" not in values and "num_hidden_layers" not in values and "hidden_size" not in f.defaults:
        f.wanting.append("text_config")
        return
    kind = (t.word("model_type") if t is not None else "") or family
    if kind not in FAMILIES or FAMILIES[kind][0] == "wrappers":
        kind = family
    if not kind:
        f.wanting.append("text_config.model_type")
        return
    defaults = f.defaults if t is None and "hidden_size" in f.defaults else DEFAULTS.get(kind, {})  # the wrapper is the text config too
    inner = Fields(values, f.source, defaults, t.path if t is not None else f.path, SPELLINGS.get(kind, {}))
    inner.values = {**values, "tie_word_embeddings": _tied(f, values, kind, own=t is not None)}
    if kind == "gemma" and "vocab_size" not in values and f.has("vocab_size"):
        inner.values = {**inner.values, "vocab_size": f.raw("vocab_size")}
    room, function = FAMILIES[kind]
    getattr(import_module(f"brim.shapes.families.{room}"), function)(inner, b)
    f.wanting.extend(inner.wanting)
    f.assumed.extend(inner.assumed)
    for index, row in enumerate(b.weights):
        name = row.name
        if name.startswith("model."):
            name = body + name[6:]
        elif name.startswith("lm_head"):
            name = head + name[7:]
        if name != row.name:
            b.weights[index] = row.replace(name=name)
