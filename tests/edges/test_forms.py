"""Every form of a model, recognised by its content, against oracles that are not ours: the gguf and safetensors packages and Python's own zipfile."""

import json
import os
import pathlib

import gguf as reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import numpy as reference_safetensors
from safetensors import safe_open

from brim.checkpoint import open_checkpoint
from brim.errors import BadShards, Usage
from brim.facts.dtypes import GGML_TYPES, SAFETENSORS_BITS
from brim.readers import gguf, onnx, safetensors, torch_zip
from brim.readers.source import FileSource, MemorySource
from tests.fuzz import seeds


def rows_of(reader: reference.GGUFReader) -> dict[str, tuple[object, ...]]:
    return {t.name: (tuple(int(d) for d in t.shape), t.tensor_type.name, int(t.data_offset), int(t.n_bytes), int(t.n_elements)) for t in reader.tensors}


def ours(tensors) -> dict[str, tuple[object, ...]]:
    return {t.name: (t.dims, t.dtype, t.offset, t.stored_bytes, t.elements) for t in tensors}


@pytest.mark.parametrize("order", ["little", "big"])
def test_every_ggml_type_in_both_byte_orders_agrees_with_the_gguf_package(order: str, tmp_path) -> None:
    """Block sizes, offsets and counts of all types that the package knows, written by it, read by us."""
    path = str(tmp_path / "all.gguf")
    endian = reference.GGUFEndian.BIG if order == "big" else reference.GGUFEndian.LITTLE
    writer = reference.GGUFWriter(path, "llama", endianess=endian)
    writer.add_name("all types")
    writer.add_context_length(77)
    writer.add_array("tokenizer.ggml.tokens", ["a", "", "ß" * 200, "x"])
    writer.add_array("llama.per_layer", [1, -2, 3])
    # Q8_1 never stands in a file; gguf-py 0.19 still gives it the 40 bytes it had before block_q8_1 became 36 (ggml-common.h).
    known = [kind for kind in reference.GGMLQuantizationType if kind.value in GGML_TYPES and kind.name != "Q8_1"]
    for kind in known:
        block, size = reference.GGML_QUANT_SIZES[kind]
        writer.add_tensor(f"t.{kind.name}", np.zeros((3, 2 * size), dtype=np.uint8), raw_shape=(3, 2 * size), raw_dtype=kind)
        assert (block, size) == GGML_TYPES[kind.value][1:] or kind.name == "Q8_1"
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    checkpoint = open_checkpoint(path)
    assert ours(checkpoint.tensors) == rows_of(reference.GGUFReader(path))
    assert len(checkpoint.tensors) == len(known) >= 33
    assert checkpoint.metadata["llama.per_layer"] == [1, -2, 3]
    assert checkpoint.metadata["tokenizer.ggml.tokens.length"] == 4
    assert (checkpoint.name, checkpoint.metadata["llama.context_length"], checkpoint.caveats) == ("all types", 77, ())


def test_a_type_that_the_package_knows_and_we_do_not_would_be_a_failure() -> None:
    """Our table of ggml types holds every type of the installed gguf package."""
    assert {kind.value for kind in reference.GGMLQuantizationType} <= set(GGML_TYPES)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
VALUES = st.one_of(
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.text(st.characters(codec="utf-8"), max_size=300),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20),
)


@settings(max_examples=150, deadline=None)
@given(
    pairs=st.dictionaries(NAMES.filter(lambda key: not key.startswith(("general.", "split.", "tokenizer."))), VALUES, max_size=8),
    shapes=st.dictionaries(NAMES, st.tuples(st.integers(1, 4), st.lists(st.integers(1, 9), max_size=3), st.sampled_from([0, 1, 8, 2, 24])), max_size=6),
    order=st.sampled_from("<>"),
    version=st.sampled_from([2, 3]),
    alignment=st.sampled_from([8, 32, 256]),
)
def test_gguf_round_trip(pairs, shapes, order, version, alignment) -> None:
    """What is written is read: metadata, dims, types, places and bytes, whatever the order, version and alignment."""
    rows = []
    for name, (blocks, rest, code) in shapes.items():
        _, block, size = GGML_TYPES[code]
        count = blocks
        for dim in rest:
            count *= dim
        rows.append((name, (blocks * block, *rest), code, count * size))
    given_pairs = {"general.architecture": "made", "general.alignment": alignment, **pairs}
    raw = seeds.gguf(given_pairs, rows, order=order, version=version, alignment=alignment)
    checkpoint = gguf.read(MemorySource("made", raw))
    assert checkpoint.metadata == given_pairs
    assert [(t.name, t.dims, t.dtype, t.stored_bytes) for t in checkpoint.tensors] == [
        (name, dims, GGML_TYPES[code][0], size) for name, dims, code, size in rows
    ]
    assert all(t.offset % alignment == 0 for t in checkpoint.tensors)


