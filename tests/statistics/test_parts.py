"""Parts of several learners: batches without a common item, each drawn in proportion to the weights of its part."""

import itertools
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.ranks import seed_of_rank
from shmreplay.clients.tables.table import TableHandle
from tests.statistics.chi_square import is_drawn_by
from tests.statistics.numbered import SIGNATURE, filled
from tests.support.children import Fork, Work
from tests.support.tables import TableMaker
from tests.support.waiting import eventually

UNIFORM, PRIORITISED = sr.selectors.Uniform(), sr.selectors.Prioritized(0.7)


def values(table: TableHandle, n: int, part: tuple[int, int], **options: Any) -> list[int]:
    drawn: list[int] = table.sample(n, replacement=False, part=part, **options).data["n"].tolist()
    return drawn


@pytest.mark.parametrize("sampler", [UNIFORM, PRIORITISED])
@pytest.mark.parametrize("world_size", [1, 2, 5, 16])
def test_whole_parts_are_disjoint_and_leave_nothing_out(
    make_table: TableMaker, seed: int, sampler: sr.selectors.Selector, world_size: int
) -> None:
    priorities = np.random.default_rng(seed).random(160) ** 8 + 1e-9
    table = filled(make_table, 160, priorities, sampler=sampler, seed=seed)
    drawn = [values(table, 160 // world_size, (rank, world_size)) for rank in range(world_size)]
    assert sorted(itertools.chain(*drawn)) == list(range(160))
    for rank, mine in enumerate(drawn):
        assert {n % world_size for n in mine} == {rank}


@pytest.mark.parametrize("sampler", [UNIFORM, PRIORITISED])
def test_selections_of_a_part_follow_the_weights_of_what_is_left_of_it(
    make_table: TableMaker, seed: int, sampler: sr.selectors.Selector
) -> None:
    priorities = np.array([1.0, 900.0, 2.0, 0.1, 7.0, 70.0, 0.3, 8.0])
    table = filled(make_table, 8, priorities, seed=seed, sampler=sampler)
    weights: NDArray[np.float64] = np.ones(4) if sampler is UNIFORM else priorities[::2] ** 0.7
    expected: dict[tuple[int, ...], float] = {}
    for i, j in itertools.permutations(range(4), 2):
        expected[2 * i, 2 * j] = weights[i] / weights.sum() * weights[j] / (weights.sum() - weights[i])
    counts = dict.fromkeys(expected, 0)
    for _ in range(10_000):
        counts[tuple(values(table, 2, (0, 2)))] += 1
    assert is_drawn_by(np.array(list(counts.values())), np.array(list(expected.values())))


def test_learners_in_processes_of_their_own_draw_disjoint_batches(
    make_table: TableMaker, seed: int, fork: Fork
) -> None:
    world_size = 3
    table = filled(make_table, 3000, sampler=PRIORITISED)

    def learner(rank: int) -> Work:
        def work(pipe: Connection) -> list[list[int]]:
            client = sr.connect(table._client.address)
            sampler = client.table(table.name).sampler(
                64, seed=seed_of_rank(seed, rank), replacement=False, part=(rank, world_size)
            )
            batches = []
            for batch in itertools.islice(sampler, 20):
                batches.append(batch.keys.tolist())
                assert client.table(table.name).update_priorities(batch.keys, np.full(64, 1.0 + rank)) == 64
            client.close()
            return batches

        return work

    drawn = [child.result() for child in [fork(learner(rank)) for rank in range(world_size)]]
    for together in zip(*drawn, strict=True):
        assert len(set(itertools.chain(*together))) == world_size * 64
    ranks: list[set[int]] = [set(itertools.chain(*batches)) for batches in drawn]
    assert not ranks[0] & ranks[1]
    assert not ranks[0] & ranks[2]
    assert not ranks[1] & ranks[2]


def test_a_part_of_a_table_that_is_written_to_stays_disjoint(make_table: TableMaker, seed: int, fork: Fork) -> None:
    table = filled(make_table, 500, sampler=UNIFORM)

    def actor(pipe: Connection) -> None:
        own = sr.connect(table._client.address).table(table.name)
        n = 500
        while not pipe.poll():
            own.insert_batch({"n": np.arange(n, n + 32)})
            n += 32

    child = fork(actor)
    before = table.info().inserts
    eventually(lambda: table.info().inserts > before + 1000)
    slots = [set[int](), set[int]()]
    for _ in range(100):
        for rank in (0, 1):
            batch = table.sample(100, replacement=False, part=(rank, 2))
            assert len(set(batch.keys.tolist())) == 100
            slots[rank] |= set((batch.keys % 512).tolist())  # max_size 500: nine bits of a key are its slot
    child.send()
    child.result()
    assert not slots[0] & slots[1]


def test_more_than_a_part_has_is_refused_with_its_numbers(make_table: TableMaker) -> None:
    table = filled(make_table, 9, sampler=PRIORITISED, priorities=[1, 0, 1, 0, 1, 0, 1, 1, 0])
    with pytest.raises(
        ValueError, match=r"n is 5 with replacement=False, but the table has 4 items of .* in part \(0, 2\);"
    ):
        values(table, 5, (0, 2))
    assert values(table, 3, (1, 2), at_least=1) == [7]
    assert table.info().samples == 1
    plain = filled(make_table, 9)
    with pytest.raises(ValueError, match=r"but the table has 4 items in part \(1, 2\); expected at most as many"):
        values(plain, 5, (1, 2))
    assert sorted(values(plain, 4, (1, 2))) == [1, 3, 5, 7]


def test_a_part_goes_with_random_draws_without_replacement(make_table: TableMaker) -> None:
    table = filled(make_table, 9)
    with pytest.raises(ValueError, match=r"part is \(0, 2\), but replacement=True; expected replacement=False"):
        table.sample(2, part=(0, 2))
    with pytest.raises(ValueError, match="with rank from 0 to 1"):
        values(table, 2, (2, 2))
    fifo = filled(make_table, 9, sampler=sr.selectors.Fifo())
    with pytest.raises(
        ValueError, match=r"part is \(0, 2\), but its sampler is Fifo\(\); expected Uniform or Prioritized"
    ):
        values(fifo, 2, (0, 2))


def test_a_table_with_shards_has_no_parts(server: sr.Server) -> None:
    with server.client() as client:
        client.create_tables([sr.Table("sharded", SIGNATURE, 10, shards=2, max_streams=4, max_sessions=4)])
        with pytest.raises(ValueError, match=r"part=\(0, 2\), but it has 2 shards"):
            client.table("sharded").sample(2, part=(0, 2))
        client.drop_table("sharded")
