"""Loads a script of tests/evidence as a module: what is five hundred runs there is twenty here."""

import importlib.util

from tests.conftest import ROOT


def load(name: str):
    """The module of `tests/evidence/NAME.py` (that folder holds scripts, not a package)."""
    spec = importlib.util.spec_from_file_location(f"evidence_{name}", ROOT / "tests" / "evidence" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
