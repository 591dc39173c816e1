"""Writes one small file whole or not at all: a temporary beside it, fsync, rename, fsync of the folder."""

import os


def write_atomically(path: str, text: str, *, mode: int = 0o644) -> None:
    """After this returns the file holds `text`, also after a power cut; before, it holds what it held. `OSError` where the disk refuses.

    What is no UTF-8 (a lone surrogate of a path or an argument) is escaped, which in a JSON text is the character itself.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
