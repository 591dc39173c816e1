"""The walk over a vocabulary: it ends where the strings end, whatever their lengths, the byte order and the window."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim.errors import Truncated
from brim.readers import gguf
from brim.readers.source import MemorySource

_LENGTHS = st.one_of(st.integers(0, 12), st.sampled_from([61, 62, 63, 64, 65, 254, 255, 256, 257, 320, 511, 512, 700]))
_LIES = st.sampled_from([1 << 8, 1 << 16, 1 << 32, 1 << 40, (1 << 40) + 5, 1 << 55, (1 << 63) - 1, 1 << 63, (1 << 64) - 8, (1 << 64) - 1])


def _walked(data: bytes, count: int, order: str) -> "int | None":
    """Where the walk ends; None where it says that the file ends first."""
    header = gguf._Header(MemorySource("x", data))
    header.order, header.at = order, 16
    try:
        header.step_over_strings(count, "words")
    except Truncated:
        return None
    return header.where()


def _counted(data: bytes, count: int, order: str) -> "int | None":
    """The same, as it is written in the format: length, bytes, length, bytes."""
    at = 16
    for _ in range(count):
        if at + 8 > len(data):
            return None
        at += 8 + int(struct.unpack_from(order + "Q", data, at)[0])
    return at if at <= len(data) else None


@pytest.mark.parametrize("window", [40, 700, 1 << 18])
@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_it_ends_where_the_strings_end(window, data) -> None:
    """Runs of short and long strings of any bytes, some of their lengths lies, cut anywhere: the same end as by the format's own words, or the same refusal."""
    order = data.draw(st.sampled_from("<>"))
    fill = data.draw(st.sampled_from([b"\0", b"a", b"\xff", b"\x05\0\0\0\0\0\0\0", b"\x01\x01"]))
    runs = data.draw(st.lists(st.tuples(_LENGTHS, st.integers(1, 60)), max_size=6))
    lengths = [length for length, times in runs for _ in range(times)]
    told = dict(data.draw(st.lists(st.tuples(st.integers(0, max(0, len(lengths) - 1)), _LIES), max_size=1)))
    raw = b"#" * 16 + b"".join(struct.pack(order + "Q", told.get(index, length)) + (fill * length)[:length] for index, length in enumerate(lengths))
    raw += b"\x07" * data.draw(st.sampled_from([0, 1, 30, 600]))
    raw = raw[: max(17, len(raw) - data.draw(st.sampled_from([0, 0, 0, 1, 7, 9, 100])))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "_BLOCK_BYTES", window)
        assert _walked(raw, len(lengths), order) == _counted(raw, len(lengths), order)


@pytest.mark.parametrize("place", [40, 41])
@pytest.mark.parametrize("byte", [1, 0x7F, 0x80, 0xFF])
def test_every_byte_of_a_length_counts(place, byte) -> None:
    """A length whose low byte is honest and whose upper bytes are not leads where it says, past the end: refused, in the middle of a plain run and as its last."""
    for lied in (place, 98, 99):
        for upper in range(1, 8):
            rows = [struct.pack("<Q", 5) + b"hello" for _ in range(100)]
            rows[lied] = bytes([5, *(byte if at == upper else 0 for at in range(1, 8))]) + b"hello"
            data = b"#" * 16 + b"".join(rows)
            assert _walked(data, 100, "<") == _counted(data, 100, "<")
            assert _walked(b"#" * 16 + b"".join(rows[:lied]), 100, "<") is None
