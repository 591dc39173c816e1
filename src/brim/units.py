"""Bytes are integers here; this room parses them, prints them, and knows spans (low, likely, high), and it imports nothing of ours.

(`values.py`, the other stone of the ground, is the one exception: a `Span` is a frozen value.)
"""

from brim.values import Record

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
_SCALES = {
    "": 1, "b": 1,
    "k": KIB, "ki": KIB, "kib": KIB, "kb": 10**3,
    "m": MIB, "mi": MIB, "mib": MIB, "mb": 10**6,
    "g": GIB, "gi": GIB, "gib": GIB, "gb": 10**9,
    "t": TIB, "ti": TIB, "tib": TIB, "tb": 10**12,
}  # fmt: skip
_TIMES_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "": 10**9, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}


class Span(Record):
    """An uncertain number of bytes: low ≤ likely ≤ high. Spans add end by end."""

    low: int
    likely: int
    high: int

    def __add__(self, other: "Span") -> "Span":
        return Span(low=self.low + other.low, likely=self.likely + other.likely, high=self.high + other.high)

    @property
    def exact(self) -> bool:
        """True when the span has no width."""
        return self.low == self.high


NOTHING = Span(low=0, likely=0, high=0)


def exactly(count: int) -> Span:
    """The span of a number of bytes that is known."""
    return Span(low=count, likely=count, high=count)


def total(spans: "tuple[Span, ...] | list[Span]") -> Span:
    """The sum of spans, end by end; nothing at all is zero bytes."""
    low = likely = high = 0
    for span in spans:
        low, likely, high = low + span.low, likely + span.likely, high + span.high
    return Span(low=low, likely=likely, high=high)


def _split_number(text: str) -> tuple[str, str]:
    """The leading decimal number and the unit behind it, both stripped; the unit in lower case."""
    text = text.strip()
    end = 0
    while end < len(text) and ((text[end].isascii() and text[end].isdigit()) or text[end] == "."):
        end += 1
    return text[:end], text[end:].strip().lower()


def _scaled(number: str, scale: int) -> int:
    """number × scale in whole units, without a float in between (24.5GiB is exact)."""
    whole, _, fraction = number.partition(".")
    if not (whole or fraction) or "." in fraction:
        raise ValueError(number)
    value = int(whole or "0") * scale
    return value + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)


def parse_size(text: str) -> int:
    """Bytes from `24GiB`, `512MiB`, `24GB` (decimal), `24Gi`, `24G` (binary) or plain bytes; `ValueError` says what is wrong."""
    number, unit = _split_number(text)
    if unit not in _SCALES:
        raise ValueError(f"{text!r} is no size: write 24GiB, 512MiB, 24GB (decimal) or plain bytes")
    try:
        return _scaled(number, _SCALES[unit])
    except ValueError:
        raise ValueError(f"{text!r} is no size: write 24GiB, 512MiB, 24GB (decimal) or plain bytes") from None


def parse_time(text: str) -> int:
    """Nanoseconds from `20s`, `30m`, `24h`, `1.5h`, `200ms`; a bare number is seconds; `ValueError` says what is wrong."""
    number, unit = _split_number(text)
    if unit not in _TIMES_NS:
        raise ValueError(f"{text!r} is no time: write 20s, 30m, 24h, or a number of seconds")
    try:
        return _scaled(number, _TIMES_NS[unit])
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 20s, 30m, 24h, or a number of seconds") from None


def format_bytes(count: int) -> str:
    """Bytes with two decimals in the largest of B, KiB … TiB that keeps the number at one or more."""
    sign, count = ("-" if count < 0 else ""), abs(count)
    if count < KIB:
        return f"{sign}{count} B"
    for unit, scale in (("KiB", KIB), ("MiB", MIB), ("GiB", GIB)):
        if count < scale * 1024:
            return f"{sign}{count / scale:.2f} {unit}"
    return f"{sign}{count / TIB:.2f} TiB"


def format_ns(nanoseconds: int) -> str:
    """A duration for people: `350 ms`, `12.0 s`, `3 min 20 s`, `24 h 0 min`."""
    seconds = nanoseconds / 1e9
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def round_up(count: int, step: int) -> int:
    """The smallest multiple of `step` that is at least `count` (both in the same unit)."""
    return -(-count // step) * step
