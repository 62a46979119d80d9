"""Clients of libraries that come with an extra."""

import pathlib
import subprocess
import sys

import pytest

PYPROJECT = pathlib.Path(__file__).resolve().parents[2] / "pyproject.toml"


@pytest.mark.parametrize("library", ["gymnasium", "jax", "torch"])
def test_clients_of_a_missing_library_say_what_to_install(library: str) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; import shmreplay.clients.{library}"
    ended = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"is not installed; install it: pip install 'shmreplay[{library}]'" in ended.stderr
    assert f"\n{library} = [" in PYPROJECT.read_text(encoding="utf-8")
