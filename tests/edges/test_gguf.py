"""The GGUF reader against files that an enemy wrote: one named rejection per fault, and the reference reader as the oracle."""

import contextlib
import random
import struct

import gguf as reference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim import errors
from brim.readers import gguf
from brim.readers.source import FileSource
from tests.gguf_bytes import dense_llama, header, text, value, vocabulary, write_sparse

METADATA, TENSORS = dense_llama(layers=2, width=64, heads=4, kv_heads=2, feed_forward=128, vocab=100)


class Bytes:
    """A source in memory."""

    def __init__(self, raw: bytes, size: int | None = None) -> None:
        self.name, self.raw, self.size = "made.gguf", raw, len(raw) if size is None else size

    def read(self, offset: int, length: int) -> bytes:
        return self.raw[offset : offset + length].ljust(length, b"\0")


def good() -> bytes:
    raw, data = header(METADATA, TENSORS)
    return raw + bytes(data)


def pair(key: str, tail: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text(key) + tail


HOSTILE = [
    ("text file", b"hello, world, this is no model" * 4, errors.NotACheckpoint, "no GGUF file"),
    ("version 1", b"GGUF" + struct.pack("<IQQ", 1, 0, 0), errors.UnsupportedVersion, "version 1"),
    ("2^60 tensors", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), errors.BadHeader, str(1 << 60)),
    ("2^60 pairs", b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), errors.BadHeader, "metadata pairs"),
    ("a key of 2^62 bytes", b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62) + bytes(64), errors.BadHeader, "length"),
    ("unknown value type", pair("a", struct.pack("<I", 99) + bytes(64)), errors.BadHeader, "unknown value type 99"),
    ("nested array", pair("a", struct.pack("<IIQ", 9, 9, 1) + bytes(64)), errors.BadHeader, "nested"),
    ("array of 2^61", pair("a", struct.pack("<IIQ", 9, 4, 1 << 61) + bytes(64)), errors.BadHeader, "items"),
    ("2^61 strings", pair("a", struct.pack("<IIQ", 9, 8, 1 << 61) + bytes(64)), errors.BadHeader, "strings"),
    ("string of 2^63", pair("a", struct.pack("<IQ", 8, 1 << 63) + bytes(64)), errors.BadHeader, "length"),
    ("key is not UTF-8", b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2) + b"\xff\xfe" + bytes(64), errors.BadHeader, "UTF-8"),
    ("no architecture", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + value(1), errors.BadHeader, "general.architecture"),
    ("architecture is a number", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("general.architecture") + value(1), errors.BadHeader, "general.architecture"),
]


@pytest.mark.parametrize(("raw", "kind", "words"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_hostile_headers(raw: bytes, kind: type[errors.BrimError], words: str) -> None:
    """Each fault has one named rejection, and the sentence names the file and the fault."""
    with pytest.raises(errors.BadCheckpoint) as caught:
        gguf.read(Bytes(raw))
    assert type(caught.value) is kind
    assert "made.gguf" in str(caught.value)
    assert words in str(caught.value)


def changed(**changes: object) -> bytes:
    raw, data = header({**METADATA, **changes}, TENSORS)
    return raw + bytes(data)


@pytest.mark.parametrize("alignment", [0, 3, 48, "32"])
def test_alignment_must_be_a_power_of_two(alignment: object) -> None:
    """Anything else is a bad header."""
    with pytest.raises(errors.BadHeader, match=r"general\.alignment"):
        gguf.read(Bytes(changed(**{"general.alignment": alignment})))


def one_tensor(dims: list[int], kind: int, offset: int, name: str = "t", rank: int | None = None, size: int = 1 << 40) -> Bytes:
    raw = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("general.architecture") + value("llama")
    raw += text(name) + struct.pack("<I", len(dims) if rank is None else rank) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)
    return Bytes(raw.ljust(4096, b"\0"), size)


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        (one_tensor([32], 99, 0), errors.BadTensor, "unknown ggml type 99"),
        (one_tensor([33], 8, 0), errors.BadTensor, "no multiple"),
        (one_tensor([1 << 32, 1 << 32], 0, 0), errors.BadTensor, "impossible"),
        (one_tensor([32], 0, 7), errors.BadTensor, "alignment"),
        (one_tensor([32], 0, 1 << 62), errors.Truncated, "ends at byte"),
        (one_tensor([32], 0, 0, rank=5), errors.BadTensor, "5 dimensions"),
        (one_tensor([32], 0, 0, name="x" * 256), errors.BadHeader, "at most 255"),
        (one_tensor([1 << 20, 1 << 20], 0, 0), errors.Truncated, "ends at byte"),
    ],
)
def test_hostile_tensors(source: Bytes, kind: type[errors.BrimError], words: str) -> None:
    """Types, shapes and places that cannot be are refused by the tensor's name."""
    with pytest.raises(errors.BadCheckpoint, match=words) as caught:
        gguf.read(source)
    assert type(caught.value) is kind


def test_every_cut_is_truncated_or_bad_and_never_a_crash() -> None:
    """The file cut at any of 200 places is refused by name."""
    whole, chance = good(), random.Random(7)
    for _ in range(200):
        with pytest.raises(errors.BadCheckpoint, match=r"made\.gguf"):
            gguf.read(Bytes(whole[: chance.randrange(4, len(whole))]))


@settings(max_examples=300)
@given(st.data())
def test_flipped_bytes_never_crash(data: st.DataObject) -> None:
    """Any few bytes changed: a checkpoint or a BadCheckpoint, nothing else."""
    raw = bytearray(good())
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4)):
        raw[at % len(raw)] = byte
    with contextlib.suppress(errors.BadCheckpoint):
        gguf.read(Bytes(bytes(raw)))


def test_the_reference_reader_agrees(tmp_path, smollm2) -> None:
    """The gguf package and brim see the same tensors in a made file and in a real one."""
    made = str(tmp_path / "made.gguf")
    write_sparse(made, {**METADATA, **vocabulary(500, 900)}, TENSORS)
    for path in (made, smollm2):
        with FileSource(path) as source:
            ours = gguf.read(source)
        theirs = reference.GGUFReader(path)
        rows = {t.name: (tuple(int(d) for d in t.shape), t.tensor_type.name, int(t.data_offset), int(t.n_bytes), int(t.n_elements)) for t in theirs.tensors}
        assert {t.name: (t.dims, t.dtype, t.offset, t.stored_bytes, t.elements) for t in ours.tensors} == rows
        assert ours.metadata["tokenizer.ggml.tokens.length"] == len(theirs.fields["tokenizer.ggml.tokens"].data)


def test_special_files_are_refused_without_hanging(tmp_path) -> None:
    """A FIFO nobody writes to, a device, a folder and an empty file: refused at once by what they are."""
    import os

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    for path, kind in (
        (tmp_path / "pipe", errors.NotARegularFile), ("/dev/zero", errors.NotARegularFile), (tmp_path, errors.Unreadable), (tmp_path / "empty", errors.EmptyFile),
        (tmp_path / "none", errors.Unreadable), ("a\0b", errors.Unreadable),
    ):  # fmt: skip
        with pytest.raises(kind):
            FileSource(str(path))
