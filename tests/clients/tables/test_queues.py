"""Queues and stacks: every item is sampled exactly once, even if calls are interrupted or processes die."""

import itertools
import signal
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.children import Child, Fork, first_to_speak
from tests.support.tables import TableMaker, numbers, step, steps, values
from tests.support.waiting import eventually


def take(table: TableHandle, n: int, **options: Any) -> list[int]:
    """Samples n; what an error carries counts as well."""
    try:
        return [int(value) for value in numbers(table.sample(n, **options))]
    except sr.RateLimitTimeout as error:
        return [] if error.batch is None else [int(value) for value in numbers(error.batch)]


def test_a_queue_gives_the_oldest_and_a_stack_the_newest_and_both_once(make_table: TableMaker) -> None:
    queue, stack = make_table.queue(6), make_table.stack(6)
    for table, expected in ((queue, [0, 1, 2]), (stack, [5, 4, 3])):
        table.insert_batch(steps(range(6)))
        assert not table.can_insert()
        batch = table.sample(3)
        assert numbers(batch).tolist() == expected
        assert batch.times_sampled.tolist() == [1, 1, 1]
        assert batch.table_size.tolist() == [6, 5, 4]
        assert len(table) == 3
        assert len(table.get(batch.keys)) == 0
        assert [table.can_sample(n) for n in (3, 4)] == [True, False]
        assert [table.can_insert(n) for n in (3, 4)] == [True, False]
    table = make_table.queue(3, item_steps=1, chunk_steps=2)
    for n in range(100):
        table.insert(step(n))
        assert take(table, 1) == [n]
    assert table.info().size == 0


def test_a_sample_of_more_than_a_queue_holds_is_served_as_it_fills(make_table: TableMaker, fork: Fork) -> None:
    queue = make_table.queue(3)
    child = fork(lambda pipe: take(queue, 10))
    for n in range(10):
        queue.insert(step(n))
    assert child.result() == list(range(10))


def test_a_sample_of_more_than_a_queue_holds_hands_out_what_there_was(make_table: TableMaker) -> None:
    queue = make_table.queue(3)
    queue.insert_batch(steps(range(3)))
    with pytest.raises(sr.RateLimitTimeout) as raised:
        queue.sample(10, timeout_s=0)
    assert "after 3 of 10 items, which are in the error's .batch: the table is empty; waiting for an insert" in str(
        raised.value
    )
    assert numbers(raised.value.batch).tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["queue", "stack"])
def test_deleting_gives_room_back(make_table: TableMaker, kind: str) -> None:
    """An item that is deleted unsampled counts as sampled: else a queue that lost items would hold fewer for ever."""
    table: TableHandle = getattr(make_table, kind)(10)
    for round_number in range(5):
        keys = table.insert_batch(steps(range(10)), timeout_s=0)
        assert not table.can_insert()
        assert table.delete(keys[[1, 3, 4, 6, 9]]) == 5
        assert [table.can_insert(n) for n in (5, 6)] == [True, False]
        assert [table.can_sample(n) for n in (5, 6)] == [True, False]
        expected = [0, 2, 5, 7, 8] if kind == "queue" else [8, 7, 5, 2, 0]
        assert take(table, 5, timeout_s=0) == expected
        assert table.info().difference == 0
        assert table.info().samples == 10 * (round_number + 1)


def test_deleting_wakes_a_blocked_insert(make_table: TableMaker, fork: Fork) -> None:
    queue = make_table.queue(2)
    keys = queue.insert_batch(steps([0, 1]))
    child = fork(lambda pipe: queue.insert(step(2)))
    eventually(lambda: queue.info().blocked_inserts == 1)
    queue.delete(keys[:1])
    assert child.result() == queue.keys()[-1]
    assert values(queue) == [1, 2]


