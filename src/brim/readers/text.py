"""JSON and TOML as an enemy would write them: a cap before the parse, no key twice, no number that is none, no nesting past bounds.

The readers share this room as they share `source.py`; it knows no format.
Guarantees: what is made is a small multiple of the text's size (containers are counted before the parse); a fault is a `BadHeader`, `TooLarge` or `EmptyFile` with the file's name.
"""

from brim.errors import BadHeader, EmptyFile, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from brim.seams import Source

MAX_TEXT_BYTES = 64 << 20
MAX_DEPTH = 64
_BYTES_A_CONTAINER = 8  # a text with more than one container in eight bytes is `[[],[],…`: ten times its size in memory and more
_FREE_CONTAINERS = 4096
_MOST_CONTAINERS = 1_000_000
_MOST_KEYS = 600_000  # a key takes 280 bytes in memory however short it is; 100 000 tensors have 400 000
_MOST_VALUES = 2_000_000


def read_json(source: "Source", cap: int = MAX_TEXT_BYTES) -> "Any":
    """The document in a whole file of at most `cap` bytes."""
    if source.size > cap:
        raise TooLarge(f"{source.name}: {source.size} bytes of JSON are above the cap of {cap}")
    return decode_json(source.name, source.read(0, source.size))


def decode_json(name: str, raw: bytes) -> "Any":
    """The document in `raw`. Refused: not UTF-8, a key that stands twice, NaN and infinities (1e999 too), nesting deeper than `MAX_DEPTH`, whole numbers above 64 bits."""
    if not raw.strip():
        raise EmptyFile(f"{name}: holds no JSON at all")
    check_density(name, raw)
    import json

    def pairs(items: "list[tuple[str, Any]]") -> "dict[str, Any]":
        made = dict(items)
        if len(made) != len(items):
            seen: set[str] = set()
            for key, _ in items:
                if key in seen:
                    raise BadHeader(f"{name}: the key {key[:200]!r} stands twice in one object")
                seen.add(key)
        return made

    def whole(digits: str) -> int:
        if len(digits) > 21:
            raise BadHeader(f"{name}: a whole number of {len(digits)} digits is not believed")
        return int(digits)

    def real(digits: str) -> float:
        value = float(digits)
        if value - value != 0:  # 1e999 is no constant of JSON's, but infinite all the same
            raise BadHeader(f"{name}: {digits[:40]} is more than a number can be")
        return value

    def constant(word: str) -> "NoReturn":
        raise BadHeader(f"{name}: {word} is no JSON number")

    try:
        document = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=pairs, parse_int=whole, parse_float=real, parse_constant=constant)
    except UnicodeDecodeError:
        raise BadHeader(f"{name}: is not UTF-8") from None
    except RecursionError:
        raise BadHeader(f"{name}: is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as fault:
        raise BadHeader(f"{name}: is no JSON: {fault}") from None
    _check_depth(name, document)
    return document


def check_density(name: str, raw: bytes) -> None:
    """Refuse a text whose containers would take a large multiple of its own size, before any is made."""
    containers = raw.count(b"[") + raw.count(b"{")
    if containers > min(_FREE_CONTAINERS + len(raw) // _BYTES_A_CONTAINER, _MOST_CONTAINERS):
        raise BadHeader(f"{name}: {containers} lists and objects in {len(raw)} bytes are not believed")
    if raw.count(b":") > _MOST_KEYS or raw.count(b",") > _MOST_VALUES:
        raise TooLarge(f"{name}: holds more than {_MOST_KEYS} keys or {_MOST_VALUES} values")


def _check_depth(name: str, document: object) -> None:
    """Walk level by level, so that the walk itself cannot overflow."""
    level: list[Any] = [document]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise BadHeader(f"{name}: is nested deeper than {MAX_DEPTH} levels")
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                below.extend(value for value in item.values() if type(value) in (dict, list))
            elif type(item) is list:
                below.extend(value for value in item if type(value) in (dict, list))
        level = below


def read_toml(source: "Source", cap: int = 4 << 20) -> "dict[str, Any]":
    """The table in a TOML file of at most `cap` bytes."""
    if source.size > cap:
        raise TooLarge(f"{source.name}: {source.size} bytes of TOML are above the cap of {cap}")
    return decode_toml(source.name, source.read(0, source.size))


def decode_toml(name: str, raw: bytes) -> "dict[str, Any]":
    """The table in `raw`; TOML itself refuses keys that stand twice."""
    check_density(name, raw)
    import tomllib

    try:
        document = tomllib.loads(raw.decode())
    except UnicodeDecodeError:
        raise BadHeader(f"{name}: is not UTF-8") from None
    except RecursionError:
        raise BadHeader(f"{name}: is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as fault:
        raise BadHeader(f"{name}: is no TOML: {fault}") from None
    _check_depth(name, document)
    _check_kinds(name, document)
    return document


def _check_kinds(name: str, document: object) -> None:
    """Refuse what TOML has and JSON has not: dates, times, numbers that are none, and whole numbers without end."""
    left: list[object] = [document]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
        elif isinstance(item, float) and (item != item or item in (float("inf"), float("-inf"))):
            raise BadHeader(f"{name}: {item} is no number to reckon with")
        elif not isinstance(item, (str, int, float)):
            raise BadHeader(f"{name}: a {type(item).__name__} ({item}) is not expected here")
        elif isinstance(item, int) and item.bit_length() > 70:
            raise BadHeader(f"{name}: a whole number of {item.bit_length()} bits is not believed")
