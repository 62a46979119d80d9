"""Timeouts and interrupts of a vector writer: the error says which rows are done, the call is repeated for the rest."""

import signal
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.writers.vector_writer import VectorWriter
from tests.clients.writers.twins import SIGNATURE, finals, row, rows
from tests.support.tables import TableMaker, live
from tests.support.waiting import eventually


@pytest.fixture
def queue(make_table: TableMaker) -> TableHandle:
    return make_table.queue(5, signature=SIGNATURE)


def shown(table: TableHandle) -> list[int]:
    found: list[int] = live(table).data["action"].ravel().tolist()
    return found


def ended(
    writer: VectorWriter, todo: NDArray[np.bool_], final: Any
) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
    """Keys of the episodes' ends as far as they are admitted now, and which are left."""
    try:
        return writer.end_episodes(todo, final, timeout_s=0), np.zeros(len(todo), np.bool_)
    except sr.RateLimitTimeout as error:
        left = error.done if error.done is not None else ~todo
        return error.keys, ~left


def steps_until_full(writer: VectorWriter) -> tuple[int, sr.RateLimitTimeout]:
    """Appends until that times out; how often it did not, and the timeout."""
    num_steps = 0
    try:
        while True:
            writer.append(rows(10 * np.arange(writer.num_streams) + num_steps), timeout_s=0)
            num_steps += 1
    except sr.RateLimitTimeout as error:
        return num_steps, error


def test_a_timeout_says_per_stream_what_is_done_and_the_rest_is_repeated(queue: TableHandle) -> None:
    with queue.vector_writer(7, patterns=[sr.Sequence(1)]) as writer:
        mask = np.array([True, True, False, True, True, True, True])
        with pytest.raises(
            sr.RateLimitTimeout, match=r"append not admitted within 0 s: .*5 of 6 streams are done"
        ) as raised:
            writer.append(rows(np.arange(7)), mask=mask, timeout_s=0)
        done, keys = raised.value.done, raised.value.keys
        assert done is not None
        assert done.tolist() == [True] * 6 + [False]
        assert keys.shape == (7, 1)
        assert (keys[:, 0] != 0).tolist() == [True, True, False, True, True, True, False]
        assert queue.get(keys[keys != 0]).data["action"].ravel().tolist() == [0, 1, 3, 4, 5]
        assert writer.episode_steps.tolist() == [1, 1, 0, 1, 1, 1, 0]
        assert queue.sample(1).data["action"].tolist() == [[0]]
        rest = writer.append(rows(np.arange(7)), mask=~done, timeout_s=0)
        assert np.flatnonzero(rest[:, 0]).tolist() == [6]
        assert shown(queue) == [1, 3, 4, 5, 6]


def test_after_a_stream_that_waits_none_is_done_also_if_no_item_of_it_is_due(queue: TableHandle) -> None:
    """Else `.done` would count it in the place of the one that waits, whose row the repeated call then leaves out."""
    pattern = sr.Sequence(2, period=2)
    with queue.vector_writer(3, patterns=[pattern]) as writer, queue.writer(patterns=[pattern]) as other:
        writer.append(rows(np.arange(3)), mask=np.array([True, False, True]))  # the stream between is one step behind
        for n in range(10):
            other.append(row(rows([100 + n]), 0))
        with pytest.raises(sr.RateLimitTimeout, match="0 of 3 streams are done") as raised:
            writer.append(rows([10, 11, 12]), timeout_s=0)
        assert raised.value.done is not None
        assert raised.value.done.tolist() == [False, False, False]
        queue.sample(5)
        keys = writer.append(rows([10, 11, 12]), mask=~raised.value.done, timeout_s=0)
        assert (keys[:, 0] != 0).tolist() == [True, False, True]
        writer.append(rows([20, 21, 22]), timeout_s=0)
        assert live(queue).data["action"].tolist() == [[0, 10], [2, 12], [11, 21]]


def test_a_stream_whose_items_are_not_all_admitted_gets_none(queue: TableHandle) -> None:
    with queue.vector_writer(3, patterns=[sr.Sequence(1), sr.Sequence(1, priority=2.0)]) as writer:
        with pytest.raises(sr.RateLimitTimeout) as raised:
            writer.append(rows(np.arange(3)), timeout_s=0)
        assert raised.value.done is not None
        assert raised.value.done.tolist() == [True, True, False]
        assert shown(queue) == [0, 0, 1, 1]
        assert writer.episode_steps.tolist() == [1, 1, 0]


