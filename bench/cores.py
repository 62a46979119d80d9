"""Cores: one to run on, and whether others had it meanwhile. No library is needed."""

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def one_core() -> Iterator[int | None]:
    """Keeps this thread on one core, the last of those it may use; yields which, None if that is not allowed here.

    What was started before, as the daemon, keeps all cores.
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
    """How often this thread had to give up its core before it wanted to."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