@pytest.mark.parametrize("window", [16, 40, 64, 100, 1 << 18])
@pytest.mark.parametrize("order", "<>")
def test_the_window_may_end_anywhere_in_a_vocabulary(window: int, order: str, monkeypatch) -> None:
    """Strings of every length from 0 to 300, stepped over in blocks of any size, end exactly where the next key begins."""
    monkeypatch.setattr(gguf, "_BLOCK_BYTES", window)
    words = ["x" * length for length in range(301)] + [""] * 50 + ["y" * 70_000]
    raw = seeds.gguf({"general.architecture": "made", "tokenizer.ggml.tokens": words, "after": 5}, [], order=order)
    metadata = gguf.read(MemorySource("made", raw)).metadata
    assert metadata == {"general.architecture": "made", "tokenizer.ggml.tokens.length": len(words), "after": 5}


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_a_split_is_read_whole_from_any_of_its_shards(opened: int, tmp_path) -> None:
    """Three shards written by the gguf package: one checkpoint with all tensors, each with its shard, whichever file is named."""
    writer = reference.GGUFWriter(str(tmp_path / "m.gguf"), "llama", split_max_tensors=2)
    writer.add_context_length(5)
    for number in range(5):
        writer.add_tensor(f"t{number}", np.zeros((4, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    files = sorted(os.listdir(tmp_path))
    assert len(files) == 3
    checkpoint = open_checkpoint(str(tmp_path / files[opened]))
    assert [(t.name, t.shard) for t in checkpoint.tensors] == [("t0", 0), ("t1", 0), ("t2", 1), ("t3", 1), ("t4", 2)]
    assert checkpoint.file_bytes == sum((tmp_path / name).stat().st_size for name in files)
    assert [os.path.basename(name) for name in checkpoint.shards] == files
    assert open_checkpoint(str(tmp_path)).tensors == checkpoint.tensors


@pytest.mark.parametrize(
    ("pairs", "rows", "role"),
    [
        ({"general.type": "adapter", "adapter.type": "lora"}, seeds.ROWS, "lora"),
        ({"general.type": "mmproj"}, seeds.ROWS, "mmproj"),
        ({"general.architecture": "clip"}, seeds.ROWS, "mmproj"),
        ({"general.type": "imatrix"}, seeds.ROWS, "imatrix"),
        ({}, [], "vocab"),
        ({"general.type": "model"}, seeds.ROWS, "model"),
    ],
)
def test_gguf_files_that_are_no_model_are_told_apart(pairs, rows, role: str) -> None:
    """LoRA adapters, projectors, importance matrices and vocabularies say what they are."""
    assert gguf.read(MemorySource("made", seeds.gguf({"general.architecture": "llama", **pairs}, rows))).role == role


def test_holes_between_gguf_tensors_are_told(tmp_path) -> None:
    """A hole is no refusal, but it is said, with its size."""
    rows = [("a", (8,), 0, 32), ("b", (8,), 0, 32)]
    raw = seeds.gguf({"general.architecture": "llama"}, rows, offsets=[0, 96]) + bytes(64)
    checkpoint = gguf.read(MemorySource("made", raw))
    assert checkpoint.caveats == ("made: 64 bytes between the tensors belong to none (llama.cpp refuses such a file)",)


def test_every_safetensors_dtype_agrees_with_the_library(tmp_path) -> None:
    """All dtypes of the format, F4 and F6 included, as the library's own reader sees them."""
    rows, place = {}, 0
    for dtype, bits in SAFETENSORS_BITS.items():
        size = bits * 16 // 8
        rows[f"t.{dtype}"] = {"dtype": dtype, "shape": [2, 8], "data_offsets": [place, place + size]}
        place += size
    path = tmp_path / "all.safetensors"
    path.write_bytes(seeds.safetensors(rows, bytes(place)))
    checkpoint = open_checkpoint(str(path))
    with safe_open(str(path), framework="np") as theirs:
        assert {t.name for t in checkpoint.tensors} == set(theirs.keys())
        for tensor in checkpoint.tensors:
            part = theirs.get_slice(tensor.name)
            assert (tensor.dtype, list(reversed(tensor.dims))) == (part.get_dtype(), part.get_shape())
            assert tensor.stored_bytes * 8 == SAFETENSORS_BITS[tensor.dtype] * 16


@settings(max_examples=150, deadline=None)
@given(
    rows=st.dictionaries(
        NAMES.filter(lambda key: key != "__metadata__"),
        st.tuples(st.sampled_from(["f4", "f2", "i8", "u1", "?", "c8"]), st.lists(st.integers(0, 5), max_size=4)),
        min_size=1,
        max_size=8,
    ),
    words=st.none() | st.dictionaries(NAMES, st.text(st.characters(codec="utf-8"), max_size=9), max_size=3),
)
def test_safetensors_round_trip(rows, words) -> None:
    """What the library writes, we read: names, shapes, sizes, metadata. (For no tensors but metadata, library 0.8.0 writes broken JSON.)"""
    arrays = {name: np.zeros(shape, dtype=np.dtype(kind)) for name, (kind, shape) in rows.items()}
    raw = reference_safetensors.save(arrays, metadata=words)
    part = safetensors.scan(MemorySource("made", raw))
    assert {t.name: (tuple(reversed(t.dims)), t.stored_bytes) for t in part.tensors} == {name: (a.shape, a.nbytes) for name, a in arrays.items()}
    assert part.metadata == (words or {})


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_we_take_no_safetensors_file_that_the_library_refuses(data) -> None:
    """Bytes of a good file changed at random: where brim reads it, the library reads it too, and sees the same tensors."""
    from safetensors import SafetensorError, deserialize

    from brim.errors import BadCheckpoint

    raw = bytearray(seeds.safetensors())
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(raw) - 1), st.integers(32, 126)), min_size=1, max_size=3)):
        raw[at] = byte
    try:
        part = safetensors.scan(MemorySource("made", bytes(raw)))
    except BadCheckpoint:
        return
    try:
        theirs = deserialize(bytes(raw))
    except SafetensorError as fault:
        pytest.fail(f"brim took what the library refuses: {fault}")
    assert {name: row["shape"] for name, row in theirs} == {t.name: list(reversed(t.dims)) for t in part.tensors}