def test_a_writer_that_finds_no_room_waits_and_loses_nothing(make_table: TableMaker, fork: Fork) -> None:
    """The queue may hold a thousand, but its arena has room for two dozen steps."""
    queue = make_table.queue(1000, chunk_steps=1, capacity_steps=8, max_streams=2)
    with pytest.raises(sr.RateLimitTimeout) as raised:
        any(queue.insert(step(n), timeout_s=0) < 1 for n in itertools.count())  # every key is at least 1
    went_in = len(queue)
    text = str(raised.value)
    assert "insert not admitted within 0 s: the arena has no room for more steps: of " in text
    assert "The table evicts no items for room: sample or delete some, or create it with a larger capacity" in text
    assert queue.info().evicted == 0
    with pytest.raises(sr.RateLimitTimeout, match="the arena has no room for more steps") as raised:
        queue.insert_batch(steps([7]), timeout_s=0)
    assert raised.value.keys is not None
    assert len(raised.value.keys) == 0

    def insert_the_rest(pipe: Any) -> None:
        for n in range(went_in, 200):
            queue.insert(step(n))

    child = fork(insert_the_rest)
    assert list(itertools.chain.from_iterable(take(queue, 5) for _ in range(40))) == list(range(200))
    child.result()


def test_an_arena_that_must_not_wait_says_full_at_once(make_table: TableMaker) -> None:
    queue = make_table.queue(1000, chunk_steps=1, capacity_steps=8, max_streams=2, on_full="error")
    with pytest.raises(sr.ArenaFull, match="insert_batch: the arena has no free chunk; raise capacity_steps") as raised:
        queue.insert_batch(steps(range(500)))
    assert raised.value.keys is not None
    count = len(raised.value.keys)
    assert 8 <= count < 500
    with pytest.raises(sr.ArenaFull, match="insert: the arena has no free chunk"):
        queue.insert(step(count))
    assert take(queue, count, timeout_s=0) == list(range(count))
    assert queue.insert(step(0)) > 0


def test_timeouts_of_both_sides_lose_nothing_and_double_nothing(make_table: TableMaker, fork: Fork, seed: int) -> None:
    """Four producers and four consumers whose calls give up after up to a few milliseconds."""
    queue = make_table.queue(7, max_sessions=16, chunk_steps=3)
    each = 400

    def put(some: list[int], timeout_s: float) -> int:
        """How many of them went in."""
        try:
            return len(queue.insert_batch(steps(some), timeout_s=timeout_s))
        except sr.RateLimitTimeout as error:
            return 0 if error.keys is None else len(error.keys)

    def produce(pipe: Any, first: int) -> None:
        rng = np.random.default_rng([seed, first])
        todo = list(range(first, first + each))
        while todo:
            del todo[: put(todo[: int(rng.integers(1, 12))], float(rng.random() * 0.003))]

    def consume(pipe: Any, number: int) -> list[int]:
        rng = np.random.default_rng([seed, number])
        taken: list[int] = []
        while not pipe.poll():
            taken += take(queue, int(rng.integers(1, 12)), timeout_s=float(rng.random() * 0.003))
        return taken

    producers = [fork(lambda pipe, i=i: produce(pipe, i * each)) for i in range(4)]  # type: ignore[misc]
    consumers = [fork(lambda pipe, i=i: consume(pipe, i)) for i in range(4)]  # type: ignore[misc]
    for child in producers:
        child.result()
    eventually(lambda: len(queue) == 0)
    for child in consumers:
        child.send()
    taken = [child.result() for child in consumers]
    assert sorted(itertools.chain.from_iterable(taken)) == list(range(4 * each))
    for some in taken:
        for first in range(0, 4 * each, each):
            mine = [n for n in some if first <= n < first + each]
            assert mine == sorted(mine)  # each producer's items come in its order
    info = queue.info()
    assert (info.inserts, info.samples, info.deletes) == (4 * each, 4 * each, 4 * each)


def test_ctrl_c_in_the_middle_of_a_sample_loses_nothing(make_table: TableMaker, fork: Fork) -> None:
    """Forty times: fewer items come than were asked for, and the consumer is interrupted while it waits for more."""
    queue = make_table.queue(10)

    def consume(pipe: Any) -> None:
        while True:
            try:
                pipe.send(numbers(queue.sample(5)).tolist())
            except KeyboardInterrupt as error:
                batch = getattr(error, "batch", None)
                pipe.send([] if batch is None else numbers(batch).tolist())

    child = fork(consume)
    n = 0
    for i in range(40):
        eventually(lambda: queue.info().blocked_samples == 1)
        some = list(range(n, n + i % 5))
        n += len(some)
        if some:
            queue.insert_batch(steps(some))
            eventually(lambda: len(queue) == 0)
            eventually(lambda: queue.info().blocked_samples == 1)
        child.signal(signal.SIGINT)
        assert child.receive() == some
    assert queue.info().samples == n
    child.kill()


