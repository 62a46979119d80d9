"""Blocks signals while a process is started: it inherits that, so it can decide about them before one ends it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection, Iterator


@contextlib.contextmanager
def signals_blocked(numbers: Collection[int]) -> Iterator[None]:
    """Blocks signals of this thread. Those that come meanwhile are delivered at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
