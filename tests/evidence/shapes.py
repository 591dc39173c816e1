"""Hold brim's shapes against transformers on the meta device: parameters, every tensor's name and dims, cache widths; writes docs/evidence/shapes.md.

Needs an environment with torch and transformers (brim itself needs neither); with timm in it Gemma 3n is built too:
    python tests/evidence/shapes.py [--random 6] [--seed 1] [--golden]
For every family: the config's defaults, published configs, and small odd ones; each read twice, once with only the fields that differ (brim fills the
defaults) and once with all of them. Published names come from transformers' own reverse conversion (`revert_weight_conversion`).
"""

import argparse
import concurrent.futures
import datetime
import hashlib
import importlib
import json
import os
import pathlib
import platform
import random
import re
import sys
import tempfile
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

from shape_cases import AROUND, CHOICES, NEEDED, PUBLISHED, small, small_tower  # noqa: E402

from brim.errors import BrimError  # noqa: E402
from brim.shapes.config import read  # noqa: E402
from brim.shapes.families.registry import FAMILIES  # noqa: E402
from brim.shapes.families.wrappers import WRAPPERS  # noqa: E402
from brim.values import Missing  # noqa: E402

# What brim says differently on purpose, and why (counted as a miss in the table all the same where it changes a number).
KNOWN = {
    "qwen2_vl": "the bare model's published text names (language_model.) differ from the whole model's, whose names brim gives",
    "qwen2_5_vl": "the bare model's published text names (language_model.) differ from the whole model's, whose names brim gives",
    "mllama": "these odd configs ask for two tiles, which transformers' validator takes only with aspect ratios of their own",
    "qwen3_omni_moe": "transformers' default talker config lacks a field that its own model reads (shared_expert_intermediate_size)",
    "kimi_k25": "transformers' own reverse conversion misspells layers (blocks) and the projector's norm; the published names are kept",
    "kimi_linear": "transformers writes layer 0's plain block as block_sparse_moe; the published code calls it mlp",
    "longcat_flash": "transformers gives the experts that do nothing gate and up weights; the published file has none",
    "qwen3_vl_moe": "transformers 5 turns the stacked experts round; published files keep the width first",
    "qwen3_vl_moe_text": "transformers 5 turns the stacked experts round; published files keep the width first",
    "glm4v_moe_text": "transformers separates the experts only inside the wrapper (glm4v_moe), as the published file has them",
    "falcon": "transformers repeats grouped heads before it caches them; brim gives the model's own heads",
    "helium": "transformers gives the output projection hidden_size inputs; it runs only where that is heads × head_dim",
    "mt5": "transformers 5 ties T5's head always; published untied files carry it",
}
PREFER = {
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "xlm-roberta": "XLMRobertaForMaskedLM",
    "camembert": "CamembertForMaskedLM",
    "whisper": "WhisperForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "albert": "AlbertForMaskedLM",
    "electra": "ElectraForMaskedLM",
    "pegasus": "PegasusForConditionalGeneration",
    "marian": "MarianMTModel",
    "blenderbot": "BlenderbotForConditionalGeneration",
    "blenderbot-small": "BlenderbotSmallForConditionalGeneration",
    "mllama_text_model": "MllamaForCausalLM",
    "qwen2_5_omni": "Qwen2_5OmniForConditionalGeneration",
    "qwen3_omni_moe": "Qwen3OmniMoeForConditionalGeneration",
}


