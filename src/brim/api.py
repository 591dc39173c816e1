"""The verbs (probe, fit, run, report, verify), wired by default with real readers, probes and clock, each replaceable by argument."""

import os

from brim.clock import SystemClock
from brim.errors import Unreadable, Usage
from brim.facts.device import Device
from brim.sight import Probed as Probed
from brim.sight import backend_word as backend_word
from brim.sight import catalogue as catalogue
from brim.sight import devices as devices
from brim.sight import known_device as known_device
from brim.sight import loop as loop
from brim.sight import machine as machine
from brim.sight import probe as probe
from brim.sight import probed as probed
from brim.sight import settings as settings
from brim.sight import suggest as suggest
from brim.sight import version as version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from brim.anatomy import Anatomy
    from brim.asking import Solution
    from brim.engines.base import Plan
    from brim.facts.extras import Extras
    from brim.facts.model import Checkpoint
    from brim.facts.profile import Profile
    from brim.facts.settings import Limits
    from brim.facts.training import TrainWorkload
    from brim.facts.workload import LlamaWorkload
    from brim.launch import RunResult
    from brim.outlook import Compressed, Preflight
    from brim.prediction import Prediction
    from brim.seams import Clock, Probe
    from brim.second_opinion import SecondOpinion
    from brim.training_solver import Found


def read(model: str) -> "Checkpoint":
    """What the headers of the model say: a file or folder in any form that brim reads. Raises `Unreadable` or one `BadCheckpoint`."""
    from brim.checkpoint import open_checkpoint

    if model.startswith(("hf:", "ollama:", "http://", "https://")) and not os.path.exists(model):
        raise Unreadable(f"{model}: models by a hub's name or a URL are not supported yet", hint="Download it, and give the file.")
    return open_checkpoint(model, _header_memory(os.environ))


def _header_memory(environ: "Mapping[str, str]") -> str | None:
    """Where the ends of long vocabularies are kept: the XDG cache folder of brim, or nowhere (`BRIM_HEADER_MEMORY=off`, or no home)."""
    if environ.get("BRIM_HEADER_MEMORY") == "off":
        return None
    home = environ.get("XDG_CACHE_HOME") or (os.path.join(environ["HOME"], ".cache") if environ.get("HOME") else "")
    return os.path.join(home, "brim", "headers") if os.path.isabs(home) else None


def inspect(model: "str | Checkpoint") -> "tuple[Checkpoint, Anatomy]":
    """What is in a model: its facts, and what they amount to. Raises as `read`."""
    from brim.anatomy import describe
    from brim.checkpoint import layered

    checkpoint = layered(read(model) if isinstance(model, str) else model)
    return checkpoint, describe(checkpoint)


def shape_file(model: "str | Checkpoint") -> "dict[str, Any]":
    """The shape file of a model as a JSON-able document: what a plan is priced from, without the weights. Raises as `read`."""
    from brim.readers.shape_file import compose

    return compose(read(model) if isinstance(model, str) else model)


