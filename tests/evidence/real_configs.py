"""Hold brim's shapes against transformers on configs that people published, field by odd field; writes docs/evidence/real-configs.md.

Needs an environment with torch and transformers (brim itself needs neither):
    python -m tests.evidence.real_configs [--jobs 2] [--only WORD] [--first]
The configs lie in tests/golden/real_configs.jsonl.gz with their addresses (repository, commit, path): gathered from public repositories before brim had
seen one of them, fields of generation left out. What brim said of each before anything was mended is kept in tests/golden/real_configs_first.json.
"""

import argparse
import collections
import concurrent.futures
import datetime
import gzip
import hashlib
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import shapes  # noqa: E402

from brim.errors import BrimError  # noqa: E402
from brim.shapes.config import read  # noqa: E402
from brim.values import Missing  # noqa: E402

CONFIGS = ROOT / "tests" / "golden" / "real_configs.jsonl.gz"
INDEXES = ROOT / "tests" / "golden" / "real_indexes.jsonl.gz"
FIRST = ROOT / "tests" / "golden" / "real_configs_first.json"
TABLE = ROOT / "docs" / "evidence" / "real-configs.md"
SECONDS = 240  # for one config in transformers


def configs():
    """(address, config) of every published config."""
    for line in gzip.decompress(CONFIGS.read_bytes()).decode().splitlines():
        row = json.loads(line)
        yield row["address"], row["config"]


def indexed():
    """(address, model_type, status, what) of every config whose own index of tensors lies beside it: names as published are an oracle that needs no code."""
    for line in gzip.decompress(INDEXES.read_bytes()).decode().splitlines():
        row = json.loads(line)
        given = row["config"]
        try:
            shape, rows = read(given, "config.json")
        except BrimError as error:
            yield row["address"], given.get("model_type"), "refused", str(error)
            continue
        if isinstance(shape, Missing) or isinstance(shape.parameters, Missing):
            yield row["address"], given.get("model_type"), "cannot_tell", (shape if isinstance(shape, Missing) else shape.parameters).detail
            continue
        names = sorted(w.name.replace("{}", str(number)) for w in rows for number in range(w.copies))
        alike = (len(names), hashlib.sha256("\n".join(names).encode()).hexdigest()) == (row["tensors"], row["sha256"])
        counted = sum(w.elements for w in rows)
        status = "names equal" if alike else "packed" if given.get("quantization_config") or given.get("quantization") else "names differ"
        yield row["address"], given.get("model_type"), status, f"{len(names)} for {row['tensors']} tensors, {counted} elements for {row['bytes']} bytes"


def oracle(given):
    """(family, config, model) of transformers for a published config; LookupError where it has no class of its own for it."""
    import torch
    import transformers
    from transformers import CONFIG_MAPPING

    name, classes = given.get("model_type"), given.get("architectures")
    wanted = classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""
    made = getattr(transformers, wanted, None) if wanted else None
    kind = CONFIG_MAPPING[name] if name in CONFIG_MAPPING else getattr(made, "config_class", None)
    if kind is None or (wanted and made is None):
        raise LookupError(f"no {wanted or name} in transformers")
    fields = {key: value for key, value in given.items() if key not in ("quantization_config", "_attn_implementation", "auto_map", "architectures")}
    config = kind.from_dict({**json.loads(json.dumps(fields)), "model_type": kind.model_type})
    with torch.device("meta"):
        model = made(config) if made is not None else shapes.model_class(kind.model_type, config)(config)
    return kind.model_type, config, model


def widths(shape, theirs):
    """What differs between brim's key and value widths, layer by layer, and the rows of the projections that make them."""
    wrong, seen = [], 0
    for layer in shape.layers:
        a = layer.attention
        if a is None or a.shares_cache_of is not None:
            continue
        ends = re.compile(rf"(?:^|\.)(?:layers|h|blocks)\.{layer.index}\.(?:self_attn|attention|attn)\.(k_proj|v_proj|kv_a_proj_with_mqa)\.weight$")
        rows = {hit[1]: dims[0] for name, dims in theirs.items() if (hit := ends.search(name)) and not re.search("vision|visual|audio|encoder", name)}
        if a.kind == "latent" and "kv_a_proj_with_mqa" in rows:
            seen += 1
            if rows["kv_a_proj_with_mqa"] != a.latent_rank + a.rope_dim:
                wrong.append(f"layer {layer.index}: latent {a.latent_rank}+{a.rope_dim} for {rows['kv_a_proj_with_mqa']}")
        elif "k_proj" in rows:
            seen += 1
            if rows["k_proj"] != a.kv_heads * a.key_dim or rows.get("v_proj", a.kv_heads * a.value_dim) != a.kv_heads * a.value_dim:
                wrong.append(
                    f"layer {layer.index}: keys and values {a.kv_heads * a.key_dim}, {a.kv_heads * a.value_dim} for {rows['k_proj']}, {rows.get('v_proj')}"
                )
    return seen, wrong


