"""Removes the arenas of an embedded daemon that was killed. No other daemon would ever adopt them."""

from __future__ import annotations

import contextlib
import os

from shmreplay import _core
from shmreplay.errors import ShmReplayError
from shmreplay.segments.segment import SegmentNames, SegmentStore, segment_names

DROP_TIMEOUT_S = 2.0


def remove_abandoned(store: SegmentStore, instance: str) -> None:
    """Drops the tables, so that callers blocked in them get TableClosed, and removes the segments."""
    for arena in store.arenas(instance):
        names = segment_names(instance, arena)
        # Unfinished arenas have no callers. If the lock's holder is stopped, callers cannot be told.
        with contextlib.suppress(OSError, ShmReplayError):
            _drop(store, names)
        store.remove_arena(instance, arena)
    for mark in store.marks(instance):
        store.unlink(mark)


def _drop(store: SegmentStore, names: SegmentNames) -> None:
    with contextlib.ExitStack() as stack:
        fds = []
        for name in (names.index, names.data):
            fds.append(store.open(name))
            stack.callback(os.close, fds[-1])
        arena = _core.Arena(fds[0], fds[1])
        stack.callback(arena.close)
        arena.drop(DROP_TIMEOUT_S)