def _line_up(words: "Sequence[str]", reserve: float | None, environ: "Mapping[str, str] | None") -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices that the words of `--device` name, with the warnings of the look at this machine where one was needed."""
    if words:
        return devices(words, reserve=reserve, environ=environ)
    seen = probe(reserve=reserve, environ=environ, wake=True)
    found, caveats = devices((), seen, reserve=reserve, environ=environ)
    return found, (*seen.warnings, *caveats)


def fit(
    model: "str | Checkpoint | None" = None,
    workload: "LlamaWorkload | None" = None,
    *,
    command: "Sequence[str] | None" = None,
    device: "Sequence[str]" = (),
    devices: "Sequence[Device] | None" = None,
    reserve: float | None = None,
    version: int | None = None,
    environ: "Mapping[str, str] | None" = None,
) -> "Prediction":
    """Price `model` under llama.cpp, or the command line of one of its programs, and judge it against the devices.

    `device` are the words of `--device`; `devices` are given as values; without either: what `probe` sees. Raises for a bad model file, `Usage` for words that cannot
    be read, `CannotTell` for a command that brim does not know.
    """
    from brim.asking import fit_command, fit_llama, fixed_by
    from brim.engines.llama_cpp import NEWEST_BUILD
    from brim.engines.llama_cpp.defaults import resolve
    from brim.facts.workload import LlamaWorkload

    said: tuple[str, ...] = ()
    if devices is None:
        devices, said = _line_up(device, reserve, environ)
    from brim.checkpoint import converted

    if command is not None:
        if model is not None and (not isinstance(model, str) or os.path.exists(model)):  # named beside the command: what the engine would be given of it
            model, told = converted(read(model) if isinstance(model, str) else model)
            said = (*said, *told)
        return fit_command(
            command, os.environ if environ is None else environ, tuple(devices), read=read, version=version or NEWEST_BUILD, model=model, caveats=said,
            learn=_learnt(devices, environ),
        )  # fmt: skip
    if model is None:
        raise Usage("fit: a MODEL is needed, or the engine's command behind --")
    asked = workload or LlamaWorkload()
    resolved, notes = resolve(asked, version or NEWEST_BUILD)
    checkpoint, told = converted(read(model) if isinstance(model, str) else model)
    said = (*said, *told)
    return fit_llama(
        checkpoint, (resolved,), tuple(devices), read=read, version=version or NEWEST_BUILD, fixed=fixed_by(asked), caveats=said, defaults=notes, unpriced=asked.unpriced,
        learn=_learnt(devices, environ),
    )  # fmt: skip


def _learnt(devices: "Sequence[Device]", environ: "Mapping[str, str] | None") -> "Callable[[str], Callable[[Plan], Plan] | None]":
    """What this machine's own runs have taught about an architecture's plans, asked for when the architecture is known."""
    from brim.learning import calibrator

    return lambda architecture: calibrator(devices, architecture, environ)


def ask_engine(answer: "Prediction", *, environ: "Mapping[str, str] | None" = None) -> "SecondOpinion":
    """The engine's own numbers for the same workload on this machine, beside brim's: llama-fit-params, else a bare libllama; what keeps it from being asked is said, never raised.

    `BRIM_LIBLLAMA` names a library and puts it first.
    """
    from brim import second_opinion
    from brim.asking import as_the_engine_would
    from brim.engines.llama_cpp import NEWEST_BUILD
    from brim.facts.workload import LlamaWorkload
    from brim.probes import engine, libllama

    environ = os.environ if environ is None else environ
    program = None if environ.get(libllama.VARIABLE, "").strip() else engine.find(environ)
    libraries = libllama.find(environ) if program is None else ()
    checkpoint, workload = answer.checkpoint, answer.resolved
    if program is None and not libraries:
        return second_opinion.unasked(
            "llama-fit-params is not on PATH (BRIM_FIT_PARAMS names one elsewhere), and no libllama was found (BRIM_LIBLLAMA names one)"
        )
    if checkpoint.form != "gguf" or not os.path.exists(checkpoint.source) or not isinstance(workload, LlamaWorkload):
        return second_opinion.unasked(f"it opens GGUF files only, and {checkpoint.source} is none here")
    asked, left_out = second_opinion.comparable(workload, bare=bool(libraries))
    if libraries:
        numbers = libllama.ask_first(libraries, checkpoint.source, asked, second_opinion.experts(asked), environ)
    else:
        assert program is not None
        numbers = engine.ask(program, second_opinion.words(asked, checkpoint.source), environ=environ)
    here, words = second_opinion.as_it_saw(probe(environ=environ).devices, numbers)
    asked, build, lacking = second_opinion.as_it_was_asked(asked, numbers, NEWEST_BUILD)
    plan = as_the_engine_would(answer, asked, here, words, build)
    notes = second_opinion.notes(checkpoint.architecture, tuple(item.device for item in answer.gate.devices), here)
    return second_opinion.compare(plan, numbers, (*left_out, *lacking), notes)


def solve(
    model: "str | Checkpoint",
    wanted: "Sequence[str]",
    workload: "LlamaWorkload | None" = None,
    *,
    device: "Sequence[str]" = (),
    devices: "Sequence[Device] | None" = None,
    reserve: float | None = None,
    version: int | None = None,
    environ: "Mapping[str, str] | None" = None,
) -> "Solution":
    """The largest workload that fits, for the knobs in `wanted` (ctx, slots, quant, layers, experts, split, kv-type) in order of preference. Raises as `fit`."""
    from brim.asking import parse_wanted, solve_llama
    from brim.engines.llama_cpp import NEWEST_BUILD
    from brim.facts.workload import LlamaWorkload

    said: tuple[str, ...] = ()
    names = parse_wanted(wanted)
    if devices is None:
        devices, said = _line_up(device, reserve, environ)
    from brim.checkpoint import converted

    checkpoint, told = converted(read(model) if isinstance(model, str) else model)
    said = (*said, *told)
    return solve_llama(
        checkpoint,
        workload or LlamaWorkload(),
        names,
        tuple(devices),
        read=read,
        version=version or NEWEST_BUILD,
        caveats=said,
        learn=_learnt(devices, environ),
    )


def _for_training(
    wanted: "Sequence[Device] | Sequence[str] | None", reserve: float | None, environ: "Mapping[str, str] | None"
) -> "tuple[tuple[Device, ...], tuple[str, ...]]":
    """Devices as given, as words of `--device`, or what is visible where nothing was said; and caveats."""
    given = tuple(item for item in wanted or () if isinstance(item, Device))
    if given:
        return given, ()
    seen = probe(reserve=reserve, environ=environ, wake=True) if not wanted else None
    found, caveats = devices(tuple(str(word) for word in wanted or ()), seen, reserve=reserve, environ=environ)
    return found, (*(seen.warnings if seen is not None else ()), *caveats)


def training_configs(paths: "Sequence[str]") -> "tuple[TrainWorkload, str]":
    """The workload that training files describe (trainer arguments, then accelerate or DeepSpeed files), and the model they name ('' where none)."""
    from brim.facts.training import TrainWorkload
    from brim.training import read_configs

    return read_configs(paths, TrainWorkload())


def training_command(command: "Sequence[str]") -> "tuple[TrainWorkload, str] | None":
    """The workload and the model ('' where it names none) of a training command (torchrun, accelerate, deepspeed, axolotl, …); None for any other command."""
    from brim.training import read_command

    return read_command(command)


def fit_training(
    model: str,
    workload: "TrainWorkload",
    *,
    devices: "Sequence[Device] | Sequence[str] | None" = None,
    reserve: float | None = None,
    environ: "Mapping[str, str] | None" = None,
) -> "Prediction":
    """Price one training step of `model` (a config.json or its folder) and judge it; several cards are its ranks. Torch is never imported."""
    from brim.training import fit_training as fit_one

    found, caveats = _for_training(devices, reserve, environ)
    return fit_one(model, workload, found, caveats)


def solve_training(
    model: str,
    wanted: str,
    workload: "TrainWorkload | None" = None,
    *,
    auto: bool = False,
    devices: "Sequence[Device] | Sequence[str] | None" = None,
    reserve: float | None = None,
    environ: "Mapping[str, str] | None" = None,
) -> "tuple[str, Found]":
    """The model's name, and the largest `batch` or `seq`, the cheapest `method`, the lightest `zero` or the fewest `gpus` that fit."""
    from brim.facts.training import TrainWorkload
    from brim.training import solve

    found, _caveats = _for_training(devices, reserve, environ)
    return solve(model, wanted, workload or TrainWorkload(), found, auto=auto)


