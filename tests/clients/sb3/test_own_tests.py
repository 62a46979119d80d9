"""Stable-Baselines3's own tests, from its sdist, with our buffers in the places of its own."""

import pathlib
import subprocess
import sys

import pytest

from tests.support.repository import ROOT

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

QUICK = [
    "test_buffers",
    "test_n_step_replay",
    "test_deterministic",
    "test_her",
]  # `make sb3-tests` runs all, for minutes


@pytest.mark.long
def test_its_own_tests_pass_with_our_buffers() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "sb3_tests.py"), str(ROOT / "build" / "sb3"), *QUICK]
    ended = subprocess.run(script, cwd="/", capture_output=True, text=True)
    if ended.returncode == 3:
        pytest.skip(f"no sdist of stable-baselines3 could be downloaded: {ended.stderr[-500:]}")
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    assert " passed" in ended.stdout


def test_each_of_its_files_that_is_run_quickly_is_one_that_is_run() -> None:
    text = (pathlib.Path(ROOT) / "scripts" / "sb3_tests.py").read_text(encoding="utf-8")
    assert all(f'"{name}",' in text for name in QUICK)
