"""StatsCache: the figures for the page as JSON: those of `stats`, and why callers wait."""

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

FRESH_S = 0.9  # each page asks once a second; the figures are read once for all pages
FRESH_ITEMS_S = 4.5  # reading up to 65,536 items of each table takes longer


class StatsCache:
    """Caches the answers to `GET /api/stats` for a short time."""

    def __init__(self, stats: Stats, workers: Workers, clock: Callable[[], float] = time.monotonic) -> None:
        self._stats = stats
        self._workers = workers
        self._clock = clock
        self._turns = {False: asyncio.Lock(), True: asyncio.Lock()}
        self._known: dict[bool, tuple[float, bytes]] = {}

    async def read(self, items: bool) -> bytes:
        """Returns the figures as JSON, at most a moment old; with `items` also those of items."""
        async with self._turns[items]:
            known = self._known  # kept, because `forget` may replace the attribute while we read
            at = self._clock()
            if items in known and at - known[items][0] < (FRESH_ITEMS_S if items else FRESH_S):
                return known[items][1]
            stats = await self._stats(items)
            body = await self._workers.run(_pack, stats, at)
            known[items] = (at, body)
            return body

    def forget(self) -> None:
        """Makes the next request read the figures again, after a change."""
        self._known = {}


def _pack(stats: dict[str, Any], at: float) -> bytes:
    for arena in stats["arenas"].values():
        _add_reasons(arena)
    return json.dumps(json_value({"at_s": at, "time": time.time(), **stats}), separators=(",", ":")).encode()


def _add_reasons(arena: dict[str, Any]) -> None:
    """Adds `why` to each table with waiting callers: by side, the reason of the wait."""
    for table, side in dict.fromkeys((wait["table"], wait["side"]) for wait in arena.get("waits", ())):
        info = arena["tables"].get(table)
        if info:
            info.setdefault("why", {})[side] = explain(info, side, arena["stats"])
