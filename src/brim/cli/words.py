"""A command's words: its flags declared once, the plain forms of them read here and all others by argparse; sizes and times as types."""

import sys

from brim.errors import BrimError
from brim.units import parse_size, parse_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence
    from typing import Any


MOST_DIGITS = 40


class WrongWord(ValueError):
    """A word that its flag does not take: what the types of arguments raise, with the sentence that the user reads."""


class Asked:
    """What a command line asks for, by name."""

    def __init__(self, **given: object) -> None:
        self.__dict__.update(given)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: object) -> None: ...


class Declared:
    """One argument: the words and options that argparse gets, and what the plain reading needs of them."""

    def __init__(self, names: tuple[str, ...], options: "dict[str, Any]", group: str) -> None:
        self.names, self.options, self.group = names, options, group
        self.flag = names[0].startswith("-")
        self.name: str = options.get("dest") or names[0].lstrip("-").replace("-", "_")
        self.action: str = options.get("action", "store")
        self.constant = options.get("const", True)  # of a switch
        self.default = options.get("default", False if self.action == "store_true" else None)
        nargs = options.get("nargs")
        self.required: bool = options.get("required", not self.flag and nargs is None)
        self.plain = self.action in ("store", "append", "store_true", "store_const") and nargs in ((None,) if self.flag else (None, "?"))

    def typed(self, value: object) -> "Any":
        """As argparse does it: words and defaults that are words go through the type. Raises what the type raises."""
        return self.options.get("type", str)(value) if isinstance(value, str) else value

    def take(self, found: "dict[str, Any]", text: str) -> None:
        """Put down what the word `text` stands for. `WrongWord` where a list of choices lacks it."""
        value, choices = self.typed(text), self.options.get("choices")
        if choices is not None and value not in choices:
            raise WrongWord(text)
        found[self.name] = [*(found.get(self.name) or self.default or ()), value] if self.action == "append" else value


class Parser:
    """The flags of a command, declared as for argparse, which reads what is not plain: every fault, `--help`, and the forms that few people write.

    argparse and what it loads take half as long as a bare Python takes to start. The plain reading answers only where argparse would answer the same (a property
    test holds it to that) and says nothing itself, so that every message is argparse's own.
    """

    def __init__(self, command: str, purpose: str) -> None:
        self.prog, self.purpose = f"brim {command}", purpose
        self.declared: list[Declared] = []
        self._group = ""

    def add_argument(self, *names: str, **options: "Any") -> None:
        """As argparse's."""
        self.declared.append(Declared(names, options, self._group))

    def add_argument_group(self, title: str) -> "Parser":
        """As argparse's: what is added to the answer stands under this title in the help."""
        group = Parser(self.prog, self.purpose)
        group.declared, group._group = self.declared, title
        return group

    def parse_args(self, words: "Sequence[str]") -> Asked:
        """What these words ask for. `Usage` where they are not this command's."""
        try:
            found = self.plain_reading(words)
        except (ValueError, TypeError, BrimError):  # a type did not take its word: argparse asks it again and says why
            found = None
        return Asked(**found) if found is not None else self.by_argparse().parse_args(words, Asked())

    def by_argparse(self) -> "ArgumentParser":
        """The same declarations as a parser of argparse's."""
        from brim.cli.unusual import parser

        return parser(self.prog, self.purpose, self.declared)

    def plain_reading(self, words: "Sequence[str]") -> "dict[str, Any] | None":
        """What the words ask for, None where they are not all plain: switches, `--flag value`, `--flag=value`, and the places (MODEL) side by side.

        A value that is empty or begins with a dash is not plain. Raises whatever the type of an argument raises.
        """
        flags = {name: one for one in self.declared if one.flag for name in one.names}
        places = [one for one in self.declared if not one.flag]
        found: dict[str, Any] = {}
        standing: list[int] = []  # where in the line words stand that are no flag's
        line = enumerate(words)
        for at, word in line:
            if not word.startswith("-"):
                standing.append(at)
                continue
            name, equals, value = word.partition("=")
            one = flags.get(name)
            if one is None or not one.plain:
                return None
            if one.action.startswith("store_"):
                if equals:
                    return None
                found[one.name] = one.constant
                continue
            if not equals:
                _, value = next(line, (0, ""))
            if not value or value.startswith("-"):
                return None
            one.take(found, value)
        if len(standing) > len(places) or (standing and standing[-1] - standing[0] >= len(standing)) or not all(place.plain for place in places):
            return None
        for place, at in zip(places, standing, strict=False):
            place.take(found, words[at])
        for one in self.declared:
            if one.name not in found:
                if one.required:
                    return None
                found[one.name] = one.typed(one.default)
        return found


def size(text: str) -> int:
    """An argument type: bytes, above zero."""
    try:
        value = parse_size(text)
    except ValueError as fault:
        raise WrongWord(str(fault)) from None
    if value <= 0:
        raise WrongWord(f"{text!r} is not above zero")
    return value


def time(text: str) -> int:
    """An argument type: nanoseconds, above zero."""
    try:
        value = parse_time(text)
    except ValueError as fault:
        raise WrongWord(str(fault)) from None
    if value <= 0:
        raise WrongWord(f"{text!r} is not above zero")
    return value


def count(text: str) -> int:
    """An argument type: a whole number, above zero."""
    if len(text) > MOST_DIGITS:  # nothing that is counted is near it, and Python itself reads no number of some thousand digits
        raise WrongWord(f"{text[:MOST_DIGITS]}… is longer than any number that is asked for here")
    if not (text.isascii() and text.isdigit()) or int(text) <= 0:
        raise WrongWord(f"{text!r} is no whole number above zero")
    return int(text)


def fraction(text: str) -> float:
    """An argument type: a number; a reserve is clamped to 0…1 later."""
    try:
        value = float(text)
    except ValueError:
        raise WrongWord(f"{text!r} is no number") from None
    if value != value:
        raise WrongWord(f"{text!r} is no number")
    return value


def command_line(text: str) -> tuple[str, ...]:
    """An argument type: a command line, as its words."""
    import shlex

    try:
        return tuple(shlex.split(text))
    except ValueError as fault:
        raise WrongWord(f"{text!r} is no command line: {str(fault)[:1].lower()}{str(fault)[1:]}") from None


def web_address(text: str) -> str:
    """An argument type: an http or https address."""
    from urllib.parse import urlsplit

    try:
        found = urlsplit(text)
        if found.scheme in ("http", "https") and found.hostname and (found.port is None or found.port):
            return text
    except ValueError:
        pass
    raise WrongWord(f"{text!r} is no web address: write https://host/path")


def split_command(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own words, and those behind the first `--`."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


# characters that JSON lets stand and a terminal may obey: DEL, the second set of controls, line and paragraph ends, marks that turn the direction of writing
_ESCAPED = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))}


def show(text: str) -> None:
    """Print an answer that quotes files: it keeps its lines, and nothing in it is obeyed by a terminal."""
    print(text if text.replace("\n", "").isprintable() else "".join(char if char.isprintable() or char == "\n" else "�" for char in text))


def as_json(document: object, *, indent: "int | None" = 2) -> str:
    """One JSON text that stdout can take and a terminal will not obey: what its encoding lacks, and what moves cursors, stands as JSON's own escapes."""
    import json

    text = json.dumps(document, indent=indent, ensure_ascii=False).translate(_ESCAPED)
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
