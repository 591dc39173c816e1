"""The flags that hold a job to its limits, shared by the commands that govern: flags over environment (`BRIM_*`) over defaults, each with its origin."""

import os
import signal

from brim import card_report
from brim.cli.words import Asked, Parser, WrongWord, size, time
from brim.errors import Usage
from brim.facts.settings import ON_UNKNOWN, Limits, limits
from brim.units import parse_size, parse_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from brim.facts.profile import Profile


def size_or_zero(text: str) -> int:
    """An argument type: bytes, zero allowed."""
    try:
        return parse_size(text)
    except ValueError as fault:
        raise WrongWord(str(fault)) from None


def time_or_zero(text: str) -> int:
    """An argument type: nanoseconds, zero allowed."""
    try:
        return parse_time(text)
    except ValueError as fault:
        raise WrongWord(str(fault)) from None


def budget(text: str) -> "tuple[str, int]":
    """An argument type: `SIZE` or `DEVICE=SIZE`."""
    device, named, amount = text.rpartition("=")
    return device_here(device, "--memory-budget") if named else "", size(amount)


def device_here(text: str, flag: str = "--device") -> str:
    """An argument type: a device that a job can be held to, as its id (`cuda:0`, `cpu`) or as its backend's word for all of them; a size makes none."""
    from brim.lineup import WORDS, parse

    word = text.strip()
    try:
        wanted = parse(word)
    except Usage as fault:
        raise Usage(
            f"{flag} {word!r} names no device: {str(fault).partition(': ')[2]}", hint=f"Backends: {WORDS}; an index names one device (cuda:0)."
        ) from None
    if wanted.total_bytes is not None:
        raise Usage(
            f"{flag} {word!r} is a size: a hypothetical device can be planned for, but no job can be held to it", hint="Name one that is here (cuda:0)."
        )
    if not wanted.backend:
        raise Usage(f"{flag} {word!r} names no device here", hint=f"Backends: {WORDS}; an index names one device (cuda:0).")
    return wanted.backend if wanted.index is None or (wanted.backend == "cpu" and wanted.index == 0) else f"{wanted.backend}:{wanted.index}"


def celsius(text: str) -> float:
    """An argument type: a temperature in °C."""
    try:
        value = float(text.strip().removesuffix("°C").removesuffix("C").removesuffix("c"))
    except ValueError:
        raise WrongWord(f"{text!r} is no temperature: write 83") from None
    if not 0 <= value <= 200:
        raise WrongWord(f"{text!r} is no temperature that a device has (0 to 200 °C)")
    return value


def watts(text: str) -> float:
    """An argument type: a power in W, above zero."""
    try:
        value = float(text.strip().removesuffix("W").removesuffix("w"))
    except ValueError:
        raise WrongWord(f"{text!r} is no power: write 250") from None
    if not 0 < value < 1e5:
        raise WrongWord(f"{text!r} is no power that a device has")
    return value


def signal_number(text: str) -> int:
    """An argument type: `USR1`, `SIGUSR1` or 10; never one that cannot be caught."""
    word = text.strip().upper()
    try:
        number = signal.Signals(int(word)) if word.isdecimal() else signal.Signals["SIG" + word.removeprefix("SIG")]
    except (KeyError, ValueError):
        raise WrongWord(f"{text!r} is no signal: write USR1, SIGUSR1 or 10") from None
    if number in (signal.SIGKILL, signal.SIGSTOP):
        raise WrongWord(f"{text!r} cannot be caught by any job, so it can ask for nothing")
    return int(number)


def on_unknown(text: str) -> str:
    """An argument type: what to do when telemetry is lost."""
    if text not in ON_UNKNOWN:
        raise WrongWord(f"{text!r} is none of {', '.join(ON_UNKNOWN)}")
    return text


