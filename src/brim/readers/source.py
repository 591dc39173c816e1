"""Bounded byte ranges from a local file or a URL; nobody may ask for more than the cap.

Covered: a regular local file, opened so that a FIFO or a device cannot hang us. Not covered yet: URLs (the seam is `seams.Source`).
"""

import os
import stat

from brim.errors import EmptyFile, NotARegularFile, TooLarge, Truncated, Unreadable

MAX_RANGE_BYTES = 64 << 20


class FileSource:
    """A regular file, read by position. Opening raises `Unreadable`, `NotARegularFile` or `EmptyFile`."""

    def __init__(self, path: str) -> None:
        self.name = path
        try:
            # O_NONBLOCK: opening a FIFO that nobody writes to must not wait; it has no effect on regular files.
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as fault:
            raise Unreadable(f"{path}: cannot be opened: {getattr(fault, 'strerror', None) or fault}") from None
        info = os.fstat(self._fd)
        self.size = info.st_size
        try:
            if stat.S_ISDIR(info.st_mode):
                raise Unreadable(f"{path}: is a directory, not a file", hint="Give the model file inside it.")
            if not stat.S_ISREG(info.st_mode):
                raise NotARegularFile(f"{path}: is no regular file")
            if info.st_size == 0:
                raise EmptyFile(f"{path}: is empty (0 bytes)")
        except BaseException:
            os.close(self._fd)
            raise

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes at `offset`. `Truncated` past the end, `TooLarge` above the cap, `Unreadable` on an I/O error."""
        if length > MAX_RANGE_BYTES:
            raise TooLarge(f"{self.name}: a range of {length} bytes is above the cap of {MAX_RANGE_BYTES}")
        if offset + length > self.size:
            raise Truncated(f"{self.name}: ends at byte {self.size}, but bytes {offset} to {offset + length} are wanted")
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
