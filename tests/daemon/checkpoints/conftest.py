"""A place for checkpoints."""

import pathlib

import pytest


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> str:
    """Not made yet."""
    return str(tmp_path / "saved")
