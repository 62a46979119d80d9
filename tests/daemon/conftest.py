"""A process for tests of parts of the daemon."""

import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that sleeps until it is killed."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()
