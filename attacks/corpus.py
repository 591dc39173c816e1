"""The hostile corpus as data: each row is a name, the files that it needs, the one to open, the reason word of its rejection, and words that the sentence must hold.

`python -m attacks.corpus FOLDER` writes it out. Every byte follows from this file: no chance, no clock. Special members: `LINK:target` and `FIFO`.
"""

import io
import json
import os
import struct
import sys
import zipfile

from tests.fuzz.seeds import INDEX, PAIRS, ROWS, SHAPE, TOML, field, gguf, onnx, onnx_tensor, safetensors, text, torch_zip, varint

Files = dict[str, bytes | str]
Attack = tuple[str, Files, str, str, str]
Q = struct.Struct("<Q").pack
ARCH = {"general.architecture": "llama"}


def _head(tensors: int = 0, pairs: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)


def _pair(key: str, tail: bytes) -> bytes:
    return _head(pairs=1) + text(key) + tail + bytes(64)


def _words() -> bytes:
    """Strings of 60 KiB each, 66 MiB together: no single one is too long."""
    return _head(pairs=1100) + b"".join(text(f"k{number}") + struct.pack("<I", 8) + text("x" * 61_440) for number in range(1100))


def _row(name: str = "t", dims: tuple[int, ...] = (32,), code: int = 0, offset: int = 0, rank: int | None = None) -> bytes:
    raw = _head(1, 1) + text("general.architecture") + struct.pack("<I", 8) + text("llama")
    raw += text(name) + struct.pack("<I", len(dims) if rank is None else rank) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", code, offset)
    return raw.ljust(4096, b"\0")


def _tensor(**changes: object) -> bytes:
    row = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    return safetensors({"t": {key: value for key, value in row.items() if value is not None}}, bytes(8))


def _two(first: list[int], second: list[int], size: int) -> bytes:
    rows = {name: {"dtype": "U8", "shape": [place[1] - place[0]], "data_offsets": place} for name, place in (("a", first), ("b", second))}
    return safetensors(rows, bytes(size))


def _split(number: int, count: int, rows: list[tuple[str, tuple[int, ...], int, int]], total: int, **more: object) -> bytes:
    pairs: dict[str, object] = dict(PAIRS) if number == 0 else {}
    return gguf({**pairs, "split.no": number, "split.count": count, "split.tensors.count": total, **more}, rows)


def _lists() -> bytes:
    """Three hundred lists of 4096 bytes each: none is too long, but a number in memory takes eight times its byte."""
    return _head(pairs=300) + b"".join(text(f"k{number}") + struct.pack("<IIQ", 9, 0, 4096) + bytes(4096) for number in range(300))


