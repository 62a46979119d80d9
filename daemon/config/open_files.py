"""The limit of open files, and how many clients it allows."""

from __future__ import annotations

import resource

SPARE_FDS = 128  # for segments, pidfds of clients that are about to connect, the log, and Python itself
FDS_PER_CLIENT = 2  # its socket, and the pidfd of its process
UNLIMITED_FDS = 2**20  # what we take if there is no limit


def possible_clients() -> int:
    """How many clients this process has descriptors for, once `raise_limit` was called."""
    return max(8, (_wanted() - SPARE_FDS) // FDS_PER_CLIENT)


def raise_limit() -> None:
    """Raises this process' soft limit to its hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _wanted():
        resource.setrlimit(resource.RLIMIT_NOFILE, (_wanted(), hard))


def _wanted() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return UNLIMITED_FDS if hard == resource.RLIM_INFINITY else hard
