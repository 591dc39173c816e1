"""Finds a device that a person names among those that the catalogue knows: loosely, never by guess; ambiguous names list their candidates, unknown ones suggest.

The catalogue is a table in a data file (`data/devices.tsv`), each row with the source of its memory and of the rest; this room parses and searches it, and opens nothing.
"""

from brim.errors import Usage
from brim.values import Record

MIB = 1 << 20
# Words that a person may leave out, and that the driver may add: makers and families that name no model of their own.
NOISE = frozenset(
    [
        "nvidia",
        "geforce",
        "gtx",
        "rtx",
        "amd",
        "radeon",
        "rx",
        "intel",
        "apple",
        "instinct",
        "data",
        "center",
        "gpu",
        "graphics",
        "generation",
        "edition",
        "the",
        "chip",
        "hbm2",
        "hbm2e",
        "hbm3",
        "hbm3e",
        "gddr6",
        "gddr6x",
        "gddr7",
        "card",
    ]
)
PREFIXES = ("rtx", "gtx", "rx", "arc")
SUFFIXES = ("super", "xtx", "ti", "xt", "gre")


class Model(Record):
    """One device of the catalogue. Memory in bytes as the driver tells it; bandwidth in GB/s, power in W, thresholds in °C; 0 and "" are not known."""

    name: str
    backend: str
    memory_bytes: int
    memory_from: str
    bandwidth_gbs: float
    power_w: float
    slowdown_c: float
    shutdown_c: float
    compute: str
    unified: bool
    aliases: tuple[str, ...]
    source: str


def parse(text: str) -> tuple[Model, ...]:
    """The rows of the data file; the first line that is no comment names the columns."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    columns = lines[0].split("\t")
    return tuple(_model(dict(zip(columns, line.split("\t"), strict=True))) for line in lines[1:])


def _model(cells: dict[str, str]) -> Model:
    return Model(
        name=cells["name"],
        backend=cells["backend"],
        memory_bytes=int(cells["memory_mib"]) * MIB,
        memory_from=cells["memory_from"],
        bandwidth_gbs=float(cells["bandwidth_gbs"] or 0),
        power_w=float(cells["power_w"] or 0),
        slowdown_c=float(cells["slowdown_c"] or 0),
        shutdown_c=float(cells["shutdown_c"] or 0),
        compute=cells["compute"],
        unified=cells["pool"] == "unified",
        aliases=tuple(cells["aliases"].split(";")) if cells["aliases"] else (),
        source=cells["source"],
    )


def words(name: str) -> tuple[str, ...]:
    """A name as comparable words: `RTX3090Ti 24 GB` is `rtx 3090 ti 24gb`."""
    text = "".join(character if character.isalnum() or character == "+" else " " for character in name.lower())
    found: list[str] = []
    for word in text.split():
        if word in ("gb", "gib", "g") and found and found[-1].isdigit():
            found[-1] += "gb"
            continue
        found += _parts(word.removesuffix("gib") + "gb" if word.endswith("gib") and word[:-3].isdigit() else word)
    return tuple(found)


def _parts(word: str) -> list[str]:
    """`rtx3090ti` → rtx, 3090, ti; `a100` and `h100` stay whole."""
    for prefix in PREFIXES:
        if word.startswith(prefix) and word[len(prefix) : len(prefix) + 1].isdigit():
            return [prefix, *_parts(word[len(prefix) :])]
    for suffix in SUFFIXES:
        if word.endswith(suffix) and word[: -len(suffix)].isdigit():
            return [word[: -len(suffix)], suffix]
    return [word]


def matches(models: tuple[Model, ...], query: str) -> tuple[Model, ...]:
    """The models that have every word of the query; those that have nothing besides come alone. No query: all."""
    asked = set(words(query))
    if not asked:
        return models
    core = asked - NOISE
    exact, loose = [], []
    for model in models:
        for name in (model.name, *model.aliases):
            own = set(words(name))
            if (core or asked) <= own and asked - own <= NOISE:
                loose.append(model)
                if own - NOISE == core or own == asked:
                    exact.append(model)
                break
    return tuple(exact or loose)


def find(models: tuple[Model, ...], query: str) -> Model:
    """The one model of that name. `Usage` lists the candidates of an ambiguous name and suggests for an unknown one.

    Candidates that a plan cannot tell apart (same backend, memory and compute capability) are one answer.
    """
    found = matches(models, query)
    if len({(model.backend, model.memory_bytes, model.compute) for model in found}) == 1:
        return found[0]
    if found:
        names = ", ".join(model.name for model in found[:12]) + (f" and {len(found) - 12} more" if len(found) > 12 else "")
        raise Usage(f"{query!r} may be any of: {names}", hint="Write one of these names in full, or give the size (cuda:24GiB).")
    near = suggestions(models, query)
    raise Usage(
        f"no device is called {query!r}",
        hint=f"Did you mean {', '.join(near)}?" if near else "`brim devices` lists what is known; or give the size: cuda:24GiB.",
    )


def suggestions(models: tuple[Model, ...], query: str) -> list[str]:
    """The names nearest to an unknown one, at most four."""
    from difflib import get_close_matches

    plain = {
        " ".join(word for word in words(name) if word not in NOISE) or name.lower(): model.name for model in models for name in (model.name, *model.aliases)
    }
    near = get_close_matches(" ".join(word for word in words(query) if word not in NOISE), plain, n=4, cutoff=0.5)
    return list(dict.fromkeys(plain[word] for word in near))
