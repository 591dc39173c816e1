"""Finds and decodes profile files: packaged, the user's, or given by path; it does not interpret them."""

import os

from brim.errors import Unreadable, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CAP_BYTES = 1 << 20


def folders(config_folder: str) -> tuple[tuple[str, str], ...]:
    """(origin, folder) in the order of search: the user's before the packaged ones, so that a user can override by name."""
    return ("user", os.path.join(config_folder, "profiles")), (
        "packaged",
        os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "profiles"),
    )


def known(config_folder: str) -> list[tuple[str, str, str]]:
    """(name, origin, path) of every profile that can be had by name, by name; a user's hides the packaged one."""
    found: dict[str, tuple[str, str, str]] = {}
    for origin, folder in folders(config_folder):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for file in names:
            name, ending = os.path.splitext(file)
            if ending == ".toml" and name not in found:
                found[name] = (name, origin, os.path.join(folder, file))
    return [found[name] for name in sorted(found)]


def load(name_or_path: str, config_folder: str) -> "tuple[dict[str, Any], str]":
    """(document, path) of a profile by name or by path (a word with a slash or ending in .toml); `Usage` where there is none, naming the nearest."""
    if os.sep in name_or_path or name_or_path.endswith(".toml"):
        return decode(name_or_path), name_or_path
    by_name = {name: path for name, _, path in known(config_folder)}
    if name_or_path not in by_name:
        from difflib import get_close_matches

        near = get_close_matches(name_or_path, list(by_name), n=1, cutoff=0.0)
        advice = f"; the nearest known one is {near[0]!r}" if near else ""
        raise Usage(f"there is no profile {name_or_path!r}{advice}", hint="`brim profiles` lists them; a path must contain a slash or end in .toml.")
    return decode(by_name[name_or_path]), by_name[name_or_path]


def decode(path: str) -> "dict[str, Any]":
    """The decoded TOML of one file of at most 1 MiB; `Unreadable` where it cannot be read, `Usage` where it is no TOML."""
    import tomllib

    try:
        with open(path, "rb") as file:
            data = file.read(CAP_BYTES + 1)
    except OSError as fault:
        raise Unreadable(f"{path}: {fault.strerror or fault}") from None
    if len(data) > CAP_BYTES:
        raise Usage(f"{path}: a profile of more than 1 MiB is none")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise Usage(f"{path}: no TOML: {fault}") from None
