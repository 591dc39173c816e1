"""Lists a model folder and reads a sharded index; which files belong together, and none outside the folder.

Guarantees: a name out of an index is a plain file name (no slash, no `..`, no drive, no NUL); a member that is a symlink must lead to a regular file in the folder
itself or, as the Hugging Face cache lays it out, in the `blobs/` beside `snapshots/`; missing, extra and duplicate shards are three different refusals.
Not covered: what stands in the files.
"""

import os

from brim.errors import BadHeader, BadShards, NotACheckpoint, Unreadable
from brim.readers.text import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brim.seams import Source

MAX_FILES = 100_000
MAX_SHARDS = 10_000
MAX_NAME = 255
MAX_STEPS = 32


def listing(folder: str) -> "list[str]":
    """The names in a folder, sorted. `Unreadable` where it cannot be listed."""
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) > MAX_FILES:
                    raise NotACheckpoint(f"{folder}: holds more than {MAX_FILES} files, which is no model folder")
    except OSError as fault:
        raise Unreadable(f"{folder}: cannot be listed: {fault.strerror}") from None
    return sorted(names)


def member(folder: str, name: str) -> str:
    """The path of a member whose name came out of a file. `BadShards` where it would lead out of the folder."""
    if not plain_name(name):
        raise BadShards(f"{folder}: the shard name {name[:200]!r} is no plain file name", hint="An index may only name files beside it.")
    path = os.path.join(folder, name)
    if os.path.islink(path) and not _at_home(path, folder):
        raise BadShards(f"{folder}: the shard {name!r} is a symlink that leads out of the folder", hint="Name the real folder, or copy the file into this one.")
    return path


def within(folder: str, location: str) -> str:
    """The path of a file in a folder or in a folder below it, whose place came out of a file (`a/b/c`, always with slashes). `BadShards` where it would lead out."""
    steps = location.split("/")
    if not 0 < len(steps) <= MAX_STEPS or not all(map(plain_name, steps)):
        raise BadShards(
            f"{folder}: the place {location[:200]!r} is no path inside the folder", hint="External data must lie beside the model file or below it."
        )
    path = os.path.join(folder, *steps)
    if not _at_home(path, folder):  # any folder on the way may be a symlink
        raise BadShards(f"{folder}: {location[:200]!r} is reached by a symlink that leads out of the folder", hint="Copy the file into this folder.")
    return path


def _at_home(path: str, folder: str) -> bool:
    """Whether all symlinks on the way to `path` end inside `folder`, or in the blobs of the Hugging Face cache that it belongs to (REPOSITORY/snapshots/REVISION/…)."""
    target, home = os.path.realpath(path), os.path.realpath(folder)
    places = [home, os.path.join(os.path.dirname(os.path.dirname(home)), "blobs")]
    before, snapshots, _ = home.rpartition(os.sep + "snapshots" + os.sep)
    if snapshots:
        places.append(os.path.join(before, "blobs"))
    return any(target.startswith(place.rstrip(os.sep) + os.sep) for place in places)


def plain_name(name: str) -> bool:
    """Whether a name can only mean a file in the same folder, here and on Windows. No control characters: a name must stay on its line."""
    return (
        0 < len(name) <= MAX_NAME
        and name not in (".", "..")
        and not any(char in "/\\\x7f" or char < " " for char in name)
        and not (len(name) > 1 and name[1] == ":")
    )


class Index:
    """A sharded index: which tensor lies in which shard (shards sorted by name), and the total size in bytes that it claims (None: it does not say)."""

    __slots__ = ("name", "shards", "total_bytes", "weight_map")

    def __init__(self, name: str, weight_map: "dict[str, str]", total_bytes: "int | None") -> None:
        self.name, self.weight_map, self.total_bytes = name, weight_map, total_bytes
        self.shards = sorted(set(weight_map.values()))


def read_index(source: "Source") -> Index:
    """`model.safetensors.index.json` or `pytorch_model.bin.index.json`: `{"metadata": {"total_size"}, "weight_map": {tensor: file}}` (transformers, modeling_utils)."""
    document = read_json(source)
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadHeader(f"{source.name}: has no weight_map of tensors to files")
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str):
            raise BadHeader(f"{source.name}: the weight_map gives no file name for {tensor[:200]!r}")
    for shard in set(weight_map.values()):
        if not plain_name(shard):
            raise BadShards(f"{source.name}: the shard name {shard[:200]!r} is no plain file name", hint="An index may only name files beside it.")
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total == total // 1:
        total = int(total)  # some exporters write 1.4e9
    index = Index(source.name, weight_map, total if isinstance(total, int) and not isinstance(total, bool) and total >= 0 else None)
    if len(index.shards) > MAX_SHARDS:
        raise BadShards(f"{source.name}: names {len(index.shards)} shards (at most {MAX_SHARDS})")
    return index


