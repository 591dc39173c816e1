"""Parses words, calls one function of the public face, prints one report, returns one documented code."""

import errno
import os
import sys

from brim.errors import BrimError, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

# command → (module, one line of help); a module has `main(argv) -> exit code` and is imported only when its command is asked for
COMMANDS = {
    "probe": ("brim.cli.probe", "devices, budgets, readings, and where each came from"),
    "devices": ("brim.cli.devices", "the devices that brim knows by name"),
    "doctor": ("brim.cli.doctor", "what brim sees here, what is missing, and what installs it"),
    "fit": ("brim.cli.fit", "whether a model fits, with the arithmetic"),
    "inspect": ("brim.cli.inspect", "what is in a model, from its headers alone"),
    "preflight": ("brim.cli.preflight", "which ways to run and train a model fit a device"),
    "solve": ("brim.cli.solve", "the largest workload that fits, and the engine's flags for it"),
    "run": ("brim.cli.run", "gate, launch and govern a command"),
    "profiles": ("brim.cli.profiles", "the profiles that --profile accepts by name"),
    "governor-report": ("brim.cli.governor_report", "whether a profile's runtime may start on the card, as JSON and Markdown"),
    "soak": ("brim.cli.soak", "a governed run of a given length, and what it shows"),
    "claims": ("brim.cli.claims", "which sentences a run supports, and what is missing"),
    "quality": ("brim.cli.quality", "evaluate an exported file and bind the verdict to it"),
    "runs": ("brim.cli.runs", "the runs in the state folder, and their removal"),
    "calibration": ("brim.cli.calibration", "what this machine has taught"),
    "top": ("brim.cli.top", "look at a run in progress"),
    "resume": ("brim.cli.resume", "go on with a run that was stopped"),
    "report": ("brim.cli.report", "the report of a run"),
    "verify": ("brim.cli.verify", "prove that a run's journal was not altered"),
    "schema": ("brim.cli.schema", "the JSON Schema of a document"),
}


_SHORT = ("fit", "inspect", "probe", "solve")
_GOVERNING = ("run", "soak", "resume")  # their exit code is the job's, whoever listens
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class _Talk:
    """stderr as these commands use it: whoever has stopped listening (a closed pipe, a full disk) stops nothing."""

    def __init__(self, stream: "TextIO") -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As of a file, without its failures."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        """As of a file, without its failures."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def usage() -> str:
    """The overview that `brim --help` prints."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name.ljust(width)}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: brim COMMAND …",
            "",
            "Fill the device to the brim, never over it.",
            "",
            *rows,
            "",
            "`brim COMMAND --help` tells more. Exit codes: 0 yes, 2 usage, 3 does not fit or refused, 4 cannot tell, 5 no good checkpoint,",
            "6 no such device, 7 journal broken, 8 claim not supported, 9 killed by someone else with proof, 75 stopped by the governor, 1 our bug.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """The console script. Every failure ends here: one sentence on stderr (or a `brim.error/1` document), one documented code, no traceback."""
    words = sys.argv[1:] if argv is None else argv
    mute = _open_streams()
    before, sys.stderr = sys.stderr, _Talk(sys.stderr)
    try:
        if mute and words and words[0] not in _GOVERNING:
            raise Usage("standard output is closed", hint="Give the answer somewhere to go, for instance > answer.txt.")
        code = _guarded(words)
    except BrimError as fault:
        code = _fail(fault, words)
    finally:
        sys.stderr = before
        _settle(sys.stdout, 1)
        _settle(sys.stderr, 2)
    return code


def _guarded(words: list[str]) -> int:
    """Dispatch, and turn what went wrong into a code or a `BrimError`."""
    governing = bool(words) and words[0] in _GOVERNING
    try:
        code = _dispatch(words)
        if not governing:
            sys.stdout.flush()
        return code
    except BrimError:
        raise
    except KeyboardInterrupt:
        return 130
    except Exception as fault:
        if isinstance(fault, OSError) and fault.filename is None and not governing:
            if isinstance(fault, BrokenPipeError):
                return 0  # the reader went away: nothing more to say
            if fault.errno in (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EBADF):
                raise Usage(f"standard output: {fault.strerror}", hint="The answer is not complete: send it where there is room.") from None
        if os.environ.get("BRIM_TRACEBACK"):
            raise
        if isinstance(fault, MemoryError) or (isinstance(fault, OSError) and fault.errno in _EXHAUSTED):
            said = fault.strerror if isinstance(fault, OSError) else "no more memory may be had"
            raise Usage(f"brim itself ran out of what it needs here: {said}", hint="Raise the limit (ulimit -n, ulimit -v), or close something.") from None
        raise BrimError(f"internal error: {type(fault).__name__}: {fault}", hint="Set BRIM_TRACEBACK=1 and report what it prints.") from None


def _open_streams() -> bool:
    """Nothing we open may become stdout or stderr by accident, and no character may fail there. True where stdout was closed."""
    mute = sys.stdout is None
    if mute or sys.stderr is None or sys.stdin is None:
        fd = os.open(os.devnull, os.O_RDWR)
        while fd < 2:
            fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
        sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 — for as long as we live
        sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        errors = getattr(stream, "errors", "")
        lacks = errors == "surrogateescape" and stream.encoding.lower() not in ("utf-8", "utf8")  # with UTF-8 a name's odd bytes go out as they are
        if (errors == "strict" or lacks) and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    return mute


def _settle(stream: "TextIO", fd: int) -> None:
    """What could not be written is let go, so that Python does not try again at exit and change our exit code."""
    try:
        stream.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0 if words else Usage.exit_code
    if words[0] in ("-V", "--version"):
        from brim import __version__

        print(f"brim {__version__}")
        return 0
    if words[0] not in COMMANDS:
        raise Usage(f"unknown command {words[0]!r}", hint=f"Commands: {', '.join(COMMANDS)}.")
    if words[0] in _SHORT:
        import gc

        gc.set_threshold(100_000)  # a process that ends in a moment need not look for cycles after every 700 objects

    code = __import__(COMMANDS[words[0]][0], fromlist=["main"]).main(words[1:])  # importlib's own import_module loads `warnings` with it
    assert isinstance(code, int)
    return code


def _fail(fault: BrimError, words: list[str]) -> int:
    own = words[: words.index("--")] if "--" in words else words
    if "--json" in own:
        from brim.cli.words import as_json
        from brim.reports.documents import error

        text = as_json(error(fault), indent=None)
        try:
            print(text, flush=True)
        except OSError as lost:
            more = "" if str(fault).startswith("standard output: ") else f"; it would have said: {fault}"
            print(f"brim: standard output: {lost.strerror}{more}", file=sys.stderr)
    else:
        said = "".join(char if char.isprintable() or char == "\n" else "�" for char in str(fault))  # it may quote a file that an enemy wrote
        print(f"brim: {said}\n      {fault.hint}", file=sys.stderr)
    return fault.exit_code