def _gguf_rows() -> list[tuple[str, bytes, str, str]]:
    good, at = gguf(), gguf().index(b"tokenizer.ggml.tokens")
    array = at + len("tokenizer.ggml.tokens")
    lying = bytearray(good)
    lying[array + 16 : array + 24] = Q(1 << 63)
    lying_low = bytearray(good)  # the low byte of the length is true, a high one is not: a walk that looks at one byte would go on
    lying_low[array + 16 + 7] = 1
    return [
        ("version-1", _head(version=1), "unsupported_version", "version 1"),
        ("version-0", _head(version=0), "unsupported_version", "version 0"),
        ("version-99", _head(version=99), "unsupported_version", "version 99"),
        ("only-the-magic", b"GGUF", "truncated", "the version"),
        ("cut-in-the-counts", _head()[:12], "truncated", "tensor count"),
        ("tensors-2-60", _head(tensors=1 << 60), "bad_header", "tensors"),
        ("pairs-2-60", _head(pairs=1 << 60), "bad_header", "metadata pairs"),
        ("tensors-300000", _head(tensors=300_000) + bytes(8 << 20), "too_large", "at most 100000"),
        ("pairs-200000", _head(pairs=200_000) + bytes(3 << 20), "too_large", "at most 100000"),
        ("words-without-end", _words(), "too_large", "in all"),
        ("lists-without-end", _lists(), "too_large", "items in all"),
        ("architecture-of-escapes", gguf({"general.architecture": "llama\x1b[2J"}), "bad_header", "no word"),
        ("architecture-of-two-lines", gguf({"general.architecture": "llama\nFITS"}), "bad_header", "no word"),
        ("architecture-of-60000", gguf({"general.architecture": "x" * 60_000}), "bad_header", "no word"),
        ("key-2-62", _head(pairs=1) + Q(1 << 62) + bytes(64), "bad_header", "length"),
        ("key-past-the-end", _head(pairs=1) + Q(1000) + bytes(64), "truncated", "the key"),
        ("key-not-utf8", _head(pairs=1) + Q(2) + b"\xff\xfe" + bytes(64), "bad_header", "UTF-8"),
        ("key-twice", gguf()[:4] + struct.pack("<IQQ", 3, 0, 2) + 2 * (text("a") + struct.pack("<IB", 0, 1)) + bytes(64), "bad_header", "twice"),
        ("value-type-99", _pair("a", struct.pack("<I", 99)), "bad_header", "value type 99"),
        ("string-2-63", _pair("a", struct.pack("<IQ", 8, 1 << 63)), "bad_header", "length"),
        ("string-past-the-end", _pair("a", struct.pack("<IQ", 8, 1 << 20)), "truncated", "'a'"),
        ("string-not-utf8", _pair("a", struct.pack("<IQ", 8, 2) + b"\xff\xff"), "bad_header", "UTF-8"),
        ("array-nested", _pair("a", struct.pack("<IIQ", 9, 9, 1)), "bad_header", "nested"),
        ("array-of-numbers-2-61", _pair("a", struct.pack("<IIQ", 9, 10, 1 << 61)), "bad_header", "items"),
        ("array-of-strings-2-61", _pair("a", struct.pack("<IIQ", 9, 8, 1 << 61)), "bad_header", "strings"),
        ("vocabulary-string-2-63", bytes(lying), "truncated", "tokenizer.ggml.tokens"),
        ("vocabulary-string-high-byte", bytes(lying_low), "truncated", "tokenizer.ggml.tokens"),
        ("no-architecture", gguf({"a": 1}, []), "bad_header", "general.architecture"),
        ("architecture-a-number", gguf({"general.architecture": 1}, []), "bad_header", "general.architecture"),
        ("alignment-zero", gguf({**ARCH, "general.alignment": 0}), "bad_header", "general.alignment"),
        ("alignment-three", gguf({**ARCH, "general.alignment": 3}), "bad_header", "general.alignment"),
        ("alignment-a-word", gguf({**ARCH, "general.alignment": "32"}), "bad_header", "general.alignment"),
        ("alignment-2-30", gguf({**ARCH, "general.alignment": 1 << 30}), "bad_header", "general.alignment"),
        ("name-too-long", _row(name="x" * 256), "bad_header", "at most 255"),
        ("rank-5", _row(rank=5), "bad_tensor", "5 dimensions"),
        ("rank-2-32", _row(rank=(1 << 32) - 1), "bad_tensor", "dimensions"),
        ("type-removed", _row(code=4), "bad_tensor", "'t' has the unknown ggml type 4"),
        ("type-unknown", _row(code=99), "bad_tensor", "'t' has the unknown ggml type 99"),
        ("row-no-whole-block", _row(dims=(33,), code=8), "bad_tensor", "no multiple"),
        ("dims-overflow", _row(dims=(1 << 32, 1 << 32)), "bad_tensor", "impossible"),
        ("dim-negative", _row(dims=((1 << 64) - 1,)), "bad_tensor", "impossible"),
        ("offset-not-aligned", _row(offset=7), "bad_tensor", "alignment"),
        ("offset-2-62", _row(offset=1 << 62), "truncated", "ends at byte"),
        ("offset-wraps", _row(offset=(1 << 64) - 32), "truncated", "ends at byte"),
        ("data-behind-the-end", _row(dims=(1 << 20,)), "truncated", "ends at byte"),
        ("tensor-twice", gguf(rows=[ROWS[0], ROWS[0]]), "bad_tensor", "twice"),
        ("tensors-overlap", gguf(offsets=[0, 32, 1152]), "bad_tensor", "overlap"),
        ("cut-in-the-data", gguf()[:-64], "truncated", "ends at byte"),
        ("cut-in-the-directory", gguf()[: gguf().index(b"output_norm") + 4], "truncated", "tensor 2"),
        ("big-endian-cut", gguf(order=">")[:300], "truncated", "the file ends"),
        ("split-number-above-count", _split(3, 2, ROWS, 3), "bad_shards", "shard 3"),
        ("split-count-2-16", _split(0, 65535, ROWS, 3), "bad_shards", "of 65535"),
        ("split-count-a-word", gguf({**ARCH, "split.count": "2"}), "bad_header", "split.count"),
    ]


