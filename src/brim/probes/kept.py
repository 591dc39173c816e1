"""Keeps a small kernel file open and reads it again with pread; what the kernel refuses for good is not asked again."""

import errno
import os

from brim.values import Missing

# EOPNOTSUPP: PSI compiled in and switched off (psi=0); ENOSYS, EINVAL: a file whose feature is not there. Asked once (FIELD_CASES 57).
_NEVER = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_GONE = frozenset({errno.ENODEV, errno.ENXIO})


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    # A file, and of each number in it: how its line begins (nothing: the number comes first), what it is multiplied by, and in how many eighths it may move what is made of it all.
    File = tuple["Kept", tuple[tuple[bytes, int, int], ...]]


class Kept:
    """One file under `root`. A file that is not there is looked for again at each `AGAIN`th read (swap files, hot-plugged sensors)."""

    AGAIN = 32
    __slots__ = ("_fd", "_path", "_refused", "_size", "_skip", "path")

    def __init__(self, root: str, path: str, *, size: int = 8192) -> None:
        self.path, self._path, self._size = path, root + path, size
        self._fd = -1
        self._skip = 0
        self._refused: Missing | None = None

    @property
    def fd(self) -> int:
        """The descriptor through which it was read last; -1 where it is not open."""
        return self._fd

    def read(self) -> "bytes | Missing":
        """The file's text now, at most `size` bytes, or why there is none."""
        if self._refused is not None:
            if self._skip < 0 or self._skip > 0:
                self._skip -= self._skip > 0
                return self._refused
            self._refused = None
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._fd, self._size, 0)
        except OSError as fault:
            return self._refuse(fault)

    def _refuse(self, fault: OSError) -> Missing:
        self.close()
        self._skip = -1 if fault.errno in _NEVER else self.AGAIN
        if fault.errno == errno.ENOENT:
            why = Missing(reason="not_supported", detail=f"{self.path} is not here")
        elif fault.errno in (errno.EACCES, errno.EPERM):
            why = Missing(reason="denied", detail=f"{self.path} may not be read")
        elif fault.errno in _NEVER:
            why = Missing(reason="not_supported", detail=f"{self.path}: {fault.strerror}")
        else:
            why = Missing(reason="gone" if fault.errno in _GONE else "failed", detail=f"{self.path}: {fault.strerror}")
            self._skip = 0
        self._refused = why if self._skip else None
        return why

    def once(self) -> "bytes | Missing":
        """Read it and let it go."""
        text = self.read()
        self.close()
        return text

    def close(self) -> None:
        """Let the file go; the next read opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        """A look that is thrown away gives its descriptor back: a program that asks `brim.fit` a thousand times must not run out of them."""
        self.close()


def numbers(files: "Iterable[File]") -> "tuple[int, ...] | None":
    """Every number of some files, in order, 0 for one that is not there; None where a file does not answer."""
    found: list[int] = []
    for file, asked in files:
        text = file.read()
        if isinstance(text, Missing):
            return None
        found += [(behind(text, key) if key else leading(text)) * scale for key, scale, _ in asked]
    return tuple(found)


def field(text: bytes, name: bytes) -> int:
    """The number after `name ` at a line's start; 0 where it is not there or is no number."""
    return behind(text, name + b" ")


def behind(text: bytes, key: bytes) -> int:
    """The number behind `key`, with which a line begins; 0 where there is no such line, or no number in it."""
    if text.startswith(key):
        at = len(key)
    else:
        at = text.find(b"\n" + key)
        if at < 0:
            return 0
        at += len(key) + 1
    end = text.find(b"\n", at)
    word = text[at : end if end >= 0 else None].split()[:1]
    return int(word[0]) if word and word[0].isdigit() else 0


def leading(text: bytes) -> int:
    """The number that a text is; 0 where it is none."""
    word = text.strip()
    return int(word) if word.isdigit() else 0