def model_class(family, config, wanted=None):
    """The class that writes this family's checkpoints."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    if wanted or family in PREFER:
        return getattr(transformers, wanted or PREFER[family])
    tables = [auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES]
    tables += [auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, auto.MODEL_MAPPING_NAMES]
    if getattr(config, "text_config", None) is not None:
        tables.insert(0, tables.pop(1))
    for table in tables:
        if family in table:
            name = table[family]
            return getattr(transformers, name if isinstance(name, str) else name[0])
    raise LookupError(family)


def build(family, fields, wanted=None, device="meta"):
    """(config, model) of transformers."""
    import torch
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING[family](**fields)
    with torch.device(device):
        return config, model_class(family, config, wanted)(config)


def directory(model):
    """Published name → dims of everything that the model would save; and the names that are no parameters."""
    from transformers.core_model_loading import revert_weight_conversion

    parameters = dict(model.named_parameters(remove_duplicate=True))
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    tied = getattr(model, "_tied_weights_keys", None) or {}
    for name, source in tied.items() if isinstance(tied, dict) else ():
        if name in parameters and source not in parameters and source in every:
            parameters[source] = parameters.pop(name)
    saved = {**parameters, **{name: tensor for name, tensor in model.state_dict().items() if name not in every}}
    saved = revert_weight_conversion(model, saved)
    return {name: tuple(tensor.shape) for name, tensor in saved.items()}


def drawn(rows):
    """Name → dims of brim's rows, experts spelled out, layers for multi-token prediction left out (transformers ignores them)."""
    made = {}
    for row in rows:
        if row.tower == "draft":
            continue
        for number in range(row.copies):
            name = row.name.replace("{}", str(number))
            assert name not in made, f"{name} twice"
            made[name] = tuple(reversed(row.dims))
    return made


def compare(family, config, model, given, theirs=None):
    """What differs between brim's reading of `given` and the model (its `directory`, where that is at hand): a list of words, empty where nothing does."""
    shape, rows = read(given, f"{family}.json")
    if isinstance(shape, Missing):
        return [f"Missing: {shape.detail}"]
    theirs, ours = theirs or directory(model), drawn(rows)
    for place in ("vision_tower.", "vision_model."):  # transformers 5 dropped a level that published files have
        if any(place + "embeddings" in name for name in theirs) and not any(place + "vision_model." in name for name in theirs):
            ours = {name.replace(place + "vision_model.", place): dims for name, dims in ours.items()}
    total, mine = sum(p.numel() for p in model.parameters()), sum(row.elements for row in rows if row.op != "buffer" and row.tower != "draft")
    wrong = [] if total == mine else [f"parameters {mine} for {total}"]
    if isinstance(shape.parameters, Missing):  # a tower that brim does not know: only the text model is held against its oracle
        return text_only(theirs, rows)
    for word, names in (("missing", set(theirs) - set(ours)), ("extra", set(ours) - set(theirs))):
        if names:
            alike = sorted({re.sub(r"\.\d+(?=\.|$)", ".#", name) for name in names})
            wrong.append(f"{len(names)} {word}: {', '.join(alike[:3])}")
    other = [name for name in theirs if name in ours and theirs[name] != ours[name]]
    if other:
        wrong.append(f"{len(other)} other dims: {other[0]} {ours[other[0]]} for {theirs[other[0]]}")
    return wrong


def text_only(theirs, rows):
    """What differs between the text tensors of a model with an unknown tower; the count itself is Missing, and said to be."""
    ours = drawn([row for row in rows if row.tower == "text"])
    if any(name.startswith("thinker.") for name in ours):  # the other half speaks
        theirs = {name: dims for name, dims in theirs.items() if name.startswith("thinker.")}
    theirs = {name: dims for name, dims in theirs.items() if not re.search("vision|visual|audio|tower|projector|encoder", name)}
    ends = {
        re.sub(r"^.*?(?=layers\.|blocks\.|embed_tokens|(?<![a-z_])norm\.|lm_head)", "", name).replace("blocks.", "layers."): dims
        for name, dims in theirs.items()
    }
    wrong = [name for name, dims in ours.items() if ends.get(re.sub(r"^.*?(?=layers\.|embed_tokens|(?<![a-z_])norm\.|lm_head)", "", name)) != dims]
    return [f"{len(wrong)} text tensors differ: {wrong[0]}"] if wrong else []


