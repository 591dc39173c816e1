"""Everything a user may import, in alphabetical order, resolved lazily (PEP 562), and nothing else."""

__version__ = "0.1.0"

_HOMES = {
    "BrimError": "brim.errors",
    "LlamaWorkload": "brim.facts.workload",
    "Missing": "brim.values",
    "Prediction": "brim.prediction",
    "Probed": "brim.api",
    "Span": "brim.units",
    "TrainWorkload": "brim.facts.training",
    "fit": "brim.api",
    "inspect": "brim.api",
    "fit_training": "brim.api",
    "limits": "brim.facts.settings",
    "preflight": "brim.api",
    "probe": "brim.api",
    "read": "brim.api",
    "report": "brim.api",
    "run": "brim.api",
    "shape_file": "brim.api",
    "verify": "brim.api",
}

__all__ = [*_HOMES]  # noqa: PLE0604 — strings all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.api import Probed as Probed
    from brim.api import fit as fit
    from brim.api import inspect as inspect
    from brim.api import probe as probe
    from brim.api import read as read
    from brim.api import report as report
    from brim.api import run as run
    from brim.api import shape_file as shape_file
    from brim.api import verify as verify
    from brim.errors import BrimError as BrimError
    from brim.facts.settings import limits as limits
    from brim.facts.workload import LlamaWorkload as LlamaWorkload
    from brim.prediction import Prediction as Prediction
    from brim.units import Span as Span
    from brim.values import Missing as Missing


def __getattr__(name: str) -> object:
    """Import the home of a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'brim' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
