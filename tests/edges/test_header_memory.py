"""What is remembered of a header may save a walk; it never changes an answer, whatever happens to the file or to the memory."""

import os
import pathlib
import threading

import pytest

from brim.checkpoint import open_checkpoint
from brim.errors import BadCheckpoint
from brim.readers import gguf
from tests.fuzz import seeds

LONG_AGO = 10**18


def model(words: list[str], after: int) -> bytes:
    """A GGUF with a long vocabulary and a key behind it."""
    return seeds.gguf({"general.architecture": "llama", "tokenizer.ggml.tokens": words, "llama.context_length": after})


VOCABULARY = [f"t{number:05d}" for number in range(12_000)]
OTHER = [f"u{number:05d}" for number in range(11_999)] + ["v00000"]
SHIFTED = ["x" * 12, *VOCABULARY[2:], ""]  # as long in all, with other borders


@pytest.fixture
def memory(tmp_path) -> str:
    return str(tmp_path / "memory")


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    file = tmp_path / "m.gguf"
    file.write_bytes(model(VOCABULARY, 64))
    return file


def settle(memory: str) -> None:
    """Date the entries as if they had been written well after the model last changed."""
    for name in os.listdir(memory):
        os.utime(os.path.join(memory, name), ns=(4 * LONG_AGO, 4 * LONG_AGO))


def walks(monkeypatch) -> list[str]:
    """Which lists are walked string by string from now on."""
    seen: list[str] = []
    walk = gguf._Header.step_over_strings
    monkeypatch.setattr(gguf._Header, "step_over_strings", lambda self, count, what: (seen.append(what), walk(self, count, what))[1])
    return seen


def test_the_second_reading_does_not_walk_the_vocabulary_and_says_the_same(path, memory, monkeypatch) -> None:
    """The same checkpoint, without a step through its strings."""
    first = open_checkpoint(str(path), memory)
    settle(memory)
    seen = walks(monkeypatch)
    assert open_checkpoint(str(path), memory) == first == open_checkpoint(str(path))
    assert seen == ["'tokenizer.ggml.tokens'"]  # the last call, which has no memory


def test_an_entry_that_is_too_young_is_not_believed(path, memory, monkeypatch) -> None:
    """A file that changed within two seconds of the entry might have changed after it: it is walked again."""
    open_checkpoint(str(path), memory)
    seen = walks(monkeypatch)
    open_checkpoint(str(path), memory)
    assert seen


@pytest.mark.parametrize("words", [OTHER, SHIFTED], ids=["other words", "other borders"])
@pytest.mark.parametrize("way", ["renamed over", "written in place"])
def test_a_file_that_was_swapped_is_read_anew(path, memory, way: str, words: list[str]) -> None:
    """Same name, same size, same mtime, other content: the answer is that of the new content."""
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    open_checkpoint(str(path), memory)
    settle(memory)
    raw = model(words, 128)
    assert len(raw) == path.stat().st_size
    if way == "renamed over":
        (path.parent / "new").write_bytes(raw)
        os.replace(path.parent / "new", path)
    else:
        with path.open("r+b") as file:
            file.write(raw)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    answer = open_checkpoint(str(path), memory)
    assert answer == open_checkpoint(str(path))
    assert answer.metadata["llama.context_length"] == 128


@pytest.mark.parametrize(
    "spoil",
    [
        lambda words: "",
        lambda words: "brim.header/1",
        lambda words: words.replace("brim.header/1", "brim.header/9"),
        lambda words: words.replace(":", ":-"),
        lambda words: words.replace(":", ":x"),
        lambda words: words.rpartition(":")[0] + ":999999999999 end\n",
        lambda words: words.rpartition(":")[0] + f":{int(words.rpartition(':')[2].split()[0]) + 3} end\n",
        lambda words: words.removesuffix("end\n"),
        lambda words: "\xff" * 5000,
    ],
)
def test_a_damaged_memory_is_no_memory(path, memory, spoil) -> None:
    """Whatever stands in the entry, the file itself is what counts."""
    right = open_checkpoint(str(path), memory)
    for name in os.listdir(memory):
        entry = pathlib.Path(memory, name)
        entry.write_text(spoil(entry.read_text()))
    settle(memory)
    assert open_checkpoint(str(path), memory) == right


def test_a_memory_that_cannot_be_written_is_no_trouble(path, tmp_path) -> None:
    """A file where the folder should be, a folder that is not there: the answer comes all the same."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "x", pathlib.Path("/proc/none")):
        assert open_checkpoint(str(path), str(place)).architecture == "llama"


def test_a_bad_file_is_refused_with_a_memory_too(path, memory) -> None:
    """The rejection is the same, remembered or not."""
    raw = path.read_bytes()[:-2000]
    path.write_bytes(raw)
    for _ in range(2):
        with pytest.raises(BadCheckpoint):
            open_checkpoint(str(path), memory)


def test_a_pipe_in_the_place_of_an_entry_is_no_memory(path, memory) -> None:
    """Nobody is waited for: the folder may be one that others can write to."""
    right = open_checkpoint(str(path), memory)
    (name,) = os.listdir(memory)
    os.unlink(os.path.join(memory, name))
    os.mkfifo(os.path.join(memory, name))
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(open_checkpoint(str(path), memory)), daemon=True)
    thread.start()
    thread.join(20)
    assert found == [right]
