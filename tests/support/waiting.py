"""Waiting for what must happen: bounded, so that a fault fails and does not hang, also on a busy machine."""

import os
import time
from collections.abc import Callable

WAIT_S = 100.0


def eventually(condition: Callable[[], bool]) -> None:
    """Looks again and again until it holds; fails the test if it never does."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for did not happen"
        os.sched_yield()
