"""Whether any process has a segment open, in whatever container: the kernel knows also where no pid tells."""

from __future__ import annotations

import errno
import fcntl
import os
import signal

from shmreplay.errors import ShmReplayError
from shmreplay.segments.segment import SegmentStore, segment_names

_BUSY = (errno.EAGAIN, errno.EACCES)


def is_in_use(store: SegmentStore, name: str) -> bool:
    """Whether a process has the segment mapped, or open for writing. A segment that is not there has no users.

    The kernel grants a read lease on a file only while nobody has it open for writing, and whoever has mapped a segment
    has. Raises ShmReplayError if the kernel does not say, as for another user's file.
    """
    try:
        return not _can_be_leased(store.path(name))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ShmReplayError(f"nobody can say whether {store.path(name)} is in use: {error}") from error


def arena_in_use(store: SegmentStore, instance: str) -> str | None:
    """The first arena of an instance that a process uses; None if there is none. Raises as `is_in_use`."""
    for arena in sorted(store.arenas(instance)):
        names = segment_names(instance, arena)
        if is_in_use(store, names.index) or is_in_use(store, names.data):
            return arena
    return None


def _can_be_leased(path: str) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        # Whoever opens the file during the lease has us sent a signal: one that does nothing.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    finally:
        os.close(fd)
    return True
