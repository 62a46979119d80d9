"""Calls that wait for long: each is told of once, with who waits for what since when, and why."""

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
from shmreplay.daemon.arenas.waiting_calls import describe_calls, explain_wait
from shmreplay.daemon.loop.workers import Workers
from shmreplay.errors import ShmReplayError

log = logging.getLogger("shmreplayd")

LOOK_S = 2.0  # from one look to the next; it takes microseconds where nobody waits, and no lock
LONG_S = float(_core.FIRST_REPORT_S)  # as for the callers' own logs
QUIET_S = 60.0  # from one line about a side of a table to the next: whoever is kept back all the time is no news

Place = tuple[str, str, str]  # arena, table, side
Call = tuple[str, str, str, int, int]  # and the session, and when it began


class LongWaits:
    """Looks now and then at who waits for a rate limiter or for room, on a worker."""

    def __init__(self, registry: Registry, workers: Workers) -> None:
        self._registry = registry
        self._workers = workers
        self._told: set[Call] = set()
        self._last_line: dict[Place, float] = {}
        self._hidden: weakref.WeakSet[ManagedArena] = weakref.WeakSet()  # arenas that could not be looked at
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks from now on."""
        self._task = asyncio.ensure_future(self._look_again_and_again())

    def close(self) -> None:
        """Looks no more."""
        if self._task is not None:
            self._task.cancel()

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._workers.run(self._look, self._registry.arenas)
            except Exception:  # our own fault must not end the looks to come
                log.exception("nobody could be asked who waits")

    def _look(self, arenas: Sequence[ManagedArena]) -> None:
        """Tells of calls that have waited for long and were not told of; forgets those that have ended."""
        waiting: set[Call] = set()
        for arena in arenas:
            try:
                if arena.is_usable():
                    waiting |= self._look_at(arena)
            except ShmReplayError as error:
                if arena.is_usable() and arena not in self._hidden:  # else it was dropped a moment ago, or is told of
                    log.error("arena %r: it cannot be seen who waits in it: %s", arena.name, error)
                    self._hidden.add(arena)
        self._told &= waiting
        now = time.monotonic()
        self._last_line = {place: at for place, at in self._last_line.items() if now < at + QUIET_S}

    def _look_at(self, arena: ManagedArena) -> set[Call]:
        """All calls that wait in an arena."""
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
