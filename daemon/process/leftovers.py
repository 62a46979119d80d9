"""Removes the leftovers of embedded daemons that were killed together with their parents.

Batch systems and the OOM killer do that. A killed daemon leaves its segments for the next daemon of its instance. But
every embedded daemon has a new instance, so nobody would adopt them. Therefore the next embedded daemon of the same
user removes them.

Its parent may have been in another container, whose processes cannot be seen from here. Then the leftovers go if no
process has one of the segments mapped.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass

from shmreplay.base.lock_file import Held, LockFile, read_lock_file
from shmreplay.daemon.process.parent import Parent
from shmreplay.errors import ShmReplayError
from shmreplay.segments.abandoned import remove_abandoned
from shmreplay.segments.segment import SegmentStore, is_embedded, lock_name
from shmreplay.segments.segment_users import arena_in_use

log = logging.getLogger("shmreplayd")


def remove_leftovers(store: SegmentStore) -> None:
    """Removes the segments of embedded daemons that have ended, if their parents have ended, too.

    What cannot be looked at or removed is logged and left alone: it is no reason not to start.
    """
    for instance in store.locked_instances():
        if is_embedded(instance):
            try:
                _remove(store, instance)
            except (ShmReplayError, OSError) as error:
                log.warning("the leftovers of the killed daemon %r stay: %s", instance, error)


@dataclass(frozen=True)
class _Owner:
    """What the lock file of an embedded daemon says."""

    socket: str
    parent: Parent | None  # None: it does not say


def _remove(store: SegmentStore, instance: str) -> None:
    """Removes what a daemon left, unless that daemon, its parent or, in another container, a user of it lives."""
    path = store.path(lock_name(instance))
    owner = _owner_of(path)
    if owner is None:
        return
    has_ended = None if owner.parent is None else owner.parent.has_ended()
    if has_ended is False:
        return
    if has_ended is None and arena_in_use(store, instance) is not None:
        log.debug("what the daemon %r left stays: its parent cannot be seen from here, and it is in use", instance)
        return
    try:
        lock = LockFile(path)
    except Held:  # the daemon is about to start or to end
        return
    try:
        remove_abandoned(store, instance)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(owner.socket)
            os.rmdir(os.path.dirname(owner.socket))
    except BaseException:
        lock.leave()  # the next daemon tries again
        raise
    lock.release()
    log.info("removed the leftovers of the killed daemon %r", instance)


def _owner_of(lock_path: str) -> _Owner | None:
    """Who wrote a lock file; None if it belongs to another user and is not trusted, or nobody has written it yet."""
    try:
        status, lines = read_lock_file(lock_path)
    except OSError:
        return None
    if status.st_uid != os.geteuid() or len(lines) < 3:
        return None
    return _Owner(lines[1].strip(), Parent.from_line(lines[2]))
