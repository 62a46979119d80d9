"""Closes sessions, and logs which tables lose their last writer or learner."""

from __future__ import annotations

import logging

from shmreplay import _core
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
    native = arena.native
    used = [(side, name) for side, names in zip(_DID, native.uses_of(index, generation), strict=True) for name in names]
    native.close_session(index, generation, timeout_s)
    gone = find_gone(native)
    # A client may have given the session back before us: then nobody has told yet what was used.
    for side, table in sorted(gone & set(used) | gone - arena.gone):
        _tell(arena, table, side)
    arena.gone = gone


def find_gone(native: _core.Arena) -> set[tuple[str, str]]:
    """The sides, "insert" or "sample", and tables that were used, and by no process that lives. Takes no lock."""
    gone = set()
    for index in range(native.num_tables):
        info = native.table(index).info()
        for side, live in zip(_DID, native.uses(), strict=True):
            if info[f"{side}s"] > 0 and info["name"] not in live:
                gone.add((side, info["name"]))
    return gone


def _tell(arena: ManagedArena, table: str, side: str) -> None:
    """Logs a warning if somebody waits for what those processes did, otherwise an info."""
    other = _OTHER[side]
    waits = [wait for wait in arena.native.waits() if wait["table"] == table and wait["side"] == other]
    text = f"table {table!r}: every process that has {_DID[side]} it is gone"
    if waits:
        log.warning("%s, and %s", text, describe_calls(waits, other))
    else:
        log.info("%s", text)
