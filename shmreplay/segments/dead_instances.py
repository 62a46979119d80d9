"""Instances whose daemon has ended and whose memory nobody uses: finds them, and removes what they left."""

from __future__ import annotations

import os
from dataclasses import dataclass

from shmreplay.base.lock_file import Held, LockFile, read_lock_file
from shmreplay.errors import ShmReplayError
from shmreplay.segments.abandoned import remove_abandoned
from shmreplay.segments.segment import SegmentStore, lock_name
from shmreplay.segments.segment_users import arena_in_use


@dataclass(frozen=True)
class Instance:
    """What an instance has in a store.

    Attributes:
        name: of the instance.
        arenas: their names.
        num_bytes: of all their segments.
        socket: of its daemon, or of the last one; empty if the lock file does not say.
        kept_because: why it is not to be removed; empty if it is dead.
    """

    name: str
    arenas: tuple[str, ...]
    num_bytes: int
    socket: str
    kept_because: str


def find_instances(store: SegmentStore) -> list[Instance]:
    """Every instance that has files in the store, sorted by name."""
    return [_look(store, name) for name in store.instances()]


def remove_instance(store: SegmentStore, name: str) -> None:
    """Removes the files of a dead instance. While it does, no daemon of that instance can start.

    Raises ShmReplayError if it is not dead, or a file cannot be removed.
    """
    try:
        lock = LockFile(store.path(lock_name(name)))
    except Held as holder:
        raise ShmReplayError(f"instance {name!r} has a daemon by now, pid {holder}") from None
    except OSError as error:
        raise ShmReplayError(f"the lock of instance {name!r} cannot be opened: {error}") from error
    try:
        if reason := _why_in_use(store, name):
            raise ShmReplayError(f"instance {name!r} stays: {reason}")
        remove_abandoned(store, name)
    except BaseException:
        lock.leave()
        raise
    lock.release()


def _look(store: SegmentStore, name: str) -> Instance:
    files, arenas = store.files(name), tuple(sorted(store.arenas(name)))
    num_bytes = sum(_size(store.path(file)) for file in files)
    reason = _why_not_ours(store, files) or _why_locked(store, name) or _why_in_use(store, name)
    return Instance(name, arenas, num_bytes, _socket(store.path(lock_name(name))), reason)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def _socket(lock_path: str) -> str:
    """The second line of a lock file."""
    try:
        _, lines = read_lock_file(lock_path)
    except OSError:
        return ""
    return lines[1] if len(lines) > 1 else ""


def _why_not_ours(store: SegmentStore, files: list[str]) -> str:
    for file in files:
        try:
            owner = os.lstat(store.path(file)).st_uid
        except FileNotFoundError:
            continue
        if owner != os.geteuid() != 0:
            return f"it belongs to uid {owner}"
    return ""


def _why_locked(store: SegmentStore, name: str) -> str:
    path = store.path(lock_name(name))
    if not os.path.lexists(path):
        return ""  # a daemon that ended by itself removes the file
    try:
        LockFile(path).leave()
    except Held as holder:
        return f"its daemon runs, pid {holder}"
    except OSError as error:
        return f"its lock cannot be opened: {error}"
    return ""


def _why_in_use(store: SegmentStore, name: str) -> str:
    try:
        arena = arena_in_use(store, name)
    except ShmReplayError as error:
        return str(error)
    return "" if arena is None else f"a running process uses arena {arena!r}"