def caches(family, config, model, given):
    """What differs between brim's layers and the cache that transformers fills in a short run on the CPU; None where it cannot run."""
    import torch

    tokens = torch.arange(2, 14).reshape(1, -1)
    shape, _rows = read(given, f"{family}.json")
    try:
        with torch.no_grad():
            cache = model(input_ids=tokens, use_cache=True).past_key_values
    except Exception:
        return None
    rows = getattr(cache, "layers", None)
    if not rows or isinstance(shape, Missing):
        return None
    kept = [layer for layer in shape.layers if layer.attention is not None or layer.state is not None or layer.feed_forward is None]
    wrong = []
    for layer in kept:
        if layer.index >= len(rows):
            continue
        row, a = rows[layer.index], layer.attention
        keys, values = getattr(row, "keys", None), getattr(row, "values", None)
        if a is not None and a.shares_cache_of is None and keys is not None and keys.dim() == 4 and keys.numel():
            seen = (keys.shape[1] * keys.shape[3], values.shape[1] * values.shape[3])
            told = (a.kv_heads * a.key_dim, a.kv_heads * a.value_dim)
            if a.kind == "latent" and seen != told:  # newer attention keeps the latent itself
                told = (a.latent_rank, a.rope_dim)
                seen = seen if seen == told else (seen[1], seen[0])
            if seen != told:
                wrong.append(f"layer {layer.index}: cache {seen} for {told}")
        window = getattr(row, "sliding_window", None)
        if a is not None and a.kind in ("sliding", "chunked") and isinstance(window, int) and window != a.window:
            wrong.append(f"layer {layer.index}: window {window} for {a.window}")
        if a is not None and a.kind == "full" and isinstance(window, int) and getattr(row, "is_sliding", False):
            wrong.append(f"layer {layer.index}: transformers slides over {window}")
        state = getattr(row, "recurrent_states", None)
        if layer.state is not None and isinstance(state, torch.Tensor) and layer.state.state_elements != state[0].numel():
            wrong.append(f"layer {layer.index}: state {state[0].numel()} for {layer.state.state_elements}")
    return wrong


def cases(family, rounds, seed):
    """(kind, name, fields, class) of every config to try."""
    from transformers import CONFIG_MAPPING

    known = getattr(CONFIG_MAPPING[family], "__dataclass_fields__", {})
    spelled = getattr(CONFIG_MAPPING[family], "attribute_map", {}) or {}
    names = set(known) | {name for name, other in spelled.items() if other not in CHOICES or other not in known}
    yield "default", "defaults", dict(NEEDED.get(family, {})), None
    for name, config in PUBLISHED.items():
        if config["model_type"] == family:
            wanted = (config.get("architectures") or [None])[0]
            yield "published", name, {key: value for key, value in config.items() if key not in ("model_type", "architectures")}, wanted
    for turn in range(rounds):
        rng = random.Random(f"{seed}/{family}/{turn}")
        if family in WRAPPERS and "hidden_size" not in names:
            if "text_config" not in names:
                return
            yield "odd wrapper", f"odd {turn}", wrapped(family, rng), None
            continue
        yield "odd", f"odd {turn}", {**NEEDED.get(family, {}), **small(family, names, rng), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}, None


def fields_of(family):
    """The fields that a config class of transformers has."""
    from transformers import CONFIG_MAPPING

    return set(getattr(CONFIG_MAPPING[family], "__dataclass_fields__", {})) if family in CONFIG_MAPPING else set()


def wrapped(family, rng):
    """A small odd config of a wrapper: a small text model and a small tower, each from the fields that its class has."""
    text, _names, tower = WRAPPERS[family][:3]
    if not tower:
        return {"text_config": {"model_type": text, **small(text, fields_of(text), rng), "pad_token_id": 0}}
    made = {"text_config": {"model_type": text, **small(text, fields_of(text), rng), "pad_token_id": 0}}
    made["vision_config"] = {"model_type": tower, **small_tower(tower, fields_of(tower), made["text_config"].get("hidden_size", 64), rng)}
    if family == "gemma4" and rng.random() < 0.5:
        made["audio_config"] = {"model_type": "gemma4_audio", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "output_proj_dims": 48}
    return {**made, **{name: rng.choice(values) for name, values in AROUND.items() if name in fields_of(family)}}