def sharded(folder: pathlib.Path, *, index: bool = True) -> None:
    """A model in two shards, with or without an index."""
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    reference_safetensors.save_file({"model.a.weight": np.zeros((4, 2), np.float32)}, folder / names[0])
    reference_safetensors.save_file({"model.b.weight": np.zeros(3, np.float16)}, folder / names[1])
    if index:
        document = {"metadata": {"total_size": 38}, "weight_map": {"model.a.weight": names[0], "model.b.weight": names[1]}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(document))


@pytest.mark.parametrize("index", [True, False])
def test_a_sharded_folder_is_one_checkpoint(index: bool, tmp_path) -> None:
    """With an index, without one, or by naming the index itself: the same tensors, in their shards."""
    sharded(tmp_path, index=index)
    checkpoint = open_checkpoint(str(tmp_path))
    assert {(t.name, t.dims, t.shard) for t in checkpoint.tensors} == {("model.a.weight", (2, 4), 0), ("model.b.weight", (3,), 1)}
    assert checkpoint.caveats == ()
    if index:
        assert open_checkpoint(str(tmp_path / "model.safetensors.index.json")).tensors == checkpoint.tensors


def test_saved_positions_are_no_parameters(tmp_path) -> None:
    """An integer buffer beside the weights keeps its bytes and counts for nothing."""
    reference_safetensors.save_file({"w": np.zeros((2, 3), np.float32), "position_ids": np.zeros((1, 512), np.int64)}, tmp_path / "m.safetensors")
    held = {t.name: (t.stored_bytes, t.elements) for t in open_checkpoint(str(tmp_path / "m.safetensors")).tensors}
    assert held == {"w": (24, 6), "position_ids": (4096, 0)}


