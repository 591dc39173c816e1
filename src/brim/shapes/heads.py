"""What stands on top of a decoder, as `architectures` says: a language-model head, a classifier, or nothing; it changes a finished blueprint."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

_CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification", "ForRewardModel")
_WRITERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForVision2Seq", "ForImageTextToText", "ForMultimodalLM")
_DECODERS = (*_WRITERS, *_CLASSIFIERS, "ForQuestionAnswering")
_ENCODERS = (
    "ForMaskedLM",
    "LMHeadModel",
    "ForCausalLM",
    "ForPreTraining",
    "ForNextSentencePrediction",
    "ForMultipleChoice",
    *_CLASSIFIERS,
    "ForQuestionAnswering",
)
_PAIRS = ("ForConditionalGeneration", "ForSeq2SeqLM")
# Classes that call a token's classifier otherwise than `score`, and those whose question-answering class calls its body otherwise than its other classes do (modeling_*.py).
_CLASSIFIER = frozenset(("bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "mpt"))
_TRANSFORMER = frozenset(("arcee", "exaone4", "llama", "ministral", "nemotron", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "seed_oss", "smollm3"))


def architecture_of(config: "Mapping[str, Any]") -> str:
    """The class that wrote the checkpoint, '' where the config does not say."""
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def labels_of(f: "Fields") -> int:
    """Number of classes: `num_labels`, else the length of `id2label`, else 2 (transformers, configuration_utils.py)."""
    if f.has("num_labels"):
        return f.whole("num_labels", 1, 1 << 20)
    table = f.raw("id2label")
    return len(table) if isinstance(table, dict) and table else 2


def known_head(b: "Blueprint", name: str, family: str) -> bool:
    """Whether the class `name` has a head that is drawn here or by the family's room; a class without `For` in its name has what its family has."""
    if name.endswith("DoubleHeadsModel"):
        return False
    stem, found, _ = name.rpartition("For")
    if not found or not stem or (name.endswith("Model") and not name.endswith(("LMHeadModel", "ForRewardModel"))):
        return True
    if not b.encoder_layers:
        return name.endswith(_DECODERS)
    if not b.layers:
        return name.endswith(_ENCODERS) or name.endswith(_PAIRS)
    more: tuple[str, ...] = {"bart": ("ForSequenceClassification", "ForQuestionAnswering"), "t5": ("ForSequenceClassification", "ForQuestionAnswering")}.get(
        "t5" if family in ("t5", "mt5", "umt5") else "bart" if family in ("bart", "mbart") else "", ()
    )
    return name.endswith((*_PAIRS, *more))


def apply_head(b: "Blueprint", config: "Mapping[str, Any]", f: "Fields", family: str) -> None:
    """Replace the language-model head of a decoder where the checkpoint was written by a class without one."""
    name = architecture_of(config)
    if b.encoder_layers or (not any(row.role == "lm_head" for row in b.weights) and not b.tied):
        return
    roots = {row.name.split(".")[0] for row in b.weights if row.role != "lm_head"}
    inside = len(roots) == 1 and any(row.role == "lm_head" and row.name.split(".")[0] in roots for row in b.weights)
    if name.endswith((*_CLASSIFIERS, "ForQuestionAnswering")):
        b.weights = [row for row in b.weights if row.role != "lm_head"]
        b.layer, token = None, name.endswith("ForTokenClassification")
        wide = next((row.dims[0] for row in b.weights if row.role == "embedding"), b.width)  # OPT's last projection leads back to it
        if name.endswith("ForQuestionAnswering"):
            if family in _TRANSFORMER:
                b.weights = [row.replace(name="transformer." + row.name.removeprefix("model.")) for row in b.weights]
            b.linear("qa_outputs", "classifier", wide, 2, bias=True)
        else:
            b.linear("classifier" if token and family in _CLASSIFIER else "score", "classifier", wide, labels_of(f), bias=token)
        b.unusual.append(f"a classifier ({name}) stands where the language-model head would")
    elif (
        name.endswith("Model") and not name.endswith("LMHeadModel") and not inside
    ):  # ChatGLM's bare model holds its head itself (modeling_chatglm.py, ChatGLMModel)
        root = roots.pop() + "." if len(roots) == 1 else ""
        b.weights = [row.replace(name=row.name.removeprefix(root)) for row in b.weights if row.role != "lm_head"]
        b.unusual.append(f"no language-model head ({name})")