def check_present(index: Index, names: "list[str]") -> None:
    """`BadShards` where a shard that the index names is not in the folder."""
    here = set(names)
    missing = [shard for shard in index.shards if shard not in here]
    if missing:
        raise BadShards(
            f"{index.name}: {len(missing)} of {len(index.shards)} shards are missing, first {missing[0]!r}",
            hint="The download is not complete; fetch what is missing.",
        )


def check_extra(index: Index, names: "list[str]") -> None:
    """`BadShards` where the folder holds a shard of the same series that the index does not name: two downloads were mixed."""
    known = set(index.shards)
    stems = {place[0] for place in map(_place, index.shards) if place}
    for name in names:
        place = _place(name)
        if place and place[0] in stems and name not in known:
            raise BadShards(f"{index.name}: {name!r} lies in the folder, but the index does not name it", hint="Two downloads are mixed; keep one.")


def check_unique(held: "dict[str, list[str]]", folder: str) -> None:
    """`BadShards` where two files of a series hold the same tensor."""
    seen: dict[str, str] = {}
    for shard, tensors in held.items():
        for tensor in tensors:
            if tensor in seen:
                raise BadShards(f"{folder}: tensor {tensor[:200]!r} stands in {seen[tensor]!r} and in {shard!r}")
            seen[tensor] = shard


def check_tensors(index: Index, held: "dict[str, list[str]]", stored_bytes: int) -> "list[str]":
    """Compare the index with what its shards hold: `held` maps each shard to its tensor names. Faults are `BadShards`; what is only odd comes back as notes."""
    seen: dict[str, str] = {}
    for shard, tensors in held.items():
        for tensor in tensors:
            if tensor in seen:
                raise BadShards(f"{index.name}: tensor {tensor[:200]!r} stands in {seen[tensor]!r} and in {shard!r}")
            seen[tensor] = shard
            place = index.weight_map.get(tensor)
            if place is None:
                raise BadShards(f"{index.name}: shard {shard!r} holds {tensor[:200]!r}, which the index does not name")
            if place != shard:
                raise BadShards(f"{index.name}: {tensor[:200]!r} lies in {shard!r}, but the index says {place!r}")
    for tensor, shard in index.weight_map.items():
        if tensor not in seen:
            raise BadShards(f"{index.name}: {tensor[:200]!r} is not in {shard!r}, where the index puts it")
    if index.total_bytes is not None and index.total_bytes != stored_bytes:
        return [f"{index.name}: claims {index.total_bytes} bytes of tensors, its shards hold {stored_bytes}"]
    return []


def series(names: "list[str]", folder: str) -> "list[str]":
    """The safetensors files of a folder without an index: one file, or all of one complete `NAME-00001-of-00003` series. `BadShards` otherwise."""
    files = [name for name in names if name.endswith(".safetensors")]
    runs: dict[tuple[str, int], list[int]] = {}
    for name in files:
        place = _place(name)
        if place:
            runs.setdefault((place[0], place[2]), []).append(place[1])
    if "model.safetensors" in files:
        return ["model.safetensors"]
    if len(runs) > 1:
        raise BadShards(f"{folder}: holds shards of {len(runs)} different series and no index", hint="Keep one model in one folder, or give the file itself.")
    if runs:
        (stem, count), numbers = next(iter(runs.items()))
        missing = sorted(set(range(1, count + 1)) - set(numbers)) if count <= MAX_SHARDS else [0]
        if missing:
            raise BadShards(f"{folder}: shard {missing[0]} of {count} of {stem!r} is missing ({len(missing)} in all)")
        return [f"{stem}-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
    return files


def _place(name: str) -> "tuple[str, int, int] | None":
    """(stem, number, count) of `STEM-00001-of-00003.safetensors` (or .bin), None where the name does not follow the pattern."""
    root, dot, ending = name.rpartition(".")
    if not dot or ending not in ("safetensors", "bin"):
        return None
    stem, _, count = root.rpartition("-of-")
    stem, _, number = stem.rpartition("-")
    if not (stem and len(number) == 5 == len(count) and number.isascii() and number.isdigit() and count.isascii() and count.isdigit()):
        return None
    return stem, int(number), int(count)


def read_config(source: "Source") -> "dict[str, Any]":
    """A config.json or adapter_config.json: one JSON object of at most 4 MiB."""
    document = read_json(source, 4 << 20)
    if not isinstance(document, dict):
        raise BadHeader(f"{source.name}: is no JSON object")
    return document
