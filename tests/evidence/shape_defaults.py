"""Write src/brim/shapes/defaults.py: what transformers fills in for fields that a config.json leaves out, of the fields that brim reads.

Needs an environment with transformers:  python tests/evidence/shape_defaults.py
"""

import dataclasses
import os
import pathlib
import re
import sys
import textwrap

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
SHAPES = ROOT / "src" / "brim" / "shapes"
# never a shape: what the file itself must say, or what transformers adds on its own
SKIP = {"architectures", "id2label", "model_type", "num_labels", "quantization_config", "dtype"}
# older names that a config class takes in __post_init__ only
OLDER = {
    "RefinedWeb": {
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "num_kv_heads": "n_head_kv",
    },  # configuration_RW.py of Falcon's repositories
    "RefinedWebModel": {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
    "bloom": {"hidden_size": "n_embed"},
    "falcon": {"hidden_size": "n_embed"},
    # Qwen-7B as first published (configuration_qwen.py of its repository, September 2023)
    "qwen": {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "intermediate_size": "ffn_hidden_size"},
}
HEAD = '''"""Defaults that transformers gives to fields which a config.json leaves out, and the other spellings of fields; generated, never edited.

Source: transformers {version}, models/*/configuration_*.py (fields of the config classes that brim reads, `attribute_map`).
Made by `tests/evidence/shape_defaults.py`; defaults of None and False are left out, which is how absent fields read anyway.
"""

# fmt: off
'''


def words_read() -> "set[str]":
    """Every name that a room of shapes writes in quotes: the fields that it may read."""
    names: set[str] = set()
    for path in SHAPES.rglob("*.py"):
        if path.name != "defaults.py":
            names |= set(re.findall(r'"([A-Za-z_][A-Za-z0-9_]*)"', path.read_text()))
    return names | {half + end for half in ("encoder", "decoder") for end in ("_attention_heads", "_ffn_dim", "_layers")}


def of_class(config, names: "set[str]") -> "tuple[dict, dict]":
    """(defaults, other spellings) of one config class."""
    found, spelled = {}, {}
    renamed = config.attribute_map or {}
    for field in dataclasses.fields(config):
        if field.name in SKIP or (field.name not in names and field.name not in renamed.values()):
            continue
        value = field.default
        if value is dataclasses.MISSING:
            value = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
        if value is None or value is False:
            continue
        if isinstance(value, (int, float, str)) or (isinstance(value, (list, tuple)) and len(value) <= 64):
            found[field.name] = list(value) if isinstance(value, tuple) else value
    for name, other in renamed.items():
        if name in names and other in found and name not in found:
            found[name] = found[other] if other in names else found.pop(other)
        if name in names:
            spelled.setdefault(name, other)
        if other in names:
            spelled.setdefault(other, name)
    if getattr(config(), "tie_word_embeddings", False):
        found["tie_word_embeddings"] = True
    return dict(sorted(found.items())), spelled


def main() -> None:
    """Write the table."""
    import transformers
    from transformers import CONFIG_MAPPING

    from brim.shapes.families.registry import FAMILIES
    from brim.shapes.families.wrappers import EARS, TOWERS

    names = words_read()
    tables = {family: of_class(CONFIG_MAPPING[family], names) for family in sorted({*FAMILIES, *TOWERS, *EARS}) if family in CONFIG_MAPPING}
    for family, names_of in OLDER.items():
        tables.setdefault(family, ({}, {}))[1].update(names_of)
    lines = []
    for title, place in (('DEFAULTS: "dict[str, dict[str, object]]" = {', 0), ('SPELLINGS: "dict[str, dict[str, str]]" = {', 1)):
        lines.append(title)
        for family, row in sorted(tables.items()):
            if row[place]:
                text = f"{family!r}: {row[place]!r},".replace("'", '"')
                lines += textwrap.wrap(text, 158, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        lines.append("}")
    (SHAPES / "defaults.py").write_text(HEAD.format(version=transformers.__version__) + "\n".join(lines) + "\n")
    print(len(tables), "families,", len(lines), "lines")


if __name__ == "__main__":
    main()