def test_an_index_that_claims_another_size_is_told(tmp_path) -> None:
    """`total_size` beside the truth is no refusal (exporters get it wrong), but said."""
    sharded(tmp_path)
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(path.read_text().replace("38", "39"))
    assert "claims 39 bytes of tensors, its shards hold 38" in open_checkpoint(str(tmp_path)).caveats[0]


def test_the_links_of_a_hub_cache_are_followed_and_others_are_not(tmp_path) -> None:
    """snapshots/REV/file → ../../blobs/HASH is how the Hugging Face cache lies on disk; a link to anywhere else is refused."""
    repository = tmp_path / "models--a--b"
    snapshot, blobs = repository / "snapshots" / "abc", repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    sharded(blobs)
    for number, name in enumerate(sorted(os.listdir(blobs))):
        (blobs / name).rename(blobs / f"hash{number}")
        (snapshot / name).symlink_to(f"../../blobs/hash{number}")
    assert len(open_checkpoint(str(snapshot)).tensors) == 2
    secret = tmp_path / "elsewhere"
    secret.write_bytes((blobs / "hash0").read_bytes())
    (snapshot / "model-00001-of-00002.safetensors").unlink()
    (snapshot / "model-00001-of-00002.safetensors").symlink_to(secret)
    with pytest.raises(BadShards, match="leads out of the folder"):
        open_checkpoint(str(snapshot))
    (tmp_path / "mine.safetensors").symlink_to(secret)
    assert open_checkpoint(str(tmp_path / "mine.safetensors")).tensors  # a link that the user names is the user's own


def test_a_folder_with_two_models_asks_which(tmp_path) -> None:
    """Two files without a series between them are two models: exit 2, with their names."""
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(seeds.gguf())
    with pytest.raises(Usage, match=r"2 models \(a\.gguf, b\.gguf\)"):
        open_checkpoint(str(tmp_path))
    (tmp_path / "b.gguf").rename(tmp_path / "mmproj-b.gguf")
    assert open_checkpoint(str(tmp_path)).form == "gguf"


def test_a_peft_adapter_says_whose_it_is(tmp_path) -> None:
    """adapter_config.json and its tensors: role, base model, exact bytes."""
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8, "base_model_name_or_path": "org/base"}))
    reference_safetensors.save_file({"base_model.model.q.lora_A.weight": np.zeros((8, 4), np.float32)}, tmp_path / "adapter_model.safetensors")
    for path in (tmp_path, tmp_path / "adapter_config.json"):
        checkpoint = open_checkpoint(str(path))
        assert (checkpoint.form, checkpoint.role, checkpoint.caveats) == ("peft", "lora", ("adapter of org/base",))
        assert [(t.dims, t.stored_bytes, t.elements) for t in checkpoint.tensors] == [((4, 8), 128, 32)]


def test_onnx_initialisers_constants_and_external_data(tmp_path) -> None:
    """Raw, packed four-bit and external tensors, a constant in a node, and the logical size of a MatMulNBits weight."""
    outside = seeds.onnx_tensor("far", (5,), 10, location="w.data", offset="16", length="10")
    packed = seeds.onnx_tensor("q", (8, 1, 16), 2, bytes(128))
    attributes = b"".join(seeds.field(5, seeds.field(1, key) + seeds.field(3, number)) for key, number in ((b"K", 32), (b"N", 8), (b"bits", 4)))
    node = seeds.field(1, seeds.field(1, b"x") + seeds.field(1, b"q") + seeds.field(1, b"near") + seeds.field(4, b"MatMulNBits") + attributes)
    constant = seeds.field(
        1, seeds.field(4, b"Constant") + seeds.field(5, seeds.field(1, b"value") + seeds.field(5, seeds.onnx_tensor("c", (2,), 7, bytes(16))))
    )
    (tmp_path / "m.onnx").write_bytes(seeds.onnx(outside, packed, seeds.onnx_tensor("near", (3,), 22, bytes(2)), nodes=node + constant))
    (tmp_path / "w.data").write_bytes(bytes(26))
    checkpoint = open_checkpoint(str(tmp_path / "m.onnx"))
    assert [(t.name, t.dims, t.dtype, t.stored_bytes, t.elements, t.shard) for t in checkpoint.tensors] == [
        ("c", (2,), "I64", 16, 2, 0),
        ("far", (5,), "F16", 10, 5, 1),
        ("q", (16, 1, 8), "U8", 128, 256, 0),
        ("near", (3,), "I4", 2, 0, 0),
    ]
    assert checkpoint.file_bytes == (tmp_path / "m.onnx").stat().st_size + 26