def preflight(
    model: str | None = None,
    *,
    parameters: int | None = None,
    devices: "Sequence[Device] | Sequence[str] | None" = None,
    reserve: float | None = None,
    batch: int = 1,
    seq: int = 2048,
    compressed: "Compressed | None" = None,
    environ: "Mapping[str, str] | None" = None,
) -> "Preflight":
    """Which ways to run and to train a model (or a dense model of `parameters` weights) fit the devices, each with its arithmetic."""
    from brim.training import preflight as judge

    found, _caveats = _for_training(devices, reserve, environ)
    return judge(model, parameters=parameters, devices=found, batch=batch, seq=seq, compressed=compressed)


def run(
    command: "Sequence[str]",
    limits: "Limits",
    *,
    run_dir: str | None = None,
    prediction: "Prediction | None" = None,
    force: bool = False,
    environ: "Mapping[str, str] | None" = None,
    clock: "Clock | None" = None,
    probe: "Probe | None" = None,
    extras: "Extras | None" = None,
    profile: "Profile | None" = None,
    artifact: str = "",
) -> "RunResult":
    """Gate, launch and govern one command; see `launch.run`.

    A `profile` adds its gates (its card, the quality gate of `artifact`) and its watchdog's part of the report; its limits are in `limits` already.
    """
    from brim.facts.extras import Extras
    from brim.launch import run as launch
    from brim.launch import signals_held

    if limits.on_oom:
        from brim.again import apply_here

        apply_here(tuple(command), limits.on_oom)
    folder, extras = run_dir or default_run_dir(), extras or Extras()
    if profile is not None:
        from brim.profiled import ArtifactWatch, gates

        extras = extras.replace(
            gates=(*extras.gates, *gates(profile, artifact, floor=limits.floor_bytes, max_temp=limits.max_temp_c)),
            artifact=ArtifactWatch(profile, artifact) if artifact and profile.quality else extras.artifact,
        )
    if not extras.ledger:
        extras = extras.replace(ledger=ledger_path(os.environ if environ is None else environ))
    awake = any(name != "cpu" for name in limits.named()) or (prediction is not None and any(item.device.backend != "cpu" for item in prediction.gate.devices))
    eyes = probe or machine(environ=environ, clock=clock, wake=awake, disk=os.getcwd())  # a laptop's card that the job does not use sleeps on
    result = launch(command, limits, run_dir=folder, prediction=prediction, force=force, environ=environ, clock=clock, probe=eyes, extras=extras)
    with signals_held():  # the job has ended: its code is brim's, whoever is in a hurry now
        return result.replace(report=_completed(folder, result.report, profile, prediction))


