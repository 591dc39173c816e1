"""Bounded byte ranges from a local file or a URL; nobody may ask for more than the cap.

Covered: a regular local file (a symlink to one is followed), opened so that a FIFO or a device cannot hang us; bytes in memory, for tests and fuzzers.
Not covered: URLs (the seam is `seams.Source`).
"""

import os
import stat

from brim.errors import EmptyFile, NotARegularFile, TooLarge, Truncated, Unreadable

MAX_RANGE_BYTES = 128 << 20
_ELOOP = 40  # errno.ELOOP on Linux; importing errno for one number is not worth it


class FileSource:
    """A regular file, read by position. Opening raises `Unreadable`, `NotARegularFile` or `EmptyFile`."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._fd = -1
        try:
            # Looked at before it is opened: opening a device can act on it. O_NONBLOCK: a FIFO that took its place meanwhile must not make us wait.
            _check_kind(path, os.stat(path))
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
            info = os.fstat(self._fd)
            _check_kind(path, info)
        except (OSError, ValueError) as fault:
            self.close()
            if getattr(fault, "errno", 0) == _ELOOP:
                raise NotARegularFile(f"{path}: its symlinks lead round in a circle") from None
            raise Unreadable(f"{path}: cannot be opened: {getattr(fault, 'strerror', None) or fault}") from None
        except BaseException:
            self.close()
            raise
        self.size = info.st_size
        self.identity = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes at `offset`. `Truncated` past the end, `TooLarge` above the cap, `Unreadable` on an I/O error."""
        _check_range(self.name, self.size, offset, length)
        parts: list[bytes] = []
        while length > 0:
            try:
                piece = os.pread(self._fd, length, offset)
            except OSError as fault:
                raise Unreadable(f"{self.name}: cannot be read at byte {offset}: {fault.strerror}") from None
            if not piece:
                raise Truncated(f"{self.name}: shrank to {offset} bytes while it was read")
            parts.append(piece)
            offset += len(piece)
            length -= len(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Give the descriptor back; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> "FileSource":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class MemorySource:
    """Bytes that are at hand already, behind the same seam: for tests, fuzzers and callers who fetched a header themselves.

    `size` may be larger than the bytes given: the rest is a hole that may be claimed but not read (`Truncated`).
    """

    def __init__(self, name: str, data: bytes, size: int | None = None) -> None:
        self.name = name
        self.size = len(data) if size is None else size
        self._data = data

    def read(self, offset: int, length: int) -> bytes:
        """As `FileSource.read`."""
        _check_range(self.name, self.size, offset, length)
        piece = self._data[offset : offset + length]
        if len(piece) < length:
            raise Truncated(f"{self.name}: only {len(self._data)} bytes of it are at hand")
        return piece


def _check_kind(path: str, info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise Unreadable(f"{path}: is a directory, not a file", hint="Give the model file inside it.")
    if not stat.S_ISREG(info.st_mode):
        raise NotARegularFile(f"{path}: is no regular file")
    if info.st_size == 0:
        raise EmptyFile(f"{path}: is empty (0 bytes)")


def _check_range(name: str, size: int, offset: int, length: int) -> None:
    if length > MAX_RANGE_BYTES:
        raise TooLarge(f"{name}: a range of {length} bytes is above the cap of {MAX_RANGE_BYTES}")
    if offset < 0 or length < 0 or offset + length > size:
        raise Truncated(f"{name}: ends at byte {size}, but bytes {offset} to {offset + length} are wanted")