def test_ctrl_c_in_the_middle_of_an_insert_loses_nothing(make_table: TableMaker, fork: Fork) -> None:
    queue = make_table.queue(4)

    def produce(pipe: Any) -> None:
        todo = list(range(100))
        while todo:
            try:
                queue.insert_batch(steps(todo[:9]))
                del todo[:9]
            except KeyboardInterrupt as error:
                del todo[: len(getattr(error, "keys", []))]
                pipe.send()

    child = fork(produce)
    taken: list[int] = []
    while len(taken) < 100 - 4:
        # Full and with a sleeper again: it sleeps until the signal comes, not in what the last take() let it do.
        eventually(lambda: len(queue) == 4 and queue.info().blocked_inserts == 1)
        child.signal(signal.SIGINT)
        child.receive()
        taken += take(queue, 3)
    taken += take(queue, 100 - len(taken))
    child.result()
    assert taken == list(range(100))
    assert queue.info().inserts == 100


def test_a_killed_consumer_takes_no_more_with_it_than_it_had_drawn(
    make_table: TableMaker, fork: Fork, rng: np.random.Generator
) -> None:
    """Consumers are killed at random moments; every item comes out once, or went with a dead one that asked for it."""
    queue = make_table.queue(20, chunk_steps=4, max_sessions=64)
    count, asked_for = 3000, 6

    def produce(pipe: Any) -> None:
        for n in range(0, count, 10):
            queue.insert_batch(steps(range(n, n + 10)))

    def consume(pipe: Any) -> None:
        while True:
            pipe.send(take(queue, asked_for, at_least=1))

    producer = fork(produce)
    consumers = [fork(consume) for _ in range(3)]
    taken: list[int] = []
    killed = 0
    while queue.info().samples < count:
        for child in first_to_speak(consumers) if any(c.has_something() for c in consumers) else []:
            taken += child.receive()
        if killed < 25 and rng.random() < 0.002:
            victim = consumers.pop(int(rng.integers(3)))
            taken += told_before_death(victim)
            killed += 1
            consumers.append(fork(consume))
    producer.result()
    for child in consumers:
        taken += told_before_death(child)
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(range(count))
    lost = count - len(taken)
    print(f"{killed} consumers killed, {lost} items went with them")
    assert lost <= (killed + 3) * asked_for
    info = queue.info()
    assert (info.inserts, info.samples, info.size) == (count, count, 0)


def told_before_death(child: Child) -> list[int]:
    """Kills it and reads what it had sent; a message that its death cut short was not received."""
    child.signal(signal.SIGKILL)
    taken: list[int] = []
    while True:
        try:
            taken += child.pipe.recv()[1]
        except (EOFError, OSError):
            break
    child.kill()
    return taken


def test_consumption_stops_at_max_times_sampled(make_table: TableMaker, rng: np.random.Generator) -> None:
    """Any sampler: each item is drawn three times, then it is gone."""
    for sampler in (sr.selectors.Uniform(), sr.selectors.Prioritized(0.8), sr.selectors.MaxHeap(), sr.selectors.Lifo()):
        table = make_table(60, sampler=sampler, max_times_sampled=3, chunk_steps=4)
        table.insert_batch(steps(range(60)), rng.random(60) + 0.1)
        assert [table.can_sample(n) for n in (180, 181)] == [True, False]
        with pytest.raises(sr.RateLimitTimeout) as raised:
            table.sample(200, timeout_s=0)
        batch = raised.value.batch
        drawn = numbers(batch)
        assert np.bincount(drawn).tolist() == [3] * 60
        for n in range(60):
            assert batch.times_sampled[drawn == n].tolist() == [1, 2, 3]
        info = table.info()
        assert (info.size, info.samples, info.deletes, info.num_unique_samples) == (0, 180, 60, 60)