def yes_or_no(text: str) -> bool:
    """A variable's type where the flag is a switch."""
    word = text.lower()
    if word not in ("1", "yes", "true", "on", "0", "no", "false", "off"):
        raise WrongWord(f"{text!r} is neither yes nor no: write 1 or 0")
    return word in ("1", "yes", "true", "on")


def change(text: str) -> str:
    """An argument type: a change of the command, as `brim resume` reads it."""
    from brim.again import parsed

    try:
        parsed(text)
    except Usage as fault:
        raise WrongWord(str(fault)) from None
    return text


# flag, environment variable, name of the limit, type, metavar, help
_FLAGS: "tuple[tuple[str, str, Callable[[str], object], str, str], ...]" = (
    ("--floor", "floor_bytes", size_or_zero, "SIZE", "stop the job when less than this is free (default: 256MiB, at most a sixteenth of a budget)"),
    ("--throttle-margin", "throttle_margin_bytes", size_or_zero, "SIZE", "ask for a checkpoint this much above the floor (default: 2GiB, at most an eighth of a budget)"),
    ("--max-temp", "max_temp_c", celsius, "C", "stop the job at this temperature (default: the device's own slowdown point)"),
    ("--throttle-temp-margin", "throttle_temp_margin_c", celsius, "C", "slow the job this much below it (default: 8)"),
    ("--power-cap", "power_cap_w", watts, "W", "lower the card's power limit while the job is slowed, and put it back (needs the right to)"),
    ("--poll", "poll_ns", time, "TIME", "longest time between two looks (default: 1s; sooner near a limit)"),
    ("--grace", "grace_ns", time, "TIME", "how long a checkpoint, and then SIGTERM, may take (default: 30s)"),
    ("--checkpoint-signal", "checkpoint_signal", signal_number, "SIG", "the signal that makes a job without brim.client save itself"),
    ("--checkpoint-every", "checkpoint_every_ns", time, "TIME", "ask for a checkpoint this often"),
)  # fmt: skip


def add(parser: Parser) -> None:
    """Add the flags to a command."""
    parser.add_argument(
        "--device", dest="devices", type=device_here, action="append", metavar="D", help="govern this device only (repeatable; default: all that are seen)"
    )
    parser.add_argument(
        "--memory-budget", type=budget, action="append", metavar="[DEVICE=]SIZE", help="what the job may hold there (default: the accelerator, else the host)"
    )
    for flag, name, kind, metavar, text in _FLAGS:
        parser.add_argument(flag, dest=name, type=kind, metavar=metavar, help=text)
    parser.add_argument("--on-unknown", dest="on_unknown", choices=ON_UNKNOWN, help="what to do when telemetry is lost for 30 s (default: keep)")
    parser.add_argument(
        "--require-telemetry", dest="require_telemetry", action="store_true", default=None, help="do not start where a governed device does not tell"
    )
    parser.add_argument("--die-with-me", dest="die_with_me", action="store_true", default=None, help="end the job when brim itself is killed")
    parser.add_argument(
        "--on-oom",
        dest="on_oom",
        type=change,
        metavar="CHANGE",
        help="how `brim resume` makes the workload smaller after a memory failure: s/--batch 8/--batch 4/",
    )


# flags that are switches, choices or words → the name of the limit and the type of its variable
_OTHERS: "tuple[tuple[str, str, Callable[[str], object]], ...]" = (
    ("--on-unknown", "on_unknown", on_unknown),
    ("--require-telemetry", "require_telemetry", yes_or_no),
    ("--die-with-me", "die_with_me", yes_or_no),
    ("--on-oom", "on_oom", change),
)
# a profile's word → the name of the limit and its type
_WORDS: "dict[str, tuple[str, Callable[[str], object]]]" = {
    **{flag[2:].replace("-", "_"): (name, kind) for flag, name, kind, _, _ in _FLAGS},
    "on_unknown": ("on_unknown", on_unknown),
    "on_oom": ("on_oom", change),
}


