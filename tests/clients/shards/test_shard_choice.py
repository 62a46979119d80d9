"""Which shard a writer gets: the one with the fewest streams; in a tie, processes and writers spread evenly."""

import collections
from types import SimpleNamespace
from typing import Any

from shmreplay.clients.shards.shard_choice import choose_shard


def arenas(streams: list[int], session: int = 0) -> list[Any]:
    return [SimpleNamespace(open_streams=number, session=session) for number in streams]


def test_the_shard_with_the_fewest_streams_is_taken() -> None:
    for _ in range(7):
        assert choose_shard(arenas([3, 1, 2])) == 1
        assert choose_shard(arenas([3, 2, 0])) == 2


def test_writers_of_one_process_spread_evenly_in_a_tie() -> None:
    chosen = collections.Counter(choose_shard(arenas([0, 0, 0])) for _ in range(30))
    assert chosen == {0: 10, 1: 10, 2: 10}
    chosen = collections.Counter(choose_shard(arenas([1, 0, 0, 1])) for _ in range(40))
    assert chosen.keys() == {1, 2}, "only of those with the fewest"