def plain(config):
    """A config of transformers as the JSON that it would save."""
    return json.loads(json.dumps(config.to_dict(), default=str))


def check(family, rounds, seed):
    """One row of the table, and golden facts of the configs that agree."""
    counts = ("tried", "refused", "counted", "agree", "tops", "tops_agree", "tops_untold", "cached", "cache_agree", "saved", "saved_agree")
    row = {"family": family, "misses": [], **dict.fromkeys(counts, 0)}
    golden = []
    for kind, name, fields, wanted in cases(family, rounds, seed):
        try:
            config, model = build(family, fields, wanted)
        except Exception as error:
            row["refused"] += 1
            if kind != "odd":
                row["misses"].append(f"{name}: transformers cannot build it ({type(error).__name__})")
            continue
        top = {"model_type": family, "architectures": [type(model).__name__]}
        forms = {"all fields": {**plain(config), **top}}
        if (getattr(config, "text_config", None) is None and getattr(config, "thinker_config", None) is None) or kind == "published":
            forms["own fields"] = {**fields, **top}
        for form, given in forms.items():
            row["tried"] += 1
            try:
                wrong = compare(family, config, model, json.loads(json.dumps(given, default=str)))
            except BrimError as error:
                wrong = [f"{type(error).__name__}: {error}"]
            row["counted"] += not any(word.startswith(_NO_COUNT) for word in wrong)
            if wrong:
                row["misses"].append(f"{name}, {form}: {'; '.join(wrong)}")
            else:
                row["agree"] += 1
        if kind == "published" and not wrong:
            golden.append(fact(name, forms["own fields"]))
        if kind == "odd":
            odd_cache(row, family, fields, wanted, name, forms.get("own fields", forms["all fields"]))
    tops(row, family, seed)
    return row, golden


_NO_COUNT = ("parameters", "Missing", "BadHeader")  # words of a comparison that say that the count itself is not equal


def tops(row, family, seed):
    """Every other class that transformers has for this config (classifiers, question answerers, bare models), each with one small config."""
    import torch
    import transformers
    from transformers import CONFIG_MAPPING, PreTrainedModel

    kind = CONFIG_MAPPING[family]
    try:
        room = importlib.import_module(kind.__module__.replace("configuration_", "modeling_"))
    except ModuleNotFoundError:  # a config whose classes are another family's
        return
    rng, names = random.Random(f"{seed}/{family}/tops"), fields_of(family)
    if family in WRAPPERS and not names & {"hidden_size", "text_config"}:
        return
    fields = wrapped(family, rng) if family in WRAPPERS and "hidden_size" not in names else small(family, names, rng)
    for name, made in vars(room).items():
        abstract = name.endswith(("PreTrainedModel", "PretrainedModel", "ForTextEncoding")) or "PreTrainedModelFor" in name or name.startswith("Pretrained")
        if not isinstance(made, type) or not issubclass(made, PreTrainedModel) or made.config_class is not kind or abstract or not hasattr(transformers, name):
            continue
        try:
            config = kind(**{**NEEDED.get(family, {}), **fields, "pad_token_id": 0})
            with torch.device("meta"):
                model = made(config)
        except Exception:
            continue
        given = json.loads(json.dumps({**plain(config), "model_type": family, "architectures": [name]}, default=str))
        try:
            wrong = compare(family, config, model, given)
        except BrimError as error:
            wrong = [f"{type(error).__name__}: {error}"]
        row["tops"] += 1
        row["tops_agree"] += not wrong
        row["tops_untold"] += bool(wrong) and wrong[0].startswith("Missing")
        if wrong and not wrong[0].startswith("Missing"):
            row["misses"].append(f"{name}: {'; '.join(wrong)}")


