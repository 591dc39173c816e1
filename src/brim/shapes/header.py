"""The keys of one GGUF architecture read with suspicion, and its tensors by layer; every fault is a `BadHeader` with file, key and fault."""

from brim.errors import BadHeader
from brim.shapes.fields import MAX_WIDTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from brim.facts.model import Tensor


class Header:
    """The keys of one architecture, checked; `parts` holds, for each layer, the tensors of that layer by the rest of their names."""

    __slots__ = ("arch", "blocks", "keys", "parts", "source", "tops", "width")

    def __init__(self, keys: "Mapping[str, Any]", tensors: "tuple[Tensor, ...]", source: str) -> None:
        self.keys, self.source = keys, source
        self.arch = keys.get("general.architecture")
        if not isinstance(self.arch, str) or not 0 < len(self.arch) < 100:
            raise BadHeader(f"{source}: general.architecture must be a word")
        self.width = self.blocks = 0
        self.tops: dict[str, Tensor] = {}
        self.parts: dict[tuple[str, int], dict[str, Tensor]] = {}
        for tensor in tensors:
            self._place(tensor)

    def _place(self, tensor: "Tensor") -> None:
        for stack in ("blk.", "enc.blk.", "dec.blk.", "v.blk.", "a.blk."):
            if tensor.name.startswith(stack):
                number, _, rest = tensor.name[len(stack) :].partition(".")
                if number.isdecimal() and len(number) <= 5:
                    self.parts.setdefault((stack, int(number)), {})[rest] = tensor
                    return
        self.tops[tensor.name] = tensor

    def bad(self, key: str, fault: str) -> BadHeader:
        """The one error for a key that cannot be true."""
        return BadHeader(f"{self.source}: {self.arch}.{key} {fault}")

    def raw(self, key: str) -> "Any":
        """The value of `{architecture}.{key}`, None where absent."""
        return self.keys.get(f"{self.arch}.{key}")

    def whole(self, key: str, default: int = 0, low: int = 0, high: int = MAX_WIDTH) -> int:
        """A whole number, `default` where absent; of a list its largest entry."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, (list, tuple)):
            return max((self._checked(key, item, low, high) for item in value), default=default)
        return self._checked(key, value, low, high)

    def _checked(self, key: str, value: "Any", low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.bad(key, f"must be a whole number, not a {type(value).__name__}")
        if not low <= value <= high:
            raise self.bad(key, f"is {value if abs(value) < 10**12 else 'out of all bounds'}, which is outside {low}…{high}")
        return value

    def each(self, key: str, count: int, default: int, high: int = MAX_WIDTH) -> "list[int]":
        """One number for each of `count` layers; one number stands for all."""
        value = self.raw(key)
        if not isinstance(value, (list, tuple)):
            return [self.whole(key, default, 0, high)] * count
        if len(value) < count:
            raise self.bad(key, f"has {len(value)} entries for {count} layers")
        return [self._checked(key, item, 0, high) for item in value[:count]]

    def flags(self, key: str, count: int) -> "list[bool] | None":
        """One yes or no for each layer, None where the file has no list."""
        value = self.raw(key)
        if not isinstance(value, (list, tuple)):
            return None
        if len(value) < count:
            raise self.bad(key, f"has {len(value)} entries for {count} layers")
        return [bool(item) for item in value[:count]]

    def rows(self, stack: str, index: int) -> "dict[str, Tensor]":
        """The tensors of one layer, by the rest of their names."""
        return self.parts.get((stack, index), {})