def _completed(folder: str, report: "Mapping[str, Any]", profile: "Profile | None", prediction: "Prediction | None") -> "Mapping[str, Any]":
    """Learn from the run, and give its report with the profile's part and the HTML page beside it; what cannot be written costs one line on stderr, never the run's code."""
    from brim.actions.notify import to_stderr
    from brim.profiled import complete

    try:
        return complete(folder, report, profile, prediction)
    except Exception as fault:  # noqa: BLE001 - a page must never change what a run ends with
        to_stderr(f"the run's pages are not complete: {fault}")
        return report


def ledger_path(environ: "Mapping[str, str]") -> str:
    """The file of the ledger of promises: `BRIM_LEDGER`, else one in the state folder."""
    return environ.get("BRIM_LEDGER") or os.path.join(state_dir(), "promises.json")


def state_dir() -> str:
    """Where runs are kept: the XDG state folder of brim."""
    from platformdirs import user_state_dir

    return user_state_dir("brim")


def default_run_dir(suffix: str = "") -> str:
    """A new folder for a run: sortable by time, unique by our pid."""
    from datetime import UTC, datetime

    stamp = datetime.fromtimestamp(SystemClock().wall_ns() / 1e9, tz=UTC).strftime("%Y%m%d-%H%M%S")
    return os.path.join(state_dir(), "runs", f"{stamp}-{os.getpid()}{suffix}")


def run_folder(run: str) -> str:
    """The folder of a run given by path, or by its name under the state folder."""
    if os.path.isdir(run):
        return run
    named = os.path.join(state_dir(), "runs", run)
    return named if os.path.isdir(named) and os.sep not in run else run


def report(run: str) -> "dict[str, Any]":
    """The `brim.run/1` document of a run. `Unreadable` where there is none or it is no JSON. One whose writing was interrupted is written first, from the journal."""
    folder = run_folder(run)
    if not os.path.lexists(os.path.join(folder, "report.json")):
        from brim.dossier import recover

        recover(folder)
    return run_document(folder, "report.json", "brim.run/1", "no report here", "Name a run folder, or one of the runs in the state folder.")


def run_document(folder: str, name: str, schema: str, absent: str, hint: str) -> "dict[str, Any]":
    """One of the documents in a run folder. `Unreadable` says `absent` where it is not there or no JSON, and names the schema where it is another document."""
    import json

    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError) as fault:
        raise Unreadable(f"{path}: {absent}: {getattr(fault, 'strerror', None) or fault}", hint=hint) from None
    if not isinstance(found, dict) or found.get("schema") != schema:
        raise Unreadable(f"{path}: is no {schema} document")
    return found


def verify(run: str) -> tuple[str, int, str]:
    """Recompute the chain of a run: (journal path, lines, head). `BrokenJournal` names the first line that is wrong."""
    from brim.dossier import verified

    return verified(run_folder(run))