def test_ends_that_time_out_go_on_where_they_were(queue: TableHandle) -> None:
    made: dict[int, list[int]] = {i: [] for i in range(3)}
    with queue.vector_writer(3, patterns=[sr.NStep(4)]) as writer:
        for k in range(3):
            writer.append(rows(10 * np.arange(3) + k))
        todo = np.ones(3, np.bool_)
        while todo.any():
            found, todo = ended(writer, todo, finals([3, 13, 23]))
            for i, keys in enumerate(found):
                made[i] += queue.get(keys).data["action"].tolist() if len(keys) else []
            queue.sample(2)
    assert made == {0: [0, 1, 2], 1: [10, 11, 12], 2: [20, 21, 22]}


def test_create_items_that_time_out_are_repeated_for_the_rest(make_table: TableMaker) -> None:
    table = make_table.queue(3, signature=SIGNATURE, item_steps=2)
    with table.vector_writer(4) as writer:
        for k in range(2):
            writer.append(rows(10 * np.arange(4) + k))
        with pytest.raises(sr.RateLimitTimeout) as raised:
            writer.create_items(length=2, timeout_s=0)
        assert raised.value.done is not None
        assert (raised.value.keys != 0).tolist() == raised.value.done.tolist() == [True, True, True, False]
        table.sample(1)
        assert np.flatnonzero(writer.create_items(length=2, mask=~raised.value.done, timeout_s=0)).tolist() == [3]


@pytest.mark.usefixtures("alarm")
def test_an_interrupt_half_way_carries_what_is_done(queue: TableHandle) -> None:
    with queue.vector_writer(7, patterns=[sr.Sequence(1)]) as writer:

        def interrupt() -> None:
            eventually(lambda: queue.info().blocked_inserts == 1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt) as raised:
            writer.append(rows(np.arange(7)))
        thread.join()
        done: Any = raised.value.done  # type: ignore[attr-defined]
        assert done.tolist() == [True] * 5 + [False] * 2
        queue.sample(5)
        writer.append(rows(np.arange(7)), mask=~done)
        assert shown(queue) == [5, 6]


def test_a_call_waits_for_a_consumer_and_then_does_all(queue: TableHandle) -> None:
    taken: list[int] = []

    def consume() -> None:
        while len(taken) < 60:
            taken.extend(queue.sample(1, timeout_s=100).data["action"].ravel().tolist())

    thread = threading.Thread(target=consume)
    thread.start()
    with queue.vector_writer(12, patterns=[sr.Sequence(1)]) as writer:
        for k in range(5):
            writer.append(rows(100 * np.arange(12) + k), timeout_s=100)
    thread.join()
    assert taken == [100 * i + k for k in range(5) for i in range(12)]


def test_streams_that_find_no_room_wait_while_the_others_items_are_there(make_table: TableMaker) -> None:
    table = make_table.queue(40, signature=SIGNATURE, chunk_steps=1, capacity_steps=1, max_streams=6)
    chunks = table._arena.stats()["num_chunks"]
    with table.vector_writer(6, patterns=[sr.Sequence(1)]) as writer:
        steps, timeout = steps_until_full(writer)
        assert "the arena has no room for more steps" in str(timeout)
        assert timeout.done is not None
        assert len(table) == 6 * steps + timeout.done.sum() <= chunks
        table.sample(len(table))
        writer.append(rows(10 * np.arange(6) + steps), mask=~timeout.done, timeout_s=0)
        assert writer.episode_steps.tolist() == [steps + 1] * 6


def test_a_writer_that_another_thread_uses_stays_open_when_closing_it_is_refused(queue: TableHandle) -> None:
    writer = queue.vector_writer(6, patterns=[sr.Sequence(1)])
    thread = threading.Thread(target=lambda: writer.append(rows(np.arange(6))))
    thread.start()
    eventually(lambda: queue.info().blocked_inserts == 1)
    with pytest.raises(sr.ShmReplayError, match="in use by another thread"):
        writer.close()
    queue.sample(1)
    thread.join()
    assert writer.num_steps.tolist() == [1] * 6
    writer.end_episodes(np.ones(6, np.bool_))
    writer.close()
    queue.sample(5)
    assert queue._arena.stats()["used_chunks"] == 0
