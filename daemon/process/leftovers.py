"""Removes the leftovers of embedded daemons that were killed together with their parents.

Batch systems and the OOM killer do that. A killed daemon leaves its segments for the next daemon of its instance. But
every embedded daemon has a new instance, so nobody would adopt them. Therefore the next embedded daemon of the same
user removes them.
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
    """Removes the segments of embedded daemons that have ended, if their parents have ended, too."""
    for instance in store.locked_instances():
        parent = embedded_parent(instance)
        if parent is not None and _has_ended(parent):
            _remove(store, instance)


def _has_ended(pid: int) -> bool:
    """Whether the process has ended. A reused pid counts as alive; a later daemon then cleans up."""
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
    except ShmReplayError as error:  # its daemon is about to end
        log.debug("left alone: %s", error)
        return
    try:
        remove_abandoned(store, instance)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket)
            os.rmdir(os.path.dirname(socket))
        log.info("removed the leftovers of the killed daemon %r", instance)
    finally:
        lock.release()


def _socket_of(lock_path: str) -> str | None:
    """The path of the dead daemon's socket; None if the lock file belongs to another user and is not trusted."""
    try:
        fd = os.open(lock_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # not to block on a pipe
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            return None
        return os.pread(fd, 4096, 0).decode("utf-8", "surrogateescape").partition("\n")[2].strip()
    finally:
        os.close(fd)
