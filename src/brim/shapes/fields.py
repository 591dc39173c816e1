"""One decoded config read with suspicion: every field is typed, bounded and named in the error; absent ones get the family's default.

Guarantees: a field that is there and cannot be true raises `BadHeader` with file, field and fault; a field that is absent gets the default
that transformers gives it (see `defaults.py`), and the core ones so filled are remembered in `assumed`; a field that has neither is collected
in `wanting` and read as 0, so that one answer can name them all. Not covered: what the fields mean together (the families check that).
"""

from brim.errors import BadHeader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MAX_LAYERS = 2048
MAX_WIDTH = 1 << 24
MAX_VOCABULARY = 1 << 27
MAX_EXPERTS = 1 << 16
MAX_HEADS = 1 << 16

_CORE = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "intermediate_size")
_ABSENT = object()


class Fields:
    """The fields of one (sub-)config. `source` names the file in errors, `path` the place within it (`text_config.`)."""

    __slots__ = ("aliases", "assumed", "defaults", "path", "seen", "source", "values", "wanting")

    def __init__(
        self,
        values: "Mapping[str, Any]",
        source: str,
        defaults: "Mapping[str, Any]",
        path: str = "",
        aliases: "Mapping[str, str] | None" = None,
    ) -> None:
        self.values, self.source, self.defaults, self.path = values, source, defaults, path
        self.aliases = aliases or {}
        self.wanting: list[str] = []
        self.assumed: list[str] = []
        self.seen: set[str] = set()

    def bad(self, name: str, fault: str) -> BadHeader:
        """The one error for a field that cannot be true."""
        return BadHeader(f"{self.source}: {self.path}{name} {fault}")

    def has(self, name: str) -> bool:
        """True where the file itself gives the field, and not as null."""
        return self._given(name) not in (_ABSENT, None)

    def _given(self, name: str) -> "Any":
        self.seen.add(name)
        if name in self.values:
            return self.values[name]
        other = self.aliases.get(name)
        return self.values.get(other, _ABSENT) if other is not None else _ABSENT

    def raw(self, name: str) -> "Any":
        """The file's own value (null included), else the family's default, else None."""
        value = self._given(name)
        if value is _ABSENT:
            value = self.defaults.get(name, self.defaults.get(self.aliases.get(name, "")))
            if name in _CORE and value is not None:
                self.assumed.append(self.path + name)
        return value

    def whole(self, name: str, low: int = 1, high: int = MAX_WIDTH) -> int:
        """A whole number between `low` and `high`; 0 and a note in `wanting` where there is none."""
        value = self.maybe(name, low, high)
        if value is None:
            if self.path + name not in self.wanting:
                self.wanting.append(self.path + name)
            return 0
        return value

    def maybe(self, name: str, low: int = 0, high: int = MAX_WIDTH) -> int | None:
        """A whole number, or None where the field is null or absent without a default."""
        value = self.raw(name)
        if value is None:
            return None
        return self.checked(name, value, low, high)

    def checked(self, name: str, value: "Any", low: int, high: int) -> int:
        """`value` as a whole number within bounds, else `BadHeader`; 3.0 counts as 3, true as no number."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.bad(name, f"must be a whole number, not {_short(value)}")
        if not low <= value <= high:
            raise self.bad(name, f"is {value if abs(value) < 10**12 else 'out of all bounds'}, which is outside {low}…{high}")
        return value

    def flag(self, name: str, default: "bool | None" = None) -> bool:
        """A yes or no; null counts as no."""
        value = self.raw(name)
        if value is None:
            return bool(default)
        if not isinstance(value, (bool, int)):
            raise self.bad(name, f"must be true or false, not {_short(value)}")
        return bool(value)

    def ratio(self, name: str) -> float | None:
        """A finite positive number, or None."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
            raise self.bad(name, f"must be a positive number, not {_short(value)}")
        return float(value)

    def word(self, name: str) -> str:
        """A string, '' where absent."""
        value = self.raw(name)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > 1 << 16:
            raise self.bad(name, f"must be a word, not {_short(value)}")
        return value

    def words(self, name: str, length: int) -> "tuple[str, ...] | None":
        """A list of `length` strings (longer ones that the first `length` of them fill are wrong too), or None where absent."""
        value = self._list(name, length)
        if value is None:
            return None
        for item in value:
            if not isinstance(item, str):
                raise self.bad(name, f"must hold words, not {_short(item)}")
        return tuple(value)

    def _list(self, name: str, length: int) -> "list[Any] | None":
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise self.bad(name, f"must be a list, not {_short(value)}")
        if len(value) != length:
            raise self.bad(name, f"has {len(value)} entries for {length} layers")
        return list(value)

    def wholes(self, name: str, length: int, low: int = 0, high: int = MAX_WIDTH) -> "tuple[int, ...] | None":
        """A list of `length` whole numbers; one number stands for all; None where absent."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            return (self.checked(name, value, low, high),) * length
        return tuple(self.checked(name, item, low, high) for item in self._list(name, length) or ())

    def indices(self, name: str, layers: int) -> "frozenset[int]":
        """A set of layer numbers; negative ones and those past the end are faults; empty where absent."""
        value = self.raw(name)
        if value is None:
            return frozenset()
        if not isinstance(value, (list, tuple)):
            raise self.bad(name, f"must be a list of layer numbers, not {_short(value)}")
        return frozenset(self.checked(name, item, 0, max(layers, 1) * 4) for item in value)

    def section(self, name: str, defaults: "Mapping[str, Any] | None" = None) -> "Fields | None":
        """A sub-config as fields of its own, or None where absent."""
        value = self._given(name)
        if value is _ABSENT or value is None:
            return None
        if not isinstance(value, dict):
            raise self.bad(name, f"must be an object, not {_short(value)}")
        return Fields(value, self.source, defaults or {}, f"{self.path}{name}.")

    def layers(self, name: str = "num_hidden_layers") -> int:
        """The number of layers; a checked count."""
        return self.whole(name, 1, MAX_LAYERS)

    def divides(self, part: str, whole: str, small: int, large: int) -> None:
        """`BadHeader` where `small` (the field `part`) does not divide `large` (the field `whole`)."""
        if small and large % small:
            raise self.bad(part, f"({small}) does not divide {whole} ({large})")


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, (dict, list, tuple)) else f"a {type(value).__name__} of {len(value)}"
    return text if len(text) <= 60 else text[:57] + "..."