def _safetensors_rows() -> list[tuple[str, bytes, str, str]]:
    deep = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"
    return [
        ("seven-bytes", b"\x10\0\0\0\0\0\0", "truncated", "too short"),
        ("length-2-63", Q(1 << 63) + b"{}", "too_large", "header of"),
        ("length-above-cap", Q(100_000_001) + b"{}", "too_large", "at most"),
        ("length-past-the-end", Q(1000) + b"{}", "truncated", "only 2 follow"),
        ("no-brace", safetensors(b'["a"]'), "not_a_checkpoint", "brace"),
        ("no-json", safetensors(b"{a:1}"), "bad_header", "no JSON"),
        ("not-utf8", safetensors(b'{"\xff":1}'), "bad_header", "UTF-8"),
        ("deep", safetensors(deep), "bad_header", "nested deeper"),
        ("deep-but-thin", safetensors(b'{"a":' + b'["xxxxxxxx",' * 900 + b"1" + b"]" * 900 + b"}"), "bad_header", "nested deeper"),
        (
            "key-twice",
            safetensors(b'{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
            "bad_header",
            "twice",
        ),
        ("dtype-twice", safetensors(b'{"t":{"dtype":"F32","dtype":"F64","shape":[1],"data_offsets":[0,4]}}', bytes(4)), "bad_header", "twice"),
        ("million-lists", safetensors(b'{"a":[' + b"[]," * 300_000 + b"[]]}"), "bad_header", "not believed"),
        ("lists-just-thin-enough", safetensors(b'{"a":[' + b"[1]," * 300_000 + b"[]]}"), "bad_header", "not believed"),
        ("keys-700000", safetensors(b"{" + b",".join(b'"%d":1' % number for number in range(700_000)) + b"}"), "too_large", "keys"),
        ("values-3-million", safetensors(b'{"a":[' + b"1," * 3_000_000 + b"1]}"), "too_large", "values"),
        ("infinite-by-its-exponent", safetensors(b'{"t":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}}', bytes(4)), "bad_header", "1e999"),
        ("nan", safetensors(b'{"t":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', bytes(4)), "bad_header", "NaN"),
        ("huge-number", safetensors(b'{"t":{"dtype":"F32","shape":[1' + b"0" * 4000 + b'],"data_offsets":[0,4]}}', bytes(4)), "bad_header", "digits"),
        ("metadata-a-number", safetensors({"__metadata__": {"a": 1}}), "bad_header", "__metadata__"),
        ("metadata-a-list", safetensors({"__metadata__": []}), "bad_header", "__metadata__"),
        ("row-a-number", safetensors({"t": 1}), "bad_tensor", "exactly"),
        ("row-without-dtype", _tensor(dtype=None), "bad_tensor", "exactly"),
        ("row-with-more", _tensor(more=1), "bad_tensor", "exactly"),
        ("dtype-unknown", _tensor(dtype="F31"), "bad_tensor", "F31"),
        ("dtype-a-list", _tensor(dtype=["F32"]), "bad_tensor", "unknown dtype"),
        ("shape-negative", _tensor(shape=[-1]), "bad_tensor", "impossible dimension"),
        ("shape-a-float", _tensor(shape=[2.0]), "bad_tensor", "impossible dimension"),
        ("shape-true", _tensor(shape=[True, 2]), "bad_tensor", "impossible dimension"),
        ("shape-a-word", _tensor(shape="2"), "bad_tensor", "shape"),
        ("shape-of-65", _tensor(shape=[1] * 65), "bad_tensor", "dimensions"),
        ("shape-overflow", _tensor(shape=[1 << 40, 1 << 40]), "bad_tensor", "64 bits"),
        ("offsets-three", _tensor(data_offsets=[0, 4, 8]), "bad_tensor", "data_offsets"),
        ("offsets-falling", _tensor(data_offsets=[8, 0]), "bad_tensor", "data_offsets"),
        ("offsets-negative", _tensor(data_offsets=[-8, 0]), "bad_tensor", "data_offsets"),
        ("offsets-short", _tensor(data_offsets=[0, 4]), "bad_tensor", "8 bytes by its shape"),
        ("half-a-byte", _tensor(dtype="F4", shape=[3], data_offsets=[0, 1]), "bad_tensor", "whole byte"),
        ("overlap", _two([0, 8], [4, 12], 12), "bad_tensor", "overlap"),
        ("hole", _two([0, 4], [8, 12], 12), "bad_tensor", "belong to none"),
        ("hole-at-the-start", _two([4, 8], [8, 12], 12), "bad_tensor", "belong to none"),
        ("bytes-behind", _two([0, 4], [4, 8], 12), "bad_tensor", "behind the last"),
        ("data-cut", _two([0, 4], [4, 8], 6), "truncated", "end at byte"),
        ("data-2-62", _tensor(dtype="U8", shape=[1 << 62], data_offsets=[0, 1 << 62]), "truncated", "end at byte"),
    ]


def _onnx_rows() -> list[tuple[str, bytes, str, str]]:
    loop = b""
    for _ in range(40):
        loop = field(1, field(5, field(6, loop)))
    return [
        ("no-graph", field(1, 10) + field(2, b"p"), "not_a_checkpoint", "0 graphs"),
        ("two-graphs", onnx() + field(7, b""), "not_a_checkpoint", "2 graphs"),
        ("length-past-the-end", field(1, 10) + varint(7 << 3 | 2) + varint(1 << 40), "truncated", "leads out"),
        ("length-2-63", field(1, 10) + varint(7 << 3 | 2) + varint((1 << 64) - 1), "truncated", "leads out"),
        ("number-endless", field(1, 10) + field(2, b"p") + b"\x80" * 40, "bad_header", "64 bits"),
        ("number-cut", field(1, 10) + field(2, b"p") + b"\x80", "truncated", "number"),
        ("group-wire-type", field(1, 10) + field(2, b"p") + varint(5 << 3 | 3), "bad_header", "wire type 3"),
        ("field-zero", field(1, 10) + field(2, b"p") + b"\x02\0", "bad_header", "field number 0"),
        ("type-unknown", onnx(onnx_tensor("w", (1,), 99, bytes(4))), "bad_tensor", "unknown ONNX type 99"),
        ("dims-overflow", onnx(onnx_tensor("w", (1 << 40, 1 << 40), 1, bytes(4))), "bad_tensor", "impossible"),
        ("dims-of-70", onnx(onnx_tensor("w", (1,) * 70, 1, bytes(4))), "bad_tensor", "dimensions"),
        ("raw-too-short", onnx(onnx_tensor("w", (4,), 1, bytes(8))), "bad_tensor", "16 bytes by its dimensions"),
        ("name-twice", onnx(onnx_tensor("w", (1,), 1, bytes(4)), onnx_tensor("w", (1,), 1, bytes(4))), "bad_tensor", "twice"),
        ("name-of-a-mebibyte", onnx(onnx_tensor("w" * (1 << 20), (1,), 1, bytes(4))), "bad_header", "a name of"),
        ("tensors-60000", field(1, 10) + field(2, b"p") + field(7, field(5, field(2, 1)) * 60_000), "bad_header", "more than 50000"),
        ("graphs-nested", field(1, 10) + field(2, b"p") + field(7, loop), "bad_header", "nested"),
        ("outside-traversal", onnx(onnx_tensor("w", (1,), 1, location="../../etc/passwd")), "bad_shards", "no path inside"),
        ("outside-absolute", onnx(onnx_tensor("w", (1,), 1, location="/etc/passwd")), "bad_shards", "no path inside"),
        ("outside-nowhere", onnx(onnx_tensor("w", (1,), 1, offset="0")), "bad_shards", "no path inside"),
        *(
            (f"outside-{name}", onnx(onnx_tensor("w", (1,), 1, location=place)), "bad_shards", "no path inside")
            for name, place in (
                ("below-and-back", "a/../../secret"),
                ("below-and-round", "a/../w"),
                ("empty-step", "a//w"),
                ("folder-only", "a/"),
                ("backslashes", "a\\..\\..\\secret"),
                ("drive-below", "a/C:/w"),
                ("nul-below", "a/w\0.bin"),
                ("step-of-300", "a/" + "b" * 300),
                ("here-only", "./."),
            )
        ),
        ("outside-40-steps", onnx(onnx_tensor("w", (1,), 1, location="a/" * 40 + "w")), "bad_shards", "inside the folder"),
        ("outside-offset-a-word", onnx(onnx_tensor("w", (1,), 1, location="d", offset="-1")), "bad_tensor", "external offset"),
        ("outside-length-wrong", onnx(onnx_tensor("w", (1,), 1, location="d", length="400")), "bad_tensor", "4 bytes by its dimensions"),
    ]


def _torch_rows() -> list[tuple[str, bytes, str, str]]:
    good = torch_zip()
    end = good.rfind(b"PK\5\6")
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as archive:
        for name in ("archive/data.pkl", "archive/data/1", "archive/data/2"):
            archive.writestr(zipfile.ZipInfo(name), b"1234")
    double = twice.getvalue().replace(b"archive/data/2", b"archive/data/1")
    directory = bytearray(good)
    first = good.index(b"PK\1\2")
    directory[first : first + 4] = b"XXXX"
    far = bytearray(good)
    struct.pack_into("<I", far, good.rfind(b"PK\1\2", 0, good.rfind(b"PK\1\2")) + 42, 1 << 30)
    many = bytearray(good)
    struct.pack_into("<H", many, end + 10, 60_000)
    away = bytearray(good)
    struct.pack_into("<I", away, end + 16, 1 << 30)
    wide = bytearray(good)
    struct.pack_into("<I", wide, end + 16, 0xFFFFFFFF)
    disks = bytearray(good)
    struct.pack_into("<H", disks, end + 4, 3)
    lacking = bytearray(good)
    struct.pack_into("<I", lacking, first + 24, 0xFFFFFFFF)
    return [
        ("pickle", b"\x80\2cos\nsystem\nq\0.", "unsupported_version", "pickle"),
        ("pickle-4", b"\x80\4\x95" + bytes(40), "unsupported_version", "pickle"),
        ("no-end-record", good[:end], "truncated", "end record"),
        ("no-data-pkl", torch_zip({"a.txt": b"hello"}), "not_a_checkpoint", "data.pkl"),
        ("compressed-storage", torch_zip({"a/data.pkl": b"", "a/data/0": bytes(4096)}, zipfile.ZIP_DEFLATED), "bad_tensor", "compressed"),
        ("record-twice", double, "bad_header", "stands twice"),
        ("directory-damaged", bytes(directory), "bad_header", "damaged"),
        ("record-behind-the-directory", bytes(far), "truncated", "ends behind"),
        ("records-60000", bytes(many), "bad_header", "60000 records"),
        ("directory-behind-the-end", bytes(away), "truncated", "zip directory ends"),
        ("zip64-without-its-record", bytes(wide), "bad_header", "zip64"),
        ("several-disks", bytes(disks), "unsupported_version", "disks"),
        ("record-without-its-64-bit-sizes", bytes(lacking), "bad_header", "64-bit"),
    ]


def _json_rows() -> list[tuple[str, bytes, str, str]]:
    def shape(**changes: object) -> bytes:
        return json.dumps({**SHAPE, **changes}).encode()

    return [
        ("neither", b'{"a": 1}', "not_a_checkpoint", "no index, shape file or model config"),
        ("only-blanks", b'{ "a" ', "bad_header", "no JSON"),
        ("config-a-list", b'{"model_type": "llama", "model_type": "gpt2"}', "bad_header", "twice"),
        ("shape-tensors-a-word", shape(tensors="x"), "bad_header", "tensors"),
        ("shape-row-short", shape(tensors=[["a", [1]]]), "bad_tensor", "must be"),
        ("shape-type-unknown", shape(tensors=[["a", [1], "Q9_Z"]]), "bad_tensor", "Q9_Z"),
        ("shape-dim-negative", shape(tensors=[["a", [-1], "F32"]]), "bad_tensor", "impossible"),
        ("shape-dims-overflow", shape(tensors=[["a", [1 << 40, 1 << 40], "F32"]]), "bad_tensor", "impossible"),
        ("shape-no-whole-block", shape(tensors=[["a", [33], "Q8_0"]]), "bad_tensor", "no multiple"),
        ("shape-name-twice", shape(tensors=[["a", [1], "F32"]] * 2), "bad_tensor", "twice"),
        ("shape-counts-negative", shape(tensors=[["a", [1], "?", -4]]), "bad_tensor", "counts"),
        ("shape-weights-negative", shape(weights_bytes=-1), "bad_header", "weights_bytes"),
        ("shape-weights-a-word", shape(weights_bytes="5 GB"), "bad_header", "weights_bytes"),
        ("shape-without-architecture", shape(metadata={"a": 1}), "bad_header", "general.architecture"),
        ("shape-config-without-type", b'{"config": {"hidden_size": 8}}', "bad_header", "model_type"),
        ("index-empty", b'{"weight_map": {}}', "bad_header", "weight_map"),
        ("index-a-list", b'{"weight_map": ["a"]}', "bad_header", "weight_map"),
        ("index-shard-a-number", b'{"weight_map": {"a": 1}}', "bad_header", "no file name"),
        ("index-traversal", b'{"weight_map": {"a": "../../../etc/passwd"}}', "bad_shards", "plain file name"),
        ("index-absolute", b'{"weight_map": {"a": "/etc/passwd"}}', "bad_shards", "plain file name"),
        ("index-windows", b'{"weight_map": {"a": "..\\\\secret.safetensors"}}', "bad_shards", "plain file name"),
        ("index-drive", b'{"weight_map": {"a": "C:x.safetensors"}}', "bad_shards", "plain file name"),
        ("index-nul", b'{"weight_map": {"a": "a\\u0000b"}}', "bad_shards", "plain file name"),
        ("index-shards-missing", json.dumps(INDEX).encode(), "bad_shards", "2 of 2 shards are missing"),
    ]


def _folders() -> list[Attack]:
    one = safetensors({"model.embed.weight": {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]}}, bytes(32))
    two = safetensors({"model.q.weight": {"dtype": "F4", "shape": [4, 2], "data_offsets": [0, 4]}}, bytes(4))
    first, second, index = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"
    names = json.dumps(INDEX).encode()
    shards = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    return [
        ("folder-empty", {"m/readme.txt": b"x"}, "m", "not_a_checkpoint", "no model"),
        ("folder-index-shard-missing", {f"m/{index}": names, f"m/{first}": one}, "m", "bad_shards", "1 of 2 shards are missing"),
        (
            "folder-index-shard-extra",
            {f"m/{index}": names, f"m/{first}": one, f"m/{second}": two, "m/model-00003-of-00003.safetensors": two},
            "m",
            "bad_shards",
            "does not name it",
        ),
        ("folder-index-tensor-twice", {f"m/{index}": names, f"m/{first}": one, f"m/{second}": one}, "m", "bad_shards", "stands in"),
        ("folder-index-tensor-elsewhere", {f"m/{index}": names, f"m/{first}": two, f"m/{second}": one}, "m", "bad_shards", "but the index says"),
        ("folder-index-tensor-unnamed", {f"m/{index}": names, f"m/{first}": one, f"m/{second}": _two([0, 4], [4, 8], 8)}, "m", "bad_shards", "does not name"),
        ("folder-index-tensor-missing", {f"m/{index}": names, f"m/{first}": one, f"m/{second}": safetensors({})}, "m", "bad_shards", "is not in"),
        ("folder-series-incomplete", {f"m/{first}": one}, "m", "bad_shards", "shard 2 of 2"),
        ("folder-series-tensor-twice", {f"m/{first}": one, f"m/{second}": one}, "m", "bad_shards", "stands in"),
        ("folder-two-series", {f"m/{first}": one, "m/other-00001-of-00001.safetensors": two}, "m", "bad_shards", "2 different series"),
        (
            "folder-shard-links-out",
            {f"m/{index}": names, f"m/{first}": one, f"m/{second}": "LINK:../secret", "secret": two},
            "m",
            "bad_shards",
            "leads out of the folder",
        ),
        ("folder-shard-links-round", {f"m/{index}": names, f"m/{first}": one, f"m/{second}": f"LINK:{second}"}, "m", "not_a_regular_file", "circle"),
        ("folder-shard-is-a-pipe", {f"m/{index}": names, f"m/{first}": one, f"m/{second}": "FIFO"}, "m", "not_a_regular_file", "no regular file"),
        ("folder-config-links-out", {"m/model.safetensors": one, "m/config.json": "LINK:/etc/hostname"}, "m", "bad_shards", "leads out of the folder"),
        ("folder-config-a-list", {"m/model.safetensors": one, "m/config.json": b"[1]"}, "m", "bad_header", "no JSON object"),
        ("adapter-without-weights", {"m/adapter_config.json": b'{"peft_type": "LORA"}'}, "m", "bad_shards", "adapter_model"),
        ("adapter-pickle", {"m/adapter_config.json": b'{"peft_type": "LORA"}', "m/adapter_model.bin": b"\x80\2."}, "m", "unsupported_version", "pickle"),
        ("onnx-outside-short", {"m/a.onnx": onnx(onnx_tensor("w", (9,), 1, location="d")), "m/d": b"1234"}, "m/a.onnx", "truncated", "which has 4"),
        (
            "onnx-outside-links-out",
            {"m/a.onnx": onnx(onnx_tensor("w", (1,), 1, location="d")), "m/d": "LINK:/etc/hostname"},
            "m/a.onnx",
            "bad_shards",
            "leads out",
        ),
        *(
            (f"onnx-below-{name}", {"m/a.onnx": onnx(onnx_tensor("w", (1,), 1, location=place)), **files}, "m/a.onnx", kind, words)
            for name, place, files, kind, words in (
                ("folder-links-out", "b/d", {"m/b": "LINK:../o", "o/d": b"1234"}, "bad_shards", "leads out"),
                ("file-links-out", "b/d", {"m/b/d": "LINK:../../secret", "secret": b"1234"}, "bad_shards", "leads out"),
                ("links-to-a-sibling", "b/d", {"m/b": "LINK:../m2", "m2/d": b"1234"}, "bad_shards", "leads out"),
                ("links-round", "b/d", {"m/b": "LINK:b"}, "not_a_regular_file", "circle"),
                ("is-a-pipe", "b/d", {"m/b/d": "FIFO"}, "not_a_regular_file", "no regular file"),
                ("short", "b/d", {"m/b/d": b"123"}, "truncated", "which has 3"),
            )
        ),
        ("split-shard-missing", {f"m/{shards[0]}": _split(0, 2, ROWS[:1], 3)}, f"m/{shards[0]}", "bad_shards", "1 of 2 shards are missing"),
        ("split-name-lost", {"m/a.gguf": _split(0, 2, ROWS[:1], 3)}, "m/a.gguf", "bad_shards", "its name does not end"),
        (
            "split-tensor-twice",
            {f"m/{shards[0]}": _split(0, 2, ROWS[:1], 2), f"m/{shards[1]}": _split(1, 2, ROWS[:1], 2)},
            f"m/{shards[1]}",
            "bad_shards",
            "stands in",
        ),
        (
            "split-other-model",
            {f"m/{shards[0]}": _split(0, 2, ROWS[:1], 3), f"m/{shards[1]}": _split(0, 2, ROWS[1:], 3)},
            f"m/{shards[0]}",
            "bad_shards",
            "but stands as",
        ),
        (
            "split-count-of-tensors",
            {f"m/{shards[0]}": _split(0, 2, ROWS[:1], 9), f"m/{shards[1]}": _split(1, 2, ROWS[1:], 9)},
            f"m/{shards[0]}",
            "bad_shards",
            "9 tensors by its own count",
        ),
        ("a-pipe", {"p.gguf": "FIFO"}, "p.gguf", "not_a_regular_file", "no regular file"),
        ("a-device", {"d.gguf": "LINK:/dev/zero"}, "d.gguf", "not_a_regular_file", "no regular file"),
        ("a-circle", {"c.gguf": "LINK:c.gguf"}, "c.gguf", "not_a_regular_file", "circle"),
        ("empty", {"e.gguf": b""}, "e.gguf", "empty_file", "0 bytes"),
        ("text", {"t.gguf": b"hello, world"}, "t.gguf", "not_a_checkpoint", "no checkpoint"),
        ("toml-broken", {"s.toml": b"a = = 1"}, "s.toml", "bad_header", "no TOML"),
        ("toml-no-shape", {"s.toml": b"a = 1"}, "s.toml", "not_a_checkpoint", "no shape file"),
        ("toml-date", {"s.toml": TOML.encode() + b"x = 1979-05-27\n"}, "s.toml", "bad_header", "date"),
        ("toml-time", {"s.toml": TOML.encode() + b"x = [[1, 07:32:00]]\n"}, "s.toml", "bad_header", "time"),
        ("toml-nan", {"s.toml": TOML.encode() + b"x = nan\n"}, "s.toml", "bad_header", "nan"),
        ("toml-infinite", {"s.toml": TOML.encode() + b"x = -inf\n"}, "s.toml", "bad_header", "inf"),
        ("toml-number-without-end", {"s.toml": TOML.encode() + b"x = 1" + b"0" * 400 + b"\n"}, "s.toml", "bad_header", "bits"),
        (
            "config-of-5-mib",
            {"m/model.safetensors": one, "m/config.json": b'{"model_type": "llama", "a": "' + b"x" * (5 << 20) + b'"}'},
            "m",
            "too_large",
            "cap",
        ),
        ("toml-deep", {"s.toml": b"a = " + b"[" * 4000 + b"]" * 4000}, "s.toml", "bad_header", "nested"),
    ]


def attacks() -> list[Attack]:
    """All rows: (name, files, which to open, reason word, words of the sentence)."""
    rows: list[Attack] = []
    for form, ending, group in (
        ("gguf", "gguf", _gguf_rows()),
        ("safetensors", "safetensors", _safetensors_rows()),
        ("onnx", "onnx", _onnx_rows()),
        ("torch", "pt", _torch_rows()),
        ("json", "json", _json_rows()),
    ):
        rows += [(f"{form}-{name}", {f"m.{ending}": raw}, f"m.{ending}", reason, words) for name, raw, reason, words in group]
    return rows + _folders()


def write(folder: str, files: Files) -> None:
    """Put the files of one attack into a folder."""
    for name, body in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if body == "FIFO":
            os.mkfifo(path)
        elif isinstance(body, str):
            os.symlink(body.removeprefix("LINK:"), path)
        else:
            with open(path, "wb") as file:
                file.write(body)


if __name__ == "__main__":
    for attack in attacks():
        write(os.path.join(sys.argv[1], attack[0]), attack[1])
