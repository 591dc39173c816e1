"""Everything a user may import, in alphabetical order, resolved lazily (PEP 562), and nothing else."""

__version__ = "0.1.0"

_HOMES = {
    "BrimError": "brim.errors",
    "Extras": "brim.facts.extras",
    "LlamaWorkload": "brim.facts.workload",
    "Missing": "brim.values",
    "Prediction": "brim.prediction",
    "Probed": "brim.api",
    "Span": "brim.units",
    "TrainWorkload": "brim.facts.training",
    "calibrations": "brim.verbs",
    "claims": "brim.verbs",
    "evidence_of": "brim.verbs",
    "catalogue": "brim.api",
    "devices": "brim.api",
    "fit": "brim.api",
    "fit_training": "brim.api",
    "forget_calibration": "brim.verbs",
    "governor_report": "brim.card_report",
    "import_calibration": "brim.verbs",
    "inspect": "brim.api",
    "machine": "brim.api",
    "limits": "brim.facts.settings",
    "load_profile": "brim.card_report",
    "plain": "brim.values",
    "preflight": "brim.api",
    "phase": "brim.client",
    "probe": "brim.api",
    "profiles": "brim.card_report",
    "prune_runs": "brim.verbs",
    "quality_gate": "brim.verbs",
    "quality_of": "brim.verbs",
    "read": "brim.api",
    "report": "brim.api",
    "resume": "brim.resumption",
    "run": "brim.api",
    "runs": "brim.verbs",
    "shape_file": "brim.api",
    "solve": "brim.api",
    "solve_training": "brim.api",
    "verify": "brim.api",
}

__all__ = [*_HOMES]  # noqa: PLE0604 — strings all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.api import Probed as Probed
    from brim.api import catalogue as catalogue
    from brim.api import devices as devices
    from brim.api import fit as fit
    from brim.api import fit_training as fit_training
    from brim.api import inspect as inspect
    from brim.api import machine as machine
    from brim.api import preflight as preflight
    from brim.api import probe as probe
    from brim.api import read as read
    from brim.api import report as report
    from brim.api import run as run
    from brim.api import shape_file as shape_file
    from brim.api import solve as solve
    from brim.api import solve_training as solve_training
    from brim.api import verify as verify
    from brim.card_report import governor_report as governor_report
    from brim.card_report import load_profile as load_profile
    from brim.card_report import profiles as profiles
    from brim.client import phase as phase
    from brim.errors import BrimError as BrimError
    from brim.facts.extras import Extras as Extras
    from brim.facts.settings import limits as limits
    from brim.facts.training import TrainWorkload as TrainWorkload
    from brim.facts.workload import LlamaWorkload as LlamaWorkload
    from brim.prediction import Prediction as Prediction
    from brim.resumption import resume as resume
    from brim.units import Span as Span
    from brim.values import Missing as Missing
    from brim.values import plain as plain
    from brim.verbs import calibrations as calibrations
    from brim.verbs import claims as claims
    from brim.verbs import evidence_of as evidence_of
    from brim.verbs import forget_calibration as forget_calibration
    from brim.verbs import import_calibration as import_calibration
    from brim.verbs import prune_runs as prune_runs
    from brim.verbs import quality_gate as quality_gate
    from brim.verbs import quality_of as quality_of
    from brim.verbs import runs as runs


def __getattr__(name: str) -> object:
    """Import the home of a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'brim' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
