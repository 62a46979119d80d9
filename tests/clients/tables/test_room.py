"""Room in the arena: enough for max_size items in any order of removal; with less, the oldest items are evicted."""

import logging

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from shmreplay.tables.plan import harmonic
from tests.support.tables import TableMaker, check, columns_of, numbers, step, steps, values

REMOVERS = [
    sr.selectors.Uniform(),
    sr.selectors.Lifo(),
    sr.selectors.MinHeap(),
    sr.selectors.MaxHeap(),
    sr.selectors.Prioritized(0.0),
    sr.selectors.Prioritized(1.0),
]


@pytest.mark.parametrize("chunk_steps", [1, 8, 64])
@pytest.mark.parametrize("remover", REMOVERS, ids=lambda remover: f"{type(remover).__name__}{remover.exponent:g}")
def test_a_full_table_loses_no_item_for_want_of_room(
    make_table: TableMaker, rng: np.random.Generator, remover: sr.selectors.Selector, chunk_steps: int
) -> None:
    """Chunks become free only with their last item; max_size times the harmonic number of chunk_steps is enough for
    removals at random.

    Removers that go by priority are made to remove at random by new priorities again and again.
    """
    max_size = 4096
    table = make_table(max_size, remover=remover, chunk_steps=chunk_steps, max_streams=4)
    expected = max_size * harmonic(chunk_steps) / chunk_steps
    assert table.estimate().terms[0].chunks == int(np.ceil(expected))
    n = 0
    for _ in range(80):
        table.insert_batch(steps(range(n, n + 512)), rng.random(512))
        n += 512
        keys = table.keys()
        table.update_priorities(keys, rng.random(len(keys)))
        if len(table) == max_size and isinstance(remover, sr.selectors.Lifo):
            # It takes the newcomer itself, for ever: deleting at random makes the holes that new items go into.
            table.delete(rng.choice(keys, 700, replace=False))
    info = table.info()
    assert info.evicted_for_room == 0
    assert info.evicted == info.inserts - info.size - (info.deletes - info.evicted)
    assert len(values(table)) == info.size >= max_size - 700
    stats = table._arena.stats()
    print(f"{stats['used_chunks']} of {stats['num_chunks']} chunks used for {info.size} items")


@pytest.mark.parametrize("remover", [sr.selectors.MinHeap(), sr.selectors.MaxHeap(), sr.selectors.Prioritized(1.0)])
def test_a_remover_that_keeps_a_few_for_ever_may_need_more_and_then_the_oldest_go(
    make_table: TableMaker,
    rng: np.random.Generator,
    caplog: pytest.LogCaptureFixture,
    remover: sr.selectors.Selector,
) -> None:
    """With priorities that stay as they are, a chunk is held by the one of its items that is never removed."""
    table = make_table(512, remover=remover, chunk_steps=64, max_streams=2)
    priorities: dict[int, float] = {}
    with caplog.at_level(logging.WARNING, "shmreplay"):
        for first in range(0, 50_000, 500):
            some = rng.random(500)
            priorities.update(zip(range(first, first + 500), some.tolist(), strict=True))
            table.insert_batch(steps(range(first, first + 500)), some)
    [record] = caplog.records
    assert "a chunk of 64 steps is free only once all its items are evicted" in record.getMessage()
    batch = table.get(table.keys())
    assert batch.priorities.tolist() == [priorities[n] for n in numbers(batch).tolist()]
    info = table.info()
    assert 0 < info.evicted_for_room < info.evicted
    assert info.size > 256
    print(f"{info.evicted_for_room} of {info.evicted} evicted for room, {info.size} items left")


def test_a_consuming_table_of_random_draws_never_waits_for_room(
    make_table: TableMaker, rng: np.random.Generator
) -> None:
    table = make_table(1000, max_times_sampled=1, sampler=sr.selectors.Uniform(), chunk_steps=64, max_streams=4)
    n = 0
    for _ in range(100):
        count = int(rng.integers(0, 1000 - len(table) + 1))
        table.insert_batch(steps(range(n, n + count)), timeout_s=0)
        n += count
        if len(table) > 0:
            numbers(table.sample(int(rng.integers(1, len(table) + 1)), timeout_s=0))
    assert table.info().evicted == 0


def test_where_room_is_short_the_oldest_chunk_goes_and_is_counted_and_said_once(
    make_table: TableMaker, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(1000, chunk_steps=4, capacity_steps=40, max_streams=2)
    with caplog.at_level(logging.WARNING, "shmreplay"):
        table.insert_batch(steps(range(2000)))
    info = table.info()
    found = values(table)
    assert found == list(range(2000 - len(found), 2000))
    assert 40 <= len(found) < 1000
    assert info.evicted == info.evicted_for_room == 2000 - len(found)
    [record] = caplog.records
    assert "the oldest are already evicted for room" in record.getMessage()
    assert "Create it with capacity_steps=" in record.getMessage()


def test_spans_give_their_chunks_back_from_the_oldest_on(make_table: TableMaker) -> None:
    table = make_table(500, item_steps=5, chunk_steps=2, capacity_steps=20, max_streams=2)
    with table.writer() as writer:
        for n in range(600):
            writer.append(step(n))
            if n >= 4:
                writer.create_item(length=5)
            if n % 50 == 0:
                assert check(table) == []
    batch = table.get(table.keys())
    firsts = batch.data["n"][:, 0]
    assert firsts.tolist() == list(range(596 - len(firsts), 596))
    np.testing.assert_array_equal(batch.data["x"], columns_of(firsts[:, None] + np.arange(5))["x"])
    assert table.info().evicted_for_room == 596 - len(firsts) > 0


def test_what_a_writer_still_holds_is_not_evicted(make_table: TableMaker) -> None:
    """Another writer runs through the arena many times; the first one's history is as it was."""
    table = make_table(100, item_steps=6, chunk_steps=2, capacity_steps=20, max_streams=3)
    with table.writer(history=6) as patient, table.writer(history=1) as busy:
        for n in range(6):
            patient.append(step(n))
        for n in range(1000, 1500):
            busy.append(step(n))
            busy.create_item(length=1)
        patient.create_item(length=6)
    assert table.get(table.keys()[-1:]).data["n"].tolist() == [[0, 1, 2, 3, 4, 5]]


def test_an_item_taken_out_by_its_remover_at_once_has_a_key_that_hits_nothing(make_table: TableMaker) -> None:
    table = make_table(2, remover=sr.selectors.MinHeap(), sampler=sr.selectors.Fifo())
    table.insert_batch(steps([0, 1]), [5, 6])
    key = table.insert(step(2), 1.0)
    assert len(table.get([key])) == 0
    assert values(table) == [0, 1]
    assert (table.info().inserts, table.info().deletes, table.info().evicted) == (3, 1, 1)


def room_is_back(table: TableHandle, num_items: int) -> bool:
    """After deleting everything: as many items go in again as at first."""
    table.delete(table.keys())
    table.insert_batch(steps(range(num_items)), timeout_s=0)
    return len(table) == num_items


def test_deleted_items_give_their_room_back(make_table: TableMaker) -> None:
    table = make_table(100, chunk_steps=8, on_full="wait", max_streams=1)
    for _ in range(30):
        assert room_is_back(table, 100)
    assert table.info().evicted == 0
