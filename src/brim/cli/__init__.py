"""Parses words, calls one function of the public face, prints one report, returns one documented code."""

import os
import sys

from brim.errors import BrimError, Usage

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
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except BrimError as fault:
        code = _fail(fault, words)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader went away: nothing more to say, and no second error at exit
        code = 0
    except KeyboardInterrupt:
        code = 130
    except Exception as fault:
        if os.environ.get("BRIM_TRACEBACK"):
            raise
        code = _fail(BrimError(f"internal error: {type(fault).__name__}: {fault}", hint="Set BRIM_TRACEBACK=1 and report what it prints."), words)
    return code


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
    from importlib import import_module

    if words[0] in _SHORT:
        import gc

        gc.set_threshold(100_000)  # a process that ends in a moment need not look for cycles after every 700 objects

    code = import_module(COMMANDS[words[0]][0]).main(words[1:])
    assert isinstance(code, int)
    return code


def _fail(fault: BrimError, words: list[str]) -> int:
    own = words[: words.index("--")] if "--" in words else words
    if "--json" in own:
        import json

        from brim.reports.documents import error

        print(json.dumps(error(fault), ensure_ascii=False))
    else:
        said = "".join(char if char.isprintable() or char == "\n" else "�" for char in str(fault))  # it may quote a file that an enemy wrote
        print(f"brim: {said}\n      {fault.hint}", file=sys.stderr)
    return fault.exit_code
