"""LongWaits: logs calls that wait for long, once each, with the process, the table, the time and the reason."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Sequence
from typing import Any

from shmreplay import _core
from shmreplay.daemon.arenas.arena import ManagedArena
from shmreplay.daemon.arenas.registry import Registry
from shmreplay.daemon.arenas.session_ends import find_gone
from shmreplay.daemon.arenas.waiting_calls import describe_calls, explain_wait
from shmreplay.daemon.loop.workers import Workers
from shmreplay.errors import ShmReplayError

log = logging.getLogger("shmreplayd")

LOOK_S = 2.0  # between two looks; a look takes no lock, and microseconds if nobody waits
LONG_S = float(_core.FIRST_REPORT_S)  # the same as in the clients' own logs
QUIET_S = 60.0  # between two lines about the same side of a table

Place = tuple[str, str, str]  # arena, table, side
Call = tuple[str, str, str, int, int]  # and its session, and when it began


class LongWaits:
    """Looks every LOOK_S at the calls that wait for a rate limiter or for room, on a worker."""

    def __init__(self, registry: Registry, workers: Workers) -> None:
        self._registry = registry
        self._workers = workers
        self._told: set[Call] = set()
        self._last_line: dict[Place, float] = {}
        self._hidden: weakref.WeakSet[ManagedArena] = weakref.WeakSet()  # arenas logged as unreadable
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to look."""
        self._task = asyncio.ensure_future(self._look_repeatedly())

    def close(self) -> None:
        """Stops looking."""
        if self._task is not None:
            self._task.cancel()

    async def _look_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._workers.run(self._look, self._registry.arenas)
            except Exception:  # a fault of ours must not end the loop
                log.exception("looking for long waits failed")

    def _look(self, arenas: Sequence[ManagedArena]) -> None:
        """Logs calls that have waited for long and were not logged yet; forgets those that have ended."""
        waiting: set[Call] = set()
        for arena in arenas:
            try:
                if arena.is_usable():
                    waiting |= self._look_at(arena)
            except ShmReplayError as error:
                if arena.is_usable() and arena not in self._hidden:  # otherwise it has just been dropped, or was logged
                    log.error("arena %r: cannot read which calls wait in it: %s", arena.name, error)
                    self._hidden.add(arena)
        self._told &= waiting
        now = time.monotonic()
        self._last_line = {place: at for place, at in self._last_line.items() if now < at + QUIET_S}

    def _look_at(self, arena: ManagedArena) -> set[Call]:
        """Returns all calls that wait in an arena, and logs the long ones. Notes which tables are in use again."""
        arena.gone &= find_gone(arena.native)
        waiting: set[Call] = set()
        due: dict[Place, list[dict[str, Any]]] = {}
        for wait in arena.native.waits():
            place = (arena.name, wait["table"], wait["side"])
            call = (*place, wait["session"], wait["began_ns"])
            waiting.add(call)
            if wait["since_s"] >= LONG_S and call not in self._told:
                due.setdefault(place, []).append(wait)
        for place, waits in due.items():
            self._tell(arena, place, waits)
        return waiting

    def _tell(self, arena: ManagedArena, place: Place, waits: list[dict[str, Any]]) -> None:
        if place in self._last_line:
            return
        self._last_line[place] = time.monotonic()
        self._told |= {(*place, wait["session"], wait["began_ns"]) for wait in waits}
        _, table, side = place
        log.warning("table %r: %s: %s", table, describe_calls(waits, side), explain_wait(arena, table, side))
