"""Runs the tests that need their own process."""

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.conftest import APART, SEED_VARIABLE
from tests.support.repository import ROOT


@pytest.mark.long
@pytest.mark.parametrize("library", sorted(APART))
def test_the_tests_of_a_library_pass_apart(library: str, seed: int) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"tests/clients/{library}"]
    environment = {**os.environ, SEED_VARIABLE: str(seed)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
