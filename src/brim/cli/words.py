"""The argument parser that all commands share: our errors, our exit codes, sizes and times as types."""

import argparse
import os
import sys

from brim.errors import Usage
from brim.units import parse_size, parse_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def _as_it_is(text: str, plural: str = "", number: int = 1) -> str:
    return text if number == 1 else plural


# argparse looks for translations of its own words at every start (it loads `locale` and searches the disk); brim speaks one language.
argparse._ = argparse.ngettext = _as_it_is  # type: ignore[attr-defined]


def _formatter(prog: str) -> argparse.HelpFormatter:
    """argparse's own, told the width: left alone it loads `shutil` (and with it three compression libraries) for every argument that is added."""
    try:
        width = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(1).columns
    except (ValueError, OSError):
        width = 80
    return argparse.HelpFormatter(prog, width=width - 2)


class Parser(argparse.ArgumentParser):
    """argparse with our error class instead of its exit; abbreviations are off so that a new flag cannot change an old command."""

    def __init__(self, command: str, purpose: str) -> None:
        super().__init__(prog=f"brim {command}", description=purpose, allow_abbrev=False, formatter_class=_formatter)

    def error(self, message: str) -> "NoReturn":
        """A usage error, exit code 2."""
        raise Usage(f"{self.prog[5:]}: {message}", hint=f"See `{self.prog} --help`.")


def size(text: str) -> int:
    """An argument type: bytes, above zero."""
    try:
        value = parse_size(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from None
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above zero")
    return value


def time(text: str) -> int:
    """An argument type: nanoseconds, above zero."""
    try:
        value = parse_time(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from None
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above zero")
    return value


def count(text: str) -> int:
    """An argument type: a whole number, above zero."""
    if not (text.isascii() and text.isdigit()) or int(text) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above zero")
    return int(text)


def fraction(text: str) -> float:
    """An argument type: a number; a reserve is clamped to 0…1 later."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if value != value:
        raise argparse.ArgumentTypeError(f"{text!r} is no number")
    return value


def command_line(text: str) -> tuple[str, ...]:
    """An argument type: a command line, as its words."""
    import shlex

    try:
        return tuple(shlex.split(text))
    except ValueError as fault:
        raise argparse.ArgumentTypeError(f"{text!r} is no command line: {str(fault)[:1].lower()}{str(fault)[1:]}") from None


def web_address(text: str) -> str:
    """An argument type: an http or https address."""
    from urllib.parse import urlsplit

    try:
        found = urlsplit(text)
        if found.scheme in ("http", "https") and found.hostname and (found.port is None or found.port):
            return text
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no web address: write https://host/path")


def split_command(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own words, and those behind the first `--`."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def as_json(document: object, *, indent: "int | None" = 2) -> str:
    """One JSON text that stdout can take: what its encoding lacks stands as JSON's own escapes."""
    import json

    text = json.dumps(document, indent=indent, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(document, indent=indent)
    return text


def emit(document: object) -> None:
    """Print one JSON document on stdout."""
    print(as_json(document))


def answer(text: str) -> None:
    """Print what is left to say after a job has ended; the exit code is the job's, so that a stdout nobody reads is only said."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        return
    except OSError as fault:
        print(f"brim: standard output: {fault.strerror}; the report stands in the run folder", file=sys.stderr)


def starts_training(command: "list[str]") -> bool:
    """Whether a command behind -- may start a training run; told by its program alone, so that other commands load nothing for it."""
    if not command:
        return False
    program = command[0].rsplit("/", 1)[-1]
    if program not in ("torchrun", "accelerate", "deepspeed", "axolotl", "llamafactory-cli", "tune", "trl") and not program.startswith("python"):
        return False
    from brim.engines.train.command import is_training

    return is_training(command)
