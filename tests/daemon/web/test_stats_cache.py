"""The page's figures: read once for all open pages, and again after a change."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from shmreplay.daemon.loop.workers import Workers
from shmreplay.daemon.web.stats_cache import FRESH_ITEMS_S, FRESH_S, StatsCache


class Looks:
    """A daemon whose figures say how often they were read, and a clock that stands still."""

    def __init__(self) -> None:
        self.number = 0
        self.now_s = 100.0
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def read(self, items: bool) -> dict[str, Any]:
        self.number += 1
        found = {"look": self.number, "arenas": {}}
        self.begun.set()
        await self.may_end.wait()
        return found


Scene = Callable[[Looks, StatsCache], Awaitable[None]]
Play = Callable[[Scene], None]


@pytest.fixture
def play() -> Iterator[Play]:
    """Runs a scene with a cache of the looks."""
    workers = Workers()

    async def run(scene: Scene) -> None:
        looks = Looks()
        await scene(looks, StatsCache(looks.read, workers, lambda: looks.now_s))

    yield lambda scene: asyncio.run(run(scene))
    workers.close()


async def look(cache: StatsCache, items: bool = False) -> int:
    """Which reading of the daemon's figures somebody is answered with."""
    number: int = json.loads(await cache.read(items))["look"]
    return number


@pytest.mark.parametrize(("items", "fresh_s"), [(False, FRESH_S), (True, FRESH_ITEMS_S)])
def test_figures_are_read_again_when_they_are_no_longer_fresh(play: Play, items: bool, fresh_s: float) -> None:
    async def scene(looks: Looks, cache: StatsCache) -> None:
        assert await look(cache, items) == 1
        looks.now_s += 0.9 * fresh_s
        assert await look(cache, items) == 1
        looks.now_s += 0.1 * fresh_s
        assert await look(cache, items) == 2

    play(scene)


def test_figures_with_items_are_kept_apart_from_those_without(play: Play) -> None:
    async def scene(looks: Looks, cache: StatsCache) -> None:
        assert [await look(cache, items) for items in (False, True, False, True)] == [1, 2, 1, 2]

    play(scene)


def test_two_requests_at_once_get_the_same_figures(play: Play) -> None:
    async def scene(looks: Looks, cache: StatsCache) -> None:
        one, other = await asyncio.gather(look(cache), look(cache))
        assert one == other == 1

    play(scene)


def test_a_change_is_seen_by_the_next_request(play: Play) -> None:
    async def scene(looks: Looks, cache: StatsCache) -> None:
        assert await look(cache) == 1
        cache.forget()
        assert await look(cache) == 2

    play(scene)


def test_figures_that_were_being_read_during_a_change_are_not_kept(play: Play) -> None:
    async def scene(looks: Looks, cache: StatsCache) -> None:
        looks.may_end.clear()
        before = asyncio.ensure_future(look(cache))
        await looks.begun.wait()
        cache.forget()
        after = asyncio.ensure_future(look(cache))
        looks.may_end.set()
        assert (await before, await after) == (1, 2)
        assert await look(cache) == 2

    play(scene)


def test_a_look_that_fails_is_told_and_the_next_one_reads_anew(play: Play) -> None:
    async def scene(looks: Looks, cache: StatsCache) -> None:
        async def fail(items: bool) -> dict[str, Any]:
            raise OSError("out of descriptors")

        cache._stats = fail
        with pytest.raises(OSError, match="out of descriptors"):
            await cache.read(False)
        cache._stats = looks.read
        assert await look(cache) == 1

    play(scene)
