"""What embedded daemons left that were killed together with their parents, as a batch system or the OOM killer does.

A daemon that is killed leaves its segments for the next one of its instance. The instance of an embedded daemon has no
next one; so the next embedded daemon of the same user, whatever its instance, removes what is left of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat

from shmreplay.daemon.process.instance_lock import InstanceLock
from shmreplay.errors import ShmReplayError
from shmreplay.segments.abandoned import remove_abandoned
from shmreplay.segments.segment import SegmentStore, embedded_parent, lock_name

log = logging.getLogger("shmreplayd")


def remove_leftovers(store: SegmentStore) -> None:
    """Removes the segments of embedded daemons that have ended and whose parents have ended."""
    for instance in store.locked_instances():
        parent = embedded_parent(instance)
        if parent is not None and _has_ended(parent):
            _remove(store, instance)


def _has_ended(pid: int) -> bool:
    """Whether no such process is there. One with a reused pid counts as alive: then a later daemon cleans up."""
    try:
        os.close(os.pidfd_open(pid))
    except ProcessLookupError:
        return True
    return False


def _remove(store: SegmentStore, instance: str) -> None:
    socket = _socket_of(store.path(lock_name(instance)))
    if socket is None:
        return
    try:
        lock = InstanceLock(store, instance)
    except ShmReplayError as error:  # its daemon is just ending
        log.debug("left alone: %s", error)
        return
    try:
        remove_abandoned(store, instance)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket)
            os.rmdir(os.path.dirname(socket))
        log.info("removed what the killed daemon %r had left", instance)
    finally:
        lock.release()


def _socket_of(lock_path: str) -> str | None:
    """Where the dead daemon's socket was; None if the lock is not of this user, whose word alone is trusted."""
    try:
        fd = os.open(lock_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe must not keep us
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            return None
        return os.pread(fd, 4096, 0).decode("utf-8", "surrogateescape").partition("\n")[2].strip()
    finally:
        os.close(fd)
