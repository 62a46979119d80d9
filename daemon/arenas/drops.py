"""Drops of several arenas: all of them, or none if the daemon is killed before the first."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from shmreplay.errors import ShmReplayError
from shmreplay.segments.arena_mark import ArenaMark
from shmreplay.segments.segment import Doing, SegmentStore

log = logging.getLogger("shmreplayd")


@contextlib.contextmanager
def marked_as_dropped(store: SegmentStore, instance: str, arenas: Sequence[str]) -> Iterator[None]:
    """If the daemon is killed inside, the next one drops all of these arenas. A single one needs no mark."""
    mark = _set_mark(store, instance, arenas) if len(arenas) > 1 else None
    try:
        yield
    finally:
        if mark is not None:
            mark.remove()


def _set_mark(store: SegmentStore, instance: str, arenas: Sequence[str]) -> ArenaMark | None:
    mark = ArenaMark(store, instance, arenas, Doing.DROPPING)
    try:
        mark.set()
    except (ShmReplayError, OSError) as error:  # a full /dev/shm must not keep its memory from being freed
        log.warning("if this daemon is killed while it drops %d arenas, some of them stay: %s", len(arenas), error)
        return None
    return mark