def strangers():
    """Families of transformers that brim does not know, each read with all its fields under each class that it has: (all of them, what is read wrongly, what is read rightly by its class)."""
    import torch
    import transformers
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto

    tables = [value for name, value in vars(auto).items() if name.startswith("MODEL_FOR_") and name.endswith("_MAPPING_NAMES")]
    found, wrong, right = [], [], []
    for family in CONFIG_MAPPING:
        classes = {name for table in tables if family in table for name in (table[family] if isinstance(table[family], (list, tuple)) else [table[family]])}
        if family in FAMILIES or not classes:
            continue
        try:
            given = plain(CONFIG_MAPPING[family]())
        except Exception:
            continue
        found.append(family)
        for name in sorted({made for made in classes if made and hasattr(transformers, made)} | {""}):
            told = {**given, "model_type": family, "architectures": [name] if name else None}
            try:
                shape, _rows = read(json.loads(json.dumps(told, default=str)), f"{family}.json")
            except BrimError:
                continue
            if isinstance(shape, Missing):
                continue
            try:
                config = CONFIG_MAPPING[family]()
                with torch.device("meta"):
                    differs = compare(family, config, getattr(transformers, name)(config), json.loads(json.dumps(told, default=str)))
            except Exception as error:
                differs = [f"{type(error).__name__}"]
            (wrong if differs else right).append(f"{family} ({name}{': ' + differs[0][:60] if differs else ''})")
    return found, wrong, right


def saved(model):
    """What differs between the files that transformers writes for a model and brim's reading of the folder; None where it cannot write them."""
    from brim.checkpoint import open_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        try:
            model.save_pretrained(folder)
        except Exception:
            return None
        checkpoint = open_checkpoint(folder)
    if isinstance(checkpoint.shape, Missing):
        return [f"Missing: {checkpoint.shape.detail}"]
    total = sum(tensor.elements for tensor in checkpoint.tensors)
    wrong = [note for note in checkpoint.shape.unusual if "the config" in note]
    return wrong if checkpoint.shape.parameters == total else [*wrong, f"parameters {checkpoint.shape.parameters} for {total}"]


def odd_cache(row, family, fields, wanted, name, given):
    """The same small model on the CPU, written to files once and run once for its cache; not where its towers stay as large as by default."""
    try:
        if sum(weight.numel() for weight in build(family, fields, wanted)[1].parameters()) > 1 << 27:
            return
        config, model = build(family, fields, wanted, "cpu")
        wrong = caches(family, config, model.eval(), json.loads(json.dumps(given, default=str)))
    except Exception:
        return
    differs = saved(model)
    row["saved"] += differs is not None
    row["saved_agree"] += differs == []
    if differs:
        row["misses"].append(f"{name}, files: {'; '.join(differs[:2])}")
    if wrong is None:
        return
    row["cached"] += 1
    if wrong:
        row["misses"].append(f"{name}, cache: {'; '.join(wrong[:3])}")
    else:
        row["cache_agree"] += 1


def fact(name, given):
    """Golden facts of a config: brim's own reading, kept only where transformers agreed."""
    shape, rows = read(given, f"{name}.json")
    listing = "\n".join(f"{key} {dims}" for key, dims in sorted(drawn(rows).items()))
    return {
        "name": name,
        "config": given,
        "parameters": sum(row.elements for row in rows if row.op != "buffer" and row.tower != "draft"),
        "active_parameters": shape.active_parameters,
        "tensors": len(listing.splitlines()),
        "sha256": hashlib.sha256(listing.encode()).hexdigest(),
    }


