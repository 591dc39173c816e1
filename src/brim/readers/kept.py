"""Remembers where the long lists of a GGUF header end, so that the vocabulary need not be walked twice; it must never make an answer differ.

What is kept is not facts but offsets, one small file a model: everything else is read again. An entry counts only if device, inode, size, mtime and ctime (to the nanosecond, of
the descriptor that is being read) are those it was written for, and if it was written two seconds or more after the model last changed, so that a change within one
tick of the file system's clock cannot hide. A reader that stumbles with an entry reads again without. Any trouble with the memory itself means: no memory.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from brim.readers.source import FileSource

_SIGN = "brim.header/1"
_MOST_BYTES = 4096
_SETTLED_NS = 2 * 10**9


class Memory:
    """Offsets by model, in a folder of ours."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def recall(self, source: "FileSource") -> dict[int, int]:
        """Start → end of the lists of this very file; {} where nothing is known for sure."""
        try:
            fd = os.open(self._path(source), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
            try:
                info = os.fstat(fd)
                words = os.read(fd, _MOST_BYTES).decode("ascii").split()
            finally:
                os.close(fd)
            if info.st_uid != os.getuid() or info.st_mtime_ns < max(source.identity[3:]) + _SETTLED_NS:
                return {}
            if words[0] != _SIGN or words[-1] != "end" or words[1:6] != [str(number) for number in source.identity]:
                return {}
            pairs = [word.split(":") for word in words[6:-1]]
            return {int(start): int(end) for start, end in pairs}
        except (OSError, ValueError, IndexError, AttributeError):
            return {}

    def keep(self, source: "FileSource", ends: "Mapping[int, int]") -> None:
        """Write down the ends of this file's lists; quietly nothing where that cannot be done."""
        path = self._path(source)
        words = " ".join([_SIGN, *map(str, source.identity), *(f"{start}:{end}" for start, end in ends.items()), "end\n"])
        if len(words) > _MOST_BYTES:
            return
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            draft = f"{path}.{os.getpid()}"
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
            try:
                os.write(fd, words.encode("ascii"))
            finally:
                os.close(fd)
            os.replace(draft, path)
        except OSError:
            return

    def _path(self, source: "FileSource") -> str:
        return os.path.join(self._folder, f"{source.identity[0]:x}-{source.identity[1]:x}")
