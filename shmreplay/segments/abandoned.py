"""Removes arenas whose daemon was killed, and which no daemon will adopt."""

from __future__ import annotations

import contextlib
import os

from shmreplay import _core
from shmreplay.errors import ShmReplayError
from shmreplay.segments.segment import SegmentNames, SegmentStore, segment_names

DROP_TIMEOUT_S = 2.0


def remove_abandoned(store: SegmentStore, instance: str) -> None:
    """Removes all arenas of an instance, and its marks."""
    for arena in store.arenas(instance):
        remove_abandoned_arena(store, instance, arena)
    for mark in store.marks(instance):
        store.unlink(mark)


def remove_abandoned_arena(store: SegmentStore, instance: str, arena: str) -> None:
    """Drops the tables, so that callers blocked in them get TableClosed, and removes the segments."""
    # Unfinished arenas have no callers. If the lock's holder is stopped, callers cannot be told.
    with contextlib.suppress(OSError, ShmReplayError):
        _drop(store, segment_names(instance, arena))
    store.remove_arena(instance, arena)


def _drop(store: SegmentStore, names: SegmentNames) -> None:
    with contextlib.ExitStack() as stack:
        fds = []
        for name in (names.index, names.data):
            fds.append(store.open(name))
            stack.callback(os.close, fds[-1])
            if os.fstat(fds[-1]).st_uid != os.geteuid():
                raise ShmReplayError(f"segment {store.path(name)} belongs to another user, who may truncate it")
        arena = _core.Arena(fds[0], fds[1])
        stack.callback(arena.close)
        arena.drop(DROP_TIMEOUT_S)
