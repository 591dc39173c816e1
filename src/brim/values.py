"""Frozen, keyword-only values, and the one way to say that a value is missing; it imports nothing of ours.

Why not `dataclasses` or `msgspec.Struct`: both pay at import for every class they define (DESIGN.md, section 7: sixty frozen
slotted dataclasses cost twelve bare interpreter starts). A `Record` compiles nothing: its fields are its annotations, read
once, and one shared `__init__` fills the slots.

Guarantees: a `Record` cannot be changed after it was made; two are equal when their class and fields are; unknown, missing
and duplicate fields are `TypeError`s that name the class and the field. Not covered: validation of types (mypy does that),
positional arguments, inheritance of fields deeper than what `__slots__` gives.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, dataclass_transform
else:

    def dataclass_transform(**_options):
        """At run time the marker for type checkers does nothing (importing `typing` costs a third of a bare start)."""
        return lambda cls: cls


_set = object.__setattr__


class _RecordType(type):
    """Turns annotations into slots and class-level defaults into keyword defaults, without generating code."""

    def __new__(mcs, name: str, bases: tuple[type, ...], space: "dict[str, Any]") -> "_RecordType":
        own = tuple(key for key in space.get("__annotations__", {}) if not key.startswith("_"))
        fields: list[str] = []
        defaults: dict[str, Any] = {}
        for base in bases:
            fields.extend(getattr(base, "_fields", ()))
            defaults.update(getattr(base, "_defaults", {}))
        for key in own:
            if key in space:
                defaults[key] = space.pop(key)
            if key not in fields:
                fields.append(key)
        space["__slots__"] = tuple(key for key in own if not any(key in getattr(b, "_fields", ()) for b in bases))
        space["_fields"] = tuple(fields)
        space["_defaults"] = defaults
        space["__match_args__"] = ()
        return super().__new__(mcs, name, bases, space)


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=True)
class Record(metaclass=_RecordType):
    """A frozen, keyword-only value. Subclass it and annotate the fields; a class-level value is that field's default."""

    if TYPE_CHECKING:
        _fields: tuple[str, ...]
        _defaults: dict[str, Any]
    else:

        def __init__(self, **given):
            """Fill every field once; `TypeError` names what is missing or unknown."""
            fields = self._fields
            if len(given) != len(fields):
                given = {**self._defaults, **given}
            if len(given) != len(fields):
                _refuse(self, given)
            try:
                for key in fields:
                    _set(self, key, given[key])
            except KeyError:
                _refuse(self, given)

    def __setattr__(self, key: str, _value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{key} is frozen; use replace()")

    def __delattr__(self, key: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{key} is frozen")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, key) == getattr(other, key) for key in self._fields)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, key) for key in self._fields)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={getattr(self, key)!r}' for key in self._fields)})"

    def __reduce__(self) -> "tuple[object, ...]":
        return (_rebuild, (type(self), {key: getattr(self, key) for key in self._fields}))

    def replace(self, **changes: "Any") -> "Self":
        """The same value with some fields changed; unknown names are a `TypeError`."""
        made = object.__new__(type(self))
        for key in self._fields:
            _set(made, key, changes.pop(key) if key in changes else getattr(self, key))
        if changes:
            raise TypeError(f"{type(self).__name__} has no field {sorted(changes)[0]!r}")
        return made


def _refuse(made: Record, given: "dict[str, Any]") -> None:
    """Say which field is wanting, or which is unknown."""
    for key in made._fields:
        if key not in given:
            raise TypeError(f"{type(made).__name__} needs {key!r}")
    raise TypeError(f"{type(made).__name__} has no field {sorted(set(given) - set(made._fields))[0]!r}")


def _rebuild(cls: "type[Record]", fields: "dict[str, Any]") -> Record:
    return cls(**fields)


class Missing(Record):
    """A number that could not be had, and why. It has no arithmetic and no order: using it as a number is a `TypeError`.

    `reason` is one of `REASONS`; `detail` is the source's own text or a sentence of ours.
    """

    reason: str
    detail: str = ""

    def __bool__(self) -> bool:
        raise TypeError(f"a missing value ({self.reason}: {self.detail}) is neither true nor false; use isinstance")


REASONS = ("not_supported", "denied", "failed", "gone")


def plain(value: object) -> object:
    """A value as JSON-able builtins: Records become dicts, tuples lists, `Missing` the pair that DESIGN.md section 6 gives."""
    if isinstance(value, Missing):
        return {"missing": value.reason, "detail": value.detail}
    if isinstance(value, Record):
        return {key: plain(getattr(value, key)) for key in value._fields}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