def test_external_data_may_lie_in_folders_below_the_model(tmp_path) -> None:
    """A location is relative to the model's folder: subfolders are followed, two spellings of one file are one file, links may stay inside or lead to the hub cache's blobs."""
    tensors = [seeds.onnx_tensor(name, (4,), 1, location=place) for name, place in (("a", "x/y/w.bin"), ("b", "./x/./y/w.bin"), ("c", "linked/w.bin"))]
    snapshot = tmp_path / "models--a--b" / "snapshots" / "abc" / "onnx"
    (snapshot / "x" / "y").mkdir(parents=True)
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    (blobs / "hash").write_bytes(bytes(16))
    (snapshot / "x" / "y" / "w.bin").symlink_to("../../../../../blobs/hash")
    (snapshot / "linked").symlink_to("x/y")
    (snapshot / "m.onnx").write_bytes(seeds.onnx(*tensors))
    checkpoint = open_checkpoint(str(snapshot / "m.onnx"))
    assert [(t.name, t.stored_bytes, t.shard) for t in checkpoint.tensors if t.shard] == [("a", 16, 1), ("b", 16, 1), ("c", 16, 2)]
    assert checkpoint.shards[1:] == ("x/y/w.bin", "linked/w.bin")
    assert checkpoint.file_bytes == (snapshot / "m.onnx").stat().st_size + 32
    (blobs / "hash").rename(tmp_path / "elsewhere")
    (snapshot / "x" / "y" / "w.bin").unlink()
    (snapshot / "x" / "y" / "w.bin").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadShards, match="leads out of the folder"):
        open_checkpoint(str(snapshot / "m.onnx"))


@pytest.mark.parametrize("place", ["../w", "/etc/passwd", "a\\w", "a//w", "a/", "C:w", "a/../w", "w\nbrim: all is well", "w\x00", "."])
def test_external_data_that_leads_out_or_lies_about_its_line_is_refused(tmp_path, place) -> None:
    """No step up, no root, no drive, no other system's separator, no control character in a place that came out of a file."""
    (tmp_path / "m.onnx").write_bytes(seeds.onnx(seeds.onnx_tensor("a", (4,), 1, location=place)))
    with pytest.raises(BadShards, match="no path inside the model's folder"):
        open_checkpoint(str(tmp_path / "m.onnx"))


def test_a_file_for_each_tensor_or_one_for_many(tmp_path) -> None:
    """Exporters write one external file a tensor, or one for all: files are numbered in the order in which they are first named, whatever comes between."""
    places = [f"w/{index % 700}" for index in range(2_000)]
    path = tmp_path / "m.onnx"
    path.write_bytes(seeds.onnx(*(seeds.onnx_tensor(f"t{index}", (4,), 1, location=place) for index, place in enumerate(places))))
    with FileSource(str(path)) as source:
        part = onnx.scan(source)
    assert [tensor.shard for tensor in part.tensors] == [index % 700 + 1 for index in range(2_000)]
    assert list(part.external) == places[:700]


