"""Closes sessions, and logs which tables lose their last writer or learner."""

from __future__ import annotations

import logging

from shmreplay.daemon.arenas.arena import ManagedArena
from shmreplay.daemon.arenas.waiting_calls import describe_calls

log = logging.getLogger("shmreplayd")

_DID = {"insert": "inserted into", "sample": "sampled from"}
_OTHER = {"insert": "sample", "sample": "insert"}


def close_session(arena: ManagedArena, index: int, generation: int, timeout_s: float) -> None:
    """Gives back what a session holds, and logs which tables have no writer or no learner left.

    Waits for the arena's lock. Does nothing in an arena that has failed.
    """
    if not arena.is_usable():
        return
    used = arena.native.uses_of(index, generation)
    arena.native.close_session(index, generation, timeout_s)
    left = arena.native.uses()
    for side, before, now in zip(("insert", "sample"), used, left, strict=True):
        for table in before:
            if table not in now:
                _tell(arena, table, side)


def _tell(arena: ManagedArena, table: str, side: str) -> None:
    """Logs a warning if somebody waits for what those processes did, otherwise an info."""
    other = _OTHER[side]
    waits = [wait for wait in arena.native.waits() if wait["table"] == table and wait["side"] == other]
    text = f"table {table!r}: every process that has {_DID[side]} it is gone"
    if waits:
        log.warning("%s, and %s", text, describe_calls(waits, other))
    else:
        log.info("%s", text)
