"""How many files this process may have open, and how many clients they suffice for."""

from __future__ import annotations

import resource

SPARE_FDS = 128  # for segments, pidfds of clients that come next, the log, and Python's own
FDS_PER_CLIENT = 2  # its socket and its process' pidfd
UNLIMITED_FDS = 2**20  # as many as are taken where there is no limit


def possible_clients() -> int:
    """How many clients the descriptors suffice for that this process may take."""
    return max(8, (_wanted() - SPARE_FDS) // FDS_PER_CLIENT)


def raise_limit() -> None:
    """Raises this process' own limit to the highest that it may set."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _wanted():
        resource.setrlimit(resource.RLIMIT_NOFILE, (_wanted(), hard))


def _wanted() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return UNLIMITED_FDS if hard == resource.RLIM_INFINITY else hard