def quiet():
    """What each worker does first."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()


def main():
    """Check all families, write the table and, if asked, the golden facts."""
    import torch
    import transformers
    from transformers import CONFIG_MAPPING

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--golden", action="store_true")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    families = args.family.split(",") if args.family else sorted(FAMILIES)
    rows, golden, absent = [], [], [name for name in families if name not in CONFIG_MAPPING]
    present = [family for family in families if family not in absent]
    with concurrent.futures.ProcessPoolExecutor(args.jobs, initializer=quiet) as pool:
        done = list(zip(present, pool.map(check, present, [args.random] * len(present), [args.seed] * len(present)), strict=True))
    for family, (row, facts) in done:
        rows.append(row)
        golden += facts
        if args.family or row["misses"]:
            print(
                f"{family}: {row['agree']} of {row['tried']}, refused {row['refused']}, cache {row['cache_agree']} of {row['cached']}, files {row['saved_agree']} of {row['saved']}",
                *row["misses"][:6],
                sep="\n  ",
                flush=True,
            )
    if args.family:
        return
    write(rows, absent, args, transformers.__version__, torch.__version__)
    if args.golden:
        head = {"source": f"transformers {transformers.__version__} on the meta device; configs as published", "models": golden}
        (ROOT / "tests" / "golden" / "shapes.json").write_text(json.dumps(head, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")


def write(rows, absent, args, transformers_version, torch_version):
    """docs/evidence/shapes.md."""
    tried, agree = sum(row["tried"] for row in rows), sum(row["agree"] for row in rows)
    cached, same = sum(row["cached"] for row in rows), sum(row["cache_agree"] for row in rows)
    written, equal = sum(row["saved"] for row in rows), sum(row["saved_agree"] for row in rows)
    clean = sum(1 for row in rows if row["tried"] and row["agree"] == row["tried"])
    counted = sum(row["counted"] for row in rows)
    heads, told, untold = (sum(row[name] for row in rows) for name in ("tops", "tops_agree", "tops_untold"))
    unknown, taken, right = strangers()
    lines = [
        "# Shapes from configs, against transformers",
        "",
        f"Generated by `python tests/evidence/shapes.py --random {args.random} --seed {args.seed}` on {datetime.datetime.now(tz=datetime.UTC).date().isoformat()}, "
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, transformers {transformers_version}, torch {torch_version}.",
        "",
        f"{len(rows)} families, {tried} readings of configs; in {counted} the parameter count is equal, in {agree} every tensor's published name and its dims are too; "
        f"{clean} families without a miss. Other classes of the same configs (classifiers, question answerers, bare models): {told} of {heads} equal, "
        f"{untold} answered with `cannot_tell`. Caches filled by a short run on the CPU: {same} of {cached} agree layer by layer (widths, windows, states). "
        f"Small models written to safetensors by transformers and read back by brim: {equal} of {written} hold exactly the tensors that their config implies.",
        "",
        "A reading is one config read by brim: once with only its own fields (brim supplies the family's defaults), once with all fields. "
        "Tied embeddings are part of every reading. Not built: configs that transformers itself refuses. Where brim and transformers part on purpose, the row says why, in italics.",
        "",
        f"{len(unknown)} further families of transformers are not known to brim. Each was read with all its fields under each class that it has: "
        f"{len(unknown) - len({name.split()[0] for name in [*taken, *right]})} are answered with `cannot_tell`; read by the class that they name, and equal: {', '.join(right) or 'none'}; "
        f"read and not equal: {', '.join(taken) or 'none'}.",
        "",
        "| family | readings | count equal | all equal | classes | equal | cannot tell | caches | equal | files | equal | not built | misses |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        note = KNOWN.get(row["family"], "") if row["misses"] else ""
        misses = "<br>".join([*([f"*{note}*"] if note else []), *(miss[:160] for miss in row["misses"][:4])]).replace("|", "/")
        lines.append(
            f"| {row['family']} | {row['tried']} | {row['counted']} | {row['agree']} | {row['tops']} | {row['tops_agree']} | {row['tops_untold']} | {row['cached']} | {row['cache_agree']} "
            f"| {row['saved']} | {row['saved_agree']} | {row['refused']} | {misses} |"
        )
    lines += ["", f"Read by brim without an oracle here (not in this transformers): {', '.join(absent) or 'none'}.", ""]
    target = ROOT / "docs" / "evidence" / "shapes.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines))
    print(
        f"{counted} of {tried} counts equal, {agree} readings, {told} of {heads} classes ({untold} untold), {len(taken)} strangers taken, {same} of {cached} caches, {equal} of {written} folders; {clean} of {len(rows)} families clean"
    )


if __name__ == "__main__":
    main()
