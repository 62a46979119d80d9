"""The limit of open files: how many clients it allows, and what tables leave to them."""

from __future__ import annotations

import errno
import os
import resource

from shmreplay.errors import ShmReplayError

SPARE_FDS = 128  # for segments, pidfds of clients that are about to connect, the log, and Python itself
FDS_PER_CLIENT = 2  # its socket, and the pidfd of its process
FDS_PER_ARENA = 2
MAX_KEPT_FDS = 64  # that arenas leave to connections; of a low limit, a quarter
REMEDY = "raise LimitNOFILE= of its unit, or ulimit -n; or drop tables, or close clients"
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


def check_descriptors(purpose: str, num_arenas: int) -> None:
    """Raises ShmReplayError if so many more arenas would leave too few descriptors for connections."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return
    num_open, needed = len(os.listdir("/proc/self/fd")), FDS_PER_ARENA * num_arenas
    kept = min(MAX_KEPT_FDS, limit // 4)
    if num_open + needed + kept > limit:
        raise ShmReplayError(
            f"{purpose} needs {needed} file descriptors of shmreplayd: {num_open} of its {limit} are in use, and "
            f"{kept} are kept for connections; {REMEDY}"
        )


def blame_daemon(error: Exception) -> Exception:
    """The error for a client: one about descriptors says that the daemon lacks them, and not the client."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return ShmReplayError(f"shmreplayd has no file descriptors left ({error}); {REMEDY}")
    return error