def check_change(limits: Limits, command: "list[str]") -> None:
    """See before the start that the change for a memory failure applies to this command and does not make it larger. `Usage` names where the change came from."""
    if not limits.on_oom:
        return
    from brim.again import apply_here

    try:
        apply_here(tuple(command), limits.on_oom)
    except Usage as fault:
        raise Usage(f"on_oom ({dict(limits.origins).get('on_oom', 'flag --on-oom')}): {fault}", hint=fault.hint) from None


def from_profile(profile: "Profile") -> "dict[str, object]":
    """The limits that a profile gives, by the names of `Limits`. A floor that its watchdog's rule gives is one for the launch: the job's own memory counts towards it."""
    found: dict[str, object] = {}
    for word, value in profile.limits.items():
        if word in _WORDS:
            name, kind = _WORDS[word]
            try:
                found[name] = kind(str(value))
            except WrongWord as fault:
                raise Usage(f"{profile.source}: [limits] {word}: {fault}") from None
    for word in ("require_telemetry", "die_with_me"):
        if word in profile.limits:
            found[word] = profile.limits[word]
    if "memory_budget" in profile.limits:
        try:
            found["memory_budgets"] = (budget(str(profile.limits["memory_budget"])),)
        except (WrongWord, Usage) as fault:
            raise Usage(f"{profile.source}: [limits] memory_budget: {fault}") from None
    if "backend" in profile.hardware:
        found["devices"] = (profile.hardware["backend"],)
    if "floor_bytes" not in found and (floor := card_report.floor_bytes(profile)) is not None:
        found["floor_bytes"], found["floor_counts_job"] = floor, True
    return found


def read(asked: Asked, environ: "Mapping[str, str] | None" = None, *, profile: "Profile | None" = None, **more: object) -> Limits:
    """The limits that the flags, `BRIM_*` variables and the profile give, in that order. `Usage` names the variable or the profile's word that does not parse."""
    values, origins = given(asked, os.environ if environ is None else environ)
    if profile is not None:
        own_floor = "floor_bytes" in values  # a floor that the user gives is a floor for the run
        for name, value in from_profile(profile).items():
            if name not in values and not (name == "floor_counts_job" and own_floor):
                values[name], origins[name] = value, f"profile {profile.name}"
    return limits(origins=origins, **{**values, **more})  # type: ignore[arg-type]


def given(asked: Asked, environ: "Mapping[str, str]") -> "tuple[dict[str, object], dict[str, str]]":
    """What was given by flag or variable, and where each came from."""
    given: dict[str, object] = {}
    origins: dict[str, str] = {}
    for flag, name, kind in (*((flag, name, kind) for flag, name, kind, _, _ in _FLAGS), *_OTHERS):
        value = getattr(asked, name)
        given[name], origins[name] = (value, f"flag {flag}") if value is not None else _from_environment(flag, name, kind, environ, origins)
    if asked.devices:
        given["devices"], origins["devices"] = tuple(asked.devices), "flag --device"
    if asked.memory_budget:
        given["memory_budgets"], origins["memory_budgets"] = tuple(asked.memory_budget), "flag --memory-budget"
    else:
        own, origin = _from_environment("--memory-budget", "memory_budgets", budget, environ, origins)
        given["memory_budgets"], origins["memory_budgets"] = None if own is None else (own,), origin
    return {name: value for name, value in given.items() if value is not None}, {name: origin for name, origin in origins.items() if origin}


def _from_environment(flag: str, name: str, kind: "Callable[[str], object]", environ: "Mapping[str, str]", origins: "dict[str, str]") -> "tuple[object, str]":
    """A limit from its variable: `--max-temp` is `BRIM_MAX_TEMP`."""
    variable = "BRIM_" + flag[2:].upper().replace("-", "_")
    text = environ.get(variable, "").strip()
    if not text:
        return None, origins.get(name, "")
    try:
        return kind(text), f"environment {variable}"
    except (WrongWord, Usage) as fault:
        raise Usage(f"{variable}: {fault}", hint="Unset it, or write it like the flag.") from None
