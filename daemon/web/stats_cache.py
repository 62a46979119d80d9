"""StatsCache: the figures that the page draws, what `stats` says, and why those wait who do, as JSON."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from shmreplay.base.json_values import json_value
from shmreplay.base.waiting import explain
from shmreplay.daemon.loop.workers import Workers

Stats = Callable[[bool], Awaitable[dict[str, Any]]]

FRESH_S = 0.9  # pages ask once a second: however many there are, the figures are read once
FRESH_ITEMS_S = 4.5  # reading up to 65,536 items of each table takes longer


class StatsCache:
    """Answers to `GET /api/stats`, each kept until it is too old."""

    def __init__(self, stats: Stats, workers: Workers, clock: Callable[[], float] = time.monotonic) -> None:
        self._stats = stats
        self._workers = workers
        self._clock = clock
        self._turns = {False: asyncio.Lock(), True: asyncio.Lock()}
        self._known: dict[bool, tuple[float, bytes]] = {}

    async def read(self, items: bool) -> bytes:
        """The figures as JSON, of this moment or a little before; `items` adds what is known by looking at items."""
        async with self._turns[items]:
            known = self._known  # `forget` puts another in its place, also during the reading
            at = self._clock()
            if items in known and at - known[items][0] < (FRESH_ITEMS_S if items else FRESH_S):
                return known[items][1]
            stats = await self._stats(items)
            body = await self._workers.run(_pack, stats, at)
            known[items] = (at, body)
            return body

    def forget(self) -> None:
        """Whoever asks next sees what has just been changed."""
        self._known = {}


def _pack(stats: dict[str, Any], at: float) -> bytes:
    for arena in stats["arenas"].values():
        _add_reasons(arena)
    return json.dumps(json_value({"at_s": at, "time": time.time(), **stats}), separators=(",", ":")).encode()


def _add_reasons(arena: dict[str, Any]) -> None:
    """Gives each table that somebody waits for `why`: by side, what has to happen for them to go on."""
    for table, side in dict.fromkeys((wait["table"], wait["side"]) for wait in arena.get("waits", ())):
        info = arena["tables"].get(table)
        if info:
            info.setdefault("why", {})[side] = explain(info, side, arena["stats"])
