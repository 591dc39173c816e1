"""Runs one evaluation command to its end, shows its output on stderr as it comes, and hands it back; it does not read it."""

import contextlib
import sys

from brim.errors import Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEEP_BYTES = 16 << 20


def evaluate(command: "Sequence[str]", environ: "Mapping[str, str]") -> tuple[int, str]:
    """(exit code, the last 16 MiB of its standard output). A signal's code is 128 + its number. `Unreadable` where it cannot be started."""
    import subprocess

    try:
        child = subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=dict(environ))
    except OSError as fault:
        raise Unreadable(f"{command[0]}: cannot be started: {fault.strerror or fault}", hint="Write the evaluation command behind --.") from None
    kept = bytearray()
    try:
        assert child.stdout is not None
        for line in child.stdout:
            kept += line
            if len(kept) > KEEP_BYTES:
                del kept[: len(kept) - KEEP_BYTES]
            sys.stderr.write(line.decode("utf-8", "replace"))
        status = child.wait()
    except BaseException:
        child.kill()
        raise
    finally:
        with contextlib.suppress(OSError):
            child.stdout.close()  # type: ignore[union-attr]
        child.wait()
    return (128 - status if status < 0 else status), kept.decode("utf-8", "replace")