def windows(shape, config):
    """What differs between brim's windows and the cache that transformers lays out for this config (DynamicCache(config=…), cache_utils.py)."""
    from transformers import DynamicCache

    try:
        rows = DynamicCache(config=config).layers
    except Exception:
        return 0, []
    wrong, seen = [], 0
    for layer in shape.layers:
        a = layer.attention
        theirs = getattr(rows[layer.index], "sliding_window", None) if layer.index < len(rows) else None
        if a is None or a.shares_cache_of is not None or not isinstance(theirs, int):
            continue
        seen += 1
        if a.kind in ("full", "sliding", "chunked") and theirs != (a.window if a.kind != "full" else 0):
            wrong.append(f"layer {layer.index}: {a.kind} {a.window} for a window of {theirs}")
    return seen, wrong


def look(address, given):
    """One row: what brim says, what transformers says, and the status that follows."""
    row = {"address": address, "family": str(given.get("model_type")), "ours": None, "theirs": None, "status": "", "why": "", "widths": 0, "windows": 0}
    try:
        shape, _rows = read(json.loads(json.dumps(given)), "config.json")
    except BrimError as error:
        try:
            oracle(given)
        except Exception as fault:
            return {**row, "status": "refused", "why": f"{error}; transformers: {fault}"}
        return {**row, "status": "refused", "why": f"{error}; transformers builds it"}
    except Exception as error:
        return {**row, "status": "crashed", "why": f"{type(error).__name__}: {error}"}
    row["ours"] = None if isinstance(shape, Missing) or isinstance(shape.parameters, Missing) else shape.parameters
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    theirs = None
    try:
        family, config, model = oracle(given)
        theirs = None if isinstance(shape, Missing) else shapes.directory(model)
    except LookupError as error:
        row["why"] = str(error)
        model = None
    except Exception as error:
        row["why"] = f"transformers: {type(error).__name__}: {error}"
        model = None
    finally:
        signal.alarm(0)
    if model is not None:
        row["theirs"] = sum(weight.numel() for weight in model.parameters())
    if isinstance(shape, Missing):
        return {**row, "status": "cannot_tell", "why": shape.detail}
    if model is None:
        return {**row, "status": "no oracle"}
    wrong = shapes.compare(family, config, model, json.loads(json.dumps(given)), theirs)
    row["widths"], narrow = widths(shape, theirs)
    row["windows"], short = windows(shape, config)
    if isinstance(shape.parameters, Missing):
        return {
            **row,
            "status": "differs" if wrong or narrow or short else "text only",
            "why": "; ".join([*wrong, *narrow[:2], *short[:2]]) or shape.parameters.detail,
        }
    status = "differs" if narrow or short or any(word.startswith("parameters") for word in wrong) else "names differ" if wrong else "equal"
    return {**row, "status": status, "why": "; ".join([*wrong, *narrow[:2], *short[:2]])}


def _late(_number, _frame):
    raise TimeoutError(f"more than {SECONDS} s")