def test_a_large_onnx_file_is_jumped_through_and_not_read(tmp_path) -> None:
    """200 MB of raw data are passed over: a few windows are read."""
    head = seeds.onnx(seeds.onnx_tensor("w", (1,), 1, bytes(4)))
    tensor = b"".join((seeds.field(1, 50_000_000), seeds.field(2, 1), seeds.field(8, b"big"), seeds.varint(9 << 3 | 2), seeds.varint(200_000_000)))
    body = seeds.varint(5 << 3 | 2) + seeds.varint(len(tensor) + 200_000_000) + tensor
    path = tmp_path / "big.onnx"
    path.write_bytes(seeds.field(1, 10) + seeds.varint(7 << 3 | 2) + seeds.varint(len(body) + 200_000_000) + body)
    os.truncate(path, path.stat().st_size + 200_000_000)
    read = []

    class Counting(FileSource):
        def read(self, offset: int, length: int) -> bytes:
            read.append(length)
            return super().read(offset, length)

    with Counting(str(path)) as source:
        part = onnx.scan(source)
    assert [(t.name, t.stored_bytes) for t in part.tensors] == [("big", 200_000_000)]
    assert sum(read) < 100_000
    assert head


@pytest.mark.parametrize("prefix", ["archive", "pytorch_model", "deep/folder"])
def test_torch_storages_are_measured_and_the_pickle_is_left_alone(prefix: str) -> None:
    """Sizes from the zip directory alone; a pickle that would act if it were run is never run."""
    bomb = b"cos\nsystem\n(S'touch /tmp/brim-was-here'\ntR."
    raw = seeds.torch_zip({f"{prefix}/data.pkl": bomb, f"{prefix}/data/0": bytes(100), f"{prefix}/data/12": bytes(8), f"{prefix}/version": b"3"})
    part = torch_zip.scan(MemorySource("made", raw))
    assert sorted(t.stored_bytes for t in part.tensors) == [8, 100]
    assert not os.path.exists("/tmp/brim-was-here")


def test_a_zip_directory_of_64_bit_records_is_read() -> None:
    """Sizes and places out of the zip64 fields, as in files above 4 GiB."""
    part = torch_zip.scan(MemorySource("made", seeds.torch_zip64()))
    assert sorted(t.stored_bytes for t in part.tensors) == [16, 64]


def test_an_mlx_folder_is_told_by_its_metadata(tmp_path) -> None:
    """`format: mlx` in the file, group and bits in the config: logical counts from scales and group size."""
    rows = {"model.q.weight": np.zeros((64, 16), np.uint32), "model.q.scales": np.zeros((64, 2), np.float16), "model.q.biases": np.zeros((64, 2), np.float16)}
    reference_safetensors.save_file(rows, tmp_path / "model.safetensors", metadata={"format": "mlx"})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "quantization": {"group_size": 64, "bits": 4}}))
    checkpoint = open_checkpoint(str(tmp_path))
    assert (checkpoint.form, checkpoint.quantisation) == ("mlx", "mlx")
    assert sum(t.elements for t in checkpoint.tensors) == 64 * 128
    assert sum(t.stored_bytes for t in checkpoint.tensors) == 64 * 16 * 4 + 2 * 64 * 2 * 2


SHAPE_TOML = seeds.TOML


def test_shape_files_in_json_and_toml_are_the_same_model(tmp_path) -> None:
    """The same words in either dress give the same facts."""
    (tmp_path / "s.toml").write_text(SHAPE_TOML)
    words = {
        "name": "small",
        "file_type": "F16",
        "tensors": [["token_embd.weight", [32, 4], "F16"]],
        "metadata": {"general.architecture": "llama", "llama.context_length": 64},
    }
    (tmp_path / "s.json").write_text(json.dumps(words))
    one, two = (open_checkpoint(str(tmp_path / name)) for name in ("s.toml", "s.json"))
    assert one.replace(source="") == two.replace(source="")
    assert (one.form, one.architecture, one.quantisation, one.file_bytes) == ("shape", "llama", "F16", 256)


def test_a_vocabulary_written_out_in_a_shape_file_counts_by_its_length(tmp_path) -> None:
    """A shape file that carries its tokens gives the facts that the GGUF would."""
    words = {"metadata": {"general.architecture": "llama", "tokenizer.ggml.tokens": ["a"] * 70}, "weights_bytes": 5}
    (tmp_path / "s.json").write_text(json.dumps(words))
    checkpoint = open_checkpoint(str(tmp_path / "s.json"))
    assert checkpoint.metadata == {"general.architecture": "llama", "tokenizer.ggml.tokens.length": 70}
    assert checkpoint.file_bytes == 5
