"""Clients are killed at random moments while others go on: nothing that was committed is lost or half done."""

import contextlib
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.children import Fork
from tests.support.rounds import rounds
from tests.support.tables import PATHS, TableMaker, by_path, check, columns_of, numbers, step, steps
from tests.support.waiting import eventually

KILLS = rounds(20, 80)
SLOTS = 5  # clients at a time
WAIT = 0.002  # seconds for the queue, which is full or empty time and again


def use_steps(table: TableHandle, rng: np.random.Generator) -> None:
    """One random operation on a table of one-step items; large ones, which spend much of their time in the lock."""
    what, count = rng.integers(8), int(rng.integers(1, 5000))
    if what == 0:
        table.insert(step(int(rng.integers(10**6))), float(rng.random()), timeout_s=WAIT)
    elif what <= 3:
        table.insert_batch(steps(rng.integers(0, 10**6, count)), rng.random(count), timeout_s=WAIT)
    elif what <= 5:
        batch = table.sample(1 + count // 50, at_least=1, timeout_s=WAIT)
        table.update_priorities(np.resize(batch.keys, count), rng.random(count))
        numbers(batch)
    elif what == 6 and (keys := table.keys()).size > 0:
        table.delete(rng.choice(keys, len(keys) // 3))
    else:
        numbers(table.get(table.keys()))


def use_spans(table: TableHandle, rng: np.random.Generator) -> None:
    """An episode with items of many lengths, and a look at what is there."""
    with table.writer(history=5) as writer:
        first = int(rng.integers(10**6))
        for i in range(int(rng.integers(1, 20))):
            writer.append(step(first + i))
            writer.create_item(length=int(rng.integers(1, min(i + 1, 5) + 1)))
        look_at_spans(table, rng)
        if rng.random() < 0.5:
            writer.append({"n": 0}, partial=True)
        writer.end_episode()


def look_at_spans(table: TableHandle, rng: np.random.Generator) -> None:
    batch = table.sample(int(rng.integers(1, 30)), timeout_s=WAIT)
    data, mask = by_path(batch.data), by_path(batch.mask)["n"]
    first = data["n"][:, :1]
    np.testing.assert_array_equal(data["n"], np.where(mask, first + np.arange(mask.shape[1]), 0))
    for path in PATHS[1:]:
        expected = columns_of(data["n"])[path]
        expected[~mask] = 0
        np.testing.assert_array_equal(data[path], expected)


def is_whole(table: TableHandle) -> None:
    """Every invariant, the counters, every live item's bytes."""
    assert check(table) == []
    info = table.info()
    assert info.inserts - info.deletes == info.size == len(table.keys())


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.filterwarnings("ignore:.*update_priorities hit none:UserWarning")  # others may have evicted them all
@pytest.mark.long
def test_clients_killed_at_random_hurt_nobody(
    make_table: TableMaker, fork: Fork, rng: np.random.Generator, seed: int
) -> None:
    options: dict[str, Any] = {"max_streams": 32, "max_sessions": 64}
    tables = [
        make_table(60, sampler=sr.selectors.Prioritized(0.7), chunk_steps=3, **options),
        make_table(200, sampler=sr.selectors.MaxHeap(), remover=sr.selectors.Uniform(), capacity_steps=40, **options),
        make_table.queue(30, chunk_steps=2, **options),
        make_table(100, item_steps=5, chunk_steps=2, capacity_steps=60, **options),
    ]

    def work(pipe: Any, number: int) -> None:
        own = np.random.default_rng([seed, number])
        while not pipe.poll():
            table = tables[own.integers(4)]
            with contextlib.suppress(sr.RateLimitTimeout):
                (use_spans if table is tables[3] else use_steps)(table, own)

    children = [fork(lambda pipe, i=i: work(pipe, i)) for i in range(SLOTS)]  # type: ignore[misc]
    for number in range(SLOTS, SLOTS + KILLS):
        for _ in range(int(rng.integers(8))):
            table = tables[rng.integers(3)]
            with contextlib.suppress(sr.RateLimitTimeout):
                use_steps(table, rng)
        for child in children:
            assert not child.has_something(), child.result()  # it failed
        slot = int(rng.integers(SLOTS))
        children[slot].kill()
        children[slot] = fork(lambda pipe, i=number: work(pipe, i))  # type: ignore[misc]
        for table in tables:
            assert check(table) == []
    for child in children:
        child.send()
    for child in children:
        child.result()
    for table in tables:
        eventually(lambda: len(table._arena.sessions()) == 1)  # noqa: B023  # called here
        is_whole(table)
        table.reset()
        is_whole(table)
        assert table._arena.stats()["used_chunks"] <= 2  # those of this process' own streams
    print(f"{KILLS} killed, {[table._arena.stats()['recoveries'] for table in tables]} of them inside the lock")
