"""The join for training: reads a model and configuration files, prices a step, judges it, looks for the largest or cheapest that fits."""

import os

from brim import gate
from brim.engines.train import price, survey
from brim.errors import BadCheckpoint, CannotTell, NotACheckpoint, Unreadable, Usage
from brim.facts.model import Checkpoint
from brim.facts.training import TrainWorkload
from brim.prediction import Prediction
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from brim.engines.train.census import Census
    from brim.facts.device import Device
    from brim.preflight import Compressed, Preflight
    from brim.training_solver import Found

MOST_CONFIG_BYTES = 16 << 20


def read_model(model: str) -> "tuple[Checkpoint, Census]":
    """A model's facts and its census, from a folder with a `config.json`, such a file, or a shape file that holds a `config`."""
    from brim.shapes.config import read

    path = os.path.join(model, "config.json") if os.path.isdir(model) else model
    config = _config(path)
    shape, rows = read(config, path)
    if isinstance(shape, Missing):
        raise CannotTell(f"{path}: {shape.detail}", hint="Give a model whose architecture brim knows, or --params N to the preflight.")
    census = survey(shape, rows)
    checkpoint = Checkpoint(
        form="config", source=path, name=str(config.get("_name_or_path") or os.path.basename(os.path.dirname(os.path.abspath(path))) or path),
        architecture=shape.architecture, metadata=config, tensors=(), file_bytes=0, shape=shape,
    )  # fmt: skip
    return checkpoint, census


def _config(path: str) -> "dict[str, Any]":
    import json

    try:
        if os.path.getsize(path) > MOST_CONFIG_BYTES:
            raise NotACheckpoint(
                f"{path} is no config.json: it is {os.path.getsize(path)} bytes long", hint="Training is priced from a config.json or a folder with one."
            )
        with open(path, "rb") as file:
            config = json.loads(file.read(MOST_CONFIG_BYTES))
    except OSError as fault:
        raise Unreadable(f"{path}: {fault.strerror or fault}") from None
    except (ValueError, RecursionError):
        raise NotACheckpoint(f"{path} is no JSON", hint="Training is priced from a config.json or a folder with one.") from None
    if isinstance(config, dict) and isinstance(config.get("config"), dict):
        config = config["config"]
    if not isinstance(config, dict):
        raise BadCheckpoint(f"{path} holds no configuration")
    return config


def read_configs(paths: "Sequence[str]", base: TrainWorkload) -> "tuple[TrainWorkload, str]":
    """One workload from training files, and the model they name ('' where none)."""
    from brim.engines.train.words import combine, read_config
    from brim.readers.training_config import read_document

    return combine(tuple(read_config(read_document(path)) for path in paths), base)


def fit_training(model: "str | tuple[Checkpoint, Census]", workload: TrainWorkload, devices: "tuple[Device, ...]", caveats: tuple[str, ...] = ()) -> Prediction:
    """Price one training step and judge it against `devices`; several cards are the ranks."""
    checkpoint, census = read_model(model) if isinstance(model, str) else model
    cards = tuple(device for device in devices if device.backend != "cpu") or devices[:1]
    w = _ranked(workload, len(cards))
    ids = tuple(card.id for card in cards)
    plan = price(census, w, ids[0] if ids else "cuda:0", devices=ids)
    verdict = gate.judge(plan, devices)
    return Prediction(
        checkpoint=checkpoint, plan=plan, gate=verdict, max_ctx=None, max_ctx_is_trained=False, suggestions=_suggest(census, w, devices, ids, verdict.verdict),
        caveats=caveats + plan.caveats,
    )  # fmt: skip


def _ranked(w: TrainWorkload, cards: int) -> TrainWorkload:
    """Several cards mean as many ranks, sharing by DDP unless something else was said."""
    if cards > 1 and w.ranks == 1:
        w = w.replace(ranks=cards)
    if w.ranks > 1 and w.sharding == "none":
        w = w.replace(sharding="ddp")
    return w


def _suggest(census: "Census", w: TrainWorkload, devices: "tuple[Device, ...]", ids: "tuple[str, ...]", verdict: str) -> "tuple[str, ...]":
    """Where it does not surely fit: the cheapest ways that do, in order of loss of fidelity."""
    if verdict == gate.FITS or not devices or isinstance(devices[0].budget.usable_bytes, Missing):
        return ()
    from brim.engines.train.solve import cheapest

    found = cheapest(w, lambda trial: gate.judge(price(census, trial, ids[0], devices=ids), devices).verdict == gate.FITS)
    if not found:
        return ("nothing that brim may change makes this fit: use a smaller model or more cards",)
    return tuple(f"{says} fits ({flags})" for says, flags in found[:3])


def solve(model: str, wanted: str, w: TrainWorkload, devices: "tuple[Device, ...]", *, auto: bool) -> "tuple[str, Found]":
    """The model's name and what the solver found; several cards are the ranks."""
    from brim.training_solver import solve as turn

    checkpoint, census = read_model(model)
    cards = sum(device.backend != "cpu" for device in devices)
    return checkpoint.name, turn(census, _ranked(w, cards), devices, wanted, auto=auto)


def preflight(
    model: "str | None",
    *,
    parameters: int | None = None,
    devices: "tuple[Device, ...]" = (),
    batch: int = 1,
    seq: int = 2048,
    compressed: "Compressed | None" = None,
) -> "Preflight":
    """The table of ways to run and train; from a model, or from a parameter count alone."""
    from brim.engines.train.assumed import SMALLEST, dense
    from brim.preflight import preflight as judge

    if model is None:
        if parameters is None:
            raise Usage("a preflight needs a MODEL or --params N")
        if not SMALLEST <= parameters <= 10**14:
            raise Usage(f"--params {parameters} is outside ten million to a hundred trillion", hint="Write 12e9 or 12000000000.")
        return judge(dense(parameters), devices, name=f"a dense model of {parameters} parameters", assumed=True, batch=batch, seq=seq, compressed=compressed)
    checkpoint, census = read_model(model)
    return judge(census, devices, name=checkpoint.name, batch=batch, seq=seq, compressed=compressed)
