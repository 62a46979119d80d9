"""Cores: keeps a thread on one core, and counts how often others took it. Needs only the standard library."""

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def one_core() -> Iterator[int | None]:
    """Keeps this thread on one core, the last that it may use. Yields its number, or None if that is not allowed here.

    Processes started before, such as the daemon, keep all cores.
    """
    allowed = os.sched_getaffinity(0)
    core = max(allowed)
    try:
        os.sched_setaffinity(0, {core})
    except OSError:  # a container's rules
        yield None
        return
    try:
        yield core
    finally:
        os.sched_setaffinity(0, allowed)


def times_interrupted() -> int:
    """How often this thread was taken off its core involuntarily."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
