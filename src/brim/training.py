"""The join for training: reads a model and configuration files, prices a step, judges it, looks for the largest or cheapest that fits."""

from brim import gate
from brim.engines.train import price, survey
from brim.errors import CannotTell, Usage
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
    from brim.outlook import Compressed, Preflight
    from brim.training_solver import Found


def read_model(model: str) -> "tuple[Checkpoint, Census]":
    """A model's facts and its census, from anything that brim opens: a folder or file with a config.json, safetensors, a shape file, a GGUF."""
    from brim.checkpoint import open_checkpoint
    from brim.engines.llama_cpp.sane import check
    from brim.engines.train.from_gguf import shape_and_rows
    from brim.shapes.config import read

    checkpoint = open_checkpoint(model)
    config = checkpoint.metadata
    if "general.architecture" in config:
        check(checkpoint, checkpoint.architecture)
        shape, rows = shape_and_rows(config, checkpoint.tensors)
    else:
        shape, rows = read(config, checkpoint.source)
    if isinstance(shape, Missing):
        raise CannotTell(f"{checkpoint.source}: {shape.detail}", hint="Give a model whose architecture brim knows, or --params N to the preflight.")
    return checkpoint, survey(shape, rows, config)


def read_configs(paths: "Sequence[str]", base: TrainWorkload) -> "tuple[TrainWorkload, str]":
    """One workload from training files, and the model they name ('' where none)."""
    from brim.engines.train.words import combine, read_config
    from brim.readers.training_config import read_document

    return combine(tuple(read_config(read_document(path)) for path in paths), base)


def read_command(command: "Sequence[str]") -> "tuple[TrainWorkload, str] | None":
    """The workload and model of a training command line; None where it is another program's, or names neither a file nor arguments that brim knows."""
    from brim.engines.train.command import is_training, read
    from brim.engines.train.words import combine, known, read_config
    from brim.readers.training_config import read_document

    if not is_training(command):
        return None
    launch = read(command)
    documents = [read_document(path) for path in launch.files]
    if launch.program == "tune" and documents:
        documents[0] = merged(documents[0], launch.arguments)
    elif known(launch.arguments):
        documents.insert(0, launch.arguments)
    if launch.document:  # plain ranks stand under what the files say of sharding; sharding on the command line stands over them
        documents.insert(0 if launch.document.get("distributed_type") == "MULTI_GPU" else len(documents), launch.document)
    documents = [document for document in documents if known(document)]
    if not documents:
        return None
    workload, model = combine(tuple(read_config(document) for document in documents), TrainWorkload())
    if workload.sharding != "none" and workload.ranks < 2:
        workload = workload.replace(ranks=1, sharding="none")
    return workload, model


def merged(document: "dict[str, Any]", over: "dict[str, Any]") -> "dict[str, Any]":
    """`document` with what stands in `over`, mapping by mapping."""
    out = dict(document)
    for key, value in over.items():
        inner = out.get(key)
        out[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return out


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
    from brim.outlook import preflight as judge

    if model is None:
        if parameters is None:
            raise Usage("a preflight needs a MODEL or --params N")
        if not SMALLEST <= parameters <= 10**14:
            raise Usage(f"--params {parameters} is outside ten million to a hundred trillion", hint="Write 12e9 or 12000000000.")
        return judge(dense(parameters), devices, name=f"a dense model of {parameters} parameters", assumed=True, batch=batch, seq=seq, compressed=compressed)
    checkpoint, census = read_model(model)
    return judge(census, devices, name=checkpoint.name, batch=batch, seq=seq, compressed=compressed)
