"""Clients of libraries that come with an extra."""

import pathlib
import subprocess
import sys

import pytest

PYPROJECT = pathlib.Path(__file__).resolve().parents[2] / "pyproject.toml"

LIBRARIES = {"gymnasium": "gymnasium", "jax": "jax", "sb3": "stable_baselines3", "torch": "torch"}  # by extra


@pytest.mark.parametrize("extra", LIBRARIES)
def test_clients_of_a_missing_library_say_what_to_install(extra: str) -> None:
    code = f"import sys; sys.modules[{LIBRARIES[extra]!r}] = None; import shmreplay.clients.{extra}"
    ended = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"is not installed; install it: pip install 'shmreplay[{extra}]'" in ended.stderr
    assert f"\n{extra} = [" in PYPROJECT.read_text(encoding="utf-8")
