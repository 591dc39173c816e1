"""Command lines that are not plain, read by argparse: our errors, our exit codes, one language; loaded only where it is needed."""

import argparse
import os

from brim.cli.words import Declared, WrongWord
from brim.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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


class _Parser(argparse.ArgumentParser):
    """argparse with our error class instead of its exit."""

    def error(self, message: str) -> "NoReturn":
        """A usage error, exit code 2."""
        raise Usage(f"{self.prog[5:]}: {message}", hint=f"See `{self.prog} --help`.")


def parser(prog: str, purpose: str, declared: "Sequence[Declared]") -> argparse.ArgumentParser:
    """A parser of argparse's for these declarations; abbreviations are off so that a new flag cannot change an old command."""
    made = _Parser(prog=prog, description=purpose, allow_abbrev=False, formatter_class=_formatter)
    groups: dict[str, argparse._ActionsContainer] = {"": made}
    for one in declared:
        if one.group not in groups:
            groups[one.group] = made.add_argument_group(one.group)
        kind = one.options.get("type")
        groups[one.group].add_argument(*one.names, **(one.options if kind is None else {**one.options, "type": _told(kind)}))
    return made


def _told(kind: "Callable[[str], object]") -> "Callable[[str], object]":
    """A type whose `WrongWord` argparse passes on as it stands."""

    def typed(text: str) -> object:
        try:
            return kind(text)
        except WrongWord as fault:
            raise argparse.ArgumentTypeError(str(fault)) from None

    typed.__name__ = kind.__name__
    return typed
