"""What stands on top of a decoder, as `architectures` says: a language-model head, a classifier, or nothing; it changes a finished blueprint."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields

_CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification", "ForRewardModel")


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


def apply_head(b: "Blueprint", config: "Mapping[str, Any]", f: "Fields") -> None:
    """Replace the language-model head of a decoder where the checkpoint was written by a class without one."""
    name = architecture_of(config)
    if b.encoder_layers or (not any(row.role == "lm_head" for row in b.weights) and not b.tied):
        return
    if name.endswith(_CLASSIFIERS):
        b.weights = [row for row in b.weights if row.role != "lm_head"]
        b.layer, token = None, name.endswith("ForTokenClassification")
        b.linear("score", "classifier", b.width, labels_of(f), bias=token)
        b.unusual.append(f"a classifier ({name}) stands where the language-model head would")
    elif name.endswith("Model") and not name.endswith(("LMHeadModel", "DoubleHeadsModel")):
        roots = {row.name.split(".")[0] for row in b.weights if row.role != "lm_head"}
        root = roots.pop() + "." if len(roots) == 1 else ""
        b.weights = [row.replace(name=row.name.removeprefix(root)) for row in b.weights if row.role != "lm_head"]
        b.unusual.append(f"no language-model head ({name})")