def main():
    """Look at every config, write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="only addresses or families with this word: prints, writes nothing")
    parser.add_argument("--first", action="store_true", help="keep this run as the first, untouched score")
    args = parser.parse_args()
    every = [(address, given) for address, given in configs() if args.only in address or args.only == given.get("model_type")]
    rows = []
    with concurrent.futures.ProcessPoolExecutor(args.jobs, initializer=shapes.quiet) as pool:
        for row in pool.map(look, *zip(*every, strict=True), chunksize=1):
            rows.append(row)
            if row["status"] not in ("equal", "no oracle"):
                print(f"{row['status']}: {row['family']} {row['address']}: {row['ours']} for {row['theirs']}: {row['why'][:300]}", flush=True)
    print(dict(collections.Counter(row["status"] for row in rows)))
    if args.only:
        return
    if args.first:
        commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
        kept = {
            "commit": commit,
            "rows": [{key: row[key] for key in ("address", "family", "ours", "theirs", "status")} | {"why": row["why"][:200]} for row in rows],
        }
        FIRST.write_text(json.dumps(kept, separators=(",", ":")).replace('{"address"', '\n{"address"') + "\n")
    write(rows)


ORDER = ("equal", "names differ", "text only", "differs", "cannot_tell", "refused", "crashed", "no oracle")


def score(rows):
    """One line of the score table."""
    counts = collections.Counter(row["status"] for row in rows)
    return " | ".join(str(counts[status]) for status in ORDER)


def told(counts):
    """Statuses and their counts in words."""
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))


def write(rows):
    """docs/evidence/real-configs.md: both scores, every row that is not equal, and where the equal ones come from."""
    import torch
    import transformers

    first = json.loads(FIRST.read_text())
    fresh = [row for row in first["rows"] if row.get("wave") == 2]
    before = {row["address"]: row for row in first["rows"]}
    families = len({row["family"] for row in rows})
    apart = (
        f"{sum(first['apart'].values())} further objects were taken out after the first look for their form: other tools' own lists, which are no config.json "
    )
    apart += f"(they had been: {', '.join(f'{status} {count}' for status, count in first['apart'].items())}). "
    lines = [
        "# Published configs, against transformers",
        "",
        f"Generated by `python -m tests.evidence.real_configs` on {datetime.datetime.now(tz=datetime.UTC).date().isoformat()}, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, transformers {transformers.__version__}, torch {torch.__version__}.",
        "",
        f"{len(rows)} distinct configs of {families} model types, as public repositories carry them (tests/golden/real_configs.jsonl.gz has each with its address), gathered before brim had read one. {apart}"
        "Beside each, the class that its `architectures` names was built by transformers on the meta device from the same file: parameters, every tensor's published name and dims, "
        f"key and value widths ({sum(row['widths'] for row in rows)} layers), windows ({sum(row['windows'] for row in rows)} layers).",
        "",
        f"| | {' | '.join(ORDER)} |",
        f"|---|{'---:|' * len(ORDER)}",
        f"| first, untouched (brim {first['commit']}) | {score([row for row in first['rows'] if row not in fresh])} |",
        f"| a second gathering of {len(fresh)}, untouched, after the first was mended (brim {first['commit 2']}) | {score(fresh)} |",
        f"| all of them now, after those rows were looked at | {score(rows)} |",
        "",
        "*equal*: all of it. *names differ*: count, widths and windows are equal, a name or the order of dims is not. *text only*: a tower is not known, so the count is `Missing`, and the text tensors are equal. "
        "*cannot_tell*: brim gives no shape, and says what it lacks. *refused*: a field cannot be true (exit 5). *no oracle*: transformers has no such class, or cannot build it; brim's count stands alone.",
        "",
        "## Rows that are not equal",
        "",
        "| address | model_type | brim | transformers | first | now | what |",
        "|---|---|---:|---:|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (ORDER.index(row["status"]), row["family"], row["address"])):
        was = before.get(row["address"], {}).get("status", "")
        if row["status"] == was == "equal":
            continue
        cells = [row["address"], row["family"], row["ours"] or "", row["theirs"] or "", was, row["status"], row["why"][:220]]
        lines.append("| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    beside = list(indexed())
    was = collections.Counter(first["indexes"])
    now = collections.Counter(status for _address, _family, status, _what in beside)
    lines += [
        "",
        "## Published indexes",
        "",
        f"{len(beside)} of the repositories carry the index of their tensors beside the config (tests/golden/real_indexes.jsonl.gz: its count of names, their hash, its bytes; rotary tables and masks left out), gathered in two goes. "
        f"First, untouched (brim {first['commit 2']}, {sum(was.values())}): {told(was)}. "
        f"The second go, untouched (brim {first['commit 3']}, {sum(first['indexes 2'].values())}): {told(first['indexes 2'])}. All now: {told(now)}. Not equal:",
        "",
        "| address | model_type | now | what |",
        "|---|---|---|---|",
        *(f"| {address} | {family} | {status} | {what[:200]} |" for address, family, status, what in beside if status != "names equal"),
    ]
    equal = collections.Counter(row["family"] for row in rows if row["status"] == "equal")
    lines += ["", f"Equal, by model type: {', '.join(f'{family} {count}' for family, count in sorted(equal.items()))}.", ""]
    TABLE.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
