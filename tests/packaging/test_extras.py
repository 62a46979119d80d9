"""Clients of libraries that come with an extra."""

import pathlib
import subprocess
import sys

import pytest

PYPROJECT = pathlib.Path(__file__).resolve().parents[2] / "pyproject.toml"

EXTRAS = ("cleanrl", "gymnasium", "jax", "minari", "sb3", "torch")
LIBRARIES = {"cleanrl": "torch", "sb3": "stable_baselines3"}  # where the library has another name than the extra


@pytest.mark.parametrize("extra", EXTRAS)
def test_clients_of_a_missing_library_say_what_to_install(extra: str) -> None:
    code = f"import sys; sys.modules[{LIBRARIES.get(extra, extra)!r}] = None; import shmreplay.clients.{extra}"
    ended = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"is not installed; install it: pip install 'shmreplay[{extra}]'" in ended.stderr
    assert f"\n{extra} = [" in PYPROJECT.read_text(encoding="utf-8")
